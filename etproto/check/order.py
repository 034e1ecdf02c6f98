"""Static orders: legal if and only if dependences and every list's successive pairs have no cycle together.

A grid that a queue feeds in a mixed schedule stands in the lists as a drain. It is checked as tasks of no
list that wait until some worker has come to the drain, and each worker leaves its drain when all of them
are done.
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
    """Lists ``worker_row[worker_ptr[w]:worker_ptr[w + 1]]`` of rows of `tasks`; drains are rows too.

    Events from `drain_events` on are those of drains.
    """

    tasks: TaskArrays
    worker_ptr: np.ndarray
    worker_row: np.ndarray
    drain_events: int

    def named(self, event_name: EventName | None) -> EventName | None:
        """Names of events, those of drains included."""
        if event_name is None:
            return None
        return lambda event: event_name(event) if event < self.drain_events else "of a drain"


def check_workers(scheduled: Scheduled, resident_limit: int | None = None) -> list[str]:
    """The number of workers, against 1 and against what the device can hold."""
    workers = scheduled.workers
    if isinstance(workers, bool) or not isinstance(workers, Integral) or workers < 1:
        return [f"workers: expected an integer >= 1, got {workers!r}"]
    if len(scheduled.worker_ptr) != workers + 1:
        return [f"worker_ptr: expected {workers + 1} offsets for {workers} workers, got {len(scheduled.worker_ptr)}"]
    pointer, items = np.asarray(scheduled.worker_ptr), np.asarray(scheduled.worker_task)
    if pointer[0] != 0 or pointer[-1] != len(items) or (np.diff(pointer) < 0).any():
        return [
            f"worker_ptr: expected offsets that rise from 0 to {len(items)}, the length of worker_task,"
            f" got {some(map(str, pointer.tolist()))}"
        ]
    strange = items[items < -len(scheduled.entries)]
    if len(strange):
        return [
            f"worker_task: expected task ids, or ~row of the {len(scheduled.entries)} entries, got"
            f" {some(map(str, strange.tolist()))}"
        ]
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
        Worker w runs rows ``worker_row[worker_ptr[w]:worker_ptr[w + 1]]`` in order. A row in no list may
        run at any time.
    event_name : callable, optional
        Flat event number -> name.

    Notes
    -----
    That each list follows the dependences is not enough: with a1 -> a2 and b1 -> b2, the lists [a2, b1]
    and [b2, a1] deadlock.
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
    """What each worker goes through, as rows; and faults: ids that are no tasks, tasks that nobody runs."""
    faults: list[str] = []
    lists: list[np.ndarray] = []
    drains: list[tuple[int, int]] = []  # (worker, queue): two rows each, come to the drain and leave it
    find = _Finder(tasks)
    for worker in range(scheduled.workers):
        items = scheduled.worker_task[scheduled.worker_ptr[worker] : scheduled.worker_ptr[worker + 1]]
        items = np.asarray(items, np.int64)
        pieces, before = [], 0
        for piece in np.split(items, np.flatnonzero((items[1:] < 0) | (items[:-1] < 0)) + 1):
            if len(piece) and piece[0] < 0:
                form, which, pattern = (int(x) for x in scheduled.entries[~piece[0]][:3])
                if form == ENTRY_DRAIN:
                    row = tasks.count + 2 * len(drains)
                    drains.append((worker, which))
                    pieces.append(np.array([row, row + 1]))
                    continue
                ids = _grid_ids(scheduled, tasks, form, which)
                pieces.append(find.rows(_share(ids, worker, scheduled.workers, pattern, before))[0])
                before += len(ids)
                continue
            rows, strange = find.rows(piece)
            if len(strange):
                faults.append(f"worker {worker}'s list holds task ids {some(map(str, strange))}: no tasks of this run")
            pieces.append(rows)
        lists.append(np.concatenate([np.empty(0, np.int64), *pieces]))
    queue = np.full(tasks.count, -1, np.int64)
    if len(scheduled.grid_queue):
        queue = np.asarray(scheduled.grid_queue, np.int64)[tasks.grid]
    drained = np.isin(queue, [which for _, which in drains]) & (queue >= 0)
    flat = np.concatenate([np.empty(0, np.int64), *lists])
    listed = np.zeros(tasks.count + 2 * len(drains), bool)
    listed[flat] = True
    listed = listed[: tasks.count]
    for rows, where in (
        (np.flatnonzero(~listed & ~drained), "in no worker's list and in no queue that a worker drains"),
        (np.flatnonzero(listed & drained), "both in a worker's list and in a queue"),
    ):
        if len(rows):
            faults.append(f"{len(rows)} of {tasks.count} tasks are {where}: {some_tasks(tasks, rows)}")
    ptr = offsets(np.array([len(rows) for rows in lists], np.int64))
    return WorkerRows(_with_drains(scheduled, tasks, queue, drains), ptr, flat, tasks.events), faults


class _Finder:
    """Rows of task ids."""

    def __init__(self, tasks: TaskArrays) -> None:
        self._row = np.argsort(tasks.task, kind="stable")
        self._id = tasks.task[self._row]

    def rows(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the ids that exist in this run, and the ids that do not."""
        if len(self._id) == 0:
            return np.empty(0, np.int64), ids
        at = np.minimum(np.searchsorted(self._id, ids), len(self._id) - 1)
        exists = self._id[at] == ids
        return self._row[at[exists]], ids[~exists]


