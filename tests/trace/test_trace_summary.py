from __future__ import annotations

import json

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etproto.errors import EtprotoError
from etproto.trace import SPAN_POP, SPAN_PUSH, SPAN_TASK, SPAN_WAIT, Trace, critical_path, summarize


def test_shares_known_by_hand():
    trace = Trace(
        span=[SPAN_WAIT, SPAN_TASK, SPAN_PUSH, SPAN_POP, SPAN_TASK, SPAN_TASK],
        worker=[0, 0, 0, 1, 1, 1],
        start=[0, 20, 80, 0, 10, 10],
        end=[20, 80, 85, 10, 60, 90],
        role=[0, 0, 0, 0, 0, 1],  # the load lane's span is in nobody's share
        kind=[-1, 0, -1, -1, 1, 1],
        kind_name=("gemm", "sum"),
        workers=3,
        makespan_ns=100,
    )
    summary = summarize(trace)
    np.testing.assert_allclose(summary.share, [[0.6, 0.2, 0.05, 0.15], [0.5, 0, 0.1, 0.4], [0, 0, 0, 1]], atol=1e-12)
    np.testing.assert_allclose(summary.total, [1.1 / 3, 0.2 / 3, 0.15 / 3, 1.55 / 3])
    assert summary.tasks.tolist() == [1, 1, 0]
    assert summary.kinds == (("gemm", 1, 60, 60), ("sum", 1, 50, 50))
    assert (summary.work, summary.critical_path, summary.lower_bound) == (110, None, 60)


def test_critical_path_and_bound(diamond, diamond_run):
    summary = summarize(diamond_run)
    assert (summary.critical_path, summary.work, summary.lower_bound) == (50, 70, 50)
    assert summary.efficiency == 1
    assert summarize(diamond_run, diamond).critical_path == 50
    length, rows = critical_path(diamond, np.array([10, 30, 20, 10]))
    assert (length, rows.tolist()) == (50, [0, 1, 3])
    table = str(diamond_run)
    assert "critical path   50 ns" in table and "efficiency     100.0%" in table


def test_work_bounds_when_tasks_are_independent(tasks_of, run_of):
    tasks = tasks_of([[]] * 4, [[]] * 4, [])
    summary = summarize(run_of(tasks, [0, 0, 1, 1], [0, 5, 0, 5], [5, 10, 5, 15]), tasks)
    assert (summary.critical_path, summary.lower_bound) == (10, 12.5)
    assert summary.efficiency == pytest.approx(12.5 / 15)


def test_overlaps_and_spans_outside_the_run_count_once():
    trace = Trace(
        span=[SPAN_TASK, SPAN_WAIT, SPAN_TASK, SPAN_TASK],
        worker=[0, 0, 0, 0],
        start=[-5, 8, 9, 95],
        end=[10, 12, 20, 130],
        workers=1,
        makespan_ns=100,
    )
    summary = summarize(trace)
    np.testing.assert_allclose(summary.share, [[0.23, 0.02, 0, 0.75]])
    assert summary.clamped == 2
    assert "2 spans overlapped" in str(summary)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1), st.floats(-10, 1e10), st.floats(0, 1e10)),
        max_size=30,
    ),
    st.floats(0, 2e10),
)
def test_shares_sum_to_one_for_any_lanes(spans, makespan):
    span, worker, rank, start, length = (np.array(x) for x in zip(*spans, strict=True)) if spans else [[]] * 5
    end = np.add(start, length)
    trace = Trace(span=span, worker=worker, rank=rank, start=start, end=end, workers=3, makespan_ns=makespan)
    summary = summarize(trace)
    assert len(summary.worker) == 3 * trace.ranks
    np.testing.assert_allclose(summary.share.sum(axis=1), 1, rtol=1e-9)
    assert (summary.share >= 0).all() and (summary.share <= 1 + 1e-9).all()
    assert summary.total.sum() == pytest.approx(1)
    assert summary.work <= makespan * len(summary.worker) * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.data())
