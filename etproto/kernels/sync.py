"""The event protocol on the device: one wait, one notify, and the queue between them. Nothing else touches
counters.

Counters count up. A wait is satisfied when ``seen - need * epoch >= 0`` in 32-bit arithmetic, which stays
right when a counter wraps. The notifier whose increment reaches the need fires the event's triggers, once.
Functions are called by every thread of a block with the same arguments unless they say "one thread".

Memory order: a notify follows a block barrier, so the release by one thread covers what all threads wrote; a
wait's acquire is followed by a block barrier, so what it acquired is visible to all threads.
"""

from __future__ import annotations

from numba import cuda

from etproto import layout as L
from etproto.kernels.decode import (
    edge_cell,
    edge_count,
    event_need,
    grid_count,
    map_coordinate,
    ready_need,
    trigger_count,
    trigger_task,
)
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.memory import (
    atomic_add_acq_rel_int32,
    atomic_add_acq_rel_int64,
    atomic_compare_swap_int64,
    load_acquire_int32,
    load_acquire_int64,
    load_int32,
    load_int64,
    reduce_release_int32,
    store_relaxed_int64,
    store_release_int64,
)
from etproto.kernels.ptx.timer import globaltimer, nanosleep

__all__ = [
    "SHARED_WORDS",
    "satisfied",
    "fail",
    "poll_event",
    "wait_edges",
    "notify_edges",
    "push",
    "pop",
    "finish_live",
]

SHARED_WORDS = 264  # what a block shares: 8 words, then a list of fired cells
SHARED_TASK = 0  # 2 words: the task of even and of odd turns, so that a fetch needs one barrier
SHARED_TICKET, SHARED_FIRED = 2, 3
SHARED_FAILED = 4  # 3 words, one for each stage of a task's wait
SHARED_LIST, LIST_LENGTH = 8, 256
START, DISPATCHED, COMPLETED = 0, 1, 2
DRAINED, STOPPED = -1, -2
BACKOFF_AFTER = 64  # polls without a pause before giving way


@device_function
def satisfied(seen, need):
    """Whether `seen` notifications are enough: the sign of their 32-bit difference, right across wrap-around."""
    return ((seen - need) & 0xFFFFFFFF) < 0x80000000


@device_function
def fail(launch, status, worker, task, event, value, limit):
    """One thread: end the run with an error; the first to come is the one reported."""
    control = launch[L.LAUNCH_CONTROL]
    if atomic_compare_swap_int64(control, L.CONTROL_STATUS, L.STATUS_RUNNING, status) == L.STATUS_RUNNING:
        store_relaxed_int64(control, L.CONTROL_ERROR, worker)
        store_relaxed_int64(control, L.CONTROL_ERROR + 1, task)
        store_relaxed_int64(control, L.CONTROL_ERROR + 2, event)
        store_relaxed_int64(control, L.CONTROL_ERROR + 3, value)
        store_relaxed_int64(control, L.CONTROL_ERROR + 4, limit)


@device_function
def _progress(launch, workers):
    """Tasks finished by all workers: what the watchdog compares."""
    total = workers * 0
    for worker in range(workers):
        total += load_acquire_int64(launch[L.LAUNCH_STATES], worker * L.STATE_WORDS + L.STATE_FINISHED)
    return total


@device_function
def keep_waiting(launch, workers, worker, task, event, polls, deadline, progress):
    """One thread, between polls: (go on?, deadline, progress). Ends the run when no task has finished for the
    watchdog time.
    """
    going = True
    if polls % BACKOFF_AFTER == 0:
        nanosleep(20)
        if load_acquire_int64(launch[L.LAUNCH_CONTROL], L.CONTROL_STATUS) != L.STATUS_RUNNING:
            going = False
        now = globaltimer()
        if now > deadline:
            finished = _progress(launch, workers)
            if finished == progress:
                fail(launch, L.STATUS_NO_PROGRESS, worker, task, event, finished, launch[L.LAUNCH_WATCHDOG])
                going = False
            progress = finished
            deadline = now + launch[L.LAUNCH_WATCHDOG]
    return going, deadline, progress


