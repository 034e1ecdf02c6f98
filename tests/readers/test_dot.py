"""DOT: the graph language, its faults, and files whose nodes and edges Graphviz itself has counted."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etproto.errors import FileFormatError, GraphError
from etproto.readers import dot, read_graph

CYCLIC = {
    "conditional-tasking-1": "cond -> cond",
    "conditional-tasking-2": "labelled B -> C -> D -> cond_1 -> B",
    "conditional-tasking-do-while": "p0x7f950d600140 -> p0x7f950d600250 -> p0x7f950d600140",
    "conditional-tasking-while": "cycle of 3 tasks",
    "conditional-tasking-while-wrong": "cycle of 2 tasks",
    "conditional-tasking-pitfalls": "e1A -> e1A",
    "dreamplace_3": "cycle of 4 tasks",
    "starpu_cholesky_codelets": "GEMM -> GEMM",
}


def edges(text: str) -> list[tuple]:
    return sorted(dot.parse(text, "x.dot").to_networkx().edges)


@pytest.mark.parametrize(
    ("name", "nodes", "edge_count"),
    [
        ("taskflow/fibonacci_7", 15, 14),
        ("taskflow/composition", 6, 3),
        ("taskflow/conditional-tasking-pitfalls", 21, 18),
        ("starpu_cholesky_codelets", 6, 9),
    ],
)
def test_counts_are_those_of_graphviz(shared_data, name, nodes, edge_count):
    graph = read_graph(shared_data / "dot" / f"{name}.dot")
    assert (graph.count, graph.edges) == (nodes, edge_count)


@pytest.mark.filterwarnings("ignore:.*merged 16 duplicate edges:UserWarning")
def test_cyclic_files_are_refused_by_name_and_all_others_are_right(shared_data):
    files = sorted((shared_data / "dot").rglob("*.dot"))
    assert len(files) == 20
    for path in files:
        graph = read_graph(path)
        if path.stem in CYCLIC:
            with pytest.raises(GraphError, match=re.escape(CYCLIC[path.stem])):
                graph.require_valid()
        else:
            assert graph.validate() == [], path


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a -> b -> c", [("a", "b"), ("b", "c")]),
        ("a->b;b->c;;", [("a", "b"), ("b", "c")]),
        ("a -> b a -> c", [("a", "b"), ("a", "c")]),
        ("a -> {b c} -> d", [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]),
        ("subgraph s {a b} -> subgraph {c}", [("a", "c"), ("b", "c")]),
        ("subgraph cluster_1 { a -> b subgraph cluster_2 { b -> c } }", [("a", "b"), ("b", "c")]),
        ("subgraph s {a} subgraph s {b} -> c", [("a", "c"), ("b", "c")]),
        ("{a -> b} -> c", [("a", "b"), ("a", "c"), ("b", "c")]),
        ("{} -> a", []),
        ("a, b -> c, d", [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")]),
        ("a:out -> b:in:nw", [("a", "b")]),
        ('"a b" -> "c\\"d" [label="->"]', [("a b", 'c"d')]),
        ('"a" + "b" -> "c\\\nd"', [("ab", "cd")]),
        ('"a\\n" -> "b\\\\"', [("a\\n", "b\\\\")]),
        ("a -> 1 -> -.5 -> 2.5", [("-.5", "2.5"), ("1", "-.5"), ("a", "1")]),
        ("a -> b // c -> d\n/* e -> f\n */ # no directive\n", None),
        ('a -> b // c -> d\n/* e -> f\n */\n# 1 "line"\nc -> d', [("a", "b"), ("c", "d")]),
        ("a -> <b <i>x</i> <!-- > --> >", [("a", "<b <i>x</i> <!-- > --> >")]),
        ("rankdir=LR; a=b c -> d", [("c", "d")]),
        ("graph [a=b][c]; edge [x=1, y=2; z=3] NODE [] a -> b [k=v][]", [("a", "b")]),
        ('"node" -> "graph"', [("node", "graph")]),
        ("é -> \u2192x", [("é", "\u2192x")]),
    ],
)
def test_language(body, expected):
    text = f"digraph g {{{body}}}"
    if expected is None:
        with pytest.raises(FileFormatError, match=r"x\.dot:3: expected an id or one of"):
            dot.parse(text, "x.dot")
    else:
        assert edges(text) == expected


@pytest.mark.parametrize("head", ["digraph", "DiGraph G", 'strict digraph "a b"', "digraph 7", "\ufeffdigraph"])
def test_heads(head):
    assert edges(f"{head} {{ a -> b }}") == [("a", "b")]


def test_attributes_and_defaults():
    graph = dot.parse(
        """digraph tiles {
          early
          node [cost=2, kind=gemm]
          a [label="tile\\nof \\N\\l" priority="7" args="2, 1"]
          subgraph cluster_x { node [cost=3] b; a }
          subgraph cluster_x { later }
          c [weight=9 cost=4] d [args=5, label=<<b>x</b>>]
          a [kind=potrf]
          early -> a
        }""",
        "x.dot",
    )
    attributes = dict(graph.to_networkx().nodes(data=True))
    assert attributes["early"] == {"kind": "task", "cost": 1.0, "priority": 0.0, "label": "early"}
    assert attributes["a"] == {
        "kind": "potrf",
        "cost": 2.0,
        "priority": 7.0,
        "args": (2, 1),
        "label": "tile\nof a",
    }
    assert [attributes[name]["cost"] for name in ("b", "later", "c", "d")] == [3, 3, 4, 2]
    assert attributes["d"]["args"] == (5,)
    assert attributes["d"]["label"] == "d"
    assert graph.name == "tiles"


def test_weight_is_a_cost_of_nodes_without_one():
    assert dot.parse("digraph { a [weight=3] a -> b [weight=9] }", "x.dot").cost.tolist() == [3, 1]


def test_name_falls_back_to_the_file():
    assert dot.parse("digraph {}", "dir/x.dot").name == "x"


def test_duplicate_edges_warn_unless_strict():
    with pytest.warns(UserWarning, match=r"x\.dot: merged 1 duplicate edge, first a -> b"):
        assert edges("digraph { a -> b; a -> c; a -> b }") == [("a", "b"), ("a", "c")]
    assert edges("strict digraph { a -> b; a -> c; a -> b }") == [("a", "b"), ("a", "c")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.dot:1: expected 'digraph' or 'strict digraph', got the end of the file"),
        (
            "graph {\n a -- b }",
            "x.dot:1: expected 'digraph', since the edges of an undirected graph order nothing",
        ),
        ("digraph {\n a -- b }", "x.dot:2: expected '->' in a directed graph, got '--'"),
        ("digraph {\n a -> }", "x.dot:2: expected a node, a subgraph, .* got '}'"),
        ("digraph {\n\n a -> b", "x.dot:3: expected '}' for the '{' of line 1, got the end of the file"),
        ("digraph {} digraph {}", "x.dot:1: expected one graph and then the end of the file, got 'digraph'"),
        ("digraph {\n a [cost=fast] }", "x.dot:2: expected a number as cost, got 'fast'"),
        ("digraph {\n\n a [args=x] }", "x.dot:3: expected up to four whole numbers as args, got 'x'"),
        ('digraph { a [args="1 2 3 4 5"] }', "x.dot: args of task a: expected an int or up to four"),
        ("digraph { a [color= ] }", "x.dot:1: expected the value of attribute 'color', got ']'"),
        ("digraph { a [=b] }", "x.dot:1: expected an attribute or ']', got '='"),
        ("digraph { a [b=c", "x.dot:1: expected an attribute or ']', got the end of the file"),
        ("digraph { a: }", "x.dot:1: expected a port, got '}'"),
        ("digraph { a, }", "x.dot:1: expected a node after ',', got '}'"),
        ("digraph { a = }", "x.dot:1: expected the value of an attribute, got '}'"),
        ("digraph { node a }", "x.dot:1: expected '\\[' after 'node', got 'a'"),
        ("digraph {\n 12ab }", "x.dot:2: expected a quoted id, since it begins with a digit, got '12ab'"),
        ('digraph { "a" + b }', "x.dot:1: expected a quoted string after '\\+', got 'b'"),
        ('digraph {\n "abc\n }', "x.dot:2: expected a closing quote"),
        ("digraph {\n /* abc\n }", "x.dot:2: expected a comment"),
        ("digraph {\n <b> -> <i }", "x.dot:2: expected the > that closes an HTML string"),
        ("digraph { a @ b }", "x.dot:1: expected an id or one of"),
        ("digraph " + "{" * 250 + "}" * 250, "x.dot:1: expected subgraphs nested at most 200 deep"),
        ("subgraph { }", "x.dot:1: expected 'digraph' or"),
    ],
)
def test_faults_name_file_line_and_what_was_expected(text, message):
    with pytest.raises(FileFormatError, match=f"^{message}"):
        dot.parse(text, "x.dot")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '\\"') + '"'


# A lone backslash before a quote or a line end cannot be written in DOT; pairs, and before letters, can.
nasty = st.lists(
    st.one_of(
        st.sampled_from(['"', "->", "{", "}", "<", ">", "//", "/*", "#", "\n", "\\\\", "\\n", "\\N", "node", "é", "+"]),
        st.characters(exclude_characters='\\"\0\r', exclude_categories=["Cs"]),
    ),
    max_size=6,
).map("".join)


@given(
    names=st.lists(nasty, min_size=1, max_size=6, unique=True),
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12, unique=True),
    costs=st.lists(st.floats(0, 1e6), min_size=6, max_size=6),
    separators=st.lists(
        st.sampled_from([";", " ", "\n", ";\n", " /* - */ ", "\n# c\n", " // c\n"]), min_size=20, max_size=20
    ),
    clustered=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_round_trip_of_generated_graphs(names, pairs, costs, separators, clustered):
    wanted = [(names[s % len(names)], names[t % len(names)]) for s, t in pairs]
    wanted = list(dict.fromkeys(wanted))
    statements = [f'{quoted(name)} [cost="{cost!r}"]' for name, cost in zip(names, costs, strict=False)]
    statements += [f"{quoted(s)} -> {quoted(t)}" for s, t in wanted]
    body = "".join(s + gap for s, gap in zip(statements, separators, strict=False))
    text = f"digraph {{ subgraph cluster_0 {{ {body} }} }}" if clustered else f"digraph {{\n{body}}}"
    graph = dot.parse(text, "x.dot")
    assert graph.names == tuple(names)
    assert sorted(graph.to_networkx().edges) == sorted(wanted)
    assert graph.cost.tolist() == costs[: len(names)]
