"""How a run ended: status words become exceptions with names and numbers, and a finished run is counted over.

It works on plain arrays, so that cpu, cudasim and cuda say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from etproto import layout as L
from etproto.cells import edge_cells, per_cell, run_time_values
from etproto.errors import NoProgressError, ProgramError, RunError
from etproto.executors.blocked import KnownTasks, describe_no_progress, known_tasks, names, needs, waiting
from etproto.expand import expand, grid_coordinates
from etproto.lowering import Lowered
from etproto.scheduled import ENTRY_DRAIN, Scheduled
from etproto.tasks import TaskArrays

__all__ = ["raise_for_status", "run_tasks"]


def run_tasks(lowered: Lowered, tensors: Mapping[str, Any]) -> TaskArrays | None:
    """The tasks of a run that has finished, or None where `tensors` lacks run-time values.

    Raises
    ------
    ProgramError
        A run-time value is not valid.
    """
    if lowered.instance is None:
        return lowered.task_arrays
    needed = {name for grid in lowered.instance.program.parsed for name in grid.run_time_reads()}
    return expand(lowered.instance, tensors) if needed <= set(tensors) else None


def raise_for_status(
    scheduled: Scheduled,
    control: np.ndarray,
    counters: np.ndarray,
    states: np.ndarray,
    tensors: Mapping[str, Any],
    *,
    ran: np.ndarray | None = None,
) -> None:
    """Return if a run finished and its counters, queues and tasks add up; else say what went wrong.

    Parameters
    ----------
    scheduled : Scheduled
    control : int64[CONTROL_QUEUES + queues * QUEUE_WORDS]
    counters : int32[cells or more]
        Notifications of each event cell come first.
    states : int64[workers, 4]
    tensors : mapping
        Tensor name -> host array; at least those that extents, edge maps and counts read.
    ran : int32[task ids], optional
        How often each task has run, where the executor knows; messages then name the right tasks.

    Raises
    ------
    NoProgressError
        The watchdog ended the run, or nothing was left to do while tasks still wait: which ones, for which
        event, seen/needed, who has not notified.
    RunError
        A bound was exceeded, a task never ran or ran twice, or an event's notifications differ from its need.
    """
    control, counters = np.asarray(control), np.asarray(counters)
    states = np.asarray(states).reshape(-1, L.STATE_WORDS)
    lowered, status = scheduled.lowered, int(control[L.CONTROL_STATUS])
    if status == L.STATUS_NO_PROGRESS:
        known = known_tasks(lowered, tensors)
        raise NoProgressError(describe_no_progress(known, control, counters, states, ran))
    if status not in (L.STATUS_RUNNING, L.STATUS_FINISHED):
        raise RunError(f"{lowered.name}: {_exceeded(lowered, status, control, tensors)}")
    idle = np.flatnonzero(states[:, L.STATE_PHASE] != L.PHASE_DONE)
    if len(idle):
        raise RunError(
            f"{lowered.name}: {len(idle)} of {len(states)} workers did not come to the end of their lists,"
            f" the first is worker {idle[0]}"
        )
    tasks = run_tasks(lowered, tensors)
    if tasks is not None:
        known = KnownTasks(lowered, tasks, True, needs(lowered, tensors))
        if states[:, L.STATE_FINISHED].sum() < tasks.count and waiting(known, counters, states, ran):
            raise NoProgressError(describe_no_progress(known, control, counters, states, ran))
        faults = [*_tasks_run(known, counters, states, ran), *_notifications(known, counters)]
        faults += _queues(scheduled, tasks, control)
        if faults:
            raise RunError(f"{lowered.name}: " + "\n".join(faults))


def _exceeded(lowered: Lowered, status: int, control: np.ndarray, tensors: Mapping[str, Any]) -> str:
    """What the error words of a status mean."""
    _, task, where, value, limit = control[L.CONTROL_ERROR : L.CONTROL_ERROR + 5].tolist()
    known = known_tasks(lowered, tensors)
    if status == L.STATUS_QUEUE_FULL:
        pushed = "" if task < 0 else f" with {known.name(task)}"
        return f"queue {where} is full: {value} tasks are in it{pushed}, its capacity is {limit}"
    if status == L.STATUS_EXTENT_RANGE:
        grid_name = lowered.grid_name[where]
        return f"grid {grid_name}: a run-time extent gives {value} tasks, expected 0 to its bound {limit}"
    if status == L.STATUS_TASK_RANGE:
        grid = int(np.searchsorted(lowered.grid_first, task - value, side="right")) - 1
        return (
            f"{known.event(where)} triggers task {value} of grid {lowered.grid_name[grid]}, whose tasks are"
            f" 0 to {limit - 1}"
        )
    if status == L.STATUS_EVENT_RANGE:
        return _outside(lowered, known, task, where, tensors)
    words = control[L.CONTROL_ERROR : L.CONTROL_ERROR + 5].tolist()
    return f"the run ended with the unknown status {status}, error words {words}"


def _outside(lowered: Lowered, known: KnownTasks, task: int, event: int, tensors: Mapping[str, Any]) -> str:
    """A run-time map named a cell outside its event tensor: evaluate the task's maps again to see which."""
    instance = lowered.instance
    if instance is None:
        return f"{known.name(task)} names an event of the graph that is not there"
    tensor = instance.program.events[event]
    index = int(np.searchsorted(lowered.grid_first, task, side="right")) - 1
    grid = instance.program.parsed[index]
    try:
        values = run_time_values(instance, tensors, [grid.name])
        coordinate, number = grid_coordinates(instance, grid, values)
        here = coordinate[number == task - lowered.grid_first[index]]
        for edge in (*grid.waits, *grid.notifies):
            if edge.event == tensor:
                edge_cells(instance, grid, edge, here, values)
    except ProgramError as fault:
        return str(fault).removeprefix(f"{lowered.name}: ")
    return f"{known.name(task)} names a cell outside {tensor.name}, whose extents are {instance.shape(tensor)}"


