"""Node-link JSON: what networkx writes comes back, by either key of the edges; faults name the JSON path."""

from __future__ import annotations

import json

import networkx as nx
import pytest

from etproto.errors import FileFormatError
from etproto.readers import node_link, read_graph


@pytest.mark.parametrize("edges", ["links", "edges"])
def test_what_networkx_writes_comes_back(tmp_path, edges):
    G = nx.DiGraph(name="tiles", time_unit="s")
    G.add_node((0, "b"), cost=2, kind="gemm", args=[2, 1])
    G.add_node(7, weight=1.5, priority=3, args=4)
    G.add_edges_from([((0, "b"), 7), (7, "c")])
    (tmp_path / "g.json").write_text(json.dumps(nx.node_link_data(G, edges=edges)))
    graph = read_graph(tmp_path / "g.json")
    assert graph.names == tuple(G)
    assert list(graph.to_networkx().edges) == list(G.edges)
    assert graph.cost.tolist() == [2, 1.5, 1]
    assert graph.priority.tolist() == [0, 3, 0]
    assert graph.args.tolist() == [[2, 1, 0, 0], [4, 0, 0, 0], [0, 0, 0, 0]]
    assert (graph.name, graph.time_unit) == ("tiles", "s")


def test_duplicate_edges_of_a_multigraph_are_merged_with_a_warning():
    M = nx.MultiDiGraph([("a", "b"), ("b", "c"), ("a", "b"), ("a", "b")])
    with pytest.warns(UserWarning, match=r"x\.json: merged 2 duplicate edges, first a -> b"):
        graph = node_link.parse(json.dumps(nx.node_link_data(M, edges="edges")), "dir/x.json")
    assert sorted(graph.to_networkx().edges) == [("a", "b"), ("b", "c")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"nodes": [],\n\n "links": [}', "x:3: expected JSON, got '}'"),
        ('{"nodes": [', "x:1: expected JSON, got 'the end of the file'"),
        ("[" * 100000, "x: expected JSON, got arrays or objects nested too deeply"),
        ("[]", r"x: at \$: expected an object, got list"),
        ('{"nodes": {}}', r"x: at \$\.nodes: expected an array, got {}"),
        ('{"nodes": []}', r"x: at \$: expected the key 'edges', got only 'nodes'"),
        ('{"directed": false, "nodes": [], "links": []}', r"x: at \$\.directed: expected true"),
        ('{"nodes": [3], "links": []}', r"x: at \$\.nodes\[0\]: expected an object, got int"),
        (
            '{"nodes": [{"name": 1}], "links": []}',
            r"x: at \$\.nodes\[0\]: expected the key 'id', got only 'name'",
        ),
        ('{"nodes": [{"id": {}}], "links": []}', r"x: at \$\.nodes\[0\]\.id: expected a string, a number or"),
        (
            '{"nodes": [{"id": [1, {}]}], "links": []}',
            r"x: at \$\.nodes\[0\]\.id: expected a string, a number or",
        ),
        (
            '{"nodes": [{"id": 1}, {"id": 1}], "links": []}',
            r"x: at \$\.nodes\[1\]\.id: expected an id not used before",
        ),
        (
            '{"nodes": [{"id": 1}], "edges": [{"source": 1, "target": 2}]}',
            r"x: at \$\.edges\[0\]\.target: expected the id of a node, got missing node 2",
        ),
        (
            '{"nodes": [{"id": 1, "cost": "x"}], "links": []}',
            r"x: at \$\.nodes\[0\]: expected a number as cost, got 'x'",
        ),
        (
            '{"nodes": [{"id": 1, "args": [1.5]}], "links": []}',
            r"x: at \$\.nodes\[0\]: expected up to four whole numbers",
        ),
        (
            '{"nodes": [{"id": 1, "args": [1,2,3,4,5]}], "links": []}',
            "x: args of task 1: expected an int or up to four",
        ),
        (
            '{"graph": {"time_unit": "days"}, "nodes": [], "links": []}',
            "x: time_unit: expected one of .* got 'days'",
        ),
    ],
)
def test_faults_name_file_place_and_what_was_expected(text, message):
    with pytest.raises(FileFormatError, match=f"^{message}"):
        node_link.parse(text, "x")
