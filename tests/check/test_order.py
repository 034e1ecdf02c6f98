"""Cycles and static orders: shortest witnesses, compared with networkx's by brute force."""

from __future__ import annotations

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etproto.check import check, check_order, require
from etproto.check.dependences import check_dependences, find_cycle
from etproto.errors import GraphError, ScheduleError
from etproto.expand import expand, graph_tasks
from etproto.graph import TaskGraph
from etproto.numbering import number
from etproto.program import EventTensor, Program, TaskGrid
from etproto.scheduled import ENTRY_DRAIN, ENTRY_STRIDE, ENTRY_STRIDE_BOUND, PATTERN_ZIGZAG, Scheduled
from etproto.tasks import TaskArrays
from etproto.tile_kind import TileKind


def kind(name, coordinates=1, **more):
    return TileKind(name, reference=lambda *_: None, coordinates=coordinates, **more)


def csr(lists):
    return np.cumsum([0, *map(len, lists)]), np.array([x for part in lists for x in part], np.int64)


def from_lists(waits, notifies, names=None):
    """Tasks that wait for and notify the events listed; needs are the notifications."""
    count = len(waits)
    events = max([-1, *(e for row in [*waits, *notifies] for e in row)]) + 1
    (wait_ptr, wait_event), (notify_ptr, notify_event) = csr(waits), csr(notifies)
    return TaskArrays(
        task=np.arange(count),
        kind=np.zeros(count, np.int32),
        grid=np.zeros(count, np.int32),
        coordinate=np.zeros((count, 4), np.int32),
        cost=np.ones(count),
        priority=np.zeros(count),
        wait_ptr=wait_ptr,
        wait_event=wait_event.astype(np.int32),
        notify_ptr=notify_ptr,
        notify_event=notify_event.astype(np.int32),
        event_need=np.bincount(notify_event, minlength=events).astype(np.int32),
        grid_name=("t",),
        kind_name=("t",),
        grid_ndim=(1,),
        task_name=tuple(names or map(str, range(count))),
    )


def from_edges(count, edges, names=None):
    """One event for each task, notified by it."""
    return from_lists(
        [[a for a, b in edges if b == row] for row in range(count)], [[row] for row in range(count)], names
    )


def lists_of(data, count, workers):
    """All rows, shuffled and cut into lists."""
    rows = data.draw(st.permutations(range(count)))
    cuts = sorted(data.draw(st.lists(st.integers(0, count), min_size=workers - 1, max_size=workers - 1)))
    return [rows[a:b] for a, b in zip([0, *cuts], [*cuts, count], strict=True)]


def shortest(G):
    """Length of the shortest cycle, by a search from every node."""
    best = None
    for node in G:
        back = [nx.shortest_path_length(G, after, node) + 1 for after in G[node] if nx.has_path(G, after, node)]
        best = min([*back, *([] if best is None else [best])], default=best)
    return best


small_edges = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=14)


@settings(max_examples=150, deadline=None)
@given(edges=small_edges)
def test_dependence_cycles_are_shortest(edges):
    tasks = from_edges(9, edges)
    G = nx.DiGraph(edges)
    cycle = find_cycle(tasks)
    assert (cycle is None) == (len(G) == 0 or nx.is_directed_acyclic_graph(G))
    if cycle is not None:
        rows = [row for row, _ in cycle]
        assert all(G.has_edge(a, b) for a, b in zip(rows, [*rows[1:], rows[0]], strict=True))
        assert [event for _, event in cycle] == rows  # event r is notified by task r
        assert len(cycle) == shortest(G) and rows[0] == min(rows)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), edges=small_edges, workers=st.integers(1, 4))
