"""The hopper worker: a thread block whose warps have roles, so that fetching, waiting and copying run ahead of
computing.

====================  ====================================================================================
warps                 role
====================  ====================================================================================
0 to 7                two consumer warpgroups: compute
8                     scheduler: fetches tasks, passes gates, fills descriptors (`worker_hopper_scheduler`)
9                     waiter: polls the events of each task in turn (`worker_hopper_waiter`)
10                    loader: fills the ring of stages of `etproto.kernels.roles` (`worker_hopper_loader`)
11                    notifier: stores staged tiles, notifies, gives the descriptor back (`worker_hopper_notifier`)
====================  ====================================================================================

Here is what they share. Descriptors lie in a small ring in shared memory. Each has four mbarriers: filled (by the
scheduler), ready (its events are met), done (the consumers have finished) and free. What the order of these barriers
makes visible inside the block, the acquire and release of the event protocol (`etproto.kernels.sync`) makes visible
between blocks.

When a run fails, the waiter marks the task and all after it as skipped, every role passes over them, and the
scheduler ends the list: no role is left waiting for another.
"""

from __future__ import annotations

from typing import NamedTuple

from etproto import layout as L
from etproto.kernels.ptx.barrier import mbarrier_init
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.sync import SHARED_FAILED, SHARED_LIST

__all__ = [
    "DESCRIPTORS",
    "DESCRIPTOR_ARRAY_WORDS",
    "ENDED",
    "PRODUCER_WARPS",
    "SCRATCH_WORDS",
    "STOPPED",
    "Block",
    "clear_scratch",
    "descriptor_barriers",
    "init_barriers",
]

DESCRIPTOR_BITS = 3
DESCRIPTORS = 1 << DESCRIPTOR_BITS  # fetched ahead
PRODUCER_WARPS = 4
ENDED = L.DESCRIPTOR_START + 1  # word of a descriptor: clock when the body ended, where the run is traced
STOPPED = DESCRIPTORS * L.DESCRIPTOR_WORDS  # word after the descriptors: 1 when the run has failed
DESCRIPTOR_ARRAY_WORDS = STOPPED + 1
SCRATCH_WORDS = SHARED_LIST + 32  # what one warp needs of the words that `etproto.kernels.sync` shares


class Block(NamedTuple):
    """Shared addresses of the descriptors' mbarriers, 8 bytes each, one a descriptor."""

    filled: int
    ready: int
    done: int
    free: int


@device_function
def init_barriers(block, ring, consumer_warps, staging_buffers):
    """One thread: initialise every mbarrier of the block."""
    for number in range(DESCRIPTORS):
        mbarrier_init(block.filled + 8 * number, 1)
        mbarrier_init(block.ready + 8 * number, 1)
        mbarrier_init(block.done + 8 * number, consumer_warps)
        mbarrier_init(block.free + 8 * number, 2)  # loader and notifier
    for number in range(ring.stages):
        mbarrier_init(ring.full + 8 * number, 1)
        mbarrier_init(ring.empty + 8 * number, consumer_warps)
    for number in range(staging_buffers):
        mbarrier_init(ring.staged + 8 * number, 1)
        mbarrier_init(ring.unstaged + 8 * number, 1)


@device_function
def descriptor_barriers(turn):
    """(offset of its barriers in bytes, parity, first word) of the `turn`-th descriptor."""
    number = turn & (DESCRIPTORS - 1)
    return 8 * number, (turn >> DESCRIPTOR_BITS) & 1, number * L.DESCRIPTOR_WORDS


@device_function
def clear_scratch(scratch):
    """One thread: what `etproto.kernels.sync` expects of the words that a warp shares."""
    for stage in range(3):
        scratch[SHARED_FAILED + stage] = 0
