"""The table of executors, and `run`, which checks before it runs."""

from __future__ import annotations

import numpy as np
import pytest

from etproto import executors
from etproto.demo import deadlock
from etproto.errors import EtprotoError, ScheduleError
from etproto.executors import EXECUTORS, find_executor, run
from etproto.lowering import lower
from etproto.models import MODELS
from etproto.schedule import schedule


@pytest.mark.parametrize("name", EXECUTORS)
def test_every_executor_is_there(name: str) -> None:
    assert callable(find_executor(name))


def test_unknown_executor() -> None:
    with pytest.raises(EtprotoError, match="expected one of cpu, cudasim, cuda, model, got 'abacus'"):
        run(deadlock_free(), {}, "abacus")


def deadlock_free():
    return schedule(lower(MODELS["splitk"].build(n=1)), "static", workers=1)


def test_run_refuses_what_the_checker_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "find_executor", lambda name: pytest.fail("started"))
    with pytest.raises(ScheduleError, match="the static order deadlocks, cycle of 4 tasks"):
        run(deadlock())


@pytest.mark.parametrize(("on_gpu", "chosen"), [(False, "cpu"), (True, "cuda")])
def test_auto_goes_where_the_arrays_lie(monkeypatch: pytest.MonkeyPatch, on_gpu: bool, chosen: str) -> None:
    class OnGpu:
        __cuda_array_interface__: dict = {}

    asked = []
    monkeypatch.setattr(
        executors, "find_executor", lambda name: lambda *given, **options: asked.append((name, options))
    )
    run(deadlock_free(), {"A": OnGpu() if on_gpu else np.zeros((32, 128), np.float32)}, seed=3)
    assert asked == [(chosen, {"seed": 3})]


def test_poisoned_run_time_values_are_not_taken_for_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """bucket_sum's counts are -1 before the launch computes them; the checker must not look at them."""
    model = MODELS["bucket_sum"]
    instance = model.build(rows=20)
    ran = []
    monkeypatch.setattr(executors, "find_executor", lambda name: lambda *given, **options: ran.append(name))
    run(
        schedule(lower(instance), "dynamic", workers=2),
        model.make_tensors(instance, np.random.default_rng(0)),
    )
    assert ran == ["cpu"]
