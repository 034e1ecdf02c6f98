"""Tiles in shared memory: the swizzle, what bulk copies write, what wgmma reads, and what it costs to access."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from etproto.errors import ProgramError
from etproto.layouts.algebra import Layout

__all__ = ["Box", "SharedTile", "Swizzle", "bank_conflicts", "descriptor_bits"]

_MODES = {128: 1, 64: 2, 32: 3}  # swizzle span -> layout type of a descriptor


@dataclass(frozen=True)
class Swizzle:
    """The exchange of 16-byte chunks that bulk copies and tensor cores apply to shared addresses.

    The number of a chunk in a span (address bits 4 and up) is XORed with the number of the 128-byte line (bits
    7 and up), so that one column of eight rows lies in all banks. It is its own inverse, and repeats after
    eight spans, to which tiles are therefore aligned (PTX ISA, "Swizzling Modes" of tensors).

    Parameters
    ----------
    span_bytes : int
        128, 64 or 32; 0 for none.

    Examples
    --------
    >>> Swizzle(128)(128 + 16), Swizzle(128)(128), Swizzle(0)(128)
    (128, 144, 128)
    """

    span_bytes: int

    def __post_init__(self) -> None:
        if self.span_bytes not in (0, *_MODES):
            raise ProgramError(f"swizzle: span must be 0, 32, 64 or 128 bytes, got {self.span_bytes!r}")

    @property
    def mask(self) -> int:
        """Address bits that it may change."""
        return self.span_bytes - 16 if self.span_bytes else 0

    def __call__(self, address: Any) -> Any:
        """The address (an integer or an array) at which the hardware keeps what belongs at `address`."""
        return address ^ (address >> 3 & self.mask)


class Box(NamedTuple):
    """One bulk copy into a `SharedTile`: its first column, and its byte offset in the tile."""

    column: int
    offset: int


@dataclass(frozen=True)
class SharedTile:
    """A matrix tile in shared memory as bulk copies write it and wgmma reads it, rows along k ("K-major").

    Rows are as long as the swizzle's span. A wider tile is cut into panels of that many bytes, one after
    another, each written by one copy: a `TensorMap` with `box` and `swizzle`. Without a swizzle there is one
    panel of dense rows, which wgmma does not read.

    Parameters
    ----------
    rows, columns : int
    element_bytes : int
        1, 2, 4 or 8.
    swizzle : int
        Span in bytes: 128, 64, 32, or 0 for none.

    Raises
    ------
    ProgramError
        Rows that are not whole spans, a box of more than 256 elements in a dimension, or several panels of a
        number of rows that is no multiple of 8 (the swizzle of the second would begin in the middle).

    Examples
    --------
    >>> a = SharedTile(128, 128, 2)
    >>> a.bytes, a.box, a.address(1, 0), a.address(0, 64)
    (32768, (128, 64), 144, 16384)
    >>> a.boxes
    (Box(column=0, offset=0), Box(column=64, offset=16384))
    """

    rows: int
    columns: int
    element_bytes: int
    swizzle: int = 128

    def __post_init__(self) -> None:
        Swizzle(self.swizzle)
        where = f"shared tile of {self.rows} x {self.columns} elements of {self.element_bytes} bytes"
        if self.element_bytes not in (1, 2, 4, 8) or self.rows < 1 or self.columns < 1:
            raise ProgramError(f"{where}: expected at least one row and column, of 1, 2, 4 or 8 bytes an element")
        unit = self.swizzle or 16
        if self.columns * self.element_bytes % unit:
            raise ProgramError(
                f"{where}: rows must be a multiple of {unit} bytes, got {self.columns * self.element_bytes}"
            )
        if max(self.box) > 256:
            raise ProgramError(f"{where}: a bulk copy moves at most 256 elements in each dimension, got {self.box}")
        if len(self.boxes) > 1 and self.rows % 8:
            raise ProgramError(f"{where}: several panels must have a multiple of 8 rows, got {self.rows}")

    @property
    def bytes(self) -> int:
        """Size of the tile."""
        return self.rows * self.columns * self.element_bytes

    @property
    def alignment(self) -> int:
        """What the tile's shared address must be a multiple of."""
        return max(128, 8 * self.swizzle)

    @property
    def box(self) -> tuple[int, int]:
        """(rows, columns) of a panel: the box of the tensor map."""
        return self.rows, self.swizzle // self.element_bytes if self.swizzle else self.columns

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The bulk copies that fill the tile."""
        width, panel = self.box[1], self.rows * self.box[1] * self.element_bytes
        return tuple(Box(number * width, number * panel) for number in range(self.columns // width))

    @property
    def layout(self) -> Layout:
        """(row, column) -> byte offset before the swizzle."""
        width = self.box[1]
        row = width * self.element_bytes
        return Layout((self.rows, (self.columns // width, width)), (row, (self.rows * row, self.element_bytes)))

    def address(self, row: Any, column: Any) -> Any:
        """Byte offset of an element in the tile; arrays broadcast."""
        return Swizzle(self.swizzle)(self.layout(row, column))

    def descriptor(self, row: int, column: int) -> tuple[int, int]:
        """What wgmma gets to read from (row, column) on: (`descriptor_bits`, units of 16 bytes to add to the
        tile's own address shifted right by 4).

        The hardware computes addresses from the start address as if there were no swizzle, and applies the XOR
        to each address that results. So the start is the *unswizzled* offset, and the next slice of 16
        columns of 2 bytes is always 2 units further, as long as it stays within the panel.

        Raises
        ------
        ProgramError
            `row` is no multiple of 8 (the XOR counts rows from there), or `column` does not begin 16 bytes.

        Examples
        --------
        >>> [SharedTile(128, 128, 2).descriptor(64, column)[1] for column in (0, 16, 32, 48, 64)]
        [512, 514, 516, 518, 1536]
        """
        if row % 8 or column * self.element_bytes % 16:
            raise ProgramError(
                f"descriptor: expected a row that is a multiple of 8 and a column at a multiple of 16 bytes, got row"
                f" {row}, column {column} of {self.element_bytes} bytes an element"
            )
        return descriptor_bits(self.swizzle), self.layout(row, column) >> 4


def descriptor_bits(swizzle_span: int) -> int:
    """The part of a wgmma matrix descriptor that does not depend on the address, for a K-major `SharedTile`.

    To be ORed with ``address >> 4 & 0x3FFF`` (bits 0-13). Bits 16-29 are the leading byte offset, which swizzled
    K-major operands do not use and is set to 1 unit; bits 32-45 the stride byte offset, from one group of
    eight rows to the next: eight spans; bits 49-51 the base offset, 0 as tiles are aligned to the swizzle's
    period; bits 62-63 the mode. Offsets count units of 16 bytes (PTX ISA, "Matrix Descriptor Format" of
    wgmma).

    Parameters
    ----------
    swizzle_span : int
        128, 64 or 32 bytes.

    Raises
    ------
    ProgramError
        Another span; dense rows without a swizzle are no layout of wgmma.

    Examples
    --------
    >>> hex(descriptor_bits(128))
    '0x4000004000010000'
    """
    if swizzle_span not in _MODES:
        raise ProgramError(f"descriptor: wgmma reads tiles swizzled over 32, 64 or 128 bytes, got {swizzle_span!r}")
    return _MODES[swizzle_span] << 62 | (8 * swizzle_span >> 4) << 32 | 1 << 16


def bank_conflicts(addresses: Iterable[int], bytes_each: int) -> int:
    """How often the worst part of a warp's shared access is repeated; 1 is free of conflicts.

    There are 32 banks of 4 bytes. Accesses of 8 and 16 bytes go half and quarter warp by quarter warp; lanes
    that read the same word share it.

    Parameters
    ----------
    addresses : iterable of int
        Byte address of each lane.
    bytes_each : int
        1, 2, 4, 8 or 16; addresses are multiples of it.

    Examples
    --------
    >>> bank_conflicts(range(0, 512, 16), 16), bank_conflicts(range(0, 4096, 128), 4)
    (1, 32)
    """
    lanes = np.fromiter(addresses, np.int64)
    group = min(32, 128 // bytes_each)
    worst = 0
    for first in range(0, len(lanes), group):
        words = lanes[first : first + group, None] // 4 + np.arange(max(1, bytes_each // 4))
        worst = max(worst, int(np.bincount(np.unique(words) % 32).max()))
    return worst
