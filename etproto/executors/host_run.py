"""What the workers of one run on the cpu executor share: the arrays of `etproto.layout`."""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from etproto import layout as L
from etproto.kernels.decode import grid_count
from etproto.lowering import Lowered
from etproto.scheduled import Scheduled
from etproto.tile_kind import TileKind

__all__ = ["Body", "HostRun", "start_run"]


@dataclass(frozen=True)
class Body:
    """A task's body, ready to be called.

    Parameters
    ----------
    task : int
        Its id.
    kind : TileKind
    coordinate : tuple of int
        As many as the kind takes.
    argument : tuple of int
        The table row's argument, if the kind takes it.
    operands : tuple
        NumPy arrays, integers for scalar operands.
    tensors : tuple of (str or None)
        Name of the tensor behind each operand.
    """

    task: int
    kind: TileKind
    coordinate: tuple[int, ...]
    argument: tuple[int, ...]
    operands: tuple[Any, ...]
    tensors: tuple[str | None, ...]

    def __call__(self) -> None:
        """Run the kind's reference."""
        self.kind.reference(*self.coordinate, *self.argument, *self.operands)


@dataclass
class HostRun:
    """One run: the fields of the launch block, as lists and `array.array`, which Python reads fastest.

    `spans` holds (span, worker, task, start, end), `ran` how often each task has run; `dropped` counts
    spans beyond `span_capacity` of a worker.
    """

    lowered: Lowered
    tensors: Mapping[str, np.ndarray]
    words: list[int]
    pointers: list[int]
    counters: array[int]
    control: list[int]
    slots: array[int]
    states: list[list[int]]
    queue_grid: list[int]
    queue_first: list[int]
    queue_capacity: list[int]
    grid_queue: list[int]
    worker_ptr: list[int]
    worker_task: list[int]
    entries: list[list[int]]
    initial: list[list[int]]
    early: bool
    span_capacity: int
    ran: array[int]
    spans: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    dropped: int = 0
    clock: Any = time.perf_counter_ns
    _span_count: list[int] = field(default_factory=list)
    _operands: dict[tuple[int, int], tuple[tuple[Any, ...], tuple[str | None, ...]]] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self.states)

    @property
    def status(self) -> int:
        """The run's status word."""
        return self.control[L.CONTROL_STATUS]

    @property
    def finished(self) -> int:
        """Tasks finished by all workers."""
        return sum(state[L.STATE_FINISHED] for state in self.states)

    @property
    def ends_when_none_live(self) -> bool:
        """Whether the run ends when no live task is left: so it does when one queue feeds every grid."""
        return len(self.queue_grid) > 0 and self.queue_grid[0] < 0

    def queue_of(self, grid: int) -> int:
        """Queue that feeds the grid whose record is at word `grid`; -1 if none does."""
        return self.grid_queue[(grid - self.words[L.HEADER_GRIDS]) // L.GRID_WORDS]

    def span(self, worker: int, span: int, task: int, start: int, end: int) -> None:
        """Keep a trace record; past the capacity it is only counted."""
        if self._span_count[worker] < self.span_capacity:
            self.spans.append((span, worker, task, start, end))
        elif self.span_capacity:
            self.dropped += 1
        self._span_count[worker] += 1

    def body(self, task: int, grid: int, coordinate: tuple[int, ...]) -> Body:
        """The body of a task of the grid whose record is at word `grid`."""
        words = self.words
        kind, operand, argument = words[grid + L.GRID_KIND], words[grid + L.GRID_OPERANDS], 0
        if words[grid + L.GRID_SOURCE] == L.SOURCE_TABLE:
            row = task - words[grid + L.GRID_FIRST] + words[grid + L.GRID_TABLE_ROW]
            table = self.lowered.buffers[words[L.HEADER_TASK_TABLE]].contents
            kind, argument = (int(table[row * L.TASK_WORDS + word]) for word in (L.TASK_KIND, L.TASK_ARGUMENT))
            operand = words[words[L.HEADER_TABLE_OPERANDS] + kind]
        tile_kind = self.lowered.kinds[kind]
        key = kind, operand  # records of a kind without operands are those of the next grid
        if key not in self._operands:
            self._operands[key] = self.bind(tile_kind, operand)
        given = (argument,) if tile_kind.argument else ()
        return Body(task, tile_kind, tuple(coordinate[: tile_kind.coordinates]), given, *self._operands[key])

    def bind(self, kind: TileKind, at: int) -> tuple[tuple[Any, ...], tuple[str | None, ...]]:
        """Operands of the record at word `at`, and the names of their tensors."""
        values: list[Any] = []
        names: list[str | None] = []
        for operand in kind.operands:
            value = self.words[at + L.OPERAND_BUFFER]
            names.append(self.lowered.buffers[value].name if operand.ndim else None)
            values.append(self.tensors[names[-1]] if operand.ndim else value)
            at += L.OPERAND_WORDS
        return tuple(values), tuple(names)


def start_run(scheduled: Scheduled, tensors: Mapping[str, np.ndarray], span_capacity: int) -> HostRun:
    """A run before its first step: what the reset kernel does on a device."""
    lowered, workers, queues = scheduled.lowered, scheduled.workers, len(scheduled.queue_grid)
    arrays = [tensors[buffer.name] if buffer.contents is None else buffer.contents for buffer in lowered.buffers]
    capacity = np.asarray(scheduled.queue_capacity, np.int64)
    run = HostRun(
        lowered=lowered,
        tensors=tensors,
        words=lowered.resolved_words().tolist(),
        pointers=[used.ctypes.data for used in arrays],
        counters=array("i", [0]) * (2 * lowered.cells + lowered.tasks if queues else lowered.cells),
        control=[0] * (L.CONTROL_QUEUES + queues * L.QUEUE_WORDS),
        slots=array("q", [-1]) * int(capacity.sum()),
        states=[[0, -1, L.PHASE_IDLE, -1] for _ in range(workers)],
        queue_grid=scheduled.queue_grid.tolist(),
        queue_first=(np.cumsum(capacity) - capacity).tolist(),
        queue_capacity=capacity.tolist(),
        grid_queue=scheduled.grid_queue.tolist(),
        worker_ptr=scheduled.worker_ptr.tolist(),
        worker_task=scheduled.worker_task.tolist(),
        entries=scheduled.entries.tolist(),
        initial=scheduled.initial_queue.tolist(),
        early=scheduled.early_push,
        span_capacity=span_capacity,
        ran=array("i", [0]) * lowered.tasks,
        _span_count=[0] * workers,
    )
    run.control[L.CONTROL_EPOCH] = 1
    run.control[L.CONTROL_LIVE] = 1  # given back by worker 0 when its own pushes are done
    for queue, grid_number, most in run.initial:
        if queue >= 0:
            _fill(run, queue, run.words[L.HEADER_GRIDS] + grid_number * L.GRID_WORDS, most)
    return run


def _fill(run: HostRun, queue: int, grid: int, most: int) -> None:
    """Queue the first `most` tasks of a grid (-1: all)."""
    tail = L.CONTROL_QUEUES + queue * L.QUEUE_WORDS + L.QUEUE_TAIL
    filled, capacity = run.control[tail], run.queue_capacity[queue]
    count = grid_count(run.words, run.pointers, grid)
    count = count if most < 0 else min(count, most)
    if filled + count > capacity:
        run.control[L.CONTROL_STATUS] = L.STATUS_QUEUE_FULL
        run.control[L.CONTROL_ERROR : L.CONTROL_ERROR + 5] = [-1, -1, queue, filled + count, capacity]
    else:
        first = run.words[grid + L.GRID_FIRST]
        at = run.queue_first[queue] + filled
        run.slots[at : at + count] = array("q", range(first, first + count))
        run.control[tail] += count
        run.control[L.CONTROL_LIVE] += count
