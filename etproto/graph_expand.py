"""A task graph as `TaskArrays`: tasks with one set of predecessors share one event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from etproto.dependence import offsets
from etproto.graph import compressed
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
    # Read in topological order, the rows of successors transpose to each task's predecessors, ascending.
    ptr, before = compressed.transpose(*graph.successors, order, count)
    number, first = compressed.number_sets(ptr, before, order, compressed.hashes(ptr, before))
    waits = number >= 0
    # The first waiter of each event lends it its predecessors, which are the event's notifiers.
    notify_ptr, notify_event = compressed.transpose(ptr, before, first, count)
    return TaskArrays(
        task=np.arange(count),
        kind=graph.kind[order],
        grid=np.zeros(count, np.int32),
        coordinate=graph.args[order],
        cost=graph.cost[order],
        priority=graph.priority[order],
        wait_ptr=offsets(waits),
        wait_event=number[waits],
        notify_ptr=notify_ptr,
        notify_event=notify_event,
        event_need=(ptr[first + 1] - ptr[first]).astype(np.int32),
        grid_name=("graph",),
        kind_name=tuple(graph.kind_name),
        grid_ndim=(int(graph.args_count.max(initial=0)),),
        task_name=tuple(str(graph.names[i]) for i in order.tolist()) if count <= _NAMED_TASKS else None,
    )
