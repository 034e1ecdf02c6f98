"""Tiles of the in-place lower Cholesky factorisation A = L L^T of a symmetric positive definite matrix.

Tile (i, j) is ``A[T i : T (i + 1), T j : T (j + 1)]``; only the lower triangle of A is used and changed. Each
role of a tile is an operand of its own, all bound to the same tensor, so that every kind says which tiles it
touches.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numba import cuda, float32

from etproto.errors import ProgramError
from etproto.kernels.tiles.product import block_product, stage_bytes
from etproto.tile_kind import Operand, TileKind

__all__ = ["LARGEST_TILE", "OPERANDS", "cholesky_kinds"]

#: Largest tile: two portable bodies of one kernel hold a diagonal tile in shared memory.
LARGEST_TILE = 64

#: Operands of each kind, for `TaskGraph.from_networkx`: all of them are the matrix.
OPERANDS = {
    "potrf": {"a": "A"},
    "trsm": {"d": "A", "b": "A"},
    "syrk": {"a": "A", "c": "A"},
    "gemm": {"a": "A", "b": "A", "c": "A"},
}

_FLOPS_PER_US = {"potrf": 1e4, "trsm": 2e4, "syrk": 1e5, "gemm": 1e5}  # of one portable block


@cache
def cholesky_kinds(tile: int) -> dict[str, TileKind]:
    """The four kinds for tiles of `tile` x `tile` float32 elements.

    ========  ===========  ================================================================
    kind      coordinates  mathematics, X[i, j] being tile (i, j)
    ========  ===========  ================================================================
    potrf     k            A[k, k] := L with L L^T = A[k, k]
    trsm      i, k         A[i, k] := A[i, k] L^-T, L the factor in A[k, k]
    syrk      i, k         A[i, i] := A[i, i] - A[i, k] A[i, k]^T, lower triangle
    gemm      i, j, k      A[i, j] := A[i, j] - A[i, k] A[j, k]^T
    ========  ===========  ================================================================

    Raises
    ------
    ProgramError
        When `tile` is not 1 to `LARGEST_TILE`.
    """
    if not 1 <= tile <= LARGEST_TILE:
        raise ProgramError(f"cholesky: tile must be 1 to {LARGEST_TILE}, got {tile!r}")
    kinds = (_potrf(tile), _trsm(tile), *_updates(tile))
    return {kind.name: kind for kind in kinds}


def _region(tile: int, i: int, j: int) -> tuple[slice, slice]:
    return slice(i * tile, (i + 1) * tile), slice(j * tile, (j + 1) * tile)


def _cost(kind: str, tile: int, cubes: float) -> float:
    return 1.0 + cubes * tile**3 / _FLOPS_PER_US[kind]


def _potrf(tile: int) -> TileKind:
    shape = (tile, tile + 1)

    def reference(k, a):
        block = a[_region(tile, k, k)]
        lower = np.tril_indices(tile)
        block[lower] = np.linalg.cholesky(block)[lower]  # which reads the lower triangle only

    def portable(k, a):
        # L D L^T column by column, one barrier each; scaled to L L^T on the way out.
        block = cuda.shared.array(shape, float32)
        base = k * tile
        for item in range(cuda.threadIdx.x, tile * tile, cuda.blockDim.x):
            block[item // tile, item % tile] = a[base + item // tile, base + item % tile]
        cuda.syncthreads()
        for p in range(tile):
            inverse = np.float32(1) / block[p, p]
            for item in range(cuda.threadIdx.x, tile * tile, cuda.blockDim.x):
                row = item // tile
                column = item % tile
                if column > p and row >= column:
                    block[row, column] -= block[row, p] * inverse * block[column, p]
            cuda.syncthreads()
        for item in range(cuda.threadIdx.x, tile * tile, cuda.blockDim.x):
            row = item // tile
            column = item % tile
            if row >= column:
                a[base + row, base + column] = block[row, column] / math.sqrt(block[column, column])

    return TileKind(
        shared_bytes=4 * tile * (tile + 1),
        name="potrf",
        reference=reference,
        coordinates=1,
        operands=(Operand("a", mode="inout"),),
        portable=portable,
        reads=lambda k, a: {"a": _region(tile, k, k)},
        writes=lambda k, a: {"a": _region(tile, k, k)},
        cost=_cost("potrf", tile, 1 / 3),
    )


def _trsm(tile: int) -> TileKind:
    shape = (tile, tile + 1)

    def reference(i, k, d, b):
        region = _region(tile, i, k)
        b[region] = np.linalg.solve(np.tril(d[_region(tile, k, k)]), b[region].T).T

    def portable(i, k, d, b):
        # Column by column, one barrier each; columns are divided by the diagonal on the way out.
        factor = cuda.shared.array(shape, float32)
        top = i * tile
        base = k * tile
        for item in range(cuda.threadIdx.x, tile * tile, cuda.blockDim.x):
            factor[item // tile, item % tile] = d[base + item // tile, base + item % tile]
        cuda.syncthreads()
        for p in range(tile):
            inverse = np.float32(1) / factor[p, p]
            for item in range(cuda.threadIdx.x, tile * tile, cuda.blockDim.x):
                row = item // tile
                column = item % tile
                if column > p:
                    b[top + row, base + column] -= b[top + row, base + p] * inverse * factor[column, p]
            cuda.syncthreads()
        for item in range(cuda.threadIdx.x, tile * tile, cuda.blockDim.x):
            row = item // tile
            column = item % tile
            b[top + row, base + column] /= factor[column, column]

    return TileKind(
        shared_bytes=4 * tile * (tile + 1),
        name="trsm",
        reference=reference,
        coordinates=2,
        operands=(Operand("d"), Operand("b", mode="inout")),
        portable=portable,
        reads=lambda i, k, d, b: {"d": _region(tile, k, k), "b": _region(tile, i, k)},
        writes=lambda i, k, d, b: {"b": _region(tile, i, k)},
        cost=_cost("trsm", tile, 1),
    )


def _updates(tile: int) -> tuple[TileKind, TileKind]:
    product = block_product(tile, tile, min(tile, 16), transposed=True, subtract=True)

    def syrk_reference(i, k, a, c):
        panel, lower = a[_region(tile, i, k)], np.tril_indices(tile)
        c[_region(tile, i, i)][lower] -= (panel @ panel.T)[lower]

    def syrk_portable(i, k, a, c):
        product(a, a, c, i * tile, i * tile, i * tile, i * tile, k * tile, k * tile + tile, True)

    def gemm_reference(i, j, k, a, b, c):
        c[_region(tile, i, j)] -= a[_region(tile, i, k)] @ b[_region(tile, j, k)].T

    def gemm_portable(i, j, k, a, b, c):
        product(a, b, c, i * tile, j * tile, i * tile, j * tile, k * tile, k * tile + tile, False)

    syrk = TileKind(
        shared_bytes=stage_bytes(tile, tile, min(tile, 16)),
        name="syrk",
        reference=syrk_reference,
        coordinates=2,
        operands=(Operand("a"), Operand("c", mode="inout")),
        portable=syrk_portable,
        reads=lambda i, k, a, c: {"a": _region(tile, i, k), "c": _region(tile, i, i)},
        writes=lambda i, k, a, c: {"c": _region(tile, i, i)},
        cost=_cost("syrk", tile, 2),  # the portable body computes the whole tile
    )
    gemm = TileKind(
        shared_bytes=0,  # the same product as syrk, so the same stages
        name="gemm",
        reference=gemm_reference,
        coordinates=3,
        operands=(Operand("a"), Operand("b"), Operand("c", mode="inout")),
        portable=gemm_portable,
        reads=lambda i, j, k, a, b, c: {
            "a": _region(tile, i, k),
            "b": _region(tile, j, k),
            "c": _region(tile, i, j),
        },
        writes=lambda i, j, k, a, b, c: {"c": _region(tile, i, j)},
        cost=_cost("gemm", tile, 2),
    )
    return syrk, gemm
