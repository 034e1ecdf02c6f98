"""What does a chain of dependent products cost in one launch, against the same chain as a cuBLAS graph? Writes
``gemm_chain.csv``.

The chains are those of ``etproto.models.chain``: the weights of a decoding step of small models, 0.5 to 4.5 GB, so that
no call finds any in the second-level cache. With one row operators are matrix-vector tiles; with 16 and 64 rows they
are tensor-core tiles of 128 rows, the only ones there are for them. Where a layer is one operator (``2048``, ``4096``)
and there is one row, the chain is a single grid whose first coordinate is the layer; otherwise each operator of each
layer is a grid of its own (column ``grids``). Beside cuBLAS stand the same tiles
as one launch an operator (``launches``) and the floor: bytes of the weights at the measured read bandwidth. Every
operator is compared with a float32 product of what that variant gave it to read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from experiments.baselines.cublas import Product, product_variants
from experiments.baselines.launches import Launches
from experiments.common import Case
from experiments.torch_tensors import bits, largest_error, poisoned, product_tolerance, random_normal
from experiments.variants import Builders, Timer, Variant, loaded_variant, rotations, run_variants, time_variants

SHAPES = {  # (N, K) of a layer's operators, and layers; the same as etproto.models.chain.CHAINS
    "2048": (((2048, 2048),), 64),
    "4096": (((4096, 4096),), 32),
    "llama1b": (((3072, 2048), (2048, 3072), (16384, 2048), (2048, 16384)), 16),
    "8b": (((6144, 4096), (4096, 6144), (24576, 4096), (4096, 24576)), 9),
}
BATCHES = (1, 16, 64)
SCHEDULES = (("static", False), ("dynamic", False), ("dynamic", True))


def _case(chain: str, batch: int) -> Case:
    shapes, layers = SHAPES[chain]
    weights = layers * sum(N * K for N, K in shapes)
    return Case({"chain": chain, "batch": batch}, flops=2.0 * batch * weights, moved_bytes=2.0 * weights)


CASES = [_case(chain, batch) for batch in BATCHES for chain in SHAPES]


def tile_width(N: int, workers: int) -> int:
    """Widest tile that gives every worker one, or the narrowest there is.

    Examples
    --------
    >>> tile_width(2048, 132), tile_width(24576, 132)
    (64, 128)
    """
    return next((width for width in (256, 128, 64) if N // width >= workers), 64)


def unrolled_program(shapes: Sequence[tuple[int, int]], layers: int, batch: int, workers: int) -> Any:
    """The chain as one grid an operator and layer: operator o of layer l reads ``Y{o}_{l}`` and ``W{o}_{l}``.

    One row: matrix-vector tiles, and tensors with a leading dimension of 1. More rows: tensor-core tiles.
    """
    from etproto.kernels.tiles.matrix_multiply import matrix_multiply
    from etproto.kernels.tiles.vector_multiply import vector_multiply
    from etproto.models.chain import rows_of_task
    from etproto.program import EventTensor, Program, TaskGrid, Tensor

    def tensor(name: str, rows: int, columns: int) -> Tensor:
        return Tensor(name, (1, rows, columns) if batch == 1 else (rows, columns), "bfloat16")

    count, grids = len(shapes), []
    value, before = tensor("Y0_0", batch, shapes[0][1]), None
    for number in range(layers * count):
        layer, o = divmod(number, count)
        N, K = shapes[o]
        weights = tensor(f"W{o}_{layer}", N, K)
        out = tensor(f"Y{(o + 1) % count}_{layer + (o == count - 1)}", batch, N)
        if batch == 1:
            rows = rows_of_task(N, workers)
            kind, extents, names, edge = vector_multiply(rows, K), (1, -(-N // rows)), "xwy", "li->"
        else:
            width = tile_width(N, workers)
            extents = (-(-batch // 128), -(-N // width), 1)
            kind, names, edge = matrix_multiply(width), "abc", "gjr->"
        done = EventTensor(f"E{number}")
        operands = dict(zip(names, (value, weights, out), strict=True))
        waits = {before: edge} if before is not None else {}
        grids.append(TaskGrid(f"operator{number}", kind, extents, operands, waits, {done: edge}))
        value, before = out, done
    return Program("unrolled_chain", tuple(grids))


class Data:
    """Weights, results and the products that lead from one to the next, of one copy of a chain."""

    def __init__(self, shapes: Sequence[tuple[int, int]], layers: int, batch: int, seed: int) -> None:
        count = len(shapes)
        self.count, self.layers, self.batch = count, layers, batch
        self.weights = [random_normal((layers, N, K), 100 * seed + o + 1, K**-0.5) for o, (N, K) in enumerate(shapes)]
        self.first = random_normal((batch, shapes[0][1]), 100 * seed)
        self.results = [poisoned((layers + (o == 0), batch, K)) for o, (_, K) in enumerate(shapes)]
        self.products: list[Product] = [
            (self.results[o][layer], self.weights[o][layer], self.results[(o + 1) % count][layer + (o == count - 1)])
            for layer in range(layers)
            for o in range(count)
        ]

    def poison(self) -> None:
        """Only the chain's input is left."""
        for values in self.results:
            values.fill_(float("nan"))
        self.results[0][0].copy_(self.first)

    def error(self) -> float:
        """Largest error of an operator, given what it has read."""
        return max(largest_error(out, x.float() @ w.float().T) for x, w, out in self.products)

    def stacked(self, first: int = 0, layers: int | None = None) -> dict[str, Any]:
        """Tensors of ``etproto.models.chain.program`` for some of the layers."""
        last = first + (self.layers if layers is None else layers)
        named = {f"W{o}": bits(self.weights[o][first:last]) for o in range(self.count)}
        return named | {f"Y{o}": bits(self.results[o][first : last + (o == 0)]) for o in range(self.count)}

    def separate(self) -> dict[str, Any]:
        """Tensors of `unrolled_program`."""
        return {
            f"{letter}{o}_{layer}": bits(values[layer : layer + 1] if self.batch == 1 else values[layer])
            for letter, tensors in (("W", self.weights), ("Y", self.results))
            for o, values in enumerate(tensors)
            for layer in range(len(values))
        }


