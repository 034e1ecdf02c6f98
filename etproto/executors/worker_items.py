"""`WorkerItems`: what each worker of the timing model goes through, which makes all schedules one mechanism.

An item is a row to run or a queue to drain, and every row belongs to a worker's list or to one queue. A
static schedule has only rows, a dynamic one has one drain a worker, a mixed one has both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etproto.errors import ScheduleError
from etproto.schedulers.arcs import require_workers
from etproto.schedulers.order import WorkerOrder
from etproto.tasks import TaskArrays

__all__ = ["WorkerItems", "dynamic_items", "require_complete", "static_items"]


@dataclass(frozen=True)
class WorkerItems:
    """What each worker does, in order.

    Parameters
    ----------
    item_ptr : int64[workers + 1]
        Worker w goes through ``item[item_ptr[w]:item_ptr[w + 1]]``.
    item : int64[...]
        A row when >= 0; ``~q`` says "take tasks of queue q until all of them have been handed out".
    row_queue : int64[n]
        Queue of each row; -1 for a row that stands in a list.
    """

    item_ptr: np.ndarray
    item: np.ndarray
    row_queue: np.ndarray

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self.item_ptr) - 1

    @property
    def queues(self) -> int:
        """Number of queues that a row belongs to or a worker drains."""
        return int(max(self.row_queue.max(initial=-1), -self.item.min(initial=0) - 1)) + 1


def static_items(order: WorkerOrder) -> WorkerItems:
    """Every worker runs its list of `order`; there is no queue."""
    return WorkerItems(order.worker_ptr, order.worker_row, np.full(len(order.worker_row), -1, np.int64))


def dynamic_items(tasks: int, workers: int) -> WorkerItems:
    """Every worker drains the one queue to which all tasks belong.

    Raises
    ------
    ScheduleError
        If `workers` is less than 1.

    Examples
    --------
    >>> items = dynamic_items(tasks=3, workers=2)
    >>> items.item.tolist(), items.row_queue.tolist()
    ([-1, -1], [0, 0, 0])
    """
    workers = require_workers(workers)
    return WorkerItems(np.arange(workers + 1), np.full(workers, ~0, np.int64), np.zeros(tasks, np.int64))


def require_complete(tasks: TaskArrays, items: WorkerItems) -> None:
    """Refuse items that would run a task never or twice.

    Raises
    ------
    ScheduleError
        If a row is in no list and no drained queue, or in more than one; if there is no worker, or a row that
        is not there.
    """
    require_workers(items.workers)
    if items.item_ptr[0] != 0 or items.item_ptr[-1] != len(items.item) or (np.diff(items.item_ptr) < 0).any():
        raise ScheduleError(f"item_ptr: expected to rise from 0 to {len(items.item)}, got {items.item_ptr!r}")
    if len(items.row_queue) != tasks.count:
        raise ScheduleError(f"row_queue: expected {tasks.count} rows, got {len(items.row_queue)}")
    rows = items.item[items.item >= 0]
    if rows.max(initial=-1) >= tasks.count:
        raise ScheduleError(f"worker lists: expected rows below {tasks.count}, got {rows.max()}")
    times = np.bincount(rows, minlength=tasks.count)
    drained = np.zeros(items.queues + 1, np.bool_)  # the last place, -1, stands for no queue
    drained[~items.item[items.item < 0]] = True
    times += drained[items.row_queue]
    if (times != 1).any():
        row = int(np.argmax(times != 1))
        where = "no queue" if items.row_queue[row] < 0 else f"queue {items.row_queue[row]}"
        raise ScheduleError(
            f"{tasks.name(row)} (row {row}, {where}): expected it in one worker's list or in a queue that a "
            f"worker drains, got it {times[row]} times"
        )
