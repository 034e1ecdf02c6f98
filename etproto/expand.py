"""The expanded view of a bound program: one row a task, under one run's values (for a graph: `graph_tasks`).

Everything works on all tasks of a grid at once; only a cost given as a callable may be asked task by task.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from etproto.cells import cell_name, edge_cells, evaluate, run_time_values
from etproto.dependence import offsets, run_order, select, to_networkx
from etproto.errors import ProgramError
from etproto.graph_expand import graph_tasks
from etproto.numbering import Numbering, number
from etproto.program import Grid, Instance, Tensor
from etproto.tasks import TaskArrays
from etproto.tile_kind import storage_dtype

__all__ = [
    "cell_name",
    "edge_cells",
    "expand",
    "graph_tasks",
    "grid_coordinates",
    "operand_values",
    "run_time_values",
    "to_networkx",
]

_SCALAR_CALLS = 64  # grids up to this size ask a cost callable task by task


def expand(
    instance: Instance, tensors: Mapping[str, Any] | None = None, *, grids: Collection[str] | None = None
) -> TaskArrays:
    """The tasks of a bound program in one run, as plain arrays.

    Rows follow the program's grids, producers first, row-major in each grid; the rows of a grid that waits
    for itself are put in dependence order. Where dependences are cyclic they cannot be:
    `etproto.check.check` names the cycle. Events that no task touches need 0.

    Parameters
    ----------
    instance : Instance
        A program and the values of its symbols.
    tensors : mapping, optional
        Tensor name -> array. Only the int32 tensors that extents, edge maps and counts read are needed, with
        the values that they have when those are evaluated.
    grids : collection of str, optional
        Expand only the tasks of these grids, as if the others had none.

    Returns
    -------
    TaskArrays
        Task ids and event numbers are those of `etproto.numbering.number`. Costs are the tile kinds'; a
        callable is called once with coordinate arrays (int64[n]) where that gives what single calls give,
        else once a task.

    Raises
    ------
    ProgramError
        A run-time value that is missing, of the wrong shape, or over its bound; an edge map that names a cell
        outside its event tensor; a negative extent, need or cost.

    Examples
    --------
    >>> from etproto.program import EventTensor, Program, TaskGrid
    >>> from etproto.tile_kind import TileKind
    >>> part, total = (TileKind(name, reference=lambda i: None, coordinates=1) for name in ("part", "total"))
    >>> ready = EventTensor("ready", (2,))
    >>> parts = TaskGrid("parts", part, (6,), notifies={ready: "i->i//3"})
    >>> program = Program("sums", (parts, TaskGrid("totals", total, (2,), waits={ready: "i->i"})))
    >>> tasks = expand(program.bind())
    >>> tasks.count, tasks.event_need.tolist(), tasks.name(7)
    (8, [3, 3], 'totals[1]')
    """
    numbering = number(instance)
    known = run_time_values(instance, tensors, grids)
    program = instance.program
    base = {event.name: first for event, first in zip(program.events, numbering.event_base, strict=True)}
    kind_name = tuple(dict.fromkeys(grid.kind.name for grid in program.parsed))
    parts: dict[str, list[np.ndarray]] = {field: [] for field in ("task", "kind", "grid", "coordinate", "cost")}
    waits, notifies = [], []
    for index, grid in enumerate(program.parsed):
        if grids is not None and grid.name not in grids:
            continue
        coordinate, task = grid_coordinates(instance, grid, known)
        parts["coordinate"].append(coordinate)
        parts["task"].append(numbering.grid_first[index] + task)
        parts["kind"].append(np.full(len(task), kind_name.index(grid.kind.name), np.int32))
        parts["grid"].append(np.full(len(task), index, np.int32))
        parts["cost"].append(_costs(instance, grid, coordinate, tensors or {}))
        for edges, rows in ((grid.waits, waits), (grid.notifies, notifies)):
            touched = [
                (counts, base[edge.event.name] + cells)
                for edge in edges
                for counts, cells in [edge_cells(instance, grid, edge, coordinate, known)]
            ]
            rows.append(_join(touched, len(task)))
    wait_ptr, wait_event = _stack(waits)
    notify_ptr, notify_event = _stack(notifies)
    fields = {field: np.concatenate(arrays) for field, arrays in parts.items()}
    tasks = TaskArrays(
        **fields,
        priority=np.zeros(len(fields["task"])),
        wait_ptr=wait_ptr,
        wait_event=wait_event,
        notify_ptr=notify_ptr,
        notify_event=notify_event,
        event_need=_needs(instance, numbering, known, wait_event, notify_event),
        grid_name=tuple(grid.name for grid in program.parsed),
        kind_name=kind_name,
        grid_ndim=tuple(grid.ndim for grid in program.parsed),
    )
    return _in_dependence_order(tasks)


def grid_coordinates(instance: Instance, grid: Grid, known: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates (int32[n, 4]) and numbers within the grid (int64[n]) of a grid's tasks, ascending.

    The number is row-major under the run's extents; in a ragged grid it is
    ``position * (product of inner extents) + inner``.

    Raises
    ------
    ProgramError
        An extent that is negative or above its bound, a row pointer that decreases.
    """
    owner = f"{instance}: task grid {grid.name}"
    bound = None if grid.bound is None else int(grid.bound.evaluate(instance.bounds))
    extents = [int(extent.evaluate(instance.values)) for extent in grid.extents]
    if grid.count is not None:
        extents[0] = int(evaluate(grid.count, instance, {}, known, owner))
    for dimension, extent in enumerate(extents):
        if extent < 0:
            raise ProgramError(
                f"{owner}: extent {dimension} ({grid.extent_text(dimension)}) must be at least 0, got {extent}"
            )
    if grid.count is not None and bound is not None and extents[0] > bound:
        raise ProgramError(f"{owner}: extent 0 ({grid.count}) must be at most its bound {bound}, got {extents[0]}")
    rows, first = None, 0
    if grid.pointer is not None:
        pointer = _row_pointer(grid, known[grid.pointer].ravel(), extents[0], bound, owner)
        rows, first = np.repeat(np.arange(extents[0]), np.diff(pointer)), int(pointer[0])
        extents = [len(rows), *extents[2:]]
    count = math.prod(extents)
    columns = (
        list(np.unravel_index(np.arange(count), extents)) if extents and count else [np.arange(count)] * len(extents)
    )
    if rows is not None:
        columns[:1] = [rows[columns[0]], first + columns[0]]
    coordinate = np.zeros((count, 4), np.int32)
    for axis, column in enumerate(columns):
        coordinate[:, axis] = column
    return coordinate, first * math.prod(extents[1:]) + np.arange(count)


