"""Dynamic megakernels in Python: task grids joined by event tensors, run in one persistent kernel.

The way of a program through the package, each step one function:

1. Write a `Program` of `TaskGrid`, `EventTensor` and `Tensor`, and ``bind`` its symbols; or a `TaskGraph`,
   made by ``TaskGraph.from_networkx(G)`` or ``read_graph(path)``.
2. `lower` an instance, or `lower_graph` a graph, to integer arrays.
3. ``etproto.schedule.schedule(lowered, "static", workers=4)`` decides who runs which task.
4. ``etproto.check.check(scheduled)`` finds what can be known to be wrong before a launch; `run` does so too.
5. ``run(scheduled, tensors, executor="cpu")`` runs it and returns a `Trace` for `summarize` and `verify`.

Names are imported when they are first used, so ``import etproto`` loads nothing of Numba.

Examples
--------
>>> import etproto
>>> print(etproto.MODELS["splitk"].build(n=8))
splitk(n=8)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "EventTensor": "program",
    "MODELS": "models",
    "Operand": "tile_kind",
    "Program": "program",
    "Symbol": "expressions",
    "TaskGraph": "graph",
    "TaskGrid": "program",
    "Tensor": "program",
    "TileKind": "tile_kind",
    "Trace": "trace",
    "ceil_div": "expressions",
    "lower": "lowering",
    "lower_graph": "lowering_graph",
    "read_graph": "readers",
    "run": "executors",
    "summarize": "trace",
    "verify": "trace",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'etproto' has no attribute {name!r}")
    value = getattr(import_module(f"etproto.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
