"""Tasks that do next to nothing, so that what is measured is the runtime around them."""

from __future__ import annotations

import numpy as np
from numba import cuda

from etproto.tile_kind import Operand, TileKind

__all__ = ["WORDS", "empty", "message"]

WORDS = 4  # int32 words of a slot: 16 bytes


def _neighbour(i: int, x: np.ndarray) -> int:
    return (i + 1) % x.shape[1]


def _message_reference(layer: int, i: int, first: int, x: np.ndarray, y: np.ndarray) -> None:
    y[first + layer + 1, i] = x[first + layer, _neighbour(i, x)] + 1


def _message_portable(layer, i, first, x, y):
    if cuda.threadIdx.x == 0:
        row = first + layer
        other = i + 1
        if other == x.shape[1]:
            other = other * 0
        # All loads before the first store: the compiler must take it that x and y are one array.
        a = x[row, other, 0]
        b = x[row, other, 1]
        c = x[row, other, 2]
        d = x[row, other, 3]
        y[row + 1, i, 0] = a + 1
        y[row + 1, i, 1] = b + 1
        y[row + 1, i, 2] = c + 1
        y[row + 1, i, 3] = d + 1


#: Slot i of a layer is its neighbour's slot of the layer before, plus one:
#: ``y[first + layer + 1, i] = x[first + layer, (i + 1) % width] + 1``; x and y are (layers + 1, width, 4).
message = TileKind(
    name="message",
    reference=_message_reference,
    coordinates=2,
    operands=(
        Operand("first", "int32", ndim=0),
        Operand("x", "int32", ndim=3),
        Operand("y", "int32", ndim=3, mode="inout"),  # the first layer is there before
    ),
    portable=_message_portable,
    reads=lambda layer, i, first, x, y: {
        "x": (
            slice(first + layer, first + layer + 1),
            slice(_neighbour(i, x), _neighbour(i, x) + 1),
            slice(0, WORDS),
        )
    },
    writes=lambda layer, i, first, x, y: {
        "y": (slice(first + layer + 1, first + layer + 2), slice(i, i + 1), slice(0, WORDS))
    },
    cost=0.1,
)


def _empty_reference(i: int) -> None:
    pass


def _empty_portable(i):
    pass


#: Nothing at all.
empty = TileKind(
    name="empty",
    reference=_empty_reference,
    coordinates=1,
    portable=_empty_portable,
    reads=lambda i: {},
    writes=lambda i: {},
    cost=0.01,
)
