"""Gated feed-forward block of a transformer: ``Y = (silu(X G^T) * (X U^T)) D^T``, for any number of tokens.

Two grids. ``up`` makes the hidden activations H from X and from both halves of ``W_up`` (G over U), ``down``
makes Y from H and ``W_down`` (D). With at most 8 tokens either is a grid of matrix-vector products, whose weights
are on their way before H is there; every row of Y needs all of H, so one event joins them. With more tokens they are
tensor-core products, and rows of H wait for each other in blocks of 128: an event a block, so that ``down`` starts
on the first tokens while ``up`` still works on the last.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from etproto.errors import ProgramError
from etproto.expressions import Symbol, ceil_div
from etproto.kernels.tiles import brain_float
from etproto.kernels.tiles.matrix_multiply import TILE_M, matrix_multiply
from etproto.kernels.tiles.vector_multiply import MOST_BATCH, vector_multiply
from etproto.models.chain import rows_of_task
from etproto.models.model import Model, Tensors, poisoned_tensors, require_at_least
from etproto.program import EventTensor, Instance, Program, TaskGrid, Tensor

__all__ = ["GRANULARITIES", "MODEL", "make_tensors", "program", "reference"]

GRANULARITIES = ("tile", "row", "barrier")


def program(
    hidden: int = 4096,
    intermediate: int = 12288,
    tokens_bound: int = 8192,
    *,
    workers: int = 132,
    up_tile: int = 256,
    down_tile: int = 256,
    group: int = 16,
    granularity: str = "row",
) -> Program:
    """The program for any ``0 <= tokens <= tokens_bound``.

    Parameters
    ----------
    hidden, intermediate : int
        Columns of X and Y, and of H: multiples of 8 (of 32 for at most 8 tokens).
    tokens_bound : int
        Most tokens; it decides which tile kinds are used, and with them the shapes: for at most 8 tokens every
        tensor has a leading dimension of 1.
    workers : int
        For at most 8 tokens, each grid is cut into about as many tasks.
    up_tile, down_tile, group : int
        For more than 8: rows of the weights that a task takes (`up_tile` counts both halves), and row blocks that
        follow each other.
    granularity : {"tile", "row", "barrier"}
        For more than 8: an event a tile of H, a block of 128 rows, or one for all of H.

    Raises
    ------
    ProgramError
        Sizes or a granularity that there is not.

    Examples
    --------
    >>> print(program(64, 128, 4, workers=8))
    program mlp(tokens <= 4)
      X: bfloat16[1, tokens, 64]
      W_up: bfloat16[1, 256, 64]
      H: bfloat16[1, tokens, 128]
      W_down: bfloat16[1, 64, 128]
      Y: bfloat16[1, tokens, 64]
      E = EventTensor(shape=(1,))
      up = call_device(vector_multiply_16_4_swiglu, task_grid=(1, 8),
          in_edges={}, out_edges={E: "li->l"},
          x=X, w=W_up, y=H)
      down = call_device(vector_multiply_8_4, task_grid=(1, 8),
          in_edges={E: "li->l"}, out_edges={},
          x=H, w=W_down, y=Y)
    """
    sizes = {"hidden": hidden, "intermediate": intermediate}
    require_at_least("mlp", 1, **sizes, tokens_bound=tokens_bound, workers=workers, group=group)
    if granularity not in GRANULARITIES:
        raise ProgramError(f"mlp: granularity must be one of {', '.join(GRANULARITIES)}, got {granularity!r}")
    few = tokens_bound <= MOST_BATCH
    for name, value in sizes.items():
        if value % (32 if few else 8):
            raise ProgramError(f"mlp: {name} must be a multiple of {32 if few else 8}, got {value}")
    tokens = Symbol("tokens", bound=tokens_bound)
    leading = (1,) if few else ()
    X, H, Y = (
        Tensor(name, (*leading, tokens, columns), "bfloat16")
        for name, columns in (("X", hidden), ("H", intermediate), ("Y", hidden))
    )
    up_weights = Tensor("W_up", (*leading, 2 * intermediate, hidden), "bfloat16")
    down_weights = Tensor("W_down", (*leading, hidden, intermediate), "bfloat16")
    if few:
        up_rows, down_rows = rows_of_task(intermediate, workers), rows_of_task(hidden, workers)
        done = EventTensor("E", (1,))
        up = TaskGrid(
            "up",
            vector_multiply(up_rows, hidden, batch=tokens_bound, activation="swiglu"),
            (1, -(-intermediate // up_rows)),
            {"x": X, "w": up_weights, "y": H},
            notifies={done: "li->l"},
        )
        down = TaskGrid(
            "down",
            vector_multiply(down_rows, intermediate, batch=tokens_bound),
            (1, -(-hidden // down_rows)),
            {"x": H, "w": down_weights, "y": Y},
            waits={done: "li->l"},
        )
        return Program("mlp", (up, down))
    group = min(group, -(-tokens_bound // TILE_M))
    groups = ceil_div(tokens, group * TILE_M)
    up_columns = -(-intermediate // (up_tile // 2))
    shape, notify, wait = {
        "tile": ((groups, group, up_columns), "gjr->grj", "gjr->(g, r, :)"),
        "row": ((groups, group), "gjr->gr", "gjr->gr"),
        "barrier": ((), "gjr->", "gjr->"),
    }[granularity]
    done = EventTensor("E", shape)
    up = TaskGrid(
        "up",
        matrix_multiply(up_tile, group=group, activation="swiglu"),
        (groups, up_columns, group),
        {"a": X, "b": up_weights, "c": H},
        notifies={done: notify},
    )
    down = TaskGrid(
        "down",
        matrix_multiply(down_tile, group=group),
        (groups, -(-hidden // down_tile), group),
        {"a": H, "b": down_weights, "c": Y},
        waits={done: wait},
    )
    return Program("mlp", (up, down))


def make_tensors(instance: Instance, rng: np.random.Generator) -> Tensors:
    """X, and weights of such a size that activations neither grow nor vanish."""
    inputs = {}
    for tensor in instance.program.tensors:
        if tensor.name in ("X", "W_up", "W_down"):
            shape = instance.shape(tensor)
            scale = 1.0 if tensor.name == "X" else 1 / np.sqrt(shape[-1])
            inputs[tensor.name] = rng.standard_normal(shape, np.float32) * np.float32(scale)
    return poisoned_tensors(instance, **inputs)


def reference(tensors: Mapping[str, np.ndarray]) -> Tensors:
    """H rounded to bfloat16 before it is read, as it is stored."""
    X, W_up, W_down = (brain_float.to_float32(tensors[name]).astype(np.float64) for name in ("X", "W_up", "W_down"))
    gate, up = np.split(X @ W_up.swapaxes(-1, -2), 2, axis=-1)
    H = (gate / (1 + np.exp(-gate)) * up).astype(np.float32)
    H = brain_float.to_float32(brain_float.from_float32(H)).astype(np.float64)
    return {"H": H, "Y": H @ W_down.swapaxes(-1, -2)}


MODEL = Model(
    name="mlp",
    description="gated feed-forward block of bfloat16, its second product waiting for blocks of rows of the first",
    builder=lambda tokens, **parameters: program(**parameters).bind(tokens=tokens),
    make_tensors=make_tensors,
    reference=reference,
    tolerance=lambda tensors: 2.0**-7,  # an element of H that rounds the other way moves all of its row of Y
    symbols={"tokens": 4},
    parameters={
        "hidden": 64,
        "intermediate": 128,
        "tokens_bound": 8,
        "workers": 8,
        "up_tile": 128,
        "down_tile": 64,
        "group": 2,
    },
)
