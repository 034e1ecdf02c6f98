"""Scheduling policies: plain functions from tasks and a number of workers to an ordered list for each worker.

A new policy is one file with one function ``(tasks: TaskArrays, workers: int) -> WorkerOrder`` and one line
in `POLICIES`.

Examples
--------
A diamond, 0 -> 1, 2 -> 3, as event 0 (tasks 1 and 2 wait for task 0) and event 1 (task 3 waits for both):

>>> import numpy as np
>>> from etproto.schedulers.levels import bottom_levels, lower_bound
>>> from etproto.tasks import TaskArrays
>>> tasks = TaskArrays(
...     task=np.arange(4),
...     kind=np.zeros(4, np.int32),
...     grid=np.zeros(4, np.int32),
...     coordinate=np.zeros((4, 4), np.int32),
...     cost=np.array([1.0, 2.0, 3.0, 1.0]),
...     priority=np.zeros(4),
...     wait_ptr=np.array([0, 0, 1, 2, 3]),
...     wait_event=np.array([0, 0, 1], np.int32),
...     notify_ptr=np.array([0, 1, 2, 3, 3]),
...     notify_event=np.array([0, 1, 1], np.int32),
...     event_need=np.array([1, 2], np.int32),
...     grid_name=("t",),
...     kind_name=("task",),
...     grid_ndim=(1,),
... )
>>> order = critical_path(tasks, workers=2)
>>> order.rows(0).tolist(), order.rows(1).tolist()
([0, 1, 3], [2])
>>> order.makespan, lower_bound(tasks, workers=2), bottom_levels(tasks).tolist()
(5.0, 5.0, [5.0, 3.0, 4.0, 1.0])
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from etproto.errors import ScheduleError
from etproto.schedulers.critical_path import critical_path
from etproto.schedulers.order import Policy, WorkerOrder
from etproto.schedulers.round_robin import round_robin
from etproto.schedulers.zigzag import zigzag

__all__ = ["POLICIES", "Policy", "WorkerOrder", "find_policy"]

POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        "round_robin": round_robin,
        "zigzag": zigzag,
        "critical_path": critical_path,
    }
)


def find_policy(name: str) -> Policy:
    """The policy called `name`.

    Raises
    ------
    ScheduleError
        If there is none; the text lists those there are.

    Examples
    --------
    >>> find_policy("zigzag").__name__
    'zigzag'
    >>> find_policy("fastest")
    Traceback (most recent call last):
    ...
    etproto.errors.ScheduleError: policy: expected one of critical_path, round_robin, zigzag, got 'fastest'
    """
    if name not in POLICIES:
        raise ScheduleError(f"policy: expected one of {', '.join(sorted(POLICIES))}, got {name!r}")
    return POLICIES[name]
