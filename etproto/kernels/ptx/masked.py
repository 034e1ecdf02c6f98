"""Loads and stores of global memory under a predicate, for the edges of tiles.

An ``if`` around each of a hundred accumulator elements makes a hundred branches, which cost time in the kernel and
far more in the compiler. Addresses are int64; a masked access outside touches nothing.
"""

from __future__ import annotations

import ctypes

import numpy as np

from etproto.kernels.ptx.inline import intrinsic_with_twin

__all__ = ["load_bits16_if", "opaque_index", "store_bits16_if", "store_float32_if"]


@intrinsic_with_twin(
    "{.reg .pred p; .reg .b16 h; mov.b16 h, 0; setp.ne.b32 p, $2, 0; @p ld.global.b16 h, [$1]; cvt.u32.u16 $0, h;}",
    "=r,l,r",
    "int32",
    ("int64", "int32"),
    pure=True,
)
def load_bits16_if(address: int, inside: int) -> int:
    """``ld.global.b16`` under a predicate: 16 bits, or 0 where `inside` is 0."""
    return ctypes.c_uint16.from_address(int(address)).value if inside else 0


@intrinsic_with_twin("mov.b64 $0, $1;", "=l,l", "int64", ("int64",), pure=True)
def opaque_index(index: int) -> int:
    """``mov.b64``: the same index, of which NVVM does not see what it is made of.

    Where the first of many addresses is ``index * stride``, and the others follow from constants added to the index,
    each is worked out by a multiplication of its own otherwise, and held in registers.
    """
    return int(index)


@intrinsic_with_twin(
    "{.reg .pred p; .reg .b16 h; cvt.u16.u32 h, $1; setp.ne.b32 p, $2, 0; @p st.global.b16 [$0], h;}",
    "l,r,r,~{memory}",
    None,
    ("int64", "int32", "int32"),
)
def store_bits16_if(address: int, bits: int, inside: int) -> None:
    """``st.global.b16`` under a predicate: the lower 16 bits, unless `inside` is 0."""
    if inside:
        ctypes.c_uint16.from_address(int(address)).value = int(bits) & 0xFFFF


@intrinsic_with_twin(
    "{.reg .pred p; setp.ne.b32 p, $2, 0; @p st.global.f32 [$0], $1;}",
    "l,f,r,~{memory}",
    None,
    ("int64", "float32", "int32"),
)
def store_float32_if(address: int, value: float, inside: int) -> None:
    """``st.global.f32`` under a predicate: the value, unless `inside` is 0."""
    if inside:
        ctypes.c_float.from_address(int(address)).value = float(np.float32(value))
