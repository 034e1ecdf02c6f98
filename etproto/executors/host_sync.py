"""The event protocol of the cpu executor: one wait, one notify, and the queue between them.

Generators that yield steps (what, on what); what happens from one yield to the next is atomic.

========  ===========================================================================================
step      meaning
========  ===========================================================================================
WAIT      nothing to do until `key` changes or the run ends
ACQUIRE   what has been released to `key` is visible to this worker now
RELEASE   `key` has changed; what this worker has seen and written goes with it
BOTH      RELEASE and ACQUIRE: a count that may trigger tasks passes on what the other notifiers released
FREE      `key` has changed; nothing goes with it
BODY      run this body, then go on
PAUSE     a point at which others may come between
========  ===========================================================================================

A key is ("event", cell), ("dispatched", cell), ("ready", task) or ("slot", slot).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from etproto import layout as L
from etproto.executors.host_run import HostRun
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
from etproto.kernels.sync import COMPLETED, DISPATCHED, DRAINED, STOPPED, satisfied

__all__ = [
    "ACQUIRE",
    "BODY",
    "BOTH",
    "COMPLETED",
    "DISPATCHED",
    "DRAINED",
    "FREE",
    "PAUSE",
    "RELEASE",
    "STOPPED",
    "Step",
    "WAIT",
    "fail",
    "finish_live",
    "notify_edges",
    "poll_event",
    "pop",
    "start_queues",
    "wait_edges",
]

WAIT, ACQUIRE, RELEASE, BOTH, FREE, BODY, PAUSE = "wait acquire release both free body pause".split()

Step = tuple[str, Any]
Coordinate = tuple[int, int, int, int]


def fail(run: HostRun, status: int, worker: int, task: int, event: int, value: int, limit: int) -> None:
    """End the run with an error; the first to come is the one reported."""
    if run.status == L.STATUS_RUNNING:
        run.control[L.CONTROL_STATUS] = status
        run.control[L.CONTROL_ERROR : L.CONTROL_ERROR + 5] = [worker, task, event, value, limit]


def poll_event(run: HostRun, me: int, cell: int, need: int) -> Generator[Step, None, bool]:
    """Wait until `cell` has been notified `need` times. Returns False when the run has ended meanwhile."""
    while not satisfied(run.counters[cell], need):
        run.states[me][L.STATE_EVENT] = cell
        yield WAIT, ("event", cell)
        if run.status != L.STATUS_RUNNING:
            return False
    run.states[me][L.STATE_EVENT] = -1
    yield ACQUIRE, ("event", cell)
    return True


def wait_edges(
    run: HostRun, me: int, grid: int, task: int, first: int, last: int, at: Coordinate
) -> Generator[Step, None, bool]:
    """Wait for edges `first` to `last - 1` of a grid at one coordinate. Returns False when the run failed."""
    words, pointers = run.words, run.pointers
    edge = words[L.HEADER_EDGES] + (words[grid + L.GRID_WAIT_FIRST] + first) * L.EDGE_WORDS
    for _ in range(first, last):
        event = words[L.HEADER_EVENTS] + words[edge + L.EDGE_EVENT] * L.EVENT_WORDS
        for number in range(edge_count(words, pointers, edge, *at)):
            cell = edge_cell(words, pointers, edge, number, *at)
            if cell < 0:
                fail(run, L.STATUS_EVENT_RANGE, me, task, words[edge + L.EDGE_EVENT], number, 0)
                return False
            need = event_need(words, pointers, event, cell) * words[grid + L.GRID_EPOCH]
            if not (yield from poll_event(run, me, cell, need)):
                return False
        edge += L.EDGE_WORDS
    return True


def notify_edges(run: HostRun, me: int, grid: int, task: int, phase: int, at: Coordinate) -> Iterator[Step]:
    """Notify every event of a task, and push what those whose need is met by it trigger.

    Phases: DISPATCHED, a worker has taken the task, counts on events that may be pushed early; COMPLETED,
    the body has run.
    """
    words, pointers = run.words, run.pointers
    edge = words[L.HEADER_EDGES] + words[grid + L.GRID_NOTIFY_FIRST] * L.EDGE_WORDS
    epoch = words[grid + L.GRID_EPOCH]
    kind, offset = ("event", 0) if phase == COMPLETED else ("dispatched", words[L.HEADER_CELLS])
    for _ in range(words[grid + L.GRID_NOTIFY_COUNT]):
        event = words[L.HEADER_EVENTS] + words[edge + L.EDGE_EVENT] * L.EVENT_WORDS
        early = run.early and words[event + L.EVENT_EARLY] == 1
        triggers = len(run.queue_grid) > 0 and words[event + L.EVENT_TRIGGER_COUNT] > 0
        if phase == COMPLETED and early:
            triggers = False  # its tasks were pushed when the notifiers had been dispatched
        if phase == COMPLETED or early:
            for number in range(edge_count(words, pointers, edge, *at)):
                cell = edge_cell(words, pointers, edge, number, *at)
                if cell < 0:
                    fail(run, L.STATUS_EVENT_RANGE, me, task, words[edge + L.EDGE_EVENT], number, 0)
                    return
                run.counters[offset + cell] += 1
                seen = run.counters[offset + cell]
                yield BOTH if triggers else RELEASE, (kind, cell)
                if triggers and seen == event_need(words, pointers, event, cell) * epoch:
                    yield from _fire(run, me, event, range(cell, cell + 1), False, epoch)
        edge += L.EDGE_WORDS


def start_queues(run: HostRun, me: int) -> Iterator[Step]:
    """Once a run: push the tasks that wait for no cell, and what cells that need no notification trigger."""
    for row, number, _ in run.initial:
        if row == -2:
            grid = run.words[L.HEADER_GRIDS] + number * L.GRID_WORDS
            queue, first = run.queue_of(grid), run.words[grid + L.GRID_FIRST]
            for local in range(grid_count(run.words, run.pointers, grid)):
                at = map_coordinate(run.words, run.pointers, grid, local)
                if ready_need(run.words, run.pointers, grid, *at) == 0:
                    yield from _push(run, me, queue, _reserve(run, queue, 1), first + local)
        if row == -1:
            event = run.words[L.HEADER_EVENTS] + number * L.EVENT_WORDS
            first = run.words[event + L.EVENT_BASE]
            cells = range(first, first + run.words[event + L.EVENT_CELLS])
            yield from _fire(run, me, event, cells, True, 1)


def _fire(run: HostRun, me: int, event: int, cells: range, only_zero: bool, epoch: int) -> Iterator[Step]:
    """Run the trigger records of an event's cells; `only_zero`: of those that need no notification."""
    words = run.words
    for trigger in _triggers(words, event):
        source, records, fired, zero = event, [trigger], cells, only_zero
        if words[trigger + L.TRIGGER_FORM] == L.TRIGGER_ZERO_CELLS:
            # When the gate is met, the needs of another event tensor are known: its cells that need nothing
            # trigger the grid.
            gate = words[event + L.EVENT_BASE] + words[trigger + L.TRIGGER_LOW]
            if gate not in cells or (only_zero and event_need(words, run.pointers, event, gate) != 0):
                continue
            source = words[L.HEADER_EVENTS] + words[trigger + L.TRIGGER_EVENT] * L.EVENT_WORDS
            grid = words[trigger + L.TRIGGER_GRID]
            records = [record for record in _triggers(words, source) if words[record + L.TRIGGER_GRID] == grid]
            records = [record for record in records if words[record + L.TRIGGER_FORM] != L.TRIGGER_ZERO_CELLS]
            first = words[source + L.EVENT_BASE]
            fired, zero = range(first, first + words[source + L.EVENT_CELLS]), True
        for cell in fired:
            if not zero or event_need(words, run.pointers, source, cell) == 0:
                for record in records:
                    yield from _push_triggered(run, me, record, source, cell, epoch)


