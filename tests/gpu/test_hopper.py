"""The hopper worker on a GPU: every schedule gives the same bits, late producers change nothing, failures end."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from etproto import layout as L
from etproto.errors import NoProgressError
from etproto.executors import cuda
from etproto.executors.driver import device_facts
from etproto.schedule import schedule
from etproto.trace import verify

pytestmark = pytest.mark.gpu

SCHEDULES = {
    "static": {"kind": "static"},
    "zigzag": {"kind": "static", "policy": "zigzag"},
    "device-static": {"kind": "device-static"},
    "dynamic": {"kind": "dynamic"},
    "dynamic early": {"kind": "dynamic", "early_push": True},
    "mixed": {"kind": "mixed"},
}
PROGRAMS = {
    "splitk": {"n": 70},
    "cholesky": {"tiles": 8, "tile": 16},
    "bucket_sum": {"rows": 300, "buckets": 9, "width": 20, "chunk": 8, "block": 16},
    "layers": {"depth": 50, "width": 40},
    "matmul": {"M": 700, "N": 520, "K": 392, "tile_n": 128, "group": 2},
    "skinny": {"B": 13, "N": 1000, "K": 712, "bound": 16, "slices": 3},
    "chain": {"N": 256, "layers": 12, "batch": 3, "workers": 16},
    "mlp": {"tokens": 5, "hidden": 256, "intermediate": 512, "workers": 16},
    "mlp tiles": {"tokens": 300, "hidden": 256, "intermediate": 512, "tokens_bound": 512, "up_tile": 128},
}
SMALL = {
    "matmul": ({"M": 0}, {"M": 1}, {"M": 129, "K": 8}),
    "skinny": ({"B": 0}, {"B": 1, "N": 8, "K": 8, "slices": 1}),
    "splitk": ({"n": 0}, {"n": 1}),
}


@pytest.fixture(autouse=True)
def needs_hopper():
    if device_facts().capability[0] != 9:
        pytest.skip(f"the hopper worker needs compute capability 9.0, this device has {device_facts().capability}")


@pytest.fixture(scope="module")
def bits():
    """Program -> results of its first run."""
    return {}


def planned(lowered, how, workers):
    arguments = dict(SCHEDULES[how])
    return schedule(lowered, arguments.pop("kind"), workers=workers, **arguments)


@pytest.mark.parametrize("workers", (1, 2, 7, 131, 132))
@pytest.mark.parametrize("how", SCHEDULES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_bits(case, to_device, to_host, bits, name, how, workers):
    program = case(name.split()[0], **PROGRAMS[name])
    arrays = to_device(program.inputs)
    trace = cuda.run(planned(program.lowered, how, workers), arrays, worker="hopper")
    result = to_host(arrays)
    program.check(result)
    for tensor, array in bits.setdefault(name, result).items():
        np.testing.assert_array_equal(result[tensor], array, err_msg=f"{tensor} differs from the first run")
    assert trace.dropped == 0 and verify(trace) == []


@pytest.mark.parametrize(("name", "values"), [(name, values) for name in SMALL for values in SMALL[name]])
@pytest.mark.parametrize("how", ("static", "dynamic"))
def test_small_sizes(case, to_device, to_host, name, values, how):
    program = case(name, **values)
    arrays = to_device(program.inputs)
    assert verify(cuda.run(planned(program.lowered, how, 5), arrays, worker="hopper")) == []
    program.check(to_host(arrays))


@pytest.mark.parametrize("how", ("static", "dynamic", "dynamic early"))
@pytest.mark.parametrize("name", ("splitk", "chain", "mlp tiles"))
def test_late_producers(case, to_device, to_host, bits, name, how):
    program = case(name.split()[0], **PROGRAMS[name])
    for seed in range(20):
        arrays = to_device(program.inputs)
        cuda.run(planned(program.lowered, how, 132), arrays, worker="hopper", delay_ns=20_000, seed=seed, trace=False)
        result = to_host(arrays)
        for tensor, array in bits.setdefault(name, result).items():
            np.testing.assert_array_equal(result[tensor], array, err_msg=f"{tensor}, seed {seed}")


@pytest.mark.parametrize("kind", ("static", "dynamic"))
def test_a_good_run_after_one_without_progress(case, to_device, to_host, kind):
    program = case("splitk", **PROGRAMS["splitk"])
    scheduled = schedule(program.lowered, kind, workers=20)
    words = program.lowered.words.copy()
    words[words[L.HEADER_EVENTS] + L.EVENT_NEED] += 1  # no task notifies so often
    broken = dataclasses.replace(scheduled, lowered=dataclasses.replace(program.lowered, words=words))
    with pytest.raises(NoProgressError):
        cuda.run(broken, to_device(program.inputs), worker="hopper", watchdog_s=0.5)
    arrays = to_device(program.inputs)
    cuda.run(scheduled, arrays, worker="hopper")
    program.check(to_host(arrays))


def test_captured_and_replayed(case, to_device, to_host):
    """Tensor maps and descriptors are right in every replay of a graph."""
    cupy = pytest.importorskip("cupy")
    program = case("matmul", **PROGRAMS["matmul"])
    loaded = cuda.load(schedule(program.lowered, "static", workers=132), worker="hopper")
    arrays = to_device(program.inputs)
    stream = cupy.cuda.Stream(non_blocking=True)
    loaded.launch(arrays, stream)
    stream.synchronize()
    stream.begin_capture()
    loaded.launch(arrays, stream)
    graph = stream.end_capture()
    for _ in range(3):
        graph.launch(stream)
        loaded.finish(stream)
        program.check(to_host(arrays))
