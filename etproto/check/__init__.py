"""Everything that can be known to be wrong before a launch, each fault with a witness.

`check` collects faults and never raises; `require` raises them. One file a subject: `needs`
(notifications against needs), `dependences` (cycles), `order` (static lists), `reads` (run-time values),
`regions` (races and unwritten tiles), `edges` (duplicate edges, triggers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from etproto.check.dependences import check_dependences
from etproto.check.edges import check_duplicates, check_triggers
from etproto.check.needs import check_needs, check_notifiers, unnotified
from etproto.check.order import check_grid_order, check_order, check_workers, worker_rows
from etproto.check.reads import check_reads, check_writers_done
from etproto.check.regions import check_regions
from etproto.errors import EtprotoError, GraphError, ProgramError, ScheduleError
from etproto.expand import cell_name, expand, graph_tasks
from etproto.graph import TaskGraph
from etproto.program import Instance, Program
from etproto.scheduled import Scheduled
from etproto.schedulers.levels import critical_path_length, lower_bound
from etproto.tasks import TaskArrays

__all__ = ["CheckResult", "check", "check_order", "require"]


@dataclass(frozen=True)
class CheckResult:
    """What a check found.

    Parameters
    ----------
    errors : tuple of str
        Faults that would deadlock, race or compute something wrong.
    warnings : tuple of str
        What is suspicious, and what could not be checked and why.
    stats : dict
        Of what could be expanded: ``tasks``, ``edges`` (dependent pairs), ``events`` (waited for or
        notified), ``critical_path`` (in the unit of costs), and with a schedule ``workers`` and
        ``lower_bound``.
    error : type
        What `require` raises.
    """

    errors: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    stats: Mapping[str, Any] = field(default_factory=dict)
    error: type[EtprotoError] = ProgramError

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    def __str__(self) -> str:
        lines = [*self.errors, *(f"warning: {text}" for text in self.warnings)]
        return "\n".join(lines if self.errors else ["ok", *lines])


def check(
    target: Scheduled | Instance | Program | TaskGraph,
    tensors: Mapping[str, Any] | None = None,
    *,
    resident_limit: int | None = None,
) -> CheckResult:
    """Check a graph, a program, one of its bindings, or a schedule. Never raises on a fault of the target.

    Parameters
    ----------
    target : TaskGraph, Program, Instance or Scheduled
        A `Program` is checked as far as it can be without values of its symbols.
    tensors : mapping, optional
        Tensor name -> array: run-time values that extents, maps and counts read. Without them, tasks of
        programs that have such values are not checked one by one, and a warning says so.
    resident_limit : int, optional
        Workers that the device can hold at once.

    Returns
    -------
    CheckResult

    Examples
    --------
    >>> print(check(TaskGraph.from_arrays([0, 1], [1, 0], 2)))
    cycle of 2 tasks: 0 -> 1 -> 0
    """
    errors: list[str] = []
    warnings: list[str] = []
    stats: dict[str, Any] = {}
    error: type[EtprotoError] = ProgramError
    instance, tasks = None, None
    if isinstance(target, TaskGraph):
        errors += target.validate()
        error = GraphError
        tasks = None if errors else graph_tasks(target)
    elif isinstance(target, Program):
        errors += check_reads(target) + check_notifiers(target) + check_duplicates(target)
    else:
        lowered = target.lowered if isinstance(target, Scheduled) else None
        instance = target if lowered is None else lowered.instance
        tasks = None if lowered is None else lowered.task_arrays
    if instance is not None:
        program = instance.program
        errors += check_reads(program) + check_notifiers(program)
        errors += check_writers_done(instance, tensors or {})
        tasks = _expanded(instance, tensors, errors, warnings)
        if tasks is None:
            errors += check_duplicates(program)
        else:
            errors += check_duplicates(program, instance, tensors) + check_triggers(instance, tensors)
            warnings += unnotified(instance, tasks)
    name = None if instance is None else partial(cell_name, instance)
    if tasks is not None:
        errors += check_needs(tasks, instance)
        errors += check_dependences(tasks, name)
        if instance is not None and not errors:
            for found, texts in zip((errors, warnings), check_regions(instance, tasks, tensors), strict=True):
                found += texts
        stats |= _stats(tasks, sound=not errors)
    if isinstance(target, Scheduled):
        of_schedule = check_workers(target, resident_limit)
        if tasks is None:
            of_schedule += check_grid_order(target)
        elif not errors and not of_schedule:
            rows, texts = worker_rows(target, tasks)
            of_schedule += texts or check_order(rows.tasks, rows.worker_ptr, rows.worker_row, rows.named(name))
        if of_schedule and not errors:
            error = ScheduleError
        errors += of_schedule
        stats["workers"] = target.workers
        if tasks is not None and not errors:
            stats["lower_bound"] = lower_bound(tasks, target.workers)
    return CheckResult(tuple(dict.fromkeys(errors)), tuple(dict.fromkeys(warnings)), stats, error)


def require(result: CheckResult) -> CheckResult:
    """Return the result if it has no error.

    Raises
    ------
    ProgramError, ScheduleError or GraphError
        With the text of all errors, one a line.
    """
    if result.errors:
        raise result.error("\n".join(result.errors))
    return result


def _expanded(
    instance: Instance, tensors: Mapping[str, Any] | None, errors: list[str], warnings: list[str]
) -> TaskArrays | None:
    """The tasks, or why there are none: an error, or a warning when run-time values are not given."""
    reads = {name: grid for grid in instance.program.parsed for name in grid.run_time_reads()}
    missing = {name: grid.name for name, grid in reads.items() if name not in (tensors or {})}
    if missing:
        listed = ", ".join(f"{name} (read by {grid})" for name, grid in missing.items())
        warnings.append(f"{instance}: tasks are not checked one by one, since run-time values are not given: {listed}")
        return None
    try:
        return expand(instance, tensors)
    except ProgramError as fault:
        errors.append(str(fault))
        return None


def _stats(tasks: TaskArrays, sound: bool) -> dict[str, Any]:
    notifiers = np.bincount(tasks.notify_event, minlength=tasks.events)
    waiters = np.bincount(tasks.wait_event, minlength=tasks.events)
    stats = {
        "tasks": tasks.count,
        "edges": int((notifiers * waiters).sum()),
        "events": int(((notifiers > 0) | (waiters > 0)).sum()),
    }
    if sound:
        stats["critical_path"] = critical_path_length(tasks)
    return stats
