"""Orders and longest paths of a graph given as arrays, and the shortest cycle of one that has none."""

from __future__ import annotations

from collections import defaultdict

import numba
import numpy as np

__all__ = ["bottom_levels", "levels", "shortest_cycle"]


@numba.njit(cache=True)
def levels(ptr: np.ndarray, successor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kahn's algorithm, then a counting sort by level.

    Parameters
    ----------
    ptr, successor : int64[count + 1], int32[m]
        Edges by source, from `compressed.group`.

    Returns
    -------
    order : int64[k]
        Nodes by level, the number of edges on the longest path to them, and then by number. Nodes on a cycle,
        or behind one, are left out.
    level_ptr : int64[levels + 1]
        Level l is ``order[level_ptr[l]:level_ptr[l + 1]]``.
    """
    count = len(ptr) - 1
    missing = np.zeros(count, np.int32)
    for after in successor:
        missing[after] += 1
    level = np.full(count, -1, np.int32)
    queue = np.empty(count, np.int32)
    end = 0
    for node in range(count):
        if missing[node] == 0:
            level[node] = 0
            queue[end] = node
            end += 1
    start = 0
    while start < end:  # first in, first out: the last predecessor to come has the highest level
        node = queue[start]
        start += 1
        for k in range(ptr[node], ptr[node + 1]):
            after = successor[k]
            missing[after] -= 1
            if missing[after] == 0:
                level[after] = level[node] + 1
                queue[end] = after
                end += 1
    depth = level[queue[end - 1]] + 1 if end else 0
    level_ptr = np.zeros(depth + 1, np.int64)
    for i in range(end):
        level_ptr[level[queue[i]] + 1] += 1
    for k in range(depth):
        level_ptr[k + 1] += level_ptr[k]
    place = level_ptr[:-1].copy()
    order = np.empty(end, np.int64)
    for node in range(count):
        if level[node] >= 0:
            order[place[level[node]]] = node
            place[level[node]] += 1
    return order, level_ptr


@numba.njit(cache=True)
def bottom_levels(cost: np.ndarray, ptr: np.ndarray, successor: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Cost of the longest path from each node to a sink, its own cost included: float64[count].

    Parameters
    ----------
    cost : float64[count]
        Costs of the nodes, >= 0.
    ptr, successor : int64[count + 1], int32[m]
        Acyclic edges by source, from `compressed.group`.
    order : int64[count]
        From `levels`.
    """
    bottom = cost.copy()
    for node in order[::-1]:
        longest = 0.0
        for k in range(ptr[node], ptr[node + 1]):
            longest = max(longest, bottom[successor[k]])
        bottom[node] += longest
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
