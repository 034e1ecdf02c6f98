"""What does the runtime itself cost: a hop, a layer of 132 tasks, an empty task? Writes ``runtime_overhead.csv``.

- ``hop``: a chain of tasks, each reading 16 bytes that the one before has written and writing 16 bytes; dealt out in
  turn, so that two workers alternate (or 132 follow each other). Time is that of one hop.
- ``layer``: 132 such tasks a layer, each waiting for all of the layer before. Time is that of one layer.
- ``empty``: independent tasks that do nothing. Time is that of one task, all workers together.

Every program has one symbol, its length, and is measured at two lengths: ``time_us`` is the slope between them, so that
what a launch costs drops out; both times, and that cost, are columns of their own. Beside them stand kernels one after
the other (of one block for ``hop``, of 132 for ``layer``), as nodes of a CUDA graph and launched on a stream from
Python: empty ones, and ones that read and write a word (``counting``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from experiments.baselines.launches import nodes_variant
from experiments.common import Case, Row, arguments, run_cases
from experiments.variants import (
    Builders,
    Measured,
    Timer,
    Variant,
    fill_ratios,
    measure_case,
    model_variant,
    row_of,
    time_variants,
)

LENGTHS = {"hop": (2_000, 10_000), "layer": (200, 1_000), "empty": (20_000, 100_000)}
NODES = (100, 500)  # kernels of a chain
SCHEDULES = (("static", False), ("device-static", False), ("dynamic", False), ("dynamic", True))
WORKERS = ("hopper", "portable")
WIDTH = 132

CASES = [
    Case({"what": "hop", "workers": 2}),
    Case({"what": "layer", "width": WIDTH, "workers": WIDTH}),
    Case({"what": "empty", "workers": WIDTH}),
    Case({"what": "hop", "workers": WIDTH}),
    Case({"what": "empty", "workers": 2}),
]


def build(case: Case, place: int, options: argparse.Namespace) -> Builders:
    """How to build the variants of a case at its shorter (0) or longer (1) length."""
    from etproto.lowering import lower
    from etproto.models import overhead
    from etproto.schedule import schedule

    what, workers = case.values["what"], case.values["workers"]
    length = LENGTHS[what][place]
    if what == "empty":
        target = overhead.independent().bind(n=length)
    else:
        width = case.values.get("width", 1)
        target = overhead.layers(width, LENGTHS[what][1]).bind(depth=length)
    lowered = lower(target)

    def ours(kind: str, early: bool, worker: str) -> Variant:
        scheduled = schedule(lowered, kind, workers=workers, early_push=early)
        model = overhead.EMPTY_MODEL if what == "empty" else overhead.MODEL
        return model_variant(model, target, scheduled, [options.seed], worker, units=length)

    builders: dict[str, Callable[[], Variant]] = {}
    for worker in WORKERS:
        for kind, early in SCHEDULES:
            if what == "empty" and early:
                continue  # nothing is pushed by events
            name = f"etproto.{kind}{'-early' * early}-{worker}"
            builders[name] = lambda k=kind, e=early, w=worker: ours(k, e, w)
    if what == "empty":
        return builders
    blocks = case.values.get("width", 1)
    for name, counting in (("empty", False), ("counting", True)):
        for system, captured in (("graph", True), ("stream", False)):
            builders[f"{system}.{name}-kernels"] = lambda b=counting, c=captured: nodes_variant(
                blocks, NODES[place], counting=b, captured=c
            )
    return builders


def slopes(case: Case, short: Sequence[Row], long: Sequence[Row]) -> list[Row]:
    """One row a variant, from its rows at two lengths: time of one more unit, and of a launch without any."""
    rows = []
    tasks = case.values.get("width", 1)
    first, second = ({row["variant"]: row for row in found} for found in (short, long))
    for name in {**first, **second}:
        pair = [found[name] for found in (first, second) if name in found]
        faults = [row["fault"] for row in pair if row["fault"]]
        measured, facts = (
            Measured(None, None, None, " ".join(dict.fromkeys(faults)) or "measured at one length only"),
            {},
        )
        if len(pair) == 2 and not faults:
            (units, other_units), (time_us, other_us) = ([row[key] for row in pair] for key in ("units", "time_us"))
            slope = (other_us - time_us) / (other_units - units)
            spread = sum(row["time_us_iqr"] for row in pair) / (other_units - units)
            error = max(row["rel_error"] for row in pair)
            if slope > 0:
                measured = Measured(slope, spread, error)
            else:
                measured = Measured(None, None, error, f"the longer run takes {other_us - time_us:.3f} us more: noise")
            facts = {"short_units": units, "short_us": time_us, "long_units": other_units, "long_us": other_us}
            facts["launch_us"] = round(time_us - slope * units, 3)
            facts["tasks_per_s"] = round(tasks / slope * 1e6) if slope > 0 else None
        rows.append(row_of("runtime_overhead", case, name, measured, facts, digits=5))
    return rows


def main(argv: Sequence[str] | None = None, *, build: Any = build, timer: Timer = time_variants) -> int:
    """Measure and write the CSV."""
    options = arguments(__doc__ or "", argv, "runtime_overhead", repeats=7)

    def at(case: Case, place: int) -> list[Row]:
        inputs = partial(build, case, place, options)
        return measure_case("runtime_overhead", case, inputs, options.repeats, timer=timer)

    def measure(case: Case) -> list[Row]:
        rows = slopes(case, at(case, 0), at(case, 1))
        fill_ratios(rows, ("graph.",))
        return rows

    return run_cases(CASES[:1] if options.quick else CASES, measure, options)


if __name__ == "__main__":
    sys.exit(main())
