"""Split-K row sum, symbolic in the number of row blocks: the paper's first example (Fig. 3).

``B[i, j]`` holds the sums of 32 rows of A, from row 32 i, over 32 columns, from column 32 j.
``C[i] = sum over j of B[i, j]``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from etproto.expressions import Symbol
from etproto.kernels.tiles.row_sum import COLUMNS, PARTS, ROWS, final_sum, partial_sum
from etproto.models.model import Model, Tensors, poisoned_tensors
from etproto.program import EventTensor, Instance, Program, TaskGrid, Tensor

__all__ = ["MODEL", "program"]


def program() -> Program:
    """The program, for any ``0 <= n <= 131072`` row blocks.

    Examples
    --------
    >>> print(program())
    program splitk(n <= 131072)
      A: float32[n * 32, 128]
      B: float32[n, 4, 32]
      C: float32[n, 32]
      E = EventTensor(shape=(n,))
      partial = call_device(partial_sum, task_grid=(n, 4),
          in_edges={}, out_edges={E: "ij->i"},
          a=A, b=B)
      final = call_device(final_sum, task_grid=(n,),
          in_edges={E: "i->i"}, out_edges={},
          b=B, c=C)
    """
    n = Symbol("n", bound=131072)
    A = Tensor("A", (n * ROWS, PARTS * COLUMNS))
    B = Tensor("B", (n, PARTS, ROWS))
    C = Tensor("C", (n, ROWS))
    E = EventTensor("E", (n,))
    return Program(
        "splitk",
        (
            TaskGrid("partial", partial_sum, (n, PARTS), {"a": A, "b": B}, notifies={E: "ij->i"}),
            TaskGrid("final", final_sum, (n,), {"b": B, "c": C}, waits={E: "i->i"}),
        ),
    )


def _make_tensors(instance: Instance, rng: np.random.Generator) -> Tensors:
    shape = (instance.values["n"] * ROWS, PARTS * COLUMNS)
    return poisoned_tensors(instance, A=rng.standard_normal(shape, np.float32))


def _reference(tensors: Mapping[str, np.ndarray]) -> Tensors:
    return {"C": np.einsum("rc->r", tensors["A"].astype(np.float64)).reshape(-1, ROWS)}


MODEL = Model(
    name="splitk",
    description="row sum in two steps, four partial sums for each block of 32 rows",
    builder=lambda n: program().bind(n=n),
    make_tensors=_make_tensors,
    reference=_reference,
    tolerance=lambda tensors: float(np.finfo(np.float32).eps) * PARTS * COLUMNS,
    symbols={"n": 1000},
)
