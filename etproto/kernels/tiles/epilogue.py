"""What matrix products may do to their sums before storing them, and the 16-bit floats that they store."""

from __future__ import annotations

import math
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
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.tiles import brain_float

__all__ = ["ACTIVATIONS", "GATED", "Activation", "Half", "half"]


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


@dataclass(frozen=True)
class Activation:
    """A function of one float32: on NumPy arrays, and on the device."""

    reference: Callable[[np.ndarray], np.ndarray]
    device: Callable[[Any], Any]


def _silu(value):
    return value / (np.float32(1) + math.exp(-value))


def _gelu(value):
    cubed = np.float32(0.044715) * value * value * value
    return np.float32(0.5) * value * (np.float32(1) + math.tanh(np.float32(0.7978845608028654) * (value + cubed)))


def _relu(value):
    return max(value, np.float32(0))


def _same(value):
    return value


def _silu_of(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values / (1 + np.exp(-values))


def _gelu_of(values: np.ndarray) -> np.ndarray:
    return 0.5 * values * (1 + np.tanh(math.sqrt(2 / math.pi) * (values + 0.044715 * values**3)))


#: By name. "swiglu" and "geglu" apply theirs to the first half of the columns and multiply by the second.
ACTIVATIONS = {
    "none": Activation(lambda values: values, device_function(_same)),
    "relu": Activation(lambda values: np.maximum(values, 0), device_function(_relu)),
    "silu": Activation(_silu_of, device_function(_silu)),
    "gelu": Activation(_gelu_of, device_function(_gelu)),
    "swiglu": Activation(_silu_of, device_function(_silu)),
    "geglu": Activation(_gelu_of, device_function(_gelu)),
}
GATED = ("swiglu", "geglu")
