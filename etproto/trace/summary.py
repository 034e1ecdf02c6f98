"""What a trace says in numbers: shares of each worker's time, time by kind, makespan against its bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from etproto.errors import EtprotoError
from etproto.tasks import TaskArrays
from etproto.trace.records import ROLE_COMPUTE, SPAN_TASK, SPAN_WAIT, Trace, clamp_lanes, rows_of

__all__ = ["Summary", "critical_path", "measured_durations", "summarize"]

SHARES = ("busy", "wait", "queue", "idle")
PRINTED_WORKERS = 32  # longer lists show the busiest and the least busy; `as_dict` has all


@dataclass(frozen=True, eq=False)
class Summary:
    """Numbers of one run; `str` gives a table. Times are in `time_unit`.

    Parameters
    ----------
    title : str
        Executor, schedule, policy and status of the run.
    time_unit : str
        Unit of all times here.
    rank, worker : int64[w]
        The workers, those that ran nothing included.
    share : float64[w, 4]
        Busy, wait, queue and idle share of each worker's compute lane; every row sums to 1.
    tasks : int64[w]
        Tasks each worker ran.
    total : float64[4]
        The four shares over all workers.
    kinds : tuple of (str, int, float, float)
        Name, tasks, median and total time of each tile kind, the largest total first.
    makespan, work : float
        Duration of the run; time of all tasks together.
    critical_path : float or None
        Longest chain of dependent tasks, with measured durations; None where the tasks' events are not known.
    longest_task : float
        The longest single task, a lower bound where the critical path is not known.
    kept : str
        How many records there are.
    clamped : int
        Spans that overlapped an earlier one of their lane and were counted only beyond it.
    """

    title: str
    time_unit: str
    rank: np.ndarray
    worker: np.ndarray
    share: np.ndarray
    tasks: np.ndarray
    total: np.ndarray
    kinds: tuple[tuple[str, int, float, float], ...]
    makespan: float
    work: float
    critical_path: float | None
    longest_task: float
    kept: str
    clamped: int

    @property
    def lower_bound(self) -> float:
        """``max(critical path, work / workers)``: no schedule on this many workers is shorter."""
        chain = self.longest_task if self.critical_path is None else self.critical_path
        return max(chain, self.work / max(len(self.worker), 1))

    @property
    def efficiency(self) -> float:
        """Lower bound over makespan; 1 for a run of no duration."""
        return self.lower_bound / self.makespan if self.makespan > 0 else 1.0

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        workers = [
            {"rank": int(rank), "worker": int(worker), "tasks": int(tasks), **_named(share)}
            for rank, worker, tasks, share in zip(self.rank, self.worker, self.tasks, self.share, strict=True)
        ]
        kinds = [dict(zip(("kind", "count", "median", "total"), kind, strict=True)) for kind in self.kinds]
        return {
            "title": self.title,
            "time_unit": self.time_unit,
            "makespan": self.makespan,
            "critical_path": self.critical_path,
            "work": self.work,
            "lower_bound": self.lower_bound,
            "efficiency": self.efficiency,
            "total": {"tasks": int(self.tasks.sum()), **_named(self.total)},
            "workers": workers,
            "kinds": kinds,
            "kept": self.kept,
            "clamped": self.clamped,
        }

    def __str__(self) -> str:
        unit, chain = self.time_unit, self.critical_path
        lines = [f"{self.title}: {self.kept}, {len(self.worker)} workers"]
        if self.clamped:
            lines.append(f"{self.clamped} spans overlapped an earlier one of their lane: counted beyond it")
        facts = [
            ("makespan", self.makespan),
            ("critical path", chain),
            ("work", self.work),
            ("lower bound", self.lower_bound),
        ]
        rows = [(name, "unknown" if value is None else f"{_time(value)} {unit}") for name, value in facts]
        lines += _table([*rows, ("efficiency", f"{self.efficiency:.1%}")])
        order = np.arange(len(self.worker))
        hidden = len(order) - PRINTED_WORKERS
        if hidden > 0:
            busiest = np.argsort(-self.share[:, 0], kind="stable")
            order = np.concatenate([busiest[: PRINTED_WORKERS // 2], busiest[-PRINTED_WORKERS // 2 :]])
        rows = [("worker", "tasks", *SHARES)]
        for i in order:
            name = f"{self.rank[i]}.{self.worker[i]}" if self.rank.max() > 0 else f"{self.worker[i]}"
            rows.append((name, f"{self.tasks[i]:,}", *_percent(self.share[i])))
        if hidden > 0:
            rows.insert(1 + PRINTED_WORKERS // 2, (f"({hidden} more)", "", *[""] * len(SHARES)))
        rows.append(("all", f"{self.tasks.sum():,}", *_percent(self.total)))
        lines += ["", *_table(rows)]
        if self.kinds:
            rows = [("kind", "count", f"median {unit}", f"total {unit}")]
            rows += [(name, f"{n:,}", _time(median), _time(total)) for name, n, median, total in self.kinds]
            lines += ["", *_table(rows)]
        return "\n".join(lines)


def summarize(trace: Trace, tasks: TaskArrays | None = None) -> Summary:
    """Shares, times and bounds of a run.

    Parameters
    ----------
    trace : Trace
        The run. Shares come from its compute lanes, with spans clipped to ``[0, makespan]`` and time that two
        spans of a lane both claim counted once.
    tasks : TaskArrays or None
        Dependences for the critical path; None takes those that the trace carries, if any.

    Examples
    --------
    >>> trace = Trace(span=[1, 0], worker=[0, 0], start=[0, 25], end=[25, 100], kind=[-1, 0], workers=2,
    ...               kind_name=("gemm",), makespan_ns=100, executor="model")
    >>> print(summarize(trace))
    model: 2 records, 2 workers
    makespan        100 ns
    critical path  unknown
    work             75 ns
    lower bound      75 ns
    efficiency       75.0%
    <BLANKLINE>
    worker  tasks   busy   wait  queue    idle
    0           1  75.0%  25.0%   0.0%    0.0%
    1           0   0.0%   0.0%   0.0%  100.0%
    all         1  37.5%  12.5%   0.0%   50.0%
    <BLANKLINE>
    kind  count  median ns  total ns
    gemm      1         75        75
    """
    tasks = trace.tasks if tasks is None else tasks
    makespan = trace.makespan_ns
    lanes = trace.ranks * trace.workers
    start, end, clamped = clamp_lanes(trace)
    length = np.clip(end, 0, makespan) - np.clip(start, 0, makespan)
    compute = trace.role == ROLE_COMPUTE
    lane = trace.rank.astype(np.int64) * trace.workers + trace.worker
    column = np.where(trace.span == SPAN_TASK, 0, np.where(trace.span == SPAN_WAIT, 1, 2))
    time = np.bincount((lane * 4 + column)[compute], length[compute], lanes * 4).reshape(lanes, 4)
    time = time.astype(np.float64)  # bincount of nothing counts in integers
    time[:, 3] = np.maximum(makespan - time[:, :3].sum(axis=1), 0)
    share = time / makespan if makespan > 0 else np.tile([0.0, 0.0, 0.0, 1.0], (lanes, 1))

    body = np.flatnonzero(compute & (trace.span == SPAN_TASK))
    duration = np.maximum(trace.end[body] - trace.start[body], 0)
    chain = None
    if tasks is not None:
        chain = max(critical_path(tasks, duration)[0] for duration in measured_durations(trace, tasks))
    how = [trace.schedule, trace.policy, "" if trace.status == "finished" else trace.status]
    return Summary(
        title=" ".join([trace.executor or "trace", *filter(None, how)]),
        time_unit=trace.time_unit,
        rank=np.arange(lanes) // max(trace.workers, 1),
        worker=np.arange(lanes) % max(trace.workers, 1),
        share=share,
        tasks=np.bincount(lane[body], minlength=lanes),
        total=share.mean(axis=0) if lanes else np.array([0.0, 0.0, 0.0, 1.0]),
        kinds=_by_kind(trace.kind[body], duration, trace.kind_name),
        makespan=makespan,
        work=float(time[:, 0].sum()),
        critical_path=chain,
        longest_task=float(length[body].max(initial=0.0)),
        kept=trace.kept,
        clamped=clamped,
    )


def measured_durations(trace: Trace, tasks: TaskArrays) -> Iterator[np.ndarray]:
    """Duration of each row of `tasks` in the compute lanes, float64[n] for each epoch; 0 if not recorded."""
    body = np.flatnonzero((trace.role == ROLE_COMPUTE) & (trace.span == SPAN_TASK))
    row = rows_of(tasks, trace.task[body])
    body, row = body[row >= 0], row[row >= 0]
    order = np.argsort(trace.epoch[body], kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(trace.epoch[body[order]])) + 1):
        duration = np.zeros(tasks.count)
        duration[row[group]] = np.maximum(trace.end[body[group]] - trace.start[body[group]], 0)
        yield duration


def critical_path(tasks: TaskArrays, duration: np.ndarray) -> tuple[float, np.ndarray]:
    """Longest path from task to event to task.

    An event is satisfied by the notification that meets its need: the last, or for an event that needs fewer
    than it gets, the need-th one. One pass over the rows, which are in topological order.

    Parameters
    ----------
    tasks : TaskArrays
        n tasks and their events.
    duration : float64[n]
        Time of each task, >= 0.

    Returns
    -------
    length : float
        Sum of the durations on the path; 0 where there are no tasks.
    rows : int64[k]
        The path's rows in `tasks`, first to last.

    Raises
    ------
    EtprotoError
        If `duration` has another length or negative values, or a task comes before a notifier of its events.

    Examples
    --------
    Task 0 notifies event 0, for which task 1 waits:

    >>> zero, one = np.zeros(2, np.int32), np.ones(1, np.int32)
    >>> tasks = TaskArrays(
    ...     task=np.arange(2), kind=zero, grid=zero, coordinate=np.zeros((2, 4), np.int32), cost=np.ones(2),
    ...     priority=np.zeros(2), wait_ptr=np.array([0, 0, 1]), wait_event=zero[:1],
    ...     notify_ptr=np.array([0, 1, 1]), notify_event=zero[:1], event_need=one, grid_name=("gemm",),
    ...     kind_name=("gemm",), grid_ndim=(1,))
    >>> critical_path(tasks, np.array([3.0, 4.0]))
    (7.0, array([0, 1]))
    """
    duration = np.asarray(duration, np.float64)
    if duration.shape != (tasks.count,) or not (duration >= 0).all():
        raise EtprotoError(f"critical path: durations of shape {duration.shape}, expected {tasks.count} numbers >= 0")
    wait_ptr, wait_event = tasks.wait_ptr.tolist(), tasks.wait_event.tolist()
    notify_ptr, notify_event = tasks.notify_ptr.tolist(), tasks.notify_event.tolist()
    need = tasks.event_need.tolist()
    notifications = np.bincount(tasks.notify_event, minlength=tasks.events)
    outstanding = notifications.tolist()
    some_of = {e: [] for e in np.flatnonzero((tasks.event_need > 0) & (tasks.event_need < notifications)).tolist()}
    event_time, event_row = [0.0] * tasks.events, [-1] * tasks.events
    finish, before = [0.0] * tasks.count, [-1] * tasks.count
    for row, time in enumerate(duration.tolist()):
        begin, last = 0.0, -1
        for event in wait_event[wait_ptr[row] : wait_ptr[row + 1]]:
            if need[event] <= 0:
                continue
            if outstanding[event]:
                raise EtprotoError(f"critical path: {tasks.name(row)} comes before a notifier of its event {event}")
            if event in some_of:
                event_time[event], event_row[event] = sorted(some_of.pop(event))[need[event] - 1]
            if event_time[event] > begin or last < 0:
                begin, last = event_time[event], event_row[event]
        finish[row] = end = begin + time
        before[row] = last
        for event in notify_event[notify_ptr[row] : notify_ptr[row + 1]]:
            outstanding[event] -= 1
            if event in some_of:
                some_of[event].append((end, row))
            elif end >= event_time[event]:
                event_time[event], event_row[event] = end, row
    if not finish:
        return 0.0, np.zeros(0, np.int64)
    path = [int(np.argmax(finish))]
    while before[path[-1]] >= 0:
        path.append(before[path[-1]])
    return finish[path[0]], np.array(path[::-1], np.int64)


def _by_kind(
    kind: np.ndarray, duration: np.ndarray, names: tuple[str, ...]
) -> tuple[tuple[str, int, float, float], ...]:
    order = np.argsort(kind, kind="stable")
    cuts = np.flatnonzero(np.diff(kind[order])) + 1
    rows = []
    for group in np.split(order, cuts) if len(order) else ():
        index, times = int(kind[group[0]]), duration[group]
        rows.append(
            (
                names[index] if index >= 0 else "unknown",
                len(times),
                float(np.median(times)),
                float(times.sum()),
            )
        )
    return tuple(sorted(rows, key=lambda row: -row[3]))


def _named(share: np.ndarray) -> dict[str, float]:
    return dict(zip(SHARES, share.tolist(), strict=True))


def _time(value: float) -> str:
    """Whole numbers from 1000 on; fractions matter where an abstract unit is large."""
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"


def _percent(share: np.ndarray) -> list[str]:
    return [f"{part:.1%}" for part in share]


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows in columns two spaces apart, the first column to the left, the others to the right."""
    width = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(width[0]), *(cell.rjust(w) for cell, w in zip(row[1:], width[1:], strict=True))])
        for row in rows
    ]
