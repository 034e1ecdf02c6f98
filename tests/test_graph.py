"""TaskGraph against networkx: conversions, order, longest paths, shortest cycles, faults, files."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etproto.errors import FileFormatError, GraphError
from etproto.graph import TaskGraph

COLUMNS = ("kind", "cost", "priority", "args", "args_count", "edge_source", "edge_target")


def random_digraph(seed: int, nodes: int, edges: int, acyclic: bool = False) -> nx.DiGraph:
    random = np.random.default_rng(seed)
    G = nx.DiGraph()
    G.add_nodes_from((i, {"cost": float(c)}) for i, c in enumerate(random.integers(0, 9, nodes)))
    rank = random.permutation(nodes)
    for u, v in random.integers(0, nodes, (edges, 2)):
        if u != v:
            G.add_edge(*((u, v) if not acyclic or rank[u] < rank[v] else (v, u)))
    return G


def longest_paths(G: nx.DiGraph) -> list[float]:
    below = {}
    for node in reversed(list(nx.topological_sort(G))):
        below[node] = G.nodes[node]["cost"] + max((below[after] for after in G[node]), default=0.0)
    return [below[node] for node in G]


def test_attributes_and_input_order_come_from_networkx():
    def body():
        return None

    G = nx.DiGraph(name="tiles", time_unit="ms")
    G.add_node("b", kind="gemm", cost=2, priority=3, args=(1, 2), body=body, label="B")
    G.add_node(("a", 1), args=7)
    G.add_edges_from([(("a", 1), "b"), ("b", 3)])
    graph = TaskGraph.from_networkx(G, default_cost=5, default_kind="other")
    assert graph.names == ("b", ("a", 1), 3)
    assert graph.kind_name == ("gemm", "other")
    assert graph.kind.tolist() == [0, 1, 1]
    assert graph.cost.tolist() == [2, 5, 5]
    assert graph.priority.tolist() == [3, 0, 0]
    assert graph.args.tolist() == [[1, 2, 0, 0], [7, 0, 0, 0], [0, 0, 0, 0]]
    assert graph.args_count.tolist() == [2, 1, 0]
    assert graph.bodies == (body, None, None)
    assert graph.labels == ("B", "('a', 1)", "3")
    assert list(zip(graph.edge_source, graph.edge_target, strict=True)) == [(0, 2), (1, 0)]
    assert (graph.name, graph.time_unit, graph.count, graph.edges) == ("tiles", "ms", 3, 2)
    assert graph.kind.dtype == graph.args.dtype == graph.edge_source.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        graph.cost[0] = 1


def test_tensors_and_operands_are_handed_on():
    operands = {"gemm": {"a": "A"}}
    graph = TaskGraph.from_networkx(nx.DiGraph([(0, 1)]), tensors=["A", "B"], operands=operands)
    assert graph.tensors == ("A", "B")
    assert graph.operands == operands


names = st.one_of(st.text(max_size=5), st.integers(), st.tuples(st.integers(), st.text(max_size=2)), st.booleans())
attributes = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["gemm", "potrf", "task"]),
        "cost": st.floats(0, 1e9),
        "priority": st.floats(-1e9, 1e9),
        "args": st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=4).map(tuple),
        "label": st.text(max_size=4),
    },
)


@given(nodes=st.dictionaries(names, attributes, max_size=8), data=st.data())
@settings(max_examples=60, deadline=None)
def test_networkx_round_trip(nodes, data):
    G = nx.DiGraph()
    G.add_nodes_from(nodes.items())
    if nodes:
        node = st.sampled_from(list(nodes))
        G.add_edges_from(data.draw(st.lists(st.tuples(node, node), max_size=20)))
    graph = TaskGraph.from_networkx(G)
    H = graph.to_networkx()
    assert list(H) == list(G)
    assert list(H.edges) == list(G.edges)
    for node, given_attributes in G.nodes(data=True):
        assert given_attributes.items() <= H.nodes[node].items()
    again = TaskGraph.from_networkx(H)
    assert again.names == graph.names
    assert again.labels == graph.labels
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(again, column), getattr(graph, column))


@pytest.mark.parametrize("seed", range(30))
def test_order_and_longest_paths_equal_networkx(seed):
    G = random_digraph(seed, nodes=40, edges=(seed + 1) * 4, acyclic=True)
    graph = TaskGraph.from_networkx(G)
    generations = [sorted(generation) for generation in nx.topological_generations(G)]
    assert graph.topological_order().tolist() == list(itertools.chain(*generations))
    assert graph.bottom_levels().tolist() == longest_paths(G)
    assert graph.critical_path() == max(longest_paths(G))
    assert graph.validate() == []
    assert graph.shortest_cycle() is None


def test_wide_and_thin_graphs_take_the_same_order():
    """Layers of a hundred tasks, then a chain of thousands."""
    random = np.random.default_rng(0)
    wide, thin = 40 * 100, 3000
    source = [random.integers(0, 100, 100) + 100 * layer for layer in range(39)] + [np.arange(thin - 1) + wide]
    target = [np.arange(100) + 100 * (layer + 1) for layer in range(39)] + [np.arange(thin - 1) + wide + 1]
    source, target = np.concatenate(source), np.concatenate(target)
    both = TaskGraph.from_arrays(source, target, wide + thin, cost=random.integers(0, 9, wide + thin))
    G = nx.DiGraph()
    G.add_nodes_from((i, {"cost": c}) for i, c in enumerate(both.cost.tolist()))
    G.add_edges_from(zip(source.tolist(), target.tolist(), strict=True))
    generations = [sorted(generation) for generation in nx.topological_generations(G)]
    assert both.topological_order().tolist() == list(itertools.chain(*generations))
    assert both.bottom_levels().tolist() == longest_paths(G)
    layers = TaskGraph.from_arrays(source[:3900], target[:3900], wide, cost=both.cost[:wide])
    assert layers.bottom_levels().tolist() == longest_paths(G)[:wide]


@pytest.mark.parametrize("seed", range(120))
def test_shortest_cycle_equals_brute_force(seed):
    nodes = 3 + seed % 8
    G = random_digraph(seed, nodes, edges=2 + seed % 17)
    cycles = list(nx.simple_cycles(G))
    cycle = TaskGraph.from_networkx(G).shortest_cycle()
    if not cycles:
        assert cycle is None
        return
    assert len(cycle) == min(map(len, cycles))
    assert cycle[0] == min(cycle)
    order = list(G)
    assert all(G.has_edge(order[u], order[v]) for u, v in zip(cycle, cycle[1:] + cycle[:1], strict=True))


@pytest.mark.parametrize("chord", [False, True])
def test_shortest_cycle_of_a_ring_of_5000(chord):
    ring = np.random.default_rng(3).permutation(5000)
    source, target = ring.tolist(), np.roll(ring, -1).tolist()
    if chord:  # from place 1200 back to place 200
        source, target = [*source, int(ring[1200])], [*target, int(ring[200])]
    cycle = TaskGraph.from_arrays(source, target, 5000).shortest_cycle()
    assert sorted(cycle) == sorted(ring[200:1201] if chord else ring)
    edges = set(zip(source, target, strict=True))
    assert all(pair in edges for pair in zip(cycle, cycle[1:] + cycle[:1], strict=True))


def test_cycle_is_named_in_validate_and_in_what_is_raised():
    G = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a"), ("x", "a"), ("c", "y")])
    graph = TaskGraph.from_networkx(G)
    assert graph.validate() == ["cycle of 3 tasks: a -> b -> c -> a"]
    for refuse in (graph.require_valid, graph.topological_order, graph.bottom_levels, graph.critical_path):
        with pytest.raises(GraphError, match="^cycle of 3 tasks: a -> b -> c -> a$"):
            refuse()
    assert "not an acyclic graph" in str(graph)


def test_cycle_shows_labels_beside_names():
    G = nx.DiGraph([("p1", "p2"), ("p2", "p1")])
    G.nodes["p1"]["label"] = "do\nsecond line"
    assert TaskGraph.from_networkx(G).validate() == ["cycle of 2 tasks: p1 -> p2 -> p1 (labelled do -> p2 -> do)"]


def test_self_loop_is_a_cycle_of_one_and_does_not_hide_a_longer_one():
    G = nx.DiGraph([("a", "b"), ("b", "b"), ("b", "c"), ("c", "a")])
    graph = TaskGraph.from_networkx(G)
    assert graph.shortest_cycle() == [1]
    assert graph.validate() == ["cycle of 1 task (self loop): b -> b", "cycle of 3 tasks: a -> b -> c -> a"]
    assert TaskGraph.from_networkx(nx.DiGraph([(0, 0)])).validate() == ["cycle of 1 task (self loop): 0 -> 0"]


@pytest.mark.parametrize("end", [-1, 2, 99])
def test_edge_to_a_missing_task_is_named(end):
    graph = TaskGraph.from_arrays([0, 1], [1, end], 2, names=["a", "b"])
    (fault,) = graph.validate()
    assert f"edge to a missing node: b -> task number {end} (edge 1; the graph has 2 tasks" in fault
    for refuse in (graph.require_valid, graph.topological_order, graph.to_networkx):
        with pytest.raises(GraphError, match="missing node"):
            refuse()


def test_duplicate_edges_of_a_program_are_refused():
    graph = TaskGraph.from_arrays([0, 0, 1, 0], [1, 2, 2, 1], 3, names="abc")
    assert graph.validate() == ["duplicate edge a -> b (edge 3)"]
    with pytest.raises(GraphError, match="duplicate edge a -> b"):
        graph.to_networkx()
    M = nx.MultiDiGraph([("a", "b"), ("b", "c"), ("b", "c")])
    with pytest.raises(GraphError, match="duplicate edge b -> c: expected it once, got it 2 times"):
        TaskGraph.from_networkx(M)
    assert TaskGraph.from_networkx(nx.MultiDiGraph([("a", "b"), ("b", "c")])).edges == 2


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"cost": [1, -1]}, "task b: cost: expected a finite number >= 0, got -1.0"),
        ({"cost": [math.nan, 1]}, "task a: cost: expected a finite number >= 0, got nan"),
        ({"cost": [math.inf, 1]}, "task a: cost: expected a finite number >= 0, got inf"),
        ({"priority": [0, math.nan]}, "task b: priority: expected a finite number, got nan"),
        ({"kind": [0, 1]}, "task b: kind: expected 0 to 0, got 1"),
        ({"args": [[1], [1]], "args_count": [1, 5]}, "task b: args: expected 0 to 4 numbers, got 5"),
        ({"args": [[1, 2], [1, 2]], "args_count": [2, 1]}, "task b: args: expected zeros after the first 1"),
        ({"names": ["b", "b"]}, "name b: expected one task, got 2"),
    ],
)
def test_faulty_columns_are_named(columns, text):
    graph = TaskGraph.from_arrays([0], [1], 2, **({"names": "ab"} | columns))
    (fault,) = graph.validate()
    assert fault.startswith(text)
    with pytest.raises(GraphError, match="expected"):
        graph.require_valid()


def test_many_faults_of_one_sort_are_cut_and_counted():
    faults = TaskGraph.from_arrays([], [], 1000, cost=np.full(1000, -1)).validate()
    assert len(faults) == 11
    assert faults[-1].startswith("and 990 more tasks like")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([0], [1, 0], 2), r"edge_target: expected shape \(1,\), got \(2,\)"),
        (([0.5], [1], 2), "edge_source: expected whole numbers, got float64"),
        (([0], [2**31], 2), "edge_target: expected 32-bit integers"),
        (([0], ["1"], 2), "edge_target: expected whole numbers"),
    ],
)
def test_edges_that_cannot_be_held_are_refused(arguments, text):
    with pytest.raises(GraphError, match=text):
        TaskGraph.from_arrays(*arguments)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"cost": [1.0]}, r"cost: expected shape \(2,\), got \(1,\)"),
        ({"cost": ["a", "b"]}, "cost: expected numbers"),
        ({"args": [[1] * 5] * 2}, "args: expected at most 4 numbers a task, got 5"),
        ({"args": [[1], [1, 2]]}, "args: expected an array .* ragged"),
        ({"names": ["a"]}, "names: expected 2, one a task, got 1"),
        ({"time_unit": "hours"}, "time_unit: expected one of .*, got 'hours'"),
    ],
)
def test_columns_that_cannot_be_held_are_refused(columns, text):
    with pytest.raises(GraphError, match=text):
        TaskGraph.from_arrays([0], [1], 2, **columns)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"cost": "fast"}, "cost of task a: expected a number, got 'fast'"),
        ({"priority": None}, "priority of task a: expected a number, got None"),
        (
            {"args": (1, 2, 3, 4, 5)},
            r"args of task a: expected an int or up to four 32-bit ints, got \(1, 2, 3, 4, 5\)",
        ),
        ({"args": 1.5}, "args of task a: .* got 1.5"),
        ({"args": "12"}, "args of task a: .* got '12'"),
        ({"args": 2**31}, "args of task a: .* got 2147483648"),
        ({"body": 3}, "body of task a: expected a callable, got 3"),
    ],
)
def test_node_attributes_of_the_wrong_type_are_refused(attributes, text):
    G = nx.DiGraph()
    G.add_node("a", **attributes)
    with pytest.raises(GraphError, match=text):
        TaskGraph.from_networkx(G)


def test_undirected_graph_is_refused():
    with pytest.raises(GraphError, match="Graph: expected a directed graph, got an undirected one"):
        TaskGraph.from_networkx(nx.Graph([(0, 1)]))


def test_empty_graph():
    graph = TaskGraph.from_networkx(nx.DiGraph())
    assert graph.validate() == []
    assert graph.topological_order().tolist() == []
    assert graph.critical_path() == 0
    assert graph.shortest_cycle() is None
    assert str(graph) == "graph: 0 tasks, 0 edges, critical path 0 us"


def test_text_is_short_for_many_kinds_and_counts_one_right():
    graph = TaskGraph.from_arrays([0], [1], 9, kind=range(9), kind_name=[f"k{i}" for i in range(9)], name="g")
    assert str(graph) == "g: 9 tasks (k0 1, k1 1, k2 1, k3 1, k4 1, k5 1, ...), 1 edge, critical path 2 us"


def test_save_and_load(tmp_path):
    G = random_digraph(1, 20, 40)
    nx.set_node_attributes(G, {0: (1, 2), 3: (4,)}, "args")
    nx.set_node_attributes(G, {2: "gemm"}, "kind")
    graph = TaskGraph.from_networkx(G, name="é", time_unit="s")
    graph.save(tmp_path / "graph.npz")
    loaded = TaskGraph.load(tmp_path / "graph.npz")
    assert loaded.names == tuple(map(repr, graph.names))
    assert (loaded.name, loaded.time_unit, loaded.kind_name, loaded.labels) == (
        "é",
        "s",
        ("task", "gemm"),
        None,
    )
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(loaded, column), getattr(graph, column))


def test_save_refuses_names_that_become_one(tmp_path):
    with pytest.raises(GraphError, match="got several that read '1'"):
        TaskGraph.from_arrays([], [], 2, names=[1, "1"]).save(tmp_path / "graph.npz")


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04broken"])
def test_load_refuses_other_files(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"x\.npz: expected a graph saved by TaskGraph\.save"):
        TaskGraph.load(tmp_path / "x.npz")


def test_load_refuses_an_archive_of_other_arrays(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.arange(3))
    with pytest.raises(FileFormatError, match="expected a graph saved by"):
        TaskGraph.load(tmp_path / "x.npz")
