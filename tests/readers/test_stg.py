"""STG: every dialect, every fault with its line, and the two archives of random graphs."""

from __future__ import annotations

import io
import tarfile

import networkx as nx
import pytest

from etproto.errors import FileFormatError
from etproto.readers import read_graph, read_stg_archive, stg

ROWS = "0 0 0\n1 5 1 0\n2 7 1 0\n3 2.5 2 1 2\n4 0 1 3"
COMMENT = """# Standard Task Graph Set Project
#   Tasks             : 3 (+dummy tasks : 2)
#   Edges             : 3 / 3 (+dummy edges : 2)
# CP Length           : 9.5
"""
EDGES = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]


@pytest.mark.parametrize(
    "text",
    [
        f"3\n{ROWS}\n{COMMENT}",
        f"5\n{ROWS}\n",  # edited copies count the dummies
        f"   3  \n\n{ROWS}{COMMENT}",  # the comment begins on the last row's line
        f"3\r\n{ROWS} {COMMENT}".replace("\n", "\r\n"),
        f"# a comment first\n3 # tasks\n{ROWS}",
    ],
)
def test_dialects_with_both_dummies(text):
    graph = stg.parse(text, "dir/five.stg")
    G = graph.to_networkx()
    assert graph.names == (0, 1, 2, 3, 4)
    assert sorted(G.edges) == EDGES
    assert graph.cost.tolist() == [0, 5, 7, 2.5, 0]
    assert (graph.name, graph.time_unit) == ("five", "unit")
    assert graph.critical_path() == 9.5


@pytest.mark.parametrize("dummy", ["", "4 0 2 2 3\n"])
def test_prototype_dialect(dummy):
    """The second number is that of processors; ids start at 1, and there is no entry dummy."""
    graph = stg.parse(f"     3     2\n     1    14     0\n     2    20     1     1\n     3 1 1 1\n{dummy}", "p.stg")
    assert graph.names == (1, 2, 3, 4)[: graph.count]
    assert sorted(graph.to_networkx().edges) == [(1, 2), (1, 3)] + [(2, 4), (3, 4)] * bool(dummy)
    assert graph.critical_path() == 34


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.stg:1: expected a header with the number of tasks, got no row at all"),
        ("1 2 3\n", "x.stg:1: expected a header of one number, or two"),
        ("three\n", r"x.stg:1: expected the number of tasks \(a whole number\), got three"),
        ("3\n0 0 0\n", "x.stg:2: expected 5 or 3 rows after the header 3, got 1"),
        ("1\n0 0 0\n1 5\n2 0 1 1", "x.stg:3: expected a row of id, cost, .* got 1 5"),
        ("1\n0 0 0\n2 5 1 0\n2 0 1 1", "x.stg:3: expected task id 1, got 2"),
        ("1\n0 0 0\n1 -5 1 0\n2 0 1 1", "x.stg:3: expected a processing time >= 0, got -5"),
        ("1\n0 0 0\n1 nan 1 0\n2 0 1 1", "x.stg:3: expected a processing time >= 0, got nan"),
        ("1\n0 0 0\n1 5 2 0\n2 0 1 1", "x.stg:3: expected 2 predecessors, got 1"),
        ("1\n0 0 0\n1 5 1 9\n2 0 1 1", "x.stg:3: expected a predecessor's id from 0 to 2, got 9"),
        ("1\n0 0 0\n1 5 1 -1\n2 0 1 1", "x.stg:3: expected a predecessor's id .* got -1"),
        ("2 1\n1 5 0\n2 5 1 0\n", "x.stg:3: expected a predecessor's id from 1 to 2, got 0"),
        (
            "1\n0 0 0\n1 5 1 0\n2 0 1 1\n# Tasks : 2 (+dummy tasks : 2)",
            "x.stg:5: expected 3 tasks as in the rows",
        ),
        ("1\n0 0 0\n1 5 1 0\n2 0 1 1 # Edges : 9 / 12", "x.stg:4: expected 2 edges .* got Edges : 9"),
        ("1\n0 0 0\n1 5 1 0\n2 0 1 1\n\n# CP Length : 6", "x.stg:6: expected CP Length 5 .* got 6"),
    ],
)
def test_faults_name_file_line_and_what_was_expected(text, message):
    with pytest.raises(FileFormatError, match=f"^{message}"):
        stg.parse(text, "x.stg")


def test_cycle_is_read_and_then_refused():
    graph = stg.parse("2\n0 0 0\n1 5 1 2\n2 7 1 1\n3 0 1 2\n# CP Length : 12", "x.stg")
    assert graph.validate() == ["cycle of 2 tasks: 1 -> 2 -> 1"]


def test_duplicate_predecessors_are_merged_with_one_warning():
    with pytest.warns(UserWarning, match=r"x\.stg: merged 2 duplicate edges, first 0 -> 1") as warned:
        graph = stg.parse("1\n0 0 0\n1 5 3 0 0 0\n2 0 1 1", "x.stg")
    assert len(warned) == 1
    assert graph.edges == 2
    assert graph.validate() == []


@pytest.mark.parametrize("tasks", [50, 100])
def test_archives(shared_data, tasks):
    """`parse` compares each graph with its comment block: tasks, edges, critical path."""
    graphs = list(read_stg_archive(shared_data / "stg" / f"stg_rand_{tasks}.tar.gz"))
    assert len(graphs) == 180
    assert {graph.count for graph in graphs} == {tasks + 2}
    assert graphs[0].name == f"{tasks}/rand0000.stg"
    for graph in graphs:
        assert graph.validate() == []
        assert graph.cost[[0, -1]].tolist() == [0, 0]
        G = graph.to_networkx()
        assert [n for n in G if not G.in_degree(n)] == [0]
        weighted = [(u, v, G.nodes[v]["cost"]) for u, v in G.edges]
        longest = nx.DiGraph()
        longest.add_weighted_edges_from(weighted)
        assert graph.critical_path() == nx.dag_longest_path_length(longest)


def test_archive_members_that_are_not_stg_are_passed_over(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in ("readme.txt", "one.stg"):
            info = tarfile.TarInfo(name)
            info.size = len(ROWS) + 2
            archive.addfile(info, io.BytesIO(b"3\n" + ROWS.encode()))
        archive.addfile(tarfile.TarInfo("../escape"))
    assert [graph.name for graph in read_stg_archive(tmp_path / "a.tar")] == ["one.stg"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


def test_archive_faults_name_archive_and_member(tmp_path):
    (tmp_path / "b.tar").write_bytes(b"no archive")
    with pytest.raises(FileFormatError, match=r"b\.tar: expected a tar archive"):
        list(read_stg_archive(tmp_path / "b.tar"))
    with tarfile.open(tmp_path / "c.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("empty.stg"))
    with pytest.raises(FileFormatError, match=r"c\.tar::empty\.stg:1: expected a header"):
        list(read_stg_archive(tmp_path / "c.tar"))


def test_read_graph_reads_stg(tmp_path):
    (tmp_path / "Five.STG").write_text(f"3\n{ROWS}")
    assert read_graph(tmp_path / "Five.STG").name == "Five"
