"""Node-link JSON, as `networkx.node_link_data` writes it, its edges under "links" or "edges".

Read here rather than by networkx, which makes a node of every misspelt end of an edge.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from etproto.graph import TaskGraph
from etproto.readers.common import bad, field, load_json, read_text, task_attributes, task_graph

__all__ = ["parse", "read"]


def read(path: str | Path) -> TaskGraph:
    """Read a node-link file; see `parse`."""
    return parse(read_text(path), str(path))


def parse(text: str, source: str) -> TaskGraph:
    """Parse node-link JSON. Node attributes as in `TaskGraph.from_networkx`; `weight` is a cost too.

    Parameters
    ----------
    text : str
        The whole file.
    source : str
        Where it came from, for messages.

    Raises
    ------
    FileFormatError
        If it is not JSON of that structure, is undirected, an id is used twice, an edge names a missing node,
        or an attribute has the wrong type.

    Examples
    --------
    >>> text = '{"nodes": [{"id": "a", "cost": 2}, {"id": "b"}], "links": [{"source": "a", "target": "b"}]}'
    >>> print(parse(text, "two.json"))
    two: 2 tasks (task 2), 1 edge, critical path 3 us
    """
    data = load_json(text, source)
    nodes = field(data, "nodes", list, "$", source)
    key = "links" if "links" in data else "edges"
    links = field(data, key, list, "$", source)
    if data.get("directed") is False:
        raise bad(f"{source}: at $.directed", "true, since an undirected edge orders nothing", "false")
    graph: dict[Any, dict] = {}
    for i, node in enumerate(nodes):
        place = f"{source}: at $.nodes[{i}]"
        name = _name(node, "id", place)
        if name in graph:
            raise bad(f"{place}.id", "an id not used before", repr(name))
        graph[name] = task_attributes(node, place)
    edges = []
    for i, link in enumerate(links):
        place = f"{source}: at $.{key}[{i}]"
        edges.append(tuple(_name(link, end, place) for end in ("source", "target")))
        for end, name in zip(("source", "target"), edges[-1], strict=True):
            if name not in graph:
                raise bad(f"{place}.{end}", "the id of a node", f"missing node {name!r}")
    whole = data["graph"] if isinstance(data.get("graph"), dict) else {}
    return task_graph(graph, edges, source, name=whole.get("name"), time_unit=whole.get("time_unit"))


def _name(parent: Any, key: str, path: str) -> Any:
    """A node's name: what networkx makes of it, a list becoming a tuple."""
    if not isinstance(parent, dict):
        raise bad(path, "an object", type(parent).__name__)
    if key not in parent:
        raise bad(path, f"the key {key!r}", f"only {', '.join(map(repr, parent)) or 'no keys'}")
    name = _tuples(parent[key])
    try:
        hash(name)
    except TypeError:
        name = None
    if name is None:
        raise bad(f"{path}.{key}", "a string, a number or an array of them", json.dumps(parent[key]))
    return name


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
