"""Numbers of tasks and event cells: sized by the symbols' bounds, so that rebinding moves nothing.

Task ids of a grid are ``first .. first + bound``; task `t` of a grid is the row-major number of its
coordinate under the extents of the run. Event cells of a tensor are ``base .. base + cells``, row-major under
the shape of the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from etproto.errors import ProgramError
from etproto.program import EventTensor, Instance

__all__ = ["Numbering", "number"]

_MOST = 2**31 - 1


@dataclass(frozen=True)
class Numbering:
    """First task id and most tasks of each grid, first cell and most cells of each event tensor (in program
    order).
    """

    grid_first: tuple[int, ...]
    grid_bound: tuple[int, ...]
    event_base: tuple[int, ...]
    event_bound: tuple[int, ...]
    tasks: int
    cells: int


def number(instance: Instance) -> Numbering:
    """Number the tasks and event cells of an instance.

    Raises
    ------
    ProgramError
        A negative extent, or bounds that make more than 2**31 - 1 tasks or event cells.

    Examples
    --------
    >>> from etproto.models.splitk import program
    >>> number(program().bind(n=3)).grid_first
    (0, 524288)
    """
    bounds = instance.bounds
    first, grid_bound, tasks = [], [], 0
    for thing in (*instance.program.parsed, *instance.program.events):
        extents = thing.shape if isinstance(thing, EventTensor) else thing.extents
        for number_of, extent in enumerate(extents):
            size = int(extent.evaluate(instance.values))
            if size < 0:
                raise ProgramError(
                    f"{instance}: extent {number_of} ({extent}) of {thing.name} must be at least 0, got {size}"
                )
    for grid in instance.program.parsed:
        if grid.bound is not None:
            fixed = grid.extents[2:] if grid.pointer is not None else grid.extents[1:]
            most = int(grid.bound.evaluate(bounds)) * math.prod(int(e.evaluate(bounds)) for e in fixed)
        else:
            most = math.prod(int(extent.evaluate(bounds)) for extent in grid.extents)
        first.append(tasks)
        grid_bound.append(most)
        tasks += most
    base, event_bound, cells = [], [], 0
    for event in instance.program.events:
        most = math.prod(int(extent.evaluate(bounds)) for extent in event.shape)
        base.append(cells)
        event_bound.append(most)
        cells += most
    for what, count in (("tasks", tasks), ("event cells", cells)):
        if count > _MOST:
            raise ProgramError(f"{instance}: {count} {what} at the symbols' bounds, at most {_MOST} can be numbered")
    return Numbering(tuple(first), tuple(grid_bound), tuple(base), tuple(event_bound), tasks, cells)
