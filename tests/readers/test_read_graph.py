"""`read_graph` picks the reader by suffix and content."""

from __future__ import annotations

import json

import pytest

from etproto.errors import FileFormatError
from etproto.generators import diamond
from etproto.readers import read_graph


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.stg", "0\n0 1 0\n1 2 1 0\n"),
        ("a.dot", "digraph { a -> b [weight=1] b [cost=2] }"),
        ("a.gv", "digraph { a -> b b [cost=2] }"),
        (
            "a.graphml",
            '<graphml><key id="c" for="node" attr.name="cost" attr.type="int"/>'
            '<graph edgedefault="directed"><node id="a"/><node id="b"><data key="c">2</data></node>'
            '<edge source="a" target="b"/></graph></graphml>',
        ),
        (
            "a.json",
            json.dumps({"nodes": [{"id": "a"}, {"id": "b", "cost": 2}], "links": [{"source": "a", "target": "b"}]}),
        ),
        (
            "b.json",
            json.dumps({"nodes": [{"id": "a"}, {"id": "b", "cost": 2}], "edges": [{"source": "a", "target": "b"}]}),
        ),
        (
            "c.json",
            json.dumps(
                {
                    "task_graph": {
                        "tasks": [{"name": "a", "cost": 1}, {"name": "b", "cost": 2}],
                        "dependencies": [{"source": "a", "target": "b"}],
                    }
                }
            ),
        ),
    ],
)
def test_every_suffix_and_content(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    graph = read_graph(str(tmp_path / name))
    assert (graph.count, graph.edges, graph.critical_path()) == (2, 1, 3)


def test_saved_graphs(tmp_path):
    diamond().save(tmp_path / "d.npz")
    assert read_graph(tmp_path / "d.npz").names == diamond().names


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "", r"a\.txt: expected a name that ends in \.json, \.stg, .* got '\.txt'"),
        ("graph", "", "graph: expected a name that ends in .* got 'no suffix'"),
        ("a.tar.gz", "", r"got '\.gz' \(read_stg_archive reads a tar archive"),
        ("a.json", '{"vertices": []}', r"a\.json: at \$: expected one of the keys .* got 'vertices'"),
        ("a.json", "[1]", r"a\.json: at \$: expected one of the keys .* got list"),
        ("a.json", '{"a":\n}', r"a\.json:2: expected JSON, got '}'"),
        ("a.dot", "digraph {\n\xff", r"a\.dot:2: expected text in UTF-8, got byte 0xff"),
    ],
)
def test_unknown_files_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(FileFormatError, match=message):
        read_graph(tmp_path / name)


def test_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_graph(tmp_path / "none.dot")
