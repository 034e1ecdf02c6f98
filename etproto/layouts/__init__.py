"""Layouts: where each element of a tile lies, as small objects that also generate the index code.

Tiles, panels of shared memory and the fragments that threads hold are all a `Layout`; with a `Swizzle` they give
the addresses that bulk copies write and the tensor cores read. All are small enough to be tested element by
element.
"""

from etproto.layouts.algebra import Layout, column_major, compose, row_major, tile
from etproto.layouts.fragments import AccumulatorFragment, MmaFragment
from etproto.layouts.index_code import device_offset
from etproto.layouts.shared import Box, SharedTile, Swizzle, bank_conflicts, descriptor_bits

__all__ = [
    "AccumulatorFragment",
    "Box",
    "Layout",
    "MmaFragment",
    "SharedTile",
    "Swizzle",
    "bank_conflicts",
    "column_major",
    "compose",
    "descriptor_bits",
    "device_offset",
    "row_major",
    "tile",
]
