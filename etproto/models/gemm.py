"""``C = A B`` with split-K: partial products of each tile's k slices, then their sum in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from etproto.expressions import Symbol, ceil_div
from etproto.kernels.tiles.gemm import gemm_partial, gemm_reduce
from etproto.models.model import Model, Tensors, poisoned_tensors, require_at_least
from etproto.program import EventTensor, Instance, Program, TaskGrid, Tensor

__all__ = ["MODEL", "program"]


def program(
    N: int = 512, K: int = 512, splits: int = 4, tile_m: int = 64, tile_n: int = 64, tile_k: int = 16
) -> Program:
    """The program for any ``0 <= M <= 8192`` rows of A; no size needs to be a multiple of its tile.

    Parameters
    ----------
    N, K : int
        Columns of B, columns of A.
    splits : int
        Slices of K, each the work of another task. Slices are multiples of `tile_k`, so some may be empty.
    tile_m, tile_n, tile_k : int
        Tile of C, and depth of one stage in shared memory.

    Raises
    ------
    ProgramError
        A negative size, a tile or number of slices below 1.
    """
    require_at_least("gemm", 0, N=N, K=K)
    require_at_least("gemm", 1, splits=splits, tile_m=tile_m, tile_n=tile_n, tile_k=tile_k)
    M = Symbol("M", bound=8192)
    A, B, C = Tensor("A", (M, K)), Tensor("B", (K, N)), Tensor("C", (M, N))
    P = Tensor("P", (splits, M, N))
    rows, columns = ceil_div(M, tile_m), ceil_div(N, tile_n)
    E = EventTensor("E", (rows, columns))
    partial = gemm_partial(tile_m, tile_n, tile_k)
    reduce = gemm_reduce(tile_m, tile_n)
    return Program(
        "gemm",
        (
            TaskGrid("partial", partial, (rows, columns, splits), {"a": A, "b": B, "p": P}, notifies={E: "ijk->ij"}),
            TaskGrid("reduce", reduce, (rows, columns), {"p": P, "c": C}, waits={E: "ij->ij"}),
        ),
    )


def _make_tensors(instance: Instance, rng: np.random.Generator) -> Tensors:
    shapes = {tensor.name: instance.shape(tensor) for tensor in instance.program.tensors}
    A, B = (rng.standard_normal(shapes[name], np.float32) for name in ("A", "B"))
    return poisoned_tensors(instance, A=A, B=B)


def _reference(tensors: Mapping[str, np.ndarray]) -> Tensors:
    return {"C": tensors["A"].astype(np.float64) @ tensors["B"].astype(np.float64)}


def _tolerance(tensors: Mapping[str, np.ndarray]) -> float:
    return float(np.finfo(np.float32).eps) * (tensors["A"].shape[1] + tensors["P"].shape[0])


MODEL = Model(
    name="gemm",
    description="matrix product, K split over tasks, partial products added in a fixed order",
    builder=lambda M, **parameters: program(**parameters).bind(M=M),
    make_tensors=_make_tensors,
    reference=_reference,
    tolerance=_tolerance,
    symbols={"M": 512},
    parameters={"N": 512, "K": 512, "splits": 4, "tile_m": 64, "tile_n": 64, "tile_k": 16},
)
