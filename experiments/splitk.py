"""What do events save over kernel boundaries in a split-K row sum? Writes ``splitk.csv``.

The bundled ``splitk`` for 1 to 4096 row blocks, every schedule, on both workers, against the same tile bodies as one
launch an operator in a CUDA graph, which is not charged for resets, and against PyTorch's row sum in one kernel. As
many workers as multiprocessors, and four times as many where the kernel allows them, for both sides. The calls of a
graph rotate over four sets of data: up to 512 blocks (8 MB a set) these stay in the second-level cache, for every
variant alike, since what is asked is what scheduling costs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from experiments.baselines.launches import launches_variant
from experiments.common import Case, device_tensors
from experiments.variants import Builders, Timer, Variant, host_check, loaded_variant, run_variants, time_variants

BLOCKS = (512, 64, 4096, 8, 1)
SCHEDULES = (
    ("static", False),
    ("device-static", False),
    ("dynamic", False),
    ("dynamic", True),
    ("mixed", False),
    ("mixed", True),
)
WORKERS = ("portable", "hopper")
SETS = 4


def _case(n: int) -> Case:
    return Case({"n": n}, moved_bytes=4.0 * n * 32 * (128 + 1))


CASES = [_case(n) for n in BLOCKS]


def build(case: Case, options: Any) -> Builders:
    """Inputs of a case, and how to build its variants."""
    import numpy as np

    from etproto.executors.driver import device_facts
    from etproto.lowering import lower
    from etproto.models import MODELS
    from etproto.schedule import schedule

    model = MODELS["splitk"]
    instance = model.build(n=case.values["n"])
    lowered = lower(instance)
    host = [model.make_tensors(instance, np.random.default_rng(options.seed + number)) for number in range(SETS)]
    expected = [model.reference(tensors) for tensors in host]
    sets = [device_tensors(tensors) for tensors in host]
    poison, error = host_check(model, host, expected, sets)
    tolerance = model.tolerance(host[0])
    processors = device_facts().processors

    def ours(kind: str, early: bool, worker: str, count: int) -> Variant:
        scheduled = schedule(lowered, kind, workers=count, early_push=early)
        return loaded_variant(scheduled, sets, poison, error, tolerance, worker)

    def boundaries(worker: str, count: int) -> Variant:
        return launches_variant(instance, sets, poison, error, tolerance, count, worker)

    def row_sum() -> Variant:
        return Variant([_torch_sum(tensors) for tensors in sets], poison, error, tolerance)

    builders: dict[str, Any] = {}
    for worker in WORKERS:
        for count in _worker_counts(lowered.kinds, worker, processors):
            name = f"{worker}-{count}"
            builders[f"launches.{name}"] = lambda w=worker, c=count: boundaries(w, c)
            for kind, early in SCHEDULES:
                variant = f"etproto.{kind}{'-early' * early}-{name}"
                builders[variant] = lambda k=kind, e=early, w=worker, c=count: ours(k, e, w, c)
    return {**builders, "torch.graph": row_sum}


def _worker_counts(kinds: Any, worker: str, processors: int) -> list[int]:
    from etproto.errors import EtprotoError
    from etproto.executors import cuda

    try:
        allowed, _ = cuda.resident_limit(kinds, worker=worker)
    except EtprotoError:  # each variant will say so
        return [processors]
    return [processors, 4 * processors] if allowed >= 4 * processors else [processors]


def _torch_sum(tensors: dict[str, Any]) -> Any:
    import torch

    from experiments.torch_tensors import on_stream

    source, target = torch.as_tensor(tensors["A"], device="cuda"), torch.as_tensor(tensors["C"], device="cuda")

    def call(stream: Any) -> None:
        with on_stream(stream):
            torch.sum(source, 1, out=target.view(-1))

    return call


def main(argv: Sequence[str] | None = None, *, build: Any = build, timer: Timer = time_variants) -> int:
    """Measure and write the CSV."""
    return run_variants("splitk", __doc__ or "", CASES, CASES[1:2], build, ("launches",), argv, timer)


if __name__ == "__main__":
    sys.exit(main())
