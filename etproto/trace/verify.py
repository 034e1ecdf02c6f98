"""The independent re-check of a run, from its records alone: every task once, in order, one at a time.

Nothing here trusts the executor, the schedule or the counters. It is what `checked` means for runs without
values.
"""

from __future__ import annotations

import numpy as np

from etproto.errors import EtprotoError
from etproto.tasks import TaskArrays
from etproto.trace.records import ROLE_COMPUTE, SPAN_TASK, Trace, clock_tolerance, rows_of
from etproto.trace.summary import critical_path, measured_durations

__all__ = ["verify"]

SHOWN = 8  # faults of one sort that are spelt out; the rest are counted


def verify(trace: Trace, tasks: TaskArrays | None = None) -> list[str]:
    """Everything that is wrong with a run, as readable faults that name tasks; empty when it is right.

    Checked in each epoch: every task ran exactly once; none started before enough notifiers of each of its
    wait events had ended; no worker ran two tasks at a time; the makespan is no shorter than the critical
    path or the work per worker, in measured durations. A task ends when the last of its roles ends, since
    that one notifies. Times of two SMs are compared up to what their clocks allow.

    Parameters
    ----------
    trace : Trace
        The run.
    tasks : TaskArrays or None
        What should have run; None takes the tasks that the trace carries.

    Raises
    ------
    EtprotoError
        If `tasks` is None and the trace carries none.

    Examples
    --------
    >>> trace = Trace(span=[0, 0], worker=[0, 0], start=[0, 9], end=[10, 20], task=[0, 1], workers=1,
    ...               makespan_ns=20)
    >>> none = np.zeros(3, np.int64)
    >>> tasks = TaskArrays(
    ...     task=np.arange(2), kind=none[:2], grid=none[:2], coordinate=np.eye(2, 4, -1, dtype=np.int32),
    ...     cost=np.ones(2), priority=np.zeros(2), wait_ptr=none, wait_event=none[:0], notify_ptr=none,
    ...     notify_event=none[:0], event_need=none[:0], grid_name=("gemm",), kind_name=("gemm",),
    ...     grid_ndim=(1,))
    >>> for fault in verify(trace, tasks):
    ...     print(fault)
    worker 0.0 ran gemm[1] from 9, before gemm[0] ended at 10
    makespan 20 is below the work per worker 21
    """
    tasks = trace.tasks if tasks is None else tasks
    if tasks is None:
        raise EtprotoError("verify: the trace carries no tasks, expected TaskArrays to compare it with")
    faults = []
    if trace.dropped:
        faults.append(f"{trace.kept}: a run is verified from a complete trace, make the trace larger")
    body = np.flatnonzero(trace.span == SPAN_TASK)
    row = rows_of(tasks, trace.task[body])
    faults += _some([f"{trace.label(r)}: no task has id {trace.task[r]}" for r in body[row < 0].tolist()])
    early = trace.start - trace.end
    faults += _some([f"{trace.label(r)} ends {early[r]:g} before it starts" for r in np.flatnonzero(early > 0)])
    body, row = body[row >= 0], row[row >= 0]
    compute = trace.role[body] == ROLE_COMPUTE
    complete = not trace.dropped
    epochs = np.unique(trace.epoch[body]).tolist() or [0]
    for epoch in epochs:
        now = trace.epoch[body] == epoch
        where = f" in epoch {epoch}" if len(epochs) > 1 else ""
        ran = np.bincount(row[now & compute], minlength=tasks.count)
        wrong = np.flatnonzero(ran != 1).tolist()
        complete = complete and not wrong
        faults += _some([f"{tasks.name(r)} ran {ran[r]} times{where}, expected once" for r in wrong])
        start, end = np.full(tasks.count, np.inf), np.full(tasks.count, -np.inf)
        np.minimum.at(start, row[now & compute], trace.start[body[now & compute]])
        np.maximum.at(end, row[now], trace.end[body[now]])
        end[ran == 0] = np.inf  # what never ran has not notified
        faults += _some(_early(tasks, start, end, clock_tolerance(trace), where))
    faults += _some(_overlaps(trace, tasks, body[compute], row[compute]))
    return faults + (_bounds(trace, tasks) if complete else [])


