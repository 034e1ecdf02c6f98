"""`Layout`, a shape and a stride for each mode, and what can be made of layouts: compositions and tilings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from etproto.errors import ProgramError

__all__ = ["Layout", "column_major", "compose", "row_major", "tile"]

Nested = int | tuple["Nested", ...]


def _leaves(shape: Nested, stride: Nested) -> Iterator[tuple[int, int]]:
    """(extent, step) of each leaf of a mode, the slowest first."""
    if isinstance(shape, tuple) and isinstance(stride, tuple) and len(shape) == len(stride):
        for inner_shape, inner_stride in zip(shape, stride, strict=True):
            yield from _leaves(inner_shape, inner_stride)
    elif isinstance(shape, int) and isinstance(stride, int) and shape >= 1 and stride >= 0:
        yield shape, stride
    else:
        raise ProgramError(
            f"layout: shape and stride must nest alike, of extents >= 1 and steps >= 0, got {shape!r} and {stride!r}"
        )


def _offset(coordinate: Any, shape: Nested, stride: Nested) -> Any:
    if isinstance(coordinate, tuple):
        return sum(_offset(*mode) for mode in zip(coordinate, shape, stride, strict=True))  # type: ignore[arg-type]
    (_, slowest), *faster = _leaves(shape, stride)
    offset = 0
    for extent, step in reversed(faster):
        offset = offset + coordinate % extent * step
        coordinate = coordinate // extent
    return offset + coordinate * slowest


@dataclass(frozen=True)
class Layout:
    """A map from coordinates to offsets: the sum of coordinate times stride over all modes.

    Parameters
    ----------
    shape, stride : tuple
        An entry a mode: an integer, or a tuple of them (nested to any depth) for a mode made of parts. The
        last part varies fastest when such a mode is counted by one integer.

    Raises
    ------
    ProgramError
        Shape and stride do not nest alike, an extent below 1 or a negative stride.

    Examples
    --------
    >>> layout = Layout((2, (2, 4)), (4, (8, 1)))  # two panels of 2 x 4, side by side
    >>> layout(1, 6), layout(1, (1, 2)), layout.size, layout.cosize
    (14, 14, 16, 16)
    >>> layout.offsets().tolist()
    [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]]
    """

    shape: tuple[Nested, ...]
    stride: tuple[Nested, ...]

    def __post_init__(self) -> None:
        self.leaves()

    def leaves(self) -> list[tuple[int, int]]:
        """(extent, step) of every part, the slowest first."""
        return list(_leaves(self.shape, self.stride))

    @property
    def modes(self) -> tuple[Layout, ...]:
        """Each mode as a layout of its own."""
        return tuple(Layout((shape,), (stride,)) for shape, stride in zip(self.shape, self.stride, strict=True))

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return math.prod(extent for extent, _ in self.leaves())

    @property
    def cosize(self) -> int:
        """One more than the largest offset."""
        return 1 + sum((extent - 1) * step for extent, step in self.leaves())

    def __call__(self, *coordinate: Any) -> Any:
        """The offset of one coordinate a mode, or of one integer that counts them all; arrays broadcast."""
        if len(coordinate) == 1 and not isinstance(coordinate[0], tuple):
            return _offset(coordinate[0], self.shape, self.stride)
        if len(coordinate) != len(self.shape):
            raise ProgramError(
                f"layout of shape {self.shape}: expected {len(self.shape)} coordinates, got {coordinate}"
            )
        return _offset(coordinate, self.shape, self.stride)

    def offsets(self) -> np.ndarray:
        """All offsets: int64, an axis a mode."""
        return np.asarray(self(*np.ix_(*(np.arange(mode.size) for mode in self.modes))))

    def __str__(self) -> str:
        return f"{self.shape}:{self.stride}".replace(" ", "")


def row_major(*shape: int) -> Layout:
    """The layout of a C-contiguous array.

    Examples
    --------
    >>> print(row_major(4, 8), column_major(4, 8))
    (4,8):(8,1) (4,8):(1,4)
    """
    return Layout(shape, tuple(math.prod(shape[mode + 1 :]) for mode in range(len(shape))))


def column_major(*shape: int) -> Layout:
    """The layout of a Fortran-contiguous array."""
    return Layout(shape, tuple(math.prod(shape[:mode]) for mode in range(len(shape))))


def compose(outer: Layout, inner: Layout) -> Layout:
    """The layout ``c -> outer(inner(c))``, of `inner`'s shape with modes split where `outer`'s digits end.

    Raises
    ------
    ProgramError
        No shape and stride describe the result: `inner` steps over the boundaries of `outer`'s modes unevenly,
        or reaches over its end.

    Examples
    --------
    >>> print(compose(column_major(4, 8), row_major(8, 4)))  # a transposed matrix, reshaped
    ((4,2),4):((1,16),4)
    """
    steps = sorted((step, step * extent) for extent, step in inner.leaves() if extent > 1 and step)
    uneven = any(step % end for (_, end), (step, _) in zip(steps, steps[1:], strict=False))
    if uneven or inner.cosize > outer.size:
        raise ProgramError(f"layouts {outer} and {inner} do not compose: steps of the second do not nest in the first")
    digits: list[tuple[int, int]] = []  # of the first layout's coordinate, the fastest first
    for extent, step in reversed(outer.leaves()):
        if digits and step == digits[-1][0] * digits[-1][1]:  # goes on where the digit before ends
            digits[-1] = (digits[-1][0] * extent, digits[-1][1])
        elif extent > 1:
            digits.append((extent, step))

    def split(extent: int, step: int) -> tuple[Nested, Nested]:
        parts, lower, rest, unit = [], 1, extent, step
        for number, (count, weight) in enumerate(digits, 1):
            upper = lower * count
            if rest > 1 and 0 < unit < upper:
                inside = unit * rest <= upper or number == len(digits)
                here = rest if inside else upper // unit
                if unit % lower or rest % here or (not inside and upper % unit):
                    raise ProgramError(f"layouts {outer} and {inner} do not compose: {extent}:{step} splits unevenly")
                parts.insert(0, (here, unit // lower * weight))
                rest, unit = rest // here, upper
            lower = upper
        parts = parts or [(extent, 0)]
        return parts[0] if len(parts) == 1 else tuple(zip(*parts, strict=True))  # type: ignore[return-value]

    def composed(shape: Nested, stride: Nested) -> tuple[Nested, Nested]:
        if isinstance(shape, int) and isinstance(stride, int):
            return split(shape, stride)
        modes = [composed(*mode) for mode in zip(shape, stride, strict=True)]  # type: ignore[arg-type]
        return tuple(mode for mode, _ in modes), tuple(step for _, step in modes)

    return Layout(*composed(inner.shape, inner.stride))  # type: ignore[arg-type]


def tile(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """A layout cut into tiles: of two modes, the tile's coordinate and the coordinate inside it.

    Parameters
    ----------
    layout : Layout
    shape : tuple of int
        Extents of a tile, one a mode of `layout`; they divide the modes' sizes.

    Raises
    ------
    ProgramError
        They do not.

    Examples
    --------
    >>> tiled = tile(row_major(4, 8), (2, 4))
    >>> print(tiled, tiled((1, 0), (0, 3)), tiled(2, 3))
    ((2,2),(2,4)):((16,4),(8,1)) 19 19
    """
    modes = layout.modes
    if len(shape) != len(modes) or any(mode.size % extent for mode, extent in zip(modes, shape, strict=True)):
        raise ProgramError(f"layout {layout}: tiles must divide its modes, of {[m.size for m in modes]}, got {shape}")
    parts = [
        (compose(mode, Layout((mode.size // extent,), (extent,))), compose(mode, row_major(extent)))
        for mode, extent in zip(modes, shape, strict=True)
    ]
    levels = [[part[level] for part in parts] for level in (0, 1)]
    return Layout(
        tuple(tuple(part.shape[0] for part in level) for level in levels),
        tuple(tuple(part.stride[0] for part in level) for level in levels),
    )
