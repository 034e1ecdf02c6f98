"""Standard Task Graph Set (STG) files.

The format, by T. Tobita and H. Kasahara, "A standard task graph set for fair evaluation of multiprocessor
scheduling algorithms", Journal of Scheduling 5(5):379-394, 2002: a header, one row a task (its id, cost,
number of predecessors, their ids), and a comment block. Dialects that exist and are read:

- standard: the header n leaves out the entry and exit dummies, so there are n + 2 rows with ids from 0;
- edited copies: n counts every row;
- prototype set: the header is ``n processors``, ids start at 1, there is no entry dummy: n rows, or n + 1
  with the exit dummy.

The comment block may start on the last row's line. What it says of tasks, edges and critical path is checked.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from etproto.errors import GraphError
from etproto.graph import TaskGraph
from etproto.readers.common import bad, read_text, task_graph

__all__ = ["parse", "read"]

_TASKS = re.compile(r"#\s*Tasks\s*:\s*(\d+)(?:\s*\(\+dummy tasks\s*:\s*(\d+)\))?")
_EDGES = re.compile(r"#\s*Edges\s*:\s*(\d+)(?:\s*/\s*\d+)?(?:\s*\(\+dummy edges\s*:\s*(\d+)\))?")
_LENGTH = re.compile(r"#\s*CP Length\s*:\s*([\d.]+)")


def read(path: str | Path) -> TaskGraph:
    """Read an STG file; see `parse`."""
    return parse(read_text(path), str(path))


def parse(text: str, source: str, *, name: str | None = None) -> TaskGraph:
    r"""Parse the text of an STG file.

    Parameters
    ----------
    text : str
        The whole file.
    source : str
        Where it came from, for messages; its stem is the graph's name unless `name` is given.

    Returns
    -------
    TaskGraph
        Tasks are named by their ids (int), zero-cost dummies included. Times are abstract ("unit").

    Raises
    ------
    FileFormatError
        If a row does not read as said above, or the comment block says otherwise.

    Examples
    --------
    >>> print(parse("2\n0 0 0\n1 5 1 0\n2 7 1 1\n3 0 1 2 # CP Length : 12", "tiny.stg"))
    tiny: 4 tasks (task 4), 3 edges, critical path 12 unit
    """
    lines = text.splitlines()
    rows = [(number, line.partition("#")[0].split()) for number, line in enumerate(lines, 1)]
    rows = [(number, words) for number, words in rows if words]
    if not rows:
        raise bad(f"{source}:1", "a header with the number of tasks", "no row at all")
    (header_line, header), rows = rows[0], rows[1:]
    if len(header) > 2:
        raise bad(f"{source}:{header_line}", "a header of one number, or two in the prototype set", " ".join(header))
    declared = _whole(header[0], f"{source}:{header_line}", "the number of tasks")
    prototype = len(header) == 2
    allowed = (declared, declared + 1) if prototype else (declared + 2, declared)
    if len(rows) not in allowed:
        last = rows[-1][0] if rows else header_line
        raise bad(f"{source}:{last}", f"{allowed[0]} or {allowed[1]} rows after the header {declared}", len(rows))

    nodes, edges, first = {}, [], int(prototype)
    for row, (number, words) in enumerate(rows):
        place = f"{source}:{number}"
        if len(words) < 3:
            raise bad(place, "a row of id, cost, number of predecessors and their ids", " ".join(words))
        if _whole(words[0], place, "a task id") != row + first:
            raise bad(place, f"task id {row + first}", words[0])
        nodes[row + first] = {"cost": _cost(words[1], place)}
        if _whole(words[2], place, "the number of predecessors") != len(words) - 3:
            raise bad(place, f"{words[2]} predecessors", len(words) - 3)
        for word in words[3:]:
            predecessor = _whole(word, place, "a predecessor's id")
            if not first <= predecessor < len(rows) + first:
                raise bad(place, f"a predecessor's id from {first} to {len(rows) - 1 + first}", word)
            edges.append((predecessor, row + first))
    graph = task_graph(nodes, edges, source, name=name, time_unit="unit")
    _check_comments(graph, lines, len(edges), source)
    return graph


def _check_comments(graph: TaskGraph, lines: list[str], edges: int, source: str) -> None:
    """Compare with the numbers of tasks and edges and the critical path that the comment block gives."""
    for number, line in enumerate(lines, 1):
        place = f"{source}:{number}"
        for pattern, what, found in ((_TASKS, "tasks", graph.count), (_EDGES, "edges", edges)):
            if (match := pattern.search(line)) and sum(int(part or 0) for part in match.groups()) != found:
                raise bad(place, f"{found} {what} as in the rows above", match[0].strip("# "))
        if match := _LENGTH.search(line):
            try:
                length = graph.critical_path()
            except GraphError:
                continue  # a cycle: counted here, named by require_valid
            if not math.isclose(length, float(match[1]), rel_tol=1e-6):
                raise bad(place, f"CP Length {length:g} as in the rows above", match[1])


def _whole(word: str, place: str, what: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise bad(place, f"{what} (a whole number)", word)
    return int(word)


def _cost(word: str, place: str) -> float:
    try:
        cost = float(word)
    except ValueError:
        cost = math.nan
    if not 0 <= cost < math.inf:
        raise bad(place, "a processing time >= 0", word)
    return cost
