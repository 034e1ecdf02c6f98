"""The race check of the cpu executor: tasks that touch one region, one writing, with nothing to order them.

Vector clocks have a bit for each task: those that have finished, their writes seen, when a task starts. They
travel with events, readiness counts and queue slots, the way memory does on a device. Tasks of a worker's
list come after those before them in the list; tasks from a queue do not come after what their worker did
before, since another worker might as well have taken them. Regions are what tile kinds declare.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from etproto import layout as L
from etproto.errors import RunError
from etproto.executors.blocked import known_tasks
from etproto.executors.host_run import Body, HostRun
from etproto.executors.host_sync import ACQUIRE, BODY, BOTH, RELEASE
from etproto.kernels.decode import grid_of_task

__all__ = ["RaceCheck"]

COMPARED_BYTES = 1 << 18  # tensors up to this size are compared before and after each body


@dataclass(frozen=True)
class _Access:
    """Access to the box ``low <= x < high`` of a tensor; `declared` unless the kind leaves regions open."""

    tensor: str
    low: np.ndarray
    high: np.ndarray
    writes: bool
    accumulates: bool
    declared: bool

    @property
    def region(self) -> tuple[slice, ...]:
        """The box as an index."""
        return tuple(slice(low, high) for low, high in zip(self.low.tolist(), self.high.tolist(), strict=True))


@dataclass
class _History:
    """Accesses to one tensor so far, in rows that double when they are full."""

    box: np.ndarray
    who: list[tuple[int, _Access]] = field(default_factory=list)

    def add(self, order: int, access: _Access) -> None:
        if len(self.who) == self.box.shape[1]:
            self.box = np.concatenate([self.box, np.zeros_like(self.box)], axis=1)
        self.box[:, len(self.who)] = access.low, access.high
        self.who.append((order, access))

    def conflicts(self, access: _Access) -> Iterator[tuple[int, _Access]]:
        """Earlier accesses to the same region, unless both only read or both accumulate."""
        low, high = self.box[:, : len(self.who)]
        for row in np.flatnonzero(((low < access.high) & (access.low < high)).all(axis=1)).tolist():
            order, other = self.who[row]
            if (access.writes or other.writes) and not (access.accumulates and other.accumulates):
                yield order, other


class RaceCheck:
    """Watches one run: `observe` takes its steps and calls bodies, `finish` tells what shows at the end."""

    def __init__(self, run: HostRun) -> None:
        self._run = run
        self._order: list[int] = []  # task ids in the order in which they ran; positions are bits of clocks
        self._task = [-1] * run.workers
        self._clock = [0] * run.workers  # of the task that each worker has
        self._listed = [0] * run.workers  # of the tasks of its list so far
        self._at: dict[tuple[str, int], int] = {}
        self._history: dict[str, _History] = {}
        self._written = {
            name: np.zeros(run.tensors[name].shape, bool) for name, modes in _modes(run).items() if modes == {"out"}
        }
        self._unwritten: list[tuple[int, str, str]] = []

    def observe(self, me: int, what: str, key: Any) -> None:
        """Take one step of worker `me` into account; for BODY, call it.

        Raises
        ------
        RunError
            The body's task races with an earlier one, or the body wrote outside its declared writes.
        """
        task = self._run.states[me][L.STATE_TASK]
        if task != self._task[me]:
            self._task[me] = task
            if task < 0 or not self._is_queued(task):
                self._clock[me] = self._listed[me]
        if what == BODY:
            self._run_body(me, key)
        elif what == ACQUIRE:
            if key[0] == "slot":
                self._clock[me] = 0
            self._clock[me] |= self._at.get(key, 0)
            if task < 0 and key[0] == "event":  # a gate in the worker's list
                self._listed[me] = self._clock[me]
        elif what in (RELEASE, BOTH):
            self._at[key] = self._clock[me] | (0 if key[0] == "slot" else self._at.get(key, 0))
            if what == BOTH:
                self._clock[me] = self._at[key]

    def finish(self) -> None:
        """Report reads of regions that no task had written, where no race was found to be the reason.

        Raises
        ------
        RunError
            Naming the first such task and region.
        """
        if self._unwritten:
            task, region, missing = self._unwritten[0]
            raise RunError(
                f"{self._run.lowered.name}: read of an unwritten region: {self._name(task)} reads {region},"
                f" but no task has written {missing} before"
            )

    def _is_queued(self, task: int) -> bool:
        return self._run.queue_of(grid_of_task(self._run.words, task)) >= 0

    def _name(self, task: int) -> str:
        return known_tasks(self._run.lowered, self._run.tensors).name(task)

    def _run_body(self, me: int, body: Body) -> None:
        accesses = list(_accesses(body))
        order = len(self._order)
        self._order.append(body.task)
        for access in accesses:
            history = self._history.setdefault(access.tensor, _History(np.zeros((2, 8, len(access.low)), np.int64)))
            for earlier, other in history.conflicts(access):
                if earlier != order and not self._clock[me] >> earlier & 1:
                    self._raise_race(self._order[earlier], other, body.task, access)
            history.add(order, access)
            self._follow_writes(body.task, access)
        before = {
            name: array.copy()
            for name, array in zip(body.tensors, body.operands, strict=True)
            if name is not None and array.nbytes <= COMPARED_BYTES
        }
        body()
        for name, old in before.items():
            self._require_declared(body.task, name, old, [a for a in accesses if a.tensor == name and a.writes])
        self._clock[me] |= 1 << order
        if not self._is_queued(body.task):
            self._listed[me] = self._clock[me]

    def _raise_race(self, first: int, earlier: _Access, second: int, later: _Access) -> None:
        low, high = np.maximum(earlier.low, later.low), np.minimum(earlier.high, later.high)
        one, two = (f"{self._name(task)} {_verb(access)}" for task, access in ((first, earlier), (second, later)))
        note = "" if earlier.declared and later.declared else " (a kind that declares no regions touches everything)"
        raise RunError(
            f"{self._run.lowered.name}: race on {_text(later.tensor, low, high)}: {one} it, {two} it, and no"
            f" event path orders them{note}"
        )

    def _follow_writes(self, task: int, access: _Access) -> None:
        written = self._written.get(access.tensor)
        if written is None:
            return
        if access.writes:
            written[access.region] = True
        elif access.declared and not written[access.region].all():
            missing = _bounds(~written[access.region], access.low)
            region = _text(access.tensor, access.low, access.high)
            self._unwritten.append((task, region, _text(access.tensor, *missing)))

    def _require_declared(self, task: int, name: str, old: np.ndarray, writes: list[_Access]) -> None:
        word = np.dtype(f"u{old.itemsize}")  # compares NaNs too
        changed = old.view(word) != self._run.tensors[name].view(word)
        for access in writes:
            changed[access.region] = False
        if changed.any():
            declared = ", ".join(_text(name, access.low, access.high) for access in writes) or "none"
            raise RunError(
                f"{self._run.lowered.name}: {self._name(task)} wrote {_text(name, *_bounds(changed, 0))},"
                f" outside of the writes that its kind declares: {declared}"
            )


def _modes(run: HostRun) -> dict[str, set[str]]:
    """Modes of the operands through which each tensor is written."""
    words, found = run.words, []
    for number in range(words[L.HEADER_GRID_COUNT]):
        grid = words[L.HEADER_GRIDS] + number * L.GRID_WORDS
        if words[grid + L.GRID_SOURCE] == L.SOURCE_FORMULA:
            found.append((words[grid + L.GRID_KIND], words[grid + L.GRID_OPERANDS]))
        else:
            first = words[L.HEADER_TABLE_OPERANDS]
            found += [(kind, words[first + kind]) for kind in range(len(run.lowered.kinds))]
    modes: dict[str, set[str]] = {}
    for number, at in found:
        kind = run.lowered.kinds[number]
        for operand, name in zip(kind.operands, run.bind(kind, at)[1], strict=True):
            if name is not None and operand.writes:
                modes.setdefault(name, set()).add(operand.mode)
    return modes


def _accesses(body: Body) -> Iterator[_Access]:
    """What a task is declared to read, then what to write; the whole of each operand by default."""
    for word, touches in (("reads", ("in", "inout")), ("writes", ("out", "inout", "accumulate"))):
        function = getattr(body.kind, word)
        regions = None if function is None else function(*body.coordinate, *body.operands)
        for operand, name, array in zip(body.kind.operands, body.tensors, body.operands, strict=True):
            if name is None or operand.mode not in touches or (regions is not None and operand.name not in regions):
                continue
            region = None if regions is None else regions[operand.name]
            low, high = _box(region, array.shape)
            if (low < high).all():
                yield _Access(name, low, high, word == "writes", operand.mode == "accumulate", regions is not None)


def _box(region: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of a region, clipped as Python clips slices; None is the whole tensor, a number one element."""
    parts = () if region is None else region if isinstance(region, tuple) else (region,)
    parts = [part if isinstance(part, slice) else slice(part, part + 1) for part in parts]
    parts += [slice(None)] * (len(shape) - len(parts))
    bounds = np.array([part.indices(extent)[:2] for part, extent in zip(parts, shape, strict=True)], np.int64)
    return bounds[:, 0], bounds[:, 1]


def _bounds(mask: np.ndarray, offset: Any) -> tuple[np.ndarray, np.ndarray]:
    """Smallest box that holds all set elements of a mask whose first element is at `offset`."""
    places = np.argwhere(mask)
    return places.min(axis=0) + offset, places.max(axis=0) + 1 + offset


def _verb(access: _Access) -> str:
    return "accumulates into" if access.accumulates else "writes" if access.writes else "reads"


def _text(tensor: str, low: np.ndarray, high: np.ndarray) -> str:
    parts = [f"{a}" if b == a + 1 else f"{a}:{b}" for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    return f"{tensor}[{', '.join(parts)}]"
