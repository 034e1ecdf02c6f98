"""Task graphs made by formula: tiled factorisations, stencils, trees, chains and random layers.

Each function returns a `TaskGraph` with kinds, costs and tile coordinates (`args`). Costs are in abstract
time ("unit").
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from etproto.errors import GraphError
from etproto.graph import TaskGraph

__all__ = [
    "binary_tree_reduce",
    "bipartite",
    "chain",
    "cholesky",
    "diamond",
    "fork_join",
    "layered_random",
    "lu",
    "stencil",
]


def cholesky(tiles: int) -> TaskGraph:
    """Right-looking tiled Cholesky factorisation of a lower triangle of `tiles` x `tiles` tiles.

    For each column k: ``potrf (k,)`` factors A[k, k]; ``trsm (i, k)`` solves for A[i, k]; ``syrk (i, k)``
    updates A[i, i], and ``gemm (i, j, k)`` A[i, j], by column k. The updates of one tile form a chain in k.
    Costs are flops in units of n_b^3 / 3 for n_b x n_b tiles: 1, 3, 3, 6.

    Parameters
    ----------
    tiles : int
        Tiles along one side, t >= 1.

    Returns
    -------
    TaskGraph
        t (t + 1) (t + 2) / 6 tasks.

    Raises
    ------
    GraphError
        If `tiles` is below 1.

    Examples
    --------
    >>> print(cholesky(4))
    cholesky4: 20 tasks (potrf 4, trsm 6, syrk 6, gemm 4), 30 edges, critical path 26 unit
    """
    _at_least(1, tiles=tiles)
    tasks: _Tasks = []
    for k in range(tiles):
        tasks.append(("potrf", (k,), (k, k), ()))
        tasks += [("trsm", (i, k), (i, k), [(k, k)]) for i in range(k + 1, tiles)]
        for i in range(k + 1, tiles):
            tasks.append(("syrk", (i, k), (i, i), [(i, k)]))
            tasks += [("gemm", (i, j, k), (i, j), [(i, k), (j, k)]) for j in range(k + 1, i)]
    return _by_data_flow(f"cholesky{tiles}", tasks, {"potrf": 1.0, "trsm": 3.0, "syrk": 3.0, "gemm": 6.0})


def lu(tiles: int) -> TaskGraph:
    """Right-looking tiled LU factorisation without pivoting of `tiles` x `tiles` tiles.

    For each k: ``getrf (k,)`` factors A[k, k]; ``trsm_row (k, j)`` solves for the tile A[k, j] of U and
    ``trsm_column (i, k)`` for the tile A[i, k] of L; ``gemm (i, j, k)`` updates A[i, j]. Costs are flops in
    units of n_b^3 / 3 for n_b x n_b tiles: 2, 3, 3, 6.

    Parameters
    ----------
    tiles : int
        Tiles along one side, t >= 1.

    Returns
    -------
    TaskGraph
        t (t + 1) (2 t + 1) / 6 tasks.

    Raises
    ------
    GraphError
        If `tiles` is below 1.

    Examples
    --------
    >>> print(lu(2))
    lu2: 5 tasks (getrf 2, trsm_row 1, trsm_column 1, gemm 1), 5 edges, critical path 13 unit
    """
    _at_least(1, tiles=tiles)
    tasks: _Tasks = []
    for k in range(tiles):
        rest = range(k + 1, tiles)
        tasks.append(("getrf", (k,), (k, k), ()))
        tasks += [("trsm_row", (k, j), (k, j), [(k, k)]) for j in rest]
        tasks += [("trsm_column", (i, k), (i, k), [(k, k)]) for i in rest]
        tasks += [("gemm", (i, j, k), (i, j), [(i, k), (k, j)]) for i in rest for j in rest]
    return _by_data_flow(f"lu{tiles}", tasks, {"getrf": 2.0, "trsm_row": 3.0, "trsm_column": 3.0, "gemm": 6.0})


def stencil(width: int, steps: int, periodic: bool = False) -> TaskGraph:
    """A one-dimensional three-point stencil: point x of step t needs points x - 1, x and x + 1 of step t - 1.

    Parameters
    ----------
    width, steps : int
        Points of a step, and steps; both >= 1. ``args`` are (t, x), the cost is 1.
    periodic : bool
        Whether the first and the last point are neighbours.

    Raises
    ------
    GraphError
        If `width` or `steps` is below 1.

    Examples
    --------
    >>> print(stencil(4, 3))
    stencil: 12 tasks (stencil 12), 20 edges, critical path 3 unit
    """
    _at_least(1, width=width, steps=steps)
    x = np.arange(width)
    pairs = np.stack([np.repeat(x, 3), (x[:, None] + [-1, 0, 1]).ravel()], axis=1)  # (point, point it needs)
    if periodic:
        pairs = np.unique(pairs % width, axis=0)  # with one or two points, left and right are the same
    else:
        pairs = pairs[(pairs[:, 1] >= 0) & (pairs[:, 1] < width)]
    first = np.arange(steps - 1)[:, None] * width
    args = np.stack(np.divmod(np.arange(width * steps), width), axis=1)
    return _uniform(
        "stencil", (first + pairs[:, 1]).ravel(), (first + width + pairs[:, 0]).ravel(), width * steps, args
    )


def fork_join(width: int, stages: int) -> TaskGraph:
    """Stages of `width` parallel tasks, a join before, between and after them.

    Parameters
    ----------
    width, stages : int
        Tasks of a stage, and stages; both >= 1. ``join (s,)`` comes before stage s, ``work (s, i)`` is its
        task i; each costs 1.

    Returns
    -------
    TaskGraph
        ``stages * (width + 1) + 1`` tasks, ``2 * width * stages`` edges.

    Raises
    ------
    GraphError
        If `width` or `stages` is below 1.

    Examples
    --------
    >>> print(fork_join(3, 2))
    fork_join: 9 tasks (join 3, work 6), 12 edges, critical path 5 unit
    """
    _at_least(1, width=width, stages=stages)
    count = stages * (width + 1) + 1
    stage, place = np.divmod(np.arange(count), width + 1)  # place 0 is the join
    work = np.flatnonzero(place)
    before = work - place[work]
    return TaskGraph.from_arrays(
        np.stack([before, work], axis=1).ravel(),
        np.stack([work, before + width + 1], axis=1).ravel(),
        count,
        names=_names(("join", (s,)) if p == 0 else ("work", (s, p - 1)) for s, p in zip(stage, place, strict=True)),
        kind=(place > 0).astype(int),
        kind_name=("join", "work"),
        args=np.stack([stage, np.maximum(place - 1, 0)], axis=1),
        args_count=1 + (place > 0),
        name="fork_join",
        time_unit="unit",
    )


def chain(n: int) -> TaskGraph:
    """A chain of `n` >= 0 tasks ``chain (i,)`` of cost 1.

    Raises
    ------
    GraphError
        If `n` is negative.

    Examples
    --------
    >>> print(chain(5))
    chain: 5 tasks (chain 5), 4 edges, critical path 5 unit
    """
    _at_least(0, n=n)
    i = np.arange(n)
    return _uniform("chain", i[:-1], i[1:], n, i[:, None])


def binary_tree_reduce(leaves: int) -> TaskGraph:
    """Reduction of `leaves` >= 1 values by pairs, level by level; an odd one out waits for the next level.

    Returns
    -------
    TaskGraph
        ``leaf (i,)`` for each value and ``add (level, i)`` for each pair, ``2 * leaves - 1`` tasks of cost 1.

    Raises
    ------
    GraphError
        If `leaves` is below 1.

    Examples
    --------
    >>> print(binary_tree_reduce(5))
    binary_tree_reduce: 9 tasks (leaf 5, add 4), 8 edges, critical path 4 unit
    """
    _at_least(1, leaves=leaves)
    names: list[tuple[str, tuple[int, ...]]] = [("leaf", (i,)) for i in range(leaves)]
    values, level = list(range(leaves)), 0
    source: list[int] = []
    target: list[int] = []
    while len(values) > 1:
        level += 1
        following = []
        for i in range(0, len(values) - 1, 2):
            source += values[i : i + 2]
            target += [len(names)] * 2
            following.append(len(names))
            names.append(("add", (level, i // 2)))
        values = following + values[2 * len(following) :]
    return TaskGraph.from_arrays(
        source,
        target,
        len(names),
        names=_names(names),
        kind=[int(kind == "add") for kind, _ in names],
        kind_name=("leaf", "add"),
        args=[(*args, 0)[:2] for _, args in names],
        args_count=[len(args) for _, args in names],
        name="binary_tree_reduce",
        time_unit="unit",
    )


def layered_random(layers: int, width: int, predecessors: int = 2, seed: int = 0) -> TaskGraph:
    """Layers of tasks, each with `predecessors` distinct tasks of the layer before, drawn uniformly.

    Tasks are named by their index, have kind "task", ``args`` (layer, place) and whole costs from 1 to 10, as
    the random graphs of the Standard Task Graph Set.

    Parameters
    ----------
    layers, width : int
        Layers, and tasks of a layer; both >= 1.
    predecessors : int
        0 to `width`.
    seed : int
        Seed of the generator; the same arguments give the same graph.

    Raises
    ------
    GraphError
        If an argument is out of range.

    Examples
    --------
    >>> graph = layered_random(10, 20, 2, seed=1)
    >>> graph.count, graph.edges
    (200, 360)
    """
    _at_least(1, layers=layers, width=width)
    _at_least(0, predecessors=predecessors)
    if predecessors > width:
        raise GraphError(f"predecessors: expected at most the width {width}, got {predecessors}")
    random = np.random.default_rng(seed)
    count, later = layers * width, (layers - 1) * width
    # draw j is one of the width - j places left, found by stepping over those taken, in ascending order
    taken = np.empty((later, 0), np.int64)
    for j in range(predecessors):
        place = random.integers(0, width - j, later)
        for column in range(j):
            place += place >= taken[:, column]
        taken = np.sort(np.column_stack([taken, place]), axis=1)
    layer, place = np.divmod(np.arange(count), width)
    return TaskGraph.from_arrays(
        (taken + layer[:later, None] * width).ravel(),
        np.repeat(np.arange(width, count), predecessors),
        count,
        cost=random.integers(1, 11, count),
        args=np.stack([layer, place], axis=1),
        name="layered_random",
        time_unit="unit",
    )


def diamond() -> TaskGraph:
    """Four tasks of cost 1: one, then two, then one.

    Examples
    --------
    >>> print(diamond())
    diamond: 4 tasks (diamond 4), 4 edges, critical path 3 unit
    """
    return _uniform("diamond", [0, 0, 1, 2], [1, 2, 3, 3], 4, np.arange(4)[:, None])


def bipartite(n: int, m: int) -> TaskGraph:
    """Every one of `n` tasks before every one of `m`: ``n * m`` edges, which lower to one event.

    Parameters
    ----------
    n, m : int
        Tasks ``source (i,)`` and ``sink (j,)``, each of cost 1; both >= 0.

    Raises
    ------
    GraphError
        If `n` or `m` is negative.

    Examples
    --------
    >>> print(bipartite(3, 2))
    bipartite: 5 tasks (source 3, sink 2), 6 edges, critical path 2 unit
    """
    _at_least(0, n=n, m=m)
    kind = np.repeat([0, 1], [n, m])
    args = np.concatenate([np.arange(n), np.arange(m)])
    return TaskGraph.from_arrays(
        np.repeat(np.arange(n), m),
        np.tile(np.arange(n, n + m), n),
        n + m,
        names=_names((("source", "sink")[k], (i,)) for k, i in zip(kind, args, strict=True)),
        kind=kind,
        kind_name=("source", "sink"),
        args=args[:, None],
        name="bipartite",
        time_unit="unit",
    )


# kind, coordinate, the tile written (and read, unless the task is its first), the other tiles read
_Tasks = list[tuple[str, tuple[int, ...], tuple[int, int], Iterable[tuple[int, int]]]]


def _by_data_flow(name: str, tasks: _Tasks, cost: dict[str, float]) -> TaskGraph:
    """Tasks in sequential order, each after the last writers of the tiles that it reads or updates."""
    writer: dict[tuple[int, int], int] = {}
    source: list[int] = []
    target: list[int] = []
    for task, (_, _, written, read) in enumerate(tasks):
        for tile in (*read, written):
            if tile in writer:
                source.append(writer[tile])
                target.append(task)
        writer[written] = task
    kinds = {kind: index for index, kind in enumerate(cost)}
    return TaskGraph.from_arrays(
        source,
        target,
        len(tasks),
        names=_names((kind, args) for kind, args, _, _ in tasks),
        kind=[kinds[kind] for kind, _, _, _ in tasks],
        kind_name=tuple(cost),
        cost=[cost[kind] for kind, _, _, _ in tasks],
        args=[(*args, 0, 0)[:3] for _, args, _, _ in tasks],
        args_count=[len(args) for _, args, _, _ in tasks],
        name=name,
        time_unit="unit",
    )


def _uniform(kind: str, source: np.ndarray, target: np.ndarray, count: int, args: np.ndarray) -> TaskGraph:
    """A graph of one kind, which names it too."""
    names = _names((kind, row) for row in args.tolist())
    return TaskGraph.from_arrays(
        source, target, count, names=names, kind_name=(kind,), args=args, name=kind, time_unit="unit"
    )


def _names(tasks: Iterable[tuple[str, Iterable[int]]]) -> list[str]:
    return [f"{kind}[{', '.join(map(str, args))}]" for kind, args in tasks]


def _at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise GraphError(f"{name}: expected at least {least}, got {value}")
