"""Tiles of ``C = A B`` with k split over tasks: partial products, then their sum in a fixed order."""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import cuda

from etproto.kernels.tiles.product import block_product, stage_bytes
from etproto.tile_kind import Operand, TileKind

__all__ = ["gemm_partial", "gemm_reduce", "slice_bounds"]

_FLOPS_PER_US = 1e5  # of one portable block
_BYTES_PER_US = 2e4


def slice_bounds(s: int, slices: int, depth: int, tile_k: int) -> tuple[int, int]:
    """The k of slice `s`: equal multiples of `tile_k`, the last slices shorter, perhaps empty.

    Examples
    --------
    >>> [slice_bounds(s, 3, 20, 16) for s in range(3)]
    [(0, 16), (16, 20), (20, 20)]
    """
    length = -(-depth // (slices * tile_k)) * tile_k
    return min(s * length, depth), min((s + 1) * length, depth)


@cache
def gemm_partial(tile_m: int, tile_n: int, tile_k: int) -> TileKind:
    """``p[s, tile i, j] = a[tile i, slice s] @ b[slice s, tile j]``; an empty slice gives zeros.

    a is (M, K), b is (K, N), p is (slices, M, N), float32. Tiles at the edges are cut off; for the slices see
    `slice_bounds`.
    """
    product = block_product(tile_m, tile_n, tile_k, transposed=False, subtract=False)

    def tile(i, j, s, a, b, p):
        k = slice_bounds(s, p.shape[0], a.shape[1], tile_k)
        return _cut(i, tile_m, p.shape[1]), _cut(j, tile_n, p.shape[2]), slice(*k)

    def reference(i, j, s, a, b, p):
        rows, columns, k = tile(i, j, s, a, b, p)
        p[s, rows, columns] = a[rows, k] @ b[k, columns]

    def portable(i, j, s, a, b, p):
        depth = a.shape[1]
        length = (depth + p.shape[0] * tile_k - 1) // (p.shape[0] * tile_k) * tile_k
        first = s * length
        last = min(first + length, depth)  # below first when the slice is empty
        product(a, b, p[s], i * tile_m, j * tile_n, i * tile_m, j * tile_n, first, last, False)

    def reads(i, j, s, a, b, p):
        rows, columns, k = tile(i, j, s, a, b, p)
        return {"a": (rows, k), "b": (k, columns)}

    def writes(i, j, s, a, b, p):
        rows, columns, _ = tile(i, j, s, a, b, p)
        return {"p": (slice(s, s + 1), rows, columns)}

    def cost(i, j, s, a, b, p):
        first, last = slice_bounds(s, p.shape[0], a.shape[1], tile_k)
        return 1.0 + 2 * tile_m * tile_n * (last - first) / _FLOPS_PER_US

    return TileKind(
        name="gemm_partial",
        shared_bytes=stage_bytes(tile_m, tile_n, tile_k),
        reference=reference,
        coordinates=3,
        operands=(Operand("a"), Operand("b"), Operand("p", ndim=3, mode="out")),
        portable=portable,
        reads=reads,
        writes=writes,
        cost=cost,
    )


@cache
def gemm_reduce(tile_m: int, tile_n: int) -> TileKind:
    """``c[tile i, j] = sum over s of p[s, tile i, j]`` in ascending order; c is (M, N), p as above."""

    def tile(i, j, c):
        return _cut(i, tile_m, c.shape[0]), _cut(j, tile_n, c.shape[1])

    def reference(i, j, p, c):
        region = tile(i, j, c)
        c[region] = p[(slice(None), *region)].sum(axis=0)

    def portable(i, j, p, c):
        for item in range(cuda.threadIdx.x, tile_m * tile_n, cuda.blockDim.x):
            row = i * tile_m + item // tile_n
            column = j * tile_n + item % tile_n
            if row < c.shape[0] and column < c.shape[1]:
                total = np.float32(0)
                for s in range(p.shape[0]):
                    total += p[s, row, column]
                c[row, column] = total

    return TileKind(
        name="gemm_reduce",
        reference=reference,
        coordinates=2,
        operands=(Operand("p", ndim=3), Operand("c", mode="out")),
        portable=portable,
        reads=lambda i, j, p, c: {"p": (slice(0, p.shape[0]), *tile(i, j, c))},
        writes=lambda i, j, p, c: {"c": tile(i, j, c)},
        cost=lambda i, j, p, c: 1.0 + 4 * tile_m * tile_n * (p.shape[0] + 1) / _BYTES_PER_US,
    )


def _cut(index: int, tile: int, extent: int) -> slice:
    return slice(index * tile, min((index + 1) * tile, extent))
