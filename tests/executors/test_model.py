"""The model executor: the same schedules as elsewhere, in times that can be worked out by hand."""

from __future__ import annotations

import dataclasses

import networkx as nx
import numpy as np
import pytest

from etproto.errors import ProgramError, ScheduleError
from etproto.executors import cpu, model
from etproto.graph import TaskGraph
from etproto.lowering import lower
from etproto.lowering_graph import lower_graph
from etproto.models import MODELS
from etproto.schedule import schedule
from etproto.scheduled import ENTRY_DRAIN, ENTRY_STRIDE, ENTRY_STRIDE_BOUND, PATTERN_ZIGZAG
from etproto.schedulers.levels import lower_bound
from etproto.trace import SPAN_NAMES, SPAN_POP, SPAN_TASK, verify

HOW = [("static", {}), ("static", {"policy": "zigzag"}), ("device-static", {}), ("dynamic", {})]
HOW += [("dynamic", {"early_push": True}), ("mixed", {}), ("mixed", {"early_push": True})]


def graph(edges, cost=None, priority=None):
    """A lowered graph; costs by name, 1 unless given."""
    G = nx.DiGraph(edges)
    for name in G.nodes:
        G.nodes[name].update(cost=(cost or {}).get(name, 1.0), priority=(priority or {}).get(name, 0.0))
    return lower_graph(TaskGraph.from_networkx(G, name="graph", time_unit="us"))


def times(trace) -> dict[str, tuple[float, float]]:
    """Task name -> (start, end)."""
    names = trace.tasks.task_name
    rows = np.flatnonzero(trace.span == SPAN_TASK)
    return {names[trace.task[row]]: (float(trace.start[row]), float(trace.end[row])) for row in rows}


DIAMOND = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]


def test_a_diamond_by_hand():
    """C39: d waits for both; costs of every sort are counted once."""
    lowered = graph(DIAMOND, {"b": 2.0, "c": 3.0})
    scheduled = schedule(lowered, "dynamic", workers=2)
    trace = model.run(scheduled, event_latency=0.5, pop_cost=0.1, push_cost=0.01)
    # a is popped in 0.1, runs to 1.1, pushes b and c by 1.12; both are popped by 1.22, and ready at 1.6.
    found = times(trace)
    assert found["a"] == pytest.approx((0.1, 1.1))
    assert found["b"] == pytest.approx((1.6, 3.6)) and found["c"] == pytest.approx((1.6, 4.6))
    assert found["d"] == pytest.approx((5.1, 6.1))
    assert trace.makespan_ns == pytest.approx(6.1) and trace.time_unit == "us"
    assert verify(trace) == [] and trace.executor == "model"


def test_lists_by_hand(by_hand):
    lowered = graph(DIAMOND, {"b": 2.0, "c": 3.0})
    row = {name: number for number, name in enumerate(lowered.task_arrays.task_name)}
    lists = [[row[name] for name in names] for names in (("a", "b"), ("c", "d"))]
    assert times(model.run(by_hand(lowered, lists))) == {"a": (0, 1), "b": (1, 3), "c": (1, 4), "d": (4, 5)}
    one_list = [[row[name] for name in "acbd"]]
    assert model.run(by_hand(lowered, one_list)).makespan_ns == 7


def test_entries_by_hand(by_hand):
    """Shares go on where the one before ended, zigzag turns round; the cpu executor deals out the same."""
    lowered = lower(MODELS["splitk"].build(n=5))
    first = int(lowered.grid_first[1])
    entries = [(ENTRY_STRIDE, 0, PATTERN_ZIGZAG, 0), (ENTRY_STRIDE_BOUND, 1, 0, 0), (ENTRY_DRAIN, 0, 0, 0)]
    trace = model.run(by_hand(lowered, [[-1, -2]] * 3, entries))
    ran = [trace.task[(trace.worker == w) & (trace.span == SPAN_TASK)].tolist() for w in range(3)]
    assert ran[0] == [0, 5, 6, 11, 12, 17, 18, first + 1, first + 4]
    assert ran[1] == [1, 4, 7, 10, 13, 16, 19, first + 2]
    tensors = MODELS["splitk"].make_tensors(lowered.instance, np.random.default_rng(0))
    same = cpu.run(by_hand(lowered, [[-1, -2]] * 3, entries[:1] + [(ENTRY_STRIDE, 1, 0, 0)]), tensors)
    for worker in range(3):
        mine = (same.worker == worker) & (same.span == SPAN_TASK)
        assert same.task[mine].tolist() == ran[worker]


