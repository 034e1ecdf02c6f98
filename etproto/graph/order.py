"""Orders and longest paths of a graph given as arrays, and the shortest cycle of one that has none."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

__all__ = ["bottom_levels", "levels", "shortest_cycle", "successors"]

_NARROW = 32  # mean tasks a level below which plain Python beats one NumPy call a level


def successors(source: np.ndarray, target: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """CSR form (int64[count + 1], int32[m]) of edges, those of one node in order of appearance."""
    ptr = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=count))])
    return ptr, target[np.argsort(source, kind="stable")]


def levels(ptr: np.ndarray, successor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kahn's algorithm, level by level.

    Returns
    -------
    order : int64[k]
        Nodes by level, the number of edges on the longest path to them, and then by number. Nodes on a cycle,
        or behind one, are left out.
    level_ptr : int64[levels + 1]
        Level l is ``order[level_ptr[l]:level_ptr[l + 1]]``.
    """
    missing = np.bincount(successor, minlength=len(ptr) - 1)
    ready = np.flatnonzero(missing == 0)
    found, done = [np.empty(0, np.int64)], 0
    while len(ready) and not (len(found) > 256 and done < _NARROW * len(found)):
        found.append(ready)
        done += len(ready)
        after = successor[_ranges(ptr, ready)[0]]
        np.subtract.at(missing, after, 1)
        ready = np.unique(after[missing[after] == 0]).astype(np.int64)
    sizes = [len(level) for level in found]
    if len(ready):  # a long thin graph: a chain of a million tasks has a million levels
        thin = _thin_levels(ptr.tolist(), successor.tolist(), missing.tolist(), ready.tolist(), sizes)
        found.append(np.array(thin, np.int64))
    return np.concatenate(found), np.cumsum(sizes, dtype=np.int64)


def bottom_levels(
    cost: np.ndarray, ptr: np.ndarray, successor: np.ndarray, order: np.ndarray, level_ptr: np.ndarray
) -> np.ndarray:
    """Cost of the longest path from each node to a sink, its own cost included: float64[count].

    Parameters
    ----------
    cost : float64[count]
        Costs of the nodes, >= 0.
    ptr, successor
        Acyclic edges, from `successors`.
    order, level_ptr
        From `levels`.
    """
    if len(cost) < _NARROW * (len(level_ptr) - 1):
        below, first, after = cost.tolist(), ptr.tolist(), successor.tolist()
        for node in reversed(order.tolist()):
            below[node] += max((below[s] for s in after[first[node] : first[node + 1]]), default=0.0)
        return np.array(below, np.float64)
    bottom = cost.copy()
    for level in range(len(level_ptr) - 2, -1, -1):
        nodes = order[level_ptr[level] : level_ptr[level + 1]]
        nodes = nodes[ptr[nodes + 1] > ptr[nodes]]
        if len(nodes):
            positions, start = _ranges(ptr, nodes)
            bottom[nodes] += np.maximum.reduceat(bottom[successor[positions]], start)
    return bottom


def shortest_cycle(source: list[int], target: list[int]) -> list[int] | None:
    """Nodes of a shortest cycle, in edge order from the lowest; None if there is none.

    Breadth-first search from the targets of the edges that go against the order of the nodes, since every
    cycle holds such an edge. A node searched once leaves the graph, together with everything that is on no
    cycle any more.

    Parameters
    ----------
    source, target : list of int
        The edges, without self loops.
    """
    after, before = defaultdict(list), defaultdict(list)
    for s, t in zip(source, target, strict=True):
        after[s].append(t)
        before[t].append(s)
    leaving = {task: len(after[task]) for task in {*source, *target}}
    entering = {task: len(before[task]) for task in leaving}

    def remove(tasks: list[int]) -> None:
        """Take tasks out, and with them whatever then has no way in or no way out."""
        while tasks:
            task = tasks.pop()
            if leaving.pop(task, None) is None:
                continue
            for neighbours, degree in ((after[task], entering), (before[task], leaving)):
                for other in neighbours:
                    if other in leaving:
                        degree[other] -= 1
                        if not degree[other]:
                            tasks.append(other)

    remove([task for task in leaving if not leaving[task] or not entering[task]])
    best: list[int] | None = None
    for start in sorted({t for s, t in zip(source, target, strict=True) if s > t}):
        if start not in leaving:
            continue
        parent, frontier, length = {start: start}, [start], 1
        while frontier and (best is None or length < len(best)):
            last = next((task for task in frontier if start in after[task]), None)
            if last is not None:
                best = [last]
                while best[-1] != start:
                    best.append(parent[best[-1]])
                break
            following = []
            for task in frontier:
                for other in after[task]:
                    if other in leaving and other not in parent:
                        parent[other] = task
                        following.append(other)
            frontier, length = following, length + 1
        remove([start])
    if best is None:
        return None
    cycle = best[::-1]
    lowest = cycle.index(min(cycle))
    return cycle[lowest:] + cycle[:lowest]


def _ranges(ptr: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of all elements of the CSR `rows`, one row after the other, and where each row starts."""
    count = ptr[rows + 1] - ptr[rows]
    start = np.cumsum(count) - count
    return np.repeat(ptr[rows] - start, count) + np.arange(count.sum()), start


def _thin_levels(
    ptr: list[int], successor: list[int], missing: list[int], ready: list[int], sizes: list[int]
) -> list[int]:
    """The rest of Kahn's algorithm from level `ready` on, for levels of few tasks; appends to `sizes`."""
    order = []
    while ready:
        order += ready
        sizes.append(len(ready))
        following = []
        for task in ready:
            for after in successor[ptr[task] : ptr[task + 1]]:
                missing[after] -= 1
                if not missing[after]:
                    following.append(after)
        ready = sorted(following)
    return order
