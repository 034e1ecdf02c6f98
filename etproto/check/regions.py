"""Regions that tasks touch: unordered writers, reads that race with a write, reads of unwritten tiles.

Regions are those that tile kinds declare; a kind that declares none counts as touching the whole of its
operands, and what is then found is a warning. Kinds whose regions depend on data are left to the cpu
executor's race check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from etproto.cells import cell_name
from etproto.check.happens_before import LIMIT, happens_before
from etproto.check.naming import SHOWN
from etproto.errors import ProgramError
from etproto.expand import operand_values
from etproto.program import Grid, Instance, Program, Tensor
from etproto.tasks import TaskArrays

__all__ = ["check_regions", "writing_rows"]

_MOST_BOXES = 256  # boxes that one read is compared with exactly


@dataclass(frozen=True)
class _Accesses:
    """What tasks do with one tensor: n accesses, each of a box ``low <= x < high`` (int64[n, d])."""

    row: np.ndarray
    low: np.ndarray
    high: np.ndarray
    reads: np.ndarray
    writes: np.ndarray
    accumulates: np.ndarray
    declared: np.ndarray


def check_regions(
    instance: Instance, tasks: TaskArrays, tensors: Mapping[str, Any] | None = None
) -> tuple[list[str], list[str]]:
    """Errors and warnings about the regions that tasks touch.

    Parameters
    ----------
    instance : Instance
    tasks : TaskArrays
        Its tasks, without cyclic dependences.
    tensors : mapping, optional
        Arrays to give to the tile kinds' `reads` and `writes`; others are stood in for by their shapes.
    """
    if tasks.count > LIMIT:
        return [], [
            f"{instance}: regions are not checked for races: {tasks.count} tasks, at most {LIMIT} are;"
            f" bind smaller sizes"
        ]
    try:
        accesses = _all_accesses(instance, tasks, tensors or {})
    except ProgramError as fault:
        return [str(fault)], []
    before = happens_before(tasks)
    errors: list[str] = []
    warnings: list[str] = []
    for tensor in instance.program.tensors:
        found = accesses.get(tensor.name)
        if found is None or not found.writes.any():
            continue  # never written: an input
        faults = [*_races(instance, tasks, tensor, found, before)]
        if _is_produced(instance.program, tensor.name):
            faults += _unwritten(tasks, tensor, found, before)
        for kept, declared in ((errors, True), (warnings, False)):
            texts = [text for text, sure in faults if sure == declared]
            kept += texts[:SHOWN]
            if len(texts) > SHOWN:
                kept.append(f"and {len(texts) - SHOWN} more faults of {tensor.name}")
    return errors, warnings


def writing_rows(instance: Instance, tasks: TaskArrays, tensor: str, tensors: Mapping[str, Any]) -> np.ndarray:
    """Rows of the tasks that may write a tensor: int64[k], ascending."""
    found = _all_accesses(instance, tasks, tensors).get(tensor)
    rows = np.empty(0, np.int64) if found is None else found.row[found.writes]
    unknown = [
        index
        for index, grid in enumerate(instance.program.parsed)
        if grid.kind.data_dependent and grid in instance.program.writers(tensor)
    ]
    return np.union1d(rows, np.flatnonzero(np.isin(tasks.grid, unknown)))


def _is_produced(program: Program, tensor: str) -> bool:
    """Whether all that write the tensor have it as a mere output: its earlier contents mean nothing."""
    return all(
        operand.mode == "out" and not grid.kind.data_dependent
        for grid in program.writers(tensor)
        for operand in grid.kind.operands
        if operand.writes and getattr(grid.operands[operand.name], "name", None) == tensor
    )


def _races(
    instance: Instance, tasks: TaskArrays, tensor: Tensor, found: _Accesses, before: np.ndarray
) -> Iterator[tuple[str, bool]]:
    """Unordered accesses to overlapping boxes, one of them a write; and whether both are declared."""
    told: set[tuple[int, int]] = set()
    writes = np.flatnonzero(found.writes).tolist()
    for second in writes:
        for first in _unordered(found, before, second, found.writes & (found.row > found.row[second])):
            one, two = int(found.row[second]), int(found.row[first])
            told.add((one, two))
            region = _overlap(tensor.name, found, first, second)
            text = f"unordered writers: {tasks.name(one)} and {tasks.name(two)} both write {region}"
            yield _with_note(text, found.declared[first] and found.declared[second])
    for write in writes:
        for read in _unordered(found, before, write, found.reads):
            writer, reader = int(found.row[write]), int(found.row[read])
            if (min(writer, reader), max(writer, reader)) in told:
                continue
            region = _overlap(tensor.name, found, read, write)
            text = f"unordered read: {tasks.name(reader)} reads {region}, which {tasks.name(writer)} writes,"
            text += f" and no event path orders them{_any_of(instance, tasks, writer, reader)}"
            yield _with_note(text, found.declared[read] and found.declared[write])


def _unordered(found: _Accesses, before: np.ndarray, write: int, among: np.ndarray) -> list[int]:
    """Accesses among some that overlap a write by another task, in no order with it."""
    row = found.row[write]
    others = among & ~before[row, found.row] & ~before[found.row, row] & (found.row != row)
    others &= ~(found.accumulates[write] & found.accumulates)
    others[others] = _touches(found, others, found.low[write], found.high[write])
    return np.flatnonzero(others).tolist()


def _touches(found: _Accesses, among: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Which of the accesses selected by `among` (a mask or indices) overlap a box."""
    return ((found.low[among] < high) & (low < found.high[among])).all(axis=1)


