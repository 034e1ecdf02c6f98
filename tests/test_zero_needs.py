"""Events that need no notification: satisfied from the start, in every schedule, and counted once."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
from numba import cuda

from etproto.check import check
from etproto.errors import ProgramError, ScheduleError
from etproto.executors import cpu, cudasim
from etproto.lowering import lower
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.schedule import schedule
from etproto.tile_kind import Operand, TileKind

WAYS = [("static", False), ("device-static", False), ("dynamic", False), ("dynamic", True), ("mixed", False)]
X, Y = Tensor("x", (4,)), Tensor("y", (4,))


def _nothing(*_):
    pass


def _slow_one(i, x):
    time.sleep(0.005)  # the reader comes first if it does not wait
    x[i] = 1


def _one(i, x):
    if cuda.threadIdx.x == 0:
        x[i] = np.float32(1)


def _copy(i, x, y):
    y[i] = x[i]


def _copy_body(i, x, y):
    if cuda.threadIdx.x == 0:
        y[i] = x[i]


EMPTY = TileKind("empty", _nothing, 1, portable=_nothing)
WRITE = TileKind("write", _slow_one, 1, (Operand("x", ndim=1, mode="out"),), portable=_one)
COPY = TileKind("copy", _copy, 1, (Operand("x", ndim=1), Operand("y", ndim=1, mode="out")), portable=_copy_body)


def poisoned():
    return {name: np.full(4, np.nan, np.float32) for name in ("x", "y")}


@pytest.mark.parametrize("executor", [cpu, cudasim], ids=["cpu", "cudasim"])
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("kind, early", WAYS)
def test_a_need_of_zero_does_not_stand_in_for_another_event(executor, kind, early, workers):
    """`copy` waits for E, which an empty grid notifies, and for F: meeting E is not meeting F."""
    E, F = EventTensor("E", (4,)), EventTensor("F", (4,))
    program = Program(
        "program",
        (
            TaskGrid("empty", EMPTY, (0,), notifies={E: "i->i"}),
            TaskGrid("write", WRITE, (4,), {"x": X}, notifies={F: "i->i"}),
            TaskGrid("copy", COPY, (4,), {"x": X, "y": Y}, waits=[(E, "i->i"), (F, "i->i")]),
        ),
    )
    tensors = poisoned()
    executor.run(schedule(lower(program.bind()), kind, workers=workers, early_push=early), tensors)
    assert tensors["y"].tolist() == [1.0] * 4


@pytest.mark.parametrize("executor", [cpu, cudasim], ids=["cpu", "cudasim"])
@pytest.mark.parametrize("kind, early", WAYS)
def test_a_task_whose_only_event_needs_nothing_runs_once(executor, kind, early):
    E = EventTensor("E", (4,))
    program = Program(
        "program",
        (
            TaskGrid("empty", EMPTY, (0,), notifies={E: "i->i"}),
            TaskGrid("write", WRITE, (4,), {"x": X}, waits={E: "i->i"}),
        ),
    )
    tensors = {"x": poisoned()["x"]}
    trace = executor.run(schedule(lower(program.bind()), kind, workers=2, early_push=early), tensors)
    assert tensors["x"].tolist() == [1.0] * 4
    assert sorted(trace.task[trace.span == 0].tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["static", "dynamic", "mixed"])
def test_counts_given_as_an_input_may_be_zero(kind):
    indices, counts = Tensor("indices", (4, 1), "int32"), Tensor("counts", (4,), "int32")
    E = EventTensor("E", (4,), count=counts)
    notify = TileKind("notify", _nothing, 1, (Operand("indices", "int32", 2), Operand("counts", "int32", 1)))
    program = Program(
        "program",
        (
            TaskGrid("a", notify, (4,), {"indices": indices, "counts": counts}, notifies={E: "i->indices[i,:]"}),
            TaskGrid("b", EMPTY, (4,), waits={E: "i->i"}),
        ),
    )
    tensors = {"indices": np.array([[0], [1], [1], [3]], np.int32), "counts": np.array([1, 2, 0, 1], np.int32)}
    trace = cpu.run(schedule(lower(program.bind()), kind, workers=2), tensors)
    assert sorted(trace.task[trace.span == 0].tolist()) == list(range(8))


def _write_and_copy():
    F = EventTensor("F", (4,))
    grids = (
        TaskGrid("write", WRITE, (4,), {"x": X}, notifies={F: "i->i"}),
        TaskGrid("copy", COPY, (4,), {"x": X, "y": Y}, waits={F: "i->i"}),
    )
    return Program("program", grids)


def test_tensors_that_share_memory_are_refused():
    memory = np.zeros(6, np.float32)
    scheduled = schedule(lower(_write_and_copy().bind()), "static", workers=2)
    with pytest.raises(ProgramError, match="tensors x and y share memory"):
        cpu.run(scheduled, {"x": memory[:4], "y": memory[2:]})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"worker_ptr": np.array([0, 5, 4])}, "worker_ptr: expected offsets that rise from 0 to 4"),
        (
            {"worker_task": np.array([-1, -2, -1, -9], np.int32)},
            "worker_task: expected task ids, or ~row of the 2 entries",
        ),
    ],
)
def test_malformed_schedules_are_named(change, message):
    scheduled = schedule(lower(_write_and_copy().bind()), "static", workers=2)
    result = check(dataclasses.replace(scheduled, **change))
    assert not result.ok and message in result.errors[0]


def test_sizes_that_no_device_has():
    lowered = lower(_write_and_copy().bind())
    with pytest.raises(ScheduleError, match="workers must be at most"):
        schedule(lowered, "static", workers=1 << 40)
    with pytest.raises(ScheduleError, match="queue_capacity must be a power of two, got 'x'"):
        schedule(lowered, "dynamic", workers=1, queue_capacity="x")
    with pytest.raises(ProgramError, match=r"extent 0 \(-1\) of grid must be at least 0, got -1"):
        lower(Program("program", (TaskGrid("grid", EMPTY, (-1,)),)).bind())
