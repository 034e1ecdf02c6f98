"""`TensorMap`: which boxes of an operand the bulk copies of a tile kind move, and how they lie in shared memory.

A tile kind lists the maps that its bodies use. What they say together with an array (address, shape, element
type) becomes 128 bytes: for the simulator the words written here, for a GPU what the driver encodes from the
same `Geometry` (`etproto.executors.tensor_map_driver`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from etproto.errors import ProgramError
from etproto.kernels.ptx.simulated import (
    MAP_ADDRESS,
    MAP_BOX,
    MAP_ELEMENT,
    MAP_EXTENT,
    MAP_RANK,
    MAP_STRIDE,
    MAP_SWIZZLE,
    MAP_TYPE,
)

__all__ = ["SWIZZLE_SPANS", "Geometry", "TensorMap", "box_bytes", "map_geometry", "map_words"]

SWIZZLE_SPANS = (0, 32, 64, 128)
_ELEMENT_BYTES = {
    "float32": 4,
    "float64": 8,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "int64": 8,
    "uint16": 2,
    "uint8": 1,
}
_WORDS = 16
_MOST_BOX = 256  # elements of a box in one dimension
_MOST_EXTENT, _MOST_STRIDE = 1 << 32, 1 << 40
_WORD_OF_TYPE = {"float32": 1, "bfloat16": 2, "float16": 3}  # only adding copies look at the type


@dataclass(frozen=True)
class TensorMap:
    """Boxes of one operand, as the tensor memory accelerator copies them.

    Parameters
    ----------
    operand : str
        Name of an operand of the tile kind, a C-contiguous array.
    box : tuple of int
        Extents of a box in elements, outermost dimension first, as the array's shape is written: ``(128, 64)``
        is 128 rows of 64 columns. Two or three extents of 1 to 256.
    swizzle : int
        Bytes over which 16-byte chunks are exchanged in shared memory: 128, 64 or 32, which then is also the
        size of a box's row; 0 leaves rows as they are.
    dimensions : tuple of int, optional
        The array's dimension that each extent of the box runs along; None for the array's own order. The
        last one must stay the last, since elements of a row are adjacent: ``(1, 0, 2)`` is the box of an
        array seen with its first two dimensions exchanged.

    Raises
    ------
    ProgramError
        A box, a span or an order that no copy can have.

    Examples
    --------
    >>> TensorMap("a", (128, 64))
    TensorMap(operand='a', box=(128, 64), swizzle=128, dimensions=None)
    >>> TensorMap("a", (512, 64))
    Traceback (most recent call last):
    ...
    etproto.errors.ProgramError: tensor map of a: extents of a box must be 1 to 256, got (512, 64)
    """

    operand: str
    box: tuple[int, ...]
    swizzle: int = 128
    dimensions: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        where = f"tensor map of {self.operand}"
        if len(self.box) not in (2, 3):
            raise ProgramError(f"{where}: a box must have 2 or 3 dimensions, got {self.box}")
        if not all(1 <= extent <= _MOST_BOX for extent in self.box):
            raise ProgramError(f"{where}: extents of a box must be 1 to {_MOST_BOX}, got {self.box}")
        if self.swizzle not in SWIZZLE_SPANS:
            raise ProgramError(f"{where}: swizzle must be one of {SWIZZLE_SPANS} bytes, got {self.swizzle!r}")
        rank = len(self.box)
        if self.dimensions is not None and (
            sorted(self.dimensions) != list(range(rank)) or self.dimensions[-1] != rank - 1
        ):
            raise ProgramError(
                f"{where}: dimensions must be an order of {tuple(range(rank))} that ends with {rank - 1}, got"
                f" {self.dimensions}"
            )


class Geometry(NamedTuple):
    """A tensor map and an array together, innermost dimension first, as the hardware counts.

    Parameters
    ----------
    address : int
        Of the array's first element.
    extents : tuple of int
        Elements in each dimension; copies outside read zeros and write nothing.
    strides : tuple of int
        Bytes between neighbours in each dimension but the innermost.
    box : tuple of int
    element_bytes : int
    """

    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_bytes: int


def box_bytes(tensor_map: TensorMap, dtype: str) -> int:
    """Bytes that one copy moves: what a barrier has to expect, also where a box reaches over the array's edge.

    Parameters
    ----------
    tensor_map : TensorMap
    dtype : str
        The operand's element type.

    Raises
    ------
    ProgramError
        An unknown type, or a box whose rows are not a multiple of 16 bytes or, if swizzled, not just the span.
        The driver would take shorter rows, but where the rest of the span stays unused the rows are not dense.

    Examples
    --------
    >>> box_bytes(TensorMap("a", (128, 64)), "bfloat16")
    16384
    """
    where = f"tensor map of {tensor_map.operand}"
    if dtype not in _ELEMENT_BYTES:
        raise ProgramError(f"{where}: dtype must be one of {', '.join(_ELEMENT_BYTES)}, got {dtype!r}")
    row = tensor_map.box[-1] * _ELEMENT_BYTES[dtype]
    got = f"{row} bytes ({tensor_map.box[-1]} elements of {dtype})"
    if row % 16:
        raise ProgramError(f"{where}: rows of a box must be a multiple of 16 bytes, got {got}")
    if tensor_map.swizzle and row != tensor_map.swizzle:
        raise ProgramError(
            f"{where}: rows of a box must be as long as its swizzle, {tensor_map.swizzle} bytes, got {got}"
        )
    return math.prod(tensor_map.box) * _ELEMENT_BYTES[dtype]


def map_geometry(tensor_map: TensorMap, address: int, shape: Sequence[int], dtype: str) -> Geometry | None:
    """What a tensor map says of a C-contiguous array, or None for an array without elements.

    Parameters
    ----------
    tensor_map : TensorMap
    address : int
        Of the array's first element, in bytes.
    shape : sequence of int
    dtype : str

    Raises
    ------
    ProgramError
        What the hardware cannot copy: an address or a row stride that is not a multiple of 16 bytes, an
        extent or a stride that is too large, another number of dimensions than the box has.

    Examples
    --------
    >>> map_geometry(TensorMap("a", (128, 64)), 4096, (1000, 512), "bfloat16")
    Geometry(address=4096, extents=(512, 1000), strides=(1024,), box=(64, 128), element_bytes=2)
    >>> map_geometry(TensorMap("a", (128, 64)), 4096, (1000, 500), "bfloat16")
    Traceback (most recent call last):
    ...
    etproto.errors.ProgramError: operand a: rows must be a multiple of 16 bytes apart for bulk copies, got 1000 bytes
    (shape (1000, 500) of bfloat16)
    """
    box_bytes(tensor_map, dtype)  # checks the box
    where, size = f"operand {tensor_map.operand}", _ELEMENT_BYTES[dtype]
    shape = tuple(int(extent) for extent in shape)
    if len(shape) != len(tensor_map.box):
        raise ProgramError(
            f"{where}: its tensor map has boxes of {len(tensor_map.box)} dimensions, got an array of shape {shape}"
        )
    if min(shape) < 0 or max(shape) > _MOST_EXTENT:
        raise ProgramError(f"{where}: extents must be 0 to 2**32 for bulk copies, got shape {shape}")
    if 0 in shape:
        return None
    if address % 16:
        raise ProgramError(
            f"{where}: its address must be a multiple of 16 bytes for bulk copies, got {address:#x} ({address % 16}"
            f" bytes past one)"
        )
    strides = tuple(math.prod(shape[dimension + 1 :]) * size for dimension in range(len(shape)))
    for stride in strides[:-1]:
        if stride % 16 or stride >= _MOST_STRIDE:
            expected = "a multiple of 16 bytes" if stride % 16 else "less than 2**40 bytes"
            raise ProgramError(
                f"{where}: rows must be {expected} apart for bulk copies, got {stride} bytes (shape {shape} of {dtype})"
            )
    order = (tensor_map.dimensions or tuple(range(len(shape))))[::-1]
    return Geometry(
        address=int(address),
        extents=tuple(shape[dimension] for dimension in order),
        strides=tuple(strides[dimension] for dimension in order[1:]),
        box=tensor_map.box[::-1],
        element_bytes=size,
    )


def map_words(tensor_map: TensorMap, address: int, shape: Sequence[int], dtype: str) -> np.ndarray:
    """The simulator's form of a tensor map: int64[16], fields as in `etproto.kernels.ptx.simulated`.

    An array without elements has a map of zeros, here and on a GPU: there is no memory to describe, and no
    task copies any of it.

    Parameters
    ----------
    tensor_map : TensorMap
    address : int
        Of the array's first element, in bytes.
    shape : sequence of int
    dtype : str

    Returns
    -------
    numpy.ndarray
        int64[16].

    Raises
    ------
    ProgramError
        As `map_geometry`: the simulator refuses what a GPU would.

    Examples
    --------
    >>> map_words(TensorMap("a", (128, 64)), 4096, (1000, 512), "bfloat16")[:8].tolist()
    [4096, 2, 512, 1000, 1, 1024, 0, 64]
    """
    words = np.zeros(_WORDS, np.int64)
    geometry = map_geometry(tensor_map, address, shape, dtype)
    if geometry is not None:
        rank = len(geometry.box)
        words[MAP_ADDRESS], words[MAP_RANK] = geometry.address, rank
        words[MAP_EXTENT : MAP_EXTENT + 3] = words[MAP_BOX : MAP_BOX + 3] = 1
        words[MAP_EXTENT : MAP_EXTENT + rank] = geometry.extents
        words[MAP_STRIDE : MAP_STRIDE + rank - 1] = geometry.strides
        words[MAP_BOX : MAP_BOX + rank] = geometry.box
        words[MAP_ELEMENT], words[MAP_SWIZZLE] = geometry.element_bytes, tensor_map.swizzle
        words[MAP_TYPE] = _WORD_OF_TYPE.get(dtype, 0)
    return words
