"""The hopper worker's kernel: which warp does what. The roles themselves are in `etproto.kernels.worker_hopper`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, int64, uint8

from etproto import layout as L
from etproto.kernels.groups import CONSUMER_THREADS, WARP, rebound
from etproto.kernels.ptx.barrier import mbarrier_arrive, mbarrier_init_fence, mbarrier_wait
from etproto.kernels.ptx.shared import shared_address
from etproto.kernels.ptx.timer import clock64
from etproto.kernels.ptx.views import array_view
from etproto.kernels.ptx.warp import warp_barrier
from etproto.kernels.roles import STAGING_BUFFERS, Ring
from etproto.kernels.source import TABLE_WORDS
from etproto.kernels.worker_hopper import (
    DESCRIPTOR_ARRAY_WORDS,
    DESCRIPTORS,
    ENDED,
    SCRATCH_WORDS,
    STOPPED,
    Block,
    clear_scratch,
    descriptor_barriers,
    init_barriers,
)
from etproto.kernels.worker_hopper_loader import await_stages
from etproto.kernels.worker_hopper_notifier import notify_task as notify_task_of_block
from etproto.kernels.worker_hopper_scheduler import fetch_tasks as fetch_tasks_of_block
from etproto.kernels.worker_hopper_waiter import wait_for_events as wait_for_events_of_block
from etproto.kernels.worker_portable import copy_table, end_worker, start_worker

__all__ = ["CONSUMER_WARPS", "hopper_kernel"]

CONSUMER_WARPS = CONSUMER_THREADS // 32
LAUNCH_WORDS = L.LAUNCH_COUNT  # Numba wants the length of a shared array as a plain global
SCHEDULER, WAITER, LOADER = CONSUMER_WARPS, CONSUMER_WARPS + 1, CONSUMER_WARPS + 2  # and the notifier after them

fetch_tasks = rebound(fetch_tasks_of_block, WARP)
wait_for_events = rebound(wait_for_events_of_block, WARP)
notify_task = rebound(notify_task_of_block, WARP)
view_int64 = array_view("int64", 1)
table_view = array_view("int64", 1, unbounded=True)


def hopper_kernel(
    compute_task: Callable[..., Any],
    load_task: Callable[..., Any],
    store_task: Callable[..., Any],
    *,
    stages: int,
    stage_bytes: int,
    staging_bytes: int,
    alignment: int,
    shared_tables: bool,
    traced: bool,
    stores: bool,
) -> Callable[[int], None]:
    """The kernel for three functions that choose a task's bodies by its kind.

    Parameters
    ----------
    compute_task, load_task, store_task : callable
        Device functions, see `etproto.kernels.source_hopper`.
    stages, stage_bytes, staging_bytes, alignment : int
        How dynamic shared memory is divided; it starts at a multiple of `alignment`.
    shared_tables : bool
        Records, pointers and entries are read from shared memory.
    traced : bool
        Compile what writes trace records.
    stores : bool
        Some kind has a store role.
    """
    staging = stages * stage_bytes
    barriers = staging + staging_bytes
    full = barriers + 8 * 4 * DESCRIPTORS
    staged_at = full + 8 * 2 * stages

    def worker(launch_address):
        given = view_int64(launch_address, L.LAUNCH_COUNT)
        launch = cuda.shared.array(LAUNCH_WORDS, int64)  # in shared memory: an acquire empties the first-level cache
        descriptors = cuda.shared.array(DESCRIPTOR_ARRAY_WORDS, int64)
        scheduler_words = cuda.shared.array(SCRATCH_WORDS, int64)
        waiter_words = cuda.shared.array(SCRATCH_WORDS, int64)
        notifier_words = cuda.shared.array(SCRATCH_WORDS, int64)
        dynamic = cuda.shared.array(0, uint8)
        for field in range(cuda.threadIdx.x, L.LAUNCH_COUNT, cuda.blockDim.x):
            launch[field] = given[field]
        base = (shared_address(dynamic) + (alignment - 1)) & -alignment
        ring = Ring(
            base,
            stages,
            stage_bytes,
            base + full,
            base + full + 8 * stages,
            base + staging,
            staging_bytes,
            base + staged_at,
            base + staged_at + 8 * STAGING_BUFFERS,
        )
        block = Block(
            base + barriers,
            base + barriers + 8 * DESCRIPTORS,
            base + barriers + 16 * DESCRIPTORS,
            base + barriers + 24 * DESCRIPTORS,
        )
        if cuda.threadIdx.x == 0:
            init_barriers(block, ring, CONSUMER_WARPS, STAGING_BUFFERS)
            mbarrier_init_fence()
            clear_scratch(scheduler_words)
            clear_scratch(waiter_words)
            clear_scratch(notifier_words)
            descriptors[STOPPED] = 0
        cuda.syncthreads()
        if shared_tables:
            tables = cuda.shared.array(TABLE_WORDS, int64)
            pointers_at = launch[L.LAUNCH_WORD_COUNT]
            entries_at = pointers_at + launch[L.LAUNCH_POINTER_COUNT]
            copy_table(tables, 0, launch[L.LAUNCH_WORDS], pointers_at)
            copy_table(tables, pointers_at, launch[L.LAUNCH_POINTERS], launch[L.LAUNCH_POINTER_COUNT])
            copy_table(tables, entries_at, launch[L.LAUNCH_ENTRIES], launch[L.LAUNCH_ENTRY_COUNT] * L.ENTRY_WORDS)
            words = tables
            pointers = tables[pointers_at:]
            entries = tables[entries_at:]
            cuda.syncthreads()
        else:
            words = table_view(launch[L.LAUNCH_WORDS], launch[L.LAUNCH_WORD_COUNT])
            pointers = table_view(launch[L.LAUNCH_POINTERS], launch[L.LAUNCH_POINTER_COUNT])
            entries = table_view(launch[L.LAUNCH_ENTRIES], launch[L.LAUNCH_ENTRY_COUNT] * L.ENTRY_WORDS)
        me = cuda.blockIdx.x + 0 * launch[0]
        workers = cuda.gridDim.x + 0 * launch[0]
        warp = cuda.threadIdx.x // 32
        leader = cuda.threadIdx.x % 32 == 0
        turn = 0 * me
        stage = 0 * me
        phase = 0 * me
        staged = 0 * me
        running = True
        if warp < CONSUMER_WARPS:
            while running:
                barrier, parity, at = descriptor_barriers(turn)
                mbarrier_wait(block.ready + barrier, parity)
                state = descriptors[at + L.DESCRIPTOR_STATE]
                running = state != L.DESCRIPTOR_END
                if state == L.DESCRIPTOR_RUN:
                    if traced:
                        if cuda.threadIdx.x == 0:
                            descriptors[at + L.DESCRIPTOR_START] = clock64()
                    stage, phase, staged = compute_task(
                        launch, words, pointers, descriptors, at, ring, stage, phase, staged
                    )
                    if traced:
                        if cuda.threadIdx.x == 0:
                            descriptors[at + ENDED] = clock64()
                warp_barrier()
                if leader:
                    mbarrier_arrive(block.done + barrier)
                turn += 1
        else:
            if warp == SCHEDULER:
                if leader:
                    start_worker(launch, me)
                fetch_tasks(launch, words, pointers, entries, descriptors, scheduler_words, block, workers, me)
            elif warp == WAITER:
                wait_for_events(launch, words, pointers, descriptors, waiter_words, block, workers, me, traced)
            elif warp == LOADER:
                going = leader
                while running and leader:
                    barrier, parity, at = descriptor_barriers(turn)
                    mbarrier_wait(block.filled + barrier, parity)
                    state = descriptors[at + L.DESCRIPTOR_STATE]
                    running = state != L.DESCRIPTOR_END
                    if state == L.DESCRIPTOR_RUN and going:
                        stage, phase, going = load_task(
                            launch, words, pointers, descriptors, at, ring, block, barrier, parity, stage, phase
                        )
                    mbarrier_arrive(block.free + barrier)
                    turn += 1
                if leader:
                    await_stages(ring, stage, phase)
            else:
                finished = 0 * me
                while running:
                    barrier, parity, at = descriptor_barriers(turn)
                    mbarrier_wait(block.filled + barrier, parity)
                    running = descriptors[at + L.DESCRIPTOR_STATE] != L.DESCRIPTOR_END
                    if running:
                        if stores:
                            if leader:
                                mbarrier_wait(block.ready + barrier, parity)
                                if descriptors[at + L.DESCRIPTOR_STATE] == L.DESCRIPTOR_RUN:
                                    staged = store_task(launch, words, pointers, descriptors, at, ring, staged)
                            warp_barrier()
                        finished = notify_task(
                            launch, words, pointers, descriptors, notifier_words, block, turn, me, finished, traced
                        )
                    turn += 1
                if leader:
                    end_worker(launch, me)

    return worker
