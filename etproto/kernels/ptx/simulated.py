"""What stands in for the hardware in the simulator: shared memory by address, barriers by address and by number,
warps, and tensor maps.

Twins of intrinsics find it through the current thread: ``threading.current_thread()`` is a simulated CUDA thread
with ``thread_id`` (its number in the block) and ``block``, which has a `SimulatedBlock` as ``hardware``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "MAP_ADDRESS",
    "MAP_BOX",
    "MAP_ELEMENT",
    "MAP_EXTENT",
    "MAP_RANK",
    "MAP_STRIDE",
    "MAP_SWIZZLE",
    "MAP_TYPE",
    "WINDOW_START",
    "SimulatedBlock",
    "hardware",
    "swizzled",
    "thread_number",
]

# Words of the simulator's tensor map, int64[16].
MAP_ADDRESS = 0  # of the first element
MAP_RANK = 1  # 2 or 3
MAP_EXTENT = 2  # three words, elements, innermost first
MAP_STRIDE = 5  # two words, bytes, of dimensions 1 and 2
MAP_BOX = 7  # three words, elements, innermost first
MAP_ELEMENT = 10  # bytes of an element
MAP_SWIZZLE = 11  # span in bytes, 0 for none
MAP_TYPE = 12  # 0 other, 1 float32, 2 bfloat16, 3 float16

WINDOW_START = 1024  # shared address of the dynamic array: what lies below belongs to the system
WINDOW_BYTES = 232 * 1024
_POISON = 0xA5


@dataclass
class _MessageBarrier:
    """An mbarrier: arrivals and bytes that its current phase still waits for."""

    changed: threading.Condition
    count: int
    pending: int
    bytes: int = 0
    phase: int = 0


@dataclass
class _ThreadBarrier:
    """A barrier of threads: how many have arrived at it for the `turn`-th time."""

    changed: threading.Condition
    threads: int
    arrived: int = 0
    turn: int = 0


class SimulatedBlock:
    """The hardware of one block of `threads` threads."""

    def __init__(self, threads: int) -> None:
        self.window = np.full(WINDOW_START + WINDOW_BYTES, _POISON, np.uint8)
        self._lock = threading.RLock()
        self._message_barriers: dict[int, _MessageBarrier] = {}
        self._thread_barriers: dict[tuple[str, int, int], _ThreadBarrier] = {}
        self._threads = threads
        self._stopped = False
        self.exchange = np.zeros((-(-threads // 32), 32, 8), np.int64)  # registers of a warp, see `warp_exchange`

    def stop(self) -> None:
        """End all waits: the launch is over."""
        with self._lock:
            self._stopped = True
            for barrier in (*self._message_barriers.values(), *self._thread_barriers.values()):
                barrier.changed.notify_all()

    def _wait(self, changed: threading.Condition, over: Callable[[], bool]) -> None:
        """Block until `over`, which becomes true where `changed` is notified; holds the lock."""
        changed.wait_for(lambda: self._stopped or over())
        if self._stopped:
            raise threading.BrokenBarrierError

    def init_message_barrier(self, address: int, count: int) -> None:
        """Make the mbarrier at a shared address."""
        _require_multiple("mbarrier", address, 8)
        if count < 1:
            raise ValueError(f"mbarrier at {address}: the count of arrivals must be positive, got {count}")
        with self._lock:
            changed = threading.Condition(self._lock)
            self._message_barriers[int(address)] = _MessageBarrier(changed, int(count), int(count))

    def _message_barrier(self, address: int) -> _MessageBarrier:
        try:
            return self._message_barriers[int(address)]
        except KeyError:
            raise ValueError(f"no mbarrier was initialised at the shared address {address}") from None

    def change_message_barrier(self, address: int, *, arrivals: int = 0, expected: int = 0, landed: int = 0) -> None:
        """Count arrivals, announced bytes and landed bytes; the phase ends when nothing is pending."""
        with self._lock:
            barrier = self._message_barrier(address)
            barrier.bytes += int(expected) - int(landed)
            barrier.pending -= arrivals
            if barrier.pending < 0:
                raise ValueError(f"mbarrier at {address}: more arrivals than its count of {barrier.count}")
            if barrier.pending == 0 and barrier.bytes == 0:
                barrier.phase ^= 1
                barrier.pending = barrier.count
                barrier.changed.notify_all()

    def phase_is_over(self, address: int, parity: int) -> bool:
        """Whether the phase with that parity is over: the barrier is in a phase of the other parity."""
        return self._message_barrier(address).phase != int(parity) & 1

    def wait_for_phase(self, address: int, parity: int) -> None:
        """Block until the phase with that parity is over."""
        with self._lock:
            barrier = self._message_barrier(address)
            self._wait(barrier.changed, lambda: self.phase_is_over(address, parity))

    def arrive_at_barrier(self, kind: str, number: int, threads: int, *, wait: bool = True) -> None:
        """Arrive at a barrier of `threads` threads, made at its first use, and wait for the others.

        Barriers of a kind ("named", "warp", "cluster") have numbers. One number may serve groups of different
        sizes, one after the other.
        """
        with self._lock:
            key = kind, int(number), int(threads)
            if key not in self._thread_barriers:
                self._thread_barriers[key] = _ThreadBarrier(threading.Condition(self._lock), int(threads))
            barrier = self._thread_barriers[key]
            turn = barrier.turn
            barrier.arrived += 1
            if barrier.arrived == barrier.threads:
                barrier.arrived, barrier.turn = 0, turn + 1
                barrier.changed.notify_all()
            if wait:
                self._wait(barrier.changed, lambda: barrier.turn != turn)

    def wait_for_block(self) -> None:
        """Barrier of all threads of the block."""
        self.arrive_at_barrier("cluster", 0, self._threads)

    def wait_for_warp(self) -> None:
        """Barrier of the current thread's warp."""
        thread = thread_number()
        lanes = min(32, self._threads - thread // 32 * 32)
        self.arrive_at_barrier("warp", thread // 32, lanes)

    def words(self, address: int, count: int, dtype: str) -> np.ndarray:
        """`count` numbers in shared memory at an address that must be a multiple of their bytes together."""
        size = count * np.dtype(dtype).itemsize
        _require_multiple("shared memory", address, size)
        return self.window[int(address) : int(address) + size].view(dtype)

    def warp_exchange(self, *values: int) -> np.ndarray:
        """What every lane of the warp gave: int64[32, number of values]. All lanes call."""
        thread = thread_number()
        mine = self.exchange[thread // 32]
        mine[thread % 32, : len(values)] = [int(value) for value in values]
        self.wait_for_warp()
        given = mine[:, : len(values)].copy()
        self.wait_for_warp()
        return given


def _require_multiple(what: str, address: int, multiple: int) -> None:
    if int(address) % multiple:
        raise ValueError(f"{what}: the address must be a multiple of {multiple}, got {address}")


def _current() -> Any:
    return threading.current_thread()


def hardware() -> SimulatedBlock:
    """The hardware of the block that the current simulated thread belongs to."""
    return _current().block.hardware


def thread_number() -> int:
    """Number of the current simulated thread in its block."""
    return _current().thread_id


def swizzled(address: Any, span: int) -> Any:
    """A shared address as bulk copies and wgmma permute it for a swizzle span of 128, 64 or 32 bytes (0: not): the
    number of the 16-byte chunk is combined with the bits from 7 on by exclusive or.
    """
    bits = {0: 0, 32: 1, 64: 3, 128: 7}[int(span)]
    return address ^ (((address >> 7) & bits) << 4)
