"""The errors of etproto: small `ValueError` subclasses whose text names the thing, the value received and
what was expected.
"""

from __future__ import annotations

__all__ = [
    "EtprotoError",
    "GraphError",
    "FileFormatError",
    "ProgramError",
    "ScheduleError",
    "ExecutorUnavailable",
    "RunError",
    "ResidencyError",
    "NoProgressError",
]


class EtprotoError(ValueError):
    """Base of every error that etproto raises on purpose."""


class GraphError(EtprotoError):
    """A task graph is not a directed acyclic graph of known nodes."""


class FileFormatError(EtprotoError):
    """A file does not hold what its format promises; the text starts with ``file:line:``."""


class ProgramError(EtprotoError):
    """A program (task grids, event tensors, edge maps, bindings) is inconsistent."""


class ScheduleError(EtprotoError):
    """A schedule is illegal or cannot be built: unknown policy, wrong worker count, deadlocking order."""


class ExecutorUnavailable(EtprotoError):
    """The executor asked for cannot run here; the text says why and names one that can."""


class RunError(EtprotoError):
    """A run ended without a right result: an exceeded bound, a full queue or pool, tasks that never ran."""


class ResidencyError(RunError):
    """More workers than the device can hold at once, or more shared memory than it has."""


class NoProgressError(RunError):
    """The watchdog ended a run: no task finished within the watchdog time."""
