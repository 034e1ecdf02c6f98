"""What the roles of a tile kind are, and the shared-memory ring through which they hand tiles on.

A block of the hopper worker has two consumer warpgroups and four producer warps. A kind with roles gives

``stages(*coordinates, *operands) -> int``
    How many stages of the ring a task fills and empties.
``ahead(stage, full, step, *coordinates, *operands, *maps)``
    Start the copies of stage `step` that depend on no event (weights), perhaps long before the task's events are
    met.
``load(stage, full, step, *coordinates, *operands, *maps)``
    Start its other copies, once the events are met. A kind whose copies all are weights has no such role.
``compute(ring, stage, phase, turn, *coordinates, *operands, *maps) -> (stage, phase, turn)``
    Run by all consumer threads once the events are met: wait for each stage (`wait_full`), use it, release it
    (`release_stage`), and return the place in the ring after the last one.
``store(ring, turn, *coordinates, *operands, *maps) -> turn``
    Run at the same time as compute: bulk copies from the staging buffers to global memory. Both count in `turn`
    how many times the staging buffers have been filled since the launch.

A kind without a store role has the staging memory to itself while it computes. It may count turns of its own from
the `turn` that it is given, which is the one that it returned last, or any other after a barrier of all consumers.

One thread runs the bodies of the loader and of the store warp. A copy is announced
(`mbarrier_expect_transaction` on `full`) before it starts. The place in the ring is a pair: number of the
stage, and the parity of the pass through the ring.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import cuda

from etproto.kernels.groups import CONSUMER_THREADS
from etproto.kernels.ptx.barrier import mbarrier_arrive, mbarrier_wait
from etproto.kernels.ptx.inline import device_function

__all__ = [
    "STAGING_BUFFERS",
    "WARPGROUPS",
    "Ring",
    "next_stage",
    "stage_address",
    "wait_full",
    "release_stage",
    "staging_address",
    "wait_unstaged",
    "announce_staged",
    "wait_staged",
    "release_staging",
]

WARPGROUPS = CONSUMER_THREADS // 128
STAGING_BUFFERS = 2  # one a consumer warpgroup


class Ring(NamedTuple):
    """Where things are in a block's shared memory: byte addresses in the shared window, and sizes.

    Parameters
    ----------
    base : int
        First stage; a multiple of 1024.
    stages, stage_bytes : int
    full, empty : int
        An mbarrier (8 bytes) a stage: its copies have landed; all consumer warps have released it.
    staging, staging_bytes : int
        Staging buffers (one a warpgroup), together `staging_bytes`.
    staged, unstaged : int
        An mbarrier a staging buffer: it has been filled; it has been stored and may be filled again.
    """

    base: int
    stages: int
    stage_bytes: int
    full: int
    empty: int
    staging: int
    staging_bytes: int
    staged: int
    unstaged: int


@device_function
def next_stage(ring, stage, phase):
    """The place after (stage, phase)."""
    stage += 1
    if stage == ring.stages:
        stage = 0
        phase = phase ^ 1
    return stage, phase


@device_function
def stage_address(ring, stage):
    """Shared address of a stage."""
    return ring.base + stage * ring.stage_bytes


@device_function
def wait_full(ring, stage, phase):
    """Consumer thread: wait until the copies of a stage have landed."""
    mbarrier_wait(ring.full + 8 * stage, phase)


@device_function
def release_stage(ring, stage):
    """All threads of a consumer warp, once the warp has read a stage for the last time: its first lane gives the
    stage back.

    The other lanes must be known to be done: by `wgmma_wait`, or by a warp barrier.
    """
    if cuda.threadIdx.x % 32 == 0:
        mbarrier_arrive(ring.empty + 8 * stage)


@device_function
def staging_address(ring, buffer):
    """Shared address of a staging buffer."""
    return ring.staging + buffer * (ring.staging_bytes // STAGING_BUFFERS)


@device_function
def wait_unstaged(ring, buffer, turn):
    """Consumer thread: wait until the staging buffer may be filled for the `turn`-th time."""
    mbarrier_wait(ring.unstaged + 8 * buffer, (turn & 1) ^ 1)


@device_function
def announce_staged(ring, buffer):
    """One thread, after a proxy fence by all writers and a barrier of theirs: the staging buffer is filled."""
    mbarrier_arrive(ring.staged + 8 * buffer)


@device_function
def wait_staged(ring, buffer, turn):
    """Store thread: wait until the staging buffer has been filled for the `turn`-th time."""
    mbarrier_wait(ring.staged + 8 * buffer, turn & 1)


@device_function
def release_staging(ring, buffer):
    """Store thread, when the bulk copies have read the staging buffer."""
    mbarrier_arrive(ring.unstaged + 8 * buffer)