def _triggers(words: list[int], event: int) -> range:
    first = words[L.HEADER_TRIGGERS] + words[event + L.EVENT_TRIGGER_FIRST] * L.TRIGGER_WORDS
    return range(first, first + words[event + L.EVENT_TRIGGER_COUNT] * L.TRIGGER_WORDS, L.TRIGGER_WORDS)


def _push_triggered(run: HostRun, me: int, trigger: int, event: int, cell: int, epoch: int) -> Iterator[Step]:
    """Push the tasks that one cell makes ready, or count how ready tasks with several waits are."""
    words, pointers = run.words, run.pointers
    grid = words[L.HEADER_GRIDS] + words[trigger + L.TRIGGER_GRID] * L.GRID_WORDS
    queue = run.queue_of(grid)
    if queue < 0:
        return
    count = trigger_count(words, pointers, trigger, event, cell)
    first = words[grid + L.GRID_FIRST]
    direct = words[grid + L.GRID_WAIT_CELLS] == 1
    ticket = _reserve(run, queue, count) if direct else 0
    yield PAUSE, None
    for number in range(count):
        local = trigger_task(words, pointers, trigger, event, cell, number)
        if not 0 <= local < words[grid + L.GRID_BOUND]:
            fail(run, L.STATUS_TASK_RANGE, me, first + local, cell, local, words[grid + L.GRID_BOUND])
            return
        if direct:
            yield from _push(run, me, queue, ticket + number, first + local)
            continue
        ready = 2 * words[L.HEADER_CELLS] + first + local
        run.counters[ready] += 1
        seen = run.counters[ready]
        yield BOTH, ("ready", first + local)
        at = map_coordinate(words, pointers, grid, local)
        if seen == ready_need(words, pointers, grid, *at) * epoch:
            ticket = _reserve(run, queue, 1)
            yield PAUSE, None
            yield from _push(run, me, queue, ticket, first + local)


