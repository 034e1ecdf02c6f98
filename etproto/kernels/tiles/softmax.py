"""Softmax of rows, and the choice of the k largest elements of each row that routes tokens to experts.

The largest element of a row is subtracted before the exponential, so that nothing overflows. An element of -inf
has weight 0; a row of nothing else, or with a NaN or +inf, has NaN weights.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numba import cuda

from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.memory import reduce_release_int32
from etproto.kernels.tiles.elementwise import BYTES_PER_US, element_type, require_positive
from etproto.kernels.tiles.reduction import FOLD_BYTES, add, larger, own_value, row_fold, row_tile
from etproto.tile_kind import Operand, TileKind

__all__ = ["softmax_rows", "top_k"]


@device_function
def _exponential(value, top):
    return math.exp(value - top)


@cache
def softmax_rows(rows: int, dtype: str = "float32") -> TileKind:
    """``y[r, c] = e^x[r, c] / sum over c of e^x[r, c]``; task i computes `rows` rows. x, y are (M, N); y may be x.

    Parameters
    ----------
    rows : int
        Rows of a task, each the work of all threads of the block.
    dtype : {"float32", "bfloat16", "float16"}
        Element type of x and y; arithmetic is float32.

    Raises
    ------
    ProgramError
        No rows, or an unknown element type.

    Examples
    --------
    >>> x = np.log(np.array([[1, 2, 5]], np.float32))
    >>> softmax_rows(rows=1).reference(0, x, x)
    >>> x.round(3)
    array([[0.125, 0.25 , 0.625]], dtype=float32)
    """
    require_positive("softmax_rows", rows=rows)
    form = element_type(dtype)
    load, store = form.load, form.store
    row_max = row_fold(own_value, larger, -np.inf, dtype)
    row_weight = row_fold(_exponential, add, 0.0, dtype)

    def reference(i, x, y):
        region = row_tile(i, rows, x)
        values = form.read(x[region])
        with np.errstate(all="ignore"):
            weights = np.exp(values - values.max(axis=1, keepdims=True, initial=-np.inf))
            form.write(y[region], weights / weights.sum(axis=1, keepdims=True))

    def portable(i, x, y):
        for row in range(i * rows, min((i + 1) * rows, x.shape[0])):
            top = row_max(x, row, np.float32(0))
            total = row_weight(x, row, top)
            for column in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
                y[row, column] = store(math.exp(load(x[row, column]) - top) / total)

    return TileKind(
        name="softmax_rows",
        shared_bytes=2 * FOLD_BYTES,
        reference=reference,
        coordinates=1,
        operands=(Operand("x", dtype), Operand("y", dtype, mode="out")),
        portable=portable,
        reads=lambda i, x, y: {"x": row_tile(i, rows, x)},
        writes=lambda i, x, y: {"y": row_tile(i, rows, x)},
        cost=lambda i, x, y: 1.0 + 2 * rows * x.shape[1] * form.itemsize / BYTES_PER_US,
    )


def _largest_first(values: np.ndarray) -> np.ndarray:
    """Columns of each row in descending order of their values, NaN first; equal ones in ascending order."""
    is_nan = np.isnan(values)
    return np.lexsort((-np.where(is_nan, np.float32(0), values), ~is_nan), axis=1)


@cache
def top_k(k: int, renormalize: bool, rows: int, dtype: str = "float32", counts: bool = False) -> TileKind:
    """The k largest elements of each row of x and their softmax weights, largest first.

    For row r and place s, with c the column of the s-th largest element (of equal ones the lower column first):
    ``ids[r, s] = c`` and ``weights[r, s] = e^x[r, c] / sum of e^x[r, .]``, the sum over all columns or, with
    `renormalize`, over the k kept ones. Places beyond the columns of x have id -1 and weight 0.

    x is (M, N) of `dtype`, weights is (M, k) float32, ids is (M, k) int32. Columns are compared as they lie in x,
    so what the weights are rounded to makes no ties. A NaN counts as larger than any number: it is kept, so that
    the ids are columns whatever x holds, and all weights of its row are NaN.

    Parameters
    ----------
    k, rows : int
        Places of a row, rows of a task.
    renormalize : bool
        Make the kept weights of a row add up to 1.
    dtype : {"float32", "bfloat16", "float16"}
    counts : bool
        Add the number of rows that kept column c to ``counts[c]``, a last operand: (N,) int32, which must have
        been set to zero before the first task.

    Raises
    ------
    ProgramError
        A k or rows below 1, or an unknown element type.

    Examples
    --------
    >>> x = np.log(np.array([[1, 5, 2, 2]], np.float32))
    >>> weights, ids = np.zeros((1, 2), np.float32), np.zeros((1, 2), np.int32)
    >>> top_k(2, renormalize=False, rows=1).reference(0, x, weights, ids)
    >>> weights.round(3), ids
    (array([[0.5, 0.2]], dtype=float32), array([[1, 2]], dtype=int32))
    """
    require_positive("top_k", k=k, rows=rows)
    form = element_type(dtype)
    load, row_weight = form.load, row_fold(_exponential, add, 0.0, dtype)

    def reference(i, x, weights, ids, *counters):
        region = row_tile(i, rows, x)
        mine, columns = region[0], x.shape[1]
        values = form.read(x[region])
        order = _largest_first(values)
        ids[mine] = -1
        weights[mine] = 0
        ids[mine, :columns] = order[:, :k]
        with np.errstate(all="ignore"):
            ordered = np.take_along_axis(values, order, axis=1)
            shares = np.exp(ordered - ordered[:, :1])
            total = (shares[:, :k] if renormalize else shares).sum(axis=1, keepdims=True)
            weights[mine, :columns] = shares[:, :k] / total
        for counter in counters:
            for column in ids[mine][:, :columns].ravel().tolist():
                reduce_release_int32(counter.ctypes.data, column, 1)  # atomic: other tasks add at the same time

    @device_function
    def rank(x, row, column):
        """How many elements of the row come before this one."""
        mine = load(x[row, column])
        before = 0
        for other in range(x.shape[1]):
            value = load(x[row, other])
            if value > mine or (value == mine and other < column):
                before += 1
            elif value != value and (mine == mine or other < column):
                before += 1
        return before

    def choose(i, x, weights, ids):
        # Every element finds its own place: k columns without a barrier, and one order for any number of threads.
        columns = x.shape[1]
        kept = min(k, columns)
        for row in range(i * rows, min((i + 1) * rows, x.shape[0])):
            for column in range(cuda.threadIdx.x, columns, cuda.blockDim.x):
                place = rank(x, row, column)
                if place < k:
                    ids[row, place] = column
            for place in range(columns + cuda.threadIdx.x, k, cuda.blockDim.x):
                ids[row, place] = -1
                weights[row, place] = np.float32(0)
        cuda.syncthreads()
        for row in range(i * rows, min((i + 1) * rows, x.shape[0])):
            if kept > 0:
                top = load(x[row, ids[row, 0]])
                total = np.float32(0)
                if renormalize:
                    for place in range(kept):
                        total += math.exp(load(x[row, ids[row, place]]) - top)
                else:
                    total = row_weight(x, row, top)
                for place in range(cuda.threadIdx.x, kept, cuda.blockDim.x):
                    weights[row, place] = math.exp(load(x[row, ids[row, place]]) - top) / total

    choose_rows = device_function(choose)

    def choose_and_count(i, x, weights, ids, counts):
        choose_rows(i, x, weights, ids)
        kept = min(k, x.shape[1])
        for row in range(i * rows, min((i + 1) * rows, x.shape[0])):
            for place in range(cuda.threadIdx.x, kept, cuda.blockDim.x):
                cuda.atomic.add(counts, ids[row, place], 1)

    def writes(i, x, *others):
        mine = row_tile(i, rows, x)[0], slice(0, k)
        found = {"weights": mine, "ids": mine}
        return found | {"counts": (slice(0, x.shape[1]),)} if counts else found

    outputs = (Operand("weights", mode="out"), Operand("ids", "int32", mode="out"))
    return TileKind(
        name="top_k",
        shared_bytes=0 if renormalize else FOLD_BYTES,
        reference=reference,
        coordinates=1,
        operands=(Operand("x", dtype), *outputs, *((Operand("counts", "int32", 1, "accumulate"),) if counts else ())),
        portable=choose_and_count if counts else choose,
        reads=lambda i, x, *others: {"x": row_tile(i, rows, x)},
        writes=writes,
        cost=lambda i, x, *others: 1.0 + rows * x.shape[1] * (x.shape[1] + 1) * form.itemsize / BYTES_PER_US,
    )
