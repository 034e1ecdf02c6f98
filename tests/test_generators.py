"""Generated graphs against formulas, and against dependences found another way."""

from __future__ import annotations

import itertools
from math import ceil, comb, log2

import networkx as nx
import numpy as np
import pytest

from etproto import generators
from etproto.errors import GraphError
from etproto.graph import TaskGraph


def kinds(graph: TaskGraph) -> dict[str, int]:
    return dict(zip(graph.kind_name, np.bincount(graph.kind, minlength=len(graph.kind_name)).tolist(), strict=True))


def coordinates(graph: TaskGraph) -> list[tuple]:
    return [
        (graph.kind_name[kind], *args[:count])
        for kind, args, count in zip(graph.kind, graph.args.tolist(), graph.args_count, strict=True)
    ]


def coordinate_edges(graph: TaskGraph) -> set[tuple]:
    at = coordinates(graph)
    return {(at[s], at[t]) for s, t in zip(graph.edge_source, graph.edge_target, strict=True)}


@pytest.mark.parametrize("t", [1, 2, 3, 4, 7, 12])
def test_cholesky(t):
    graph = generators.cholesky(t).require_valid()
    assert graph.count == t * (t + 1) * (t + 2) // 6
    assert kinds(graph) == {"potrf": t, "trsm": comb(t, 2), "syrk": comb(t, 2), "gemm": comb(t, 3)}
    wanted = set()
    for k in range(t):
        for i in range(k + 1, t):
            wanted |= {(("potrf", k), ("trsm", i, k)), (("trsm", i, k), ("syrk", i, k))}
            wanted.add((("syrk", i, k), ("syrk", i, k + 1) if k + 1 < i else ("potrf", i)))
            for j in range(k + 1, i):
                wanted |= {(("trsm", i, k), ("gemm", i, j, k)), (("trsm", j, k), ("gemm", i, j, k))}
                wanted.add((("gemm", i, j, k), ("gemm", i, j, k + 1) if k + 1 < j else ("trsm", i, j)))
    assert coordinate_edges(graph) == wanted
    assert graph.edges == len(wanted)
    # n_b = 1/t of the matrix: all tasks together are (t^3) flop units, the flops of a factorisation
    assert graph.cost.sum() == t**3
    assert graph.critical_path() == max(1, 9 * t - 10)


@pytest.mark.parametrize("t", [1, 2, 3, 5, 8])
def test_lu(t):
    graph = generators.lu(t).require_valid()
    assert graph.count == t * (t + 1) * (2 * t + 1) // 6
    assert graph.cost.sum() == 2 * t**3
    wanted = set()
    for k in range(t):
        for i, j in itertools.product(range(k, t), repeat=2):
            if (i, j) == (k, k):
                task, needs = ("getrf", k), []
            elif i == k:
                task, needs = ("trsm_row", k, j), [("getrf", k)]
            elif j == k:
                task, needs = ("trsm_column", i, k), [("getrf", k)]
            else:
                task, needs = ("gemm", i, j, k), [("trsm_column", i, k), ("trsm_row", k, j)]
            needs += [("gemm", i, j, k - 1)] if k else []
            wanted |= {(need, task) for need in needs}
    assert coordinate_edges(graph) == wanted


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(("width", "steps"), [(1, 1), (1, 4), (2, 3), (3, 3), (6, 5)])
def test_stencil(width, steps, periodic):
    graph = generators.stencil(width, steps, periodic).require_valid()
    assert graph.count == width * steps
    wanted = set()
    for t, x, shift in itertools.product(range(1, steps), range(width), (-1, 0, 1)):
        y = (x + shift) % width if periodic else x + shift
        if 0 <= y < width:
            wanted.add((("stencil", t - 1, y), ("stencil", t, x)))
    assert coordinate_edges(graph) == wanted
    assert graph.critical_path() == steps


