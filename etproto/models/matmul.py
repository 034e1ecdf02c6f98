"""``C = A B^T`` of 16-bit floats on tensor cores, one task a tile of 128 x tile_n, for any number of rows of A."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from etproto.errors import ProgramError
from etproto.expressions import Symbol, ceil_div
from etproto.kernels.tiles import brain_float
from etproto.kernels.tiles.matrix_multiply import TILE_M, matrix_multiply
from etproto.models.model import Model, Tensors, poisoned_tensors, require_at_least
from etproto.program import Instance, Program, TaskGrid, Tensor

__all__ = ["MODEL", "program"]


def program(N: int = 512, K: int = 512, tile_n: int = 256, group: int = 16, bound: int = 16384) -> Program:
    """The program for any ``0 <= M <= bound`` rows of A; B is (N, K), as weights are stored.

    Parameters
    ----------
    N, K : int
        Rows of B, and columns of both: multiples of 8, which bulk copies ask for.
    tile_n : int
        Columns of a tile of C.
    group : int
        Row tiles whose tasks follow each other, so that their rows of B stay in the second-level cache.
    bound : int
        Most rows of A.

    Raises
    ------
    ProgramError
        A size below 1 or no multiple of 8, or a tile that there is not.
    """
    require_at_least("matmul", 1, N=N, K=K, group=group, bound=bound)
    for name, value in (("N", N), ("K", K)):
        if value % 8:
            raise ProgramError(f"matmul: {name} must be a multiple of 8 (rows of 16 bytes), got {value}")
    M = Symbol("M", bound=bound)
    group = min(group, -(-bound // TILE_M))
    A, B, C = Tensor("A", (M, K), "bfloat16"), Tensor("B", (N, K), "bfloat16"), Tensor("C", (M, N), "bfloat16")
    extents = (ceil_div(M, group * TILE_M), -(-N // tile_n), group)
    kind = matrix_multiply(tile_n, group=group)
    return Program("matmul", (TaskGrid("tiles", kind, extents, {"a": A, "b": B, "c": C}),))


def _make_tensors(instance: Instance, rng: np.random.Generator) -> Tensors:
    shapes = {tensor.name: instance.shape(tensor) for tensor in instance.program.tensors}
    A, B = (rng.standard_normal(shapes[name], np.float32) for name in ("A", "B"))
    return poisoned_tensors(instance, A=A, B=B)


def _reference(tensors: Mapping[str, np.ndarray]) -> Tensors:
    A, B = (brain_float.to_float32(tensors[name]).astype(np.float64) for name in ("A", "B"))
    return {"C": A @ B.T}


MODEL = Model(
    name="matmul",
    description="matrix product of bfloat16 on tensor cores, sums in float32",
    builder=lambda M, **parameters: program(**parameters).bind(M=M),
    make_tensors=_make_tensors,
    reference=_reference,
    tolerance=lambda tensors: 2.0**-8,  # half a unit of bfloat16, relative to the largest element
    symbols={"M": 256},
    parameters={"N": 512, "K": 512, "tile_n": 256, "group": 16},
)
