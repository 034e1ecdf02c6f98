"""mbarriers and named barriers: their phases, what waits for them, and how a launch that hangs in one ends."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from numba import cuda

from etproto.errors import NoProgressError
from etproto.executors.simulator import launch_simulated
from etproto.kernels.ptx.barrier import (
    mbarrier_arrive,
    mbarrier_complete,
    mbarrier_expect,
    mbarrier_expect_transaction,
    mbarrier_init,
    mbarrier_test,
    mbarrier_wait,
    named_barrier,
    named_barrier_arrive,
)
from etproto.kernels.ptx.bulk import cluster_barrier, cluster_rank
from etproto.kernels.ptx.shared import load_shared_int32, store_shared_int32
from etproto.kernels.ptx.timer import nanosleep

BARRIER, VALUE = 1024, 2048


def test_a_phase_ends_with_the_last_arrival_and_the_last_byte(simulate):
    seen = []

    def over():
        seen.append((mbarrier_test(BARRIER, 0), mbarrier_test(BARRIER, 1)))

    def kernel():
        mbarrier_init(BARRIER, 2)
        over()  # fresh: the phase before the first counts as over
        mbarrier_arrive(BARRIER)
        over()
        mbarrier_expect(BARRIER, 100)
        over()  # all have arrived, bytes are missing
        mbarrier_complete(BARRIER, 60)
        over()
        mbarrier_complete(BARRIER, 40)
        over()
        mbarrier_complete(BARRIER, 8)  # a copy may land before it is announced
        mbarrier_arrive(BARRIER)
        mbarrier_expect_transaction(BARRIER, 8)
        over()
        mbarrier_arrive(BARRIER)
        over()
        mbarrier_wait(BARRIER, 1)

    simulate(kernel, 1)
    assert seen == [(0, 1), (0, 1), (0, 1), (0, 1), (1, 0), (1, 0), (0, 1)]


def test_a_ring_hands_values_on_in_order(simulate):
    """A producer and consumers over 50 turns of one slot: the waits for parities keep them in step."""
    consumers, turns = 32, 50
    sums = np.zeros(consumers, np.int64)

    def kernel(sums):
        full, empty, me = BARRIER, BARRIER + 8, cuda.threadIdx.x
        if me == 0:
            mbarrier_init(full, 1)
            mbarrier_init(empty, consumers)
        cuda.syncthreads()
        phase = 0
        for turn in range(turns):
            if me == consumers:
                mbarrier_wait(empty, phase ^ 1)
                store_shared_int32(VALUE, turn * turn)
                mbarrier_arrive(full)
            elif me < consumers:
                mbarrier_wait(full, phase)
                sums[me] = sums[me] * 3 % 1000003 + load_shared_int32(VALUE)
                mbarrier_arrive(empty)
            phase ^= 1

    simulate(kernel, consumers + 1, sums)
    expected = 0
    for turn in range(turns):
        expected = expected * 3 % 1000003 + turn * turn
    assert (sums == expected).all()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda: mbarrier_arrive(BARRIER), "no mbarrier was initialised at the shared address 1024"),
        (lambda: mbarrier_init(BARRIER + 4, 1), "multiple of 8, got 1028"),
        (lambda: mbarrier_init(BARRIER, 0), "must be positive, got 0"),
        (
            lambda: (mbarrier_init(BARRIER, 1), mbarrier_expect(BARRIER, 4), mbarrier_arrive(BARRIER)),
            "more arrivals than its count of 1",
        ),
    ],
)
def test_misuse_is_named(simulate, body, message):
    def kernel():
        body()
        cuda.syncthreads()

    with pytest.raises(ValueError, match=message):
        simulate(kernel, 1)


def test_named_barriers_join_their_groups_only(simulate):
    """Two groups of 32 threads turn at different rates; then one number joins all 64."""
    out, joined = np.zeros(64, np.int64), np.zeros(64, np.int64)

    def kernel(out, joined):
        group, me = cuda.threadIdx.x // 32, cuda.threadIdx.x
        for turn in range(3 + 2 * group):
            out[me] = turn
            named_barrier(1 + group, 32)
            seen = out[32 * group : 32 * group + 32].tolist()
            named_barrier(1 + group, 32)
            if seen != [turn] * 32:
                raise ArithmeticError(f"turn {turn}: {seen}")
        named_barrier(1, 64)
        joined[me] = out.sum()

    simulate(kernel, 64, out, joined)
    assert (joined == 32 * 2 + 32 * 4).all()


def test_arriving_does_not_wait(simulate):
    """32 producers arrive and go on; 32 consumers see what they wrote. The second barrier works the other way."""
    out, passed = np.zeros(32, np.int64), np.zeros(32, bool)

    def kernel(out, passed):
        me = cuda.threadIdx.x
        if me < 32:
            store_shared_int32(VALUE + 4 * me, me * me)
            named_barrier_arrive(3, 64)
            passed[me] = True
            named_barrier(4, 64)
        else:
            while not passed.all():  # nobody waits in barrier 3 yet
                nanosleep(20)
            named_barrier(3, 64)
            out[me - 32] = load_shared_int32(VALUE + 4 * (me - 32))
            named_barrier_arrive(4, 64)

    simulate(kernel, 64, out, passed)
    np.testing.assert_array_equal(out, np.arange(32) ** 2)


def test_a_cluster_is_one_block(simulate):
    out = np.zeros(8, np.int64)

    def kernel(out):
        me = cuda.threadIdx.x
        store_shared_int32(VALUE + 4 * me, me + 10 * cluster_rank())
        cluster_barrier()
        out[me] = load_shared_int32(VALUE + 4 * (7 - me))

    simulate(kernel, 8, out)
    assert out.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


def _hangs_in_an_mbarrier():
    if cuda.threadIdx.x == 0:
        mbarrier_init(BARRIER, 1)
    cuda.syncthreads()
    mbarrier_wait(BARRIER, 0)


def _hangs_in_a_named_barrier():
    named_barrier(2, 96)


def _one_fails():
    if cuda.threadIdx.x == 5:
        raise ZeroDivisionError
    named_barrier(2, 64)


@pytest.mark.parametrize("kernel", [_hangs_in_an_mbarrier, _hangs_in_a_named_barrier])
def test_a_launch_that_hangs_is_stopped(kernel):
    before, start = threading.active_count(), time.monotonic()
    with pytest.raises(NoProgressError, match="still running after"):
        launch_simulated(kernel, 2, 64, (), timeout_s=0.5)
    assert time.monotonic() - start < 8
    assert threading.active_count() == before


def test_a_failure_ends_those_that_wait():
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        launch_simulated(_one_fails, 2, 64, (), timeout_s=30.0)
    assert threading.active_count() == before
