"""Gated feed-forward block."""

from __future__ import annotations

import numpy as np
import pytest

from etproto.check import check
from etproto.errors import ProgramError
from etproto.executors import cpu, cudasim, model
from etproto.kernels.tiles import brain_float
from etproto.lowering import lower
from etproto.models.mlp import GRANULARITIES, MODEL, make_tensors, program, reference
from etproto.schedule import schedule
from etproto.trace import SPAN_TASK

SCHEDULES = [("static", False), ("device-static", False), ("dynamic", False), ("dynamic", True)]
SMALL = {"workers": 4, "up_tile": 128, "down_tile": 64, "group": 2}


def run_right(instance, kind: str, early: bool, executor, workers: int = 3) -> None:
    scheduled = schedule(lower(instance), kind, workers=workers, early_push=early)
    result = check(scheduled)
    assert result.ok, result.errors
    tensors = make_tensors(instance, np.random.default_rng(1))
    expected = reference(tensors)
    executor.run(scheduled, tensors)
    assert MODEL.compare(tensors, expected) <= MODEL.tolerance(tensors)


@pytest.mark.parametrize(("kind", "early"), SCHEDULES)
@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("tokens", [0, 1, 130, 600])
def test_many_tokens(kind, early, granularity, tokens):
    instance = program(64, 160, 600, granularity=granularity, **SMALL).bind(tokens=tokens)
    run_right(instance, kind, early, cpu)


@pytest.mark.parametrize(("kind", "early"), SCHEDULES)
@pytest.mark.parametrize("tokens", [0, 1, 5, 8])
def test_few_tokens(kind, early, tokens):
    run_right(program(64, 160, 8, **SMALL).bind(tokens=tokens), kind, early, cpu)


@pytest.mark.parametrize("bound", [8, 200])
@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_simulated(bound, kind):
    run_right(program(32, 64, bound, **SMALL).bind(tokens=2), kind, False, cudasim, workers=2)


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_timing_model_runs_every_task(granularity):
    instance = program(64, 160, 600, granularity=granularity, **SMALL).bind(tokens=300)
    trace = model.run(schedule(lower(instance), "dynamic", workers=4))
    assert (trace.span == SPAN_TASK).sum() == 2 * 3 * 2 + 2 * 1 * 2


def test_finer_events_start_the_second_product_earlier():
    """With one event nothing of `down` starts before all of `up` is done; with one a row of tiles some does."""
    first = {}
    for granularity in ("row", "barrier"):
        instance = program(64, 256, 1024, granularity=granularity, **SMALL).bind(tokens=1024)
        trace = model.run(schedule(lower(instance), "dynamic", workers=3))  # 32 tasks: the last round has two
        tasks = trace.span == SPAN_TASK
        first[granularity] = (trace.start[tasks & (trace.grid == 1)].min(), trace.end[tasks & (trace.grid == 0)].max())
    assert first["barrier"][0] >= first["barrier"][1]
    assert first["row"][0] < first["row"][1]


def test_the_reference_computes_a_gated_block():
    instance = program(32, 64, 4, workers=2).bind(tokens=2)
    tensors = make_tensors(instance, np.random.default_rng(0))
    x, up, down = (brain_float.to_float32(tensors[name][0]).astype(float) for name in ("X", "W_up", "W_down"))
    for t in range(2):
        hidden = []
        for n in range(64):
            gate, value = up[n] @ x[t], up[64 + n] @ x[t]
            hidden.append(gate / (1 + np.exp(-gate)) * value)
        result = reference(tensors)
        np.testing.assert_allclose(result["H"][0, t], hidden, rtol=2**-8, atol=1e-6)
        np.testing.assert_allclose(result["Y"][0, t], down @ np.array(hidden), rtol=0, atol=2**-7)


def test_the_bound_decides_the_kinds():
    names = [[grid.kind.name for grid in program(64, 128, bound).grids] for bound in (8, 9)]
    assert all(name.startswith("vector_multiply") for name in names[0])
    assert all(name.startswith("matrix_multiply") for name in names[1])


@pytest.mark.parametrize("bound", [8, 4096])
def test_one_program_for_every_number_of_tokens(bound):
    one, other = (lower(program(64, 128, bound).bind(tokens=tokens)) for tokens in (1, bound))
    assert np.array_equal(one.words, other.words) and one.kinds == other.kinds


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"hidden": 36}, "hidden must be a multiple of 8, got 36"),
        ({"intermediate": 72, "tokens_bound": 8}, "intermediate must be a multiple of 32, got 72"),
        ({"granularity": "fine"}, "granularity must be one of tile, row, barrier, got 'fine'"),
        ({"group": 0}, "group must be at least 1, got 0"),
    ],
)
def test_refused(values, text):
    with pytest.raises(ProgramError, match=text):
        program(**values)
