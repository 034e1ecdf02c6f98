"""Which tasks have finished whenever a task starts: exact, for programs small enough to hold all pairs."""

from __future__ import annotations

import numpy as np

from etproto.dependence import run_order, transpose
from etproto.tasks import TaskArrays

__all__ = ["LIMIT", "finished_at", "happens_before"]

LIMIT = 4096  # tasks: all pairs then take 16 MiB


def happens_before(tasks: TaskArrays) -> np.ndarray:
    """bool[n, n]: element [a, b] says that task b has finished, its writes seen, whenever task a starts.

    Only events order tasks: who runs on the same worker, and in which order, is up to the schedule. Tasks
    that never run come after nobody.
    """
    before = np.zeros((tasks.count, tasks.count), bool)
    notifiers = transpose(tasks.notify_ptr, tasks.notify_event, tasks.events)
    at_event: dict[int, np.ndarray] = {}
    # Where one notification will do, what all notifiers have in common is asked: let them come first.
    order = run_order(tasks, np.bincount(tasks.notify_event, minlength=tasks.events))
    order = order if len(order) == tasks.count else run_order(tasks)
    for row in order.tolist():
        for event in tasks.wait_event[tasks.wait_ptr[row] : tasks.wait_ptr[row + 1]].tolist():
            if event not in at_event:
                at_event[event] = finished_at(tasks, before, notifiers, event)
            before[row] |= at_event[event]
    return before


def finished_at(
    tasks: TaskArrays, before: np.ndarray, notifiers: tuple[np.ndarray, np.ndarray], event: int
) -> np.ndarray:
    """bool[n]: tasks that have finished once an event is satisfied.

    That is all notifiers and what came before them, if the event needs all notifications; what is common
    to all notifiers, if fewer will do; nothing, if it needs none.

    Parameters
    ----------
    tasks : TaskArrays
    before : bool[n, n]
        Filled in for the notifiers.
    notifiers : (int64[events + 1], int64[m])
        Rows that notify each event, see `etproto.dependence.transpose`.
    event : int
    """
    rows = notifiers[1][notifiers[0][event] : notifiers[0][event + 1]]
    need = int(tasks.event_need[event])
    if need <= 0 or len(rows) == 0:
        return np.zeros(tasks.count, bool)
    if need >= len(rows):
        finished = before[rows].any(axis=0)
        finished[rows] = True
        return finished
    each = before[rows]
    each[np.arange(len(rows)), rows] = True
    return each.all(axis=0)
