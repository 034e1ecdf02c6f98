"""Every executor, under every schedule, gives the bits of its run with one worker, and what cpu threads give.

The cuda executor's part is `tests/gpu/test_agreement.py`.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from etproto.errors import ScheduleError
from etproto.executors import cpu, cudasim, model
from etproto.lowering import lower
from etproto.lowering_graph import lower_graph
from etproto.models import MODELS
from etproto.schedule import schedule
from etproto.trace import SPAN_TASK, verify

SCHEDULES = {
    "static": {"kind": "static"},
    "zigzag": {"kind": "static", "policy": "zigzag"},
    "critical path": {"kind": "static", "policy": "critical_path"},
    "device-static": {"kind": "device-static"},
    "dynamic": {"kind": "dynamic"},
    "dynamic early": {"kind": "dynamic", "early_push": True},
    "mixed": {"kind": "mixed"},
    "mixed early": {"kind": "mixed", "early_push": True},
}
GEMM = {"N": 7, "K": 10, "splits": 3, "tile_m": 4, "tile_n": 4, "tile_k": 2}
BUCKETS = {"buckets": 5, "width": 3, "chunk": 4, "block": 8}
PROGRAMS = {
    "splitk": {"n": 3},
    "splitk empty": {"n": 0},
    "splitk one": {"n": 1},
    "cholesky": {"tiles": 3, "tile": 3},
    "cholesky one": {"tiles": 1, "tile": 3},
    "gemm": {"M": 9, **GEMM},
    "gemm empty": {"M": 0, **GEMM},
    "gemm one row": {"M": 1, **GEMM},
    "bucket_sum": {"rows": 30, **BUCKETS},  # buckets of very different sizes, one of them empty
    "bucket_sum empty": {"rows": 0, **BUCKETS},
    "bucket_sum one row": {"rows": 1, **BUCKETS},
    "bucket_sum one bucket": {"rows": 30, **BUCKETS, "buckets": 1},
}
EXECUTORS = {
    "cpu threads": lambda scheduled, tensors: cpu.run(scheduled, tensors),
    "cpu seed 1": lambda scheduled, tensors: cpu.run(scheduled, tensors, seed=1),
    "cudasim": lambda scheduled, tensors: cudasim.run(scheduled, tensors, watchdog_s=20.0),
}


@cache
def built(label: str):
    """(model, lowered, tensors, expected) of a program; built and lowered once."""
    chosen = MODELS[label.split()[0]]
    target = chosen.build(**PROGRAMS[label])
    lowered = lower(target) if chosen.kinds is None else lower_graph(target, chosen.kinds(target))
    tensors = chosen.make_tensors(target, np.random.default_rng(3))
    return chosen, lowered, tensors, chosen.reference(tensors)


@cache
def bits(label: str, executor: str) -> dict[str, np.ndarray]:
    """Tensors after a run with one worker."""
    _, lowered, tensors, _ = built(label)
    tensors = {name: array.copy() for name, array in tensors.items()}
    EXECUTORS[executor](schedule(lowered, "auto", workers=1), tensors)
    return tensors


def planned(label: str, how: str, workers: int):
    """The schedule; None where a list cannot be planned, since tasks are only known in the launch."""
    lowered, arguments = built(label)[1], dict(SCHEDULES[how])
    kind = arguments.pop("kind")
    if how == "critical path" and any(lowered.run_time_grids):
        with pytest.raises(ScheduleError, match="computed in it"):
            schedule(lowered, kind, workers=workers, **arguments)
        return None
    return schedule(lowered, kind, workers=workers, **arguments)


@pytest.mark.parametrize("how", SCHEDULES)
@pytest.mark.parametrize("label", PROGRAMS)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_same_results(executor, label, how):
    chosen, _, tensors, expected = built(label)
    scheduled = planned(label, how, 3)
    if scheduled is None:
        return
    tensors = {name: array.copy() for name, array in tensors.items()}
    trace = EXECUTORS[executor](scheduled, tensors)
    assert chosen.compare(tensors, expected) <= chosen.tolerance(tensors)
    for name, array in bits(label, executor).items():
        np.testing.assert_array_equal(tensors[name], array, err_msg=f"{name} differs from a run with one worker")
    for name, array in bits(label, "cpu threads").items():
        close = 4 * chosen.tolerance(tensors)
        np.testing.assert_allclose(tensors[name], array, rtol=close, atol=close, err_msg=name)
    assert (trace.schedule, trace.policy, trace.workers, trace.dropped) == (
        scheduled.schedule,
        scheduled.policy,
        3,
        0,
    )
    assert verify(trace) == []


@pytest.mark.parametrize("how", SCHEDULES)
@pytest.mark.parametrize("label", PROGRAMS)
def test_model_runs_the_same_schedule(label, how):
    """Every task once, in order, whatever the time of a task; and no faster than the bounds."""
    scheduled = planned(label, how, 3)
    if scheduled is None:
        return
    tensors = {name: array.copy() for name, array in built(label)[2].items()}
    trace = model.run(scheduled, tensors)
    ran = cpu.run(scheduled, tensors, seed=0)
    assert verify(trace) == []
    tasks = [set(t.task[t.span == SPAN_TASK].tolist()) for t in (trace, ran)]
    assert tasks[0] == tasks[1]


@pytest.mark.parametrize("workers", [1, 2, 7, 33])
@pytest.mark.parametrize("kind", ["static", "device-static", "dynamic", "mixed"])
@pytest.mark.parametrize("label", ["splitk", "cholesky", "gemm", "bucket_sum"])
def test_any_number_of_workers_gives_the_same_bits(label, kind, workers):
    """More workers than tasks among them."""
    scheduled = planned(label, kind, workers)
    tensors = {name: array.copy() for name, array in built(label)[2].items()}
    assert verify(cudasim.run(scheduled, tensors, threads=2, watchdog_s=20.0)) == []
    for name, array in bits(label, "cudasim").items():
        np.testing.assert_array_equal(tensors[name], array, err_msg=name)


@pytest.mark.parametrize("label, kind, early", [("splitk", "static", False), ("bucket_sum", "dynamic", True)])
def test_late_producers(label, kind, early):
    """C31: a pause before each notify, 20 seeds, the same bits."""
    scheduled = schedule(built(label)[1], kind, workers=4, early_push=early)
    for seed in range(20):
        tensors = {name: array.copy() for name, array in built(label)[2].items()}
        cudasim.run(scheduled, tensors, seed=seed, delay_ns=2_000_000, threads=2, watchdog_s=20.0)
        for name, array in bits(label, "cudasim").items():
            np.testing.assert_array_equal(tensors[name], array, err_msg=f"{name}, seed {seed}")