def _row_pointer(grid: Grid, values: np.ndarray, rows: int, bound: int | None, owner: str) -> np.ndarray:
    """First position of each row of a ragged grid, and the end of the last: int64[rows + 1]."""
    name = grid.pointer
    if rows + 1 > len(values):
        raise ProgramError(f"{owner}: {rows} rows need {rows + 1} elements of {name}, it has {len(values)}")
    pointer = values[: rows + 1].astype(np.int64)
    falls = np.flatnonzero(np.diff(pointer) < 0)
    if pointer[0] != 0:
        raise ProgramError(f"{owner}: {name}[0] must be 0, got {pointer[0]}")
    if len(falls):
        row = int(falls[0])
        got = f"{name}[{row}] = {pointer[row]}, {name}[{row + 1}] = {pointer[row + 1]}"
        raise ProgramError(f"{owner}: {name} must never decrease, got {got}")
    if bound is not None and pointer[-1] > bound:
        raise ProgramError(f"{owner}: {name}[{rows}] must be at most the grid's bound {bound}, got {pointer[-1]}")
    return pointer


def operand_values(instance: Instance, grid: Grid, tensors: Mapping[str, Any]) -> list[Any]:
    """What a tile kind's callables get after the coordinates: arrays, and integers for scalar operands.

    A tensor that is not among `tensors` is stood in for by a read-only array of zeros that takes no memory.
    """
    values: list[Any] = []
    for value in grid.operands.values():
        if not isinstance(value, Tensor):
            values.append(int(value.evaluate(instance.values)))
        elif value.name in tensors:
            values.append(tensors[value.name])
        else:
            values.append(np.broadcast_to(np.zeros((), storage_dtype(value.dtype)), instance.shape(value)))
    return values


