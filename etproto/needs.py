"""How many notifications satisfy each event: derived from the edge maps wherever they are static."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from etproto.edge_map import Gather, Point, Range, run_time_tensors
from etproto.expressions import Constant, Coordinate, Expression
from etproto.program import Edge, EventTensor, Grid, Instance, Program

__all__ = ["notifiers", "uniform_need", "static_needs"]


def notifiers(program: Program, event: EventTensor) -> Iterator[tuple[Grid, Edge]]:
    """Grids that notify an event tensor, each with the edge."""
    for grid in program.parsed:
        for edge in grid.notifies:
            if edge.event == event:
                yield grid, edge


def uniform_need(program: Program, event: EventTensor) -> Expression | None:
    """The need of every cell as one expression of the symbols, when the maps show that it is the same for
    all.

    That is so when each event coordinate is a task coordinate of the same extent (or a whole axis), each used
    once: then every cell is notified by all values of the coordinates left over. None when this simple rule
    does not apply.

    Examples
    --------
    >>> from etproto.models.splitk import program
    >>> p = program()
    >>> str(uniform_need(p, p.events[0]))
    '4'
    """
    if event.any_of:
        return Constant(1)
    total: Expression = Constant(0)
    for grid, edge in notifiers(program, event):
        if grid.count is not None or grid.pointer is not None:
            return None
        left = dict(zip(grid.coordinates, grid.extents, strict=True))
        for dimension, extent in zip(edge.map.dimensions, event.shape, strict=True):
            if isinstance(dimension, Range) and dimension == Range(Constant(0), extent):
                continue
            value = dimension.value if isinstance(dimension, Point) else None
            if value == Constant(0) and extent == Constant(1):
                continue
            if not isinstance(value, Coordinate) or left.pop(value.name, None) != extent:
                return None
        each: Expression = Constant(1)
        for extent in left.values():
            each = each * extent
        total = total + each
    return total


def static_needs(instance: Instance, event: EventTensor) -> np.ndarray | None:
    """Notifications of every cell, counted over all tasks; None when a map or extent depends on run-time
    values.

    Returns
    -------
    int64[cells] or None
    """
    shape = instance.shape(event)
    needs = np.zeros(shape, np.int64)
    for grid, edge in notifiers(instance.program, event):
        gathers = any(isinstance(dimension, Gather) for dimension in edge.map.dimensions)
        if grid.count is not None or grid.pointer is not None or gathers or run_time_tensors(edge.map.expressions()):
            return None
        extents = [int(extent.evaluate(instance.values)) for extent in grid.extents]
        coordinates = [axis.ravel() for axis in np.indices(extents)] if extents else []
        tasks = int(np.prod(extents))
        values = {**instance.values, **dict(zip(grid.coordinates, coordinates, strict=True))}
        _count(needs, edge, values, tasks)
    if event.any_of:
        needs = np.minimum(needs, 1)
    return needs.ravel()


def _count(needs: np.ndarray, edge: Edge, values: dict, tasks: int) -> None:
    """Add one notification for each task and each cell that it touches."""
    lows, sizes = [], []
    for dimension, extent in zip(edge.map.dimensions, needs.shape, strict=True):
        if isinstance(dimension, Point):
            low = np.broadcast_to(dimension.value.evaluate(values), (tasks,))
            size = np.ones(tasks, np.int64)
        else:
            low = np.maximum(np.broadcast_to(dimension.low.evaluate(values), (tasks,)), 0)
            high = np.minimum(np.broadcast_to(dimension.high.evaluate(values), (tasks,)), extent)
            size = np.maximum(high - low, 0)
        lows.append(low)
        sizes.append(size)
    widths = [int(size.max(initial=0)) for size in sizes]
    for step in np.ndindex(*widths):
        inside = np.ones(tasks, bool)
        for offset, low, size, extent in zip(step, lows, sizes, needs.shape, strict=True):
            inside &= (offset < size) & (low + offset >= 0) & (low + offset < extent)
        np.add.at(needs, tuple((low + offset)[inside] for low, offset in zip(lows, step, strict=True)), 1)
        if not step:  # a single event without coordinates
            needs += int(tasks) - 1
            break
