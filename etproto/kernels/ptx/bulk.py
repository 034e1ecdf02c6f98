"""Bulk copies between global and shared memory (sm_90): plain ones, and of boxes of tensors (TMA).

A copy into shared memory counts its bytes on an mbarrier when it lands. Copies out of shared memory go into
groups that the issuing thread can wait for: until they have read shared memory, or until they are complete.
Both run in the asynchronous proxy: see `proxy_fence`.
"""

from __future__ import annotations

import ctypes
import math
import threading

import numpy as np

from etproto.kernels.ptx.halves import half_bits, half_values
from etproto.kernels.ptx.inline import intrinsic_with_twin
from etproto.kernels.ptx.simulated import (
    MAP_ADDRESS,
    MAP_BOX,
    MAP_ELEMENT,
    MAP_EXTENT,
    MAP_RANK,
    MAP_STRIDE,
    MAP_SWIZZLE,
    MAP_TYPE,
    hardware,
    swizzled,
)

__all__ = [
    "bulk_commit",
    "bulk_load",
    "bulk_load_hint",
    "bulk_store",
    "bulk_wait_0",
    "bulk_wait_read_0",
    "bulk_wait_read_1",
    "cluster_barrier",
    "cluster_rank",
    "policy_evict_first",
    "policy_evict_last",
    "prefetch_tensor_map",
    "proxy_fence",
    "proxy_fence_shared",
    "tma_load_2d",
    "tma_load_2d_hint",
    "tma_load_2d_multicast",
    "tma_load_3d",
    "tma_reduce_add_2d",
    "tma_store_2d",
    "tma_store_3d",
]


_adding = threading.Lock()  # twins: Python has no atomic addition
_ADDED = {1: "float32", 2: "bfloat16", 3: "float16"}  # by MAP_TYPE


class _Box:
    """The box of a simulated tensor map at one coordinate: its elements in global and in shared memory."""

    def __init__(self, tensor_map: int, shared: int, coordinate: tuple[int, ...]) -> None:
        words = np.frombuffer((ctypes.c_char * 128).from_address(int(tensor_map)), np.int64)
        rank, self.element = int(words[MAP_RANK]), int(words[MAP_ELEMENT])
        self.kind = int(words[MAP_TYPE])
        extents = [int(word) for word in words[MAP_EXTENT : MAP_EXTENT + rank]]
        boxes = [int(word) for word in words[MAP_BOX : MAP_BOX + rank]]
        strides = [self.element, *(int(word) for word in words[MAP_STRIDE : MAP_STRIDE + rank - 1])]
        if len(coordinate) != rank:
            raise ValueError(f"tensor map of rank {rank}: got the coordinate {coordinate}")
        if int(shared) % 128:
            raise ValueError(f"bulk copy of a box: the shared address must be a multiple of 128, got {shared}")
        self.bytes = math.prod(boxes) * self.element
        offset, inside = np.zeros(1, np.int64), np.ones(1, bool)
        for extent, box, stride, first in zip(extents, boxes, strides, coordinate, strict=True):  # innermost first
            index = np.arange(int(first), int(first) + box)
            offset = (index[:, None] * stride + offset).ravel()
            inside = ((index >= 0) & (index < extent))[:, None] & inside
            inside = inside.ravel()
        self.inside = inside
        self.shared = int(shared) + np.arange(inside.size)[inside] * self.element
        self.outside = int(shared) + np.arange(inside.size)[~inside] * self.element
        self.span = int(words[MAP_SWIZZLE])
        reach = self.element + sum((extent - 1) * stride for extent, stride in zip(extents, strides, strict=True))
        self.array = np.frombuffer((ctypes.c_char * reach).from_address(int(words[MAP_ADDRESS])), np.uint8)
        self.offset = offset[inside]

    def shared_bytes(self, elements: np.ndarray) -> np.ndarray:
        """Window indices of the bytes of elements that begin at these shared addresses."""
        return swizzled((elements[:, None] + np.arange(self.element)).ravel(), self.span)

    def global_bytes(self) -> np.ndarray:
        """Indices into `array` of the bytes of the elements inside the tensor."""
        return (self.offset[:, None] + np.arange(self.element)).ravel()


def _load(destination: int, tensor_map: int, coordinate: tuple[int, ...], barrier: int) -> None:
    box = _Box(tensor_map, destination, coordinate)
    window = hardware().window
    window[box.shared_bytes(box.shared)] = box.array[box.global_bytes()]
    window[box.shared_bytes(box.outside)] = 0
    hardware().change_message_barrier(barrier, landed=box.bytes)


def _store(tensor_map: int, coordinate: tuple[int, ...], source: int) -> None:
    box = _Box(tensor_map, source, coordinate)
    box.array[box.global_bytes()] = hardware().window[box.shared_bytes(box.shared)]


