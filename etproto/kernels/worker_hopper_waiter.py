"""The waiter warp of the hopper worker: polls the events of each task in turn and declares it ready."""

from __future__ import annotations

from numba import cuda

from etproto import layout as L
from etproto.kernels.ptx.barrier import mbarrier_arrive, mbarrier_wait
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.memory import store_relaxed_int64
from etproto.kernels.ptx.timer import clock64
from etproto.kernels.sync import poll_event, wait_edges
from etproto.kernels.worker_hopper import STOPPED, descriptor_barriers
from etproto.kernels.worker_portable import record_span
from etproto.trace.records import ROLE_LOAD

__all__ = ["wait_for_events"]


@device_function
def wait_for_events(launch, words, pointers, descriptors, scratch, block, workers, worker, traced):
    """Waiter warp, all lanes: for each task in turn, wait for its events and declare it ready."""
    leader = cuda.threadIdx.x == 0
    state_at = worker * L.STATE_WORDS
    turn = 0 * worker
    running = True
    while running:
        barrier, parity, at = descriptor_barriers(turn)
        mbarrier_wait(block.filled + barrier, parity)
        state = descriptors[at + L.DESCRIPTOR_STATE]
        cell = descriptors[at + L.DESCRIPTOR_WAIT_CELL]
        grid = descriptors[at + L.DESCRIPTOR_GRID]
        task = descriptors[at + L.DESCRIPTOR_TASK]
        need = descriptors[at + L.DESCRIPTOR_WAIT_NEED]
        first = descriptors[at + L.DESCRIPTOR_WAIT_FIRST]
        x = descriptors[at + L.DESCRIPTOR_MAP]
        y = descriptors[at + L.DESCRIPTOR_MAP + 1]
        z = descriptors[at + L.DESCRIPTOR_MAP + 2]
        w = descriptors[at + L.DESCRIPTOR_MAP + 3]
        skip = state == L.DESCRIPTOR_RUN and descriptors[STOPPED] != 0
        waiting = state == L.DESCRIPTOR_RUN and not skip and cell != L.CELLS_NONE
        cuda.syncthreads()  # once the task is ready its descriptor may be filled anew: all lanes have read it
        start = 0 * worker
        if leader and waiting:
            start = clock64()
            store_relaxed_int64(launch[L.LAUNCH_STATES], state_at + L.STATE_TASK, task)
            store_relaxed_int64(launch[L.LAUNCH_STATES], state_at + L.STATE_PHASE, L.PHASE_WAIT)
        if waiting and cell >= 0:
            if leader:
                skip = not poll_event(launch, workers, worker, task, cell, need)
        elif waiting:
            last = words[grid + L.GRID_WAIT_COUNT]
            epoch = words[grid + L.GRID_EPOCH]
            skip = not wait_edges(
                launch, words, pointers, scratch, workers, worker, grid, task, epoch, 2, first, last, x, y, z, w
            )
        if leader:
            if skip:
                descriptors[STOPPED] = 1
                descriptors[at + L.DESCRIPTOR_STATE] = L.DESCRIPTOR_SKIP
            elif waiting:  # else its task stays the one that the report of a failed run names
                store_relaxed_int64(launch[L.LAUNCH_STATES], state_at + L.STATE_TASK, -1)
            mbarrier_arrive(block.ready + barrier)
            if traced and waiting and not skip:
                span = L.SPAN_WAIT | (ROLE_LOAD << 8)
                record_span(launch, worker, span, task, x, y, z, w, start, clock64(), 0, -1, 1)
        if state == L.DESCRIPTOR_END:
            running = False
        cuda.syncthreads()
        turn += 1
