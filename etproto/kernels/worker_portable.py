"""The portable worker: one thread block that fetches tasks, waits, runs the body and notifies, until its list
or queue ends.

It runs on any CUDA GPU since sm_75 and in the simulator. The loop itself is generated
(`etproto.kernels.source`), because the bodies that it dispatches to differ from program to program;
everything it calls is here.
"""

from __future__ import annotations

from numba import cuda

from etproto import layout as L
from etproto.kernels.decode import edge_cell, event_need, grid_count, map_coordinate, task_coordinate
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.integer import floor_modulo
from etproto.kernels.ptx.memory import atomic_add_relaxed_int64, load_int32, load_int64, store_relaxed_int64
from etproto.kernels.ptx.timer import clock64, globaltimer, nanosleep, processor
from etproto.kernels.sync import (
    STOPPED,
    fail,
    finish_live,
    poll_event,
    pop,
    wait_edges,
)
from etproto.scheduled import ENTRY_DRAIN, ENTRY_STRIDE_BOUND, PATTERN_ZIGZAG

__all__ = [
    "copy_table",
    "start_worker",
    "next_task",
    "begin_task",
    "end_body",
    "end_task",
    "finish_task",
    "record_task",
    "record_span",
    "leave_task",
    "checked_count",
    "delay_notify",
    "queue_of_grid",
    "end_worker",
    "task_kind",
    "task_operands",
    "task_argument",
    "RUN",
    "SKIP",
    "STOP",
]

RUN, SKIP, STOP = 1, 0, -1


@device_function
def copy_table(shared, first, address, count):
    """All threads: copy `count` words to shared memory from word `first` on. A barrier must follow."""
    for number in range(cuda.threadIdx.x, count, cuda.blockDim.x):
        shared[first + number] = load_int64(address, number)


@device_function
def start_worker(launch, worker):
    """One thread: open the trace header."""
    if launch[L.LAUNCH_TRACE] != 0:
        header = worker * L.TRACE_HEADER_WORDS
        store_relaxed_int64(launch[L.LAUNCH_TRACE_HEADERS], header, processor())
        store_relaxed_int64(launch[L.LAUNCH_TRACE_HEADERS], header + 1, clock64())
        store_relaxed_int64(launch[L.LAUNCH_TRACE_HEADERS], header + 2, globaltimer())


@device_function
def end_worker(launch, worker):
    """One thread: close the trace header."""
    store_relaxed_int64(launch[L.LAUNCH_STATES], worker * L.STATE_WORDS + L.STATE_PHASE, L.PHASE_DONE)
    if launch[L.LAUNCH_TRACE] != 0:
        header = worker * L.TRACE_HEADER_WORDS
        store_relaxed_int64(launch[L.LAUNCH_TRACE_HEADERS], header + 3, clock64())
        store_relaxed_int64(launch[L.LAUNCH_TRACE_HEADERS], header + 4, globaltimer())


@device_function
def ends_when_none_live(launch):
    """Whether the run ends when no live task is left: so it does when one queue feeds every grid."""
    return launch[L.LAUNCH_QUEUE_COUNT] > 0 and load_int64(launch[L.LAUNCH_QUEUES], L.QUEUE_GRID) < 0


