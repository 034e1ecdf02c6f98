"""How fast is one bfloat16 matrix product, against cuBLAS? Writes ``gemm.csv``.

``C = A B^T`` with float32 sums on the shapes below. Tile width and group are the quickest of a few candidates in a
short measurement whose times are kept in a column. Inputs rotate over about 1 GB, so that no call finds them in the
second-level cache. Every output is compared with a float32 product.
"""

from __future__ import annotations

import argparse
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

SHAPES = [
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (2048, 2048, 2048),
    (8192, 6144, 4096),
    (8192, 4096, 4096),
    (8192, 28672, 4096),
    (8192, 4096, 14336),
    (512, 152064, 4096),
    (1024, 1024, 1024),
    (16384, 16384, 16384),
]
SCHEDULES = ("static", "dynamic")


def _case(M: int, N: int, K: int) -> Case:
    values = {"M": M, "N": N, "K": K}
    return Case(values, flops=2.0 * M * N * K, moved_bytes=2.0 * (M * K + N * K + M * N))


CASES = [_case(*shape) for shape in SHAPES]


def _candidates(text: str) -> list[tuple[int, int]]:
    """``"256:16,128:8"`` as pairs (tile width, group)."""
    pairs = [tuple(int(part) for part in one.split(":")) for one in text.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise argparse.ArgumentTypeError(f"expected tile_n:group,... got {text!r}")
    return pairs  # type: ignore[return-value]


def _options(parser: argparse.ArgumentParser) -> None:
    default = [(256, 16), (256, 8), (128, 16), (192, 16)]
    parser.add_argument("--candidates", type=_candidates, default=default, help="tile_n:group,... to choose from")


def build(case: Case, options: argparse.Namespace) -> Builders:
    """Inputs of a case, and how to build its variants."""
    from etproto.executors.driver import device_facts
    from etproto.lowering import lower
    from etproto.models.matmul import program
    from etproto.schedule import schedule

    M, N, K = (case.values[name] for name in "MNK")
    workers = device_facts().processors
    seeds = range(options.seed, options.seed + rotations(case.moved_bytes))
    lefts = [random_normal((M, K), 2 * seed) for seed in seeds]
    rights = [random_normal((N, K), 2 * seed + 1) for seed in seeds]
    outs = [poisoned((M, N)) for _ in seeds]
    poison, error = output_check(outs, [a.float() @ b.float().T for a, b in zip(lefts, rights, strict=True)])
    tolerance = product_tolerance(K)
    sets = [{"A": bits(a), "B": bits(b), "C": bits(c)} for a, b, c in zip(lefts, rights, outs, strict=True)]

    def ours(kind: str, tile_n: int, group: int, count: int, **facts: str) -> Variant:
        scheduled = schedule(lower(program(N, K, tile_n, group).bind(M=M)), kind, workers=workers)
        facts = {"configuration": f"{tile_n}:{group}", **facts}
        return loaded_variant(scheduled, sets[:count], poison, error, tolerance, **facts)

    chosen: list[tuple[str, str]] = []

    def best(kind: str) -> Variant:
        if not chosen:
            few = {f"{n}:{g}": lambda n=n, g=g: ours("static", n, g, 2) for n, g in options.candidates}
            chosen.append(quickest(few))
        name, times = chosen[0]
        tile_n, group = map(int, name.split(":"))
        return ours(kind, tile_n, group, len(sets), candidates=times)

    builders = {f"etproto.{kind}": lambda kind=kind: best(kind) for kind in SCHEDULES}
    chains = [[product] for product in zip(lefts, rights, outs, strict=True)]
    return builders | product_variants(chains, poison, error, tolerance)


def main(argv: Sequence[str] | None = None, *, build: Any = build, timer: Timer = time_variants) -> int:
    """Measure and write the CSV."""
    return run_variants("gemm", __doc__ or "", CASES, CASES[2:3], build, ("cublas",), argv, timer, add=_options)


if __name__ == "__main__":
    sys.exit(main())
