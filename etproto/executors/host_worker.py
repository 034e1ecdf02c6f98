"""The worker of the cpu executor: the device's protocol as a generator, over the same arrays.

This is the readable definition of what `etproto.kernels.worker_portable` and `etproto.kernels.sync` do.
Records are read by the very functions that kernels compile. A worker yields a step at every point where
another worker may come between; what happens from one yield to the next is atomic. Who runs next, and who
runs a body, is up to the driver (`host_threads`, `host_seeded`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from etproto import layout as L
from etproto.executors.host_run import HostRun
from etproto.executors.host_sync import (
    BODY,
    COMPLETED,
    DISPATCHED,
    STOPPED,
    Step,
    fail,
    finish_live,
    notify_edges,
    poll_event,
    pop,
    start_queues,
    wait_edges,
)
from etproto.kernels.decode import (
    edge_cell,
    event_need,
    grid_count,
    grid_of_task,
    map_coordinate,
    task_coordinate,
)
from etproto.scheduled import ENTRY_DRAIN, ENTRY_STRIDE_BOUND, PATTERN_ZIGZAG

__all__ = ["worker"]

NOT_THERE, FAILED = "not there", "failed"


def worker(run: HostRun, me: int) -> Iterator[Step]:
    """All that worker `me` does in a run."""
    state = run.states[me]
    if me == 0 and run.queue_grid:
        yield from start_queues(run, me)
        if run.ends_when_none_live:
            finish_live(run)  # the start counts as a live task, so that the run cannot end before it
    place = [run.worker_ptr[me], 0, 0]
    while True:
        task, *place = yield from _next_task(run, me, *place)
        if task < 0:
            break
        state[L.STATE_TASK] = task
        grid = grid_of_task(run.words, task)
        if run.early:
            at = map_coordinate(run.words, run.pointers, grid, task - run.words[grid + L.GRID_FIRST])
            yield from notify_edges(run, me, grid, task, DISPATCHED, at)
        at = yield from _wait(run, me, grid, task)
        if at is FAILED:
            break
        if at is not NOT_THERE:
            yield from _run_task(run, me, grid, task, at)
        state[L.STATE_TASK] = -1
        if run.ends_when_none_live:
            finish_live(run)
    state[L.STATE_PHASE] = L.PHASE_DONE


def _next_task(
    run: HostRun, me: int, position: int, step: int, offset: int
) -> Generator[Step, None, tuple[int, int, int, int]]:
    """Find the next task of a worker.

    Returns (task or STOPPED, position, step, offset): the last three are the place in the worker's list, the
    step in the share that stands there, and the tasks of the shares before it.
    """
    while position < run.worker_ptr[me + 1]:
        item = run.worker_task[position]
        if item >= 0:
            return item, position + 1, step, offset
        operation, number, pattern, _ = run.entries[~item]
        fed = run.queue_grid[number] if operation == ENTRY_DRAIN else number
        grid = run.words[L.HEADER_GRIDS] + fed * L.GRID_WORDS
        if fed < 0:
            count = -1  # a queue that feeds several grids hands tasks out until the run ends
        elif operation == ENTRY_STRIDE_BOUND:
            count = run.words[grid + L.GRID_BOUND]
        else:
            passed = step > 0 or (yield from _pass_constant_gates(run, me, grid))
            count = _checked_count(run, me, grid) if passed else -1
            if count < 0:
                break
        if operation == ENTRY_DRAIN:
            start = run.clock()
            task = yield from pop(run, me, number, count)
            if task == STOPPED:
                break
            if task >= 0:
                run.span(me, L.SPAN_POP, task, start, run.clock())
                return task, position, step, offset
            position += 1
        else:
            # Shares go on where the one before ended: worker `offset % workers` takes task 0.
            lane = (me - offset) % run.workers
            if pattern == PATTERN_ZIGZAG and step % 2 == 1:
                lane = run.workers - 1 - lane
            if step * run.workers + lane < count:
                first = run.words[grid + L.GRID_FIRST]
                return first + step * run.workers + lane, position, step + 1, offset
            position, step, offset = position + 1, 0, offset + count
    return STOPPED, position, step, offset


def _pass_constant_gates(run: HostRun, me: int, grid: int) -> Generator[Step, None, bool]:
    """Wait until the run-time values in a grid's extent are known. Returns False when the run has failed."""
    words = run.words
    edge = words[L.HEADER_EDGES] + words[grid + L.GRID_WAIT_FIRST] * L.EDGE_WORDS
    for _ in range(words[grid + L.GRID_CONSTANT_GATES]):
        event = words[L.HEADER_EVENTS] + words[edge + L.EDGE_EVENT] * L.EVENT_WORDS
        cell = edge_cell(words, run.pointers, edge, 0, 0, 0, 0, 0)
        need = event_need(words, run.pointers, event, cell) * words[grid + L.GRID_EPOCH]
        if not (yield from poll_event(run, me, cell, need)):
            return False
        edge += L.EDGE_WORDS
    return True