@intrinsic_with_twin(
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {$2, $3}], [$4];",
    "r,l,r,r,r,~{memory}",
    None,
    ("int32", "int64", "int32", "int32", "int32"),
)
def tma_load_2d(destination: int, tensor_map: int, x: int, y: int, barrier: int) -> None:
    """``cp.async.bulk.tensor.2d`` into shared memory: the box at column x and row y, zeros outside the tensor."""
    _load(destination, tensor_map, (x, y), barrier)


@intrinsic_with_twin(
    "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {$2, $3, $4}], [$5];",
    "r,l,r,r,r,r,~{memory}",
    None,
    ("int32", "int64", "int32", "int32", "int32", "int32"),
)
def tma_load_3d(destination: int, tensor_map: int, x: int, y: int, z: int, barrier: int) -> None:
    """``cp.async.bulk.tensor.3d`` into shared memory: as `tma_load_2d`, z the outermost coordinate."""
    _load(destination, tensor_map, (x, y, z), barrier)


@intrinsic_with_twin(
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
    " [$0], [$1, {$2, $3}], [$4], $5;",
    "r,l,r,r,r,l,~{memory}",
    None,
    ("int32", "int64", "int32", "int32", "int32", "int64"),
)
def tma_load_2d_hint(destination: int, tensor_map: int, x: int, y: int, barrier: int, policy: int) -> None:
    """``cp.async.bulk.tensor.2d`` with ``.L2::cache_hint``: `tma_load_2d` with a policy for the second-level cache."""
    _load(destination, tensor_map, (x, y), barrier)


@intrinsic_with_twin(
    "{.reg .b16 m; cvt.u16.u32 m, $5;"
    " cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
    " [$0], [$1, {$2, $3}], [$4], m;}",
    "r,l,r,r,r,r,~{memory}",
    None,
    ("int32", "int64", "int32", "int32", "int32", "int32"),
)
def tma_load_2d_multicast(destination: int, tensor_map: int, x: int, y: int, barrier: int, mask: int) -> None:
    """``cp.async.bulk.tensor.2d`` with ``.multicast::cluster``: as `tma_load_2d`, into the same place of every block of
    the cluster whose bit is set in `mask`. The simulator's clusters have one block.
    """
    if int(mask) & 1:
        _load(destination, tensor_map, (x, y), barrier)


@intrinsic_with_twin(
    "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [$0, {$1, $2}], [$3];",
    "l,r,r,r,~{memory}",
    None,
    ("int64", "int32", "int32", "int32"),
)
def tma_store_2d(tensor_map: int, x: int, y: int, source: int) -> None:
    """``cp.async.bulk.tensor.2d`` out of shared memory: the box at column x and row y; nothing outside the tensor."""
    _store(tensor_map, (x, y), source)


@intrinsic_with_twin(
    "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [$0, {$1, $2, $3}], [$4];",
    "l,r,r,r,r,~{memory}",
    None,
    ("int64", "int32", "int32", "int32", "int32"),
)
def tma_store_3d(tensor_map: int, x: int, y: int, z: int, source: int) -> None:
    """``cp.async.bulk.tensor.3d`` out of shared memory: as `tma_store_2d`, z the outermost coordinate."""
    _store(tensor_map, (x, y, z), source)


@intrinsic_with_twin(
    "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [$0, {$1, $2}], [$3];",
    "l,r,r,r,~{memory}",
    None,
    ("int64", "int32", "int32", "int32"),
)
def tma_reduce_add_2d(tensor_map: int, x: int, y: int, source: int) -> None:
    """``cp.reduce.async.bulk.tensor.2d.add``: adds the box to the tensor, each element atomically, in no order."""
    box = _Box(tensor_map, source, (x, y))
    if box.kind not in _ADDED:
        raise ValueError(f"tma_reduce_add_2d: no addition of the tensor map's element type {box.kind}")
    added = hardware().window[box.shared_bytes(box.shared)]
    with _adding:
        box.array[box.global_bytes()] = _sum(box.array[box.global_bytes()], added, _ADDED[box.kind])


def _sum(first: np.ndarray, second: np.ndarray, dtype: str) -> np.ndarray:
    """Bytes of the sums of numbers given as bytes."""
    if dtype == "float32":
        return (first.view(np.float32) + second.view(np.float32)).view(np.uint8)
    total = half_values(first.view(np.uint16), dtype) + half_values(second.view(np.uint16), dtype)
    return half_bits(total, dtype).view(np.uint8)


