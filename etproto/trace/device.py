"""Decode the records that the device worker writes, and put the clocks of all SMs on one time line."""

from __future__ import annotations

from typing import Any

import numpy as np

from etproto.errors import EtprotoError
from etproto.trace.records import Trace

__all__ = ["HEADER_WORDS", "RECORD_WORDS", "fit_clocks", "from_device"]

RECORD_WORDS = 8  # span | role << 8 | epoch << 16, task, two words of coordinates, start, end, ready, event
HEADER_WORDS = 5  # SM, clock and global timer at the worker's start, clock and global timer at its end

OWN_RATE_NS = 1_000_000  # an SM observed for this long has its own rate: a tick of 1 us is then 0.1 % of it
COARSEST_TICK_NS = 1024  # the global timer advances in steps of 32 ns to about 1 us, depending on the GPU


def fit_clocks(headers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Lines from each SM's cycle counter to the GPU's global timer, by least squares over the SM's headers.

    The slope is the SM's own where its headers span a millisecond, else one slope fitted over all SMs: each
    point counts with its distance from the middle of its SM, so long intervals weigh more. The offset is
    always the SM's own.

    Parameters
    ----------
    headers : int64[workers, 5]
        SM (-1 unknown: the worker counts as an SM of its own); clock and global timer (ns) at the worker's
        start, and both at its end. A worker that never started has a global timer of 0 at its start, one that
        never ended has it at its end.

    Returns
    -------
    rate : float64[workers]
        Nanoseconds a cycle; 0 for workers that never started.
    clock, time : int64[workers], float64[workers]
        A point on each worker's line: cycle count, and nanoseconds of the global timer after its earliest
        reading.
    residual : float
        Largest distance of a header from its line, ns.

    Raises
    ------
    EtprotoError
        If no SM was observed at two different clocks, so that no rate is known.

    Examples
    --------
    >>> rate, clock, time, residual = fit_clocks(np.array([[0, 100, 5000, 300, 5100]]))
    >>> float(rate[0]), residual
    (0.5, 0.0)
    """
    headers = np.asarray(headers, np.int64).reshape(-1, HEADER_WORDS)
    workers = len(headers)
    sm = np.where(headers[:, 0] >= 0, headers[:, 0], -1 - np.arange(workers))
    _, place = np.unique(sm, return_inverse=True)
    sms = int(place.max(initial=-1)) + 1
    points = np.concatenate([headers[:, 1:3], headers[:, 3:5]])
    where = np.concatenate([place, place])
    seen = (points[:, 1] != 0) & np.tile(headers[:, 2] != 0, 2)
    points, where = points[seen], where[seen]
    if len(points) == 0:
        return np.zeros(workers), np.zeros(workers, np.int64), np.zeros(workers), 0.0

    # Differences are taken in integers: a clock of 10 s at 2 GHz after weeks of uptime has no room in a
    # float's 53 bits.
    first = np.full(sms, np.iinfo(np.int64).max)
    np.minimum.at(first, where, points[:, 0])
    cycles = (points[:, 0] - first[where]).astype(np.float64)
    time = (points[:, 1] - points[:, 1].min()).astype(np.float64)
    number = np.maximum(np.bincount(where, minlength=sms), 1)
    mean_cycles = np.bincount(where, cycles, sms) / number
    mean_time = np.bincount(where, time, sms) / number
    dx, dy = cycles - mean_cycles[where], time - mean_time[where]
    square, product = np.bincount(where, dx * dx, sms), np.bincount(where, dx * dy, sms)
    if square.sum() == 0:
        raise EtprotoError("trace: every worker's header has one clock only, expected clocks at its start and its end")
    rate = np.full(sms, product.sum() / square.sum())
    extent = np.zeros(sms)
    np.maximum.at(extent, where, cycles)
    own = extent * rate >= OWN_RATE_NS
    rate[own] = product[own] / square[own]
    residual = float(np.abs(dy - rate[where] * dx).max())

    started = headers[:, 2] != 0
    middle = np.round(mean_cycles)
    clock = np.where(started, first[place] + middle[place].astype(np.int64), 0)
    offset = mean_time + rate * (middle - mean_cycles)
    return np.where(started, rate[place], 0.0), clock, np.where(started, offset[place], 0.0), residual


def from_device(
    records: np.ndarray,
    count: np.ndarray,
    headers: np.ndarray,
    *,
    grid_first: np.ndarray,
    grid_kind: np.ndarray,
    task_kind: np.ndarray | None = None,
    rank: int = 0,
    makespan_ns: float | None = None,
    extra: dict[str, Any] | None = None,
    **facts: Any,
) -> Trace:
    """The trace of one launch from what its workers wrote.

    Parameters
    ----------
    records : int64[workers, capacity, 8]
        ``span | role << 8 | epoch << 16``, task, ``coordinate0 | coordinate1 << 32``, ``coordinate2 |
        coordinate3 << 32``, start clock, end clock, ready clock (0 unknown), event.
    count : int64[workers]
        Records each worker made; those beyond the capacity were not written.
    headers : int64[workers, 5]
        See `fit_clocks`.
    grid_first : int64[grids + 1]
        Grid g holds the task ids ``grid_first[g]`` to ``grid_first[g + 1]``.
    grid_kind : int32[grids]
        Tile kind of each grid's tasks; -1 for a table, whose tasks' kinds are in `task_kind`.
    task_kind : int32[...] or None
        Kind of each table task, by task id.
    rank : int
        Rank that made the records.
    makespan_ns : float or None
        Duration of the run; None takes the time from the first worker's start to the last one's end.
    extra, **facts
        Further fields of `Trace`.

    Returns
    -------
    Trace
        Times count from the earliest start of a worker. ``extra["globaltimer_tick_ns"]`` is the granularity
        of the global timer as its readings show it.

    Raises
    ------
    EtprotoError
        If shapes disagree, or a worker that never started has records.

    Examples
    --------
    One worker at two cycles a nanosecond ran task 3 from cycle 50 to cycle 150 after its start:

    >>> trace = from_device(
    ...     [[[0, 3, 3, 0, 150, 250, 0, -1]]], [1], [[7, 100, 5000, 300, 5100]], grid_first=[0, 4],
    ...     grid_kind=[0], kind_name=("gemm",), grid_name=("gemm",), grid_ndim=(1,))
    >>> trace.label(0), trace.start.tolist(), trace.end.tolist(), trace.makespan_ns
    ('gemm[3]', [25.0], [75.0], 100.0)
    """
    records, count, headers = (np.asarray(x, np.int64) for x in (records, count, headers))
    workers = len(count)
    if records.ndim != 3 or records.shape[::2] != (workers, RECORD_WORDS) or headers.shape != (workers, HEADER_WORDS):
        raise EtprotoError(
            f"trace: records {records.shape}, count {count.shape} and headers {headers.shape}, expected "
            f"(workers, capacity, {RECORD_WORDS}), (workers,) and (workers, {HEADER_WORDS})"
        )
    capacity = records.shape[1]
    wrong = np.flatnonzero((count < 0) | ((count > 0) & (headers[:, 2] == 0)))
    if len(wrong):
        raise EtprotoError(f"trace: worker {wrong[0]} has {count[wrong[0]]} records but its header shows no start")
    kept = np.minimum(count, capacity)
    worker = np.repeat(np.arange(workers), kept)
    rows = records[np.arange(capacity) < kept[:, None]]

    rate, clock, time, residual = fit_clocks(headers)

    def at(clocks: np.ndarray, who: np.ndarray) -> np.ndarray:
        return time[who] + (clocks - clock[who]) * rate[who]

    started = np.flatnonzero(headers[:, 2] != 0)
    ended = np.flatnonzero((headers[:, 2] != 0) & (headers[:, 4] != 0))
    begin = at(headers[started, 1], started).min(initial=np.inf) if len(started) else 0.0
    start, end = at(rows[:, 4], worker) - begin, at(rows[:, 5], worker) - begin
    ready = np.where(rows[:, 6] != 0, np.maximum(at(rows[:, 6], worker) - begin, 0.0), -1.0)
    if makespan_ns is None:
        last = (at(headers[ended, 3], ended) - begin).max(initial=0.0)
        makespan_ns = max(last, end.max(initial=0.0))
    grid, kind = _lookup(rows[:, 1], np.asarray(grid_first, np.int64), np.asarray(grid_kind, np.int64), task_kind)
    return Trace(
        span=rows[:, 0] & 0xFF,
        role=(rows[:, 0] >> 8) & 0xFF,
        epoch=rows[:, 0] >> 16,
        task=rows[:, 1],
        coordinate=np.stack([_low(rows[:, 2]), rows[:, 2] >> 32, _low(rows[:, 3]), rows[:, 3] >> 32], axis=1),
        start=start,
        end=end,
        ready=ready,
        event=rows[:, 7],
        worker=worker,
        kind=kind,
        grid=grid,
        sm=headers[worker, 0],
        rank=np.full(len(rows), rank),
        workers=workers,
        makespan_ns=makespan_ns,
        dropped=int((count - kept).sum()),
        clock_residual_ns=residual,
        extra={"globaltimer_tick_ns": _tick(headers), **(extra or {})},
        **facts,
    )


def _low(word: np.ndarray) -> np.ndarray:
    """The signed 32-bit number in the low half of each int64."""
    return (word & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def _lookup(
    task: np.ndarray, first: np.ndarray, grid_kind: np.ndarray, task_kind: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Grid and kind of each task id, -1 where the id names none."""
    none = np.full(len(task), -1, np.int64)
    if len(first) < 2:
        return none, none
    inside = (task >= first[0]) & (task < first[-1])
    grid = np.where(inside, np.searchsorted(first, task, side="right") - 1, -1)
    kind = np.where(inside, grid_kind[grid], -1)
    if task_kind is not None and len(task_kind):
        table = inside & (kind < 0) & (task < len(task_kind))
        kind = np.where(table, np.asarray(task_kind)[np.where(table, task, 0)], kind)
    return grid, kind


def _tick(headers: np.ndarray) -> int:
    """Granularity of the global timer: what all differences of its readings are multiples of."""
    readings = headers[:, [2, 4]].ravel()
    readings = readings[readings != 0]
    if len(readings) == 0:
        return 0
    # Few readings may share a larger divisor by chance; then the coarsest known tick is the safe answer.
    return min(int(np.gcd.reduce(readings - readings.min())) or COARSEST_TICK_NS, COARSEST_TICK_NS)
