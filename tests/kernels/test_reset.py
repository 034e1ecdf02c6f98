"""The reset kernel leaves a launch as if nothing had run before: whatever the last run left behind."""

from __future__ import annotations

import numpy as np
import pytest

from etproto import layout as L
from etproto.executors.launch import LaunchOptions, counter_count, launch_arrays, launch_block
from etproto.executors.simulator import launch_simulated
from etproto.kernels.reset import reset
from etproto.lowering import lower
from etproto.models import bucket_sum, splitk
from etproto.schedule import schedule


def after_reset(scheduled, blocks=3, threads=4, capacity=2, tensors=()):
    """Arrays of a launch that were full of rubbish, after the reset kernel."""
    prepared = launch_arrays(scheduled, LaunchOptions(trace_capacity=capacity))
    arrays = {**prepared.constant, **prepared.state}
    for name, array in prepared.state.items():
        if name != "WORDS":  # these are rewritten only where a symbol decides
            array.fill(0x5A5A)
    pointers = np.zeros(max(len(scheduled.lowered.buffers), 1), np.int64)
    for number, array in enumerate(tensors):
        pointers[number] = array.ctypes.data
    scalars = np.append(prepared.scalars, 0)
    addresses = {name: array.ctypes.data for name, array in arrays.items()}
    block = launch_block(
        scheduled,
        LaunchOptions(trace_capacity=capacity),
        addresses,
        pointers=pointers.ctypes.data,
        scalars=scalars.ctypes.data,
    )
    launch_simulated(reset, blocks, threads, (block.ctypes.data,), timeout_s=20.0)
    return arrays


@pytest.mark.parametrize("blocks, threads", [(1, 1), (1, 4), (3, 4), (5, 2)])
def test_everything_is_as_new(blocks, threads):
    lowered = lower(splitk.program().bind(n=9))
    scheduled = schedule(lowered, "dynamic", workers=3, queue_capacity=64)
    arrays = after_reset(scheduled, blocks, threads)
    np.testing.assert_array_equal(arrays["WORDS"], lowered.resolved_words())
    assert arrays["COUNTERS"].shape == (counter_count(scheduled),) and not arrays["COUNTERS"].any()
    expected = np.zeros_like(arrays["CONTROL"])
    expected[L.CONTROL_EPOCH] = 1
    expected[L.CONTROL_LIVE] = 36 + 1  # tasks that wait for nothing, and the start
    expected[L.CONTROL_QUEUES + L.QUEUE_TAIL] = 36
    np.testing.assert_array_equal(arrays["CONTROL"], expected)
    np.testing.assert_array_equal(arrays["SLOTS"], [*range(36), *[-1] * 28])
    np.testing.assert_array_equal(arrays["STATES"], [[0, -1, 0, -1]] * 3)
    assert not arrays["TRACE_COUNT"].any() and not arrays["TRACE_HEADERS"].any()


def test_a_new_binding_is_a_few_scalars():
    """The words are those of another binding; patches and scalars make them right."""
    one, many = (lower(splitk.program().bind(n=n)) for n in (1, 70_000))
    assert len(one.scalars) <= 32
    words = one.words.copy()
    words[one.patches[:, 0]] = many.scalars[one.patches[:, 1]]
    np.testing.assert_array_equal(words, many.resolved_words())
    assert (words != one.resolved_words()).any()


def test_static_schedules_have_no_queue():
    arrays = after_reset(schedule(lower(splitk.program().bind(n=9)), "static", workers=2))
    assert len(arrays["SLOTS"]) == 0 and arrays["CONTROL"][L.CONTROL_STATUS] == L.STATUS_RUNNING


def test_too_many_initial_tasks_set_the_status():
    """C37: 64 tasks ready at once and 4 slots: nothing is overwritten, the numbers are kept."""
    scheduled = schedule(lower(splitk.program().bind(n=16)), "dynamic", workers=1, queue_capacity=4)
    arrays = after_reset(scheduled)
    control = arrays["CONTROL"]
    assert control[L.CONTROL_STATUS] == L.STATUS_QUEUE_FULL
    assert control[L.CONTROL_ERROR : L.CONTROL_ERROR + 5].tolist() == [-1, -1, 0, 64, 4]
    np.testing.assert_array_equal(arrays["SLOTS"], [0, 1, 2, 3])


def test_each_queue_of_a_mixed_schedule_has_its_own_slots():
    instance = bucket_sum.program(buckets=3, width=2, chunk=4, block=8).bind(rows=20)
    lowered = lower(instance)
    scheduled = schedule(lowered, "mixed", workers=2, dynamic_grids=["route", "combine"], queue_capacity=8)
    arrays = after_reset(scheduled)
    route = lowered.grid_first[lowered.grid_name.index("route")]
    np.testing.assert_array_equal(arrays["SLOTS"][:8], [route, route + 1, route + 2, *[-1] * 5])
    np.testing.assert_array_equal(arrays["SLOTS"][8:], [-1] * 8)
    tails = arrays["CONTROL"][L.CONTROL_QUEUES + L.QUEUE_TAIL :: L.QUEUE_WORDS]
    assert tails.tolist() == [3, 0]