def _overlap(tensor: str, found: _Accesses, first: int, second: int) -> str:
    low = np.maximum(found.low[first], found.low[second])
    return _region(tensor, low, np.minimum(found.high[first], found.high[second]))


def _any_of(instance: Instance, tasks: TaskArrays, writer: int, reader: int) -> str:
    """Note that reader and writer meet in an event that any one of its notifiers satisfies, if they do."""
    notified = tasks.notify_event[tasks.notify_ptr[writer] : tasks.notify_ptr[writer + 1]]
    awaited = tasks.wait_event[tasks.wait_ptr[reader] : tasks.wait_ptr[reader + 1]]
    for event in np.intersect1d(notified, awaited).tolist():
        name = cell_name(instance, event)
        if next(e for e in instance.program.events if e.name == name.partition("[")[0]).any_of:
            return (
                f" (event {name} is any_of: {tasks.name(reader)} may start after any one notification, so it"
                f" may touch no notifier's region)"
            )
    return ""


def _unwritten(tasks: TaskArrays, tensor: Tensor, found: _Accesses, before: np.ndarray) -> Iterator[tuple[str, bool]]:
    """Reads of boxes that tasks ordered before have not wholly written, unless the reason is a race."""
    for read in np.flatnonzero(found.reads).tolist():
        row, box = found.row[read], (found.low[read], found.high[read])
        touching = found.writes & (found.row != row)
        touching[touching] = _touches(found, touching, *box)
        ordered, after = touching & before[row, found.row], touching & before[found.row, row]
        if (touching & ~ordered & ~after).any():
            continue
        missing = _not_covered(box, found.low[ordered], found.high[ordered])
        if missing is None:
            continue
        text = f"read of an unwritten tile: {tasks.name(int(row))} reads {_region(tensor.name, *box)}, but"
        text += f" {_region(tensor.name, *missing)}"
        later = np.flatnonzero(after)
        later = later[_touches(found, later, *missing)]
        if len(later):
            text += f" is written only after it, by {tasks.name(int(found.row[later[0]]))}"
        else:
            text += " is written by no task"
        text += f" (declare the operand that writes {tensor.name} inout if its earlier contents are meant)"
        yield _with_note(text, found.declared[read] and found.declared[found.writes].all())


def _with_note(text: str, declared: bool) -> tuple[str, bool]:
    note = "" if declared else " (a tile kind that declares no regions counts as touching everything)"
    return text + note, bool(declared)


