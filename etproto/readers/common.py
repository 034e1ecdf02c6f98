"""What the readers share: errors with a place, node attributes of untyped formats, duplicate edges, JSON."""

from __future__ import annotations

import json
import operator
import warnings
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx

from etproto.errors import FileFormatError, GraphError
from etproto.graph import TaskGraph

__all__ = ["bad", "field", "load_json", "read_text", "task_attributes", "task_graph"]

_TYPE_NAME = {dict: "an object", list: "an array", str: "a string", (int, float): "a number"}


def bad(place: str, expected: str, got: object) -> FileFormatError:
    """The error for `place`, which is ``file:line`` or ``file: at $.json.path``."""
    return FileFormatError(f"{place}: expected {expected}, got {got}")


def read_text(path: str | Path) -> str:
    """The file as text in UTF-8, with or without a byte-order mark."""
    data = Path(path).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise bad(f"{path}:{line}", "text in UTF-8", f"byte 0x{data[error.start]:02x}") from error


def task_graph(
    nodes: Mapping[Hashable, dict[str, Any]],
    edges: Sequence[tuple[Hashable, Hashable]],
    source: str,
    *,
    name: object = None,
    time_unit: object = None,
) -> TaskGraph:
    """The graph of `nodes`, name to attributes as `TaskGraph.from_networkx` reads them, and named `edges`.

    Duplicate edges are merged with one `UserWarning`. The name defaults to the stem of `source`.
    """
    if extra := len(edges) - len(set(edges)):
        seen: set[tuple[Hashable, Hashable]] = set()
        first, second = next(edge for edge in edges if edge in seen or seen.add(edge))
        plural = "s" * (extra > 1)
        warnings.warn(f"{source}: merged {extra} duplicate edge{plural}, first {first} -> {second}", stacklevel=3)
    G = nx.DiGraph()
    G.add_nodes_from(nodes.items())
    G.add_edges_from(edges)
    try:
        return TaskGraph.from_networkx(G, name=str(name or Path(source).stem), time_unit=str(time_unit or "us"))
    except GraphError as error:
        raise FileFormatError(f"{source}: {error}") from error


def task_attributes(raw: dict[str, Any], place: str) -> dict[str, Any]:
    """The attributes that `TaskGraph.from_networkx` reads, from the untyped ones of a file.

    `cost` falls back to `weight`; numbers may be text; `args` may be text such as "2, 1" or "(2, 1)".
    """
    attributes = {key: raw[key] for key in ("kind", "label", "args") if key in raw}
    for key, given in (("cost", "cost" if "cost" in raw else "weight"), ("priority", "priority")):
        if given in raw:
            try:
                attributes[key] = float(raw[given])
            except (TypeError, ValueError, OverflowError):
                raise bad(place, f"a number as {given}", repr(raw[given])) from None
    if "args" in raw:
        try:
            args = raw["args"]
            words = args.strip("()[] ").replace(",", " ").split() if isinstance(args, str) else args
            words = words if isinstance(words, list) else [words]
            attributes["args"] = [int(word) if isinstance(word, str) else operator.index(word) for word in words]
        except (TypeError, ValueError):
            raise bad(place, "up to four whole numbers as args", repr(raw["args"])) from None
    return attributes


def load_json(text: str, source: str) -> Any:
    """The JSON value of `text`; a syntax error names its line."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        got = text[error.pos : error.pos + 20].split("\n")[0] or "the end of the line"
        if error.pos >= len(text):
            got = "the end of the file"
        raise FileFormatError(f"{source}:{error.lineno}: expected JSON, got {got!r} ({error.msg})") from error
    except RecursionError as error:
        raise FileFormatError(f"{source}: expected JSON, got arrays or objects nested too deeply") from error


def field(parent: Any, key: str, kind: type | tuple[type, ...], path: str, source: str) -> Any:
    """``parent[key]`` of that JSON type; the error names the JSON path."""
    if not isinstance(parent, dict):
        raise bad(f"{source}: at {path}", "an object", type(parent).__name__)
    if key not in parent:
        raise bad(f"{source}: at {path}", f"the key {key!r}", f"only {', '.join(map(repr, parent)) or 'no keys'}")
    value = parent[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise bad(f"{source}: at {path}.{key}", _TYPE_NAME[kind], json.dumps(value)[:40])
    return value
