"""The host part of the cuda executor without a GPU: its kernels run in the simulator, on a made-up device."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

from etproto import layout as L
from etproto.errors import ExecutorUnavailable, ProgramError, ResidencyError, RunError
from etproto.executors import compiled as compiled_kernels
from etproto.executors import cuda
from etproto.executors.driver import DeviceFacts, stream_handle
from etproto.executors.launch import LaunchOptions
from etproto.executors.simulator import launch_simulated
from etproto.lowering import lower
from etproto.models import MODELS, bucket_sum, splitk
from etproto.schedule import schedule
from etproto.trace import verify


class DeviceArray:
    """A NumPy array that answers like an array of a GPU."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = np.ascontiguousarray(array).copy()
        self.size = array.size

    @property
    def __cuda_array_interface__(self) -> dict:
        a = self.array
        return {"data": (a.ctypes.data, False), "shape": a.shape, "typestr": a.dtype.str, "version": 3}

    def copy_to_host(self) -> np.ndarray:
        return self.array.copy()

    def copy_to_device(self, other) -> None:
        self.array[...] = getattr(other, "array", other)


@dataclasses.dataclass(frozen=True)
class SimulatedKernel:
    """Two blocks on each multiprocessor; 4 threads a block, whatever is asked for."""

    function: object
    registers: int = 32
    shared_bytes: int = 1000
    dynamic_bytes: int = 0

    def resident_blocks(self, threads: int) -> int:
        return 2

    def launch(self, grid: int, threads: int, stream: int, argument: np.ndarray) -> None:
        launch_simulated(self.function, grid, 4, (int(argument[0]),), timeout_s=60.0)


@pytest.fixture
def compiled(monkeypatch):
    """A fake device; the list of functions that were compiled for it."""
    from cuda.bindings import driver

    functions = []
    facts = DeviceFacts("fake", (9, 0), processors=4, shared_per_block=100_000, driver=13000)

    def compile_one(function, facts, *, threads, **how):
        functions.append(function.__name__)
        return compiled_kernels.Compiled(SimulatedKernel(function), 0.0, False, threads)

    for module in (cuda, compiled_kernels):
        monkeypatch.setattr(module, "device_facts", lambda: facts)
    monkeypatch.setattr(compiled_kernels, "_compiled", compile_one)
    monkeypatch.setattr("numba.cuda.to_device", DeviceArray)
    monkeypatch.setattr("numba.cuda.as_cuda_array", lambda array, sync=True: array)
    monkeypatch.setattr(driver, "cuStreamSynchronize", lambda stream: (driver.CUresult.CUDA_SUCCESS,))
    _forget()
    yield functions
    _forget()


def _forget() -> None:
    compiled_kernels._worker.cache_clear()
    compiled_kernels.compiled_reset.cache_clear()


def on_device(tensors):
    return {name: DeviceArray(array) for name, array in tensors.items()}


def problem(n: int, seed: int = 0):
    """(lowered, tensors, expected) of splitk."""
    instance = splitk.program().bind(n=n)
    tensors = splitk.MODEL.make_tensors(instance, np.random.default_rng(seed))
    return lower(instance), tensors, splitk.MODEL.reference(tensors)


def right(arrays, expected, tolerance=1e-4) -> bool:
    return splitk.MODEL.compare({name: a.array for name, a in arrays.items()}, expected) <= tolerance


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_one_worker_more_than_are_resident_is_refused_before_the_launch(compiled, kind):
    """C01, C02: the limit is that of this device and this kernel; as many as that run."""
    lowered, tensors, expected = problem(3)
    with pytest.raises(
        ResidencyError,
        match=r"splitk\(n=3\): 9 workers asked for, at most 8 are resident.* on fake: 2 blocks",
    ):
        cuda.load(schedule(lowered, kind, workers=9))
    arrays = on_device(tensors)
    assert verify(cuda.run(schedule(lowered, kind, workers=8), arrays)) == [] and right(arrays, expected)


def test_one_kernel_serves_every_size_and_schedule(compiled):
    for n in (1, 7, 9):
        lowered, tensors, expected = problem(n)
        for kind in ("static", "device-static", "dynamic", "mixed"):
            arrays = on_device(tensors)
            cuda.run(schedule(lowered, kind, workers=3), arrays)
            assert right(arrays, expected)
    assert sorted(compiled) == ["reset", "worker"]


def test_three_launches_of_one_loaded_schedule(compiled):
    """C20: the reset belongs to the launch; the user resets nothing."""
    lowered, tensors, expected = problem(5)
    loaded = cuda.load(schedule(lowered, "dynamic", workers=3))
    for _ in range(3):
        arrays = on_device(tensors)
        loaded.launch(arrays)
        assert loaded.finish().schedule == "dynamic" and right(arrays, expected)
    loaded.launch()
    loaded.finish()
    assert right(arrays, expected), "the arrays of the last launch are used again"


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_a_run_after_an_aborted_one(compiled, kind):
    """C15: counters and queues of the aborted run are gone. E gets 4 notifications and needs 5, then 4."""
    lowered, tensors, expected = problem(3)
    loaded = cuda.load(schedule(lowered, kind, workers=4), options=LaunchOptions(watchdog_s=0.2))
    words = loaded.arrays["WORDS"].array
    for need in (5, 4, 5, 4):
        words[words[L.HEADER_EVENTS] + L.EVENT_NEED] = need
        arrays = on_device(tensors)
        loaded.launch(arrays)
        if need == 5:
            with pytest.raises(RunError, match=r"final\[\d+\] waits for E|3 of 15 tasks never ran"):
                loaded.finish()
        else:
            loaded.finish()
            assert right(arrays, expected)


