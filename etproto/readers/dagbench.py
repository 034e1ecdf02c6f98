"""DAGBench JSON: ``task_graph`` with ``tasks`` (name, cost) and ``dependencies`` (source, target)."""

from __future__ import annotations

from pathlib import Path

from etproto.graph import TaskGraph
from etproto.readers.common import bad, field, load_json, read_text, task_graph

__all__ = ["parse", "read"]


def read(path: str | Path) -> TaskGraph:
    """Read a DAGBench file; see `parse`."""
    return parse(read_text(path), str(path))


def parse(text: str, source: str) -> TaskGraph:
    """Parse a DAGBench workflow.

    The file does not say what its costs are measured in, so they are abstract ("unit"). Data sizes on the
    dependencies and the ``network`` are not used.

    Parameters
    ----------
    text : str
        The whole file.
    source : str
        Where it came from, for messages.

    Raises
    ------
    FileFormatError
        If it is not JSON of that structure, a name is used twice, or a dependency names a missing task.
    """
    data = load_json(text, source)
    graph = field(data, "task_graph", dict, "$", source)
    nodes: dict[str, dict] = {}
    for i, task in enumerate(field(graph, "tasks", list, "$.task_graph", source)):
        path = f"$.task_graph.tasks[{i}]"
        name = field(task, "name", str, path, source)
        if name in nodes:
            raise bad(f"{source}: at {path}.name", "a name not used before", repr(name))
        nodes[name] = {"cost": field(task, "cost", (int, float), path, source)}
    edges = []
    for i, dependency in enumerate(field(graph, "dependencies", list, "$.task_graph", source)):
        path = f"$.task_graph.dependencies[{i}]"
        edges.append(tuple(field(dependency, end, str, path, source) for end in ("source", "target")))
        for end, name in zip(("source", "target"), edges[-1], strict=True):
            if name not in nodes:
                raise bad(f"{source}: at {path}.{end}", "the name of a task", f"missing node {name!r}")
    return task_graph(nodes, edges, source, name=data.get("name"), time_unit="unit")
