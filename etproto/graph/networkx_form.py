"""Task graphs from and to networkx; see `TaskGraph.from_networkx` and `TaskGraph.to_networkx`."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from etproto.errors import GraphError

if TYPE_CHECKING:
    from etproto.graph.task_graph import TaskGraph

__all__ = ["columns", "digraph"]

_INT32 = np.iinfo(np.int32)


def columns(G: nx.DiGraph, default_kind: str, default_cost: float) -> dict[str, Any]:
    """The arguments of `TaskGraph.from_arrays` that make the graph G, its name and unit left out."""
    if not G.is_directed():
        raise GraphError(
            f"{type(G).__name__}: expected a directed graph, got an undirected one, "
            "whose edges do not say which task runs first"
        )
    if G.is_multigraph():
        for (source, target), times in Counter(G.edges()).items():
            if times > 1:
                raise GraphError(f"duplicate edge {source} -> {target}: expected it once, got it {times} times")
    count = len(G)
    index = {node: i for i, node in enumerate(G)}
    kinds: dict[str, int] = {}
    kind, cost, priority, labels, bodies = [], [], [], [], []
    args, args_count = np.zeros((count, 4), np.int32), np.zeros(count, np.int32)
    for i, (node, data) in enumerate(G.nodes(data=True)):
        kind.append(kinds.setdefault(str(data.get("kind", default_kind)), len(kinds)))
        cost.append(_number(node, "cost", data.get("cost", default_cost)))
        priority.append(_number(node, "priority", data.get("priority", 0.0)))
        coordinate = _coordinate(node, data.get("args", ()))
        args[i, : len(coordinate)], args_count[i] = coordinate, len(coordinate)
        labels.append(str(data.get("label", node)))
        bodies.append(data.get("body"))
        if not (bodies[-1] is None or callable(bodies[-1])):
            raise GraphError(f"body of task {node}: expected a callable, got {bodies[-1]!r}")
    degree = np.fromiter((len(targets) for _, targets in G.adjacency()), np.int64, count)
    return {
        "edge_source": np.repeat(np.arange(count), degree),
        "edge_target": [index[node] for _, targets in G.adjacency() for node in targets],
        "count": count,
        "names": index,
        "kind": kind,
        "kind_name": tuple(kinds),
        "cost": cost,
        "priority": priority,
        "args": args,
        "args_count": args_count,
        "labels": labels if any("label" in data for _, data in G.nodes(data=True)) else None,
        "bodies": bodies if any(body is not None for body in bodies) else None,
    }


def digraph(graph: TaskGraph) -> nx.DiGraph:
    """The DiGraph with the attributes that `columns` reads; the graph has no faults of names or edges."""
    G = nx.DiGraph(name=graph.name, time_unit=graph.time_unit)
    for node, kind, cost, priority in zip(
        graph.names, graph.kind.tolist(), graph.cost.tolist(), graph.priority.tolist(), strict=True
    ):
        G.add_node(node, kind=graph.kind_name[kind], cost=cost, priority=priority)
    for i in np.flatnonzero(graph.args_count):
        G.nodes[graph.names[i]]["args"] = tuple(graph.args[i, : graph.args_count[i]].tolist())
    for attribute, values in (("label", graph.labels), ("body", graph.bodies)):
        for node, value in zip(graph.names, values or (), strict=False):
            if value is not None:
                G.nodes[node][attribute] = value
    edges = zip(graph.edge_source.tolist(), graph.edge_target.tolist(), strict=True)
    G.add_edges_from((graph.names[source], graph.names[target]) for source, target in edges)
    return G


def _number(node: Hashable, attribute: str, value: Any) -> float:
    try:
        if isinstance(value, str):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise GraphError(f"{attribute} of task {node}: expected a number, got {value!r}") from None


def _coordinate(node: Hashable, value: Any) -> tuple[int, ...]:
    """Attribute `args`: an int or up to four."""
    try:
        coordinate = tuple(map(operator.index, value if isinstance(value, Iterable) else (value,)))
        if len(coordinate) <= 4 and all(_INT32.min <= x <= _INT32.max for x in coordinate):
            return coordinate
    except TypeError:
        pass
    raise GraphError(f"args of task {node}: expected an int or up to four 32-bit ints, got {value!r}")
