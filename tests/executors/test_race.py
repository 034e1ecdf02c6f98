"""The race check: finds the pair of tasks that nothing orders, and never reports a right program."""

from __future__ import annotations

import dataclasses
import re
from itertools import cycle

import numpy as np
import pytest

from etproto.errors import RunError
from etproto.executors import cpu
from etproto.kernels.tiles.row_sum import final_sum, partial_sum
from etproto.lowering import lower
from etproto.lowering_graph import lower_graph
from etproto.models import MODELS
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.schedule import schedule
from etproto.tile_kind import Operand, TileKind

SEEDS = 20
PROGRAMS = {
    "splitk": {"n": 3},
    "cholesky": {"tiles": 3, "tile": 4},
    "gemm": {"M": 9, "N": 7, "K": 10, "splits": 3, "tile_m": 4, "tile_n": 4, "tile_k": 2},
    "bucket_sum": {"rows": 30, "buckets": 5, "width": 3, "chunk": 4, "block": 8},
}
HOW = [
    ("static", {}),
    ("dynamic", {}),
    ("dynamic", {"early_push": True}),
    ("mixed", {}),
    ("device-static", {}),
]


def tensors_of(program: Program) -> dict[str, np.ndarray]:
    instance = program.bind()
    return {t.name: np.zeros(instance.shape(t), t.dtype) for t in program.tensors}


def first_report(program: Program, kind: str = "static", workers: int = 3) -> str:
    """What the first of 20 seeds that finds anything says."""
    for seed in range(SEEDS):
        try:
            scheduled = schedule(lower(program.bind()), kind, workers=workers)
            cpu.run(scheduled, tensors_of(program), seed=seed, race_check=True)
        except RunError as error:
            return str(error)
    raise AssertionError(f"{SEEDS} seeds report nothing")


def splitk() -> Program:
    """The paper's split-K row sum for two row blocks."""
    A, B, C = Tensor("A", (64, 128)), Tensor("B", (2, 4, 32)), Tensor("C", (2, 32))
    E = EventTensor("E", (2,))
    return Program(
        "splitk",
        (
            TaskGrid("partial", partial_sum, (2, 4), {"a": A, "b": B}, notifies={E: "ij->i"}),
            TaskGrid("final", final_sum, (2,), {"b": B, "c": C}, waits={E: "i->i"}),
        ),
    )


def shifted(kind: TileKind, by: int) -> TileKind:
    """The same kind with its second coordinate counted from `by`."""

    def shift(function):
        return lambda i, j, *operands: function(i, j + by, *operands)

    parts = {name: shift(getattr(kind, name)) for name in ("reference", "reads", "writes")}
    return dataclasses.replace(kind, portable=None, **parts)


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_splitk_with_one_edge_removed(kind):
    """Nobody waits for the last partial sum of each block: `final` is named with it, and the elements."""
    partial, final = splitk().grids
    three = dataclasses.replace(partial, extents=(2, 3))
    lonely = dataclasses.replace(partial, name="lonely", kind=shifted(partial_sum, 3), extents=(2, 1), notifies={})
    text = first_report(Program("splitk", (three, lonely, final)), kind)
    found = re.fullmatch(r"splitk\(\): race on B\[(\d), 3, 0:32\]: (.*) it, (.*) it, and no event .*", text)
    assert found, text
    assert set(found.groups()[1:]) == {f"final[{found[1]}] reads", f"lonely[{found[1]}, 0] writes"}


def test_splitk_without_its_event():
    partial, final = splitk().grids
    text = first_report(Program("splitk", (partial, dataclasses.replace(final, waits={}))), "dynamic")
    found = re.search(r"race on B\[(\d), (\d), 0:32\]", text)
    assert f"final[{found[1]}] reads it" in text and f"partial[{found[1]}, {found[2]}] writes it" in text


@pytest.mark.parametrize("kind, options", HOW)
@pytest.mark.parametrize("name", PROGRAMS)
def test_right_programs_are_not_reported(name, kind, options):
    """50 seeds, from one worker to seven."""
    model = MODELS[name]
    target = model.build(**PROGRAMS[name])
    lowered = lower(target) if model.kinds is None else lower_graph(target, model.kinds(target))
    given = model.make_tensors(target, np.random.default_rng(1))
    expected = model.reference(given)
    for seed, workers in zip(range(50), cycle([1, 2, 3, 7])):
        tensors = {name: array.copy() for name, array in given.items()}
        cpu.run(schedule(lowered, kind, workers=workers, **options), tensors, seed=seed, race_check=True)
    assert model.compare(tensors, expected) <= model.tolerance(given)


