"""The cpu executor: what a schedule means, on NumPy arrays, and the default where there is no GPU.

Two drivers run the workers of `etproto.executors.host_worker`. Without a seed, every worker is a thread; a
lock makes the protocol's steps atomic, and bodies run outside of it. With a seed, one thread steps all
workers in an order drawn from the seed, which is unkind on purpose and the same every time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

import numpy as np

from etproto import layout as L
from etproto.executors.blocked import known_tasks
from etproto.executors.host_run import HostRun, start_run
from etproto.executors.host_seeded import run_seeded
from etproto.executors.host_threads import run_threads
from etproto.executors.race import RaceCheck
from etproto.executors.report import raise_for_status, run_tasks
from etproto.executors.tensors import check_tensors
from etproto.scheduled import Scheduled
from etproto.trace.records import SPAN_TASK, Trace, rows_of

__all__ = ["run"]


def run(
    scheduled: Scheduled,
    tensors: Mapping[str, np.ndarray],
    *,
    seed: int | None = None,
    watchdog_s: float = 10.0,
    trace: bool = True,
    trace_capacity: int | None = None,
    race_check: bool = False,
) -> Trace:
    """Run a schedule once.

    Parameters
    ----------
    scheduled : Scheduled
        Any number of workers; they are not limited to the number of cores.
    tensors : mapping
        Name -> NumPy array, changed in place.
    seed : int, optional
        Step all workers in one thread, in an order drawn from the seed: random, in bursts, with notifications
        held back. The same seed gives the same interleaving. By default every worker is a thread.
    watchdog_s : float
        Seconds without a finished task after which a run of threads ends itself. That no worker can go on is
        seen at once, by both drivers.
    trace : bool
        Keep a record of every task, wait, pop and push.
    trace_capacity : int, optional
        Records a worker keeps; by default all.
    race_check : bool
        Follow which tasks are ordered by events and compare the regions that they touch, see
        `etproto.executors.race`. Runs with a seed (0 if none is given).

    Returns
    -------
    Trace
        Times in ns from the start of the run.

    Raises
    ------
    ProgramError
        A tensor is missing or of the wrong type, shape or layout.
    NoProgressError
        No worker can go on, or no task finished for `watchdog_s`: which tasks wait, for which event, and who
        has not notified.
    RunError
        A bound was exceeded, a task never ran, counts do not add up, or two tasks race.
    Exception
        What a body raised, with the task's name added as a note.

    Examples
    --------
    >>> from etproto.lowering import lower
    >>> from etproto.models.splitk import program
    >>> from etproto.schedule import schedule
    >>> shapes = {"A": (64, 128), "B": (2, 4, 32), "C": (2, 32)}
    >>> tensors = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    >>> trace = run(schedule(lower(program().bind(n=2)), "dynamic", workers=3), tensors)
    >>> float(tensors["C"].min()), trace.executor, int((trace.span == SPAN_TASK).sum())
    (128.0, 'cpu', 10)
    """
    lowered = scheduled.lowered
    check_tensors(lowered, tensors, on_device=False)
    capacity = sys.maxsize if trace_capacity is None else trace_capacity
    state = start_run(scheduled, tensors, capacity if trace else 0)
    race = RaceCheck(state) if race_check else None
    begin = time.perf_counter_ns()
    if state.status == L.STATUS_RUNNING:
        if race is not None:
            error = run_seeded(state, seed or 0, race.observe)
        elif seed is not None:
            error = run_seeded(state, seed)
        else:
            error = run_threads(state, watchdog_s)
        if error is not None:
            me, fault = error
            task = state.states[me][L.STATE_TASK]
            name = "no task" if task < 0 else f"task {known_tasks(lowered, tensors).name(task)}"
            fault.add_note(f"in {name}, on worker {me} of {scheduled.workers}")
            raise fault
    makespan = time.perf_counter_ns() - begin
    raise_for_status(
        scheduled,
        np.array(state.control, np.int64),
        np.array(state.counters, np.int32),
        np.array(state.states, np.int64),
        tensors,
        ran=np.array(state.ran, np.int32),
    )
    if race is not None:
        race.finish()
    return _trace(scheduled, state, begin, makespan, {} if seed is None else {"seed": seed})


def _trace(scheduled: Scheduled, run: HostRun, begin: int, makespan: int, extra: dict) -> Trace:
    tasks = run_tasks(scheduled.lowered, run.tensors)
    columns = np.array(run.spans, np.int64).reshape(-1, 5).T
    span, worker_number, task, start, end = columns
    row = rows_of(tasks, task)
    return Trace(
        span=span,
        worker=worker_number,
        task=task,
        start=start - begin,
        end=end - begin,
        ready=np.where(span == SPAN_TASK, start - begin, -1),
        kind=tasks.kind[row] if len(row) else None,
        grid=tasks.grid[row] if len(row) else None,
        coordinate=tasks.coordinate[row] if len(row) else None,
        epoch=np.ones(len(span), np.int32),
        executor="cpu",
        schedule=scheduled.schedule,
        policy=scheduled.policy,
        workers=run.workers,
        kind_name=tasks.kind_name,
        grid_name=tasks.grid_name,
        grid_ndim=tasks.grid_ndim,
        makespan_ns=makespan,
        dropped=run.dropped,
        extra=extra,
        tasks=tasks,
    )
