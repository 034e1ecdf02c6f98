"""How fast is one product with few rows, as in decoding, against the best of cuBLAS? Writes ``skinny_gemm.csv``.

``Y = X W^T`` for 1 to 128 rows of X. Up to 8 rows: matrix-vector tiles (``vector``), which cannot hold X where a row is
too long for shared memory; then that row of the CSV says so. Any number of rows: tensor-core tiles of 128 rows
(``tiles``), whose width is the quickest of three in a short measurement. Weights rotate over about 1 GB, since between
two tokens all other weights of a model are read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from experiments.baselines.cublas import product_variants
from experiments.common import Case
from experiments.torch_tensors import bits, output_check, poisoned, product_tolerance, random_normal
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

BATCHES = (1, 8, 16, 32, 64, 128)
WEIGHTS = ((14336, 4096), (4096, 4096), (4096, 14336), (152064, 4096))
WIDTHS = (64, 128, 256)
ROWS_BOUND = 128


def _case(batch: int, N: int, K: int) -> Case:
    moved = 2.0 * (batch * K + N * K + batch * N)
    return Case({"batch": batch, "N": N, "K": K}, flops=2.0 * batch * N * K, moved_bytes=moved)


CASES = [_case(batch, N, K) for N, K in WEIGHTS for batch in BATCHES]


def vector_program(N: int, K: int, batch: int, workers: int) -> Any:
    """One grid of matrix-vector tiles, a task a worker: Y = X W^T with a leading dimension of 1.

    Examples
    --------
    >>> print(vector_program(4096, 4096, 1, 132).grids[0].extents)
    (1, 128)
    """
    from etproto.kernels.tiles.vector_multiply import vector_multiply
    from etproto.models.chain import rows_of_task
    from etproto.program import Program, TaskGrid, Tensor

    rows = rows_of_task(N, workers)
    x, y = Tensor("X", (1, batch, K), "bfloat16"), Tensor("Y", (1, batch, N), "bfloat16")
    w = Tensor("W", (1, N, K), "bfloat16")
    kind = vector_multiply(rows, K, batch=batch)
    return Program("vector", (TaskGrid("tiles", kind, (1, -(-N // rows)), {"x": x, "w": w, "y": y}),))


def build(case: Case, options: Any) -> Builders:
    """Inputs of a case, and how to build its variants."""
    from etproto.executors.driver import device_facts
    from etproto.kernels.tiles.vector_multiply import MOST_BATCH
    from etproto.lowering import lower
    from etproto.models.matmul import program
    from etproto.schedule import schedule

    batch, N, K = (case.values[name] for name in ("batch", "N", "K"))
    workers = device_facts().processors
    seeds = range(options.seed, options.seed + rotations(case.moved_bytes))
    xs = [random_normal((batch, K), 2 * seed) for seed in seeds]
    ws = [random_normal((N, K), 2 * seed + 1) for seed in seeds]
    ys = [poisoned((batch, N)) for _ in seeds]
    products = list(zip(xs, ws, ys, strict=True))
    poison, error = output_check(ys, [x.float() @ w.float().T for x, w in zip(xs, ws, strict=True)])
    tolerance = product_tolerance(K)

    def vector(kind: str) -> Variant:
        sets = [{"X": bits(x)[None], "W": bits(w)[None], "Y": bits(y)[None]} for x, w, y in products]
        scheduled = schedule(lower(vector_program(N, K, batch, workers).bind()), kind, workers=workers)
        return loaded_variant(scheduled, sets, poison, error, tolerance)

    def tiles(kind: str, width: int, count: int, **facts: Any) -> Variant:
        sets = [{"A": bits(x), "B": bits(w), "C": bits(y)} for x, w, y in products[:count]]
        bound = program(N, K, tile_n=width, group=1, bound=ROWS_BOUND).bind(M=batch)
        scheduled = schedule(lower(bound), kind, workers=workers)
        return loaded_variant(scheduled, sets, poison, error, tolerance, configuration=f"{width}:1", **facts)

    chosen: list[tuple[str, str]] = []

    def best_tiles(kind: str) -> Variant:
        if not chosen:
            chosen.append(quickest({str(width): lambda width=width: tiles("static", width, 4) for width in WIDTHS}))
        return tiles(kind, int(chosen[0][0]), len(products), candidates=chosen[0][1])

    builders: dict[str, Any] = {}
    if batch <= MOST_BATCH:
        builders |= {f"etproto.vector-{kind}": lambda kind=kind: vector(kind) for kind in ("static", "dynamic")}
    builders |= {f"etproto.tiles-{kind}": lambda kind=kind: best_tiles(kind) for kind in ("static", "dynamic")}
    return builders | product_variants([[product] for product in products], poison, error, tolerance)


def main(argv: Sequence[str] | None = None, *, build: Any = build, timer: Timer = time_variants) -> int:
    """Measure and write the CSV."""
    return run_variants("skinny_gemm", __doc__ or "", CASES, CASES[6:8], build, ("cublas",), argv, timer)


if __name__ == "__main__":
    sys.exit(main())
