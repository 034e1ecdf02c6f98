"""The ring of stages and the staging buffers: addresses, order, and a loader that runs ahead of slow consumers."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from numba import cuda

from etproto.errors import NoProgressError
from etproto.executors.simulator import launch_simulated
from etproto.kernels.ptx.barrier import mbarrier_arrive, mbarrier_expect_transaction, mbarrier_init, mbarrier_wait
from etproto.kernels.ptx.bulk import bulk_load
from etproto.kernels.ptx.shared import load_shared_int32, store_shared_int32
from etproto.kernels.ptx.simulated import SimulatedBlock
from etproto.kernels.ptx.warp import warp_barrier
from etproto.kernels.roles import (
    STAGING_BUFFERS,
    WARPGROUPS,
    Ring,
    announce_staged,
    next_stage,
    release_stage,
    release_staging,
    stage_address,
    staging_address,
    wait_full,
    wait_staged,
    wait_unstaged,
)
from etproto.kernels.worker_hopper_loader import await_stages

RING = Ring(1024, 3, 1024, 5120, 5144, 6144, 4096, 5168, 5184)


def test_places_go_round():
    """(stage, parity): every third step the stage is 0 again and the parity is the other."""
    places, place = [], (0, 0)
    for _ in range(7):
        places.append(place)
        place = next_stage(RING, *place)
    assert places == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 0)]


def test_addresses():
    assert [stage_address(RING, stage) for stage in range(3)] == [1024, 2048, 3072]
    assert [staging_address(RING, buffer) for buffer in range(STAGING_BUFFERS)] == [6144, 8192]
    assert WARPGROUPS == STAGING_BUFFERS == 2


def pipeline(source, out, steps):
    """Threads 0 to 63 are two consumer warps, 64 the loader, 65 stores what thread 0 stages."""
    me = cuda.threadIdx.x
    if me == 0:
        for stage in range(RING.stages):
            mbarrier_init(RING.full + 8 * stage, 1)
            mbarrier_init(RING.empty + 8 * stage, 2)
        mbarrier_init(RING.staged, 1)
        mbarrier_init(RING.unstaged, 1)
    cuda.syncthreads()
    stage, phase = 0, 0
    if me < 64:
        for step in range(steps):
            wait_full(RING, stage, phase)
            value = load_shared_int32(stage_address(RING, stage) + 4 * me)
            warp_barrier()
            release_stage(RING, stage)
            stage, phase = next_stage(RING, stage, phase)
            if me == 0:
                wait_unstaged(RING, 0, step)
                store_shared_int32(staging_address(RING, 0), value)
                announce_staged(RING, 0)
    elif me == 64:
        for step in range(steps):
            mbarrier_wait(RING.empty + 8 * stage, phase ^ 1)
            mbarrier_expect_transaction(RING.full + 8 * stage, 256)
            bulk_load(stage_address(RING, stage), source + 256 * step, 256, RING.full + 8 * stage)
            mbarrier_arrive(RING.full + 8 * stage)
            stage, phase = next_stage(RING, stage, phase)
        await_stages(RING, stage, phase)
    elif me == 65:
        for step in range(steps):
            wait_staged(RING, 0, step)
            out[step] = load_shared_int32(staging_address(RING, 0))
            release_staging(RING, 0)


@pytest.mark.parametrize("slow", [0, 33, 64, 65])
@pytest.mark.parametrize("steps", [0, 1, 3, 8])
def test_a_ring_hands_every_stage_on_once(steps, slow, monkeypatch):
    """Whoever is late: the loader is at most three stages ahead, and nothing is overwritten or read twice."""
    wait = SimulatedBlock.wait_for_phase

    def wait_for_phase(self, address, parity):
        wait(self, address, parity)
        if threading.current_thread().thread_id == slow:
            time.sleep(0.002)

    monkeypatch.setattr(SimulatedBlock, "wait_for_phase", wait_for_phase)
    memory = np.zeros(64 * steps + 32, np.int32)
    first = -memory.ctypes.data % 16 // 4
    source = memory[first : first + 64 * steps]
    source[:] = np.arange(64 * steps)
    out = np.full(steps, -1)
    launch_simulated(pipeline, 1, 66, (source.ctypes.data, out, steps), timeout_s=20.0)
    assert out.tolist() == list(range(0, 64 * steps, 64))


def forgetful(out):
    """A consumer that does not release its stages: the loader must not come round."""
    if cuda.threadIdx.x == 0:
        for stage in range(RING.stages):
            mbarrier_init(RING.full + 8 * stage, 1)
            mbarrier_init(RING.empty + 8 * stage, 1)
        stage, phase = 0, 0
        for _ in range(RING.stages + 1):
            mbarrier_wait(RING.empty + 8 * stage, phase ^ 1)
            out[0] += 1
            mbarrier_arrive(RING.full + 8 * stage)
            stage, phase = next_stage(RING, stage, phase)


def test_a_full_ring_blocks_the_loader():
    out = np.zeros(1, np.int64)
    with pytest.raises(NoProgressError):
        launch_simulated(forgetful, 1, 32, (out,), timeout_s=0.5)
    assert out[0] == RING.stages