def test_order_witnesses_are_shortest(data, edges, workers):
    edges = [(a, b) for a, b in edges if a < b]
    lists = lists_of(data, 9, workers)
    pairs = [(a, b) for rows in lists for a, b in zip(rows, rows[1:], strict=False)]
    G = nx.DiGraph([*edges, *pairs])
    tasks = from_edges(9, edges)
    faults = check_order(tasks, *csr(lists))
    if len(G) == 0 or nx.is_directed_acyclic_graph(G):
        assert faults == []
        return
    (fault,) = faults
    head, _, text = fault.partition(": ")
    assert head == f"the static order deadlocks, cycle of {shortest(G)} tasks"
    worker_of = {row: worker for worker, rows in enumerate(lists) for row in rows}
    steps = [step.partition(" (") for step in text.split(", ")]
    assert len(steps) == shortest(G)
    for step, _, why in steps:
        a, b = map(int, step.split(" -> "))
        assert (a, b) in (pairs if why else edges)
        assert not why or why == f"worker {worker_of[a]}'s list)"
    ends = [tuple(step.split(" -> ")) for step, _, _ in steps]
    assert [b for _, b in ends] == [a for a, _ in [*ends[1:], ends[0]]]


def test_two_lists_that_deadlock_though_each_is_in_order():
    tasks = from_edges(4, [(0, 1), (2, 3)], ["a1", "a2", "b1", "b2"])
    assert check_order(tasks, *csr([[0, 3], [2, 1]])) == []
    (fault,) = check_order(tasks, *csr([[1, 2], [3, 0]]), lambda event: f"e[{event}]")
    assert fault == (
        "the static order deadlocks, cycle of 4 tasks: a1 -> a2 (event e[0]), a2 -> b1 (worker 0's list),"
        " b1 -> b2 (event e[2]), b2 -> a1 (worker 1's list)"
    )


