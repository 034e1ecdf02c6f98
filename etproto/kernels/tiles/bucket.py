"""Sums of rows by bucket: a stable counting sort by keys computed in the launch, then sums of sorted rows.

x has R rows and D columns; B buckets; row blocks of `block` rows; chunks of at most `chunk` sorted rows.

=========== =============== ==================================================================================
tensor      shape           meaning
=========== =============== ==================================================================================
key         (R,)            bucket of each row
rank        (R,)            how many earlier rows of the same row block have the same key
histogram   (R/block, B)    rows of each bucket in each row block, after `plan` in all earlier row blocks
rows_of     (B,)            rows of each bucket
row_start   (B + 1,)        first sorted row of each bucket
chunks_of   (B,)            chunks of each bucket
chunk_start (B + 1,)        first chunk of each bucket
y           (R, D)          rows in the order of their keys, rows of one bucket in their old order
partial     (chunks, D)     sum of each chunk
out         (B, D)          sum of each bucket
=========== =============== ==================================================================================
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numba import cuda, int32

from etproto.tile_kind import Operand, TileKind

__all__ = ["route", "plan", "group", "chunk_sum", "combine"]

_BYTES_PER_US = 2e4  # of one portable block


def _ints(name: str, ndim: int = 1, mode: str = "in") -> Operand:
    return Operand(name, "int32", ndim, mode)


@cache
def route(block: int, clip: bool = True) -> TileKind:
    """Row block i: ``key[r] = floor(x[r, 0])``, clipped to [0, B) if `clip`; its ranks and histogram.

    Without `clip` a key may name no bucket; such a row is in no histogram.
    x[r, 0] must be finite and fit an int32.
    """
    shape = (block,)

    def rows(i, x):
        return slice(i * block, min((i + 1) * block, x.shape[0]))

    def reference(i, x, key, rank, histogram):
        mine = rows(i, x)
        buckets = histogram.shape[1]
        keys = np.floor(x[mine, 0]).astype(np.int32)
        keys = np.clip(keys, 0, buckets - 1) if clip else keys
        key[mine] = keys
        rank[mine] = np.tril(keys[:, None] == keys, -1).sum(axis=1)
        histogram[i] = np.bincount(keys[(keys >= 0) & (keys < buckets)], minlength=buckets)

    def portable(i, x, key, rank, histogram):
        keys = cuda.shared.array(shape, int32)
        first = i * block
        count = min(block, x.shape[0] - first)
        buckets = histogram.shape[1]
        for row in range(cuda.threadIdx.x, count, cuda.blockDim.x):
            bucket = int(math.floor(x[first + row, 0]))
            if clip:
                bucket = min(max(bucket, 0), buckets - 1)
            keys[row] = bucket
            key[first + row] = bucket
        cuda.syncthreads()
        for row in range(cuda.threadIdx.x, count, cuda.blockDim.x):
            same = 0
            for earlier in range(row):
                if keys[earlier] == keys[row]:
                    same += 1
            rank[first + row] = same
        for bucket in range(cuda.threadIdx.x, buckets, cuda.blockDim.x):
            same = 0
            for row in range(count):
                if keys[row] == bucket:
                    same += 1
            histogram[i, bucket] = same

    def writes(i, x, key, rank, histogram):
        mine = rows(i, x)
        return {"key": (mine,), "rank": (mine,), "histogram": (slice(i, i + 1), slice(0, histogram.shape[1]))}

    return TileKind(
        name="route",
        shared_bytes=4 * block,
        reference=reference,
        coordinates=1,
        operands=(
            Operand("x"),
            _ints("key", 1, "out"),
            _ints("rank", 1, "out"),
            _ints("histogram", 2, "out"),
        ),
        portable=portable,
        reads=lambda i, x, key, rank, histogram: {"x": (rows(i, x), slice(0, 1))},
        writes=writes,
        cost=2.0,
    )


@cache
def plan(chunk: int) -> TileKind:
    """One task: counts and starts of buckets and chunks; the histogram becomes its prefix sum over blocks."""

    def reference(i, histogram, rows_of, row_start, chunks_of, chunk_start):
        counts = histogram.copy()
        np.cumsum(counts[:-1], axis=0, out=histogram[1:])
        histogram[:1] = 0
        rows_of[:] = counts.sum(axis=0)
        chunks_of[:] = -(-rows_of // chunk)
        for start, size in ((row_start, rows_of), (chunk_start, chunks_of)):
            start[0] = 0
            np.cumsum(size, out=start[1:])

    def portable(i, histogram, rows_of, row_start, chunks_of, chunk_start):
        buckets = rows_of.shape[0]
        for bucket in range(cuda.threadIdx.x, buckets, cuda.blockDim.x):
            total = 0
            for block in range(histogram.shape[0]):
                count = histogram[block, bucket]
                histogram[block, bucket] = total
                total += count
            rows_of[bucket] = total
            chunks_of[bucket] = (total + chunk - 1) // chunk
        cuda.syncthreads()
        # Every thread adds up its own prefix: as long as one thread doing all of them, and no second barrier.
        for bucket in range(cuda.threadIdx.x, buckets + 1, cuda.blockDim.x):
            rows = 0
            chunks = 0
            for earlier in range(bucket):
                rows += rows_of[earlier]
                chunks += chunks_of[earlier]
            row_start[bucket] = rows
            chunk_start[bucket] = chunks

    return TileKind(
        name="plan",
        reference=reference,
        coordinates=1,
        operands=(
            _ints("histogram", 2, "inout"),
            _ints("rows_of", 1, "out"),
            _ints("row_start", 1, "out"),
            _ints("chunks_of", 1, "out"),
            _ints("chunk_start", 1, "out"),
        ),
        portable=portable,
        cost=5.0,
    )


def _place(i, key, rank, histogram, row_start, block):
    """Where row i goes; None when its key names no bucket."""
    bucket = int(key[i])
    if not 0 <= bucket < histogram.shape[1]:
        return None
    return int(row_start[bucket]) + int(histogram[i // block, bucket]) + int(rank[i])


@cache
def group(block: int) -> TileKind:
    """Row i: ``y[row_start[key[i]] + histogram[i // block, key[i]] + rank[i]] = x[i]``.

    A row whose key names no bucket goes nowhere.
    """

    def reference(i, x, key, rank, histogram, row_start, y):
        place = _place(i, key, rank, histogram, row_start, block)
        if place is not None:
            y[place] = x[i]

    def portable(i, x, key, rank, histogram, row_start, y):
        bucket = key[i]
        if bucket >= 0 and bucket < histogram.shape[1]:
            place = row_start[bucket] + histogram[i // block, bucket] + rank[i]
            for column in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
                y[place, column] = x[i, column]

    def reads(i, x, key, rank, histogram, row_start, y):
        row, bucket = slice(i, i + 1), int(key[i])
        if not 0 <= bucket < histogram.shape[1]:
            return {"key": (row,)}
        cell = slice(bucket, bucket + 1)
        return {
            "x": (row, slice(0, x.shape[1])),
            "key": (row,),
            "rank": (row,),
            "histogram": (slice(i // block, i // block + 1), cell),
            "row_start": (cell,),
        }

    def writes(i, x, key, rank, histogram, row_start, y):
        place = _place(i, key, rank, histogram, row_start, block)
        return {} if place is None else {"y": (slice(place, place + 1), slice(0, y.shape[1]))}

    return TileKind(
        name="group",
        reference=reference,
        coordinates=1,
        operands=(
            Operand("x"),
            _ints("key"),
            _ints("rank"),
            _ints("histogram", 2),
            _ints("row_start"),
            Operand("y", mode="out"),
        ),
        portable=portable,
        reads=reads,
        writes=writes,
        cost=1.0,
        data_dependent=True,
    )


@cache
def chunk_sum(chunk: int) -> TileKind:
    """Chunk j, one of bucket i's: ``partial[j] = sum of the chunk's rows of y``, in ascending order."""

    def rows(i, j, row_start, chunk_start):
        first = int(row_start[i]) + (j - int(chunk_start[i])) * chunk
        return slice(first, min(first + chunk, int(row_start[i + 1])))

    def reference(i, j, y, row_start, chunk_start, partial):
        partial[j] = y[rows(i, j, row_start, chunk_start)].sum(axis=0)

    def portable(i, j, y, row_start, chunk_start, partial):
        first = row_start[i] + (j - chunk_start[i]) * chunk
        last = min(first + chunk, row_start[i + 1])
        for column in range(cuda.threadIdx.x, y.shape[1], cuda.blockDim.x):
            total = np.float32(0)
            for row in range(first, last):
                total += y[row, column]
            partial[j, column] = total

    def reads(i, j, y, row_start, chunk_start, partial):
        return {
            "y": (rows(i, j, row_start, chunk_start), slice(0, y.shape[1])),
            "row_start": (slice(i, i + 2),),
            "chunk_start": (slice(i, i + 1),),
        }

    return TileKind(
        name="chunk_sum",
        reference=reference,
        coordinates=2,
        operands=(Operand("y"), _ints("row_start"), _ints("chunk_start"), Operand("partial", mode="out")),
        portable=portable,
        reads=reads,
        writes=lambda i, j, y, row_start, chunk_start, partial: {
            "partial": (slice(j, j + 1), slice(0, partial.shape[1]))
        },
        cost=lambda i, j, y, row_start, chunk_start, partial: 1.0 + 4 * chunk * y.shape[1] / _BYTES_PER_US,
        data_dependent=True,
    )


def _combine_reference(i, partial, chunk_start, out):
    out[i] = partial[chunk_start[i] : chunk_start[i + 1]].sum(axis=0)


def _combine_portable(i, partial, chunk_start, out):
    first = chunk_start[i]
    last = chunk_start[i + 1]
    for column in range(cuda.threadIdx.x, out.shape[1], cuda.blockDim.x):
        total = np.float32(0)
        for chunk in range(first, last):
            total += partial[chunk, column]
        out[i, column] = total


#: Bucket i: ``out[i] = sum of partial[chunk_start[i] : chunk_start[i + 1]]``, in ascending order; 0 if empty.
combine = TileKind(
    name="combine",
    reference=_combine_reference,
    coordinates=1,
    operands=(Operand("partial"), _ints("chunk_start"), Operand("out", mode="out")),
    portable=_combine_portable,
    reads=lambda i, partial, chunk_start, out: {
        "partial": (slice(int(chunk_start[i]), int(chunk_start[i + 1])), slice(0, partial.shape[1])),
        "chunk_start": (slice(i, i + 2),),
    },
    writes=lambda i, partial, chunk_start, out: {"out": (slice(i, i + 1), slice(0, out.shape[1]))},
    cost=1.0,
    data_dependent=True,
)
