"""Critical-path list: the ready task with the longest way to the end of the program goes first."""

from __future__ import annotations

import numpy as np

from etproto.schedulers.levels import bottom_levels
from etproto.schedulers.list_schedule import list_schedule
from etproto.schedulers.order import WorkerOrder
from etproto.tasks import TaskArrays

__all__ = ["critical_path", "critical_path_ranking"]


def critical_path_ranking(tasks: TaskArrays) -> np.ndarray:
    """Rows by bottom level, greatest first; ties by larger priority, then by lower row.

    Returns
    -------
    int64[n]

    Raises
    ------
    ScheduleError
        See `etproto.schedulers.arcs.require_schedulable`.
    """
    return np.lexsort((-np.asarray(tasks.priority), -bottom_levels(tasks)))


def critical_path(tasks: TaskArrays, workers: int) -> WorkerOrder:
    """Schedule by `critical_path_ranking` with `list_schedule`.

    T. L. Adam, K. M. Chandy, J. R. Dickson, "A comparison of list schedules for parallel processing systems",
    Communications of the ACM 17(12), 1974 (there HLFET).

    Returns
    -------
    WorkerOrder
        With planned times in the unit of the costs.

    Raises
    ------
    ScheduleError
        If `workers` is less than 1; see `etproto.schedulers.arcs.require_schedulable` for the rest.
    """
    return list_schedule(tasks, workers, critical_path_ranking(tasks))
