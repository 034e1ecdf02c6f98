"""The concurrent simulator: blocks at once, shared memory of a block's own, and every way to end."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from numba import cuda, float32, int64

from etproto.errors import NoProgressError
from etproto.executors.simulator import MOST_THREADS, launch_simulated
from etproto.kernels import sync, worker_portable
from etproto.kernels.ptx.memory import atomic_add_acq_rel_int64, load_acquire_int64, store_release_int64
from etproto.kernels.ptx.timer import nanosleep
from etproto.kernels.source import kernel_function
from etproto.kernels.tiles import row_sum


def simulate(kernel, grid, threads, *arguments, timeout_s=20.0):
    launch_simulated(kernel, grid, threads, arguments, timeout_s=timeout_s)


def _relay(flags):
    """Block b waits for block b + 1: with one block at a time it would never end."""
    me = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        if me + 1 < cuda.gridDim.x:
            while load_acquire_int64(flags, me + 1) == 0:
                nanosleep(20)
        store_release_int64(flags, me, 1)


def test_all_blocks_run_at_once():
    flags = np.zeros(6, np.int64)
    simulate(_relay, 6, 2, flags.ctypes.data)
    assert flags.tolist() == [1] * 6


def _shared_sum(out, poison):
    mine = cuda.shared.array(8, int64)
    other = cuda.shared.array(8, int64)
    me = cuda.threadIdx.x
    if me == 0:
        poison[cuda.blockIdx.x] = mine[0]
    cuda.syncthreads()
    mine[me] = 100 * cuda.blockIdx.x + me
    other[me] = 0
    cuda.syncthreads()
    total = 0
    for thread in range(cuda.blockDim.x):
        total += mine[thread]
    out[cuda.blockIdx.x, me] = total


def test_shared_memory_belongs_to_a_block_and_is_poisoned():
    out, poison = np.zeros((3, 8), np.int64), np.zeros(3, np.int64)
    simulate(_shared_sum, 3, 8, out, poison)
    np.testing.assert_array_equal(out, np.repeat([[28], [828], [1628]], 8, axis=1))
    assert (poison.view(np.uint8) == 0xA5).all(), "a body that reads before it writes must not find zeros"


def _atomics(counts):
    for _ in range(50):
        cuda.atomic.add(counts, 0, 1)
        seen = counts[1]
        while cuda.atomic.cas(counts, 1, seen, seen + 1) != seen:
            seen = counts[1]
        cuda.atomic.max(counts, 2, cuda.grid(1))


def test_atomics_exclude_each_other():
    """Numba's own simulator has a lock an operation, so an add may come between the halves of a cas."""

    def add_and_swap(counts):
        for _ in range(50):
            cuda.atomic.add(counts, 0, 1)
            seen = counts[0]
            while True:
                old = cuda.atomic.cas(counts, 0, seen, seen + 1)
                if old == seen:
                    break
                seen = old

    counts = np.zeros(3, np.int64)
    simulate(_atomics, 3, 4, counts)
    assert counts.tolist() == [600, 600, 11]
    counts = np.zeros(1, np.int64)
    simulate(add_and_swap, 3, 4, counts)
    assert counts.tolist() == [1200]


def _address_atomics(address):
    for _ in range(100):
        atomic_add_acq_rel_int64(address, 0, 1)


def test_atomics_by_address():
    counts = np.zeros(1, np.int64)
    simulate(_address_atomics, 3, 4, counts.ctypes.data)
    assert counts.tolist() == [1200]


def _votes(out):
    me = cuda.threadIdx.x
    out[me, 0] = cuda.syncthreads_or(1 if me == 2 else 0)
    out[me, 1] = cuda.syncthreads_and(1 if me != 2 else 0)
    out[me, 2] = cuda.syncthreads_count(me)


def test_votes_of_a_block():
    out = np.full((4, 3), -1)
    simulate(_votes, 1, 4, out)
    np.testing.assert_array_equal(out, [[1, 0, 3]] * 4)


def _hang(flag):
    while flag[0] == 0:
        pass


def _hang_at_a_barrier(flag):
    if cuda.threadIdx.x == 0:
        cuda.syncthreads()
    while cuda.threadIdx.x != 0:
        nanosleep(20)


@pytest.mark.parametrize("kernel", [_hang, _hang_at_a_barrier])
def test_a_hang_is_stopped(kernel):
    before, start = threading.active_count(), time.monotonic()
    with pytest.raises(NoProgressError, match=r"still running after 0\.3 s, and stopped"):
        simulate(kernel, 2, 2, np.zeros(1), timeout_s=0.3)
    assert time.monotonic() - start < 5
    assert threading.active_count() == before


def _wrong(out):
    if cuda.blockIdx.x == 1 and cuda.threadIdx.x == 2:
        out[7] = 1
    cuda.syncthreads()


def test_an_exception_names_block_and_thread():
    with pytest.raises(IndexError) as caught:
        simulate(_wrong, 3, 4, np.zeros(4))
    assert caught.value.__notes__ == ["in simulated block 1, thread 2"]


def test_simulating_changes_nothing_for_others():
    """Modules keep Numba's `cuda`, functions their globals: what is compiled afterwards is as before."""
    kinds = (row_sum.partial_sum, row_sum.final_sum)
    worker = kernel_function(kinds)
    modules = (sync, worker_portable, row_sum)
    before = [dict(vars(module)) for module in modules]
    simulate(_relay, 2, 2, np.zeros(2, np.int64).ctypes.data)
    a, b = np.ones((32, 128), np.float32), np.zeros((1, 4, 32), np.float32)
    simulate(row_sum.partial_sum.portable, 1, 4, 0, 1, a, b)
    assert (b[0, 1] == 32).all()
    assert all(module.cuda is cuda for module in modules) and worker.__globals__["cuda"] is cuda
    for module, names in zip(modules, before, strict=True):
        assert all(vars(module)[name] is value for name, value in names.items())


def test_closures_and_helpers_are_simulated_too():
    def make(scale):
        def helper(out):
            out[cuda.threadIdx.x] = scale * cuda.blockDim.x

        def kernel(out):
            helper(out)

        return kernel

    out = np.zeros(3)
    simulate(make(5), 1, 3, out)
    assert out.tolist() == [15, 15, 15]


def _fill(out, value):
    piece = cuda.shared.array(4, float32)
    piece[cuda.threadIdx.x] = value
    cuda.syncthreads()
    for _ in range(20):
        nanosleep(20)
        cuda.syncthreads()
    out[cuda.blockIdx.x, cuda.threadIdx.x] = piece[3 - cuda.threadIdx.x]


def test_two_simulations_at_once():
    outs = [np.zeros((3, 4), np.float32) for _ in range(2)]
    launches = [threading.Thread(target=simulate, args=(_fill, 3, 4, outs[n], n + 1)) for n in range(2)]
    for launch in launches:
        launch.start()
    for launch in launches:
        launch.join()
    assert (outs[0] == 1).all() and (outs[1] == 2).all()


def test_as_many_threads_as_are_allowed():
    out = np.zeros(MOST_THREADS, np.int64)

    def number(out):
        out[cuda.grid(1)] = cuda.grid(1)

    simulate(number, MOST_THREADS // 8, 8, out)
    np.testing.assert_array_equal(out, np.arange(MOST_THREADS))