def build(case: Case, options: Any) -> Builders:
    """Inputs of a case, and how to build its variants."""
    from etproto.executors.driver import device_facts
    from etproto.lowering import lower
    from etproto.models import chain
    from etproto.schedule import schedule

    batch = case.values["batch"]
    shapes, layers = SHAPES[case.values["chain"]]
    workers = device_facts().processors
    copies = range(rotations(case.moved_bytes))
    data = [Data(shapes, layers, batch, options.seed * len(copies) + number) for number in copies]
    layered = batch == 1 and len(shapes) == 1  # else grids would wait for each other in a circle
    tolerance = product_tolerance(max(K for _, K in shapes))
    if layered:
        instance = chain.program(shapes, layers, batch=batch, workers=workers).bind()
    else:
        instance = unrolled_program(shapes, layers, batch, workers).bind()
    sets = [one.stacked() if layered else one.separate() for one in data]

    def poison() -> None:
        for one in data:
            one.poison()

    def error() -> float:
        return max(one.error() for one in data)

    poison()

    def ours(kind: str, early: bool) -> Variant:
        scheduled = schedule(lower(instance), kind, workers=workers, early_push=early)
        return loaded_variant(scheduled, sets, poison, error, tolerance, grids=len(instance.program.grids))

    def boundaries() -> Variant:
        if layered:
            layer = chain.program(shapes, 1, batch=batch, workers=workers).bind()
            launches = [[Launches(layer, one.stacked(at, 1), workers) for at in range(layers)] for one in data]
        else:
            launches = [[Launches(instance, tensors, workers)] for tensors in sets]
        return Variant([_in_turn(one) for one in launches], poison, error, tolerance, {"workers": workers})

    builders = {
        f"etproto.{kind}{'-early' * early}": lambda kind=kind, early=early: ours(kind, early)
        for kind, early in SCHEDULES
    }
    products = product_variants([one.products for one in data], poison, error, tolerance)
    return {**builders, "launches.graph": boundaries, **products}


def _in_turn(launches: Sequence[Launches]) -> Any:
    def call(stream: Any) -> None:
        for launch in launches:
            launch(stream)

    return call


def main(argv: Sequence[str] | None = None, *, build: Any = build, timer: Timer = time_variants) -> int:
    """Measure and write the CSV."""
    return run_variants("gemm_chain", __doc__ or "", CASES, CASES[:1], build, ("cublas",), argv, timer)


if __name__ == "__main__":
    sys.exit(main())
