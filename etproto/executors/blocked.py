"""Who waits for what when a run has ended early: tasks, events with their counts, and who has not notified.

An aborted run may have left run-time values unwritten: only grids whose tasks can be evaluated are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from etproto import layout as L
from etproto.cells import cell_name
from etproto.dependence import transpose
from etproto.errors import ProgramError
from etproto.expand import expand
from etproto.lowering import Lowered
from etproto.tasks import TaskArrays
from etproto.trace.records import rows_of

__all__ = ["KnownTasks", "describe_no_progress", "known_tasks", "names", "needs", "waiting"]

SHOWN = 8


@dataclass(frozen=True)
class KnownTasks:
    """Tasks of a run as far as their grids could be evaluated; `complete` if that is all of them.

    `need` (int64[cells]) is what the run itself went by, which `tasks` may contradict.
    """

    lowered: Lowered
    tasks: TaskArrays | None
    complete: bool
    need: np.ndarray

    def name(self, task: int) -> str:
        """Name of a task by its id; a task that is not known is called by its grid and number."""
        row = -1 if self.tasks is None else int(rows_of(self.tasks, np.array([task]))[0])
        if row >= 0:
            return self.tasks.name(row)  # type: ignore[union-attr]  # a row was found in it
        grid = int(np.searchsorted(self.lowered.grid_first, task, side="right")) - 1
        return f"{self.lowered.grid_name[grid]} (task {task - self.lowered.grid_first[grid]} of the grid)"

    def event(self, cell: int) -> str:
        """Name of an event cell; a graph's event is called by its number."""
        return f"event {cell}" if self.lowered.instance is None else cell_name(self.lowered.instance, cell)

    @cached_property
    def notifiers(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows that notify each event."""
        return transpose(self.tasks.notify_ptr, self.tasks.notify_event, self.tasks.events)


def known_tasks(lowered: Lowered, tensors: Mapping[str, Any]) -> KnownTasks:
    """All tasks of the run that just ended, or those of grids whose run-time values are there and valid."""
    need = needs(lowered, tensors)
    if lowered.instance is None:
        return KnownTasks(lowered, lowered.task_arrays, lowered.task_arrays is not None, need)
    grids = []
    for grid in lowered.grid_name:
        try:
            expand(lowered.instance, tensors, grids=[grid])
            grids.append(grid)
        except ProgramError:
            continue
    tasks = expand(lowered.instance, tensors, grids=grids) if grids else None
    return KnownTasks(lowered, tasks, len(grids) == len(lowered.grid_name), need)


def needs(lowered: Lowered, tensors: Mapping[str, Any]) -> np.ndarray:
    """Need of each event cell by the records that workers read: int64[cells]; 0 where it is not known."""
    words = lowered.resolved_words()
    need = np.zeros(lowered.cells, np.int64)
    for number in range(words[L.HEADER_EVENT_COUNT]):
        event = words[L.HEADER_EVENTS] + number * L.EVENT_WORDS
        first, cells, value = (words[event + field] for field in (L.EVENT_BASE, L.EVENT_CELLS, L.EVENT_NEED))
        if words[event + L.EVENT_NEED_FORM] != L.NEED_SCALAR:
            buffer = lowered.buffers[value]
            table = tensors.get(buffer.name) if buffer.contents is None else buffer.contents
            value = 0 if table is None else np.asarray(table).ravel()[:cells]
        need[first : first + cells] = value
    return need


def names(known: KnownTasks, rows: np.ndarray, shown: int = SHOWN) -> str:
    """Names of rows, the first few."""
    text = ", ".join(known.tasks.name(row) for row in rows[:shown].tolist())
    return text if len(rows) <= shown else f"{text} and {len(rows) - shown} more"


def describe_no_progress(
    known: KnownTasks, control: np.ndarray, counters: np.ndarray, states: np.ndarray, ran: np.ndarray | None
) -> str:
    """The watchdog's report.

    Parameters
    ----------
    known : KnownTasks
    control, counters, states
        As the run left them.
    ran : int32[task ids] or None
        How often each task has run, where the executor knows.
    """
    worker, task, cell, _, limit = control[L.CONTROL_ERROR : L.CONTROL_ERROR + 5].tolist()
    finished = int(states[:, L.STATE_FINISHED].sum())
    of = f" of {known.tasks.count}" if known.complete else ""
    why = f"no task finished for {limit * 1e-9:g} s" if limit else "no worker can go on"
    head = f"{known.lowered.name}: {why}, {finished}{of} tasks have run"
    lines = [] if known.tasks is None else waiting(known, counters, states, ran)
    if not lines and cell >= 0:
        who = f"worker {worker}" if task < 0 else f"worker {worker}: {known.name(task)}"
        lines = [f"{who} waits for {known.event(cell)}, {counters[cell]} notified"]
    for number, (held, phase) in enumerate(states[:, [L.STATE_TASK, L.STATE_PHASE]].tolist()):
        if phase == L.PHASE_BODY:
            lines.append(f"worker {number}: {known.name(held)} has not returned from its body")
    popping = np.flatnonzero(states[:, L.STATE_PHASE] == L.PHASE_POP)
    if len(popping):
        lines.append(f"{len(popping)} of {len(states)} workers wait at a queue")
    return "\n  ".join([f"{head}: {lines[0]}" if lines else head, *lines[1:]])


def waiting(known: KnownTasks, counters: np.ndarray, states: np.ndarray, ran: np.ndarray | None) -> list[str]:
    """A line for each of the first few tasks that wait: those in workers' hands, then those nobody has."""
    tasks = known.tasks
    open_event = counters[: tasks.events] < known.need
    wait_row = np.repeat(np.arange(tasks.count), np.diff(tasks.wait_ptr))
    is_open = open_event[tasks.wait_event]
    waits = np.zeros(tasks.count, bool)
    waits[wait_row[is_open]] = True
    held = rows_of(tasks, states[:, L.STATE_TASK])
    worker_of = {row: worker for worker, row in enumerate(held.tolist()) if row >= 0}
    not_run = waits.copy()
    not_run[list(worker_of)] = True
    exact = ran is not None
    if exact:
        not_run = ran[tasks.task] == 0
        waits &= not_run
    first = [row for row in worker_of if waits[row]]
    rest = np.setdiff1d(np.flatnonzero(waits), first)
    lines = []
    for row in [*first, *rest.tolist()][:SHOWN]:
        lo, hi = tasks.wait_ptr[row], tasks.wait_ptr[row + 1]
        cell = int(tasks.wait_event[lo:hi][is_open[lo:hi]][0])
        who = f"worker {worker_of[row]}: " if row in worker_of else ""
        lines.append(f"{who}{tasks.name(row)} waits for {_counts(known, counters, cell, not_run, exact)}")
    if waits.sum() > SHOWN:
        lines.append(f"and {waits.sum() - SHOWN} more tasks wait")
    return lines


def _counts(known: KnownTasks, counters: np.ndarray, cell: int, not_run: np.ndarray, exact: bool) -> str:
    """An event, seen/needed, and who has not notified it, as far as that is known."""
    seen, need = int(counters[cell]), int(known.need[cell])
    text = f"{known.event(cell)}, {seen}/{need} notified"
    pointer, row = known.notifiers
    notifiers = np.unique(row[pointer[cell] : pointer[cell + 1]])
    missing = notifiers[not_run[notifiers]]
    if seen == 0:
        missing = notifiers
    if len(notifiers) == 0:
        return f"{text}, and no task notifies it"
    if len(missing):
        return f"{text}, not by {names(known, missing)}"
    if exact or seen >= pointer[cell + 1] - pointer[cell]:
        return f"{text}, by all its notifiers: {names(known, notifiers)}"
    return f"{text}; its notifiers are {names(known, notifiers)}"
