"""Needs against notifications: too few (tasks that never run), too many (which producer has finished?)."""

from __future__ import annotations

import numpy as np

from etproto.cells import cell_name, per_cell
from etproto.check.naming import SHOWN, some, some_tasks
from etproto.dependence import run_order, transpose
from etproto.program import EventTensor, Instance, Program
from etproto.tasks import TaskArrays

__all__ = ["check_needs", "check_notifiers", "unnotified"]


def check_notifiers(program: Program) -> list[str]:
    """Event tensors that grids wait for and no grid notifies."""
    notified = {edge.event.name for grid in program.parsed for edge in grid.notifies}
    return [
        f"program {program.name}: task grid {grid.name} waits for event tensor {edge.event.name},"
        f" which no task grid notifies"
        for grid in program.parsed
        for edge in grid.waits
        if edge.event.name not in notified
    ]


def check_needs(tasks: TaskArrays, instance: Instance | None = None) -> list[str]:
    """Events whose need is not the number of their notifications, and the tasks that therefore never run.

    Parameters
    ----------
    tasks : TaskArrays
    instance : Instance, optional
        Where the tasks come from: for names of events, and for which of them are ``any_of``.
    """
    seen, need = (
        np.bincount(tasks.notify_event, minlength=tasks.events),
        np.asarray(tasks.event_need, np.int64),
    )
    any_of = np.zeros(tasks.events, bool) if instance is None else per_cell(instance, lambda event: event.any_of, bool)
    wrong = np.flatnonzero((seen != need) & ~(any_of & (seen >= 1)))
    if len(wrong) == 0:
        return []
    notifier_ptr, notifier = transpose(tasks.notify_ptr, tasks.notify_event, tasks.events)
    waiter_ptr, waiter = transpose(tasks.wait_ptr, tasks.wait_event, tasks.events)
    counted = (
        None if instance is None else per_cell(instance, lambda event: event.count.name if event.count else "", object)
    )
    faults = []
    for event in wrong[:SHOWN].tolist():
        name = str(event) if instance is None else cell_name(instance, event)
        source = "" if counted is None or not counted[event] else f" ({counted[event]})"
        notifiers = notifier[notifier_ptr[event] : notifier_ptr[event + 1]]
        waiters = np.unique(waiter[waiter_ptr[event] : waiter_ptr[event + 1]])
        few = seen[event] < need[event]
        text = f"event {name}: need {need[event]}{source}, but"
        text += f" {'only ' if few else ''}{seen[event]} notification{'' if seen[event] == 1 else 's'}"
        text += f": {some_tasks(tasks, notifiers)}" if len(notifiers) else " (nobody notifies it)"
        if len(waiters):
            waits = f"{some_tasks(tasks, waiters)} {'waits' if len(waiters) == 1 else 'wait'} for it"
            if few:
                text += f"; never satisfied: {waits}"
            else:
                text += f"; {waits}, and {need[event]} of {seen[event]} do not say which have finished"
        faults.append(text)
    if len(wrong) > SHOWN:
        faults.append(f"and {len(wrong) - SHOWN} more events whose need differs from their notifications")
    return faults + _unreachable(tasks, np.minimum(seen, need))


def _unreachable(tasks: TaskArrays, reachable_need: np.ndarray) -> list[str]:
    """Tasks that never run for want of notifications (and not because of a cycle)."""
    runs, would_run = np.zeros(tasks.count, bool), np.zeros(tasks.count, bool)
    runs[run_order(tasks)] = True
    would_run[run_order(tasks, reachable_need)] = True
    unreachable = np.flatnonzero(would_run & ~runs)
    if len(unreachable) == 0:
        return []
    return [f"{len(unreachable)} of {tasks.count} tasks are unreachable: {some_tasks(tasks, unreachable)}"]


def unnotified(instance: Instance, tasks: TaskArrays) -> list[str]:
    """Warnings: events with a derived need that tasks wait for and nobody notifies."""
    static = per_cell(instance, lambda event: _is_derived(instance.program, event), bool)
    waited, notified = (
        np.bincount(event, minlength=tasks.events) > 0 for event in (tasks.wait_event, tasks.notify_event)
    )
    idle = np.flatnonzero(static & waited & ~notified)
    if len(idle) == 0:
        return []
    names = some((cell_name(instance, int(event)) for event in idle[:SHOWN]), len(idle))
    return [f"{instance}: waited for, but nobody notifies them, so they hold nobody back: {names}"]


def _is_derived(program: Program, event: EventTensor) -> bool:
    """Whether the needs of an event tensor are derived, and from maps that need no run-time values."""
    return (
        event.count is None
        and event.need is None
        and not any(
            edge.event == event and (grid.count is not None or grid.pointer is not None or not edge.is_gate)
            for grid in program.parsed
            for edge in grid.notifies
        )
    )
