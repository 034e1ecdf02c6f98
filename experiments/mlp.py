"""What does a gated feed-forward block cost in one launch, against cuBLAS with a fused activation in a CUDA graph?
Writes ``mlp.csv``.

Hidden 4096, intermediate 12288, 1 to 8192 tokens. Up to 8 tokens both the matrix-vector form of the program and the
form with tensor-core tiles are measured (``vector``, ``tiles``), above that the latter; its tile widths and group are
the quickest of a few in a short measurement. The baseline is two products by cuBLAS or cublasLt, in every form that
PyTorch has for them, around one Triton kernel for ``silu(gate) * up``. Beside them stand the same tiles as one launch
an operator, and the floor. Weights rotate over about 1 GB: in a model all other layers are read in between.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from experiments.baselines.cublas import gated_calls, product_forms
from experiments.baselines.launches import launches_variant
from experiments.common import Case
from experiments.torch_tensors import bits, output_check, poisoned, random_normal
from experiments.variants import (
    Builders,
    Timer,
    Variant,
    loaded_variant,
    quickest,
    rotations,
    run_variants,
    time_variants,
)

HIDDEN, INTERMEDIATE = 4096, 12288
TOKENS = (1, 8, 32, 64, 2048, 16, 128, 512, 8192, 2, 4, 256, 1024, 4096)
TOLERANCE = 2.0**-7  # an element of H that rounds the other way moves all of its row of Y
FEW_BOUND, MANY_BOUND = 128, 8192
# (up_tile, down_tile, group) to choose from
FEW_CANDIDATES = ((128, 64, 1), (256, 64, 1), (256, 128, 1))
MANY_CANDIDATES = ((256, 256, 16), (256, 128, 16), (256, 256, 8))


def _case(tokens: int) -> Case:
    weights = 3 * HIDDEN * INTERMEDIATE
    moved = 2.0 * (weights + 2 * tokens * HIDDEN)
    return Case({"tokens": tokens}, flops=2.0 * tokens * weights, moved_bytes=moved)


CASES = [_case(tokens) for tokens in TOKENS]


def tensor_sets(tokens: int, copies: int, seed: int) -> tuple[list[dict[str, Any]], list[Any], list[Any]]:
    """Inputs and poisoned outputs of `copies` blocks, and the expected H and Y of each in float32."""
    import torch

    sets, hidden, results = [], [], []
    for number in range(seed * copies, (seed + 1) * copies):
        one = {
            "X": random_normal((tokens, HIDDEN), 3 * number),
            "W_up": random_normal((2 * INTERMEDIATE, HIDDEN), 3 * number + 1, HIDDEN**-0.5),
            "W_down": random_normal((HIDDEN, INTERMEDIATE), 3 * number + 2, INTERMEDIATE**-0.5),
            "G": poisoned((tokens, 2 * INTERMEDIATE)),
            "H": poisoned((tokens, INTERMEDIATE)),
            "Y": poisoned((tokens, HIDDEN)),
        }
        gate, up = (one["X"].float() @ one["W_up"].float().T).chunk(2, 1)
        hidden.append((torch.nn.functional.silu(gate) * up).to(torch.bfloat16))
        results.append(hidden[-1].float() @ one["W_down"].float().T)
        sets.append(one)
    return sets, [value.float() for value in hidden], results


def build(case: Case, options: Any) -> Builders:
    """Inputs of a case, and how to build its variants."""
    from etproto.executors.driver import device_facts
    from etproto.kernels.tiles.vector_multiply import MOST_BATCH
    from etproto.lowering import lower
    from etproto.models.mlp import program
    from etproto.schedule import schedule
    from experiments.baselines.gated import silu_multiply

    tokens = case.values["tokens"]
    workers = device_facts().processors
    sets, hidden, results = tensor_sets(tokens, rotations(case.moved_bytes), options.seed)
    outputs = [one["H"] for one in sets] + [one["Y"] for one in sets]
    poison, error = output_check(outputs, hidden + results, [one["G"] for one in sets])
    few = tokens <= FEW_BOUND
    bound = FEW_BOUND if few else MANY_BOUND
    names = ("X", "W_up", "H", "W_down", "Y")
    flat = [{name: bits(one[name]) for name in names} for one in sets]
    stacked = [{name: tensor[None] for name, tensor in one.items()} for one in flat]

    def vector_program() -> Any:
        return program(HIDDEN, INTERMEDIATE, tokens, workers=workers).bind(tokens=tokens)

    def tiles_program(candidate: tuple[int, int, int]) -> Any:
        up_tile, down_tile, group = candidate
        shape = {"up_tile": up_tile, "down_tile": down_tile, "group": group}
        return program(HIDDEN, INTERMEDIATE, bound, **shape).bind(tokens=tokens)

    def ours(instance: Any, data: Sequence[Any], kind: str, early: bool = False, **facts: Any) -> Variant:
        scheduled = schedule(lower(instance), kind, workers=workers, early_push=early)
        return loaded_variant(scheduled, data, poison, error, TOLERANCE, **facts)

    chosen: list[tuple[tuple[int, int, int], str]] = []

    def best() -> tuple[tuple[int, int, int], dict[str, str]]:
        if not chosen:
            candidates = {":".join(map(str, one)): one for one in (FEW_CANDIDATES if few else MANY_CANDIDATES)}
            name, times = quickest({name: trial(one) for name, one in candidates.items()})
            chosen.append((candidates[name], times))
        candidate, times = chosen[0]
        return candidate, {"configuration": ":".join(map(str, candidate)), "candidates": times}

    def trial(candidate: tuple[int, int, int]) -> Any:
        return lambda: ours(tiles_program(candidate), flat[:2], "static")

    def tiles(kind: str, early: bool) -> Variant:
        candidate, facts = best()
        return ours(tiles_program(candidate), flat, kind, early, **facts)

    def boundaries(form: str) -> Variant:
        instance, data = (vector_program(), stacked) if form == "vector" else (tiles_program(best()[0]), flat)
        return launches_variant(instance, data, poison, error, TOLERANCE, workers)

    builders: dict[str, Any] = {}
    schedules = (("static", False), ("dynamic", False), ("dynamic", True))
    forms = ("vector", "tiles") if tokens <= MOST_BATCH else ("tiles",)
    for kind, early in schedules:
        name = f"{kind}{'-early' * early}"
        if "vector" in forms:
            builders[f"etproto.vector-{name}"] = lambda k=kind, e=early: ours(vector_program(), stacked, k, e)
        builders[f"etproto.tiles-{name}"] = lambda k=kind, e=early: tiles(k, e)
    builders |= {f"launches.{form}": lambda form=form: boundaries(form) for form in forms}
    for name, form in product_forms(tokens).items():
        calls = gated_calls(form, sets, silu_multiply)
        builders[name] = lambda calls=calls: Variant(calls, poison, error, TOLERANCE)
    return builders


def main(argv: Sequence[str] | None = None, *, build: Any = build, timer: Timer = time_variants) -> int:
    """Measure and write the CSV."""
    return run_variants("mlp", __doc__ or "", CASES, CASES[:2], build, ("cublas",), argv, timer)


if __name__ == "__main__":
    sys.exit(main())