@device_function
def poll_event(launch, workers, worker, task, cell, need):
    """One thread: wait until `cell` has been notified `need` times; False when the run has failed meanwhile."""
    counters = launch[L.LAUNCH_COUNTERS]
    done = satisfied(load_acquire_int32(counters, cell), need)
    going = True
    if not done:
        state = worker * L.STATE_WORDS
        store_relaxed_int64(launch[L.LAUNCH_STATES], state + L.STATE_EVENT, cell)
        deadline = globaltimer() + launch[L.LAUNCH_WATCHDOG]
        progress = deadline * 0 - 1
        polls = 0
        while going and not done:
            polls += 1
            done = satisfied(load_acquire_int32(counters, cell), need)
            if not done:
                going, deadline, progress = keep_waiting(launch, workers, worker, task, cell, polls, deadline, progress)
        store_relaxed_int64(launch[L.LAUNCH_STATES], state + L.STATE_EVENT, -1)
    return done


@device_function
def wait_edges(launch, words, pointers, shared, workers, worker, grid, task, epoch, stage, first, last, x, y, z, w):
    """Wait for edges `first` to `last - 1` of a grid at one coordinate, stage 0, 1 or 2 of the task's wait.
    Ends with a barrier; True for all threads, or False for all.

    Each stage has a flag of its own. With one flag, a thread that fails in the next stage would set it before
    a slower thread has read it for this stage, and wait for ever at a barrier that the slower one never
    reaches.
    """
    failed = False
    edge = words[L.HEADER_EDGES] + (words[grid + L.GRID_WAIT_FIRST] + first) * L.EDGE_WORDS
    for _ in range(first, last):
        event = words[L.HEADER_EVENTS] + words[edge + L.EDGE_EVENT] * L.EVENT_WORDS
        for number in range(cuda.threadIdx.x, edge_count(words, pointers, edge, x, y, z, w), cuda.blockDim.x):
            cell = edge_cell(words, pointers, edge, number, x, y, z, w)
            if cell < 0:
                fail(launch, L.STATUS_EVENT_RANGE, worker, task, words[edge + L.EDGE_EVENT], number, 0)
                failed = True
            elif not failed:
                need = event_need(words, pointers, event, cell) * epoch
                failed = not poll_event(launch, workers, worker, task, cell, need)
        edge += L.EDGE_WORDS
    # Not syncthreads_or: after a poll that fails, a barrier with a vote hung on an H200 (compare numba issue
    # 9770).
    if failed:
        shared[SHARED_FAILED + stage] = 1
    cuda.syncthreads()
    return shared[SHARED_FAILED + stage] == 0


