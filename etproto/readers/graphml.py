"""GraphML, read by networkx after a scan for what it lets pass: missing nodes, nested graphs and the like."""

from __future__ import annotations

from pathlib import Path
from xml.parsers import expat

import networkx as nx

from etproto.errors import FileFormatError
from etproto.graph import TaskGraph
from etproto.readers.common import bad, read_text, task_attributes, task_graph

__all__ = ["parse", "read"]


def read(path: str | Path) -> TaskGraph:
    """Read a GraphML file; see `parse`."""
    return parse(read_text(path), str(path))


def parse(text: str, source: str) -> TaskGraph:
    """Parse GraphML.

    Node attributes are those of `TaskGraph.from_networkx`; `weight` is a cost too, and `args` may be text.

    Parameters
    ----------
    text : str
        The whole file.
    source : str
        Where it came from, for messages.

    Raises
    ------
    FileFormatError
        If it is not XML or not exactly one flat directed graph, an edge names a missing node, or an attribute
        has the wrong type.
    """
    line_of, edges = _scan(text, source)
    try:
        read_by_networkx = nx.parse_graphml(text, force_multigraph=True)
    except (nx.NetworkXError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise FileFormatError(f"{source}: expected GraphML that networkx reads, got {error!r}") from error
    raw, whole = read_by_networkx.nodes, read_by_networkx.graph
    nodes = {name: task_attributes(raw[name], f"{source}:{line}") for name, line in line_of.items()}
    return task_graph(nodes, edges, source, name=whole.get("name"), time_unit=whole.get("time_unit"))


def _scan(text: str, source: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Line of each node, and the edges, both in order of appearance."""
    line_of: dict[str, int] = {}
    edges: list[tuple[str, str]] = []
    edge_lines: list[int] = []
    graphs = 0
    parser = expat.ParserCreate(namespace_separator=" ")

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal graphs
        place, tag = f"{source}:{parser.CurrentLineNumber}", tag.rpartition(" ")[2]

        def attribute(key: str) -> str:
            if key not in attributes:
                raise bad(place, f"an attribute {key!r} in <{tag}>", "none")
            return attributes[key]

        if tag == "graph":
            graphs += 1
            if graphs > 1:
                raise bad(place, "one flat <graph>", "another one (nested or following)")
            if attribute("edgedefault") != "directed":
                raise bad(place, 'edgedefault="directed", since an undirected edge orders nothing', attributes)
        elif tag == "node":
            if attribute("id") in line_of:
                raise bad(place, "an id not used before", repr(attributes["id"]))
            line_of[attributes["id"]] = parser.CurrentLineNumber
        elif tag == "edge":
            if attributes.get("directed", "true") not in ("true", "1"):
                raise bad(place, "a directed edge", attributes)
            edges.append((attribute("source"), attribute("target")))
            edge_lines.append(parser.CurrentLineNumber)
        elif tag in ("hyperedge", "port"):
            raise bad(place, "nodes and edges only", f"<{tag}>")

    parser.StartElementHandler = start
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise bad(f"{source}:{error.lineno}", "XML", expat.errors.messages[error.code]) from error
    if not graphs:
        raise bad(f"{source}:1", "a <graph> inside <graphml>", "none")
    for edge, line in zip(edges, edge_lines, strict=True):
        for name in edge:
            if name not in line_of:
                raise bad(f"{source}:{line}", "the id of a node", f"missing node {name!r}")
    return line_of, edges