def _reserve(run: HostRun, queue: int, count: int) -> int:
    """Claim `count` consecutive tickets; returns the first. The tasks count as live from now on."""
    tail = L.CONTROL_QUEUES + queue * L.QUEUE_WORDS + L.QUEUE_TAIL
    ticket = run.control[tail]
    run.control[L.CONTROL_LIVE] += count
    run.control[tail] += count
    return ticket


def _push(run: HostRun, me: int, queue: int, ticket: int, task: int) -> Iterator[Step]:
    """Put a task into a ticket's slot; it is reused only after the pop of the pass before has emptied it."""
    capacity = run.queue_capacity[queue]
    turn, place = divmod(ticket, capacity)
    slot = run.queue_first[queue] + place
    while turn > 0 and run.slots[slot] != turn << L.SLOT_SHIFT | L.SLOT_EMPTY:
        claimed = run.control[L.CONTROL_QUEUES + queue * L.QUEUE_WORDS + L.QUEUE_HEAD]
        if claimed <= ticket - capacity:  # nobody has come for the task in this slot: the queue is full
            fail(run, L.STATUS_QUEUE_FULL, me, task, queue, ticket + 1 - claimed, capacity)
        if run.status != L.STATUS_RUNNING:
            return
        yield WAIT, ("slot", slot)
    run.slots[slot] = turn << L.SLOT_SHIFT | task
    yield RELEASE, ("slot", slot)


def pop(run: HostRun, me: int, queue: int, limit: int) -> Generator[Step, None, int]:
    """Take a task from a queue.

    Returns its id; DRAINED when `limit` tasks have been handed out (-1: no limit); STOPPED when the run has
    ended.
    """
    head = L.CONTROL_QUEUES + queue * L.QUEUE_WORDS + L.QUEUE_HEAD
    ticket = run.control[head]
    run.control[head] += 1
    if 0 <= limit <= ticket:
        return DRAINED
    run.states[me][L.STATE_PHASE] = L.PHASE_POP
    yield PAUSE, None
    turn, place = divmod(ticket, run.queue_capacity[queue])
    slot = run.queue_first[queue] + place
    while run.slots[slot] >> L.SLOT_SHIFT != turn or run.slots[slot] & L.SLOT_MASK == L.SLOT_EMPTY:
        if run.status != L.STATUS_RUNNING:
            return STOPPED
        yield WAIT, ("slot", slot)
    task = run.slots[slot] & L.SLOT_MASK
    yield ACQUIRE, ("slot", slot)
    run.slots[slot] = (turn + 1) << L.SLOT_SHIFT | L.SLOT_EMPTY
    yield FREE, ("slot", slot)
    return task


def finish_live(run: HostRun) -> None:
    """A live task has finished; the last one ends the run."""
    run.control[L.CONTROL_LIVE] -= 1
    if run.control[L.CONTROL_LIVE] == 0 and run.status == L.STATUS_RUNNING:
        run.control[L.CONTROL_STATUS] = L.STATUS_FINISHED
