"""GraphML: what networkx writes comes back; what it would let pass is refused with its line."""

from __future__ import annotations

import networkx as nx
import pytest

from etproto.errors import FileFormatError
from etproto.readers import graphml, read_graph

HEAD = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="c" for="node" attr.name="cost" attr.type="{}"/>
"""


def document(body: str, edgedefault: str = "directed", cost_type: str = "double") -> str:
    return HEAD.format(cost_type) + f'<graph edgedefault="{edgedefault}">\n{body}\n</graph></graphml>'


def test_what_networkx_writes_comes_back(tmp_path):
    G = nx.DiGraph(name="tiles", time_unit="ms")
    G.add_node("b", cost=2, kind="gemm", args="2, 1", label="B")
    G.add_node("a", weight=1.5, priority=3)
    G.add_edges_from([("b", "a"), ("a", "é <&>")])
    nx.write_graphml(G, tmp_path / "g.graphml")
    graph = read_graph(tmp_path / "g.graphml")
    assert list(graph.to_networkx().edges) == list(G.edges)
    assert graph.names == tuple(G)
    assert graph.cost.tolist() == [2, 1.5, 1]
    assert graph.priority.tolist() == [0, 3, 0]
    assert graph.args[0].tolist() == [2, 1, 0, 0]
    assert graph.kind_name == ("gemm", "task")
    assert graph.labels == ("B", "a", "é <&>")
    assert graph.time_unit == "ms"


def test_nodes_keep_their_order_and_edges_may_come_first():
    body = '<edge source="z" target="a"/><node id="z"/><node id="a"><data key="c">4</data></node>'
    graph = graphml.parse(document(body), "dir/x.graphml")
    assert (graph.names, graph.cost.tolist(), graph.edges, graph.name) == (("z", "a"), [1, 4], 1, "x")


def test_duplicate_edges_are_merged_with_a_warning():
    edge = '<edge source="a" target="b"/>'
    with pytest.warns(UserWarning, match=r"x\.graphml: merged 1 duplicate edge, first a -> b"):
        graph = graphml.parse(document(f'<node id="a"/><node id="b"/>{edge}{edge}'), "x.graphml")
    assert graph.edges == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x:1: expected XML, got no element found"),
        ("<graphml>\n<graph", "x:2: expected XML"),
        ("<graphml/>", "x:1: expected a <graph> inside <graphml>, got none"),
        (
            document("", "undirected"),
            'x:3: expected edgedefault="directed", since an undirected edge orders nothing',
        ),
        ("<graphml><graph/></graphml>", "x:1: expected an attribute 'edgedefault' in <graph>, got none"),
        (document('<node id="a"/>\n<node id="a"/>'), "x:5: expected an id not used before, got 'a'"),
        (
            document('<node id="a"/>\n<edge source="a" target="b"/>'),
            "x:5: expected the id of a node, got missing node 'b'",
        ),
        (document('<node id="a"/>\n<edge source="a"/>'), "x:5: expected an attribute 'target' in <edge>"),
        (
            document('<node id="a"/><edge directed="false" source="a" target="a"/>'),
            "x:4: expected a directed edge",
        ),
        (document('<node id="a"><graph edgedefault="directed"/></node>'), "x:4: expected one flat <graph>"),
        (document("<hyperedge/>"), "x:4: expected nodes and edges only, got <hyperedge>"),
        (
            document('<node id="a"><data key="c">x</data></node>', cost_type="string"),
            "x:4: expected a number as cost, got 'x'",
        ),
        (document('<node id="a"><data key="c">x</data></node>'), "x: expected GraphML that networkx reads"),
        (document('<node id="a"><data key="?">x</data></node>'), "x: expected GraphML that networkx reads"),
    ],
)
def test_faults_name_file_line_and_what_was_expected(text, message):
    with pytest.raises(FileFormatError, match=f"^{message}"):
        graphml.parse(text, "x")


def test_self_loop_is_read_and_then_refused():
    graph = graphml.parse(document('<node id="a"/><edge source="a" target="a"/>'), "x")
    assert graph.validate() == ["cycle of 1 task (self loop): a -> a"]
