"""Programs whose tasks do next to nothing."""

from __future__ import annotations

import numpy as np
import pytest

from etproto.check import check
from etproto.errors import ProgramError
from etproto.executors import run
from etproto.lowering import lower
from etproto.models.overhead import EMPTY_MODEL, MODEL, independent, layers, make_tensors, reference
from etproto.schedule import schedule
from etproto.trace import SPAN_TASK

SCHEDULES = [("static", False), ("device-static", False), ("dynamic", False), ("dynamic", True)]


@pytest.mark.parametrize(("kind", "early"), SCHEDULES)
@pytest.mark.parametrize(("width", "depth"), [(1, 1), (1, 9), (4, 5), (7, 3)])
def test_layers(kind, early, width, depth):
    instance = layers(width, 64).bind(depth=depth)
    scheduled = schedule(lower(instance), kind, workers=2, early_push=early)
    result = check(scheduled)
    assert result.ok, result.errors
    for executor in ("cpu", "model", "cudasim"):
        tensors = make_tensors(instance, np.random.default_rng(3))
        before, expected = tensors["S"].copy(), reference(tensors)
        trace = run(scheduled, tensors, executor=executor)
        assert (trace.span == SPAN_TASK).sum() == width * depth
        if executor == "model":
            np.testing.assert_array_equal(tensors["S"], before)
        else:
            np.testing.assert_array_equal(tensors["S"], expected["S"])


def test_the_reference_is_what_adding_layer_by_layer_gives():
    tensors = make_tensors(layers(5, 8).bind(depth=7), np.random.default_rng(0))
    rows = [tensors["S"][0].tolist()]
    for _ in range(7):
        rows.append([[word + 1 for word in rows[-1][(i + 1) % 5]] for i in range(5)])
    np.testing.assert_array_equal(reference(tensors)["S"], rows)


def test_a_task_that_runs_too_early_is_noticed():
    tensors = make_tensors(layers(3, 8).bind(depth=3), np.random.default_rng(0))
    expected = reference(tensors)
    message = layers(3, 8).grids[0].kind.reference
    for layer in (0, 2, 1):  # layer 2 reads what nobody has written
        for i in range(3):
            message(layer, i, 0, tensors["S"], tensors["S"])
    assert MODEL.compare(tensors, expected) == np.inf


def test_two_workers_alternate():
    """Dealt out in turn, every hop crosses from one worker to the other."""
    trace = run(schedule(lower(layers(1, 64).bind(depth=20)), "static", workers=2), executor="model")
    tasks = trace.span == SPAN_TASK
    order = np.argsort(trace.task[tasks])
    assert trace.worker[tasks][order].tolist() == [0, 1] * 10


@pytest.mark.parametrize("kind", ["static", "device-static", "dynamic"])
def test_independent_tasks(kind):
    scheduled = schedule(lower(independent(64).bind(n=11)), kind, workers=3)
    assert check(scheduled).ok
    for executor in ("cpu", "model", "cudasim"):
        assert (run(scheduled, {}, executor=executor).span == SPAN_TASK).sum() == 11
    assert EMPTY_MODEL.build(n=3).values == {"n": 3}


def test_one_program_for_every_length():
    one, other = (lower(layers(132, 1000).bind(depth=depth)) for depth in (200, 1000))
    assert np.array_equal(one.words, other.words) and one.kinds == other.kinds
    assert [len(one.buffers), one.buffers == other.buffers] == [1, True], "needs are no table"


@pytest.mark.parametrize("values", [{"width": 0}, {"bound": 0}])
def test_sizes_out_of_range(values):
    with pytest.raises(ProgramError, match=f"layers: {next(iter(values))} must be at least 1, got 0"):
        layers(**values)