@device_function
def queue_of_grid(launch, words, grid):
    """Queue that feeds a grid, or -1."""
    return load_int32(launch[L.LAUNCH_GRID_QUEUE], (grid - words[L.HEADER_GRIDS]) // L.GRID_WORDS)


@device_function
def _pass_constant_gates(launch, words, pointers, workers, worker, grid):
    """One thread: wait until the run-time values in a grid's extent are known; False when the run has failed."""
    passed = True
    edge = words[L.HEADER_EDGES] + words[grid + L.GRID_WAIT_FIRST] * L.EDGE_WORDS
    for _ in range(words[grid + L.GRID_CONSTANT_GATES]):
        if passed:
            event = words[L.HEADER_EVENTS] + words[edge + L.EDGE_EVENT] * L.EVENT_WORDS
            cell = edge_cell(words, pointers, edge, 0, 0, 0, 0, 0)
            need = event_need(words, pointers, event, cell) * words[grid + L.GRID_EPOCH]
            passed = poll_event(launch, workers, worker, -1, cell, need)
        edge += L.EDGE_WORDS
    return passed


@device_function
def checked_count(launch, words, pointers, worker, grid):
    """Tasks of a grid in this run, or -1 (and the run fails) when a run-time extent is negative or above its
    bound.
    """
    count = grid_count(words, pointers, grid)
    if count < 0 or count > words[grid + L.GRID_BOUND]:
        index = (grid - words[L.HEADER_GRIDS]) // L.GRID_WORDS
        fail(launch, L.STATUS_EXTENT_RANGE, worker, -1, index, count, words[grid + L.GRID_BOUND])
        count = count * 0 - 1
    return count


@device_function
def next_task(launch, words, pointers, entries, workers, worker, last, position, step, offset, role=0):
    """One thread: the next task of this worker, whose list ends at `last`, or STOPPED.

    Returns (task, position, step, offset): the last three say where to go on: place in the worker's list,
    step in the share that stands there, and tasks of the shares before it. `role` is the part of the worker that
    asks.
    """
    task = position * 0 + STOPPED
    while task < 0 and position < last:
        item = load_int32(launch[L.LAUNCH_WORKER_TASK], position)
        if item >= 0:
            task = item + position * 0
            position += 1
        else:
            entry = (-1 - item) * L.ENTRY_WORDS
            operation = entries[entry]
            queue = entries[entry + 1]
            fed = queue
            if operation == ENTRY_DRAIN:
                fed = load_int64(launch[L.LAUNCH_QUEUES], queue * L.QUEUE_FIELDS + L.QUEUE_GRID)
            grid = words[L.HEADER_GRIDS] + max(fed, 0) * L.GRID_WORDS
            count = words[grid + L.GRID_BOUND]
            if operation != ENTRY_STRIDE_BOUND and fed >= 0:
                passed = step > 0 or _pass_constant_gates(launch, words, pointers, workers, worker, grid)
                count = count * 0 - 1
                if passed:
                    count = checked_count(launch, words, pointers, worker, grid)
            if count < 0:
                position = last  # the run has failed
            elif operation == ENTRY_DRAIN:
                limit = count
                if fed < 0:
                    limit = count * 0 - 1
                start = clock64()
                phase = worker * L.STATE_WORDS + L.STATE_PHASE
                store_relaxed_int64(launch[L.LAUNCH_STATES], phase, L.PHASE_POP)
                task = pop(launch, workers, worker, queue, limit)
                if task >= 0:
                    record_span(launch, worker, L.SPAN_POP | (role << 8), task, 0, 0, 0, 0, start, clock64(), 0, -1, 0)
                elif task == STOPPED:
                    position = last
                else:
                    position += 1
            else:
                lane = floor_modulo(worker - offset, workers)
                if entries[entry + 2] == PATTERN_ZIGZAG and step & 1 == 1:
                    lane = workers - 1 - lane
                number = step * workers + lane
                if number < count:
                    task = words[grid + L.GRID_FIRST] + number
                    step += 1
                else:
                    offset += count
                    step = step * 0
                    position += 1
    return task, position, step, offset


@device_function
def begin_task(launch, words, pointers, shared, workers, worker, grid, task):
    """All threads: wait for a task's events. Returns (RUN, SKIP or STOP, x, y, z, w), the coordinate its edge
    maps are evaluated at.

    SKIP: the task does not exist in this run (its grid's run-time extent is smaller). STOP: the run has
    failed.
    """
    number = task - words[grid + L.GRID_FIRST]
    # A task from a queue was pushed because its events were met; pushed early, it still has to wait for them.
    waits = queue_of_grid(launch, words, grid) < 0 or launch[L.LAUNCH_EARLY] == 1
    runtime = words[grid + L.GRID_COUNT_BUFFER] >= 0
    start = number * 0
    if cuda.threadIdx.x == 0:
        start = clock64()
        store_relaxed_int64(launch[L.LAUNCH_STATES], worker * L.STATE_WORDS + L.STATE_TASK, task)
        store_relaxed_int64(launch[L.LAUNCH_STATES], worker * L.STATE_WORDS + L.STATE_PHASE, L.PHASE_WAIT)
    result = number * 0 + RUN
    x = number
    y = number * 0
    z = number * 0
    w = number * 0
    first = number * 0
    last = first
    # Three stages: constant gates, after which a run-time extent may be read; other gates, after which
    # run-time maps and needs may; the rest.
    stage = number * 0
    while stage < 3 and result == RUN:
        if stage == 0:
            if runtime:
                last = words[grid + L.GRID_CONSTANT_GATES]
        elif stage == 1:
            last = max(words[grid + L.GRID_GATE_COUNT], first)
        else:
            last = words[grid + L.GRID_WAIT_COUNT]
        if waits and last > first:
            epoch = words[grid + L.GRID_EPOCH]
            if not wait_edges(
                launch, words, pointers, shared, workers, worker, grid, task, epoch, stage, first, last, x, y, z, w
            ):
                result = number * 0 + STOP
        first = last
        if stage == 0 and result == RUN:
            if runtime:
                count = checked_count(launch, words, pointers, worker, grid)
                if count < 0:
                    result = number * 0 + STOP
                elif number >= count:
                    result = number * 0 + SKIP
            if result == RUN:
                x, y, z, w = map_coordinate(words, pointers, grid, number)
        stage += 1
    if cuda.threadIdx.x == 0 and result == RUN:
        if waits and last > 0:
            record_span(launch, worker, L.SPAN_WAIT, task, x, y, z, w, start, clock64(), 0, -1, 1)
        store_relaxed_int64(launch[L.LAUNCH_STATES], worker * L.STATE_WORDS + L.STATE_PHASE, L.PHASE_BODY)
    return result, x, y, z, w


@device_function
def end_body(launch, worker, task):
    """All threads, after the body: a barrier, so that every thread's output is written before any thread
    notifies.
    """
    cuda.syncthreads()
    end = task * 0
    if cuda.threadIdx.x == 0:
        end = clock64()
        store_relaxed_int64(launch[L.LAUNCH_STATES], worker * L.STATE_WORDS + L.STATE_PHASE, L.PHASE_NOTIFY)
        if launch[L.LAUNCH_DELAY] > 0:
            delay_notify(launch, task)
    if launch[L.LAUNCH_DELAY] > 0 or launch[L.LAUNCH_TRACE] != 0:
        # no thread notifies before the delay is over, or before the end has been read off the clock
        cuda.syncthreads()
    return end


@device_function
def end_task(launch, words, pointers, worker, grid, task, finished, start, end):
    """One thread, after the notifications: `finished` tasks of this worker are done now; record the task's
    spans.
    """
    if task >= 0 and launch[L.LAUNCH_TRACE] != 0:
        record_task(launch, words, pointers, worker, grid, task, start, end)
    finish_task(launch, worker, task, finished)


@device_function
def finish_task(launch, worker, task, finished):
    """One thread, after a task's notifications: say how many tasks this worker has finished."""
    state = worker * L.STATE_WORDS
    if task >= 0:
        store_relaxed_int64(launch[L.LAUNCH_STATES], state + L.STATE_FINISHED, finished)
        store_relaxed_int64(launch[L.LAUNCH_STATES], state + L.STATE_TASK, -1)
    leave_task(launch)


@device_function
def record_task(launch, words, pointers, worker, grid, task, start, end):
    """One thread, after a task's notifications: the spans of its body and of its notifications."""
    x, y, z, w = task_coordinate(words, pointers, grid, task - words[grid + L.GRID_FIRST])
    epoch = words[grid + L.GRID_EPOCH]
    record_span(launch, worker, L.SPAN_TASK, task, x, y, z, w, start, end, start, -1, epoch)
    if words[grid + L.GRID_NOTIFY_COUNT] > 0:
        record_span(launch, worker, L.SPAN_PUSH, task, x, y, z, w, end, clock64(), 0, -1, epoch)


@device_function
def leave_task(launch):
    """One thread: a task has finished, or does not exist in this run. A start counts as a task: the reset
    kernel added it.
    """
    if ends_when_none_live(launch):
        finish_live(launch, 1)


@device_function
def delay_notify(launch, task):
    """One thread: a pseudo-random pause (Knuth's multiplicative hash of seed and task), so that producers lag
    in tests.
    """
    mixed = (((launch[L.LAUNCH_SEED] + task) * 2654435761) & 0xFFFFFFFF) >> 8
    until = globaltimer() + floor_modulo(mixed, launch[L.LAUNCH_DELAY])
    while globaltimer() < until:
        nanosleep(50)


@device_function
def task_kind(words, pointers, grid, task):
    """Kind number of a task: of its grid, or of its row in the task table."""
    kind = words[grid + L.GRID_KIND]
    if words[grid + L.GRID_SOURCE] == L.SOURCE_TABLE:
        row = task - words[grid + L.GRID_FIRST] + words[grid + L.GRID_TABLE_ROW]
        kind = kind * 0 + load_int32(pointers[words[L.HEADER_TASK_TABLE]], row * L.TASK_WORDS + L.TASK_KIND)
    return kind


@device_function
def task_operands(words, grid, kind):
    """Word of the first operand record of a task."""
    operands = words[grid + L.GRID_OPERANDS]
    if words[grid + L.GRID_SOURCE] == L.SOURCE_TABLE:
        operands = words[words[L.HEADER_TABLE_OPERANDS] + kind]
    return operands


@device_function
def task_argument(words, pointers, grid, task):
    """The int32 argument of a task's row in the task table; 0 for a formula task."""
    argument = task * 0
    if words[grid + L.GRID_SOURCE] == L.SOURCE_TABLE:
        row = task - words[grid + L.GRID_FIRST] + words[grid + L.GRID_TABLE_ROW]
        argument += load_int32(pointers[words[L.HEADER_TASK_TABLE]], row * L.TASK_WORDS + L.TASK_ARGUMENT)
    return argument


@device_function
def record_span(launch, worker, span, task, x, y, z, w, start, end, ready, event, epoch):
    """One thread: append a trace record; past the capacity it is only counted. Warps of one block may do so at
    once.
    """
    if launch[L.LAUNCH_TRACE] != 0:
        number = atomic_add_relaxed_int64(launch[L.LAUNCH_TRACE_COUNT], worker, 1)
        if number < launch[L.LAUNCH_TRACE_CAPACITY]:
            at = (worker * launch[L.LAUNCH_TRACE_CAPACITY] + number) * L.TRACE_WORDS
            records = launch[L.LAUNCH_TRACE]
            store_relaxed_int64(records, at, span | (epoch << 16))
            store_relaxed_int64(records, at + 1, task)
            store_relaxed_int64(records, at + 2, x | (y << 32))
            store_relaxed_int64(records, at + 3, z | (w << 32))
            store_relaxed_int64(records, at + 4, start)
            store_relaxed_int64(records, at + 5, end)
            store_relaxed_int64(records, at + 6, ready)
            store_relaxed_int64(records, at + 7, event)
