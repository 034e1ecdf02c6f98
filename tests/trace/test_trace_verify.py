from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etproto.errors import EtprotoError
from etproto.trace import Trace, verify


def test_right_run_has_no_faults(diamond, diamond_run):
    assert verify(diamond_run, diamond) == []
    assert verify(diamond_run) == []


def change(trace, column, row, value):
    values = getattr(trace, column).copy()
    values[row] = value
    return replace(trace, **{column: values})


@pytest.mark.parametrize(
    ("column", "row", "value", "text"),
    [
        ("start", 1, 9, "gemm[1] started at 9, before its event 0 was satisfied by gemm[0] ending at 10"),
        ("start", 3, 35, "gemm[3] started at 35, before its event 1 was satisfied by gemm[1] ending at 40"),
        ("end", 2, 41, "gemm[3] started at 40, before its event 1 was satisfied by gemm[2] ending at 41"),
        ("task", 3, 1, "gemm[3] ran 0 times, expected once"),
        ("task", 3, 1, "gemm[1] ran 2 times, expected once"),
        ("task", 0, 2**32, "no task has id 4294967296"),
        ("task", 0, -1, "gemm[1] started at 10 but gemm[0], which notifies its event 0, never ran"),
        ("worker", 2, 0, "worker 0.0 ran gemm[1] from 10, before gemm[2] ended at 30"),
        ("end", 3, 39, "gemm[3] ends 1 before it starts"),
    ],
)
def test_each_broken_trace_is_named(diamond_run, column, row, value, text):
    faults = verify(change(diamond_run, column, row, value))
    assert any(text in fault for fault in faults), faults


def test_makespan_below_the_bounds(diamond_run):
    assert verify(replace(diamond_run, makespan_ns=49)) == [
        "makespan 49 is below the critical path 50 from gemm[0] to gemm[3]"
    ]
    assert "makespan 30 is below the work per worker 35" in verify(replace(diamond_run, makespan_ns=30))


def test_dropped_records_are_no_proof(diamond_run):
    assert verify(replace(diamond_run, dropped=2))[0].startswith("kept 4 of 6 records")


def test_lost_record_is_missed(diamond, run_of):
    faults = verify(run_of(diamond, [0, 0, 1], [0, 10, 10], [10, 40, 30]), diamond)
    assert faults == ["gemm[3] ran 0 times, expected once"]


def test_clock_tolerance_forgives_only_so_much(diamond_run):
    early = change(diamond_run, "start", 2, 7)
    assert verify(early)
    assert verify(replace(early, clock_residual_ns=1.5)) == []
    assert verify(replace(early, extra={"globaltimer_tick_ns": 4})) == []
    assert verify(replace(early, clock_residual_ns=1))
    one_lane = change(diamond_run, "start", 1, 9)
    assert any("worker 0.0 ran gemm[1]" in f for f in verify(replace(one_lane, clock_residual_ns=100)))


def test_last_role_of_a_task_notifies(diamond, diamond_run):
    """The store role of gemm[0] ends at 15: its consumers may not start at 10."""
    more = {name: np.append(getattr(diamond_run, name), v) for name, v in (("span", 0), ("task", 0), ("worker", 0))}
    times = {name: np.append(getattr(diamond_run, name), v) for name, v in (("start", 5), ("end", 15), ("role", 2))}
    trace = Trace(**more, **times, workers=2, makespan_ns=50)
    assert verify(trace, diamond)[0].endswith("event 0 was satisfied by gemm[0] ending at 15")


def test_loads_ahead_of_the_wait_are_allowed(diamond, diamond_run):
    """A loader that fetches weights before the event is met has not started the task."""
    more = {name: np.append(getattr(diamond_run, name), v) for name, v in (("span", 0), ("task", 3), ("worker", 0))}
    times = {name: np.append(getattr(diamond_run, name), v) for name, v in (("start", 0), ("end", 45), ("role", 1))}
    assert verify(Trace(**more, **times, workers=2, makespan_ns=50), diamond) == []