def test_drains_by_hand(by_hand):
    """Listed tasks, then a drain; a share that only one of two workers goes through leaves tasks out."""
    lowered = lower(MODELS["splitk"].build(n=5))
    entries = [(ENTRY_STRIDE, 0, 0, 0), (ENTRY_DRAIN, 0, 0, 0)]
    queues = {"grid_queue": [-1, 0], "queue_grid": [1], "queue_capacity": [8]}
    trace = model.run(by_hand(lowered, [[*range(10), -2], [*range(10, 20), -2]], entries, **queues))
    assert verify(trace) == [] and trace.makespan_ns == 10 * 1.5 + 3  # 5 final sums on 2 workers
    with pytest.raises(ScheduleError, match=r"partial\[0, 1\].*got it 0 times"):
        model.run(by_hand(lowered, [[-1, -2], [-2]], entries, **queues))


@pytest.mark.parametrize("kind, options", HOW)
@pytest.mark.parametrize("workers", [1, 3, 40])
@pytest.mark.parametrize("name", ["splitk", "cholesky", "bucket_sum"])
def test_every_task_once_in_order_and_above_the_bound(name, workers, kind, options):
    values = {
        "splitk": {"n": 6},
        "cholesky": {"tiles": 5, "tile": 4},
        "bucket_sum": {"rows": 60, "buckets": 7},
    }
    bundled = MODELS[name]
    target = bundled.build(**values[name])
    lowered = lower(target) if bundled.kinds is None else lower_graph(target, bundled.kinds(target))
    tensors = bundled.make_tensors(target, np.random.default_rng(0))
    before = {name: array.copy() for name, array in tensors.items()}
    scheduled = schedule(lowered, kind, workers=workers, **options)
    for costs in ({}, {"event_latency": 0.2, "pop_cost": 0.3, "push_cost": 0.1}):
        trace = model.run(scheduled, tensors, **costs)
        assert verify(trace) == []
        assert trace.makespan_ns >= lower_bound(trace.tasks, workers) * (1 - 1e-12)
    for name, array in before.items():
        np.testing.assert_array_equal(tensors[name], array, err_msg=f"{name} was changed")


def test_run_time_values_are_computed_or_taken():
    """From all tensors they are computed on copies; alone, they are taken; else the missing one is named."""
    bundled = MODELS["bucket_sum"]
    instance = bundled.build(rows=90, buckets=6)
    scheduled = schedule(lower(instance), "device-static", workers=3)
    tensors = bundled.make_tensors(instance, np.random.default_rng(2))
    computed = model.run(scheduled, tensors)
    cpu.run(scheduled, tensors)
    names = ("key", "rows_of", "chunks_of", "chunk_start")
    taken = model.run(scheduled, {name: tensors[name] for name in names})
    assert taken.tasks.count == computed.tasks.count == 2 + 1 + 90 + tensors["chunk_start"][-1] + 6
    assert taken.makespan_ns == computed.makespan_ns
    with pytest.raises(ProgramError, match="the run-time value key is not given"):
        model.run(scheduled)


def test_a_deadlock_says_who_waits(by_hand):
    lowered = graph([("a1", "a2"), ("b1", "b2")])
    row = {name: number for number, name in enumerate(lowered.task_arrays.task_name)}
    lists = [[row[name] for name in names] for names in (("a2", "b1"), ("b2", "a1"))]
    with pytest.raises(ScheduleError) as caught:
        model.run(by_hand(lowered, lists))
    text = str(caught.value)
    assert "graph: the schedule deadlocks: 4 of 4 tasks never ran" in text
    assert "worker 0: a2 waits for event" in text and "worker 1: b2 waits for event" in text
    assert model.run(by_hand(lowered, [task[::-1] for task in lists])).makespan_ns == 2