# -- one sort of fault at a time --------------------------------------------------------------------------


def touch(mode: str, low: int, high: int, also: int | None = None, declared: bool = True) -> TileKind:
    """A kind whose tasks touch X[low:high] (and write X[also] without saying so)."""

    def reference(i, x):
        if mode != "in":
            x[low:high] += 1
        if also is not None:
            x[also] = 7

    region = (lambda i, x: {"x": (slice(low, high),)}) if declared else None
    operands = (Operand("x", ndim=1, mode=mode),)
    name = f"{mode}_{low}_{high}"
    return TileKind(name, reference, 1, operands, reads=region, writes=region)


def two_grids(first: TileKind, second: TileKind, ordered: bool) -> Program:
    X, E = Tensor("X", (10,)), EventTensor("E")
    edges = ({"notifies": {E: "i->"}}, {"waits": {E: "i->"}}) if ordered else ({}, {})
    kinds = zip(("one", "two"), (first, second), edges, strict=True)
    return Program("pair", tuple(TaskGrid(name, kind, (1,), {"x": X}, **edge) for name, kind, edge in kinds))


@pytest.mark.parametrize(
    "first, second, words",
    [
        (("out", 0, 6), ("out", 4, 10), ("race on X[4:6]", "one[0] writes", "two[0] writes")),
        (("inout", 0, 6), ("inout", 5, 10), ("race on X[5]", "one[0]", "two[0]")),
        (("accumulate", 0, 6), ("inout", 0, 2), ("race on X[0:2]", "one[0] accumulates into")),
        (("out", 0, 6), ("in", 0, 6), ("race on X[0:6]", "one[0] writes", "two[0] reads")),
    ],
)
def test_conflicts(first, second, words):
    """Reported whoever comes first; not when an event orders the two."""
    program = two_grids(touch(*first), touch(*second), ordered=False)
    for kind in ("static", "dynamic"):
        text = first_report(program, kind, workers=2)
        assert all(word in text for word in words), text
    ordered = two_grids(touch(*first), touch(*second), ordered=True)
    for seed in range(SEEDS):
        scheduled = schedule(lower(ordered.bind()), "dynamic", workers=2)
        cpu.run(scheduled, tensors_of(ordered), seed=seed, race_check=True)


@pytest.mark.parametrize(
    "first, second",
    [
        (("accumulate", 0, 6), ("accumulate", 4, 10)),
        (("in", 0, 6), ("in", 4, 10)),
        (("out", 0, 5), ("out", 5, 10)),
    ],
)
def test_no_conflict(first, second):
    program = two_grids(touch(*first), touch(*second), ordered=False)
    with pytest.raises(AssertionError, match="20 seeds report nothing"):
        first_report(program, "dynamic", workers=2)


def test_the_order_of_a_list_counts_and_the_order_of_pops_does_not():
    """A list orders its two tasks; that its worker also took one from a queue, before or after, does not."""
    program = two_grids(touch("out", 0, 6), touch("out", 4, 10), ordered=False)
    assert "race on X[4:6]" in first_report(program, "dynamic", workers=1)
    assert "race on X[4:6]" in first_report(program, "mixed", workers=1)
    with pytest.raises(AssertionError, match="report nothing"):
        first_report(program, "static", workers=1)


def test_a_kind_that_declares_no_regions_touches_everything():
    program = two_grids(touch("out", 0, 5, declared=False), touch("out", 5, 10), ordered=False)
    text = first_report(program, "dynamic", workers=2)
    assert "race on X[5:10]" in text and "a kind that declares no regions touches everything" in text


def test_a_read_of_what_no_task_has_written():
    program = two_grids(touch("out", 0, 6), touch("in", 4, 9), ordered=True)
    text = first_report(program)
    assert "two[0] reads X[4:9], but no task has written X[6:9] before" in text


def test_a_write_outside_of_what_is_declared():
    program = two_grids(touch("out", 0, 6, also=8), touch("in", 0, 1), ordered=True)
    assert "one[0] wrote X[8], outside of the writes that its kind declares: X[0:6]" in first_report(program)
    program = two_grids(touch("out", 0, 6), touch("in", 0, 1, also=3), ordered=True)
    assert "two[0] wrote X[3], outside of the writes that its kind declares: none" in first_report(program)