@device_function
def notify_edges(launch, words, pointers, shared, worker, grid, task, epoch, phase, x, y, z, w):
    """Notify every event of a task, and push what those whose need is met by it trigger.

    Phases: START, once a launch, no task: push tasks that wait for nothing, and what event cells that need
    nothing trigger. DISPATCHED: a worker has taken the task; counts on events that may be pushed early.
    COMPLETED: the body has run.

    Comes after a barrier. Cells go in batches of one a thread; met cells are listed in shared memory for all
    threads to push.
    """
    thread = cuda.threadIdx.x
    batch = min(cuda.blockDim.x, LIST_LENGTH)
    edge = words[L.HEADER_EDGES] + words[grid + L.GRID_NOTIFY_FIRST] * L.EDGE_WORDS
    edges = words[grid + L.GRID_NOTIFY_COUNT]
    if phase == START:
        edges = launch[L.LAUNCH_INITIAL_COUNT]
        _push_unwaiting(launch, words, pointers, worker)
    for row in range(edges):
        number = words[edge + L.EDGE_EVENT]
        if phase == START:
            number = load_int64(launch[L.LAUNCH_INITIAL], 3 * row + 1)
        event = words[L.HEADER_EVENTS] + number * L.EVENT_WORDS
        early = words[event + L.EVENT_EARLY] * launch[L.LAUNCH_EARLY]
        triggers = launch[L.LAUNCH_QUEUE_COUNT] > 0 and words[event + L.EVENT_TRIGGER_COUNT] > 0
        if early == 1 and phase == COMPLETED:
            triggers = False
        count = number * 0
        offset = number * 0
        if phase == DISPATCHED:
            offset = words[L.HEADER_CELLS]
        if phase == START:
            some = words[event + L.EVENT_NEED_FORM] != L.NEED_SCALAR or words[event + L.EVENT_NEED] == 0
            if load_int64(launch[L.LAUNCH_INITIAL], 3 * row) == -1 and some:
                count = number * 0 + 1
        elif phase == COMPLETED or early == 1:
            count = edge_count(words, pointers, edge, x, y, z, w)
        for start in range(0, count, batch):
            if triggers:
                if thread == 0:
                    shared[SHARED_FIRED] = 1 if phase == START else 0
                cuda.syncthreads()
            number = start + thread
            if thread < batch and number < count and phase != START:
                cell = edge_cell(words, pointers, edge, number, x, y, z, w)
                if cell < 0:
                    fail(launch, L.STATUS_EVENT_RANGE, worker, task, words[edge + L.EDGE_EVENT], number, 0)
                elif triggers:
                    seen = atomic_add_acq_rel_int32(launch[L.LAUNCH_COUNTERS], offset + cell, 1) + 1
                    if ((seen - event_need(words, pointers, event, cell) * epoch) & 0xFFFFFFFF) == 0:
                        place = cuda.atomic.add(shared, SHARED_FIRED, 1)
                        shared[SHARED_LIST + place] = cell
                else:
                    reduce_release_int32(launch[L.LAUNCH_COUNTERS], offset + cell, 1)
            if triggers:
                cuda.syncthreads()
                for fired in range(shared[SHARED_FIRED]):
                    first = shared[SHARED_LIST + fired]
                    last = first + 1
                    if phase == START:
                        first = words[event + L.EVENT_BASE]
                        last = first + words[event + L.EVENT_CELLS]
                    _fire(launch, words, pointers, shared, worker, event, first, last, phase == START, epoch)
                cuda.syncthreads()
        edge += L.EDGE_WORDS


@device_function
def _fire(launch, words, pointers, shared, worker, event, first, last, only_zero, epoch):
    """Run the trigger records of an event's cells; `only_zero`: of those that need no notification."""
    trigger = words[L.HEADER_TRIGGERS] + words[event + L.EVENT_TRIGGER_FIRST] * L.TRIGGER_WORDS
    for _ in range(words[event + L.EVENT_TRIGGER_COUNT]):
        # One record, or (the needs of another event tensor are known now) its records for those cells that
        # need nothing.
        zero = words[trigger + L.TRIGGER_FORM] == L.TRIGGER_ZERO_CELLS
        source = event
        inner = trigger
        inner_count = first * 0 + 1
        cell = first
        end = last
        if zero:
            source = words[L.HEADER_EVENTS] + words[trigger + L.TRIGGER_EVENT] * L.EVENT_WORDS
            inner = words[L.HEADER_TRIGGERS] + words[source + L.EVENT_TRIGGER_FIRST] * L.TRIGGER_WORDS
            inner_count = words[source + L.EVENT_TRIGGER_COUNT]
            gate = words[event + L.EVENT_BASE] + words[trigger + L.TRIGGER_LOW]
            met = gate >= first and gate < last
            if met and only_zero:
                met = event_need(words, pointers, event, gate) == 0
            cell = words[source + L.EVENT_BASE]
            end = cell
            if met:
                end += words[source + L.EVENT_CELLS]
        while cell < end:
            if (not zero and not only_zero) or event_need(words, pointers, source, cell) == 0:
                record = inner
                for _inner in range(inner_count):
                    wanted = not zero or words[record + L.TRIGGER_GRID] == words[trigger + L.TRIGGER_GRID]
                    if wanted and words[record + L.TRIGGER_FORM] != L.TRIGGER_ZERO_CELLS:
                        _push_triggered(launch, words, pointers, shared, worker, record, source, cell, epoch)
                    record += L.TRIGGER_WORDS
            cell += 1
        trigger += L.TRIGGER_WORDS


