"""Zigzag: round robin that changes direction after each pass over the workers."""

from __future__ import annotations

import numpy as np

from etproto.schedulers.arcs import require_schedulable, require_workers
from etproto.schedulers.order import WorkerOrder, worker_order
from etproto.tasks import TaskArrays

__all__ = ["zigzag"]


def zigzag(tasks: TaskArrays, workers: int) -> WorkerOrder:
    """Deal the rows out forward on even passes, backward on odd ones, so that costs which fall from row to
    row even out.

    Returns
    -------
    WorkerOrder
        Without planned times.

    Raises
    ------
    ScheduleError
        If `workers` is less than 1; see `etproto.schedulers.arcs.require_schedulable` for the rest.
    """
    workers = require_workers(workers)
    require_schedulable(tasks)
    turn, place = np.divmod(np.arange(tasks.count), workers)
    return worker_order(np.where(turn % 2 == 0, place, workers - 1 - place), workers)
