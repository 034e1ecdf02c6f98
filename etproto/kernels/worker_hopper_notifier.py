"""The notifier warp of the hopper worker: notifies a finished task's events and gives its descriptor back."""

from __future__ import annotations

from numba import cuda

from etproto import layout as L
from etproto.kernels.ptx.barrier import mbarrier_arrive, mbarrier_wait
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.memory import reduce_release_int32, store_relaxed_int64
from etproto.kernels.ptx.timer import clock64
from etproto.kernels.sync import COMPLETED, notify_edges
from etproto.kernels.worker_hopper import ENDED, descriptor_barriers
from etproto.kernels.worker_portable import delay_notify, leave_task, record_span
from etproto.trace.records import ROLE_STORE

__all__ = ["notify_task"]


@device_function
def notify_task(launch, words, pointers, descriptors, scratch, block, turn, worker, finished, traced):
    """Notifier warp, all lanes, once a task's stores are complete: wait for the consumers, notify, and give the
    descriptor back.

    Returns the number of tasks that this worker has finished.
    """
    leader = cuda.threadIdx.x == 0
    barrier, parity, at = descriptor_barriers(turn)
    mbarrier_wait(block.done + barrier, parity)
    state = descriptors[at + L.DESCRIPTOR_STATE]
    if state == L.DESCRIPTOR_RUN:
        task = descriptors[at + L.DESCRIPTOR_TASK]
        grid = descriptors[at + L.DESCRIPTOR_GRID]
        cell = descriptors[at + L.DESCRIPTOR_NOTIFY_CELL]
        begin = 0 * worker
        if leader and traced:
            begin = clock64()
        if launch[L.LAUNCH_DELAY] > 0:
            if leader:
                delay_notify(launch, task)
            cuda.syncthreads()
        if cell >= 0:
            if leader:
                reduce_release_int32(launch[L.LAUNCH_COUNTERS], cell, 1)
        elif cell == L.CELLS_SEVERAL:
            x = descriptors[at + L.DESCRIPTOR_MAP]
            y = descriptors[at + L.DESCRIPTOR_MAP + 1]
            z = descriptors[at + L.DESCRIPTOR_MAP + 2]
            w = descriptors[at + L.DESCRIPTOR_MAP + 3]
            epoch = words[grid + L.GRID_EPOCH]
            cuda.syncthreads()
            notify_edges(launch, words, pointers, scratch, worker, grid, task, epoch, COMPLETED, x, y, z, w)
        finished += 1
        if leader:
            # Not `finish_task`: the waiter says which task this worker holds, and it is ahead of this warp.
            store_relaxed_int64(launch[L.LAUNCH_STATES], worker * L.STATE_WORDS + L.STATE_FINISHED, finished)
            leave_task(launch)
            if traced:
                _record(launch, words, descriptors, at, worker, grid, task, begin)
    elif leader:
        leave_task(launch)
    cuda.syncthreads()
    if leader:
        mbarrier_arrive(block.free + barrier)
    return finished


@device_function
def _record(launch, words, descriptors, at, worker, grid, task, begin):
    """One thread, after a task's notifications: the span of its body, and that of this warp's part in it."""
    epoch = words[grid + L.GRID_EPOCH]
    x = descriptors[at + L.DESCRIPTOR_COORDINATE]
    y = descriptors[at + L.DESCRIPTOR_COORDINATE + 1]
    z = descriptors[at + L.DESCRIPTOR_COORDINATE + 2]
    w = descriptors[at + L.DESCRIPTOR_COORDINATE + 3]
    start = descriptors[at + L.DESCRIPTOR_START]
    record_span(launch, worker, L.SPAN_TASK, task, x, y, z, w, start, descriptors[at + ENDED], start, -1, epoch)
    if words[grid + L.GRID_NOTIFY_COUNT] > 0:
        span = L.SPAN_PUSH | (ROLE_STORE << 8)
        record_span(launch, worker, span, task, x, y, z, w, begin, clock64(), 0, -1, epoch)
