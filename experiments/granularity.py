"""What do finer events buy, under each schedule? Writes ``granularity.csv``.

The same tiles with an event for each tile, for each row of tiles, or one for a whole operator (``barrier``), which is
what kernel boundaries would do: the split-K row sum (``splitk``), and the gated feed-forward block of
``experiments.mlp`` with 512 and 2048 tokens (``mlp``). What ratios divide is the fastest variant with one event.
`splitk` rotates over four sets of data that stay in the second-level cache; the block's weights (302 MB a set) do not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from experiments.common import Case, device_tensors
from experiments.torch_tensors import bits, output_check
from experiments.variants import Builders, Timer, Variant, host_check, loaded_variant, run_variants, time_variants

GRANULARITIES = ("tile", "row", "barrier")
SCHEDULES = (("static", False), ("device-static", False), ("dynamic", False), ("dynamic", True))
SETS = 4

CASES = [
    Case({"program": "splitk", "n": 512}),
    Case({"program": "mlp", "tokens": 2048}),
    Case({"program": "splitk", "n": 4096}),
    Case({"program": "mlp", "tokens": 512}),
]


def splitk_program(granularity: str) -> Any:
    """The split-K row sum with an event a partial sum (``tile``), a row of them (``row``), or one (``barrier``).

    Examples
    --------
    >>> print(splitk_program("tile").events[0])
    E = EventTensor(shape=(n, 4))
    """
    from etproto.expressions import Symbol
    from etproto.kernels.tiles.row_sum import COLUMNS, PARTS, ROWS, final_sum, partial_sum
    from etproto.program import EventTensor, Program, TaskGrid, Tensor

    n = Symbol("n", bound=8192)
    shape, notify, wait = {
        "tile": ((n, PARTS), "ij->ij", "i->(i, :)"),
        "row": ((n,), "ij->i", "i->i"),
        "barrier": ((), "ij->", "i->"),
    }[granularity]
    a, c = Tensor("A", (n * ROWS, PARTS * COLUMNS)), Tensor("C", (n, ROWS))
    b, done = Tensor("B", (n, PARTS, ROWS)), EventTensor("E", shape)
    partial = TaskGrid("partial", partial_sum, (n, PARTS), {"a": a, "b": b}, notifies={done: notify})
    final = TaskGrid("final", final_sum, (n,), {"b": b, "c": c}, waits={done: wait})
    return Program(f"splitk_{granularity}", (partial, final))


def _splitk(case: Case, options: Any) -> tuple[Any, list[Any], Any, Any, float]:
    import numpy as np

    from etproto.models import MODELS

    model = MODELS["splitk"]
    target = model.build(n=case.values["n"])
    host = [model.make_tensors(target, np.random.default_rng(options.seed + number)) for number in range(SETS)]
    expected = [model.reference(tensors) for tensors in host]
    sets = [device_tensors(tensors) for tensors in host]
    poison, error = host_check(model, host, expected, sets)
    return lambda g: splitk_program(g).bind(n=case.values["n"]), sets, poison, error, model.tolerance(host[0])


def _mlp(case: Case, options: Any) -> tuple[Any, list[Any], Any, Any, float]:
    from etproto.models.mlp import program
    from experiments.mlp import HIDDEN, INTERMEDIATE, TOLERANCE, tensor_sets

    tokens = case.values["tokens"]
    data, hidden, results = tensor_sets(tokens, SETS, options.seed)
    poison, error = output_check([one["H"] for one in data] + [one["Y"] for one in data], hidden + results)
    sets = [{name: bits(one[name]) for name in ("X", "W_up", "H", "W_down", "Y")} for one in data]
    return (
        lambda g: program(HIDDEN, INTERMEDIATE, granularity=g).bind(tokens=tokens),
        sets,
        poison,
        error,
        TOLERANCE,
    )


def build(case: Case, options: Any) -> Builders:
    """Inputs of a case, and how to build its variants."""
    from etproto.executors.driver import device_facts
    from etproto.lowering import lower
    from etproto.schedule import schedule

    make = {"splitk": _splitk, "mlp": _mlp}[case.values["program"]]
    instance, sets, poison, error, tolerance = make(case, options)
    workers = device_facts().processors

    def ours(granularity: str, kind: str, early: bool) -> Variant:
        scheduled = schedule(lower(instance(granularity)), kind, workers=workers, early_push=early)
        return loaded_variant(scheduled, sets, poison, error, tolerance, granularity=granularity)

    builders: dict[str, Any] = {}
    for kind, early in SCHEDULES:
        for granularity in GRANULARITIES:
            name = f"etproto.{kind}{'-early' * early}-{granularity}"
            builders[name] = lambda g=granularity, k=kind, e=early: ours(g, k, e)
    return builders


def main(argv: Sequence[str] | None = None, *, build: Any = build, timer: Timer = time_variants) -> int:
    """Measure and write the CSV."""
    return run_variants("granularity", __doc__ or "", CASES, CASES[:1], build, ("-barrier",), argv, timer)


if __name__ == "__main__":
    sys.exit(main())
