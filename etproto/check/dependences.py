"""Cyclic dependences: a shortest cycle of tasks through events (and, in `order`, through workers' lists)."""

from __future__ import annotations

import numba
import numpy as np

from etproto.check.naming import EventName, event_text
from etproto.dependence import offsets, run_order
from etproto.tasks import TaskArrays

__all__ = ["Cycle", "check_dependences", "find_cycle"]

_NOTHING = np.iinfo(np.int64).max

Cycle = list[tuple[int, int | None]]  # (row, event that leads to the next row; None: a list of a worker)


def check_dependences(tasks: TaskArrays, event_name: EventName | None = None) -> list[str]:
    """One fault if tasks wait for each other in a circle: a shortest such circle, by name.

    Parameters
    ----------
    tasks : TaskArrays
    event_name : callable, optional
        Flat event number -> name; without it events are not mentioned.
    """
    cycle = find_cycle(tasks)
    if cycle is None:
        return []
    names = [tasks.name(row) for row, _ in [*cycle, cycle[0]]]
    text = f"cycle of {len(cycle)} task{'' if len(cycle) == 1 else 's'}: {' -> '.join(names)}"
    if event_name is not None:
        text += f" (through {', '.join(event_text(event, event_name) for _, event in cycle)})"
    return [text]


def find_cycle(tasks: TaskArrays, following: np.ndarray | None = None) -> Cycle | None:
    """A cycle of the fewest tasks among dependences and successive pairs of lists, from its lowest row.

    Parameters
    ----------
    tasks : TaskArrays
    following : int64[n], optional
        Row that may start only after this one, -1 for none.

    Returns
    -------
    list of (row, event), or None
        The event leads to the next row; None stands for a worker's list.

    Notes
    -----
    Linear time where there is no cycle. Otherwise what cannot run is stripped of all that has no way in
    or no way out, and each remaining task is the start of one breadth-first search, no deeper than the
    best cycle so far, and is then removed, with everything that thereby lies on no cycle.
    """
    # Too few notifications are another fault: here an event is satisfied by all that it gets.
    need = np.minimum(tasks.event_need, np.bincount(tasks.notify_event, minlength=tasks.events))
    order = run_order(tasks, need, following)
    if len(order) == tasks.count:
        return None
    stuck = np.ones(tasks.count, bool)
    stuck[order] = False
    ran = np.repeat(~stuck, np.diff(tasks.notify_ptr))
    unmet = np.bincount(tasks.notify_event[ran], minlength=tasks.events) < need
    source, target = _arcs(tasks, stuck, unmet, following)
    first_arc = tasks.count + tasks.events
    nodes = first_arc + tasks.count  # tasks, events, then one node for each successive pair of a list
    path = _shortest_cycle(*_csr(source, target, nodes), *_csr(target, source, nodes), tasks.count)
    cycle = [
        (int(path[k]), None if path[k + 1] >= first_arc else int(path[k + 1] - tasks.count))
        for k in range(0, len(path), 2)
    ]
    lowest = min(range(len(cycle)), key=lambda k: cycle[k][0])
    return cycle[lowest:] + cycle[:lowest]


def _arcs(
    tasks: TaskArrays, stuck: np.ndarray, unmet: np.ndarray, following: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Arcs task -> event -> task and task -> pair -> task among what is stuck."""
    rows = np.arange(tasks.count)
    parts = []
    for ptr, event, outward in (
        (tasks.notify_ptr, tasks.notify_event, True),
        (tasks.wait_ptr, tasks.wait_event, False),
    ):
        row = np.repeat(rows, np.diff(ptr))
        keep = stuck[row] & unmet[event]
        ends = (row[keep], tasks.count + event[keep].astype(np.int64))
        parts.append(ends if outward else ends[::-1])
    if following is not None:
        row = np.flatnonzero(stuck & (following >= 0))
        row = row[stuck[following[row]]]
        pair = tasks.count + tasks.events + row
        parts += [(row, pair), (pair, following[row])]
    return np.concatenate([s for s, _ in parts]), np.concatenate([t for _, t in parts])


def _csr(source: np.ndarray, target: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    return offsets(np.bincount(source, minlength=nodes)), target[np.argsort(source, kind="stable")]


@numba.njit(cache=True)
def _strip(waiting, end, alive, out_ptr, out, leaving, in_ptr, into, entering):  # numba infers the types
    """Remove the first `end` nodes of `waiting`, and then every node without a way in or a way out."""
    while end > 0:
        end -= 1
        node = waiting[end]
        if not alive[node]:
            continue
        alive[node] = False
        for k in range(out_ptr[node], out_ptr[node + 1]):
            entering[out[k]] -= 1
            if entering[out[k]] == 0 and alive[out[k]]:
                waiting[end] = out[k]
                end += 1
        for k in range(in_ptr[node], in_ptr[node + 1]):
            leaving[into[k]] -= 1
            if leaving[into[k]] == 0 and alive[into[k]]:
                waiting[end] = into[k]
                end += 1


@numba.njit(cache=True)
def _shortest_cycle(out_ptr, out, in_ptr, into, tasks):  # numba infers the types
    nodes = len(out_ptr) - 1
    leaving, entering = out_ptr[1:] - out_ptr[:-1], in_ptr[1:] - in_ptr[:-1]
    alive = np.ones(nodes, np.bool_)
    waiting = np.empty(2 * nodes + 1, np.int64)
    end = 0
    for node in range(nodes):
        if leaving[node] == 0 or entering[node] == 0:
            waiting[end] = node
            end += 1
    _strip(waiting, end, alive, out_ptr, out, leaving, in_ptr, into, entering)
    parent = np.empty(nodes, np.int64)
    seen_by = np.full(nodes, -1, np.int64)
    frontier = np.empty(nodes, np.int64)
    best = np.empty(0, np.int64)
    for start in range(tasks):
        if not alive[start]:
            continue
        seen_by[start] = start
        frontier[0] = start
        head, end, length, level_end = 0, 1, 1, 1
        last = -1
        while head < end and last < 0 and (len(best) == 0 or length < len(best)):
            node = frontier[head]
            head += 1
            for k in range(out_ptr[node], out_ptr[node + 1]):
                after = out[k]
                if after == start:
                    last = node
                    break
                if alive[after] and seen_by[after] != start:
                    seen_by[after] = start
                    parent[after] = node
                    frontier[end] = after
                    end += 1
            if head == level_end:
                length += 1
                level_end = end
        if last >= 0:
            found = 1
            node = last
            while node != start:
                node = parent[node]
                found += 1
            if len(best) == 0 or found < len(best):
                best = np.empty(found, np.int64)
                node = last
                for k in range(found - 1, -1, -1):
                    best[k] = node
                    if k > 0:
                        node = parent[node]
        waiting[0] = start
        _strip(waiting, 1, alive, out_ptr, out, leaving, in_ptr, into, entering)
    return best
