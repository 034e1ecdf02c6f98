"""From a `Scheduled` to the arrays that one launch needs; the simulator uses them in place, the cuda executor
uploads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from etproto import layout as L
from etproto.lowering import Lowered
from etproto.scheduled import Scheduled
from etproto.tensor_maps import TensorMap

__all__ = ["LaunchArrays", "LaunchOptions", "launch_arrays", "launch_block", "counter_count", "tensor_map_array"]

Encode = Callable[[TensorMap, int, tuple[int, ...], str], np.ndarray]


@dataclass(frozen=True)
class LaunchOptions:
    """What may differ from launch to launch of one schedule.

    Parameters
    ----------
    watchdog_s : float
        Seconds without a finished task after which a run ends itself.
    trace_capacity : int
        Trace records a worker may keep; 0 switches tracing off.
    delay_ns : int
        Largest pseudo-random pause before each notify, for tests of late producers.
    seed : int
        Seed of those pauses.
    """

    watchdog_s: float = 10.0
    trace_capacity: int = 0
    delay_ns: int = 0
    seed: int = 0


@dataclass(frozen=True)
class LaunchArrays:
    """Arrays by the name of the launch field that holds their address; all int64 or int32, C-contiguous.

    `constant` never changes between launches, `scalars` changes with the binding, `state` is written by
    kernels.
    """

    constant: dict[str, np.ndarray]
    scalars: np.ndarray
    state: dict[str, np.ndarray]


def counter_count(scheduled: Scheduled) -> int:
    """int32 counters: completed cells, and for queues the dispatched cells and the readiness of tasks with
    several waits.
    """
    lowered = scheduled.lowered
    if len(scheduled.queue_grid) == 0:
        return lowered.cells
    grids = lowered.words[L.HEADER_GRIDS] + np.arange(len(lowered.grid_name)) * L.GRID_WORDS
    several = bool((lowered.words[grids + L.GRID_WAIT_CELLS] == 2).any())
    return 2 * lowered.cells + (lowered.tasks if several else 0)


def launch_arrays(scheduled: Scheduled, options: LaunchOptions) -> LaunchArrays:
    """The arrays of a launch, apart from the tensors."""
    lowered = scheduled.lowered
    queues = len(scheduled.queue_grid)
    first = np.cumsum(scheduled.queue_capacity) - scheduled.queue_capacity
    bits = np.log2(scheduled.queue_capacity).astype(np.int64)
    table = np.stack([scheduled.queue_grid.astype(np.int64), first, bits], axis=1) if queues else np.zeros((0, 3))
    constant = {
        "PATCHES": lowered.patches,
        "QUEUES": table.astype(np.int64),
        "GRID_QUEUE": scheduled.grid_queue.astype(np.int32),
        "WORKER_POINTER": scheduled.worker_ptr.astype(np.int64),
        "WORKER_TASK": scheduled.worker_task.astype(np.int32),
        "ENTRIES": scheduled.entries.astype(np.int64),
        "INITIAL": scheduled.initial_queue.astype(np.int64),
    }
    workers, capacity = scheduled.workers, options.trace_capacity
    state = {
        "WORDS": lowered.words.copy(),
        "COUNTERS": np.zeros(counter_count(scheduled), np.int32),
        "CONTROL": np.zeros(L.CONTROL_QUEUES + queues * L.QUEUE_WORDS, np.int64),
        "SLOTS": np.full(int(scheduled.queue_capacity.sum()), -1, np.int64),
        "STATES": np.zeros((workers, L.STATE_WORDS), np.int64),
    }
    if capacity:
        state["TRACE"] = np.zeros((workers, capacity, L.TRACE_WORDS), np.int64)
        state["TRACE_COUNT"] = np.zeros(workers, np.int64)
        state["TRACE_HEADERS"] = np.zeros((workers, L.TRACE_HEADER_WORDS), np.int64)
    return LaunchArrays({name: np.ascontiguousarray(a) for name, a in constant.items()}, lowered.scalars, state)


def tensor_map_array(lowered: Lowered, addresses: Sequence[int] | np.ndarray, encode: Encode) -> np.ndarray:
    """The tensor maps of a program, uint8[maps, 128], for buffers at `addresses`.

    `encode(map, address, shape, dtype)` gives 128 bytes: the driver's form, or the simulator's. A map of an
    empty array is left zero, since no task uses it.
    """
    words = lowered.resolved_words()
    maps = np.zeros((len(lowered.tensor_maps), L.TENSOR_MAP_BYTES), np.uint8)
    for row, (number, one) in enumerate(lowered.tensor_maps):
        record = words[L.HEADER_OPERANDS] + number * L.OPERAND_WORDS
        buffer = int(words[record + L.OPERAND_BUFFER])
        first = record + L.OPERAND_EXTENT
        shape = tuple(int(extent) for extent in words[first : first + len(one.box)])
        if min(shape) > 0:
            encoded = encode(one, int(addresses[buffer]), shape, lowered.buffers[buffer].dtype)
            maps[row] = np.ascontiguousarray(encoded).view(np.uint8)
    return maps


def launch_block(
    scheduled: Scheduled,
    options: LaunchOptions,
    addresses: dict[str, int],
    *,
    pointers: int,
    scalars: int,
) -> np.ndarray:
    """The kernels' argument, int64[LAUNCH_COUNT], from the addresses of the arrays of `launch_arrays` by
    name.
    """
    lowered = scheduled.lowered
    queues = len(scheduled.queue_grid)
    block = np.zeros(L.LAUNCH_COUNT, np.int64)
    for name, address in addresses.items():
        block[getattr(L, f"LAUNCH_{name}")] = address
    block[L.LAUNCH_WORD_COUNT] = len(lowered.words)
    block[L.LAUNCH_POINTERS] = pointers
    block[L.LAUNCH_POINTER_COUNT] = len(lowered.buffers)
    block[L.LAUNCH_COUNTER_COUNT] = counter_count(scheduled)
    block[L.LAUNCH_CONTROL_COUNT] = L.CONTROL_QUEUES + queues * L.QUEUE_WORDS
    block[L.LAUNCH_SLOT_COUNT] = int(scheduled.queue_capacity.sum())
    block[L.LAUNCH_QUEUE_COUNT] = queues
    block[L.LAUNCH_INITIAL_COUNT] = len(scheduled.initial_queue)
    block[L.LAUNCH_PATCH_COUNT] = len(lowered.patches)
    block[L.LAUNCH_SCALARS] = scalars
    block[L.LAUNCH_TRACE_CAPACITY] = options.trace_capacity
    block[L.LAUNCH_WATCHDOG] = int(options.watchdog_s * 1e9)
    block[L.LAUNCH_EARLY] = int(scheduled.early_push)
    block[L.LAUNCH_DELAY] = options.delay_ns
    block[L.LAUNCH_SEED] = options.seed
    block[L.LAUNCH_WORKERS] = scheduled.workers
    block[L.LAUNCH_ENTRY_COUNT] = len(scheduled.entries)
    return block