def _tasks_run(known: KnownTasks, counters: np.ndarray, states: np.ndarray, ran: np.ndarray | None) -> list[str]:
    """Tasks that never ran, or ran twice."""
    tasks, finished = known.tasks, int(states[:, L.STATE_FINISHED].sum())
    if ran is not None:
        never, often = (np.flatnonzero(mask) for mask in (ran[tasks.task] == 0, ran[tasks.task] > 1))
        strange = np.setdiff1d(np.flatnonzero(ran), tasks.task)
        faults = [f"{len(never)} of {tasks.count} tasks never ran: {names(known, never)}"] if len(never) else []
        faults += [f"{len(often)} tasks ran more than once: {names(known, often)}"] if len(often) else []
        if len(strange):
            faults.append(f"{len(strange)} tasks ran that do not exist: {', '.join(map(known.name, strange[:8]))}")
        return faults
    if finished < tasks.count:
        seen = counters[: tasks.events]
        row = np.repeat(np.arange(tasks.count), np.diff(tasks.notify_ptr))
        wait_row = np.repeat(np.arange(tasks.count), np.diff(tasks.wait_ptr))
        short = seen < known.need
        suspects = np.union1d(row[short[tasks.notify_event]], wait_row[short[tasks.wait_event]])
        among = f", among {names(known, suspects)}" if len(suspects) else ""
        return [f"{tasks.count - finished} of {tasks.count} tasks never ran{among}"]
    if finished > tasks.count:
        return [f"{finished} tasks ran, but there are {tasks.count}: some ran more than once"]
    return []


def _notifications(known: KnownTasks, counters: np.ndarray) -> list[str]:
    """Events that were notified more or less often than they need."""
    tasks, instance = known.tasks, known.lowered.instance
    seen = counters[: tasks.events]
    wrong = seen != known.need
    wrong &= np.bincount(np.concatenate([tasks.wait_event, tasks.notify_event]), minlength=tasks.events) > 0
    if instance is not None and len(wrong):
        wrong &= ~per_cell(instance, lambda event: event.any_of, bool)
    faults = []
    for cell in np.flatnonzero(wrong)[:8].tolist():
        need = f"{known.event(cell)} needs {known.need[cell]} notifications"
        faults.append(f"{need}, it was notified {seen[cell]} times")
    if wrong.sum() > 8:
        faults.append(f"and {wrong.sum() - 8} more events")
    return faults


def _queues(scheduled: Scheduled, tasks: TaskArrays, control: np.ndarray) -> list[str]:
    """Every task was pushed once, and each worker that drains a queue went away with one unused ticket."""
    faults = []
    entries = scheduled.entries[~scheduled.worker_task[scheduled.worker_task < 0]]
    for queue in range(len(scheduled.queue_grid)):
        at = L.CONTROL_QUEUES + queue * L.QUEUE_WORDS
        head, tail = int(control[at + L.QUEUE_HEAD]), int(control[at + L.QUEUE_TAIL])
        count = int((np.asarray(scheduled.grid_queue)[tasks.grid] == queue).sum())
        drains = int(((entries[:, 0] == ENTRY_DRAIN) & (entries[:, 1] == queue)).sum())
        if tail != count or head != count + drains:
            faults.append(
                f"queue {queue}: {tail} tasks were pushed and {head} tickets taken, expected {count} and"
                f" {count + drains} ({count} tasks, {drains} drains)"
            )
    return faults