def _grid_ids(scheduled: Scheduled, tasks: TaskArrays, form: int, grid: int) -> np.ndarray:
    """Task ids that the workers share: of the run, or up to the bound."""
    if form == ENTRY_STRIDE_BOUND:
        return scheduled.lowered.grid_first[grid] + np.arange(scheduled.lowered.grid_bound[grid])
    return np.sort(tasks.task[tasks.grid == grid])


def _share(ids: np.ndarray, worker: int, workers: int, pattern: int, before: int) -> np.ndarray:
    """One worker's share of a grid, in order; see `etproto.scheduled`."""
    lane = (worker - before) % workers
    position = np.arange(-(-len(ids) // workers))
    backwards = (position % 2 == 1) & (pattern == PATTERN_ZIGZAG)
    task = position * workers + np.where(backwards, workers - 1 - lane, lane)
    return ids[task[task < len(ids)]]


def _with_drains(
    scheduled: Scheduled, tasks: TaskArrays, queue: np.ndarray, drains: list[tuple[int, int]]
) -> TaskArrays:
    """Add two rows a drain, and two events a queue: some worker has come to it, all its tasks are done."""
    if not drains:
        return tasks
    queues = len(scheduled.queue_capacity)
    which = np.array([q for _, q in drains])
    member = queue >= 0
    arrays = {}
    for word, step in (("wait", 0), ("notify", 1)):
        ptr, event = getattr(tasks, f"{word}_ptr"), getattr(tasks, f"{word}_event")
        # a task waits until its drain is reached, then counts as done
        extra = tasks.events + 2 * queue[member] + step
        own = np.zeros((len(drains), 2), np.int64)  # (come, leave): come notifies, leave waits
        own[:, 1 - step] = 1
        arrays[f"{word}_ptr"] = offsets(np.concatenate([np.diff(ptr) + member, own.ravel()]))
        event = np.insert(event.astype(np.int64), ptr[1:][member], extra)
        arrays[f"{word}_event"] = np.concatenate([event, tasks.events + 2 * which + 1 - step])
    size = np.bincount(queue[member], minlength=queues)
    need = np.stack([np.ones(queues, np.int64), size], axis=1).ravel()
    coordinate = np.zeros((2 * len(drains), 4), np.int32)
    coordinate[:, 0] = np.repeat([worker for worker, _ in drains], 2)
    first = len(tasks.grid_name)
    names = [_queue_text(scheduled, tasks, q) for q in range(queues)]
    more = {
        "task": np.arange(2 * len(drains)) + tasks.task.max(initial=-1) + 1,
        "kind": np.zeros(2 * len(drains), np.int32),
        "grid": (first + 2 * which[:, None] + [0, 1]).ravel(),
        "coordinate": coordinate,
        "cost": np.zeros(2 * len(drains)),
        "priority": np.zeros(2 * len(drains)),
    }
    return replace(
        tasks,
        **{field: np.concatenate([getattr(tasks, field), values]) for field, values in more.items()},
        **arrays,
        event_need=np.concatenate([tasks.event_need, need]),
        grid_name=(
            *tasks.grid_name,
            *(f"{end} of {name} by worker" for name in names for end in ("start", "end")),
        ),
        grid_ndim=(*tasks.grid_ndim, *[1] * (2 * queues)),
        task_name=None,
    )


def _queue_text(scheduled: Scheduled, tasks: TaskArrays, queue: int) -> str:
    grid = int(scheduled.queue_grid[queue])
    return f"drain({tasks.grid_name[grid]})" if grid >= 0 else f"drain(queue {queue})"


def check_grid_order(scheduled: Scheduled) -> list[str]:
    """Lists of a program whose tasks are not known: no grid may stand before one that it waits for."""
    instance = scheduled.lowered.instance
    if instance is None:
        return []
    names = [grid.name for grid in instance.program.parsed]
    graph = instance.program.grid_graph()
    for worker in range(scheduled.workers):
        items = np.asarray(scheduled.worker_task[scheduled.worker_ptr[worker] : scheduled.worker_ptr[worker + 1]])
        entries = [scheduled.entries[~item] for item in items[items < 0].tolist()]
        grids = [int(scheduled.queue_grid[e[1]] if e[0] == ENTRY_DRAIN else e[1]) for e in entries]
        grids = [grid for grid in grids if grid >= 0]
        for position, early in enumerate(grids):
            for late in grids[position + 1 :]:
                if early != late and nx.has_path(graph, names[late], names[early]):
                    return [
                        f"the static order deadlocks: worker {worker}'s list has {names[early]} before"
                        f" {names[late]}, which {names[early]} waits for"
                    ]
    return []