@pytest.mark.parametrize("kind", ["static", "dynamic", "mixed"])
def test_rebinding_uploads_scalars(compiled, kind):
    one, many = problem(1), problem(12)
    loaded = cuda.load(schedule(one[0], kind, workers=3))
    for lowered, tensors, expected in (one, many, one):
        loaded.rebind(schedule(lowered, kind, workers=3))
        arrays = on_device(tensors)
        loaded.launch(arrays)
        loaded.finish()
        assert right(arrays, expected) and 0 < loaded.uploaded_bytes <= 256
    assert sorted(compiled) == ["reset", "worker"]


@pytest.mark.parametrize("name, sizes", [("gemm", [{"M": 0}, {"M": 9}]), ("bucket_sum", [{"rows": 0}, {"rows": 20}])])
@pytest.mark.parametrize("kind", ["static", "dynamic", "mixed"])
def test_from_nothing_to_something(compiled, name, sizes, kind):
    """A need that becomes 0 under one binding changes no row of what is pushed at the start."""
    small = {"gemm": {"N": 7, "K": 9, "splits": 2, "tile_m": 4, "tile_n": 4, "tile_k": 2}}
    fixed = small.get(name, {"buckets": 4, "width": 3, "chunk": 4, "block": 8})
    model, loaded = MODELS[name], None
    for size in (*sizes, sizes[0]):
        instance = model.build(**size, **fixed)
        tensors = model.make_tensors(instance, np.random.default_rng(1))
        expected, scheduled = model.reference(tensors), schedule(lower(instance), kind, workers=3)
        loaded = loaded or cuda.load(scheduled)
        loaded.rebind(scheduled)
        arrays = on_device(tensors)
        loaded.launch(arrays)
        loaded.finish()
        result = {tensor: array.array for tensor, array in arrays.items()}
        assert model.compare(result, expected) <= model.tolerance(tensors)


def test_rebinding_to_something_else_is_refused(compiled):
    loaded = cuda.load(schedule(problem(4)[0], "static", workers=3))
    with pytest.raises(RunError, match=r"splitk\(n=5\) \(dynamic, 3 workers\) is not another binding of splitk"):
        loaded.rebind(schedule(problem(5)[0], "dynamic", workers=3))


def test_arrays_of_the_binding_before_are_not_used(compiled):
    one, many = problem(1), problem(12)
    loaded = cuda.load(schedule(one[0], "static", workers=3))
    with pytest.raises(RunError, match="give the tensors with the first launch"):
        loaded.launch()
    loaded.launch(on_device(one[1]))
    loaded.finish()
    loaded.rebind(schedule(many[0], "static", workers=3))
    with pytest.raises(RunError, match="give the tensors with the first launch"):
        loaded.launch()
    with pytest.raises(ProgramError, match=r"tensor A: expected shape \(384, 128\), got \(32, 128\)"):
        loaded.launch(on_device(one[1]))


def test_host_arrays_are_refused(compiled):
    lowered, tensors, _ = problem(2)
    with pytest.raises(ProgramError, match="tensor A: expected an array on the device"):
        cuda.run(schedule(lowered, "static", workers=2), tensors)


def test_run_time_values_are_read_back_for_the_report(compiled):
    instance = bucket_sum.program(buckets=4, width=3, chunk=4, block=8).bind(rows=20)
    tensors = bucket_sum.MODEL.make_tensors(instance, np.random.default_rng(1))
    trace = cuda.run(schedule(lower(instance), "device-static", workers=3), on_device(tensors))
    assert trace.tasks is not None and verify(trace) == []
    assert trace.executor == "cuda" and trace.grid_name[0] == "route"


def test_without_a_gpu_the_reason_is_given():
    scheduled = schedule(problem(1)[0], "static", workers=1)
    try:
        cuda.load(scheduled)
    except ExecutorUnavailable as error:
        assert "cpu executor" in str(error)


def test_the_simulator_switch_is_refused():
    """C05: under NUMBA_ENABLE_CUDASIM no kernel is compiled; the text says what to use."""
    script = (
        "import sys; from etproto.errors import ExecutorUnavailable\n"
        "from etproto.executors import cuda\n"
        "from etproto.lowering import lower\n"
        "from etproto.models import splitk\n"
        "from etproto.schedule import schedule\n"
        "try: cuda.load(schedule(lower(splitk.program().bind(n=1)), 'static', workers=1))\n"
        "except ExecutorUnavailable as error: print(error); sys.exit(3)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert child.returncode == 3, child.stderr
    assert "NUMBA_ENABLE_CUDASIM" in child.stdout and "cpu" in child.stdout


def test_stream_handles():
    class Protocol:
        __cuda_stream__ = (0, 5)

    class Call:
        def __cuda_stream__(self):
            return (0, 6)

    class CuPy:
        ptr = 7

    class Torch:
        cuda_stream = 8

    assert [stream_handle(s) for s in (Protocol(), Call(), CuPy(), Torch(), 9, 0)] == [5, 6, 7, 8, 9, 0]
