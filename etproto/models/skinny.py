"""``Y = X W^T`` for few rows of X, weights on the M side of the tensor cores, K split over tasks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from etproto.errors import ProgramError
from etproto.expressions import Symbol
from etproto.kernels.tiles import brain_float
from etproto.kernels.tiles.reduction import reduce_parts
from etproto.kernels.tiles.skinny_multiply import MOST_BATCH, TILE_N, skinny_multiply
from etproto.models.model import Model, Tensors, poisoned_tensors, require_at_least
from etproto.program import EventTensor, Instance, Program, TaskGrid, Tensor

__all__ = ["MODEL", "program", "slices_for"]


def slices_for(N: int, workers: int) -> int:
    """Slices of K, so that the tasks of one product are about as many as workers.

    Examples
    --------
    >>> slices_for(4096, 132), slices_for(14336, 132)
    (4, 1)
    """
    return max(1, workers // -(-N // TILE_N))


def program(N: int = 256, K: int = 256, bound: int = 16, slices: int = 2) -> Program:
    """The program for any ``0 <= B <= bound`` rows of X.

    Parameters
    ----------
    N, K : int
        Rows and columns of W; K is a multiple of 8, which bulk copies ask for.
    bound : int
        Most rows of X, up to 256; it decides the shape of the tensor-core instruction.
    slices : int
        Slices of K, each the work of another task; with more than one, their sums are added up in a fixed order.

    Raises
    ------
    ProgramError
        A size out of range.
    """
    require_at_least("skinny", 1, N=N, K=K, bound=bound, slices=slices)
    if K % 8:
        raise ProgramError(f"skinny: K must be a multiple of 8 (rows of 16 bytes), got {K}")
    if bound > MOST_BATCH:
        raise ProgramError(f"skinny: bound must be at most {MOST_BATCH}, got {bound}")
    B, tiles = Symbol("B", bound=bound), -(-N // TILE_N)
    X, W, Y = Tensor("X", (B, K), "bfloat16"), Tensor("W", (N, K), "bfloat16"), Tensor("Y", (B, N), "bfloat16")
    kind = skinny_multiply(bound, slices)
    if slices == 1:
        return Program("skinny", (TaskGrid("product", kind, (tiles, 1), {"x": X, "w": W, "y": Y}),))
    P, E = Tensor("P", (slices, B, N)), EventTensor("E", (tiles,))
    return Program(
        "skinny",
        (
            TaskGrid("product", kind, (tiles, slices), {"x": X, "w": W, "p": P}, notifies={E: "js->j"}),
            TaskGrid("sum", reduce_parts(bound, TILE_N, "bfloat16"), (1, tiles), {"p": P, "c": Y}, waits={E: "ij->j"}),
        ),
    )


def _make_tensors(instance: Instance, rng: np.random.Generator) -> Tensors:
    shapes = {tensor.name: instance.shape(tensor) for tensor in instance.program.tensors}
    X, W = (rng.standard_normal(shapes[name], np.float32) for name in ("X", "W"))
    return poisoned_tensors(instance, X=X, W=W)


def _reference(tensors: Mapping[str, np.ndarray]) -> Tensors:
    X, W = (brain_float.to_float32(tensors[name]).astype(np.float64) for name in ("X", "W"))
    return {"Y": X @ W.T}


MODEL = Model(
    name="skinny",
    description="matrix product of a few rows of bfloat16, weights on the M side, K split over tasks",
    builder=lambda B, **parameters: program(**parameters).bind(B=B),
    make_tensors=_make_tensors,
    reference=_reference,
    tolerance=lambda tensors: 2.0**-8,  # half a unit of bfloat16, relative to the largest element
    symbols={"B": 16},
    parameters={"N": 256, "K": 256, "bound": 16, "slices": 2},
)
