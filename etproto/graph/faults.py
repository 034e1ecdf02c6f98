"""What can be wrong with a task graph, one line of text a fault; see `TaskGraph.validate`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from etproto.graph import compressed

if TYPE_CHECKING:
    from etproto.graph.task_graph import TaskGraph

__all__ = ["column_faults", "cycle_faults", "edge_faults", "name_faults"]

_LISTED = 10  # faults of one sort that are spelt out before "and n more"


def name_faults(graph: TaskGraph) -> list[str]:
    """Names of several tasks."""
    if len(set(graph.names)) == graph.count:
        return []
    repeated = [(name, times) for name, times in Counter(graph.names).items() if times > 1]
    return [f"name {name}: expected one task, got {times}" for name, times in repeated[:_LISTED]]


def edge_faults(graph: TaskGraph, successors: tuple[np.ndarray, np.ndarray]) -> list[str]:
    """Edges to missing tasks and duplicate edges; `successors` are the known edges in compressed rows."""
    numbered = f"the graph has {graph.count} tasks, numbered from 0"
    known = graph.known_edges()
    if known.all() and not compressed.has_repeats(*successors, graph.count):
        return []
    faults = _each(~known, "edge", lambda e: f"edge to a missing node: {_edge(graph, e)} (edge {e}; {numbered})")
    key = graph.edge_source.astype(np.int64) << 32 | graph.edge_target.view(np.uint32)
    duplicate = np.ones(graph.edges, bool)
    duplicate[np.unique(key, return_index=True)[1]] = False
    return faults + _each(duplicate, "edge", lambda e: f"duplicate edge {_edge(graph, e)} (edge {e})")


def cycle_faults(graph: TaskGraph, cycle: list[int] | None) -> list[str]:
    """Self loops, then `cycle`, a shortest one of at least two tasks."""
    loop = graph.known_edges() & (graph.edge_source == graph.edge_target)
    faults = _each(loop, "edge", lambda e: f"cycle of 1 task (self loop): {_edge(graph, e)}")
    if cycle:
        closed = [*cycle, cycle[0]]
        names = [_name(graph, task) for task in closed]
        labels = [graph.labels[task].split("\n")[0] for task in closed] if graph.labels else names
        labelled = "" if labels == names else f" (labelled {' -> '.join(labels)})"
        faults.append(f"cycle of {len(cycle)} tasks: {' -> '.join(names)}{labelled}")
    return faults


def column_faults(graph: TaskGraph) -> list[str]:
    """Kinds, costs, priorities and coordinates that mean nothing."""
    kinds = len(graph.kind_name)
    kind, cost, priority, args, count = graph.kind, graph.cost, graph.priority, graph.args, graph.args_count
    bad_count = (count < 0) | (count > 4)
    unused = ~bad_count & np.logical_or.reduce([(args[:, place] != 0) & (count <= place) for place in range(4)])
    checks: list[tuple[np.ndarray, Callable[[int], str]]] = [
        ((kind < 0) | (kind >= kinds), lambda i: f"kind: expected 0 to {kinds - 1}, got {kind[i]}"),
        (~((cost >= 0) & (cost < np.inf)), lambda i: f"cost: expected a finite number >= 0, got {cost[i]}"),
        (~np.isfinite(priority), lambda i: f"priority: expected a finite number, got {priority[i]}"),
        (bad_count, lambda i: f"args: expected 0 to 4 numbers, got {count[i]}"),
        (unused, lambda i: f"args: expected zeros after the first {count[i]}, got {args[i].tolist()}"),
    ]
    return [
        line
        for wrong, text in checks
        for line in _each(wrong, "task", lambda i, text=text: f"task {graph.names[i]}: {text(i)}")
    ]


def _each(wrong: np.ndarray, what: str, text: Callable[[int], str]) -> list[str]:
    """One line for each task or edge where `wrong`, the first few spelt out."""
    where = np.flatnonzero(wrong).tolist()
    lines = [text(i) for i in where[:_LISTED]]
    if len(where) > _LISTED:
        lines.append(f"and {len(where) - _LISTED} more {what}s like {lines[-1]!r}")
    return lines


def _name(graph: TaskGraph, task: int) -> str:
    return str(graph.names[task]) if 0 <= task < graph.count else f"task number {task}"


def _edge(graph: TaskGraph, edge: int) -> str:
    return f"{_name(graph, int(graph.edge_source[edge]))} -> {_name(graph, int(graph.edge_target[edge]))}"
