"""A chain of dependent matrix-vector products: every operator reads what the one before has written.

``Y_0 = X W_0^T``, ``Y_o = Y_(o-1) W_o^T``, for few rows of X. This is the shape of decoding: what an operator costs
is reading its weights, and one launch an operator loses the time in which memory runs up and down. Here all
operators are one launch, and the weights of the next are on their way while the last waits.

The shapes of `CHAINS` repeat for every layer, so that each shape is one task grid whose first coordinate is the
layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from etproto.errors import ProgramError
from etproto.kernels.tiles import brain_float
from etproto.kernels.tiles.vector_multiply import MOST_BATCH, vector_multiply
from etproto.models.model import Model, Tensors, poisoned_tensors, require_at_least
from etproto.program import EventTensor, Instance, Program, TaskGrid, Tensor

__all__ = ["CHAINS", "MODEL", "program", "rows_of_task"]

#: Shapes (N, K) of a layer's operators, and layers, by name.
CHAINS: Mapping[str, tuple[tuple[tuple[int, int], ...], int]] = {
    "llama1b": (((3072, 2048), (2048, 3072), (16384, 2048), (2048, 16384)), 16),
    "8b": (((6144, 4096), (4096, 6144), (24576, 4096), (4096, 24576)), 9),
    "4096": (((4096, 4096),), 32),
    "2048": (((2048, 2048),), 64),
}


def rows_of_task(N: int, workers: int) -> int:
    """Rows of W a task, so that an operator of N rows gives each worker at most one: a multiple of 8.

    Examples
    --------
    >>> rows_of_task(2048, 132), rows_of_task(24576, 132)
    (16, 192)
    """
    return -(-N // (8 * workers)) * 8


def program(
    shapes: Sequence[tuple[int, int]] = ((64, 32), (32, 64)), layers: int = 2, *, batch: int = 1, workers: int = 132
) -> Program:
    """The program for `layers` repetitions of operators of `shapes` (N, K).

    Parameters
    ----------
    shapes : sequence of (N, K)
        Each K is the N before it; the first K is the last N.
    layers : int
    batch : int
        Rows of X, 1 to 8.
    workers : int
        Each operator is cut into about as many tasks.

    Raises
    ------
    ProgramError
        Shapes that do not follow each other, or sizes out of range.
    """
    require_at_least("chain", 1, layers=layers, batch=batch, workers=workers)
    if not shapes:
        raise ProgramError("chain: expected at least one operator, got none")
    if batch > MOST_BATCH:
        raise ProgramError(f"chain: batch must be at most {MOST_BATCH}, got {batch}")
    for number, (_, K) in enumerate(shapes):
        if K != shapes[number - 1][0]:
            raise ProgramError(
                f"chain: operator {number} has K = {K}, expected the N of the one before, {shapes[number - 1][0]}"
            )
    count = len(shapes)
    # results[o] is what operator o reads: X and the results of the last operator, then those of the others.
    results = [Tensor("Y0", (layers + 1, batch, shapes[0][1]), "bfloat16")]
    results += [Tensor(f"Y{o}", (layers, batch, shapes[o][1]), "bfloat16") for o in range(1, count)]
    events = [EventTensor(f"E{o}", (layers,)) for o in range(count)]
    grids = []
    for o, (N, K) in enumerate(shapes):
        last = o == count - 1
        rows = rows_of_task(N, workers)
        kind = vector_multiply(rows, K, batch=batch, shift=int(last))
        before = (events[-1], "li->l-1:l") if o == 0 else (events[o - 1], "li->l")
        operands = {"x": results[o], "w": Tensor(f"W{o}", (layers, N, K), "bfloat16"), "y": results[(o + 1) % count]}
        grids.append(
            TaskGrid(
                f"operator{o}", kind, (layers, -(-N // rows)), operands, waits=[before], notifies={events[o]: "li->l"}
            )
        )
    return Program("chain", tuple(grids))


def _build(N: int, layers: int, batch: int, workers: int) -> Instance:
    return program(((N, N),), layers, batch=batch, workers=workers).bind()


def make_tensors(instance: Instance, rng: np.random.Generator) -> Tensors:
    """X in the first row of Y0, and weights of such a size that results neither grow nor vanish."""
    shapes = {tensor.name: instance.shape(tensor) for tensor in instance.program.tensors}
    inputs = {
        name: rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[2]))
        for name, shape in shapes.items()
        if name.startswith("W")
    }
    first = np.full(shapes["Y0"], np.nan, np.float32)
    first[0] = rng.standard_normal(shapes["Y0"][1:], np.float32)
    return poisoned_tensors(instance, Y0=first, **inputs)


def reference(tensors: Mapping[str, np.ndarray]) -> Tensors:
    """Every operator's results, each rounded to bfloat16 before the next reads it."""
    weights = [tensors[name] for name in sorted((n for n in tensors if n.startswith("W")), key=lambda n: int(n[1:]))]
    layers, count = len(weights[0]), len(weights)
    value = brain_float.to_float32(tensors["Y0"][0]).astype(np.float64)
    found: dict[str, list[np.ndarray]] = {f"Y{o}": [] for o in range(count)}
    found["Y0"].append(value)
    for layer in range(layers):
        for o in range(count):
            value = value @ brain_float.to_float32(weights[o][layer]).astype(np.float64).T
            value = brain_float.to_float32(brain_float.from_float32(value.astype(np.float32))).astype(np.float64)
            found[f"Y{(o + 1) % count}"].append(value)
    return {name: np.stack(values) for name, values in found.items()}


MODEL = Model(
    name="chain",
    description="dependent matrix-vector products of bfloat16 in one launch, weights loaded ahead of their events",
    builder=_build,
    make_tensors=make_tensors,
    reference=reference,
    # An element that rounds the other way moves all later ones by its share of a unit of bfloat16.
    tolerance=lambda tensors: 2.0**-6,
    parameters={"N": 64, "layers": 4, "batch": 1, "workers": 8},
)
