"""Tiled Cholesky from a networkx graph."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from etproto.errors import ProgramError
from etproto.graph import TaskGraph
from etproto.models import MODELS
from etproto.models.cholesky import graph, kinds


@pytest.mark.parametrize("tiles, tile", [(1, 1), (1, 8), (2, 5), (3, 32), (4, 16), (7, 4), (5, 64)])
def test_sizes(run_in_order, tiles, tile):
    target, tensors, _ = run_in_order("cholesky", tiles=tiles, tile=tile)
    assert tensors["A"].shape == (tiles * tile, tiles * tile)
    assert target.count == tiles * (tiles + 1) * (tiles + 2) // 6


def test_upper_triangle_is_left_alone(run_in_order):
    before = {}
    _, tensors, _ = run_in_order("cholesky", tiles=3, tile=8, change=lambda t: before.update(A=t["A"].copy()))
    np.testing.assert_array_equal(np.triu(tensors["A"], 1), np.triu(before["A"], 1))


def test_only_the_lower_triangle_is_read(run_in_order):
    def spoil(tensors):
        tensors["A"][np.triu_indices_from(tensors["A"], 1)] = 1e3

    run_in_order("cholesky", tiles=3, tile=8, change=spoil)


@pytest.mark.parametrize("seed", range(5))
def test_any_topological_order_gives_the_same_bits(run_in_order, seed):
    target, first, _ = run_in_order("cholesky", tiles=5, tile=4)
    model = MODELS["cholesky"]
    tensors = model.make_tensors(target, np.random.default_rng(0))
    table, rng = kinds(target), np.random.default_rng(seed)
    G = nx.relabel_nodes(target.to_networkx(), dict(zip(target.names, range(target.count), strict=True)))
    shuffled = rng.permutation(target.count)
    for task in nx.lexicographical_topological_sort(G, key=lambda task: shuffled[task]):
        kind = table[target.kind_name[target.kind[task]]]
        kind.reference(*target.args[task, : kind.coordinates], *[tensors["A"]] * len(kind.operands))
    np.testing.assert_array_equal(tensors["A"], first["A"])


def test_costs_and_operands_come_from_the_kinds():
    target = graph(tiles=4, tile=16)
    table = kinds(target)
    assert isinstance(target, TaskGraph) and target.time_unit == "us"
    for task in range(target.count):
        kind = table[target.kind_name[target.kind[task]]]
        assert target.cost[task] == kind.cost
        assert target.args_count[task] == kind.coordinates
        assert list(target.operands[kind.name]) == [operand.name for operand in kind.operands]
    assert kinds(graph(tiles=2, tile=16))["gemm"] is table["gemm"]


def test_not_positive_definite(run_in_order):
    def spoil(tensors):
        tensors["A"][5, 5] = -1

    with pytest.raises(np.linalg.LinAlgError):
        run_in_order("cholesky", tiles=2, tile=4, change=spoil)


def test_refused():
    with pytest.raises(ProgramError, match="tiles must be at least 1, got 0"):
        graph(tiles=0)
    with pytest.raises(ProgramError, match="tile must be 1 to 64, got 65"):
        graph(tile=65)
    with pytest.raises(ProgramError, match="tile must be 1 to 64, got 0"):
        graph(tile=0)
