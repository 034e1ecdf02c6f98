"""The model executor: how long a schedule would take, from costs, without computing anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from etproto.errors import ProgramError, ScheduleError
from etproto.executors import cpu
from etproto.executors.model_engine import ModelRun, describe_blocked, simulate
from etproto.executors.model_items import early_events, scheduled_items
from etproto.executors.tensors import tensor_shapes
from etproto.expand import expand
from etproto.lowering import Lowered
from etproto.scheduled import ENTRY_STRIDE, PATTERN_ROUND_ROBIN, Scheduled
from etproto.schedulers.critical_path import critical_path_ranking
from etproto.tasks import TaskArrays
from etproto.trace.records import SPAN_POP, SPAN_PUSH, SPAN_TASK, SPAN_WAIT, Trace

__all__ = ["run"]


def run(
    scheduled: Scheduled,
    tensors: Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
    watchdog_s: float = 10.0,
    trace: bool = True,
    trace_capacity: int | None = None,
    cost: Mapping[str, float] | np.ndarray | None = None,
    event_latency: float = 0.0,
    pop_cost: float = 0.0,
    push_cost: float = 0.0,
) -> Trace:
    """Simulate a schedule once.

    Parameters
    ----------
    scheduled : Scheduled
        Queues hand tasks out first in, first out; under the policy ``critical_path`` the one with the
        greatest bottom level first, ties by the tasks' priority.
    tensors : mapping, optional
        Name -> NumPy array, left as they are. Needed only for run-time values. If the program computes these
        itself and every tensor is given, copies are run once on the cpu executor by one worker to learn the
        values; otherwise those that are given are taken as the values of the run.
    seed : int, optional
        Break ties in a random order.
    watchdog_s : float
        For that run on the cpu executor.
    trace : bool
        Keep spans; without them the trace has only the makespan.
    trace_capacity : int, optional
        Spans kept of each worker; by default all.
    cost : mapping or float64[tasks], optional
        Duration by kind name (measured ones, say; other kinds keep their own), or of each task in the order
        of the expanded tasks. By default the costs that the program or graph declares.
    event_latency : float
        From the notification that satisfies an event to the moment at which a waiting task can start.
    pop_cost, push_cost : float
        Of taking a task from a queue, and of putting one into it.

    Returns
    -------
    Trace
        Times in the unit of the costs.

    Raises
    ------
    ScheduleError
        The schedule deadlocks (who waits for what), or does not run every task once.
    ProgramError
        A run-time value is missing, or a cost is not a number.

    Examples
    --------
    >>> from etproto.lowering import lower
    >>> from etproto.models.splitk import program
    >>> from etproto.schedule import schedule
    >>> run(schedule(lower(program().bind(n=4)), "static", workers=4)).makespan_ns
    7.0
    """
    lowered = scheduled.lowered
    tasks = _with_costs(lowered, _tasks(lowered, tensors or {}, watchdog_s), cost)
    items = scheduled_items(scheduled, tasks)
    priority = None
    if scheduled.policy == "critical_path" and items.queues and tasks.count:
        priority = np.empty(tasks.count)
        priority[critical_path_ranking(tasks)] = -np.arange(tasks.count)
    result = simulate(
        tasks,
        items,
        event_latency=event_latency,
        pop_cost=pop_cost,
        push_cost=push_cost,
        early_push=early_events(scheduled),
        priority=priority,
        seed=seed,
    )
    if not result.finished:
        raise ScheduleError(f"{lowered.name}: the schedule deadlocks: {describe_blocked(result, tasks)}")
    return _trace(scheduled, tasks, result, trace_capacity if trace else 0)


def _tasks(lowered: Lowered, tensors: Mapping[str, Any], watchdog_s: float) -> TaskArrays:
    if lowered.instance is None:
        if lowered.task_arrays is None:
            raise ProgramError(f"{lowered.name}: expected an instance or expanded tasks, got neither")
        return lowered.task_arrays
    program = lowered.instance.program
    read = {name for grid in program.parsed for name in grid.run_time_reads()}
    computed = any(program.writers(name) for name in read)
    if computed and set(tensor_shapes(lowered)) <= set(tensors):
        tensors = {name: np.array(array) for name, array in tensors.items()}
        cpu.run(_sequential(lowered), tensors, watchdog_s=watchdog_s, trace=False)
    return expand(lowered.instance, tensors)


def _sequential(lowered: Lowered) -> Scheduled:
    """One worker, grid after grid."""
    grids = len(lowered.grid_name)
    entries = [(ENTRY_STRIDE, grid, PATTERN_ROUND_ROBIN, 0) for grid in range(grids)]
    return Scheduled(
        lowered=lowered,
        schedule="device-static",
        policy="round_robin",
        workers=1,
        worker_ptr=np.array([0, grids]),
        worker_task=~np.arange(grids, dtype=np.int32),
        entries=np.array(entries, np.int64),
        grid_queue=np.full(grids, -1, np.int32),
        queue_grid=np.zeros(0, np.int32),
        queue_capacity=np.zeros(0, np.int64),
        initial_queue=np.zeros((0, 3), np.int64),
    )


def _with_costs(lowered: Lowered, tasks: TaskArrays, cost: Mapping[str, float] | np.ndarray | None) -> TaskArrays:
    if cost is None:
        return tasks
    if isinstance(cost, Mapping):
        unknown = [name for name in cost if name not in tasks.kind_name]
        if unknown:
            raise ProgramError(
                f"{lowered.name}: cost: expected kinds among {', '.join(tasks.kind_name)}, got {', '.join(unknown)}"
            )
        values = np.array(tasks.cost, np.float64)
        for name, value in cost.items():
            values[tasks.kind == tasks.kind_name.index(name)] = value
    else:
        values = np.asarray(cost, np.float64)
    if values.shape != (tasks.count,) or not (np.isfinite(values) & (values >= 0)).all():
        raise ProgramError(f"{lowered.name}: cost: expected {tasks.count} finite numbers >= 0, got {cost!r}")
    return replace(tasks, cost=values)


def _trace(scheduled: Scheduled, tasks: TaskArrays, run: ModelRun, capacity: int | None) -> Trace:
    rows = np.arange(tasks.count)
    spans = [
        (SPAN_TASK, rows, run.start, run.end),
        (SPAN_WAIT, rows, run.wait_start, run.start),
        (SPAN_POP, rows, run.pop_start, run.pop_end),
        (SPAN_PUSH, rows, run.end, run.free),
    ]
    kept = [(span, rows[(end > start) | (span == SPAN_TASK)]) for span, rows, start, end in spans]
    span = np.concatenate([np.full(len(which), number) for number, which in kept])
    row = np.concatenate([which for _, which in kept])
    start, end = (np.stack([part[side] for part in spans])[span, row] for side in (2, 3))
    order = np.lexsort((end, start, run.worker[row]))
    if capacity is not None:
        worker = run.worker[row][order]
        order = order[np.arange(len(order)) - np.searchsorted(worker, worker) < capacity]
    dropped = (len(row) - len(order)) if capacity else 0
    span, row, start, end = span[order], row[order], start[order], end[order]
    return Trace(
        span=span,
        worker=run.worker[row],
        start=start,
        end=end,
        ready=np.where(span == SPAN_TASK, run.ready[row], -1),
        task=tasks.task[row],
        kind=tasks.kind[row],
        grid=tasks.grid[row],
        coordinate=tasks.coordinate[row],
        epoch=np.ones(len(row), np.int32),
        executor="model",
        schedule=scheduled.schedule,
        policy=scheduled.policy,
        workers=scheduled.workers,
        time_unit=scheduled.lowered.time_unit,
        kind_name=tasks.kind_name,
        grid_name=tasks.grid_name,
        grid_ndim=tasks.grid_ndim,
        makespan_ns=run.makespan,
        dropped=dropped,
        tasks=tasks,
    )
