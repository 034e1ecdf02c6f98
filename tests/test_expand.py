"""Expanding programs and graphs into rows, compared with the same thing done task by task in plain Python."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etproto.dependence import run_order
from etproto.errors import GraphError, ProgramError
from etproto.expand import cell_name, edge_cells, expand, graph_tasks, to_networkx
from etproto.expressions import Symbol, ceil_div
from etproto.graph import TaskGraph, compressed
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.tile_kind import Operand, TileKind


def kind(name, coordinates=1, operands=(), **more):
    return TileKind(name, reference=lambda *_: None, coordinates=coordinates, operands=operands, **more)


def listed(tasks, word, row):
    ptr, event = getattr(tasks, f"{word}_ptr"), getattr(tasks, f"{word}_event")
    return event[ptr[row] : ptr[row + 1]].tolist()


def names(instance, tasks, word):
    """Task name -> sorted names of the events it waits for or notifies."""
    return {
        tasks.name(row): sorted(cell_name(instance, event) for event in listed(tasks, word, row))
        for row in range(tasks.count)
    }


def split_k(n_bound=8):
    n = Symbol("n", bound=n_bound)
    done = EventTensor("done", (n,))
    parts = TaskGrid("parts", kind("part", 2), (n, 4), notifies={done: "ij->i"})
    return Program("rows", (TaskGrid("totals", kind("total"), (n,), waits={done: "i->i"}), parts))


def routed(events=3, bound=6):
    """A count of tasks, a gather and needs that the program computes."""
    count = Tensor("count", (1,), "int32")
    rows = Tensor("rows", (events,), "int32")
    key = Tensor("key", (bound, 2), "int32")
    known = EventTensor("known")
    filled = EventTensor("filled", (events,), count=rows)
    router = kind(
        "route",
        0,
        tuple(Operand(t.name, "int32", len(t.shape), "out") for t in (count, rows, key)),
    )
    return Program(
        "routed",
        (
            TaskGrid("router", router, (), {"count": count, "rows": rows, "key": key}, notifies={known: "->"}),
            TaskGrid(
                "fill",
                kind("fill"),
                ("count[0]",),
                waits={known: "i->"},
                notifies={filled: "i->key[i,:]"},
                bound=bound,
            ),
            TaskGrid("sum", kind("sum"), (events,), waits=[(known, "i->"), (filled, "i->i")]),
        ),
    )


def test_split_k_rows_ids_and_needs():
    instance = split_k().bind(n=3)
    tasks = expand(instance)
    assert tasks.task.tolist() == [*range(12), *range(32, 35)]  # ids are those of the bound, n = 8
    assert [tasks.name(row) for row in (0, 5, 12, 14)] == [
        "parts[0, 0]",
        "parts[1, 1]",
        "totals[0]",
        "totals[2]",
    ]
    assert tasks.event_need.tolist() == [4, 4, 4, 0, 0, 0, 0, 0]  # of 8 cells at the bound, 3 are used
    assert names(instance, tasks, "notify")["parts[2, 1]"] == ["done[2]"]
    assert names(instance, tasks, "wait")["totals[1]"] == ["done[1]"]
    assert tasks.coordinate.dtype == np.int32 and tasks.wait_event.dtype == np.int32
    assert (tasks.grid_name, tasks.kind_name, tasks.grid_ndim) == (
        ("parts", "totals"),
        ("part", "total"),
        (2, 1),
    )


def test_no_tasks():
    tasks = expand(split_k().bind(n=0))
    assert (tasks.count, tasks.wait_ptr.tolist(), tasks.events) == (0, [0], 8)


def test_run_time_count_gather_and_needs():
    instance = routed().bind()
    tensors = {
        "count": np.array([3]),
        "rows": np.array([2, 0, 4], np.int32),
        "key": np.array([[0, 2], [2, 0], [2, 2], [9, 9], [9, 9], [9, 9]]),
    }
    tasks = expand(instance, tensors)
    assert tasks.task.tolist() == [0, 1, 2, 3, 7, 8, 9]  # tasks 3, 4, 5 of fill are not in this run
    assert names(instance, tasks, "notify")["fill[2]"] == ["filled[2]", "filled[2]"]
    assert names(instance, tasks, "wait")["sum[1]"] == ["filled[1]", "known"]
    need = {cell_name(instance, cell): int(tasks.event_need[cell]) for cell in range(tasks.events)}
    assert need == {"known": 1, "filled[0]": 2, "filled[1]": 0, "filled[2]": 4}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"count": None},
            r"run-time value count is not given; task grid fill reads it \(extent count\[0\]\)",
        ),
        ({"count": np.array([7])}, r"fill: extent 0 \(count\[0\]\) must be at most its bound 6, got 7"),
        ({"count": np.array([-1])}, r"extent 0 \(count\[0\]\) must be at least 0, got -1"),
        ({"count": np.array([1.0])}, r"must be an integer array of shape \(1,\), got float64"),
        (
            {"rows": np.zeros(2, int)},
            r"rows must be an integer array of shape \(3,\), got int64 of shape \(2,\)",
        ),
        ({"rows": np.array([0, -2, 0])}, r"event filled\[1\]: the need \(rows\) must be at least 0, got -2"),
        ({"key": np.full((6, 2), 3)}, r"task fill\[0\] names filled\[3\], outside its extents \(3,\)"),
    ],
)
def test_bad_run_time_values_are_named(change, message):
    tensors = {"count": np.array([2]), "rows": np.zeros(3, int), "key": np.zeros((6, 2), int)} | change
    with pytest.raises(ProgramError, match=message):
        expand(routed().bind(), {name: array for name, array in tensors.items() if array is not None})


def test_ragged_grid_is_numbered_by_position():
    pointer = Tensor("pointer", (4,), "int32")
    out = EventTensor("out", (3,))
    grid = TaskGrid(
        "bucket",
        kind("work", 3, (Operand("pointer", "int32", 1),)),
        (3, "pointer[i]:pointer[i+1]", 2),
        {"pointer": pointer},
        notifies={out: "ijk->i"},
        bound=9,
    )
    tasks = expand(Program("ragged", (grid,)).bind(), {"pointer": np.array([0, 2, 2, 3])})
    assert tasks.coordinate[:, :3].tolist() == [
        [0, 0, 0],
        [0, 0, 1],
        [0, 1, 0],
        [0, 1, 1],
        [2, 2, 0],
        [2, 2, 1],
    ]
    assert tasks.task.tolist() == [0, 1, 2, 3, 4, 5]  # position * 2 + inner
    assert tasks.event_need.tolist() == [4, 0, 2]
    for bad, message in (
        ([0, 2, 1, 3], r"pointer must never decrease, got pointer\[1\] = 2, pointer\[2\] = 1"),
        ([0, 4, 8, 10], r"pointer\[3\] must be at most the grid's bound 9, got 10"),
        ([1, 2, 3, 4], r"pointer\[0\] must be 0, got 1"),
    ):
        with pytest.raises(ProgramError, match=message):
            expand(Program("ragged", (grid,)).bind(), {"pointer": np.array(bad)})


@settings(max_examples=60, deadline=None)
@given(
    extents=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    low=st.integers(-3, 3),
    size=st.integers(0, 4),
    divisor=st.integers(1, 3),
)
def test_cells_equal_python_slices(extents, shape, low, size, divisor):
    event = EventTensor("e", shape)
    grid = TaskGrid(
        "g", kind("k", 2), extents, notifies={event: f"ab->(a//{divisor})%{shape[0]}, b+{low}:b+{low + size}"}
    )
    instance = Program("p", (grid,)).bind()
    parsed = instance.program.parsed[0]
    coordinate = np.array([[a, b, 0, 0] for a in range(extents[0]) for b in range(extents[1])])
    counts, cells = edge_cells(instance, parsed, parsed.notifies[0], coordinate, {})
    expected = [
        [(a // divisor) % shape[0] * shape[1] + y for y in range(shape[1]) if b + low <= y < b + low + size]
        for a, b in coordinate[:, :2].tolist()
    ]
    assert counts.tolist() == [len(row) for row in expected]
    assert cells.tolist() == [cell for row in expected for cell in row]


def test_several_ranges_are_a_product():
    event = EventTensor("e", (3, 2, 4))
    grid = TaskGrid("g", kind("k"), (3,), notifies={event: "i->i:i+2, :, i//2"})
    tasks = expand(Program("p", (grid,)).bind())
    cells = np.arange(24).reshape(3, 2, 4)
    for i in range(3):
        assert listed(tasks, "notify", i) == cells[i : i + 2, :, i // 2].ravel().tolist()


def test_a_symbol_may_be_called_like_a_coordinate():
    k = Symbol("k", bound=5)
    event = EventTensor("e", (2, k))
    grid = TaskGrid("g", kind("g", 3), (2, 2, 3), notifies={event: "ijk->i:"})
    other = TaskGrid("h", kind("h", 3), (2, 2, 3), notifies={EventTensor("f", (2, k)): "ijk->i,:"})
    with pytest.raises(ProgramError, match="2 dimensions"):
        Program("p", (grid,))
    tasks = expand(Program("p", (other,)).bind(k=4))
    assert np.diff(tasks.notify_ptr).tolist() == [4] * 12


def test_a_cell_outside_is_named():
    event = EventTensor("e", (2, 3))
    grid = TaskGrid("g", kind("k", 2), (2, 3), waits={event: "ij->i,j+1"})
    with pytest.raises(
        ProgramError, match=r"g, e: 'ij->i,j\+1'.*g\[0, 2\] names e\[0, 3\], outside its extents \(2, 3\)"
    ):
        expand(Program("p", (grid,)).bind())


def test_gather_must_stay_within_a_row():
    topk = Tensor("topk", (2, 3), "int32")
    event = EventTensor("e", (5,))
    grid = TaskGrid(
        "g",
        kind("k", 1, (Operand("topk", "int32", 2),)),
        (2,),
        {"topk": topk},
        notifies={event: "i->topk[i,1:i+3]"},
    )
    with pytest.raises(ProgramError, match=r"topk\[i, 1:i \+ 3\] reads elements 4:7 .* g\[1\], not within one row"):
        expand(Program("p", (grid,)).bind(), {"topk": np.zeros((2, 3), int)})


def test_reads_outside_their_tensor_are_refused():
    step = Tensor("step", (2,), "int32")
    event = EventTensor("e", (5,))
    grid = TaskGrid(
        "g",
        kind("k", 1, (Operand("step", "int32", 1),)),
        (3,),
        {"step": step},
        notifies={event: "i->step[i-1]"},
    )
    with pytest.raises(ProgramError, match=r"step\[i - 1\]: index -1 outside step's shape \(2,\)"):
        expand(Program("p", (grid,)).bind(), {"step": np.zeros(2, int)})


def test_needs_given_any_of_and_unused():
    given_, any_, idle = (
        EventTensor("given", (3,), need=5),
        EventTensor("any", (2,), any_of=True),
        EventTensor("idle", (2,)),
    )
    grids = (
        TaskGrid("a", kind("a"), (2,), notifies=[(given_, "i->i"), (any_, "i->0")]),
        TaskGrid("b", kind("b"), (2,), waits=[(given_, "i->i"), (any_, "i->0"), (idle, "i->0")]),
    )
    instance = Program("p", grids).bind()
    need = {cell_name(instance, c): int(n) for c, n in enumerate(expand(instance).event_need)}
    assert need == {
        "given[0]": 5,
        "given[1]": 5,
        "given[2]": 0,
        "any[0]": 1,
        "any[1]": 0,
        "idle[0]": 0,
        "idle[1]": 0,
    }


def test_a_grid_that_waits_for_itself_is_ordered():
    event = EventTensor("right", (6,))
    chain = TaskGrid("chain", kind("k"), (5,), waits={event: "i->i+1"}, notifies={event: "i->i"})
    tasks = expand(Program("p", (chain,)).bind())
    assert [tasks.name(row) for row in range(5)] == [f"chain[{i}]" for i in (4, 3, 2, 1, 0)]
    assert tasks.task.tolist() == [4, 3, 2, 1, 0]
    assert [listed(tasks, "wait", row) for row in range(5)] == [[5], [4], [3], [2], [1]]


def test_cyclic_tasks_keep_grid_order():
    event = EventTensor("e", (2,))
    grid = TaskGrid("g", kind("k"), (2,), waits={event: "i->i"}, notifies={event: "i->1-i"})
    tasks = expand(Program("p", (grid,)).bind())
    assert tasks.task.tolist() == [0, 1] and len(run_order(tasks)) == 0


def test_cost_callables():
    calls = []

    def rows(i, A, width):
        calls.append(np.ndim(i))
        return np.minimum(i, 3) * A.shape[1] * width

    def branch(i, A, width):  # not made for arrays
        return 1.0 if i % 2 else 2.0

    def wrong_on_arrays(i, A, width):
        return 7.0 if np.ndim(i) else float(i)

    A, w = Tensor("A", (10, 4)), Symbol("w")
    for cost, expected in (
        (rows, lambda i: min(i, 3) * 8.0),
        (branch, lambda i: 1.0 if i % 2 else 2.0),
        (wrong_on_arrays, float),
        (2.5, lambda i: 2.5),
    ):
        operands = (Operand("A"), Operand("width", ndim=0))
        grid = TaskGrid("g", kind("k", 1, operands, cost=cost), (1000,), {"A": A, "width": w})
        assert expand(Program("p", (grid,)).bind(w=2)).cost.tolist() == [expected(i) for i in range(1000)]
    assert len(calls) == 5  # once with arrays, and four probes
    bad = TaskGrid("g", kind("k", 1, cost=lambda i: -float(i)), (3,))
    with pytest.raises(ProgramError, match=r"cost of g\[1\] must be a finite number >= 0, got -1.0"):
        expand(Program("p", (bad,)).bind())


def test_many_coordinates_of_one_kind():
    event = EventTensor("e", (70_000,))
    grids = (
        TaskGrid("a", kind("a"), (70_000,), notifies={event: "i->i"}),
        TaskGrid("b", kind("b"), (70_000,), waits={event: "i->i"}),
    )
    tasks = expand(Program("p", grids).bind())
    assert tasks.name(139_999) == "b[69999]" and listed(tasks, "wait", 139_999) == [69_999]
    assert (tasks.event_need == 1).all()


def test_to_networkx_of_a_program():
    G = to_networkx(expand(split_k().bind(n=2)))
    assert set(G.edges) == {(f"parts[{i}, {j}]", f"totals[{i}]") for i in range(2) for j in range(4)}
    assert G.nodes["parts[1, 3]"] == {"kind": "part", "cost": 1.0, "grid": "parts", "coordinate": (1, 3)}
    assert G.edges["parts[1, 3]", "totals[1]"]["event"] == 1
    assert set(split_k().to_networkx(n=2).edges) == set(G.edges)


def test_tiles_that_do_not_divide():
    m = Symbol("m")
    done = EventTensor("done", (ceil_div(m, 64),))
    grids = (
        TaskGrid("tile", kind("tile"), (ceil_div(m, 64),), notifies={done: "i->i"}),
        TaskGrid("row", kind("row"), (m,), waits={done: "i->i//64"}),
    )
    tasks = expand(Program("p", grids).bind(m=130))
    assert (tasks.count, tasks.event_need.tolist()) == (3 + 130, [1, 1, 1])
    assert listed(tasks, "wait", tasks.count - 1) == [2]


def random_graph(draw_edges, n):
    edges = sorted({(min(a, b), max(a, b)) for a, b in draw_edges if a != b and max(a, b) < n})
    return TaskGraph.from_arrays([a for a, _ in edges], [b for _, b in edges], n), edges


@settings(max_examples=60, deadline=None)
@given(n=st.integers(0, 12), draw=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=40))
def test_graph_tasks_share_events_of_equal_predecessor_sets(n, draw):
    graph, edges = random_graph(draw, n)
    tasks = graph_tasks(graph)
    assert sorted(to_networkx(tasks).edges) == sorted((str(a), str(b)) for a, b in edges)
    sets = {frozenset(a for a, b in edges if b == task) for task in range(n)} - {frozenset()}
    assert tasks.events == len(sets)
    assert sorted(tasks.event_need.tolist()) == sorted(map(len, sets))
    assert len(tasks.wait_event) == len({b for _, b in edges})
    assert tasks.task.tolist() == list(range(n))
    rows = {tasks.name(row): row for row in range(n)}
    assert all(rows[str(a)] < rows[str(b)] for a, b in edges)


def test_a_bipartite_layer_costs_n_notifications_and_m_waits():
    G = nx.DiGraph((f"a{i}", f"b{j}") for i in range(50) for j in range(70))
    tasks = graph_tasks(TaskGraph.from_networkx(G))
    assert (tasks.events, len(tasks.notify_event), len(tasks.wait_event)) == (1, 50, 70)


def test_a_hash_collision_merges_nothing(monkeypatch):
    """Lists of one hash are compared element by element."""
    graph, _ = random_graph([(a, b) for a in range(6) for b in range(a + 1, 9) if (a * b) % 3], 9)
    expected = graph_tasks(graph)
    assert expected.events > 2
    monkeypatch.setattr(compressed, "hashes", lambda ptr, element: np.zeros(len(ptr) - 1, np.uint64))
    tasks = graph_tasks(graph)
    assert tasks.wait_event.tolist() == expected.wait_event.tolist()
    assert tasks.notify_event.tolist() == expected.notify_event.tolist()


def test_graph_attributes_and_names():
    G = nx.DiGraph([("c", "a")])
    G.add_node("c", kind="load", cost=3.0, priority=2.0, args=(5, 6))
    tasks = graph_tasks(TaskGraph.from_networkx(G))
    row = tasks.task_name.index("c")
    assert (tasks.kind_name[tasks.kind[row]], tasks.cost[row], tasks.priority[row]) == ("load", 3.0, 2.0)
    assert tasks.coordinate[row].tolist() == [5, 6, 0, 0] and tasks.grid_ndim == (2,)
    large = graph_tasks(TaskGraph.from_arrays([], [], 100_001))
    assert large.task_name is None and large.name(3) == "graph[]"


def test_a_cyclic_graph_is_refused():
    with pytest.raises(GraphError, match="cycle of 2 tasks: 0 -> 1 -> 0"):
        graph_tasks(TaskGraph.from_arrays([0, 1], [1, 0], 2))
