"""Index code for tile bodies, generated from layouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.integer import floor_divide, floor_modulo
from etproto.layouts.algebra import Layout
from etproto.layouts.shared import SharedTile, Swizzle

__all__ = ["device_offset"]


@cache
def device_offset(layout: Layout | SharedTile) -> Callable[..., Any]:
    """Index code: a device function of one coordinate a mode that returns the offset, constants folded.

    Parameters
    ----------
    layout : Layout or SharedTile
        For a tile the function takes (row, column) and returns the swizzled byte offset. A mode that is nested
        is counted by one coordinate, so ``Layout((shape,), (stride,))`` gives the function of one integer.
        Coordinates must not be negative and fit 32 bits.

    Examples
    --------
    >>> from etproto.layouts import row_major, tile
    >>> device_offset(tile(row_major(4, 8), (2, 4)))(2, 3)
    19
    """
    flat, mask = (layout, 0) if isinstance(layout, Layout) else (layout.layout, Swizzle(layout.swizzle).mask)
    names = [f"i{number}" for number in range(len(flat.shape))]
    terms = [term for name, mode in zip(names, flat.modes, strict=True) for term in _terms(name, mode.leaves())]
    source = f"def offset({', '.join(names)}):\n    offset = {' + '.join(terms) or '0'}\n    return offset"
    source += f" ^ (offset >> 3 & {mask})\n" if mask else "\n"
    defined: dict[str, Any] = {"floor_divide": floor_divide, "floor_modulo": floor_modulo}
    exec(compile(source, f"<offset of {layout}>", "exec"), defined)  # the source holds integers and names only
    return device_function(defined["offset"])


def _terms(name: str, leaves: list[tuple[int, int]]) -> Iterator[str]:
    """What each part of a mode adds to the offset, as Python text; powers of two become shifts and masks."""
    parts = [(extent, step) for extent, step in leaves if extent > 1]
    below = math.prod(extent for extent, _ in parts)
    for number, (extent, step) in enumerate(parts):
        below //= extent
        digit = name
        if below > 1:
            shift = below.bit_length() - 1
            digit = f"({digit} >> {shift})" if below == 1 << shift else f"floor_divide({digit}, {below})"
        if number:  # the slowest part is what is left
            digit = f"({digit} & {extent - 1})" if not extent & extent - 1 else f"floor_modulo({digit}, {extent})"
        if step:
            yield f"{digit} * {step}"
