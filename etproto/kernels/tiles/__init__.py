"""Tile kinds, one file a family: mathematics, operands, NumPy reference, device body, regions and cost."""
