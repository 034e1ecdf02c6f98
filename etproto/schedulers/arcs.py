"""What policies need of `TaskArrays` first: a check that they can be scheduled, and who waits for events."""

from __future__ import annotations

from numbers import Integral

import numba
import numpy as np

from etproto.errors import ScheduleError
from etproto.tasks import TaskArrays

__all__ = ["event_waiters", "require_schedulable", "require_workers"]


def require_workers(workers: int) -> int:
    """Number of workers as an int, or an error.

    Raises
    ------
    ScheduleError
        If `workers` is not an integer of at least 1.

    Examples
    --------
    >>> require_workers(132)
    132
    """
    if isinstance(workers, bool) or not isinstance(workers, Integral) or workers < 1:
        raise ScheduleError(f"workers: expected an integer >= 1, got {workers!r}")
    return int(workers)


def require_schedulable(tasks: TaskArrays) -> None:
    """Refuse tasks over which no policy could give a right answer.

    Raises
    ------
    ScheduleError
        If a cost is negative or not finite, a priority is not a number, a task waits for an event that is
        never notified often enough, or a task waits for an event that it or a later row notifies (the rows
        are not in dependence order).
    """
    for field, values, right in (
        ("cost", tasks.cost, np.isfinite(tasks.cost) & (np.asarray(tasks.cost) >= 0)),
        ("priority", tasks.priority, ~np.isnan(tasks.priority)),
    ):
        if len(values) != tasks.count:
            raise ScheduleError(f"{field}: expected one value for each of {tasks.count} tasks, got {len(values)}")
        if not right.all():
            row = int(np.argmin(right))
            expected = "a finite number >= 0" if field == "cost" else "a number"
            raise ScheduleError(f"{field} of {tasks.name(row)}: expected {expected}, got {values[row]}")
    rows = np.arange(tasks.count)
    wait_row = np.repeat(rows, np.diff(tasks.wait_ptr))
    notify_row = np.repeat(rows, np.diff(tasks.notify_ptr))
    need = np.asarray(tasks.event_need)[tasks.wait_event]
    seen = np.bincount(tasks.notify_event, minlength=tasks.events)
    short = seen[tasks.wait_event] < need
    if short.any():
        arc = int(np.argmax(short))
        row, event = int(wait_row[arc]), int(tasks.wait_event[arc])
        raise ScheduleError(
            f"{tasks.name(row)} waits for event {event}, which needs {tasks.event_need[event]} notifications "
            f"and gets {seen[event]}"
        )
    # Rows ascend, and of repeated indices NumPy keeps the last value assigned.
    last_notifier = np.full(tasks.events, -1)
    last_notifier[tasks.notify_event] = notify_row
    early = (last_notifier[tasks.wait_event] >= wait_row) & (need > 0)
    if early.any():
        arc = int(np.argmax(early))
        row, event = int(wait_row[arc]), int(tasks.wait_event[arc])
        raise ScheduleError(
            f"{tasks.name(row)} (row {row}) waits for event {event}, which "
            f"{tasks.name(int(last_notifier[event]))} (row {last_notifier[event]}) notifies: "
            "expected every notifier in an earlier row"
        )


def event_waiters(tasks: TaskArrays) -> tuple[np.ndarray, np.ndarray]:
    """Rows that wait for each event: the transpose of the wait arcs, in linear time.

    Returns
    -------
    waiter_ptr : int64[events + 1]
    waiter_row : int64[waits]
        Event e is waited for by rows ``waiter_row[waiter_ptr[e]:waiter_ptr[e + 1]]``, ascending; a row that
        lists an event twice is there twice.
    """
    waiter_ptr = np.zeros(tasks.events + 1, np.int64)
    np.cumsum(np.bincount(tasks.wait_event, minlength=tasks.events), out=waiter_ptr[1:])
    return waiter_ptr, _group(tasks.wait_ptr, tasks.wait_event, waiter_ptr[:-1].copy())


@numba.njit(cache=True)
def _group(wait_ptr, wait_event, place):
    waiter_row = np.empty(len(wait_event), np.int64)
    for row in range(len(wait_ptr) - 1):
        for event in wait_event[wait_ptr[row] : wait_ptr[row + 1]]:
            waiter_row[place[event]] = row
            place[event] += 1
    return waiter_row
