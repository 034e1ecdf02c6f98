"""The reset kernel, before each launch: resolves symbolic words, zeroes counters, empties and fills the
queues.

It runs before every launch, in the same stream (and so in the same CUDA graph), never after: an aborted run
cannot poison the next. Every block resolves all words itself, writing the same values, so that one kernel
without a grid barrier suffices.
"""

from __future__ import annotations

from numba import cuda

from etproto import layout as L
from etproto.kernels.decode import grid_count
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.views import array_view

__all__ = ["reset"]

int64_view = array_view("int64", 1)
int32_view = array_view("int32", 1)


@device_function
def reset(launch_address):
    """Kernel body; any number of blocks and threads."""
    launch = int64_view(launch_address, L.LAUNCH_COUNT)
    words = int64_view(launch[L.LAUNCH_WORDS], launch[L.LAUNCH_WORD_COUNT])
    pointers = int64_view(launch[L.LAUNCH_POINTERS], launch[L.LAUNCH_POINTER_COUNT])
    patches = int32_view(launch[L.LAUNCH_PATCHES], launch[L.LAUNCH_PATCH_COUNT] * 2)
    scalars = int64_view(launch[L.LAUNCH_SCALARS], launch[L.LAUNCH_PATCH_COUNT] + 1)
    for patch in range(cuda.threadIdx.x, launch[L.LAUNCH_PATCH_COUNT], cuda.blockDim.x):
        words[patches[2 * patch]] = scalars[patches[2 * patch + 1]]
    cuda.syncthreads()

    first = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    step = cuda.gridDim.x * cuda.blockDim.x
    counters = int32_view(launch[L.LAUNCH_COUNTERS], launch[L.LAUNCH_COUNTER_COUNT])
    for number in range(first, launch[L.LAUNCH_COUNTER_COUNT], step):
        counters[number] = 0
    states = int64_view(launch[L.LAUNCH_STATES], launch[L.LAUNCH_WORKERS] * L.STATE_WORDS)
    for number in range(first, launch[L.LAUNCH_WORKERS] * L.STATE_WORDS, step):
        field = number % L.STATE_WORDS
        states[number] = 0 if field == L.STATE_FINISHED or field == L.STATE_PHASE else -1
    if launch[L.LAUNCH_TRACE] != 0:
        counts = int64_view(launch[L.LAUNCH_TRACE_COUNT], launch[L.LAUNCH_WORKERS])
        headers = int64_view(launch[L.LAUNCH_TRACE_HEADERS], launch[L.LAUNCH_WORKERS] * L.TRACE_HEADER_WORDS)
        for number in range(first, launch[L.LAUNCH_WORKERS], step):
            counts[number] = 0
        for number in range(first, launch[L.LAUNCH_WORKERS] * L.TRACE_HEADER_WORDS, step):
            headers[number] = 0
    _reset_queues(launch, words, pointers, first, step)


@device_function
def _reset_queues(launch, words, pointers, first, step):
    """Slots hold their initial tasks, in the order of the rows, or -1; heads are 0, tails the number of
    initial tasks.
    """
    queues = launch[L.LAUNCH_QUEUE_COUNT]
    control = int64_view(launch[L.LAUNCH_CONTROL], launch[L.LAUNCH_CONTROL_COUNT])
    table = int64_view(launch[L.LAUNCH_QUEUES], queues * L.QUEUE_FIELDS)
    slots = int64_view(launch[L.LAUNCH_SLOTS], launch[L.LAUNCH_SLOT_COUNT])
    rows = int64_view(launch[L.LAUNCH_INITIAL], launch[L.LAUNCH_INITIAL_COUNT] * 3)
    if first == 0:
        for number in range(launch[L.LAUNCH_CONTROL_COUNT]):
            control[number] = 0
        control[L.CONTROL_EPOCH] = 1
    live = queues * 0 + 1  # the one that block 0 of the worker kernel gives back when its own pushes are done
    for queue in range(queues):
        begin = table[queue * L.QUEUE_FIELDS + L.QUEUE_FIRST_SLOT]
        capacity = (live * 0 + 1) << table[queue * L.QUEUE_FIELDS + L.QUEUE_CAPACITY_BITS]
        filled = queues * 0
        for row in range(launch[L.LAUNCH_INITIAL_COUNT]):
            if rows[row * 3] == queue:
                grid = words[L.HEADER_GRIDS] + rows[row * 3 + 1] * L.GRID_WORDS
                count = grid_count(words, pointers, grid)
                if rows[row * 3 + 2] >= 0:
                    count = min(count, rows[row * 3 + 2])
                room = min(count, capacity - filled)
                for number in range(first, room, step):
                    slots[begin + filled + number] = words[grid + L.GRID_FIRST] + number
                if count > room and first == 0:
                    control[L.CONTROL_STATUS] = L.STATUS_QUEUE_FULL
                    control[L.CONTROL_ERROR] = -1
                    control[L.CONTROL_ERROR + 1] = -1
                    control[L.CONTROL_ERROR + 2] = queue
                    control[L.CONTROL_ERROR + 3] = filled + count
                    control[L.CONTROL_ERROR + 4] = capacity
                filled += room
        for number in range(filled + first, capacity, step):
            slots[begin + number] = -1
        live += filled
        if first == 0:
            control[L.CONTROL_QUEUES + queue * L.QUEUE_WORDS + L.QUEUE_TAIL] = filled
    if first == 0:
        control[L.CONTROL_LIVE] = live