def test_serial_split_k_with_later_slices_first():
    turn = EventTensor("turn", (9,))
    slices = TaskGrid("slice", kind("slice"), (8,), waits={turn: "i->i:i+1"}, notifies={turn: "i->i+1"})
    tasks = expand(Program("serial", (slices,)).bind())
    good = [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert check_order(tasks, *csr(good)) == []
    (fault,) = check_order(tasks, *csr([rows[::-1] for rows in good]))
    assert "cycle of 3 tasks" in fault and "slice[2] -> slice[0] (worker 0's list)" in fault


def test_a_row_listed_twice_or_not_there():
    tasks = from_edges(3, [])
    assert check_order(tasks, *csr([[0, 1], [2, 1]])) == ["1 is listed 2 times, by workers 0, 1; expected once"]
    assert check_order(tasks, *csr([[0], [3]])) == ["worker 1's list holds row 3; there are 3 tasks"]


def test_a_cycle_of_5000_tasks_is_found_and_cut():
    count = 5000
    tasks = from_lists([[(row - 1) % count] for row in range(count)], [[row] for row in range(count)])
    assert len(find_cycle(tasks)) == count
    chain = from_lists([[row - 1] if row else [] for row in range(count)], [[row] for row in range(count)])
    (fault,) = check_order(chain, *csr([[count - 1, 0]]))
    assert f"cycle of {count} tasks: 0 -> 1, 1 -> 2" in fault and f"{count - 12} more edges" in fault
    assert fault.endswith(f"{count - 1} -> 0 (worker 0's list)")


def test_a_short_cycle_hidden_among_long_ones():
    ring = [(i, (i + 1) % 300) for i in range(300)]
    assert [row for row, _ in find_cycle(from_edges(300, [*ring, (200, 197)]))] == [197, 198, 199, 200]


def test_an_event_shared_by_many_is_no_product_of_pairs():
    count = 20_000  # 4e8 pairs
    waits = [[] for _ in range(count)] + [[0] for _ in range(count)]
    notifies = [[0] for _ in range(count)] + [[] for _ in range(count)]
    tasks = from_lists(waits, notifies)
    assert check_order(tasks, *csr([list(range(2 * count))])) == []
    (fault,) = check_order(tasks, *csr([[count, 0], list(range(1, count))]))
    assert fault.endswith(f"0 -> {count}, {count} -> 0 (worker 0's list)")


def test_cycles_name_their_tasks_and_events():
    event = EventTensor("e", (3,))
    grid = TaskGrid("g", kind("k"), (3,), waits={event: "i->i"}, notifies={event: "i->(i+1)%3"})
    instance = Program("ring", (grid,)).bind()
    expected = "cycle of 3 tasks: g[0] -> g[1] -> g[2] -> g[0] (through event e[1], event e[2], event e[0])"
    assert check(instance).errors == (expected,)
    assert check_dependences(expand(instance)) == [expected.partition(" (")[0]]
    self_wait = TaskGrid("g", kind("k"), (1,), waits={event: "i->i"}, notifies={event: "i->i"})
    assert "cycle of 1 task: g[0] -> g[0]" in check(Program("p", (self_wait,)).bind()).errors[0]


def test_an_any_of_event_needs_one_notifier_only():
    one, all_ = EventTensor("one", any_of=True), EventTensor("all")
    for event, legal in ((one, True), (all_, False)):
        grids = (
            TaskGrid("g", kind("g"), (2,), notifies={event: "i->"}),
            TaskGrid("h", kind("h", 0), (), waits={event: "->"}),
        )
        faults = check_order(expand(Program("p", grids).bind()), *csr([[0, 2, 1]]))
        assert faults == [] if legal else "cycle of 2 tasks" in faults[0]


def test_graphs():
    result = check(TaskGraph.from_arrays([0, 1, 2], [1, 2, 0], 3))
    assert result.errors == ("cycle of 3 tasks: 0 -> 1 -> 2 -> 0",)
    with pytest.raises(GraphError, match="0 -> 1 -> 2 -> 0"):
        require(result)
    good = check(TaskGraph.from_networkx(nx.DiGraph((f"a{i}", f"b{j}") for i in range(3) for j in range(4))))
    assert good.stats == {"tasks": 7, "edges": 12, "events": 1, "critical_path": 2.0}


# -- schedules ----------------------------------------------------------------------------------------


def scheduled(lists, workers=None, *, instance=None, tasks=None, entries=(), grid_queue=(), queue_grid=()):
    """A schedule by hand; of `lowered` the checker needs the target and the grids' numbers only."""
    ptr, items = csr(lists)
    numbers = {}
    if instance is not None:
        numbering = number(instance)
        numbers = {"grid_first": np.array(numbering.grid_first), "grid_bound": np.array(numbering.grid_bound)}
    return Scheduled(
        lowered=SimpleNamespace(instance=instance, task_arrays=tasks, **numbers),
        schedule="static",
        policy="by hand",
        workers=len(lists) if workers is None else workers,
        worker_ptr=ptr,
        worker_task=items.astype(np.int32),
        entries=np.array(entries, np.int64).reshape(-1, 4),
        grid_queue=np.array(grid_queue, np.int32),
        queue_grid=np.array(queue_grid, np.int32),
        queue_capacity=np.full(len(queue_grid), 8),
        initial_queue=np.zeros((0, 3), np.int64),
    )


def pipeline():
    """Load -> sum -> store, four tasks each."""
    loaded, summed = EventTensor("loaded", (4,)), EventTensor("summed", (4,))
    return Program(
        "pipeline",
        (
            TaskGrid("load", kind("load"), (4,), notifies={loaded: "i->i"}),
            TaskGrid("sum", kind("sum"), (4,), waits={loaded: "i->:"}, notifies={summed: "i->i"}),
            TaskGrid("store", kind("store"), (4,), waits={summed: "i->i"}),
        ),
    ).bind()


def test_a_legal_and_an_illegal_schedule():
    good = check(scheduled([[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]], instance=pipeline()))
    assert good.ok and (good.stats["workers"], good.stats["lower_bound"]) == (2, 6.0)
    bad = check(scheduled([[0, 4, 2, 6, 8, 10], [1, 3, 5, 7, 9, 11]], instance=pipeline()))
    assert bad.errors == (
        "the static order deadlocks, cycle of 2 tasks: load[2] -> sum[0] (event loaded[2]),"
        " sum[0] -> load[2] (worker 0's list)",
    )
    with pytest.raises(ScheduleError, match="deadlocks, cycle of 2 tasks"):
        require(bad)


def test_tasks_that_nobody_runs_and_strange_ids():
    errors = check(scheduled([[0, 1, 2, 3, 4, 5], [6, 8, 9, 10, 11, 99]], instance=pipeline())).errors
    assert "worker 1's list holds task ids 99: no tasks of this run" in errors
    assert "1 of 12 tasks are in no worker's list and in no queue that a worker drains: sum[3]" in errors


def test_a_schedule_of_a_graph():
    tasks = graph_tasks(TaskGraph.from_networkx(nx.DiGraph([("a", "c"), ("b", "c")])))
    assert check(scheduled([[0, 1, 2]], tasks=tasks)).ok
    assert "c -> a (worker 0's list)" in check(scheduled([[2, 0, 1]], tasks=tasks)).errors[0]


@pytest.mark.parametrize("form", [ENTRY_STRIDE, ENTRY_STRIDE_BOUND])
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_shares_by_formula(form, workers):
    entries = [(form, 0, 0, 0), (form, 1, PATTERN_ZIGZAG, 0), (form, 2, PATTERN_ZIGZAG, 0)]
    lists = [[~0, ~1, ~2]] * workers
    assert check(scheduled(lists, instance=pipeline(), entries=entries)).ok
    backwards = check(scheduled([[~2, ~1, ~0]] * workers, instance=pipeline(), entries=entries))
    assert "the static order deadlocks" in backwards.errors[0]
    short = check(scheduled([[~0, ~1]] * workers, instance=pipeline(), entries=entries))
    assert "4 of 12 tasks are in no worker's list" in short.errors[0]


def test_drains_stand_in_the_order_of_grids():
    entries = [(ENTRY_STRIDE, 0, 0, 0), (ENTRY_DRAIN, 0, 0, 0), (ENTRY_STRIDE, 2, 0, 0)]
    queues = {"entries": entries, "grid_queue": (-1, 0, -1), "queue_grid": (1,), "instance": pipeline()}
    assert check(scheduled([[~0, ~1, ~2]] * 3, **queues)).ok
    early = check(scheduled([[~1, ~0, ~2], [~0, ~1, ~2]], **queues))
    assert "end of drain(sum) by worker[0] -> load[0] (worker 0's list)" in early.errors[0]
    undrained = check(scheduled([[~0, ~2]] * 2, **queues))
    assert "in no worker's list and in no queue that a worker drains: sum[0]" in undrained.errors[0]
    both = check(scheduled([[~0, ~1, ~2, 4]], **queues))
    assert "1 of 12 tasks are both in a worker's list and in a queue: sum[0]" in both.errors[0]


def test_a_dynamic_schedule_is_one_queue():
    schedule = scheduled(
        [[~0]] * 4,
        instance=pipeline(),
        entries=[(ENTRY_DRAIN, 0, 0, 0)],
        grid_queue=(0, 0, 0),
        queue_grid=(-1,),
    )
    assert check(schedule).ok


@pytest.mark.parametrize("workers", [0, -1, True, 2.0])
def test_bad_numbers_of_workers(workers):
    result = check(scheduled([[0], [1]], workers, tasks=from_edges(2, [])))
    assert result.errors == (f"workers: expected an integer >= 1, got {workers!r}",)


def test_more_workers_than_can_be_resident():
    tasks = from_edges(2, [])
    assert check(scheduled([[0], [1]], tasks=tasks), resident_limit=2).ok
    (error,) = check(scheduled([[0], [1]], tasks=tasks), resident_limit=1).errors
    assert error.startswith("workers: asked for 2, at most 1 can be resident")
