"""Tiles of elementwise functions, and how the kinds of whole layers hold elements.

Elements lie in memory as float32, bfloat16 or float16; arithmetic is float32, and every stored element is
rounded once. A NaN propagates. -inf gives NaN in silu and gelu, being a product with 0 there.

=========== =================================================
function    of an element a, or of a and b
=========== =================================================
copy        a (with `out`, from one element type to another)
exp         e^a
relu        max(a, 0)
silu        a / (1 + e^-a)
gelu        a (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3))) / 2
gelu_erf    a (1 + erf(a / sqrt(2))) / 2
scale       a times the one element of `factor`
add         a + b
multiply    a b
swiglu      silu(a) b
geglu       gelu(a) b
=========== =================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import cuda

from etproto.errors import ProgramError
from etproto.kernels.ptx.convert import (
    bfloat16_to_float32,
    float16_to_float32,
    float32_to_bfloat16,
    float32_to_float16,
)
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.tiles import brain_float
from etproto.tile_kind import Operand, TileKind

__all__ = [
    "BINARY",
    "BYTES_PER_US",
    "UNARY",
    "ElementFunction",
    "ElementType",
    "bias_add",
    "element_function",
    "element_type",
    "elementwise",
    "require_positive",
]

BYTES_PER_US = 2e4  # of one portable block

_HALF, _ONE = np.float32(0.5), np.float32(1)
_LARGEST_EXPONENT = np.float32(88.72284)  # beyond it e^x is no float32; Python's exp raises, a GPU's gives inf
_INFINITY = np.float32(np.inf)
_TANH_SCALE, _TANH_CUBE = np.float32(math.sqrt(2 / math.pi)), np.float32(0.044715)
_ROOT_OF_HALF = np.float32(math.sqrt(0.5))


@dataclass(frozen=True)
class ElementType:
    """How bodies and references read and write the elements of one type.

    Parameters
    ----------
    itemsize : int
        Size of an element.
    load, store : callable
        Device functions: element -> float32 and back.
    read : callable
        ``read(array) -> float32 array``, for references.
    write : callable
        ``write(array, values)``: store float32 values in a part of an array, rounded to nearest even.
    """

    itemsize: int
    load: Callable[..., Any]
    store: Callable[..., Any]
    read: Callable[[np.ndarray], np.ndarray]
    write: Callable[[np.ndarray, np.ndarray], None]


@device_function
def _same(value):
    return value


def _write_float32(array: np.ndarray, values: np.ndarray) -> None:
    array[...] = values


def _read_bfloat16(array: np.ndarray) -> np.ndarray:
    return brain_float.to_float32(array.view(np.uint16))


def _write_bfloat16(array: np.ndarray, values: np.ndarray) -> None:
    array.view(np.uint16)[...] = brain_float.from_float32(values)


def _read_float16(array: np.ndarray) -> np.ndarray:
    return array.view(np.float16).astype(np.float32)


def _write_float16(array: np.ndarray, values: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        array.view(np.float16)[...] = values


_ELEMENT_TYPES = {
    "float32": ElementType(4, _same, _same, np.asarray, _write_float32),
    "bfloat16": ElementType(2, bfloat16_to_float32, float32_to_bfloat16, _read_bfloat16, _write_bfloat16),
    "float16": ElementType(2, float16_to_float32, float32_to_float16, _read_float16, _write_float16),
}


def element_type(dtype: str) -> ElementType:
    """The element type called `dtype`.

    Raises
    ------
    ProgramError
        When it is none of float32, bfloat16 and float16.

    Examples
    --------
    >>> element_type("bfloat16").read(np.array([0x3FC0], np.uint16))
    array([1.5], dtype=float32)
    """
    if dtype not in _ELEMENT_TYPES:
        raise ProgramError(f"elements must be one of {', '.join(_ELEMENT_TYPES)}, got {dtype!r}")
    return _ELEMENT_TYPES[dtype]


def require_positive(kind: str, **values: int) -> None:
    """Refuse tile extents below 1.

    Raises
    ------
    ProgramError
        Naming the kind, the extent and its value.
    """
    for name, value in values.items():
        if value < 1:
            raise ProgramError(f"{kind}: {name} must be at least 1, got {value!r}")


@device_function
def _exp(a):
    if a > _LARGEST_EXPONENT:
        return _INFINITY
    return math.exp(a)


@device_function
def _relu(a):
    if a < np.float32(0):
        return np.float32(0)
    return a


@device_function
def _silu(a):
    small = math.exp(-abs(a))  # of the two forms of the logistic function the one that cannot overflow
    if a < np.float32(0):
        return a * small / (_ONE + small)
    return a / (_ONE + small)


@device_function
def _gelu(a):
    return _HALF * a * (_ONE + math.tanh(_TANH_SCALE * a * (_ONE + _TANH_CUBE * a * a)))


@device_function
def _gelu_erf(a):
    return _HALF * a * (_ONE + math.erf(_ROOT_OF_HALF * a))


@device_function
def _add(a, b):
    return a + b


@device_function
def _multiply(a, b):
    return a * b


@device_function
def _swiglu(a, b):
    return _silu(a) * b


@device_function
def _geglu(a, b):
    return _gelu(a) * b


def _numpy_silu(a: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(a))
    return np.where(a < 0, a * small, a) / (_ONE + small)


def _numpy_gelu(a: np.ndarray) -> np.ndarray:
    return _HALF * a * (_ONE + np.tanh(_TANH_SCALE * a * (_ONE + _TANH_CUBE * a * a)))


def _numpy_gelu_erf(a: np.ndarray) -> np.ndarray:
    return _HALF * a * (_ONE + np.vectorize(math.erf, otypes=[np.float32])(_ROOT_OF_HALF * a))


@dataclass(frozen=True)
class ElementFunction:
    """A function of float32 elements: for bodies, and for references."""

    device: Callable[..., Any]
    numpy: Callable[..., np.ndarray]


#: Functions of one element, by name.
UNARY = {
    "copy": ElementFunction(_same, np.positive),
    "exp": ElementFunction(_exp, np.exp),
    "relu": ElementFunction(_relu, lambda a: np.maximum(a, 0)),
    "silu": ElementFunction(_silu, _numpy_silu),
    "gelu": ElementFunction(_gelu, _numpy_gelu),
    "gelu_erf": ElementFunction(_gelu_erf, _numpy_gelu_erf),
}

#: Functions of two elements, by name.
BINARY = {
    "add": ElementFunction(_add, np.add),
    "multiply": ElementFunction(_multiply, np.multiply),
    "swiglu": ElementFunction(_swiglu, lambda a, b: _numpy_silu(a) * b),
    "geglu": ElementFunction(_geglu, lambda a, b: _numpy_gelu(a) * b),
}


def element_function(name: str, known: dict[str, ElementFunction] = UNARY) -> ElementFunction:
    """The function called `name`.

    Raises
    ------
    ProgramError
        When `known` has none of that name.
    """
    if name not in known:
        raise ProgramError(f"element functions are {', '.join(known)}, got {name!r}")
    return known[name]


@cache
def elementwise(function: str, rows: int, columns: int, dtype: str = "float32", out: str | None = None) -> TileKind:
    """``y[tile] = function(a[tile])`` or ``y[tile] = function(a[tile], b[tile])``, the tile being (rows, columns).

    a, b and y are (M, N); task (i, j) computes tile (i, j), and tiles at the edges are cut off. y may be a or b.
    ``scale`` has the operand `factor` after a: one float32 element, shape (1,).

    Parameters
    ----------
    function : str
        One of those that the head of this module lists.
    rows, columns : int
    dtype : {"float32", "bfloat16", "float16"}
        Element type of a and b.
    out : str, optional
        Element type of y, by default `dtype`.

    Raises
    ------
    ProgramError
        An unknown function or element type, or a tile without elements.

    Examples
    --------
    >>> print(elementwise("swiglu", 8, 128, "bfloat16"))
    swiglu(i, j, a: in bfloat16[:, :], b: in bfloat16[:, :], y: out bfloat16[:, :])
    """
    out = out or dtype
    load, store = element_type(dtype).load, element_type(out).store
    shape = (rows, columns)

    def scale(i, j, a, factor, y):
        for item in range(cuda.threadIdx.x, rows * columns, cuda.blockDim.x):
            row = i * rows + item // columns
            column = j * columns + item % columns
            if row < y.shape[0] and column < y.shape[1]:
                y[row, column] = store(load(a[row, column]) * factor[0])

    if function == "scale":
        factor = Operand("factor", ndim=1)
        return _tiled(function, shape, (Operand("a", dtype), factor), out, scale, np.multiply)
    apply = element_function(function, {**UNARY, **BINARY}).device

    def unary(i, j, a, y):
        for item in range(cuda.threadIdx.x, rows * columns, cuda.blockDim.x):
            row = i * rows + item // columns
            column = j * columns + item % columns
            if row < y.shape[0] and column < y.shape[1]:
                y[row, column] = store(apply(load(a[row, column])))

    def binary(i, j, a, b, y):
        for item in range(cuda.threadIdx.x, rows * columns, cuda.blockDim.x):
            row = i * rows + item // columns
            column = j * columns + item % columns
            if row < y.shape[0] and column < y.shape[1]:
                y[row, column] = store(apply(load(a[row, column]), load(b[row, column])))

    if function in UNARY:
        return _tiled(function, shape, (Operand("a", dtype),), out, unary, UNARY[function].numpy)
    inputs = (Operand("a", dtype), Operand("b", dtype))
    return _tiled(function, shape, inputs, out, binary, BINARY[function].numpy)


@cache
def bias_add(rows: int, columns: int, dtype: str = "float32") -> TileKind:
    """``y[r, c] = a[r, c] + bias[c]`` for a tile of (rows, columns); a and y are (M, N), bias is (N,).

    Raises
    ------
    ProgramError
        An unknown element type, or a tile without elements.
    """
    load, store = element_type(dtype).load, element_type(dtype).store

    def portable(i, j, a, bias, y):
        for item in range(cuda.threadIdx.x, rows * columns, cuda.blockDim.x):
            row = i * rows + item // columns
            column = j * columns + item % columns
            if row < y.shape[0] and column < y.shape[1]:
                y[row, column] = store(load(a[row, column]) + load(bias[column]))

    inputs = (Operand("a", dtype), Operand("bias", dtype, 1))
    return _tiled("bias_add", (rows, columns), inputs, dtype, portable, np.add)


def _tiled(
    name: str,
    shape: tuple[int, int],
    inputs: tuple[Operand, ...],
    out: str,
    portable: Callable[..., Any],
    formula: Callable[..., np.ndarray],
) -> TileKind:
    """A kind of tiles of `inputs` and then y; an input of one dimension is a row of the tile, or `factor`."""
    rows, columns = shape
    require_positive(name, rows=rows, columns=columns)
    operands = (*inputs, Operand("y", out, mode="out"))
    types = [element_type(operand.dtype) for operand in operands]

    def tile(i, j, y):
        ends = min((i + 1) * rows, y.shape[0]), min((j + 1) * columns, y.shape[1])
        return slice(i * rows, ends[0]), slice(j * columns, ends[1])

    def region(operand, whole):
        if operand.name == "factor":
            return (slice(0, 1),)
        return whole[-operand.ndim :]

    def reads(i, j, *arrays):
        whole = tile(i, j, arrays[-1])
        return {operand.name: region(operand, whole) for operand in inputs}

    def reference(i, j, *arrays):
        whole = tile(i, j, arrays[-1])
        values = [
            form.read(array[region(operand, whole)])
            for form, array, operand in zip(types, arrays, operands, strict=True)
        ]
        with np.errstate(all="ignore"):
            types[-1].write(arrays[-1][whole], formula(*values[:-1]))

    return TileKind(
        name=name,
        reference=reference,
        coordinates=2,
        operands=operands,
        portable=portable,
        reads=reads,
        writes=lambda i, j, *arrays: {"y": tile(i, j, arrays[-1])},
        cost=1.0 + rows * columns * sum(form.itemsize for form in types) / BYTES_PER_US,
    )
