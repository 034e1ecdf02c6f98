"""Static orders: legal if and only if dependences and every list's successive pairs have no cycle together.

A grid that a queue feeds in a mixed schedule stands in the lists as a drain. It is checked as tasks of no list that
wait until some worker has come to the drain, and each worker leaves its drain when all of them are done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral

import networkx as nx
import numpy as np

from etproto.check.dependences import find_cycle
from etproto.check.naming import EventName, event_text, some, some_tasks
from etproto.dependence import offsets
from etproto.scheduled import ENTRY_DRAIN, ENTRY_STRIDE_BOUND, PATTERN_ZIGZAG, Scheduled
from etproto.tasks import TaskArrays

__all__ = ["WorkerRows", "check_grid_order", "check_order", "check_workers", "worker_rows"]

_SHOWN_EDGES = 12


@dataclass(frozen=True)
class WorkerRows:
    """Rows that each worker runs, ``worker_row[worker_ptr[w]:worker_ptr[w + 1]]``, of `tasks` with drains as rows."""

    tasks: TaskArrays
    worker_ptr: np.ndarray
    worker_row: np.ndarray


def check_workers(scheduled: Scheduled, resident_limit: int | None = None) -> list[str]:
    """The number of workers, against 1 and against what the device can hold."""
    workers = scheduled.workers
    if isinstance(workers, bool) or not isinstance(workers, Integral) or workers < 1:
        return [f"workers: expected an integer >= 1, got {workers!r}"]
    if len(scheduled.worker_ptr) != workers + 1:
        return [f"worker_ptr: expected {workers + 1} offsets for {workers} workers, got {len(scheduled.worker_ptr)}"]
    if resident_limit is not None and workers > resident_limit:
        return [
            f"workers: asked for {workers}, at most {resident_limit} can be resident on the device at once;"
            f" a worker that is not resident is waited for by those that are, for ever"
        ]
    return []


def check_order(
    tasks: TaskArrays, worker_ptr: np.ndarray, worker_row: np.ndarray, event_name: EventName | None = None
) -> list[str]:
    """Faults of a static order: a row listed twice, or the shortest cycle of dependences and list edges.

    Parameters
    ----------
    tasks : TaskArrays
    worker_ptr, worker_row : int64[workers + 1], int[k]
        Worker w runs rows ``worker_row[worker_ptr[w]:worker_ptr[w + 1]]`` in order. A row in no list may run at any
        time.
    event_name : callable, optional
        Flat event number -> name.

    Notes
    -----
    That each list follows the dependences is not enough: with a1 -> a2 and b1 -> b2, the lists [a2, b1] and [b2, a1]
    deadlock.
    """
    worker_row = np.asarray(worker_row, np.int64)
    worker = np.repeat(np.arange(len(worker_ptr) - 1), np.diff(worker_ptr))
    outside = (worker_row < 0) | (worker_row >= tasks.count)
    if outside.any():
        at = int(np.argmax(outside))
        return [f"worker {worker[at]}'s list holds row {worker_row[at]}; there are {tasks.count} tasks"]
    faults = []
    times = np.bincount(worker_row, minlength=tasks.count)
    for row in np.flatnonzero(times > 1)[:8].tolist():
        lists = ", ".join(str(w) for w in worker[worker_row == row])
        faults.append(f"{tasks.name(row)} is listed {times[row]} times, by workers {lists}; expected once")
    if faults:
        return faults
    following = np.full(tasks.count, -1, np.int64)
    successive = worker[1:] == worker[:-1]
    following[worker_row[:-1][successive]] = worker_row[1:][successive]
    cycle = find_cycle(tasks, following)
    if cycle is None:
        return []
    worker_of = dict(zip(worker_row.tolist(), worker.tolist(), strict=True)) if len(cycle) else {}
    edges = []
    for (row, event), (after, _) in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        why = f" ({event_text(event, event_name)})" if event is not None and event_name is not None else ""
        why = f" (worker {worker_of[row]}'s list)" if event is None else why
        edges.append(f"{tasks.name(row)} -> {tasks.name(after)}{why}")
    if len(edges) > _SHOWN_EDGES:
        edges = [*edges[: _SHOWN_EDGES - 2], f"{len(edges) - _SHOWN_EDGES} more edges", *edges[-2:]]
    return [f"the static order deadlocks, cycle of {len(cycle)} tasks: {', '.join(edges)}"]


def worker_rows(scheduled: Scheduled, tasks: TaskArrays) -> tuple[WorkerRows, list[str]]:
    """What each worker goes through, as rows; and tasks that nobody runs or ids that are no tasks."""
    by_id = np.argsort(tasks.task, kind="stable")
    ids = tasks.task[by_id]
    names = [tasks.name]
    faults: list[str] = []
    lists: list[list[int]] = []
    drains: list[tuple[int, int]] = []  # (worker, queue), two rows each: come to the drain, leave it
    for worker in range(scheduled.workers):
        rows: list[int] = []
        before = 0
        for item in scheduled.worker_task[scheduled.worker_ptr[worker] : scheduled.worker_ptr[worker + 1]].tolist():
            if item >= 0:
                at = int(np.searchsorted(ids, item))
                if at == len(ids) or ids[at] != item:
                    faults.append(f"worker {worker}'s list holds task id {item}, which is no task of this run")
                else:
                    rows.append(int(by_id[at]))
                continue
            form, which, pattern, _ = (int(x) for x in scheduled.entries[~item])
            if form == ENTRY_DRAIN:
                row = tasks.count + 2 * len(drains)
                drains.append((worker, which))
                rows += [row, row + 1]
                continue
            share, count = _share(scheduled, form, which, pattern, worker, before, ids, by_id)
            rows += share
            before += count
        lists.append(rows)
    listed = np.zeros(tasks.count + 2 * len(drains), bool)
    for rows in lists:
        listed[rows] = True
    queue = np.asarray(scheduled.grid_queue)[tasks.grid] if len(scheduled.grid_queue) else np.full(tasks.count, -1)
    drained = np.isin(queue, [which for _, which in drains]) & (queue >= 0)
    for rows, text in (
        (np.flatnonzero(~listed[: tasks.count] & ~drained), "in no worker's list and in no queue that a worker drains"),
        (np.flatnonzero(listed[: tasks.count] & drained), "both in a worker's list and in a queue"),
    ):
        if len(rows):
            faults.append(f"{len(rows)} of {tasks.count} tasks are {text}: {some_tasks(tasks, rows)}")
    del names
    ptr = offsets(np.array([len(rows) for rows in lists], np.int64))
    flat = np.array([row for rows in lists for row in rows], np.int64)
    return WorkerRows(_with_drains(scheduled, tasks, queue, drains), ptr, flat), faults
