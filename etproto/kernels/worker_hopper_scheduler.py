"""The scheduler warp of the hopper worker: fetches tasks, passes gates, and fills descriptors."""

from __future__ import annotations

from numba import cuda

from etproto import layout as L
from etproto.kernels.decode import (
    edge_cell,
    edge_count,
    edge_is_fixed,
    event_need,
    grid_of_task,
    map_coordinate,
    task_coordinate,
)
from etproto.kernels.ptx.barrier import mbarrier_arrive, mbarrier_wait
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.memory import load_int64
from etproto.kernels.sync import DISPATCHED, SHARED_TASK, START, notify_edges, wait_edges
from etproto.kernels.worker_hopper import STOPPED, descriptor_barriers
from etproto.kernels.worker_portable import (
    checked_count,
    leave_task,
    next_task,
    queue_of_grid,
    task_argument,
    task_kind,
    task_operands,
)
from etproto.trace.records import ROLE_SCHEDULER

__all__ = ["fetch_tasks"]


@device_function
def fetch_tasks(launch, words, pointers, entries, descriptors, scratch, block, workers, worker):
    """Scheduler warp, all lanes: the worker's tasks, one descriptor each, until its list or queue ends.

    Tasks of a list are fetched as far ahead as there are descriptors. With queues it is one task ahead, which
    hides the pop without taking work from idle workers.
    """
    leader = cuda.threadIdx.x == 0
    queues = launch[L.LAUNCH_QUEUE_COUNT] > 0
    position = load_int64(launch[L.LAUNCH_WORKER_POINTER], worker)
    last = load_int64(launch[L.LAUNCH_WORKER_POINTER], worker + 1)
    step = 0 * worker
    offset = 0 * worker
    turn = 0 * worker
    if worker == 0 and queues:
        zero = 0 * worker
        first = words[L.HEADER_GRIDS]
        epoch = words[first + L.GRID_EPOCH]
        notify_edges(launch, words, pointers, scratch, worker, first, zero, epoch, START, zero, zero, zero, zero)
        if leader:
            leave_task(launch)
    running = True
    while running:
        barrier, parity, at = descriptor_barriers(turn)
        mbarrier_wait(block.free + barrier, parity ^ 1)
        if queues and turn >= 2:
            before, parity_before, _ = descriptor_barriers(turn - 2)
            mbarrier_wait(block.done + before, parity_before)
        if leader:
            task, position, step, offset = next_task(
                launch, words, pointers, entries, workers, worker, last, position, step, offset, ROLE_SCHEDULER
            )
            if descriptors[STOPPED] != 0:
                task = task * 0 - 1
            scratch[SHARED_TASK + (turn & 1)] = task
        cuda.syncthreads()
        task = scratch[SHARED_TASK + (turn & 1)]
        grid = grid_of_task(words, max(task, 0))
        state = task * 0 + L.DESCRIPTOR_END
        x = task * 0
        y = task * 0
        z = task * 0
        w = task * 0
        if task >= 0:
            state, x, y, z, w = _describe(
                launch, words, pointers, descriptors, scratch, at, workers, worker, grid, task
            )
        if leader:
            descriptors[at + L.DESCRIPTOR_STATE] = state
            mbarrier_arrive(block.filled + barrier)
        if launch[L.LAUNCH_EARLY] == 1 and state == L.DESCRIPTOR_RUN:
            epoch = words[grid + L.GRID_EPOCH]
            notify_edges(launch, words, pointers, scratch, worker, grid, task, epoch, DISPATCHED, x, y, z, w)
        running = state != L.DESCRIPTOR_END
        turn += 1


