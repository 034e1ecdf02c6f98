"""List scheduling: whenever a worker is free, it takes the ready task that stands first in a given ranking.

R. L. Graham, "Bounds on multiprocessing timing anomalies", SIAM J. Appl. Math. 17(2), 1969: whatever the
ranking, the makespan is at most (2 - 1/workers) times the best one.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numba
import numpy as np

from etproto.errors import ScheduleError
from etproto.schedulers.arcs import event_waiters, require_schedulable, require_workers
from etproto.schedulers.order import WorkerOrder, worker_order
from etproto.tasks import TaskArrays

__all__ = ["list_schedule"]


def list_schedule(tasks: TaskArrays, workers: int, ranking: np.ndarray) -> WorkerOrder:
    """Place tasks in time order, each as soon as a worker is free (no task is inserted before one placed
    earlier).

    At each moment all tasks that end then notify first; then the first-ranked ready task goes to the worker
    that has been free the longest (the lowest number on ties), and a task of cost 0 ends before the next one
    is placed. O(n log n + arcs).

    Parameters
    ----------
    tasks : TaskArrays
    workers : int
    ranking : int64[n]
        All rows, the one to prefer first.

    Returns
    -------
    WorkerOrder
        With planned times in the unit of the costs.

    Raises
    ------
    ScheduleError
        If `workers` is less than 1 or `ranking` is not a permutation of the rows; see
        `etproto.schedulers.arcs.require_schedulable` for the rest.
    """
    workers = require_workers(workers)
    require_schedulable(tasks)
    ranking = np.asarray(ranking, np.int64)
    if not np.array_equal(np.sort(ranking), np.arange(tasks.count)):
        raise ScheduleError(f"ranking: expected each of {tasks.count} rows once, got {ranking!r}")
    rank = np.empty(tasks.count, np.int64)
    rank[ranking] = np.arange(tasks.count)
    worker, start, finish, sequence = _place(
        workers,
        ranking,
        rank,
        tasks.cost,
        tasks.wait_ptr,
        tasks.wait_event,
        tasks.notify_ptr,
        tasks.notify_event,
        tasks.event_need,
        *event_waiters(tasks),
    )
    return worker_order(worker, workers, sequence=sequence, start=start, finish=finish)


@numba.njit(cache=True)
def _place(
    workers,
    ranking,
    rank,
    cost,
    wait_ptr,
    wait_event,
    notify_ptr,
    notify_event,
    event_need,
    waiter_ptr,
    waiter_row,
):
    count = len(cost)
    worker = np.full(count, -1, np.int64)
    start = np.zeros(count)
    finish = np.zeros(count)
    sequence = np.empty(count, np.int64)
    remaining = np.zeros(count, np.int64)  # unsatisfied wait events of each row
    seen = np.zeros(len(event_need), np.int64)
    ready = [np.int64(0) for _ in range(0)]  # heap of ranks
    for row in range(count):
        for event in wait_event[wait_ptr[row] : wait_ptr[row + 1]]:
            remaining[row] += event_need[event] > 0
        if remaining[row] == 0:
            ready.append(rank[row])
    heapify(ready)
    free = [(0.0, w) for w in range(workers)]  # heap of (since, worker)
    running = [(0.0, np.int64(0)) for _ in range(0)]  # heap of (finish, row)
    now = 0.0
    placed = 0
    while placed < count:
        if len(running) > 0 and running[0][0] <= now:
            _, row = heappop(running)
            for event in notify_event[notify_ptr[row] : notify_ptr[row + 1]]:
                seen[event] += 1
                if seen[event] == event_need[event]:
                    for waiter in waiter_row[waiter_ptr[event] : waiter_ptr[event + 1]]:
                        remaining[waiter] -= 1
                        if remaining[waiter] == 0:
                            heappush(ready, rank[waiter])
            heappush(free, (finish[row], worker[row]))
        elif len(ready) > 0 and len(free) > 0:
            row = ranking[heappop(ready)]
            _, worker[row] = heappop(free)
            start[row] = now
            finish[row] = now + cost[row]
            heappush(running, (finish[row], row))
            sequence[placed] = row
            placed += 1
        else:
            # Never empty: rows are in dependence order and every need is met, so something runs while a task
            # is left.
            now = running[0][0]
    return worker, start, finish, sequence