def test_any_of_event_is_met_by_the_need_th(tasks_of, run_of):
    tasks = tasks_of([[], [], [0]], [[0], [0], []], [1])
    assert verify(run_of(tasks, [0, 1, 2], [0, 0, 10], [10, 50, 60]), tasks) == []
    faults = verify(run_of(tasks, [0, 1, 2], [0, 0, 9], [10, 50, 60]), tasks)
    assert faults[0] == "gemm[2] started at 9, before its event 0 was satisfied by gemm[0] ending at 10"


def test_event_that_can_never_be_met(tasks_of, run_of):
    tasks = tasks_of([[], [0]], [[0], []], [3])
    faults = verify(run_of(tasks, [0, 0], [0, 10], [10, 20]), tasks)
    assert faults == ["gemm[1] started at 10 but its event 0 needs 3 and gets 1 notifications"]


def test_each_epoch_is_checked(tasks_of):
    tasks = tasks_of([[], [0]], [[0], []], [1])
    columns = {"span": [0] * 4, "task": [0, 1, 0, 1], "epoch": [0, 0, 1, 1], "worker": [0, 0, 0, 1]}
    right = Trace(**columns, start=[0, 10, 20, 30], end=[10, 20, 30, 40], workers=2, makespan_ns=40)
    assert verify(right, tasks) == []
    wrong = change(right, "start", 3, 29)
    assert verify(wrong, tasks)[0].startswith("gemm[1] started at 29 in epoch 1, before its event 0")
    assert "gemm[1] ran 2 times in epoch 0, expected once" in verify(change(right, "epoch", 3, 0), tasks)


def test_many_faults_are_counted_not_listed(tasks_of, run_of):
    tasks = tasks_of([[]] * 100, [[]] * 100, [])
    faults = verify(run_of(tasks, [0], [0], [10]), tasks)
    assert len(faults) == 9 and faults[-1] == "and 91 more like the last"


def test_ids_with_holes_and_beyond_32_bits(tasks_of, run_of):
    tasks = tasks_of([[], [0]], [[0], []], [1], ids=[2**32 + 1, 1])
    assert verify(run_of(tasks, [0, 0], [0, 5], [5, 9]), tasks) == []


def test_trace_without_tasks_is_refused(diamond_run):
    with pytest.raises(EtprotoError, match="carries no tasks"):
        verify(replace(diamond_run, tasks=None))


def test_nothing_to_run(tasks_of):
    empty = Trace(span=[], worker=[], start=[], end=[], workers=1, makespan_ns=0)
    assert verify(empty, tasks_of([], [], [])) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 4), st.data())
def test_greedy_schedules_are_right_and_any_early_start_is_found(tasks_of, run_of, n, workers, data):
    """A list schedule made here passes; moving one dependent task before its last producer does not."""
    producers = [sorted(data.draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else [] for i in range(n)]
    duration = data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    waits = [[i] if producers[i] else [] for i in range(n)]
    notifies = [[j for j in range(n) if i in producers[j]] for i in range(n)]
    tasks = tasks_of(waits, notifies, [len(p) for p in producers])
    free, start, end, worker = [0.0] * workers, [], [], []
    for i in range(n):
        w = free.index(min(free))
        start.append(max([free[w], *(end[p] for p in producers[i])]))
        end.append(start[i] + duration[i])
        free[w] = end[i]
        worker.append(w)
    trace = run_of(tasks, worker, start, end, workers=workers)
    assert verify(trace, tasks) == []
    dependent = [i for i in range(n) if producers[i]]
    if dependent:
        i = data.draw(st.sampled_from(dependent))
        moved = change(trace, "start", i, max(end[p] for p in producers[i]) - 0.5)
        assert any(tasks.name(i) in fault for fault in verify(moved, tasks))