@intrinsic_with_twin(
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];",
    "r,l,r,r,~{memory}",
    None,
    ("int32", "int64", "int32", "int32"),
)
def bulk_load(destination: int, source: int, size: int, barrier: int) -> None:
    """``cp.async.bulk`` into shared memory: `size` bytes; addresses and size are multiples of 16."""
    _require_aligned("bulk_load", destination, source, size)
    values = np.frombuffer((ctypes.c_char * int(size)).from_address(int(source)), np.uint8)
    hardware().window[int(destination) : int(destination) + int(size)] = values
    hardware().change_message_barrier(barrier, landed=size)


@intrinsic_with_twin(
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [$0], [$1], $2, [$3], $4;",
    "r,l,r,r,l,~{memory}",
    None,
    ("int32", "int64", "int32", "int32", "int64"),
)
def bulk_load_hint(destination: int, source: int, size: int, barrier: int, policy: int) -> None:
    """``cp.async.bulk`` with ``.L2::cache_hint``: `bulk_load` with a policy for the second-level cache."""
    bulk_load(destination, source, size, barrier)


@intrinsic_with_twin(
    "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2;", "l,r,r,~{memory}", None, ("int64", "int32", "int32")
)
def bulk_store(destination: int, source: int, size: int) -> None:
    """``cp.async.bulk`` out of shared memory: `size` bytes; addresses and size are multiples of 16."""
    _require_aligned("bulk_store", source, destination, size)
    values = np.frombuffer((ctypes.c_char * int(size)).from_address(int(destination)), np.uint8)
    values[:] = hardware().window[int(source) : int(source) + int(size)]


def _require_aligned(what: str, shared: int, address: int, size: int) -> None:
    if int(shared) % 16 or int(address) % 16 or int(size) % 16:
        raise ValueError(
            f"{what}: shared address, global address and size must be multiples of 16, got {shared}, {address}, {size}"
        )


@intrinsic_with_twin("cp.async.bulk.commit_group;", "~{memory}", None, ())
def bulk_commit() -> None:
    """``cp.async.bulk.commit_group``: the copies out of shared memory issued since the last one make a group."""


@intrinsic_with_twin("cp.async.bulk.wait_group 0;", "~{memory}", None, ())
def bulk_wait_0() -> None:
    """``cp.async.bulk.wait_group 0``: all of this thread's groups are complete: what they wrote can be published."""


@intrinsic_with_twin("cp.async.bulk.wait_group.read 0;", "~{memory}", None, ())
def bulk_wait_read_0() -> None:
    """``cp.async.bulk.wait_group.read 0``: all of this thread's groups have read shared memory, which may change."""


@intrinsic_with_twin("cp.async.bulk.wait_group.read 1;", "~{memory}", None, ())
def bulk_wait_read_1() -> None:
    """``cp.async.bulk.wait_group.read 1``: as `bulk_wait_read_0`, for all groups but the last."""


@intrinsic_with_twin("fence.proxy.async;", "~{memory}", None, ())
def proxy_fence() -> None:
    """``fence.proxy.async``: orders ordinary accesses and those of bulk copies and wgmma, in all state spaces. Needed
    by the writer before its release and by the reader after its acquire.
    """


@intrinsic_with_twin("fence.proxy.async.shared::cta;", "~{memory}", None, ())
def proxy_fence_shared() -> None:
    """``fence.proxy.async.shared::cta``: as `proxy_fence`, for shared memory alone: by every thread that stored what a
    bulk copy will read, before a barrier.
    """


@intrinsic_with_twin("prefetch.tensormap [$0];", "l,~{memory}", None, ("int64",))
def prefetch_tensor_map(tensor_map: int) -> None:
    """``prefetch.tensormap``: brings a tensor map near, so that the first copy does not wait for it."""


@intrinsic_with_twin("createpolicy.fractional.L2::evict_first.b64 $0, 1.0;", "=l", "int64", (), pure=True)
def policy_evict_first() -> int:
    """``createpolicy.fractional.L2::evict_first``: for what is read once."""
    return 1


@intrinsic_with_twin("createpolicy.fractional.L2::evict_last.b64 $0, 1.0;", "=l", "int64", (), pure=True)
def policy_evict_last() -> int:
    """``createpolicy.fractional.L2::evict_last``: for what many will read."""
    return 2


@intrinsic_with_twin("mov.u32 $0, %cluster_ctarank;", "=r", "int32", ())
def cluster_rank() -> int:
    """``mov.u32 %cluster_ctarank``: number of the block in its cluster."""
    return 0


@intrinsic_with_twin(
    "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;", "~{memory}", None, ()
)
def cluster_barrier() -> None:
    """``barrier.cluster.arrive.release``, then ``barrier.cluster.wait.acquire``: barrier of all threads of a cluster;
    the simulator's clusters have one block.
    """
    hardware().wait_for_block()