def test_critical_path_equals_networkx(tasks_of, n, data):
    duration = np.array(data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)), float)
    arcs = [(i, j) for j in range(n) for i in range(j) if data.draw(st.booleans())]
    events = {arc: e for e, arc in enumerate(arcs)}
    tasks = tasks_of(
        [[events[a] for a in arcs if a[1] == t] for t in range(n)],
        [[events[a] for a in arcs if a[0] == t] for t in range(n)],
        [1] * len(arcs),
    )
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from((i, j, duration[i]) for i, j in arcs)
    graph.add_weighted_edges_from((i, "end", duration[i]) for i in range(n))
    length, rows = critical_path(tasks, duration)
    assert length == nx.dag_longest_path_length(graph)
    assert duration[rows].sum() == length
    assert all(b in graph.succ[a] for a, b in zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True))


def test_event_that_needs_fewer_is_met_by_the_need_th(tasks_of):
    tasks = tasks_of([[], [], [], [0, 1]], [[0], [0], [0], []], [2, 0])
    assert critical_path(tasks, np.array([30.0, 10, 20, 5]))[0] == 30
    length, rows = critical_path(tasks, np.array([30.0, 10, 20, 50]))
    assert (length, rows.tolist()) == (70, [2, 3])


def test_critical_path_refuses_what_it_cannot_trust(diamond, tasks_of):
    with pytest.raises(EtprotoError, match="expected 4 numbers >= 0"):
        critical_path(diamond, np.ones(3))
    with pytest.raises(EtprotoError, match="expected 4 numbers >= 0"):
        critical_path(diamond, np.array([1, -1, 1, 1]))
    with pytest.raises(EtprotoError, match=r"gemm\[0\] comes before a notifier of its event 0"):
        critical_path(tasks_of([[0], []], [[], [0]], [1]), np.ones(2))
    assert critical_path(tasks_of([], [], []), np.zeros(0))[0] == 0


def test_deep_and_large_graph(tasks_of):
    n = 100_000
    tasks = tasks_of([[i - 1] if i else [] for i in range(n)], [[i] for i in range(n)], [1] * n)
    length, rows = critical_path(tasks, np.ones(n))
    assert length == n and rows.tolist() == list(range(n))


def test_epochs_are_runs_of_their_own(tasks_of, run_of):
    tasks = tasks_of([[], [0]], [[0], []], [1])
    two = np.concatenate([tasks.task, tasks.task])
    trace = Trace(
        span=[0] * 4,
        task=two,
        worker=[0] * 4,
        start=[0, 10, 20, 25],
        end=[10, 20, 25, 50],
        epoch=[0, 0, 1, 1],
        workers=1,
        makespan_ns=50,
    )
    summary = summarize(trace, tasks)
    assert (summary.critical_path, summary.lower_bound, summary.efficiency) == (30, 50, 1)


def test_dictionary_is_json_and_has_every_worker(diamond_run):
    out = json.loads(json.dumps(summarize(diamond_run).as_dict(), allow_nan=False))
    assert [w["tasks"] for w in out["workers"]] == [3, 1]
    assert out["workers"][0]["busy"] == 1 and out["workers"][1]["idle"] == pytest.approx(0.6)
    assert out["kinds"] == [{"kind": "gemm", "count": 4, "median": 15.0, "total": 70.0}]
    assert out["total"]["busy"] == pytest.approx(0.7)
    assert out["lower_bound"] == 50


def test_workers_that_ran_nothing_and_unknown_kinds_are_shown():
    trace = Trace(span=[0], worker=[250], start=[0], end=[10], workers=300, makespan_ns=10)
    summary = summarize(trace)
    assert len(summary.worker) == 300 and summary.share[250, 0] == 1 and summary.share[0, 3] == 1
    table = str(summary)
    assert "(268 more)" in table and "unknown" in table
    widths = {len(line) for line in table.split("\n\n")[1].splitlines()}
    assert len(widths) == 1, "columns are aligned"


def test_no_workers_at_all():
    summary = summarize(Trace(span=[], worker=[], start=[], end=[], workers=0, makespan_ns=0))
    assert summary.total.tolist() == [0, 0, 0, 1] and summary.efficiency == 1
    assert "0 workers" in str(summary)
