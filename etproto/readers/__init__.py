"""Readers of task-graph files, one module a format: `read(path)` and a pure `parse(text, source)`."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

from etproto.errors import FileFormatError
from etproto.graph import TaskGraph
from etproto.readers import dagbench, dot, graphml, node_link, stg, wfformat
from etproto.readers.common import load_json, read_text

__all__ = ["read_graph", "read_stg_archive"]

_BY_SUFFIX = {
    ".stg": stg.read,
    ".dot": dot.read,
    ".gv": dot.read,
    ".graphml": graphml.read,
    ".npz": TaskGraph.load,
}


def read_graph(path: str | Path) -> TaskGraph:
    """Read a task graph from a file of any known format.

    The suffix decides: ``.stg``, ``.dot`` or ``.gv``, ``.graphml``, ``.npz`` (`TaskGraph.save`); in a
    ``.json`` file the keys do: "workflow" is WfFormat, "task_graph" DAGBench, "nodes" with "links" or "edges"
    node-link.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    TaskGraph
        Possibly cyclic; see `TaskGraph.require_valid`. Duplicate edges are merged with a `UserWarning`.

    Raises
    ------
    FileFormatError
        If the format is unknown, or the file does not hold what its format promises.
    OSError
        If the file cannot be opened.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        return _parse_json(read_text(path), str(path))
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix](path)
    raise FileFormatError(
        f"{path}: expected a name that ends in .json, {', '.join(_BY_SUFFIX)}, got {suffix or 'no suffix'!r}"
        " (read_stg_archive reads a tar archive of STG files)"
    )


def read_stg_archive(path: str | Path) -> Iterator[TaskGraph]:
    """Read every ``.stg`` member of a tar archive, in its order, without unpacking anything to disk.

    Parameters
    ----------
    path : str or Path
        A tar file, compressed or not.

    Yields
    ------
    TaskGraph
        Named by its member, such as ``50/rand0000.stg``.

    Raises
    ------
    FileFormatError
        If the file is not a tar archive, or a member is not an STG file.
    """
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith(".stg"):
                    text = archive.extractfile(member).read().decode(errors="replace")
                    yield stg.parse(text, f"{path}::{member.name}", name=member.name)
    except (tarfile.TarError, EOFError) as error:
        raise FileFormatError(f"{path}: expected a tar archive, got {error}") from error


def _parse_json(text: str, source: str) -> TaskGraph:
    data = load_json(text, source)
    keys = set(data) if isinstance(data, dict) else set()
    got = ", ".join(sorted(map(repr, keys))) or type(data).__name__
    if "workflow" in keys:
        return wfformat.parse(text, source)
    if "task_graph" in keys:
        return dagbench.parse(text, source)
    if "nodes" in keys and keys & {"links", "edges"}:
        return node_link.parse(text, source)
    raise FileFormatError(
        f'{source}: at $: expected one of the keys "workflow" (WfFormat), "task_graph" (DAGBench) or "nodes"'
        f' with "links" or "edges" (node-link), got {got}'
    )
