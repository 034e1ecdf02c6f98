"""Warps: the number of a lane, the barrier of a warp, and registers handed from lane to lane (sm_70)."""

from __future__ import annotations

import numpy as np

from etproto.kernels.ptx.inline import intrinsic_with_twin
from etproto.kernels.ptx.simulated import hardware, thread_number

__all__ = ["lane", "shuffle_down_float32", "shuffle_index_int32", "shuffle_xor_float32", "warp_barrier"]


@intrinsic_with_twin("mov.u32 $0, %laneid;", "=r", "int32", ())
def lane() -> int:
    """``mov.u32 %laneid``: number of the thread in its warp."""
    return thread_number() % 32


@intrinsic_with_twin("bar.warp.sync 0xffffffff;", "~{memory}", None, ())
def warp_barrier() -> None:
    """``bar.warp.sync``: barrier of all 32 lanes; orders their memory accesses among themselves."""
    hardware().wait_for_warp()


def _bits(value: float) -> int:
    return int(np.float32(value).view(np.int32))


@intrinsic_with_twin(
    "shfl.sync.down.b32 $0, $1, $2, 31, 0xffffffff;", "=f,f,r,~{memory}", "float32", ("float32", "int32")
)
def shuffle_down_float32(value: float, offset: int) -> float:
    """``shfl.sync.down.b32``: the value of the lane `offset` further on; its own for the last lanes."""
    given, me = hardware().warp_exchange(_bits(value)), thread_number() % 32
    source = me + int(offset)
    return np.int32(given[source if source < 32 else me, 0]).view(np.float32)


@intrinsic_with_twin(
    "shfl.sync.bfly.b32 $0, $1, $2, 31, 0xffffffff;", "=f,f,r,~{memory}", "float32", ("float32", "int32")
)
def shuffle_xor_float32(value: float, mask: int) -> float:
    """``shfl.sync.bfly.b32``: the value of the lane whose number differs in the bits of `mask`."""
    given = hardware().warp_exchange(_bits(value))
    return np.int32(given[(thread_number() % 32) ^ int(mask), 0]).view(np.float32)


@intrinsic_with_twin("shfl.sync.idx.b32 $0, $1, $2, 31, 0xffffffff;", "=r,r,r,~{memory}", "int32", ("int32", "int32"))
def shuffle_index_int32(value: int, source: int) -> int:
    """``shfl.sync.idx.b32``: the value of lane `source`."""
    return int(hardware().warp_exchange(value)[int(source) % 32, 0])
