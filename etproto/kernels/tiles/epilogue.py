"""What matrix products may do to their sums before storing them, and the 16-bit floats that they store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from etproto.errors import ProgramError
from etproto.kernels.ptx.convert import (
    bfloat16_to_float32,
    float16_to_float32,
    float32_to_bfloat16,
    float32_to_float16,
)
from etproto.kernels.tiles import brain_float
from etproto.kernels.tiles.elementwise import UNARY

__all__ = ["ACTIVATIONS", "GATED", "Half", "half"]


@dataclass(frozen=True)
class Half:
    """A 16-bit float: conversions on NumPy arrays as they are stored on the host, and of bits on the device."""

    dtype: str
    to_float32: Callable[[np.ndarray], np.ndarray]
    from_float32: Callable[[np.ndarray], np.ndarray]
    device_to_float32: Callable[[Any], Any]
    device_from_float32: Callable[[Any], Any]


@cache
def half(dtype: str) -> Half:
    """The 16-bit float called `dtype`.

    Raises
    ------
    ProgramError
        It is neither "bfloat16" nor "float16".
    """
    if dtype == "bfloat16":
        to_float32, from_float32 = brain_float.to_float32, brain_float.from_float32
        return Half(dtype, to_float32, from_float32, bfloat16_to_float32, float32_to_bfloat16)
    if dtype == "float16":
        return Half(
            dtype,
            lambda values: values.view(np.float16).astype(np.float32),
            lambda values: values.astype(np.float16),
            float16_to_float32,
            float32_to_float16,
        )
    raise ProgramError(f"dtype must be bfloat16 or float16, got {dtype!r}")


#: By name. "swiglu" and "geglu" apply theirs to the first half of the columns and multiply by the second.
ACTIVATIONS = {
    "none": UNARY["copy"],
    "relu": UNARY["relu"],
    "silu": UNARY["silu"],
    "gelu": UNARY["gelu"],
    "swiglu": UNARY["silu"],
    "geglu": UNARY["gelu"],
}
GATED = ("swiglu", "geglu")