@device_function
def _push_triggered(launch, words, pointers, shared, worker, trigger, event, cell, epoch):
    """All threads: push the tasks that one cell makes ready, or count towards the readiness of tasks with
    several waits.
    """
    grid = words[L.HEADER_GRIDS] + words[trigger + L.TRIGGER_GRID] * L.GRID_WORDS
    queue = load_int32(launch[L.LAUNCH_GRID_QUEUE], words[trigger + L.TRIGGER_GRID])
    if queue >= 0:
        count = trigger_count(words, pointers, trigger, event, cell)
        first = words[grid + L.GRID_FIRST]
        direct = words[grid + L.GRID_WAIT_CELLS] == 1
        if direct:
            _reserve(launch, shared, queue, count)
        for number in range(cuda.threadIdx.x, count, cuda.blockDim.x):
            local = trigger_task(words, pointers, trigger, event, cell, number)
            if local < 0 or local >= words[grid + L.GRID_BOUND]:
                fail(
                    launch,
                    L.STATUS_TASK_RANGE,
                    worker,
                    first + local,
                    cell,
                    local,
                    words[grid + L.GRID_BOUND],
                )
            elif direct:
                push(launch, worker, queue, shared[SHARED_TICKET] + number, first + local)
            else:
                x, y, z, w = map_coordinate(words, pointers, grid, local)
                ready = 2 * words[L.HEADER_CELLS] + first + local
                seen = atomic_add_acq_rel_int32(launch[L.LAUNCH_COUNTERS], ready, 1) + 1
                if ((seen - ready_need(words, pointers, grid, x, y, z, w) * epoch) & 0xFFFFFFFF) == 0:
                    _push_one(launch, worker, queue, first + local)
        cuda.syncthreads()


@device_function
def _push_unwaiting(launch, words, pointers, worker):
    """All threads, once a launch: push tasks that wait for no cell, in grids where others do (rows -2)."""
    for row in range(launch[L.LAUNCH_INITIAL_COUNT]):
        if load_int64(launch[L.LAUNCH_INITIAL], 3 * row) == -2:
            number = load_int64(launch[L.LAUNCH_INITIAL], 3 * row + 1)
            grid = words[L.HEADER_GRIDS] + number * L.GRID_WORDS
            queue = load_int32(launch[L.LAUNCH_GRID_QUEUE], number)
            for local in range(cuda.threadIdx.x, grid_count(words, pointers, grid), cuda.blockDim.x):
                x, y, z, w = map_coordinate(words, pointers, grid, local)
                if ready_need(words, pointers, grid, x, y, z, w) == 0:
                    _push_one(launch, worker, queue, words[grid + L.GRID_FIRST] + local)
    cuda.syncthreads()  # all are counted as live before one thread gives the start's own count back


@device_function
def _push_one(launch, worker, queue, task):
    """One thread: count a task as live, claim a ticket and push it."""
    atomic_add_acq_rel_int64(launch[L.LAUNCH_CONTROL], L.CONTROL_LIVE, 1)
    tail = L.CONTROL_QUEUES + queue * L.QUEUE_WORDS + L.QUEUE_TAIL
    push(launch, worker, queue, atomic_add_acq_rel_int64(launch[L.LAUNCH_CONTROL], tail, 1), task)


@device_function
def _reserve(launch, shared, queue, count):
    """All threads: claim `count` consecutive tickets; the first is left in shared memory. Counts the tasks as
    live first.
    """
    if cuda.threadIdx.x == 0:
        atomic_add_acq_rel_int64(launch[L.LAUNCH_CONTROL], L.CONTROL_LIVE, count)
        tail = L.CONTROL_QUEUES + queue * L.QUEUE_WORDS + L.QUEUE_TAIL
        shared[SHARED_TICKET] = atomic_add_acq_rel_int64(launch[L.LAUNCH_CONTROL], tail, count)
    cuda.syncthreads()


