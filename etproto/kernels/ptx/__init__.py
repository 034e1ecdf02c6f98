"""All inline PTX. Each intrinsic documents its PTX line, why it has that memory order, and its twin in
Numba's simulator.
"""
