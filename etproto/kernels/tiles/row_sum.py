"""Row sums in two steps: the paper's first example (Fig. 3)."""

from __future__ import annotations

import numpy as np
from numba import cuda, float32

from etproto.tile_kind import Operand, TileKind

__all__ = ["ROWS", "COLUMNS", "PARTS", "partial_sum", "final_sum"]

ROWS = 32  # rows of a block
COLUMNS = 32  # columns that one partial sum covers
PARTS = 4  # partial sums of a row
_PIECE = 8  # consecutive columns that one thread adds up
_PIECES = COLUMNS // _PIECE
_SHARED = (ROWS, _PIECES)


def _partial_reference(i: int, j: int, a: np.ndarray, b: np.ndarray) -> None:
    b[i, j] = a[ROWS * i : ROWS * (i + 1), COLUMNS * j : COLUMNS * (j + 1)].sum(axis=1)


def _partial_portable(i, j, a, b):
    pieces = cuda.shared.array(_SHARED, float32)
    for item in range(cuda.threadIdx.x, ROWS * _PIECES, cuda.blockDim.x):
        row = item // _PIECES
        piece = item % _PIECES
        total = np.float32(0)
        for column in range(_PIECE):
            total += a[i * ROWS + row, j * COLUMNS + piece * _PIECE + column]
        pieces[row, piece] = total
    cuda.syncthreads()
    for row in range(cuda.threadIdx.x, ROWS, cuda.blockDim.x):
        total = np.float32(0)
        for piece in range(_PIECES):
            total += pieces[row, piece]
        b[i, j, row] = total


#: ``b[i, j, r] = sum of a[32 i + r, 32 j : 32 j + 32]`` for r < 32; a is (32 n, 128), b is (n, 4, 32).
partial_sum = TileKind(
    name="partial_sum",
    shared_bytes=4 * ROWS * _PIECES,
    reference=_partial_reference,
    coordinates=2,
    operands=(Operand("a"), Operand("b", ndim=3, mode="out")),
    portable=_partial_portable,
    reads=lambda i, j, a, b: {"a": (slice(ROWS * i, ROWS * (i + 1)), slice(COLUMNS * j, COLUMNS * (j + 1)))},
    writes=lambda i, j, a, b: {"b": (slice(i, i + 1), slice(j, j + 1), slice(0, ROWS))},
    cost=1.5,
)


def _final_reference(i: int, b: np.ndarray, c: np.ndarray) -> None:
    c[i] = b[i].sum(axis=0)


def _final_portable(i, b, c):
    for row in range(cuda.threadIdx.x, ROWS, cuda.blockDim.x):
        total = np.float32(0)
        for part in range(PARTS):
            total += b[i, part, row]
        c[i, row] = total


#: ``c[i, r] = sum over j of b[i, j, r]``, j in ascending order; b is (n, 4, 32), c is (n, 32).
final_sum = TileKind(
    name="final_sum",
    reference=_final_reference,
    coordinates=1,
    operands=(Operand("b", ndim=3), Operand("c", mode="out")),
    portable=_final_portable,
    reads=lambda i, b, c: {"b": (slice(i, i + 1), slice(0, PARTS), slice(0, ROWS))},
    writes=lambda i, b, c: {"c": (slice(i, i + 1), slice(0, ROWS))},
    cost=1.0,
)
