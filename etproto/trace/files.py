"""Traces in files: columns in ``.npz``, the Chrome form in ``.json``, and parts of a trace as JSON values."""

from __future__ import annotations

import json
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from etproto.errors import EtprotoError, FileFormatError
from etproto.tasks import TaskArrays
from etproto.trace.records import COLUMNS, Trace

__all__ = ["META", "dump_json", "load", "meta_of", "save", "tasks_from_json", "tasks_to_json"]

# What a trace knows of its run besides columns, counters and tasks; in files it is one JSON object.
META = (
    "executor",
    "schedule",
    "policy",
    "workers",
    "time_unit",
    "kind_name",
    "grid_name",
    "grid_ndim",
    "makespan_ns",
    "dropped",
    "clock_residual_ns",
    "status",
    "extra",
)


def save(trace: Trace, path: str | Path) -> None:
    """Write `trace` to a name ending in ``.npz`` or ``.json``; see `Trace.save`."""
    path = Path(path)
    if path.suffix == ".json":
        from etproto.trace.chrome import to_chrome  # here because chrome reads this module's JSON helpers

        path.write_text(dump_json(to_chrome(trace)), encoding="utf-8")
        return
    if path.suffix != ".npz":
        raise FileFormatError(f"{path}:1: a trace is written to a name ending in .npz or .json")
    arrays = {name: getattr(trace, name) for name in COLUMNS}
    for i, (time, value) in enumerate(trace.counters.values()):
        arrays[f"counter_{i}"] = np.stack([time, value])
    meta = {**meta_of(trace), "counters": list(trace.counters), "tasks": tasks_to_json(trace.tasks)}
    text = dump_json(meta)
    with path.open("wb") as file:
        np.savez_compressed(file, meta=np.array(text), **arrays)


def load(path: str | Path) -> Trace:
    """Read a trace from a name ending in ``.npz`` or ``.json``; see `Trace.load`."""
    path = Path(path)
    if path.suffix == ".json":
        from etproto.trace.chrome import from_chrome

        try:
            return from_chrome(json.loads(path.read_text(encoding="utf-8")), source=str(path))
        except json.JSONDecodeError as error:
            raise FileFormatError(f"{path}:{error.lineno}: expected Chrome trace JSON: {error.msg}") from None
        except UnicodeDecodeError as error:
            raise FileFormatError(f"{path}:1: expected Chrome trace JSON in UTF-8: {error}") from None
    if path.suffix != ".npz":
        raise FileFormatError(f"{path}:1: expected the name of a trace, ending in .npz or .json")
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            meta = json.loads(str(file["meta"]))
            counters = {name: tuple(file[f"counter_{i}"]) for i, name in enumerate(meta.pop("counters"))}
            tasks = tasks_from_json(meta.pop("tasks"))
            columns = {name: file[name] for name in COLUMNS}
        return Trace(**columns, **meta, counters=counters, tasks=tasks)
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise FileFormatError(f"{path}:1: expected the columns of an etproto trace: {error}") from None


def meta_of(trace: Trace) -> dict[str, Any]:
    """The facts named in `META`, as JSON can hold them."""
    return {name: getattr(trace, name) for name in META}


def dump_json(value: Any) -> str:
    """Strict JSON: a NaN would be read by no browser, so it is refused, as is anything that is no JSON."""

    def plain(thing: Any) -> Any:
        if isinstance(thing, np.generic):
            return thing.item()
        raise EtprotoError(f"trace: {thing!r} of type {type(thing).__name__} cannot be written as JSON")

    try:
        return json.dumps(value, default=plain, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise EtprotoError(f"trace: a value cannot be written as JSON: {error}") from None


def tasks_to_json(tasks: TaskArrays | None) -> dict[str, Any] | None:
    """Every field of `tasks`; arrays with dtype and shape, so that empty ones come back as they were."""
    if tasks is None:
        return None
    out = {}
    for item in fields(tasks):
        value = getattr(tasks, item.name)
        if isinstance(value, np.ndarray):
            value = {"dtype": value.dtype.name, "shape": value.shape, "data": value.ravel().tolist()}
        out[item.name] = value
    return out


def tasks_from_json(data: dict[str, Any] | None) -> TaskArrays | None:
    """The inverse of `tasks_to_json`."""
    if data is None:
        return None
    values = {}
    for name, value in data.items():
        if isinstance(value, dict):
            value = np.array(value["data"], value["dtype"]).reshape(value["shape"])
        values[name] = tuple(value) if isinstance(value, list) else value
    return TaskArrays(**values)
