"""The executors: one table of names, and `run`, which checks a schedule and runs it on one of them.

A new executor is one module with a function ``run(scheduled, tensors, **options) -> Trace`` and one line in
`EXECUTORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np

from etproto.check import check, require
from etproto.errors import EtprotoError
from etproto.scheduled import Scheduled
from etproto.trace import Trace

__all__ = ["EXECUTORS", "find_executor", "run"]

EXECUTORS: Mapping[str, str] = MappingProxyType(
    {
        "cpu": "etproto.executors.cpu",
        "cudasim": "etproto.executors.cudasim",
        "cuda": "etproto.executors.cuda",
        "model": "etproto.executors.model",
    }
)


def find_executor(name: str) -> Callable[..., Trace]:
    """The function `run` of an executor, imported now.

    Raises
    ------
    EtprotoError
        If there is no executor of that name; the text lists those there are.

    Examples
    --------
    >>> find_executor("abacus")
    Traceback (most recent call last):
    ...
    etproto.errors.EtprotoError: executor: expected one of cpu, cudasim, cuda, model, got 'abacus'
    """
    if name not in EXECUTORS:
        raise EtprotoError(f"executor: expected one of {', '.join(EXECUTORS)}, got {name!r}")
    return import_module(EXECUTORS[name]).run


def run(
    scheduled: Scheduled, tensors: Mapping[str, Any] | None = None, executor: str = "auto", **options: Any
) -> Trace:
    """Check a schedule and run it once.

    Parameters
    ----------
    scheduled : Scheduled
    tensors : mapping, optional
        Tensor name -> array, changed in place: NumPy arrays for ``cpu``, ``cudasim`` and ``model``, arrays on
        the GPU for ``cuda``. Nothing is copied between the two.
    executor : {"auto", "cpu", "cudasim", "cuda", "model"}
        auto: ``cuda`` if an array lies on a GPU, else ``cpu``.
    **options
        Options of that executor's own `run`, such as ``seed`` or ``watchdog_s``.

    Returns
    -------
    Trace

    Raises
    ------
    ProgramError, ScheduleError
        What `etproto.check.check` finds, before anything is started.
    ExecutorUnavailable
        The executor cannot run here.
    RunError
        The run ended without a right result: an exceeded bound, or no progress (`NoProgressError`).

    Examples
    --------
    >>> from etproto.models import MODELS
    >>> from etproto.lowering import lower
    >>> from etproto.schedule import schedule
    >>> instance = MODELS["splitk"].build(n=2)
    >>> tensors = MODELS["splitk"].make_tensors(instance, np.random.default_rng(0))
    >>> trace = run(schedule(lower(instance), "dynamic", workers=2), tensors)
    >>> bool(np.allclose(tensors["C"].ravel(), tensors["A"].sum(axis=1), atol=1e-4))
    True
    """
    arrays = tensors or {}
    require(check(scheduled, _inputs(scheduled, arrays)))
    if executor == "auto":
        on_gpu = any(hasattr(array, "__cuda_array_interface__") for array in arrays.values())
        executor = "cuda" if on_gpu else "cpu"
    return find_executor(executor)(scheduled, arrays, **options)


def _inputs(scheduled: Scheduled, tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Host arrays that no task writes, so that run-time values in them are known before the run."""
    instance = scheduled.lowered.instance
    if instance is None:
        return {}
    return {
        name: array
        for name, array in tensors.items()
        if isinstance(array, np.ndarray) and not instance.program.writers(name)
    }