@device_function
def push(launch, worker, queue, ticket, task):
    """One thread: put a task into the slot of a ticket. A slot is reused only after the pop of the pass
    before has emptied it.
    """
    row = launch[L.LAUNCH_QUEUES] + queue * (8 * L.QUEUE_FIELDS)
    bits = load_int64(row, L.QUEUE_CAPACITY_BITS)
    capacity = (ticket * 0 + 1) << bits
    slot = load_int64(row, L.QUEUE_FIRST_SLOT) + (ticket & (capacity - 1))
    turn = ticket >> bits
    free = turn == 0
    while not free:
        free = load_acquire_int64(launch[L.LAUNCH_SLOTS], slot) == (turn << L.SLOT_SHIFT) | L.SLOT_EMPTY
        if not free:
            head = L.CONTROL_QUEUES + queue * L.QUEUE_WORDS + L.QUEUE_HEAD
            claimed = load_acquire_int64(launch[L.LAUNCH_CONTROL], head)
            if claimed <= ticket - capacity:  # nobody has come for the task in this slot: the queue is full
                fail(launch, L.STATUS_QUEUE_FULL, worker, task, queue, ticket + 1 - claimed, capacity)
            free = load_acquire_int64(launch[L.LAUNCH_CONTROL], L.CONTROL_STATUS) != L.STATUS_RUNNING
            turn = turn if not free else turn * 0 - 1
    if turn >= 0:
        store_release_int64(launch[L.LAUNCH_SLOTS], slot, (turn << L.SLOT_SHIFT) | task)


@device_function
def pop(launch, workers, worker, queue, limit):
    """One thread: take the next task of a queue; DRAINED when `limit` tasks have been handed out (-1: no
    limit), STOPPED when the run has ended.
    """
    control = launch[L.LAUNCH_CONTROL]
    ticket = atomic_add_acq_rel_int64(control, L.CONTROL_QUEUES + queue * L.QUEUE_WORDS + L.QUEUE_HEAD, 1)
    task = ticket * 0 + DRAINED
    if limit < 0 or ticket < limit:
        row = launch[L.LAUNCH_QUEUES] + queue * (8 * L.QUEUE_FIELDS)
        bits = load_int64(row, L.QUEUE_CAPACITY_BITS)
        slot = load_int64(row, L.QUEUE_FIRST_SLOT) + (ticket & (((ticket * 0 + 1) << bits) - 1))
        turn = ticket >> bits
        deadline = globaltimer() + launch[L.LAUNCH_WATCHDOG]
        progress = deadline * 0 - 1
        polls = 0
        going = True
        task = ticket * 0 + STOPPED
        while going and task < 0:
            polls += 1
            value = load_acquire_int64(launch[L.LAUNCH_SLOTS], slot)
            if value >> L.SLOT_SHIFT == turn and (value & L.SLOT_MASK) != L.SLOT_EMPTY:
                task = value & L.SLOT_MASK
            elif load_acquire_int64(control, L.CONTROL_STATUS) != L.STATUS_RUNNING:
                going = False
            else:
                going, deadline, progress = keep_waiting(launch, workers, worker, -1, -1, polls, deadline, progress)
        if task >= 0:
            store_release_int64(launch[L.LAUNCH_SLOTS], slot, ((turn + 1) << L.SLOT_SHIFT) | L.SLOT_EMPTY)
    return task


@device_function
def finish_live(launch, count):
    """One thread: `count` live tasks have finished; the last one ends a run that waits for nothing else."""
    control = launch[L.LAUNCH_CONTROL]
    if atomic_add_acq_rel_int64(control, L.CONTROL_LIVE, -count) == count:
        atomic_compare_swap_int64(control, L.CONTROL_STATUS, L.STATUS_RUNNING, L.STATUS_FINISHED)
