"""Run-time values: whoever reads one must be ordered after whoever writes it.

A grid reads run-time values through its extents, its edge maps and the needs of its events. It may do so
once its *gates* are satisfied: the waits that need no run-time value themselves and come first. Which
tasks exist is asked before any task has a coordinate, so an extent needs a gate that names one fixed
event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from etproto.cells import cell_name, edge_cells, per_cell
from etproto.check.happens_before import LIMIT, finished_at, happens_before
from etproto.check.naming import some_tasks
from etproto.check.regions import writing_rows
from etproto.dependence import transpose
from etproto.edge_map import Gather, run_time_tensors
from etproto.errors import ProgramError
from etproto.expand import expand
from etproto.numbering import number
from etproto.program import Edge, Grid, Instance, Program
from etproto.tasks import TaskArrays

__all__ = ["check_reads", "check_writers_done"]


@dataclass(frozen=True)
class _Reading:
    """A run-time value that a grid reads, what for, and the waits that come before it."""

    value: str
    purpose: str
    waits: tuple[Edge, ...]
    extent: bool = False
    after_body: bool = False


def _readings(grid: Grid) -> Iterator[_Reading]:
    gates = tuple(edge for edge in grid.waits if edge.is_gate)
    constant = tuple(edge for edge in gates if edge.is_constant)
    if grid.count is not None:
        yield _Reading(grid.count.tensor, f"extent {grid.count}", constant, extent=True)
    if grid.pointer is not None:
        yield _Reading(grid.pointer, f"ragged extent {grid.extent_text(1)}", constant, extent=True)
    for edges, waits in ((grid.waits, gates), (grid.notifies, grid.waits)):
        word = "wait" if edges is grid.waits else "notify"
        for edge in edges:
            gathered = {part.tensor for part in edge.map.dimensions if isinstance(part, Gather)}
            for value in sorted(gathered | run_time_tensors(edge.map.expressions())):
                yield _Reading(value, f"{word} {edge.event.name}: {edge.map}", waits, after_body=word == "notify")
            if edge.event.count is not None:
                purpose = f"need of {edge.event.name}"
                yield _Reading(edge.event.count.name, purpose, waits, after_body=word == "notify")


def check_reads(program: Program) -> list[str]:
    """Run-time values that a grid reads with no event path from their writers.

    Values that no grid writes are inputs. Notify maps, and needs of the events notified, are read after
    the task's body: there any wait will do, and a task may read what it has written.
    """
    faults = []
    for grid in program.parsed:
        for reading in _readings(grid):
            for writer in program.writers(reading.value):
                after = _events_after(program, writer)
                own = reading.after_body and writer.name == grid.name
                if own or any(edge.event.name in after for edge in reading.waits):
                    continue
                text = (
                    f"program {program.name}: run-time value {reading.value} is read by task grid {grid.name}"
                    f" ({reading.purpose}) with no event path from its writer, task grid {writer.name}"
                )
                late = [edge for edge in grid.waits if edge.event.name in after]
                if reading.extent and any(edge.is_gate for edge in late):
                    text += (
                        f", to one fixed event: {late[0].event.name}: {str(late[0].map)!r} depends on the"
                        f" task, but which tasks exist is asked before there is one"
                    )
                elif late:
                    text += f"; {late[0].event.name}: {str(late[0].map)!r} is too late, it needs run-time values"
                faults.append(text)
    return list(dict.fromkeys(faults))


def _events_after(program: Program, writer: Grid) -> set[str]:
    """Event tensors that are satisfied only after tasks of `writer`, directly or through other grids."""
    found: set[str] = set()
    grids = [writer]
    for grid in grids:  # grows as grids are reached
        new = {edge.event.name for edge in grid.notifies if not edge.event.any_of} - found
        found |= new
        grids += [other for other in program.parsed if new & {edge.event.name for edge in other.waits}]
    return found


def check_writers_done(instance: Instance, tensors: Mapping[str, Any]) -> list[str]:
    """Run-time extents whose gates do not wait for every task that writes the value.

    Works on the grids whose tasks are known (with the values in `tensors`), and says nothing where the
    path from the writer to the gate goes through others, or through more than `LIMIT` tasks.
    """
    program = instance.program
    known = [grid for grid in program.parsed if set(grid.run_time_reads()) <= set(tensors)]
    extents = [
        (grid, reading)
        for grid in program.parsed
        for reading in _readings(grid)
        if reading.extent and reading.waits and program.writers(reading.value)
    ]
    if not known or not extents:
        return []
    try:
        tasks = expand(instance, tensors, grids=[grid.name for grid in known])
        return _unfinished(instance, tasks, known, extents, tensors)
    except ProgramError as fault:
        return [str(fault)]


def _unfinished(
    instance: Instance,
    tasks: TaskArrays,
    known: list[Grid],
    extents: list[tuple[Grid, _Reading]],
    tensors: Mapping[str, Any],
) -> list[str]:
    program = instance.program
    if tasks.count > LIMIT:
        return []
    before, notifiers = happens_before(tasks), transpose(tasks.notify_ptr, tasks.notify_event, tasks.events)
    open_tensors = {edge.event.name for grid in program.parsed if grid not in known for edge in grid.notifies}
    open_tensors |= {event.name for event in program.events if event.count is not None}
    is_open = per_cell(instance, lambda event: event.name in open_tensors, bool)
    waits_open = np.zeros(tasks.count, bool)
    waits_open[np.repeat(np.arange(tasks.count), np.diff(tasks.wait_ptr))[is_open[tasks.wait_event]]] = True
    faults = []
    for grid, reading in extents:
        cells = [_cell(instance, grid, edge) for edge in reading.waits]
        finished = np.any([finished_at(tasks, before, notifiers, cell) for cell in cells], axis=0)
        if is_open[cells].any() or waits_open[finished].any():
            continue
        writers = writing_rows(instance, tasks, reading.value, tensors)
        missing = writers[~finished[writers]]
        if len(missing):
            names = ", ".join(cell_name(instance, cell) for cell in cells)
            faults.append(
                f"{instance}: task grid {grid.name} reads {reading.value} ({reading.purpose}) once {names} is"
                f" satisfied, but {some_tasks(tasks, missing)} may write it later: every task that writes"
                f" {reading.value} must come before"
            )
    return faults


def _cell(instance: Instance, grid: Grid, edge: Edge) -> int:
    """Flat number of the one event that a constant gate names."""
    base = number(instance).event_base[[event.name for event in instance.program.events].index(edge.event.name)]
    return base + int(edge_cells(instance, grid, edge, np.zeros((1, 4), np.int32), {})[1][0])
