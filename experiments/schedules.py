"""Do all schedules of the bundled programs give the right result, and what does each cost? Writes
``schedules.csv``.

Every bundled program, every schedule, on 7 workers of the portable worker, on half as many as the GPU has
multiprocessors, and
on as many. The output of every variant is compared with the independent reference before it is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from etproto.executors import cuda
from etproto.executors.driver import device_facts
from etproto.executors.launch import LaunchOptions
from etproto.lowering import Lowered, lower
from etproto.lowering_graph import lower_graph
from etproto.models import MODELS, Model
from etproto.schedule import schedule
from experiments.common import Timing, arguments, device_tensors, host_tensors, interleaved_times, write_csv

CASES: list[tuple[str, dict[str, int]]] = [
    ("splitk", {"n": 1}),
    ("splitk", {"n": 64}),
    ("splitk", {"n": 1000}),
    ("cholesky", {"tiles": 8, "tile": 32}),
    ("cholesky", {"tiles": 16, "tile": 32}),
    ("gemm", {"M": 512, "N": 512, "K": 512, "splits": 4}),
    ("gemm", {"M": 130, "N": 70, "K": 33, "splits": 3}),
    ("bucket_sum", {"rows": 1000}),
    ("bucket_sum", {"rows": 4096}),
]
SCHEDULES = [
    ("static", False),
    ("device-static", False),
    ("dynamic", False),
    ("dynamic", True),
    ("mixed", False),
    ("mixed", True),
]
SETS = 4  # copies of the data that the calls of a graph rotate over


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and write the CSV."""
    options = arguments(__doc__ or "", argv, "schedules")
    processors = device_facts().processors
    workers = sorted({7, processors // 2, processors})
    cases = CASES[2:4] if options.quick else CASES
    rows: list[dict[str, Any]] = []
    for name, values in cases:
        model = MODELS[name]
        target = model.build(**values)
        lowered = lower(target) if model.kinds is None else lower_graph(target, model.kinds(target))
        for count in [processors] if options.quick else workers:
            rows += _measure(model, target, lowered, values, count, options)
    write_csv(rows, options)


def _measure(
    model: Model, target: Any, lowered: Lowered, values: dict[str, int], workers: int, options: Any
) -> list[dict[str, Any]]:
    errors: dict[str, float] = {}
    variants: dict[str, Timing] = {}
    for kind, early in SCHEDULES:
        variant = f"etproto.{kind}{'-early' if early else ''}"
        scheduled = schedule(lowered, kind, workers=workers, early_push=early)
        calls, worst = [], 0.0
        for number in range(SETS):
            tensors = model.make_tensors(target, np.random.default_rng(options.seed + number))
            expected = model.reference(tensors)
            arrays = device_tensors(tensors)
            loaded = cuda.load(scheduled, options=LaunchOptions(watchdog_s=5.0))
            loaded.launch(arrays)
            loaded.finish()
            error = model.compare(host_tensors(arrays, list(expected)), expected)
            if not error <= model.tolerance(tensors):
                raise ValueError(f"{lowered.name} {variant} on {workers} workers: error {error}, nothing is timed")
            worst = max(worst, error)
            calls.append(lambda stream, loaded=loaded: loaded.launch(stream=stream))
        errors[variant], variants[variant] = worst, Timing(calls)
    times = interleaved_times(variants, options.repeats)
    case = ";".join(f"{key}={value}" for key, value in {"program": model.name, **values}.items())
    print(case, workers, {variant: round(time, 1) for variant, (time, _) in times.items()}, flush=True)
    return [
        {
            "experiment": "schedules",
            "case": case,
            "variant": variant,
            "time_us": round(time, 3),
            "time_us_iqr": round(spread, 3),
            "rel_error": errors[variant],
            "checked": True,
            "workers": workers,
        }
        for variant, (time, spread) in times.items()
    ]


if __name__ == "__main__":
    main()