def _checked_count(run: HostRun, me: int, grid: int) -> int:
    """Tasks of a grid in this run; -1 (and the run fails) when a run-time extent is not in 0 .. bound."""
    count, bound = grid_count(run.words, run.pointers, grid), run.words[grid + L.GRID_BOUND]
    if 0 <= count <= bound:
        return count
    index = (grid - run.words[L.HEADER_GRIDS]) // L.GRID_WORDS
    fail(run, L.STATUS_EXTENT_RANGE, me, -1, index, count, bound)
    return -1


def _wait(run: HostRun, me: int, grid: int, task: int) -> Generator[Step, None, Any]:
    """Wait for a task's events.

    Returns the coordinate at which its edge maps are evaluated, NOT_THERE or FAILED. Waits come in three
    stages: constant gates, after which a run-time extent may be read (the task may turn out not to exist);
    the other gates, after which run-time maps and needs may be; the rest.
    """
    words, number = run.words, task - run.words[grid + L.GRID_FIRST]
    # A task from a queue was pushed because its events were met; pushed early, it still has to wait for them.
    waits = run.queue_of(grid) < 0 or run.early
    run_time = words[grid + L.GRID_COUNT_BUFFER] >= 0
    constant = words[grid + L.GRID_CONSTANT_GATES] if run_time else 0
    gates = max(words[grid + L.GRID_GATE_COUNT], constant)
    last = words[grid + L.GRID_WAIT_COUNT]
    run.states[me][L.STATE_PHASE] = L.PHASE_WAIT
    start = run.clock()
    if waits and not (yield from wait_edges(run, me, grid, task, 0, constant, (number, 0, 0, 0))):
        return FAILED
    if run_time:
        count = _checked_count(run, me, grid)
        if count < 0 or number >= count:
            return FAILED if count < 0 else NOT_THERE
    at = map_coordinate(words, run.pointers, grid, number)
    if waits:
        for first, end in ((constant, gates), (gates, last)):
            if not (yield from wait_edges(run, me, grid, task, first, end, at)):
                return FAILED
        if last:
            run.span(me, L.SPAN_WAIT, task, start, run.clock())
    return at


def _run_task(run: HostRun, me: int, grid: int, task: int, at: tuple[int, int, int, int]) -> Iterator[Step]:
    state, number = run.states[me], task - run.words[grid + L.GRID_FIRST]
    body = run.body(task, grid, task_coordinate(run.words, run.pointers, grid, number))
    state[L.STATE_PHASE] = L.PHASE_BODY
    start = run.clock()
    yield BODY, body
    end = run.clock()
    run.span(me, L.SPAN_TASK, task, start, end)
    state[L.STATE_PHASE] = L.PHASE_NOTIFY
    yield from notify_edges(run, me, grid, task, COMPLETED, at)
    if run.words[grid + L.GRID_NOTIFY_COUNT]:
        run.span(me, L.SPAN_PUSH, task, end, run.clock())
    state[L.STATE_FINISHED] += 1
    run.ran[task] += 1