def _not_covered(
    box: tuple[np.ndarray, np.ndarray], lows: np.ndarray, highs: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """A part of the box that no box covers, or None. Of very many boxes only the volume is compared."""
    low, high = box
    clipped = np.unique(np.stack([np.maximum(lows, low), np.minimum(highs, high)], axis=1), axis=0)
    volume = np.prod(high - low)
    if len(clipped) > _MOST_BOXES and np.prod(clipped[:, 1] - clipped[:, 0], axis=1).sum() >= volume:
        return None
    left = [box] if volume > 0 else []
    for cut_low, cut_high in clipped:
        left = [piece for part in left for piece in _subtract(part, cut_low, cut_high)]
        if not left:
            return None
    return left[0] if left else None


def _subtract(
    box: tuple[np.ndarray, np.ndarray], cut_low: np.ndarray, cut_high: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The box without another one, as disjoint boxes."""
    low, high = box[0].copy(), box[1].copy()
    if not ((low < cut_high) & (cut_low < high)).all():
        yield box
        return
    for axis in range(len(low)):
        if low[axis] < cut_low[axis]:
            below = high.copy()
            below[axis] = cut_low[axis]
            yield low.copy(), below
            low[axis] = cut_low[axis]
        if high[axis] > cut_high[axis]:
            above = low.copy()
            above[axis] = cut_high[axis]
            yield above, high.copy()
            high[axis] = cut_high[axis]


def _all_accesses(instance: Instance, tasks: TaskArrays, tensors: Mapping[str, Any]) -> dict[str, _Accesses]:
    """Accesses by tensor name."""
    lists: dict[str, list[tuple]] = {}
    for index, grid in enumerate(instance.program.parsed):
        if grid.kind.data_dependent:
            continue
        operands = operand_values(instance, grid, tensors)
        for row in np.flatnonzero(tasks.grid == index).tolist():
            coordinate = tasks.coordinate[row, : grid.ndim].tolist()
            for name, box, reads, writes, accumulates, declared in _accesses(
                instance, grid, tasks.name(row), coordinate, operands
            ):
                lists.setdefault(name, []).append((row, *box, reads, writes, accumulates, declared))
    result = {}
    for name, entries in lists.items():
        row, low, high, *flags = zip(*entries, strict=True)
        result[name] = _Accesses(
            np.array(row),
            np.array(low, np.int64),
            np.array(high, np.int64),
            *(np.array(flag, bool) for flag in flags),
        )
    return result


def _accesses(instance: Instance, grid: Grid, task: str, coordinate: list[int], operands: list[Any]) -> Iterator[tuple]:
    """(tensor, box, reads, writes, accumulates, declared) of one task; empty boxes are left out."""
    declared = {
        word: None if function is None else _call(grid, word, task, function, coordinate, operands)
        for word, function in (("reads", grid.kind.reads), ("writes", grid.kind.writes))
    }
    for operand in grid.kind.operands:
        tensor = grid.operands[operand.name]
        if not isinstance(tensor, Tensor):
            continue
        shape = instance.shape(tensor)
        for word, touched in (("reads", operand.mode in ("in", "inout")), ("writes", operand.writes)):
            regions = declared[word]
            if not touched or (regions is not None and operand.name not in regions):
                continue
            region = None if regions is None else regions[operand.name]
            box = _box(region, shape, f"tile kind {grid.kind.name}: {word} of {task}, operand {operand.name}")
            if (box[0] < box[1]).all():
                kind = (word == "reads", word == "writes", operand.mode == "accumulate")
                yield tensor.name, box, *kind, regions is not None


def _call(grid: Grid, word: str, task: str, function: Any, coordinate: list[int], operands: list[Any]) -> dict:
    where = f"tile kind {grid.kind.name}: {word} of {task}"
    try:
        regions = function(*coordinate, *operands)
    except Exception as fault:  # the callable is the user's; a check reports what it does, whatever that is
        raise ProgramError(f"{where} raised {type(fault).__name__}: {fault}") from fault
    known = [operand.name for operand in grid.kind.operands]
    if not isinstance(regions, Mapping) or not set(regions) <= set(known):
        raise ProgramError(f"{where}: expected regions of operands {', '.join(known)}, got {regions!r}")
    return dict(regions)


def _box(region: Any, shape: tuple[int, ...], where: str) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of a region, clipped to the tensor as Python clips slices; None is the whole tensor."""
    parts = () if region is None else region if isinstance(region, tuple) else (region,)
    if len(parts) > len(shape):
        raise ProgramError(f"{where}: expected at most {len(shape)} slices, got {region!r}")
    bounds = []
    for part, extent in zip(parts, shape, strict=False):
        if isinstance(part, (int, np.integer)) and not isinstance(part, bool):
            part = slice(part, part + 1)
        if not isinstance(part, slice) or part.step not in (None, 1):
            raise ProgramError(f"{where}: expected slices without a step, got {region!r}")
        bounds.append(part.indices(extent)[:2])
    bounds += [(0, extent) for extent in shape[len(parts) :]]
    return np.array([low for low, _ in bounds], np.int64), np.array([high for _, high in bounds], np.int64)


def _region(tensor: str, low: np.ndarray, high: np.ndarray) -> str:
    return f"{tensor}[{', '.join(f'{a}:{b}' for a, b in zip(low.tolist(), high.tolist(), strict=True))}]"
