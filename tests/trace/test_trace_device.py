from __future__ import annotations

import numpy as np
import pytest

from etproto.errors import EtprotoError
from etproto.trace import SPAN_POP, SPAN_TASK, Trace
from etproto.trace.device import fit_clocks
from etproto.trace.records import clock_tolerance

# a global timer counts from 1970: no room in a float64 for its nanoseconds
UPTIME_NS = 1_700_000_000_000_000_000


class Machine:
    """SMs whose cycle counters began at different times, and a global timer that ticks coarsely."""

    def __init__(self, sms, ghz, tick, seed=0):
        random = np.random.default_rng(seed)
        self.origin = random.integers(10**12, 10**15, sms)
        self.ghz, self.tick = np.broadcast_to(ghz, sms), tick

    def clock(self, sm, ns):
        return self.origin[sm] + np.round(np.asarray(ns) * self.ghz[sm]).astype(np.int64)

    def header(self, sm, begin, end):
        timer = [(UPTIME_NS + int(t)) // self.tick * self.tick for t in (begin, end)]
        return [sm, self.clock(sm, begin), timer[0], self.clock(sm, end), timer[1]]


def write(machine, sm, begin, end, spans, capacity):
    """What a device with these spans (worker, start, end, ready, task) leaves in memory."""
    workers = len(sm)
    records = np.full((workers, capacity, 8), -7, np.int64)  # what was not written must not be read
    count = np.zeros(workers, np.int64)
    for worker, a, b, ready, task in spans:
        i = count[worker]
        count[worker] += 1
        if i < capacity:
            clock = [int(machine.clock(sm[worker], t)) for t in (a, b)]
            ready = int(machine.clock(sm[worker], ready)) if ready is not None else 0
            records[worker, i] = [SPAN_TASK, task, task, 0, *clock, ready, -1]
    return records, count, np.array([machine.header(*row) for row in zip(sm, begin, end, strict=True)])


def decode(records, count, headers, tasks=100, **facts):
    return Trace.from_device(
        records,
        count,
        headers,
        grid_first=[0, tasks],
        grid_kind=[0],
        kind_name=("gemm",),
        grid_name=("gemm",),
        grid_ndim=(1,),
        **facts,
    )


@pytest.mark.parametrize("tick", [1, 32, 1024])
@pytest.mark.parametrize("length", [50_000, 10_000_000_000])
def test_skewed_clocks_come_back_on_one_line(tick, length):
    sms = 132
    machine = Machine(sms, 1.755, tick)
    random = np.random.default_rng(1)
    begin = random.uniform(0, 3000, sms)
    end = length + random.uniform(0, 3000, sms)
    start = random.uniform(4000, length - 2000, sms)
    spans = [(w, start[w], start[w] + 1000, start[w] - 300, w) for w in range(sms)]
    trace = decode(*write(machine, np.arange(sms), begin, end, spans, 4), tasks=200)

    offset = np.median(trace.start - start)  # the trace's origin is the earliest start of a worker
    error = np.abs(trace.start - offset - start).max()
    assert error <= clock_tolerance(trace)
    assert clock_tolerance(trace) <= 3 * tick + 10 + 1e-9 * trace.makespan_ns
    np.testing.assert_allclose(trace.end - trace.start, 1000, rtol=0.05 if length < 10**6 else 1e-3)
    np.testing.assert_allclose(trace.start - trace.ready, 300, rtol=0.05 if length < 10**6 else 1e-3, atol=1)
    assert abs(trace.makespan_ns - (end.max() - begin.min())) <= 2 * tick + 1
    assert trace.extra["globaltimer_tick_ns"] == tick
    assert trace.sm.tolist() == list(range(sms))


def test_sms_of_different_speed_keep_their_own_rate_in_long_runs():
    machine = Machine(2, np.array([1.7, 1.9]), 32)
    begin, end = [0, 0], [8_000_000, 8_000_000]
    spans = [(w, 4_000_000, 4_010_000, None, w) for w in range(2)]
    trace = decode(*write(machine, [0, 1], begin, end, spans, 4))
    assert abs(trace.start[0] - trace.start[1]) <= 64
    np.testing.assert_allclose(trace.end - trace.start, 10_000, atol=2)


def test_short_worker_borrows_the_rate_of_the_others():
    """An SM seen for less than a tick has no rate of its own: its span still has the right length."""
    machine = Machine(2, 2.0, 1024)
    trace = decode(*write(machine, [0, 1], [0, 500_000], [900_000, 500_800], [(1, 500_100, 500_700, None, 0)], 4))
    np.testing.assert_allclose(trace.end - trace.start, 600, rtol=0.01)


def test_two_workers_of_an_sm_share_its_line():
    machine = Machine(1, 1.5, 1)
    rate, clock, time, residual = fit_clocks(np.array([machine.header(0, 0, 4000), machine.header(0, 2000, 6000)]))
    assert rate[0] == rate[1] == pytest.approx(1 / 1.5, rel=1e-3)
    assert clock[0] == clock[1] and time[0] == time[1]
    assert residual < 2


def test_residual_shows_a_timer_that_does_not_fit():
    machine = Machine(3, 2.0, 1)
    headers = np.array([machine.header(s, 0, 10_000) for s in range(3)])
    assert fit_clocks(headers)[3] < 1
    headers[1, 4] += 900
    assert 100 < fit_clocks(headers)[3] < 900


def test_unstarted_and_aborted_workers():
    machine = Machine(3, 2.0, 1)
    records, count, headers = write(
        machine, [0, 1, 2], [0, 0, 0], [5000, 5000, 5000], [(0, 100, 200, None, 0), (1, 300, 700, None, 1)], 4
    )
    headers[1, 3:] = 0  # never ended
    headers[2] = [-1, 0, 0, 0, 0]  # never started
    trace = decode(records, count, headers, status="watchdog")
    np.testing.assert_allclose(trace.start, [100, 300], atol=2)
    assert (trace.workers, trace.makespan_ns) == (3, pytest.approx(5000, abs=2))
    count[2] = 1
    with pytest.raises(EtprotoError, match="worker 2 has 1 records but its header shows no start"):
        decode(records, count, headers)


def test_nothing_started_is_an_empty_trace():
    trace = decode(np.zeros((2, 4, 8), np.int64), np.zeros(2, np.int64), np.zeros((2, 5), np.int64))
    assert (trace.count, trace.workers, trace.makespan_ns) == (0, 2, 0)


def test_headers_without_an_interval_are_refused():
    with pytest.raises(EtprotoError, match="one clock only"):
        fit_clocks(np.array([[0, 5, 1000, 5, 1000]]))


def test_full_buffer_keeps_n_of_m():
    """Capacity 8 with 100 records: nothing beyond the buffer is read, and the trace says so."""
    machine = Machine(1, 1.0, 1)
    spans = [(0, 100 * i, 100 * i + 50, None, i) for i in range(100)]
    trace = decode(*write(machine, [0], [0], [10_000], spans, 8))
    assert (trace.count, trace.dropped) == (8, 92)
    assert trace.kept == "kept 8 of 100 records"
    assert "kept 8 of 100 records" in str(trace)


def test_words_are_unpacked():
    machine = Machine(2, 1.0, 1)
    records, count, headers = write(machine, [0, 1], [0, 0], [9000, 9000], [(1, 10, 20, None, 0)], 2)
    big = 2**33 + 1
    records[1, 0, 0] = SPAN_POP | 3 << 8 | 70_000 << 16
    records[1, 0, 1] = big
    records[1, 0, 2] = np.int64(-5) & 0xFFFFFFFF | 2**31 - 1 << 32
    records[1, 0, 3] = 7 | np.int64(-1) << 32
    records[1, 0, 7] = 2**40
    trace = Trace.from_device(
        records,
        count,
        headers,
        grid_first=[0, 3, 3, 2**40],
        grid_kind=[-1, 1, 0],
        kind_name=("a", "b"),
        grid_name=("x", "y", "z"),
        grid_ndim=(1, 1, 4),
        rank=2,
        executor="cuda",
    )
    assert (trace.span[0], trace.role[0], trace.epoch[0], trace.worker[0], trace.rank[0]) == (
        SPAN_POP,
        3,
        70_000,
        1,
        2,
    )
    assert (trace.task[0], trace.event[0], trace.ready[0]) == (big, 2**40, -1)
    assert trace.coordinate[0].tolist() == [-5, 2**31 - 1, 7, -1]
    assert (trace.grid[0], trace.kind[0]) == (2, 0)


def test_kinds_of_table_tasks_come_from_the_table():
    machine = Machine(1, 1.0, 1)
    spans = [(0, 100 * i, 100 * i + 50, None, task) for i, task in enumerate([0, 1, 2, 5, 99, -1])]
    records, count, headers = write(machine, [0], [0], [10_000], spans, 8)
    trace = Trace.from_device(
        records,
        count,
        headers,
        grid_first=[0, 3, 10],
        grid_kind=[-1, 0],
        task_kind=np.array([2, 1, 2], np.int32),
        kind_name=("f", "b", "c"),
        grid_name=("table", "formula"),
        grid_ndim=(1, 1),
    )
    assert trace.kind.tolist() == [2, 1, 2, 0, -1, -1]
    assert trace.grid.tolist() == [0, 0, 0, 1, -1, -1]


def test_wrong_shapes_are_named():
    with pytest.raises(EtprotoError, match=r"expected \(workers, capacity, 8\)"):
        decode(np.zeros((2, 4, 7), np.int64), np.zeros(2, np.int64), np.zeros((2, 5), np.int64))
