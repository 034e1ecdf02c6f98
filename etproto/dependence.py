"""Dependences between rows of `TaskArrays`: waiters of events, an order to run in, the graph of tasks."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numba
import numpy as np

from etproto.tasks import TaskArrays

__all__ = ["offsets", "run_order", "select", "to_networkx", "transpose"]


def offsets(sizes: np.ndarray) -> np.ndarray:
    """Starts of consecutive parts of the given sizes, and the end of the last: int64[len(sizes) + 1]."""
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def transpose(ptr: np.ndarray, event: np.ndarray, events: int) -> tuple[np.ndarray, np.ndarray]:
    """From events of each row to rows of each event, ascending: int64[events + 1], int64[len(event)]."""
    row = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    return offsets(np.bincount(event, minlength=events)), row[np.argsort(event, kind="stable")]


def run_order(tasks: TaskArrays, need: np.ndarray | None = None, following: np.ndarray | None = None) -> np.ndarray:
    """Rows in an order in which they can run, level by level; short if some never can.

    Parameters
    ----------
    tasks : TaskArrays
    need : int[events], optional
        Notifications that satisfy each event; default ``tasks.event_need``.
    following : int64[n], optional
        Row that may start only after this one, -1 for none: the successive pairs of workers' lists.

    Returns
    -------
    int64[k]
        k < n if n - k tasks wait for an event or for a task that never comes.
    """
    waiter_ptr, waiter = transpose(tasks.wait_ptr, tasks.wait_event, tasks.events)
    need = np.asarray(tasks.event_need if need is None else need, np.int64)
    following = np.full(tasks.count, -1, np.int64) if following is None else following
    waiting = np.repeat(np.arange(tasks.count), np.diff(tasks.wait_ptr))[need[tasks.wait_event] > 0]
    missing = np.bincount(np.concatenate([waiting, following[following >= 0]]), minlength=tasks.count)
    return _run(missing, need.copy(), waiter_ptr, waiter, tasks.notify_ptr, tasks.notify_event, following)


@numba.njit(cache=True)
def _run(missing, need, waiter_ptr, waiter, notify_ptr, notify_event, following):  # numba infers the types
    order = np.empty(len(missing), np.int64)
    end = 0
    for row in range(len(missing)):
        if missing[row] == 0:
            order[end] = row
            end += 1
    start = 0
    while start < end:
        row = order[start]
        start += 1
        after = following[row]
        if after >= 0:
            missing[after] -= 1
            if missing[after] == 0:
                order[end] = after
                end += 1
        for k in range(notify_ptr[row], notify_ptr[row + 1]):
            event = notify_event[k]
            need[event] -= 1
            if need[event] == 0:
                for position in range(waiter_ptr[event], waiter_ptr[event + 1]):
                    after = waiter[position]
                    missing[after] -= 1
                    if missing[after] == 0:
                        order[end] = after
                        end += 1
    return order[:end]


def select(tasks: TaskArrays, order: np.ndarray) -> TaskArrays:
    """The same tasks with rows in another order (int64[n])."""
    csr = {}
    for word in ("wait", "notify"):
        ptr, event = getattr(tasks, f"{word}_ptr"), getattr(tasks, f"{word}_event")
        size = np.diff(ptr)[order]
        new = offsets(size)
        csr[f"{word}_ptr"] = new
        csr[f"{word}_event"] = event[np.repeat(ptr[:-1][order] - new[:-1], size) + np.arange(new[-1])]
    per_row = {
        field: getattr(tasks, field)[order] for field in ("task", "kind", "grid", "coordinate", "cost", "priority")
    }
    names = None if tasks.task_name is None else tuple(tasks.task_name[row] for row in order.tolist())
    return replace(tasks, **per_row, **csr, task_name=names)


def to_networkx(tasks: TaskArrays) -> nx.DiGraph:
    """The task graph with events resolved to task -> task edges, for drawing.

    Returns
    -------
    networkx.DiGraph
        Nodes are task names with attributes ``kind``, ``cost``, ``grid`` and ``coordinate``; edges have the
        number of their (lowest) ``event``. An event with n notifiers and m waiters makes n * m edges.

    Examples
    --------
    >>> from etproto.graph import TaskGraph
    >>> from etproto.graph_expand import graph_tasks
    >>> sorted(to_networkx(graph_tasks(TaskGraph.from_arrays([0, 1], [2, 2], 3))).edges)
    [('0', '2'), ('1', '2')]
    """
    G = nx.DiGraph()
    names = [tasks.name(row) for row in range(tasks.count)]
    for row, name in enumerate(names):
        grid = int(tasks.grid[row])
        G.add_node(
            name,
            kind=tasks.kind_name[tasks.kind[row]],
            cost=float(tasks.cost[row]),
            grid=tasks.grid_name[grid],
            coordinate=tuple(tasks.coordinate[row, : tasks.grid_ndim[grid]].tolist()),
        )
    notifier_ptr, notifier = transpose(tasks.notify_ptr, tasks.notify_event, tasks.events)
    for row, name in enumerate(names):
        for event in sorted(
            set(tasks.wait_event[tasks.wait_ptr[row] : tasks.wait_ptr[row + 1]].tolist()), reverse=True
        ):
            sources = notifier[notifier_ptr[event] : notifier_ptr[event + 1]].tolist()
            G.add_edges_from(((names[source], name) for source in sources), event=event)
    return G