def _early(tasks: TaskArrays, start: np.ndarray, end: np.ndarray, tolerance: float, where: str) -> list[str]:
    """Tasks that started before one of their wait events was satisfied."""
    notifier = np.repeat(np.arange(tasks.count), np.diff(tasks.notify_ptr))
    order = np.lexsort((end[notifier], tasks.notify_event))
    number = np.bincount(tasks.notify_event, minlength=tasks.events)
    first = np.cumsum(number) - number
    need = tasks.event_need.astype(np.int64)
    satisfied = np.where(need > 0, np.inf, -np.inf)  # an event that gets fewer than it needs never is
    by = np.full(tasks.events, -1)
    met = np.flatnonzero((need > 0) & (number >= need))
    by[met] = notifier[order[first[met] + need[met] - 1]]
    satisfied[met] = end[by[met]]

    waiter = np.repeat(np.arange(tasks.count), np.diff(tasks.wait_ptr))
    due = satisfied[tasks.wait_event]
    early = np.flatnonzero(np.isfinite(start[waiter]) & (start[waiter] < due - tolerance)).tolist()
    faults = []
    for i in early:
        task, event = int(waiter[i]), int(tasks.wait_event[i])
        head = f"{tasks.name(task)} started at {start[task]:g}{where}"
        if by[event] < 0:
            faults.append(f"{head} but its event {event} needs {need[event]} and gets {number[event]} notifications")
        elif np.isinf(due[i]):
            faults.append(f"{head} but {tasks.name(by[event])}, which notifies its event {event}, never ran")
        else:
            name = tasks.name(by[event])
            faults.append(f"{head}, before its event {event} was satisfied by {name} ending at {due[i]:g}")
    return faults


def _overlaps(trace: Trace, tasks: TaskArrays, body: np.ndarray, row: np.ndarray) -> list[str]:
    """Tasks that began in a compute lane while another ran; one clock, so only rounding is forgiven."""
    rounding = 1e-9 * trace.makespan_ns
    lane = trace.rank[body].astype(np.int64) * trace.workers + trace.worker[body]
    order = np.lexsort((trace.end[body], trace.start[body], lane))
    faults = []
    for group in np.split(order, np.flatnonzero(np.diff(lane[order])) + 1):
        start, end = trace.start[body[group]], trace.end[body[group]]
        ended = np.maximum.accumulate(end)
        for i in (np.flatnonzero(start[1:] < ended[:-1] - rounding) + 1).tolist():
            blocker = int(np.argmax(end[:i]))
            who, other, r = tasks.name(row[group[i]]), tasks.name(row[group[blocker]]), body[group[i]]
            lane_name = f"worker {trace.rank[r]}.{trace.worker[r]}"
            faults.append(f"{lane_name} ran {who} from {start[i]:g}, before {other} ended at {end[blocker]:g}")
    return faults


def _bounds(trace: Trace, tasks: TaskArrays) -> list[str]:
    makespan, workers = trace.makespan_ns, trace.ranks * trace.workers
    tolerance = clock_tolerance(trace)
    faults, work = [], 0.0
    for duration in measured_durations(trace, tasks):
        work += float(duration.sum()) / max(workers, 1)
        length, path = critical_path(tasks, duration)
        if makespan < length - tolerance * len(path):
            ends = f"{tasks.name(path[0])} to {tasks.name(path[-1])}"
            faults.append(f"makespan {makespan:g} is below the critical path {length:g} from {ends}")
    if makespan < work - tolerance:
        faults.append(f"makespan {makespan:g} is below the work per worker {work:g}")
    return faults


def _some(faults: list[str]) -> list[str]:
    """The first faults of a sort, and how many more there are."""
    hidden = len(faults) - SHOWN
    return [*faults[:SHOWN], f"and {hidden} more like the last"] if hidden > 0 else faults