@pytest.mark.parametrize(("width", "stages"), [(1, 1), (3, 2), (5, 4)])
def test_fork_join(width, stages):
    graph = generators.fork_join(width, stages).require_valid()
    wanted = set()
    for s, i in itertools.product(range(stages), range(width)):
        wanted |= {(("join", s), ("work", s, i)), (("work", s, i), ("join", s + 1))}
    assert coordinate_edges(graph) == wanted
    assert graph.count == stages * (width + 1) + 1
    assert graph.critical_path() == 2 * stages + 1


@pytest.mark.parametrize("leaves", [1, 2, 3, 5, 8, 1000])
def test_binary_tree_reduce(leaves):
    graph = generators.binary_tree_reduce(leaves).require_valid()
    G = graph.to_networkx()
    assert kinds(graph) == {"leaf": leaves, "add": leaves - 1}
    assert {G.in_degree(node) for node in G if node.startswith("add")} <= {2}
    assert [G.out_degree(node) for node in G].count(0) == 1
    assert graph.critical_path() == 1 + ceil(log2(leaves))


def test_chain_diamond_and_bipartite():
    assert coordinate_edges(generators.chain(4)) == {(("chain", i), ("chain", i + 1)) for i in range(3)}
    assert [generators.chain(n).edges for n in (0, 1, 2)] == [0, 0, 1]
    assert set(generators.diamond().to_networkx().edges) == {
        ("diamond[0]", "diamond[1]"),
        ("diamond[0]", "diamond[2]"),
        ("diamond[1]", "diamond[3]"),
        ("diamond[2]", "diamond[3]"),
    }
    for n, m in itertools.product((0, 1, 5), (0, 1, 4)):
        graph = generators.bipartite(n, m).require_valid()
        assert coordinate_edges(graph) == {(("source", i), ("sink", j)) for i in range(n) for j in range(m)}


@pytest.mark.parametrize(("layers", "width", "predecessors"), [(1, 5, 2), (4, 6, 0), (5, 7, 2), (3, 4, 4), (6, 1, 1)])
def test_layered_random(layers, width, predecessors):
    # refuses duplicates
    graph = generators.layered_random(layers, width, predecessors, seed=5).require_valid()
    G = graph.to_networkx()
    for node in G:
        assert G.in_degree(node) == (predecessors if node >= width else 0)
    assert all(t // width - s // width == 1 for s, t in G.edges)
    assert set(graph.cost.tolist()) <= set(range(1, 11))
    again = generators.layered_random(layers, width, predecessors, seed=5)
    assert again.edge_source.tolist() == graph.edge_source.tolist()


def test_layered_random_draws_every_pair_equally():
    graph = generators.layered_random(2001, 4, 2, seed=0)
    pairs = (graph.edge_source.reshape(-1, 2) % 4).tolist()
    counts = np.array([pairs.count(list(pair)) for pair in itertools.combinations(range(4), 2)])
    assert counts.sum() == 8000
    assert abs(counts / 8000 - 1 / 6).max() < 0.02


def test_names_read_like_grids():
    assert "gemm[2, 1, 0]" in generators.cholesky(3).names
    assert nx.has_path(generators.cholesky(3).to_networkx(), "potrf[0]", "potrf[2]")


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: generators.cholesky(0), "tiles: expected at least 1, got 0"),
        (lambda: generators.lu(-1), "tiles: expected at least 1, got -1"),
        (lambda: generators.stencil(0, 3), "width: expected at least 1, got 0"),
        (lambda: generators.fork_join(2, 0), "stages: expected at least 1"),
        (lambda: generators.chain(-1), "n: expected at least 0"),
        (lambda: generators.binary_tree_reduce(0), "leaves: expected at least 1"),
        (lambda: generators.bipartite(-1, 2), "n: expected at least 0"),
        (lambda: generators.layered_random(3, 2, 3), "predecessors: expected at most the width 2, got 3"),
    ],
)
def test_sizes_out_of_range_are_refused(build, text):
    with pytest.raises(GraphError, match=text):
        build()
