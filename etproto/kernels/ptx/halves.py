"""16-bit floats in twins: whole arrays of bits and of float32, and what PTX calls the types."""

from __future__ import annotations

import numpy as np

from etproto.errors import ProgramError

__all__ = ["half_bits", "half_values", "ptx_half"]


def ptx_half(dtype: str) -> str:
    """PTX's name of a 16-bit float.

    Raises
    ------
    ProgramError
        It is neither "bfloat16" nor "float16".
    """
    if dtype not in ("bfloat16", "float16"):
        raise ProgramError(f"dtype must be bfloat16 or float16, got {dtype!r}")
    return "bf16" if dtype == "bfloat16" else "f16"


def half_values(bits: np.ndarray, dtype: str) -> np.ndarray:
    """float32 values of 16-bit floats given as uint16."""
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def half_bits(values: np.ndarray, dtype: str) -> np.ndarray:
    """uint16: float32 values as the nearest 16-bit floats, ties to even; one pattern, 0x7FFF, for every NaN."""
    values = np.ascontiguousarray(values, np.float32)
    if dtype == "float16":
        with np.errstate(over="ignore"):
            rounded = values.astype(np.float16).view(np.uint16)
    else:
        bits = values.view(np.uint32)
        rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)