@device_function
def _describe(launch, words, pointers, descriptors, scratch, at, workers, worker, grid, task):
    """Scheduler warp, all lanes: pass a task's gates and fill its descriptor but for the state. Returns (state, x,
    y, z, w); the state is that of an end when a gate has failed.
    """
    number = task - words[grid + L.GRID_FIRST]
    epoch = words[grid + L.GRID_EPOCH]
    # A task from a queue was pushed because its events were met; pushed early, it still has to wait for them.
    waits = queue_of_grid(launch, words, grid) < 0 or launch[L.LAUNCH_EARLY] == 1
    runtime = words[grid + L.GRID_COUNT_BUFFER] >= 0
    state = number * 0 + L.DESCRIPTOR_RUN
    failed = False
    x = number
    y = number * 0
    z = number * 0
    w = number * 0
    first = number * 0
    # Constant gates, after which a run-time extent may be read; then other gates, after which run-time maps and
    # needs may. The waiter waits for the rest.
    for stage in range(2):
        last = first
        if stage == 1:
            last = max(words[grid + L.GRID_GATE_COUNT], first)
        elif runtime:
            last = words[grid + L.GRID_CONSTANT_GATES]
        if waits and last > first and state == L.DESCRIPTOR_RUN:
            if not wait_edges(
                launch, words, pointers, scratch, workers, worker, grid, task, epoch, stage, first, last, x, y, z, w
            ):
                failed = True
        first = last
        if stage == 0 and not failed:
            if runtime:
                count = checked_count(launch, words, pointers, worker, grid)
                if count < 0:
                    failed = True
                elif number >= count:
                    state = number * 0 + L.DESCRIPTOR_SKIP
            if state == L.DESCRIPTOR_RUN and not failed:
                x, y, z, w = map_coordinate(words, pointers, grid, number)
        if failed:
            state = number * 0 + L.DESCRIPTOR_END
    if cuda.threadIdx.x == 0:
        descriptors[at + L.DESCRIPTOR_TASK] = task
        descriptors[at + L.DESCRIPTOR_GRID] = grid
        if state == L.DESCRIPTOR_RUN:
            kind = task_kind(words, pointers, grid, task)
            descriptors[at + L.DESCRIPTOR_KIND] = kind
            descriptors[at + L.DESCRIPTOR_OPERANDS] = task_operands(words, grid, kind)
            descriptors[at + L.DESCRIPTOR_ARGUMENT] = task_argument(words, pointers, grid, task)
            _write4(descriptors, at + L.DESCRIPTOR_MAP, x, y, z, w)
            a, b, c, d = task_coordinate(words, pointers, grid, number)
            _write4(descriptors, at + L.DESCRIPTOR_COORDINATE, a, b, c, d)
            _describe_edges(launch, words, pointers, descriptors, at, grid, waits, first, x, y, z, w)
    return state, x, y, z, w


@device_function
def _write4(array, at, x, y, z, w):
    array[at] = x
    array[at + 1] = y
    array[at + 2] = z
    array[at + 3] = w


@device_function
def _describe_edges(launch, words, pointers, descriptors, at, grid, waits, first, x, y, z, w):
    """One thread: the common case of one cell to wait for, and of one cell to notify, is worked out ahead."""
    descriptors[at + L.DESCRIPTOR_WAIT_FIRST] = first
    cell = first * 0 + L.CELLS_NONE
    count = words[grid + L.GRID_WAIT_COUNT] - first
    if waits and count > 0:
        cell = first * 0 + L.CELLS_SEVERAL
        edge = words[L.HEADER_EDGES] + (words[grid + L.GRID_WAIT_FIRST] + first) * L.EDGE_WORDS
        if count == 1 and edge_count(words, pointers, edge, x, y, z, w) == 1:
            cell = edge_cell(words, pointers, edge, 0, x, y, z, w)
            if cell < 0:  # outside its event tensor: the waiter will say so
                cell = cell * 0 + L.CELLS_SEVERAL
            else:
                event = words[L.HEADER_EVENTS] + words[edge + L.EDGE_EVENT] * L.EVENT_WORDS
                need = event_need(words, pointers, event, cell) * words[grid + L.GRID_EPOCH]
                descriptors[at + L.DESCRIPTOR_WAIT_NEED] = need
    descriptors[at + L.DESCRIPTOR_WAIT_CELL] = cell
    cell = first * 0 + L.CELLS_NONE
    count = words[grid + L.GRID_NOTIFY_COUNT]
    if count > 0:
        cell = first * 0 + L.CELLS_SEVERAL
        edge = words[L.HEADER_EDGES] + words[grid + L.GRID_NOTIFY_FIRST] * L.EDGE_WORDS
        event = words[L.HEADER_EVENTS] + words[edge + L.EDGE_EVENT] * L.EVENT_WORDS
        triggers = launch[L.LAUNCH_QUEUE_COUNT] > 0 and words[event + L.EVENT_TRIGGER_COUNT] > 0
        if triggers and launch[L.LAUNCH_EARLY] * words[event + L.EVENT_EARLY] == 1:
            triggers = False  # they were pushed when the notifiers were dispatched
        if count == 1 and not triggers and edge_is_fixed(words, edge):
            if edge_count(words, pointers, edge, x, y, z, w) == 1:
                cell = edge_cell(words, pointers, edge, 0, x, y, z, w)
    descriptors[at + L.DESCRIPTOR_NOTIFY_CELL] = cell
