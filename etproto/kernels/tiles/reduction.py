"""Sums and maxima of rows, of columns, and of partial results, in an order that the number of threads does not
change.

A row is folded in `LANES` strided parts, each in ascending order, then the parts in `GROUPS` strided groups,
then the groups. Columns and partial results are added in ascending order. A NaN propagates.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32

from etproto.errors import ProgramError
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.tiles.elementwise import BYTES_PER_US, element_function, element_type, require_positive
from etproto.tile_kind import Operand, TileKind

__all__ = [
    "FOLD_BYTES",
    "add",
    "column_sum",
    "larger",
    "own_value",
    "reduce_parts",
    "row_fold",
    "row_reduce",
    "row_tile",
]

LANES = 256  # as many as the consumer threads of the hopper worker
GROUPS = 16
FOLD_BYTES = 4 * LANES  # shared memory of a fold


@device_function
def own_value(value, parameter):
    """The term of a plain sum or maximum."""
    return value


@device_function
def add(a, b):
    """``a + b``."""
    return a + b


@device_function
def larger(a, b):
    """The larger of two values, or a NaN."""
    if a > b or a != a:
        return a
    return b


@cache
def row_fold(
    term: Callable[..., Any], combine: Callable[..., Any], start: float, dtype: str = "float32"
) -> Callable[..., Any]:
    """Make a device function that folds a row: ``combine`` over its columns c of ``term(x[row, c], parameter)``.

    Parameters
    ----------
    term, combine : callable
        Device functions of two float32 values.
    start : float
        Neutral element of `combine`; the result for no columns.
    dtype : {"float32", "bfloat16", "float16"}
        Element type of x.

    Returns
    -------
    callable
        ``fold(x, row, parameter) -> float32``, which all threads of the block call and all get. The order is
        fixed, whatever their number. It uses `FOLD_BYTES` of shared memory, and begins with a barrier.
    """
    load = element_type(dtype).load
    neutral = np.float32(start)

    @device_function
    def fold(x, row, parameter):
        lanes = cuda.shared.array(LANES, float32)
        cuda.syncthreads()  # the result of an earlier fold has been read
        for lane in range(cuda.threadIdx.x, LANES, cuda.blockDim.x):
            total = neutral
            for column in range(lane, x.shape[1], LANES):
                total = combine(total, term(load(x[row, column]), parameter))
            lanes[lane] = total
        cuda.syncthreads()
        for lane in range(cuda.threadIdx.x, GROUPS, cuda.blockDim.x):
            total = lanes[lane]
            for other in range(lane + GROUPS, LANES, GROUPS):
                total = combine(total, lanes[other])
            lanes[lane] = total  # only this thread reads lanes of this group
        cuda.syncthreads()
        total = lanes[0]
        for lane in range(1, GROUPS):
            total = combine(total, lanes[lane])
        return total

    return fold


def row_tile(i: int, rows: int, x: np.ndarray) -> tuple[slice, slice]:
    """Region of row block `i`: `rows` whole rows of x, fewer at the end."""
    return slice(i * rows, min((i + 1) * rows, x.shape[0])), slice(0, x.shape[1])


def _numpy_mean(values: np.ndarray) -> np.ndarray:
    return values.sum(axis=1) / np.float32(max(values.shape[1], 1))


_ROW_OPERATIONS = {
    "sum": (add, 0.0, lambda values: values.sum(axis=1)),
    "max": (larger, -np.inf, lambda values: values.max(axis=1, initial=-np.inf)),
    "mean": (add, 0.0, _numpy_mean),
}


@cache
def row_reduce(operation: str, rows: int, dtype: str = "float32") -> TileKind:
    """``y[r] = operation over c of x[r, c]``; task i reduces `rows` rows, each by all threads of the block.

    x is (M, N) of `dtype`, y is (M,) float32. Without columns a sum or a mean is 0, a maximum -inf.

    Parameters
    ----------
    operation : {"sum", "max", "mean"}
    rows : int
    dtype : {"float32", "bfloat16", "float16"}

    Raises
    ------
    ProgramError
        An unknown operation or element type, or no rows.

    Examples
    --------
    >>> x, y = np.array([[1, 2, 3], [4, 5, 6]], np.float32), np.zeros(2, np.float32)
    >>> row_reduce("mean", rows=2).reference(0, x, y)
    >>> y
    array([2., 5.], dtype=float32)
    """
    if operation not in _ROW_OPERATIONS:
        raise ProgramError(f"row_reduce: operation must be one of {', '.join(_ROW_OPERATIONS)}, got {operation!r}")
    require_positive("row_reduce", rows=rows)
    combine, start, formula = _ROW_OPERATIONS[operation]
    form, fold, mean = element_type(dtype), row_fold(own_value, combine, start, dtype), operation == "mean"

    def reference(i, x, y):
        region = row_tile(i, rows, x)
        with np.errstate(all="ignore"):
            y[region[0]] = formula(form.read(x[region]))

    def portable(i, x, y):
        for row in range(i * rows, min((i + 1) * rows, x.shape[0])):
            total = fold(x, row, np.float32(0))
            if cuda.threadIdx.x == 0:
                if mean:
                    total = total / np.float32(max(x.shape[1], 1))
                y[row] = total

    return TileKind(
        name=f"row_{operation}",
        shared_bytes=FOLD_BYTES,
        reference=reference,
        coordinates=1,
        operands=(Operand("x", dtype), Operand("y", ndim=1, mode="out")),
        portable=portable,
        reads=lambda i, x, y: {"x": row_tile(i, rows, x)},
        writes=lambda i, x, y: {"y": row_tile(i, rows, x)[:1]},
        cost=lambda i, x, y: 1.0 + rows * x.shape[1] * form.itemsize / BYTES_PER_US,
    )


@cache
def column_sum(rows: int, columns: int, dtype: str = "float32") -> TileKind:
    """``p[i, 0, c] = sum over r in row block i of x[r, c]``, c in tile j of the columns, r in ascending order.

    x is (M, N) of `dtype`, p is (row blocks, 1, N) float32: what `reduce_parts` adds up to (1, N).

    Raises
    ------
    ProgramError
        An unknown element type, or a tile without elements.
    """
    require_positive("column_sum", rows=rows, columns=columns)
    form = element_type(dtype)
    load = form.load

    def tile(i, j, x):
        return row_tile(i, rows, x)[0], slice(j * columns, min((j + 1) * columns, x.shape[1]))

    def reference(i, j, x, p):
        region = tile(i, j, x)
        with np.errstate(all="ignore"):
            p[i, 0, region[1]] = form.read(x[region]).sum(axis=0)

    def portable(i, j, x, p):
        last = min((j + 1) * columns, x.shape[1])
        for column in range(j * columns + cuda.threadIdx.x, last, cuda.blockDim.x):
            total = np.float32(0)
            for row in range(i * rows, min((i + 1) * rows, x.shape[0])):
                total += load(x[row, column])
            p[i, 0, column] = total

    return TileKind(
        name="column_sum",
        reference=reference,
        coordinates=2,
        operands=(Operand("x", dtype), Operand("p", ndim=3, mode="out")),
        portable=portable,
        reads=lambda i, j, x, p: {"x": tile(i, j, x)},
        writes=lambda i, j, x, p: {"p": (slice(i, i + 1), slice(0, 1), tile(i, j, x)[1])},
        cost=1.0 + rows * columns * form.itemsize / BYTES_PER_US,
    )


@cache
def reduce_parts(rows: int, columns: int, dtype: str = "float32", function: str = "copy") -> TileKind:
    """``c[tile i, j] = function(sum over s of p[s, tile i, j])``, s in ascending order.

    p is (S, M, N) float32, c is (M, N) of `dtype`. Tiles of (rows, columns) are cut off at the edges; without
    parts the sum is 0.

    Parameters
    ----------
    rows, columns : int
    dtype : {"float32", "bfloat16", "float16"}
    function : str
        One of `etproto.kernels.tiles.elementwise.UNARY`.

    Raises
    ------
    ProgramError
        An unknown function or element type, or a tile without elements.
    """
    require_positive("reduce_parts", rows=rows, columns=columns)
    form, epilogue = element_type(dtype), element_function(function)
    store, apply = form.store, epilogue.device

    def tile(i, j, c):
        return row_tile(i, rows, c)[0], slice(j * columns, min((j + 1) * columns, c.shape[1]))

    def reference(i, j, p, c):
        region = tile(i, j, c)
        with np.errstate(all="ignore"):
            form.write(c[region], epilogue.numpy(p[(slice(None), *region)].sum(axis=0)))

    def portable(i, j, p, c):
        for item in range(cuda.threadIdx.x, rows * columns, cuda.blockDim.x):
            row = i * rows + item // columns
            column = j * columns + item % columns
            if row < c.shape[0] and column < c.shape[1]:
                total = np.float32(0)
                for part in range(p.shape[0]):
                    total += p[part, row, column]
                c[row, column] = store(apply(total))

    return TileKind(
        name="reduce_parts",
        reference=reference,
        coordinates=2,
        operands=(Operand("p", ndim=3), Operand("c", dtype, mode="out")),
        portable=portable,
        reads=lambda i, j, p, c: {"p": (slice(0, p.shape[0]), *tile(i, j, c))},
        writes=lambda i, j, p, c: {"c": tile(i, j, c)},
        cost=lambda i, j, p, c: 1.0 + rows * columns * (4 * p.shape[0] + form.itemsize) / BYTES_PER_US,
    )
