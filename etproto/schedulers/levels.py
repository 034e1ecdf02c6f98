"""Levels of tasks and lower bounds on the makespan, in linear time over events (never over pairs of tasks).

A bipartite layer of n notifiers and m waiters that share one event costs n + m steps here, not n * m.
"""

from __future__ import annotations

import numba
import numpy as np

from etproto.schedulers.arcs import require_schedulable, require_workers
from etproto.tasks import TaskArrays

__all__ = ["bottom_levels", "critical_path_length", "lower_bound", "top_levels"]


def bottom_levels(tasks: TaskArrays) -> np.ndarray:
    """Longest path from the start of each task to the end of the program, the task's own cost included.

    Known as the upward rank with equal workers. Behind an event that needs fewer notifications than it gets,
    every notifier counts as if it were needed: the level ranks tasks there, it bounds nothing.

    Returns
    -------
    float64[n]
        In the unit of the costs.

    Raises
    ------
    ScheduleError
        See `etproto.schedulers.arcs.require_schedulable`.
    """
    require_schedulable(tasks)
    return _bottom_levels(
        tasks.cost, tasks.wait_ptr, tasks.wait_event, tasks.notify_ptr, tasks.notify_event, tasks.event_need
    )


def top_levels(tasks: TaskArrays) -> np.ndarray:
    """Earliest start of each task with as many workers as one could want.

    An event is satisfied at the end of the notification that meets its need: the last one when all are
    needed, the k-th earliest when k are; one that needs 0 is satisfied at time 0.

    Returns
    -------
    float64[n]
        In the unit of the costs.

    Raises
    ------
    ScheduleError
        See `etproto.schedulers.arcs.require_schedulable`.
    """
    require_schedulable(tasks)
    slot_ptr = np.zeros(tasks.events + 1, np.int64)
    np.cumsum(np.bincount(tasks.notify_event, minlength=tasks.events), out=slot_ptr[1:])
    return _top_levels(
        tasks.cost,
        tasks.wait_ptr,
        tasks.wait_event,
        tasks.notify_ptr,
        tasks.notify_event,
        tasks.event_need,
        slot_ptr,
    )


def critical_path_length(tasks: TaskArrays) -> float:
    """Makespan with as many workers as one could want; 0 without tasks.

    Raises
    ------
    ScheduleError
        See `etproto.schedulers.arcs.require_schedulable`.
    """
    return float((top_levels(tasks) + tasks.cost).max(initial=0.0))


def lower_bound(tasks: TaskArrays, workers: int) -> float:
    """A makespan that no schedule on `workers` equal workers can beat.

    The larger of the critical path (which is at least the largest cost) and the total cost divided by the
    workers.

    Raises
    ------
    ScheduleError
        If `workers` is less than 1; see `etproto.schedulers.arcs.require_schedulable` for the rest.
    """
    workers = require_workers(workers)
    return max(critical_path_length(tasks), float(np.sum(tasks.cost)) / workers)


@numba.njit(cache=True)
def _bottom_levels(cost, wait_ptr, wait_event, notify_ptr, notify_event, event_need):
    level = np.zeros(len(cost))
    after_event = np.zeros(len(event_need))  # the largest level among the tasks that wait for the event
    for row in range(len(cost) - 1, -1, -1):
        longest = 0.0
        for event in notify_event[notify_ptr[row] : notify_ptr[row + 1]]:
            longest = max(longest, after_event[event])
        level[row] = cost[row] + longest
        for event in wait_event[wait_ptr[row] : wait_ptr[row + 1]]:
            if event_need[event] > 0:
                after_event[event] = max(after_event[event], level[row])
    return level


@numba.njit(cache=True)
def _top_levels(cost, wait_ptr, wait_event, notify_ptr, notify_event, event_need, slot_ptr):
    level = np.zeros(len(cost))
    ends = np.empty(len(notify_event))  # ends of each event's notifiers
    seen = np.zeros(len(event_need), np.int64)
    # filled when the first waiter asks; every notifier has an earlier row
    satisfied = np.zeros(len(event_need))
    asked = np.zeros(len(event_need), np.bool_)
    for row in range(len(cost)):
        for event in wait_event[wait_ptr[row] : wait_ptr[row + 1]]:
            if not asked[event]:
                asked[event] = True
                need = event_need[event]
                times = ends[slot_ptr[event] : slot_ptr[event + 1]]
                if need == len(times) and need > 0:
                    satisfied[event] = times.max()
                elif need > 0:
                    satisfied[event] = np.sort(times)[need - 1]
            level[row] = max(level[row], satisfied[event])
        for event in notify_event[notify_ptr[row] : notify_ptr[row + 1]]:
            ends[slot_ptr[event] + seen[event]] = level[row] + cost[row]
            seen[event] += 1
    return level
