"""`Trace`: columns with one row a span (task, wait, queue pop or push), and what is known of the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from etproto.errors import EtprotoError
from etproto.tasks import TaskArrays

__all__ = [
    "COLUMNS",
    "ROLE_COMPUTE",
    "ROLE_LOAD",
    "ROLE_NAMES",
    "ROLE_SCHEDULER",
    "ROLE_STORE",
    "SPAN_NAMES",
    "SPAN_POP",
    "SPAN_PUSH",
    "SPAN_TASK",
    "SPAN_WAIT",
    "Trace",
    "clamp_lanes",
    "clock_tolerance",
    "rows_of",
]

SPAN_NAMES = ("task", "wait", "pop", "push")
SPAN_TASK, SPAN_WAIT, SPAN_POP, SPAN_PUSH = range(4)

ROLE_NAMES = ("compute", "load", "store", "scheduler")
ROLE_COMPUTE, ROLE_LOAD, ROLE_STORE, ROLE_SCHEDULER = range(4)

# Every column with its dtype and the value it has where none was given. Times are float64: exact for integers
# up to 2**53 ns.
COLUMNS: dict[str, tuple[type, int]] = {
    "span": (np.int8, SPAN_TASK),
    "worker": (np.int32, 0),
    "start": (np.float64, 0),
    "end": (np.float64, 0),
    "ready": (np.float64, -1),
    "task": (np.int64, -1),
    "kind": (np.int32, -1),
    "grid": (np.int32, -1),
    "coordinate": (np.int32, 0),
    "rank": (np.int32, 0),
    "role": (np.int32, ROLE_COMPUTE),
    "epoch": (np.int32, 0),
    "sm": (np.int32, -1),
    "event": (np.int64, -1),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """What happened in one run. Columns not given are filled with the value that means "not known".

    Parameters
    ----------
    span : int8[n]
        What the row is about: SPAN_TASK, SPAN_WAIT, SPAN_POP or SPAN_PUSH (`SPAN_NAMES`).
    worker : int32[n]
        Worker within its rank, in ``[0, workers)``.
    start, end : float64[n]
        Nanoseconds from the run's beginning, or units of abstract time if `time_unit` says so.
    ready : float64[n]
        When all waits of the row's task were satisfied; -1 unknown.
    task : int64[n]
        Device id of the task; -1 where there is none.
    kind, grid : int32[n]
        Index into `kind_name` and `grid_name`; -1 unknown.
    coordinate : int32[n, 4]
        Task coordinate, unused dimensions 0.
    rank, role, epoch, sm : int32[n]
        GPU (or group of SMs), part of the worker (`ROLE_NAMES`), pass of a loop, SM (-1 unknown).
    event : int64[n]
        Flat number of the event that a WAIT or PUSH is about; -1 none.
    executor, schedule, policy : str
        Who ran it and how.
    workers : int
        Workers of each rank, those that ran nothing included.
    time_unit : str
        Unit of every time here, ``"ns"`` for measured runs.
    kind_name, grid_name : tuple of str
        Names behind `kind` and `grid`.
    grid_ndim : tuple of int
        Dimensions of each grid's coordinates.
    makespan_ns : float
        Duration of the whole run, measured independently of the spans, in `time_unit`.
    dropped : int
        Records that did not fit.
    clock_residual_ns : float
        Largest misfit of the per-SM clocks with the shared timer; 0 where there is one clock.
    status : str
        ``"finished"``, or why the run ended.
    counters : dict of str to (float64[k], float64[k])
        Times and values, such as the queue's length.
    extra : dict
        Further facts that JSON can hold, such as ``max_rel_error``.
    tasks : TaskArrays or None
        The run's tasks and events, so that a saved trace can be re-checked and its event edges drawn.

    Raises
    ------
    EtprotoError
        If columns differ in length, hold a value their type cannot, or point outside the names.

    Examples
    --------
    >>> trace = Trace(span=[SPAN_WAIT, SPAN_TASK], worker=[0, 0], start=[0, 20], end=[20, 100], kind=[-1, 0],
    ...               workers=1, kind_name=("gemm",), makespan_ns=100)
    >>> trace.count, trace.label(1), trace.kept
    (2, 'gemm', '2 records')
    """

    span: np.ndarray
    worker: np.ndarray
    start: np.ndarray
    end: np.ndarray
    ready: np.ndarray = None
    task: np.ndarray = None
    kind: np.ndarray = None
    grid: np.ndarray = None
    coordinate: np.ndarray = None
    rank: np.ndarray = None
    role: np.ndarray = None
    epoch: np.ndarray = None
    sm: np.ndarray = None
    event: np.ndarray = None
    executor: str = ""
    schedule: str = ""
    policy: str = ""
    workers: int
    time_unit: str = "ns"
    kind_name: tuple[str, ...] = ()
    grid_name: tuple[str, ...] = ()
    grid_ndim: tuple[int, ...] = ()
    makespan_ns: float
    dropped: int = 0
    clock_residual_ns: float = 0.0
    status: str = "finished"
    counters: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    tasks: TaskArrays | None = None

    def __post_init__(self) -> None:
        count = len(self.span)
        for name in COLUMNS:
            object.__setattr__(self, name, _column(name, getattr(self, name), count))
        for name, kind in (
            ("workers", int),
            ("dropped", int),
            ("makespan_ns", float),
            ("clock_residual_ns", float),
        ):
            object.__setattr__(self, name, kind(getattr(self, name)))
            if not 0 <= getattr(self, name) < np.inf:
                raise EtprotoError(f"trace: {name} is {getattr(self, name)}, expected a finite number >= 0")
        for name in ("kind_name", "grid_name", "grid_ndim"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if len(self.grid_ndim) != len(self.grid_name):
            raise EtprotoError(f"trace: {len(self.grid_ndim)} grid_ndim for {len(self.grid_name)} grid names")
        for name, low, bound in (
            ("span", 0, len(SPAN_NAMES)),
            ("role", 0, len(ROLE_NAMES)),
            ("worker", 0, self.workers),
            ("rank", 0, np.inf),
            ("kind", -1, len(self.kind_name)),
            ("grid", -1, len(self.grid_name)),
        ):
            values = getattr(self, name)
            bad = np.flatnonzero((values < low) | (values >= bound))
            if len(bad):
                raise EtprotoError(
                    f"trace: {name} of row {bad[0]} is {values[bad[0]]}, expected {low} <= {name} < {bound}"
                )
        object.__setattr__(self, "counters", {name: _counter(name, *pair) for name, pair in self.counters.items()})

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.span)

    @property
    def ranks(self) -> int:
        """Number of ranks that recorded anything, at least 1."""
        return int(self.rank.max(initial=0)) + 1

    @property
    def kept(self) -> str:
        """``"n records"``, or ``"kept n of m records"`` where the device's buffers were too small."""
        return f"kept {self.count} of {self.count + self.dropped} records" if self.dropped else f"{self.count} records"

    def label(self, row: int) -> str:
        """Readable name of a row: ``gemm[2, 1]``, ``wait event 7``, ``pop``."""
        span = int(self.span[row])
        if span != SPAN_TASK:
            about = f" event {self.event[row]}" if self.event[row] >= 0 else ""
            return SPAN_NAMES[span] + about
        grid, kind, task = int(self.grid[row]), int(self.kind[row]), int(self.task[row])
        if grid >= 0:
            return f"{self.grid_name[grid]}[{', '.join(map(str, self.coordinate[row, : self.grid_ndim[grid]]))}]"
        if kind >= 0:
            return self.kind_name[kind]
        return f"task {task}" if task >= 0 else "task"

    def __str__(self) -> str:
        from etproto.trace.summary import summarize  # here because summary reads this module's constants

        return str(summarize(self))

    @classmethod
    def from_device(cls, records: np.ndarray, count: np.ndarray, headers: np.ndarray, **facts: Any) -> Trace:
        """Decode what the device worker wrote; see `etproto.trace.device.from_device`."""
        from etproto.trace.device import from_device

        return from_device(records, count, headers, **facts)

    def save(self, path: str | Path) -> None:
        """Write columns (``.npz``) or the Chrome/Perfetto form (``.json``). Both load back without loss."""
        from etproto.trace.files import save

        save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read what `save` wrote, or any Chrome JSON with complete ("X") events.

        Raises
        ------
        FileFormatError
            If the file holds something else; the text says what was expected.
        """
        from etproto.trace.files import load

        return load(path)


def _column(name: str, values: Any, count: int) -> np.ndarray:
    """`values` as the dtype of column `name`, refusing whatever the conversion would change."""
    dtype, default = COLUMNS[name]
    shape = (count, 4) if name == "coordinate" else (count,)
    if values is None:
        return np.full(shape, default, dtype)
    given = np.asarray(values)
    if given.size == 0 and count == 0:
        return np.zeros(shape, dtype)
    if given.shape != shape:
        raise EtprotoError(f"trace: column {name} has shape {given.shape}, expected {shape}")
    with np.errstate(invalid="ignore"):
        column = given.astype(dtype)
    bad = np.argwhere((column != given) | ~np.isfinite(column))  # a NaN differs from itself
    if len(bad):
        value = given[tuple(bad[0])]
        raise EtprotoError(f"trace: column {name} of row {bad[0][0]} is {value}, expected a finite {np.dtype(dtype)}")
    return column


def _counter(name: str, time: Any, value: Any) -> tuple[np.ndarray, np.ndarray]:
    time, value = np.asarray(time, np.float64), np.asarray(value, np.float64)
    if time.ndim != 1 or time.shape != value.shape or not (np.isfinite(time).all() and np.isfinite(value).all()):
        raise EtprotoError(
            f"trace: counter {name!r} has {time.shape} times and {value.shape} values, expected two equally "
            "long arrays of finite numbers"
        )
    return time, value


def rows_of(tasks: TaskArrays, ids: np.ndarray) -> np.ndarray:
    """Row in `tasks` of each device id, int64; -1 where there is no such task."""
    if tasks.count == 0:
        return np.full(len(ids), -1, np.int64)
    order = np.argsort(tasks.task, kind="stable")
    place = np.minimum(np.searchsorted(tasks.task, ids, sorter=order), tasks.count - 1)
    row = order[place]
    return np.where(tasks.task[row] == ids, row, -1)


def clamp_lanes(trace: Trace) -> tuple[np.ndarray, np.ndarray, int]:
    """Spans made disjoint in each lane (rank, worker, role): none begins before those ahead of it ended.

    Returns
    -------
    start, end : float64[n]
        The clamped times, in the order of the trace's rows.
    moved : int
        How many spans had to be changed: 0 unless clocks disagree or the records are wrong.

    Examples
    --------
    >>> trace = Trace(span=[0, 0], worker=[0, 0], start=[0, 9], end=[10, 20], workers=1, makespan_ns=20)
    >>> clamp_lanes(trace)
    (array([ 0., 10.]), array([10., 20.]), 1)
    """
    start, end = trace.start.copy(), trace.end.copy()
    order = np.lexsort((trace.end, trace.start, trace.role, trace.worker, trace.rank))
    lane = np.stack([trace.rank, trace.worker, trace.role])[:, order]
    cuts = np.flatnonzero((lane[:, 1:] != lane[:, :-1]).any(axis=0)) + 1
    for rows in np.split(order, cuts):
        ended = np.maximum.accumulate(np.maximum(end[rows], start[rows]))
        start[rows[1:]] = np.maximum(start[rows[1:]], ended[:-1])
    np.maximum(end, start, out=end)
    return start, end, int(np.count_nonzero((start != trace.start) | (end != trace.end)))


def clock_tolerance(trace: Trace) -> float:
    """By how much times of two SMs may be out of order without meaning anything, in the trace's time unit.

    Each of the two may be off by the clock's residual, the SM's offset is known to one tick of the global
    timer, and sums of floating point numbers round.
    """
    tick = float(trace.extra.get("globaltimer_tick_ns", 0))
    return 2 * trace.clock_residual_ns + tick + 1e-9 * trace.makespan_ns
