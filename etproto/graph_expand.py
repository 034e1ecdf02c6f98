"""A task graph as `TaskArrays`: tasks with one set of predecessors share one event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from etproto.dependence import offsets
from etproto.errors import GraphError
from etproto.tasks import TaskArrays

if TYPE_CHECKING:
    from etproto.graph import TaskGraph

__all__ = ["graph_tasks"]

_NAMED_TASKS = 100_000  # graphs above this size do not keep a str for each task


def graph_tasks(graph: TaskGraph) -> TaskArrays:
    """The tasks of a graph as plain arrays; tasks with one set of predecessors share one event.

    Parameters
    ----------
    graph : TaskGraph

    Returns
    -------
    TaskArrays
        Rows in topological order, ``task`` their numbers; the coordinate is the node's ``args``. Nodes keep
        their names up to 100,000 tasks; in larger graphs a task is called ``graph[args]``.

    Raises
    ------
    GraphError
        The graph's own faults: a cycle, an edge to a missing node, a duplicate edge.

    Examples
    --------
    >>> from etproto.graph import TaskGraph
    >>> tasks = graph_tasks(TaskGraph.from_arrays([0, 1, 0, 1], [2, 2, 3, 3], 4))
    >>> tasks.events, tasks.event_need.tolist(), tasks.wait_event.tolist()
    (1, [2], [0, 0])
    """
    graph.require_valid()
    count, order = graph.count, graph.topological_order()
    row = np.empty(count, np.int64)
    row[order] = np.arange(count)
    # Sorting (target, source) lists each task's predecessors in ascending order.
    target, source = _sorted_pairs(row[graph.edge_target], row[graph.edge_source])
    degree = np.bincount(target, minlength=count)
    ptr = offsets(degree)
    waiting = np.flatnonzero(degree)
    first, event = _same_sets(source, ptr, waiting)
    size = degree[first]
    # The first waiter of each event lends it its predecessors, which are the event's notifiers.
    position = np.repeat(ptr[first] - (np.cumsum(size) - size), size) + np.arange(size.sum())
    notifier, notified = _sorted_pairs(source[position], np.repeat(np.arange(len(first)), size))
    return TaskArrays(
        task=np.arange(count),
        kind=graph.kind[order].astype(np.int32),
        grid=np.zeros(count, np.int32),
        coordinate=graph.args[order].astype(np.int32),
        cost=graph.cost[order].astype(np.float64),
        priority=graph.priority[order].astype(np.float64),
        wait_ptr=offsets(degree > 0),
        wait_event=event.astype(np.int32),
        notify_ptr=offsets(np.bincount(notifier, minlength=count)),
        notify_event=notified.astype(np.int32),
        event_need=size.astype(np.int32),
        grid_name=("graph",),
        kind_name=tuple(graph.kind_name),
        grid_ndim=(int(graph.args_count.max(initial=0)),),
        task_name=tuple(str(graph.names[i]) for i in order.tolist()) if count <= _NAMED_TASKS else None,
    )


def _sorted_pairs(major: np.ndarray, minor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of int64 values in 0 .. 2**31 - 1, sorted by the first, then by the second."""
    pairs = major << 32
    pairs |= minor
    pairs.sort()
    return pairs >> 32, pairs & 0xFFFFFFFF


def _same_sets(source: np.ndarray, ptr: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number the distinct lists ``source[ptr[r]:ptr[r + 1]]`` (none empty, all sorted) by first appearance.

    Returns the first row of each list, and the number of each row's list. Lists are grouped by a 64-bit hash
    and then compared, so a collision is seen, and answered with another hash.
    """
    if len(rows) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    degree = ptr[rows + 1] - ptr[rows]
    start = np.cumsum(degree) - degree
    for salt in range(1, 9):
        hashed = np.add.reduceat(_mix(source, salt), start)
        _, position, group = np.unique(hashed, return_index=True, return_inverse=True)
        is_first = np.zeros(len(rows), bool)
        is_first[position] = True
        first, event = rows[is_first], (np.cumsum(is_first) - 1)[position][group]
        row, like, size = rows[~is_first], first[event[~is_first]], degree[~is_first]
        if (ptr[like + 1] - ptr[like] == size).all():
            within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
            if (
                source[np.repeat(ptr[like], size) + within] == source[np.repeat(ptr[row], size) + within]
            ).all():
                return first, event
    raise GraphError("predecessor sets collide under 8 independent 64-bit hashes")


def _mix(values: np.ndarray, salt: int) -> np.ndarray:
    """A 64-bit bijection (finaliser of splitmix64; Steele, Lea and Flood 2014) of int64 values, as uint64."""
    x = values.astype(np.uint64) + np.uint64((salt * 0x9E3779B97F4A7C15) % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
