"""Run a target, check what it computed, and report. A time is kept only beside a check that passed."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from etproto.check import check, require
from etproto.cli.target import Target, UsageError
from etproto.errors import ResidencyError, ScheduleError
from etproto.executors import find_executor, run
from etproto.executors.driver import device_facts, why_no_gpu
from etproto.kernels.workers import choose_worker, fits_shared_tables
from etproto.lowering import Lowered
from etproto.models.model import Tensors
from etproto.schedule import schedule
from etproto.scheduled import Scheduled
from etproto.schedulers.levels import lower_bound
from etproto.tasks import TaskArrays
from etproto.trace import Trace, summarize, verify

__all__ = ["Report", "choose_executor", "default_workers", "make_schedule", "measure", "run_time_values"]


@dataclass(frozen=True)
class Report:
    """What `run` prints.

    Parameters
    ----------
    target, executor, schedule, policy : str
    workers, tasks, events : int
        Of the run; events are those that a task notifies or waits for.
    makespan, lower_bound : float or None
        In `time_unit`; the makespan is the median over repeats. None when the result was not right.
    time_unit : str
    max_rel_error : float or None
        Largest error relative to the largest expected value of each output; None where nothing is computed.
    checked : bool
        The outputs agree with the independent reference; or, where nothing is computed, every task ran once,
        none before its waits, and the makespan is no shorter than its bound. In every repeat.
    compile_s : float
        Seconds that making the kernel took.
    """

    target: str
    executor: str
    schedule: str
    policy: str
    workers: int
    tasks: int
    events: int
    makespan: float | None
    lower_bound: float | None
    time_unit: str
    max_rel_error: float | None
    checked: bool
    compile_s: float


@dataclass(frozen=True)
class Measured:
    """A report with what stands behind it: the last trace, each repeat's makespan, and what was wrong."""

    report: Report
    trace: Trace
    makespans: tuple[float, ...]
    tolerance: float | None
    faults: tuple[str, ...]


def choose_executor(name: str) -> str:
    """`name`, or for ``auto`` cuda where a GPU can be used and else cpu."""
    return name if name != "auto" else ("cpu" if why_no_gpu() else "cuda")


def default_workers(executor: str) -> int:
    """One worker a multiprocessor on a GPU, else one a processor, up to 4."""
    return device_facts().processors if executor == "cuda" else min(4, os.cpu_count() or 1)


def make_schedule(lowered: Lowered, kind: str, **options: Any) -> Scheduled:
    """As `etproto.schedule.schedule`, but what cannot be scheduled so is misuse."""
    try:
        return schedule(lowered, kind, **options)
    except ScheduleError as error:
        raise UsageError(str(error)) from error


def run_time_values(target: Target, seed: int = 0) -> Tensors:
    """The target's tensors, after one run on the cpu executor if it has run-time values."""
    tensors = target.make_tensors(seed)
    if target.run_time_tensors():
        run(make_schedule(target.lower(), "auto", workers=1), tensors, "cpu", trace=False)
    return tensors


def measure(
    target: Target,
    scheduled: Scheduled,
    executor: str,
    *,
    seed: int | None = None,
    repeat: int = 1,
) -> Measured:
    """Check a schedule, run it `repeat` times on poisoned outputs, and compare every time.

    Raises
    ------
    ProgramError, ScheduleError, RunError, ExecutorUnavailable
        As `etproto.executors.run`.
    UsageError
        More workers than can be resident.
    """
    run_once = find_executor(executor)
    given = target.make_tensors(seed or 0)
    known = {name: array for name, array in given.items() if name not in target.run_time_tensors()}
    require(check(scheduled, known))
    compared = target.model is not None and executor != "model"
    expected = target.model.reference(given) if compared else {}
    tolerance = target.model.tolerance(given) if compared else None
    compile_s = _compile(scheduled) if executor == "cuda" else 0.0
    errors, makespans, faults = [], [], []
    for _ in range(repeat):
        tensors = {name: array.copy() for name, array in given.items()}
        placed = _to_gpu(tensors) if executor == "cuda" else tensors
        try:
            trace = run_once(scheduled, placed, seed=seed)
        except ResidencyError as error:
            raise UsageError(f"--workers: {error}") from error
        makespans.append(trace.makespan_ns)
        if compared:
            tensors = _to_host(placed) if executor == "cuda" else tensors
            errors.append(target.model.compare(tensors, expected))
            if not errors[-1] <= tolerance:
                faults.append(
                    f"{scheduled.lowered.name}: the result differs from the reference by {errors[-1]:.3g},"
                    f" expected at most {tolerance:.3g}"
                )
        else:
            faults += verify(trace)
    bound = _bound(trace, scheduled, executor)
    if executor == "model" and trace.makespan_ns < bound * (1 - 1e-9):
        faults.append(f"makespan {trace.makespan_ns:g} is below its lower bound {bound:g}")
    error = max(errors, default=None)
    report = Report(
        target=target.name,
        executor=executor,
        schedule=scheduled.schedule,
        policy=scheduled.policy,
        workers=scheduled.workers,
        tasks=scheduled.lowered.tasks if trace.tasks is None else trace.tasks.count,
        events=scheduled.lowered.cells if trace.tasks is None else _events(trace.tasks),
        makespan=None if faults else statistics.median(makespans),
        lower_bound=None if faults else bound,
        time_unit=trace.time_unit,
        max_rel_error=error if error is not None and math.isfinite(error) else None,
        checked=not faults,
        compile_s=compile_s,
    )
    return Measured(report, trace, tuple(makespans), tolerance, tuple(dict.fromkeys(faults)))


def _bound(trace: Trace, scheduled: Scheduled, executor: str) -> float:
    """From declared costs in the model, from measured durations elsewhere."""
    if executor == "model" and trace.tasks is not None:
        return lower_bound(trace.tasks, scheduled.workers)
    return summarize(trace).lower_bound


def _events(tasks: TaskArrays) -> int:
    used = np.zeros(tasks.events, bool)
    used[tasks.notify_event] = True
    used[tasks.wait_event] = True
    return int(used.sum())


def _compile(scheduled: Scheduled) -> float:
    """Seconds that the kernel of this schedule takes; the run then finds it made."""
    from etproto.executors.cuda import compiled_kernel

    kinds = scheduled.lowered.kinds
    worker = choose_worker("auto", kinds, device_facts().capability)
    tables = fits_shared_tables(scheduled, worker)
    return compiled_kernel(kinds, shared_tables=tables, worker=worker, traced=True).seconds


def _to_gpu(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Copies on the current GPU: of CuPy where it is installed, else of Numba."""
    try:
        import cupy
    except ImportError:
        from numba import cuda

        return {name: cuda.to_device(array) for name, array in tensors.items()}
    return {name: cupy.asarray(array) for name, array in tensors.items()}


def _to_host(tensors: Mapping[str, Any]) -> Tensors:
    """Copies of what `_to_gpu` made: Numba's arrays have one method for it, CuPy's another."""
    return {
        name: array.copy_to_host() if hasattr(array, "copy_to_host") else array.get() for name, array in tensors.items()
    }
