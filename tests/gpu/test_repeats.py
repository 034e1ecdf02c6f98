"""Repeats: late producers, runs after an aborted one, and many programs in one process."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from etproto import layout as L
from etproto.errors import NoProgressError, RunError
from etproto.executors import cuda
from etproto.executors.launch import LaunchOptions
from etproto.lowering import lower
from etproto.models import splitk
from etproto.schedule import schedule

pytestmark = pytest.mark.gpu

PROGRAMS = {
    "splitk": {"n": 30},
    "cholesky": {"tiles": 6, "tile": 16},
    "gemm": {"M": 130, "N": 70, "K": 33, "splits": 3},
    "bucket_sum": {"rows": 100, "buckets": 9, "width": 20, "chunk": 8, "block": 16},
}
SCHEDULES = [("static", False), ("device-static", False), ("dynamic", True), ("mixed", False)]


@pytest.fixture(scope="module")
def bits():
    """Program -> results of its first run."""
    return {}


@pytest.mark.parametrize("kind, early", SCHEDULES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_thousand_repeats_with_late_producers(case, to_device, to_host, set_field, bits, name, kind, early):
    """250 repeats for each of four schedules, random pauses before every notify: bitwise the same results."""
    program = case(name, **PROGRAMS[name])
    scheduled = schedule(program.lowered, kind, workers=66, early_push=early)
    loaded = cuda.load(scheduled, options=LaunchOptions(delay_ns=20_000))
    poisoned, arrays = to_device(program.inputs), to_device(program.inputs)
    loaded.bind_tensors(arrays)
    for seed in range(1000 // len(SCHEDULES)):
        set_field(loaded, SEED=seed)
        for tensor, array in arrays.items():
            if array.size:
                array.copy_to_device(poisoned[tensor])
        loaded.launch()
        result = {tensor: arrays[tensor].copy_to_host() for tensor in program.expected}
        for tensor, array in bits.setdefault(name, result).items():
            np.testing.assert_array_equal(result[tensor], array, err_msg=f"{tensor}, seed {seed}")
        if seed % 50 == 0:
            loaded.finish()
    loaded.finish()
    program.check(to_host(arrays))


def test_three_runs_without_a_reset_by_the_user(case, to_device, to_host):
    program = case("bucket_sum", **PROGRAMS["bucket_sum"])
    loaded = cuda.load(schedule(program.lowered, "dynamic", workers=132))
    for _ in range(3):
        arrays = to_device(program.inputs)
        loaded.launch(arrays)
        loaded.finish()
        program.check(to_host(arrays))


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_an_aborted_run_does_not_poison_the_next(case, to_device, to_host, kind):
    """E needs 5 notifications and gets 4, so no `final` may run; then the same launch with the right need."""
    program = case("splitk", **PROGRAMS["splitk"])
    loaded = cuda.load(schedule(program.lowered, kind, workers=9), options=LaunchOptions(watchdog_s=0.05))
    words = loaded.arrays["WORDS"].copy_to_host()
    need = words[L.HEADER_EVENTS] + L.EVENT_NEED
    for value in (5, 4, 5, 4):
        words[need] = value
        loaded.arrays["WORDS"].copy_to_device(words)
        arrays = to_device(program.inputs)
        loaded.launch(arrays)
        if value == 5:
            with pytest.raises(RunError, match=r"final\[\d+\] waits for E|30 of 150 tasks never ran"):
                loaded.finish()
        else:
            loaded.finish()
            program.check(to_host(arrays))


def test_no_progress_for_the_watchdog_time_ends_a_run(case, to_device):
    """A pause of up to 16 ms before each notify, and a watchdog of 0.2 ms."""
    program = case("splitk", **PROGRAMS["splitk"])
    options = LaunchOptions(watchdog_s=2e-4, delay_ns=16_000_000, seed=1)
    loaded = cuda.load(schedule(program.lowered, "static", workers=7), options=options)
    loaded.launch(to_device(program.inputs))
    with pytest.raises(NoProgressError, match=r"splitk\(n=30\)"):
        loaded.finish()


def test_two_hundred_programs_in_one_process(to_device, to_host):
    """Built, run and dropped; nothing piles up on the device."""
    from numba import cuda as numba_cuda

    def one(n: int) -> None:
        instance = splitk.program().bind(n=n)
        tensors = splitk.MODEL.make_tensors(instance, np.random.default_rng(n))
        arrays = to_device(tensors)
        cuda.run(schedule(lower(instance), "static" if n % 2 else "dynamic", workers=8), arrays, trace=False)
        assert splitk.MODEL.compare(to_host(arrays), splitk.MODEL.reference(tensors)) <= 1e-4

    def free() -> int:
        gc.collect()
        context = numba_cuda.current_context()
        context.deallocations.clear()
        return context.get_memory_info().free

    one(1)
    before = free()
    for n in range(1, 200):
        one(n)
    assert before - free() < 64 << 20