def _costs(instance: Instance, grid: Grid, coordinate: np.ndarray, tensors: Mapping[str, Any]) -> np.ndarray:
    cost, count = grid.kind.cost, len(coordinate)
    if callable(cost):
        operands = operand_values(instance, grid, tensors)

        def single(row: int) -> float:
            return float(cost(*coordinate[row, : grid.ndim].tolist(), *operands))

        result = None
        if count > _SCALAR_CALLS:
            probes = (0, count // 3, count // 2, count - 1)
            try:
                axes = [coordinate[:, axis].astype(np.int64) for axis in range(grid.ndim)]
                result = np.broadcast_to(np.asarray(cost(*axes, *operands), np.float64), count)
                if any(result[row] != single(row) for row in probes):
                    result = None
            # the callable is the user's, and not made for arrays: whatever is wrong shows below
            except Exception:
                result = None
        if result is None:
            result = np.fromiter((single(row) for row in range(count)), np.float64, count)
    else:
        result = np.full(count, cost, np.float64)
    wrong = ~((result >= 0) & np.isfinite(result))
    if wrong.any():
        row = int(np.argmax(wrong))
        task = f"{grid.name}{coordinate[row, : grid.ndim].tolist()}"
        raise ProgramError(f"{instance}: the cost of {task} must be a finite number >= 0, got {result[row]}")
    return np.ascontiguousarray(result)


def _needs(
    instance: Instance,
    numbering: Numbering,
    known: Mapping[str, np.ndarray],
    wait_event: np.ndarray,
    notify_event: np.ndarray,
) -> np.ndarray:
    need = np.bincount(notify_event, minlength=numbering.cells)
    used = need > 0
    used[wait_event] = True
    for event, first in zip(instance.program.events, numbering.event_base, strict=True):
        cells = slice(first, first + math.prod(instance.shape(event)))
        if event.any_of:
            need[cells] = used[cells]
        elif event.count is not None and event.count.name in known:
            need[cells] = known[event.count.name].ravel()
        elif event.need is not None:
            need[cells] = int(event.need.evaluate(instance.values)) * used[cells]
        if (need[cells] < 0).any():
            cell = first + int(np.argmax(need[cells] < 0))
            source = event.need if event.count is None else event.count.name
            raise ProgramError(
                f"{instance}: event {cell_name(instance, cell)}: the need ({source}) must be at least 0,"
                f" got {need[cell]}"
            )
    return need.astype(np.int32)


def _in_dependence_order(tasks: TaskArrays) -> TaskArrays:
    """Put rows after the rows that notify them, where a grid waits for itself."""
    rows = np.arange(tasks.count)
    last_notifier = np.full(tasks.events, -1)
    np.maximum.at(last_notifier, tasks.notify_event, np.repeat(rows, np.diff(tasks.notify_ptr)))
    if (last_notifier[tasks.wait_event] < np.repeat(rows, np.diff(tasks.wait_ptr))).all():
        return tasks
    order = run_order(tasks, np.bincount(tasks.notify_event, minlength=tasks.events))
    if len(order) < tasks.count:
        return tasks
    return select(tasks, order[np.argsort(tasks.grid[order], kind="stable")])


def _join(edges: list[tuple[np.ndarray, np.ndarray]], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Sizes and events of each of `count` tasks, from (counts, events) of each edge."""
    if len(edges) == 1:
        return edges[0]
    sizes = sum((counts for counts, _ in edges), start=np.zeros(count, np.int64))
    joined, place = np.empty(sizes.sum(), np.int64), offsets(sizes)[:-1]
    for counts, events in edges:
        joined[np.repeat(place - (np.cumsum(counts) - counts), counts) + np.arange(len(events))] = events
        place = place + counts
    return sizes, joined


def _stack(grids: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """CSR of all grids' rows, from (sizes, events) of each grid."""
    sizes, events = zip(*grids, strict=True)
    return offsets(np.concatenate(sizes)), np.concatenate(events).astype(np.int32)
