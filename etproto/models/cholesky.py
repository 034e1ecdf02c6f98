"""Tiled Cholesky factorisation, in place, from a networkx graph of potrf, trsm, syrk and gemm tasks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from etproto.generators import cholesky
from etproto.graph import TaskGraph
from etproto.kernels.tiles.cholesky import OPERANDS, cholesky_kinds
from etproto.models.model import Model, Tensors, poisoned_tensors, require_at_least
from etproto.program import Tensor
from etproto.tile_kind import TileKind

__all__ = ["MODEL", "graph", "kinds"]


def graph(tiles: int = 8, tile: int = 32) -> TaskGraph:
    """The task graph for `tiles` x `tiles` tiles of `tile` x `tile` elements, with costs in microseconds.

    Raises
    ------
    ProgramError
        No tile, or a tile that the kinds do not support.

    Examples
    --------
    >>> graph(tiles=4, tile=16).count
    20
    """
    require_at_least("cholesky", 1, tiles=tiles)
    G = cholesky(tiles).to_networkx()
    for attributes in G.nodes.values():
        attributes["cost"] = cholesky_kinds(tile)[attributes["kind"]].cost
    size = tiles * tile
    return TaskGraph.from_networkx(
        G, name="cholesky", time_unit="us", tensors=(Tensor("A", (size, size)),), operands=OPERANDS
    )


def kinds(graph: TaskGraph) -> dict[str, TileKind]:
    """Tile kinds of a graph made by `graph`."""
    size = int(graph.tensors[0].shape[0].evaluate({}))
    return cholesky_kinds(size // (int(graph.args.max()) + 1))


def _make_tensors(graph: TaskGraph, rng: np.random.Generator) -> Tensors:
    size = int(graph.tensors[0].shape[0].evaluate({}))
    G = rng.standard_normal((size, size))
    # The condition number is about 5, whatever the size.
    return poisoned_tensors(graph, A=G @ G.T / size + np.eye(size))


def _reference(tensors: Mapping[str, np.ndarray]) -> Tensors:
    A = tensors["A"].astype(np.float64)
    return {"A": np.linalg.cholesky(A) + np.triu(A, 1)}  # above the diagonal A keeps its elements


MODEL = Model(
    name="cholesky",
    description="tiled Cholesky factorisation from a networkx graph, in place",
    builder=graph,
    make_tensors=_make_tensors,
    reference=_reference,
    tolerance=lambda tensors: float(np.finfo(np.float32).eps) * (8 + len(tensors["A"])),
    parameters={"tiles": 8, "tile": 32},
    kinds=kinds,
)
