"""Every schedule, with any number of workers, gives the same bits on a GPU; they match cpu and reference."""

from __future__ import annotations

import numpy as np
import pytest

from etproto.errors import ScheduleError
from etproto.executors import cuda
from etproto.schedule import schedule
from etproto.trace import SPAN_TASK, verify

pytestmark = pytest.mark.gpu

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
PROGRAMS = {
    "splitk": {"n": 70},
    "cholesky": {"tiles": 8, "tile": 16},
    "gemm": {"M": 130, "N": 70, "K": 33, "splits": 3},  # no size is a multiple of its tile
    "bucket_sum": {"rows": 300, "buckets": 9, "width": 20, "chunk": 8, "block": 16},
}
WORKERS = (1, 2, 3, 7, 66, 131, 132)
# Same kernels, other sizes: nothing to do, one task, an empty slice of k, one row.
SMALL = [
    ("splitk", {"n": 0}),
    ("splitk", {"n": 1}),
    ("cholesky", {"tiles": 1, "tile": 16}),
    ("gemm", {"M": 0, "N": 70, "K": 33, "splits": 3}),
    ("gemm", {"M": 1, "N": 70, "K": 5, "splits": 3}),
    ("bucket_sum", {"rows": 0, "buckets": 9, "width": 20, "chunk": 8, "block": 16}),
    ("bucket_sum", {"rows": 1, "buckets": 9, "width": 20, "chunk": 8, "block": 16}),
]


@pytest.fixture(scope="module")
def bits():
    """Program -> results of its first run on the GPU."""
    return {}


def planned(lowered, how, workers):
    """The schedule, or a skip where a list cannot be planned before the launch."""
    arguments = dict(SCHEDULES[how])
    if arguments.get("policy") == "critical_path" and any(lowered.run_time_grids):
        with pytest.raises(ScheduleError, match="computed in it"):
            schedule(lowered, arguments.pop("kind"), workers=workers, **arguments)
        return None
    return schedule(lowered, arguments.pop("kind"), workers=workers, **arguments)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("how", SCHEDULES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_bits(case, to_device, to_host, bits, name, how, workers):
    program = case(name, **PROGRAMS[name])
    scheduled = planned(program.lowered, how, workers)
    if scheduled is None:
        return
    arrays = to_device(program.inputs)
    trace = cuda.run(scheduled, arrays)
    result = to_host(arrays)
    program.check(result)
    for tensor, array in bits.setdefault(name, result).items():
        np.testing.assert_array_equal(result[tensor], array, err_msg=f"{tensor} differs from the first run")
    assert trace.dropped == 0 and trace.workers == workers and trace.schedule == scheduled.schedule
    assert verify(trace) == []


@pytest.mark.parametrize("how", SCHEDULES)
@pytest.mark.parametrize("name, values", SMALL)
def test_small_sizes(case, to_device, to_host, name, values, how):
    program = case(name, **values)
    scheduled = planned(program.lowered, how, 5)
    if scheduled is None:
        return
    arrays = to_device(program.inputs)
    assert verify(cuda.run(scheduled, arrays)) == []
    program.check(to_host(arrays))


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_every_kind_runs_as_often_as_it_has_tasks(case, to_device, kind):
    program = case("cholesky", **PROGRAMS["cholesky"])
    trace = cuda.run(schedule(program.lowered, kind, workers=20), to_device(program.inputs))
    ran = np.bincount(trace.kind[trace.span == SPAN_TASK], minlength=4)
    assert dict(zip(trace.kind_name, ran.tolist(), strict=True)) == {
        "potrf": 8,
        "trsm": 28,
        "syrk": 28,
        "gemm": 56,
    }
