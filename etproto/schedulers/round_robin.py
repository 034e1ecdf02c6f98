"""Round robin: task i on worker i mod W."""

from __future__ import annotations

import numpy as np

from etproto.schedulers.arcs import require_schedulable, require_workers
from etproto.schedulers.order import WorkerOrder, worker_order
from etproto.tasks import TaskArrays

__all__ = ["round_robin"]


def round_robin(tasks: TaskArrays, workers: int) -> WorkerOrder:
    """Deal the rows out in turn. Every list ascends and the rows are in dependence order, so the schedule is
    legal.

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
    return worker_order(np.arange(tasks.count) % workers, workers)