def test_the_critical_path_policy_orders_the_queue():
    """A long chain that is queued last: first in, first out begins it late. Priority breaks ties of level."""
    edges = [("x1", "x2"), ("x2", "x3"), ("s1", "end"), ("s2", "end"), ("s3", "end"), ("s4", "end")]
    cost = {"x1": 1.0, "x2": 4.0, "x3": 4.0, "end": 0.0}
    reordered = nx.DiGraph()
    reordered.add_nodes_from(["s1", "s2", "s3", "s4", "x1", "x2", "x3", "end"])
    reordered.add_edges_from(edges)
    for name in reordered.nodes:
        reordered.nodes[name].update(cost=cost.get(name, 1.0), priority=9.0 if name == "s3" else 0.0)
    lowered = lower_graph(TaskGraph.from_networkx(reordered))
    fifo = model.run(schedule(lowered, "dynamic", workers=2))
    critical = model.run(schedule(lowered, "dynamic", workers=2, policy="critical_path"))
    assert fifo.makespan_ns == 11 and critical.makespan_ns == 9
    assert times(critical)["s3"] == (0, 1)


def test_costs_given():
    lowered = lower(MODELS["splitk"].build(n=2))
    scheduled = schedule(lowered, "static", workers=8)
    assert model.run(scheduled, cost={"partial_sum": 10.0, "final_sum": 2.5}).makespan_ns == 12.5
    assert model.run(scheduled, cost={"partial_sum": 10.0}).makespan_ns == 11.0
    assert model.run(scheduled, cost=np.arange(10.0)).makespan_ns == 7 + 9
    with pytest.raises(ProgramError, match="expected kinds among partial_sum, final_sum, got gemm"):
        model.run(scheduled, cost={"gemm": 1.0})
    with pytest.raises(ProgramError, match="cost: expected 10 finite numbers >= 0"):
        model.run(scheduled, cost=-np.ones(10))


def test_early_push_hides_the_pop():
    """The consumer is popped while its producers run; only the latency is left between them."""
    lowered = graph([("a", "b")], {"a": 5.0})
    late = model.run(schedule(lowered, "dynamic", workers=2), pop_cost=1.0, event_latency=0.5)
    early = model.run(schedule(lowered, "dynamic", workers=2, early_push=True), pop_cost=1.0, event_latency=0.5)
    assert (late.makespan_ns, early.makespan_ns) == (8.0, 7.5)


def test_spans_and_capacity():
    scheduled = schedule(lower(MODELS["splitk"].build(n=4)), "dynamic", workers=2)
    trace = model.run(scheduled, pop_cost=0.1, push_cost=0.1)
    counts = dict(zip(SPAN_NAMES, np.bincount(trace.span, minlength=4).tolist(), strict=True))
    assert counts["task"] == counts["pop"] == 20 and counts["push"] == 4
    np.testing.assert_allclose((trace.end - trace.start)[trace.span == SPAN_POP].min(), 0.1)
    short = model.run(scheduled, pop_cost=0.1, push_cost=0.1, trace_capacity=5)
    assert short.count == 10 and short.dropped == trace.count - 10
    assert model.run(scheduled, trace=False).count == 0
    empty = model.run(schedule(lower(MODELS["splitk"].build(n=0)), "dynamic", workers=2))
    assert empty.makespan_ns == 0 and verify(empty) == []


def test_seeds_break_ties():
    lowered = lower(MODELS["splitk"].build(n=8))
    scheduled = schedule(lowered, "dynamic", workers=3)
    traces = [model.run(scheduled, seed=seed) for seed in (1, 1, 2)]
    orders = [trace.task.tolist() for trace in traces]
    assert orders[0] == orders[1] != orders[2]
    assert all(verify(trace) == [] for trace in traces)


def test_a_schedule_of_another_run_is_refused():
    """A list that names a task twice."""
    scheduled = schedule(graph(DIAMOND), "static", workers=1, policy="critical_path")
    twice = dataclasses.replace(scheduled, worker_task=np.array([0, 1, 2, 2], np.int32))
    with pytest.raises(ScheduleError, match="2 times|0 times"):
        model.run(twice)
