"""16-bit floats and float32: conversions of bits, of pairs in one register, and of numbers in memory (sm_80)."""

from __future__ import annotations

import ctypes

import numpy as np

from etproto.kernels.ptx.inline import intrinsic_with_twin

__all__ = [
    "bfloat16_to_float32",
    "float16_to_float32",
    "float32_to_bfloat16",
    "float32_to_float16",
    "load_bfloat16",
    "pack_bfloat16",
    "store_bfloat16",
    "unpack_high_bfloat16",
    "unpack_low_bfloat16",
]


@intrinsic_with_twin("{.reg .b32 t; shl.b32 t, $1, 16; mov.b32 $0, t;}", "=f,r", "float32", ("int32",), pure=True)
def bfloat16_to_float32(bits: int) -> float:
    """``shl.b32``: a bfloat16 is the upper half of a float32."""
    return np.uint32((int(bits) & 0xFFFF) << 16).view(np.float32)


@intrinsic_with_twin(
    "{.reg .b16 h; cvt.rn.bf16.f32 h, $1; cvt.u32.u16 $0, h;}", "=r,f", "int32", ("float32",), pure=True
)
def float32_to_bfloat16(value: float) -> int:
    """``cvt.rn.bf16.f32``: bits of the nearest bfloat16, ties to even; one pattern for every NaN."""
    number = np.float32(value)
    if np.isnan(number):
        return 0x7FFF
    bits = int(number.view(np.uint32))
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF


@intrinsic_with_twin("{.reg .b16 h; cvt.u16.u32 h, $1; cvt.f32.f16 $0, h;}", "=f,r", "float32", ("int32",), pure=True)
def float16_to_float32(bits: int) -> float:
    """``cvt.f32.f16``: value of float16 bits."""
    return np.float32(np.uint16(int(bits) & 0xFFFF).view(np.float16))


@intrinsic_with_twin(
    "{.reg .b16 h; cvt.rn.f16.f32 h, $1; cvt.u32.u16 $0, h;}", "=r,f", "int32", ("float32",), pure=True
)
def float32_to_float16(value: float) -> int:
    """``cvt.rn.f16.f32``: bits of the nearest float16, ties to even; infinity beyond the largest."""
    if np.isnan(value):
        return 0x7FFF
    with np.errstate(over="ignore"):
        return int(np.float16(np.float32(value)).view(np.uint16))


@intrinsic_with_twin("cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", "int32", ("float32", "float32"), pure=True)
def pack_bfloat16(low: float, high: float) -> int:
    """``cvt.rn.bf16x2.f32``: two bfloat16 in one register, as they lie in memory: `low` first."""
    return int(np.uint32(float32_to_bfloat16(high) << 16 | float32_to_bfloat16(low)).view(np.int32))


@intrinsic_with_twin("{.reg .b32 t; shl.b32 t, $1, 16; mov.b32 $0, t;}", "=f,r", "float32", ("int32",), pure=True)
def unpack_low_bfloat16(pair: int) -> float:
    """``shl.b32``: the first bfloat16 of a pair."""
    return bfloat16_to_float32(int(pair) & 0xFFFF)


@intrinsic_with_twin(
    "{.reg .b32 t; and.b32 t, $1, 0xffff0000; mov.b32 $0, t;}", "=f,r", "float32", ("int32",), pure=True
)
def unpack_high_bfloat16(pair: int) -> float:
    """``and.b32``: the second bfloat16 of a pair."""
    return bfloat16_to_float32((int(pair) >> 16) & 0xFFFF)


def _half(address: int, index: int) -> ctypes.c_uint16:
    return ctypes.c_uint16.from_address(int(address) + 2 * int(index))


@intrinsic_with_twin(
    "{.reg .b64 a; .reg .b16 h; .reg .b32 t; mad.lo.s64 a, $2, 2, $1; ld.global.b16 h, [a]; cvt.u32.u16 t, h;"
    " shl.b32 t, t, 16; mov.b32 $0, t;}",
    "=f,l,l,~{memory}",
    "float32",
    ("int64", "int64"),
)
def load_bfloat16(address: int, index: int) -> float:
    """``ld.global.b16``, then ``shl.b32``: value of element `index` of the bfloat16 at a global address; an ordinary
    load, ordered by an acquire before it.
    """
    return bfloat16_to_float32(_half(address, index).value)


@intrinsic_with_twin(
    "{.reg .b64 a; .reg .b16 h; mad.lo.s64 a, $1, 2, $0; cvt.rn.bf16.f32 h, $2; st.global.b16 [a], h;}",
    "l,l,f,~{memory}",
    None,
    ("int64", "int64", "float32"),
)
def store_bfloat16(address: int, index: int, value: float) -> None:
    """``cvt.rn.bf16.f32``, then ``st.global.b16``: rounds and stores element `index`; a release publishes it."""
    _half(address, index).value = float32_to_bfloat16(value)
