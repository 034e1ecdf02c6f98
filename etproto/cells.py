"""Cells of event tensors under one run's values: which ones an edge map names, and what they are called."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from etproto.edge_map import Gather, Point
from etproto.errors import ProgramError
from etproto.expressions import Constant, Expression, Operation, Read, Symbol
from etproto.numbering import number
from etproto.program import Edge, EventTensor, Grid, Instance

__all__ = ["cell_name", "edge_cells", "evaluate", "per_cell", "run_time_values"]


def run_time_values(
    instance: Instance, tensors: Mapping[str, Any] | None = None, grids: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """The int32 tensors that extents, edge maps and counts (of `grids`) read, in the shapes declared.

    Raises
    ------
    ProgramError
        One is missing (its first reader is named), or its shape or type is wrong.
    """
    program = instance.program
    declared = {tensor.name: tensor for tensor in program.tensors}
    known: dict[str, np.ndarray] = {}
    for grid in program.parsed:
        for name, purpose in grid.run_time_reads().items():
            if name in known or (grids is not None and grid.name not in grids):
                continue
            if tensors is None or name not in tensors:
                raise ProgramError(
                    f"{instance}: the run-time value {name} is not given; task grid {grid.name} reads it"
                    f" ({purpose}); pass tensors={{{name!r}: array}}"
                )
            array, shape = np.asarray(tensors[name]), instance.shape(declared[name])
            if array.shape != shape or array.dtype.kind not in "iu":
                raise ProgramError(
                    f"{instance}: run-time value {name} must be an integer array of shape {shape},"
                    f" got {array.dtype} of shape {array.shape}"
                )
            known[name] = array
    return known


def edge_cells(
    instance: Instance, grid: Grid, edge: Edge, coordinate: np.ndarray, known: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Cells of an event tensor that an edge names, for many tasks at once.

    Parameters
    ----------
    instance, grid, edge
        The edge, and where it stands.
    coordinate : int[n, 4]
        Coordinates of tasks of the grid.
    known : mapping
        Run-time values, see `run_time_values`.

    Returns
    -------
    counts : int64[n]
        How many cells each task names.
    cells : int64[counts.sum()]
        Row-major numbers of the cells within the event tensor, task by task.

    Raises
    ------
    ProgramError
        A single index or a gathered element outside the event tensor; a read outside its tensor.
    """
    count, shape = len(coordinate), instance.shape(edge.event)
    if count == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    axes = {name: coordinate[:, axis].astype(np.int64) for axis, name in enumerate(grid.coordinates)}
    where = f"{instance}: task grid {grid.name}, {edge.event.name}: {str(edge.map)!r}"

    def value_of(expression: Expression) -> np.ndarray:
        return np.broadcast_to(evaluate(expression, instance, axes, known, where), count)

    def outside(row: int, axis: int, value: int) -> ProgramError:
        task = f"{grid.name}[{', '.join(str(coordinate[row, d]) for d in range(grid.ndim))}]"
        cell = ", ".join(
            str(value) if d == axis else str(int(value_of(part.value)[row])) if isinstance(part, Point) else str(part)
            for d, part in enumerate(edge.map.dimensions)
        )
        return ProgramError(f"{where}: task {task} names {edge.event.name}[{cell}], outside its extents {shape}")

    offset = np.zeros(count, np.int64)
    spans: list[tuple[int, int, np.ndarray, np.ndarray, np.ndarray | None]] = []
    for axis, part in enumerate(edge.map.dimensions):
        stride = math.prod(shape[axis + 1 :])
        if isinstance(part, Point):
            value = value_of(part.value)
            wrong = (value < 0) | (value >= shape[axis])
            if wrong.any():
                row = int(np.argmax(wrong))
                raise outside(row, axis, int(value[row]))
            offset += value * stride
            continue
        low, high = value_of(part.low), value_of(part.high)
        lookup = None
        if isinstance(part, Gather):
            lookup, last = known[part.tensor].ravel(), max(known[part.tensor].shape[-1], 1)
            wrong = (low < high) & ((low < 0) | (high > len(lookup)) | (low // last != (high - 1) // last))
            if wrong.any():
                row = int(np.argmax(wrong))
                raise ProgramError(
                    f"{where}: {part} reads elements {low[row]}:{high[row]} of {part.tensor} for task"
                    f" {grid.name}{coordinate[row, : grid.ndim].tolist()}, not within one row of its shape"
                    f" {known[part.tensor].shape}"
                )
        else:
            low, high = np.clip(low, 0, shape[axis]), np.clip(high, 0, shape[axis])
        spans.append((axis, stride, low, np.maximum(high - low, 0), lookup))
    if not spans:
        return np.ones(count, np.int64), offset
    counts = np.prod([size for *_, size, _ in spans], axis=0)
    row = np.repeat(np.arange(count), counts)
    within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    cells = offset[row]
    for axis, stride, low, size, lookup in reversed(spans):
        within, position = np.divmod(within, size[row]) if len(spans) > 1 else (within, within)
        value = low[row] + position
        if lookup is not None:
            value = lookup[value].astype(np.int64)
            wrong = (value < 0) | (value >= shape[axis])
            if wrong.any():
                at = int(np.argmax(wrong))
                raise outside(int(row[at]), axis, int(value[at]))
        cells += value * stride
    return counts, cells


def evaluate(
    expression: Expression,
    instance: Instance,
    axes: Mapping[str, np.ndarray],
    known: Mapping[str, np.ndarray],
    where: str,
) -> Any:
    """Value of an expression for all tasks; reads outside their tensor are refused, negative indices too."""
    bound = _without_symbols(expression, instance, where)
    values = {**known, **axes}
    for read in reversed([leaf for leaf in bound.leaves() if isinstance(leaf, Read)]):  # inner reads first
        shape = known[read.tensor].shape
        if len(read.indices) != len(shape):
            raise ProgramError(f"{where}: {read}: {read.tensor} has {len(shape)} dimensions")
        for dimension, extent in zip(read.indices, shape, strict=True):
            index = np.asarray(dimension.evaluate(values))
            wrong = (index < 0) | (index >= extent)
            if wrong.any():
                raise ProgramError(f"{where}: {read}: index {index[wrong][0]} outside {read.tensor}'s shape {shape}")
    return bound.evaluate(values)


def _without_symbols(expression: Expression, instance: Instance, where: str) -> Expression:
    """The expression with values for symbols, so that a symbol may be called like a coordinate."""
    if isinstance(expression, Symbol):
        return Constant(int(expression.evaluate(instance.values)))
    if isinstance(expression, Read):
        return Read(expression.tensor, tuple(_without_symbols(i, instance, where) for i in expression.indices))
    if isinstance(expression, Operation):
        left, right = (_without_symbols(side, instance, where) for side in (expression.left, expression.right))
        if expression.operator in ("//", "%") and not right.leaves() and int(right.evaluate({})) <= 0:
            raise ProgramError(f"{where}: {expression}: the divisor must be positive, got {right.evaluate({})}")
        return Operation(expression.operator, left, right)
    return expression


def cell_name(instance: Instance, cell: int) -> str:
    """Readable name of a flat event number, such as ``ready[2, 0]``."""
    numbering = number(instance)
    index = int(np.searchsorted(numbering.event_base, cell, side="right")) - 1
    while numbering.event_bound[index] == 0:  # an empty tensor has the base of the one after it
        index -= 1
    event = instance.program.events[index]
    if not event.shape:
        return event.name
    position = np.unravel_index(cell - numbering.event_base[index], instance.shape(event))
    return f"{event.name}[{', '.join(str(int(x)) for x in position)}]"


def per_cell(instance: Instance, value: Callable[[EventTensor], Any], dtype: type) -> np.ndarray:
    """A value of each event tensor, repeated for each of its numbers."""
    values = np.array([value(event) for event in instance.program.events], dtype)
    return np.repeat(values, number(instance).event_bound) if len(values) else values
