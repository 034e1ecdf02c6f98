"""Normalisation of rows: by their root mean square, or by mean and variance.

x is (M, N); a task normalises `rows` consecutive rows, each by all threads of the block. Arithmetic is float32,
in an order that the number of threads does not change; every stored element is rounded once.

============ =========================================================================
rms_norm     y = x / sqrt(mean(x^2) + eps) * g
add_rms_norm h := h + x, then y = h / sqrt(mean(h^2) + eps) * g, h being what is stored
layer_norm   y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * g + b
============ =========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import cuda

from etproto.errors import ProgramError
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.tiles.elementwise import BYTES_PER_US, element_type, require_positive
from etproto.kernels.tiles.reduction import FOLD_BYTES, add, own_value, row_fold, row_tile
from etproto.tile_kind import Operand, TileKind

__all__ = ["add_rms_norm", "layer_norm", "rms_norm"]


@device_function
def _squared_distance(value, center):
    return (value - center) * (value - center)


def _inverse_deviation(dtype: str, eps: float) -> Callable[..., Any]:
    """Make a device function ``(x, row, center) -> 1 / sqrt(mean over c of (x[row, c] - center)^2 + eps)``."""
    sum_of_squares = row_fold(_squared_distance, add, 0.0, dtype)
    offset = np.float32(eps)

    @device_function
    def inverse(x, row, center):
        mean = sum_of_squares(x, row, center) / np.float32(max(x.shape[1], 1))
        return np.float32(1) / math.sqrt(mean + offset)

    return inverse


def _normalized(values: np.ndarray, eps: float) -> np.ndarray:
    """Rows divided by their root mean square, float32."""
    squares = np.square(values).sum(axis=1, keepdims=True) / np.float32(max(values.shape[1], 1))
    return values * (np.float32(1) / np.sqrt(squares + np.float32(eps)))


@cache
def rms_norm(rows: int, dtype: str = "float32", eps: float = 1e-6, weight: bool = True) -> TileKind:
    """``y = x / sqrt(mean(x^2) + eps) * g``; x and y are (M, N), g is (N,). y may be x.

    Parameters
    ----------
    rows : int
        Rows of a task.
    dtype : {"float32", "bfloat16", "float16"}
        Element type of all operands.
    eps : float
        Positive.
    weight : bool
        False: there is no g.

    Raises
    ------
    ProgramError
        No rows, an unknown element type, or an eps that is not positive.

    Examples
    --------
    >>> x = np.array([[3, 4]], np.float32)
    >>> rms_norm(rows=1, weight=False).reference(0, x, x)
    >>> x.round(3)
    array([[0.849, 1.131]], dtype=float32)
    """
    _require("rms_norm", rows, eps)
    form, inverse = element_type(dtype), _inverse_deviation(dtype, eps)
    load, store = form.load, form.store

    def weighted(i, x, g, y):
        for row in range(i * rows, min((i + 1) * rows, x.shape[0])):
            scale = inverse(x, row, np.float32(0))
            for column in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
                y[row, column] = store(load(x[row, column]) * scale * load(g[column]))

    def plain(i, x, y):
        for row in range(i * rows, min((i + 1) * rows, x.shape[0])):
            scale = inverse(x, row, np.float32(0))
            for column in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
                y[row, column] = store(load(x[row, column]) * scale)

    def reference(i, x, *others):
        region = row_tile(i, rows, x)
        with np.errstate(all="ignore"):
            values = _normalized(form.read(x[region]), eps)
            form.write(others[-1][region], values * form.read(others[0]) if weight else values)

    gains = (Operand("g", dtype, 1),) if weight else ()
    return _row_kind("rms_norm", rows, dtype, gains, reference, weighted if weight else plain, folds=1)


@cache
def layer_norm(rows: int, dtype: str = "float32", eps: float = 1e-5) -> TileKind:
    """``y = (x - mean(x)) / sqrt(variance(x) + eps) * g + b``; x and y are (M, N), g and b are (N,). y may be x.

    The variance is the mean of the squared distances from the mean. Parameters and errors as for `rms_norm`.
    """
    _require("layer_norm", rows, eps)
    form, inverse = element_type(dtype), _inverse_deviation(dtype, eps)
    load, store, row_sum = form.load, form.store, row_fold(own_value, add, 0.0, dtype)

    def portable(i, x, g, b, y):
        for row in range(i * rows, min((i + 1) * rows, x.shape[0])):
            mean = row_sum(x, row, np.float32(0)) / np.float32(max(x.shape[1], 1))
            scale = inverse(x, row, mean)
            for column in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
                y[row, column] = store((load(x[row, column]) - mean) * scale * load(g[column]) + load(b[column]))

    def reference(i, x, g, b, y):
        region = row_tile(i, rows, x)
        with np.errstate(all="ignore"):
            values = form.read(x[region])
            mean = values.sum(axis=1, keepdims=True) / np.float32(max(values.shape[1], 1))
            form.write(y[region], _normalized(values - mean, eps) * form.read(g) + form.read(b))

    vectors = (Operand("g", dtype, 1), Operand("b", dtype, 1))
    return _row_kind("layer_norm", rows, dtype, vectors, reference, portable, folds=2)


@cache
def add_rms_norm(rows: int, dtype: str = "float32", eps: float = 1e-6) -> TileKind:
    """``h := h + x``, rounded to `dtype`, then ``y = h / sqrt(mean(h^2) + eps) * g``.

    x, h and y are (M, N), g is (N,). What `elementwise("add")` and then `rms_norm` would store. Parameters and
    errors as for `rms_norm`.
    """
    _require("add_rms_norm", rows, eps)
    form, inverse = element_type(dtype), _inverse_deviation(dtype, eps)
    load, store = form.load, form.store

    def portable(i, x, h, g, y):
        for row in range(i * rows, min((i + 1) * rows, x.shape[0])):
            for column in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
                h[row, column] = store(load(h[row, column]) + load(x[row, column]))
            scale = inverse(h, row, np.float32(0))  # begins with a barrier: the row is stored
            for column in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
                y[row, column] = store(load(h[row, column]) * scale * load(g[column]))

    def reference(i, x, h, g, y):
        region = row_tile(i, rows, x)
        with np.errstate(all="ignore"):
            form.write(h[region], form.read(h[region]) + form.read(x[region]))
            form.write(y[region], _normalized(form.read(h[region]), eps) * form.read(g))

    others = (Operand("h", dtype, mode="inout"), Operand("g", dtype, 1))
    return _row_kind("add_rms_norm", rows, dtype, others, reference, portable, folds=1)


def _require(kind: str, rows: int, eps: float) -> None:
    require_positive(kind, rows=rows)
    if not 0 < eps < math.inf:
        raise ProgramError(f"{kind}: eps must be positive and finite, got {eps!r}")


def _row_kind(
    name: str,
    rows: int,
    dtype: str,
    others: tuple[Operand, ...],
    reference: Callable[..., Any],
    portable: Callable[..., Any],
    folds: int,
) -> TileKind:
    """A kind of row blocks: operands x, `others` (of one dimension: whole), and y."""
    operands = (Operand("x", dtype), *others, Operand("y", dtype, mode="out"))
    matrices = sum(operand.ndim == 2 for operand in operands)

    def regions(modes):
        def touched(i, *arrays):
            return {
                operand.name: row_tile(i, rows, array) if operand.ndim == 2 else (slice(0, array.shape[0]),)
                for operand, array in zip(operands, arrays, strict=True)
                if operand.mode in modes
            }

        return touched

    return TileKind(
        name=name,
        shared_bytes=folds * FOLD_BYTES,
        reference=reference,
        coordinates=1,
        operands=operands,
        portable=portable,
        reads=regions(("in", "inout")),
        writes=regions(("out", "inout")),
        cost=lambda i, x, *arrays: 1.0 + matrices * rows * x.shape[1] * element_type(dtype).itemsize / BYTES_PER_US,
    )
