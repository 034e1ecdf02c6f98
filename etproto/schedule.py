"""Who runs which task: `schedule` turns a lowered program into a `Scheduled`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from etproto import layout as L
from etproto.errors import ScheduleError
from etproto.expand import expand
from etproto.lowering import Lowered
from etproto.scheduled import (
    ENTRY_DRAIN,
    ENTRY_STRIDE,
    ENTRY_STRIDE_BOUND,
    PATTERN_ROUND_ROBIN,
    PATTERN_ZIGZAG,
    Scheduled,
)
from etproto.schedulers import find_policy

__all__ = ["SCHEDULES", "schedule"]

SCHEDULES = ("static", "device-static", "dynamic", "mixed", "auto")

MOST_WORKERS = 1 << 20

_PATTERNS = {"round_robin": PATTERN_ROUND_ROBIN, "zigzag": PATTERN_ZIGZAG}


def schedule(
    lowered: Lowered,
    kind: str = "auto",
    *,
    workers: int,
    policy: str = "round_robin",
    early_push: bool = False,
    queue_capacity: int | None = None,
    dynamic_grids: Sequence[str] | None = None,
) -> Scheduled:
    """Schedule a lowered program.

    Parameters
    ----------
    lowered : Lowered
    kind : {"static", "device-static", "dynamic", "mixed", "auto"}
        static: a list per worker. Policies that deal tasks out (round_robin, zigzag) are formulas, so nothing
        task-sized is built; grids whose extent is a run-time value are dealt out at their bound, and tasks that
        turn out not to exist are skipped.
        device-static: the same formulas over the run-time extents.
        dynamic: one queue for all grids, fed by triggers.
        mixed: `dynamic_grids` through queues of their own, the others static.
        auto: device-static where an extent is a run-time value, else static.
    workers : int
        Number of workers, at least 1.
    policy : str
        Order of the static part; one of `etproto.schedulers.POLICIES`.
    early_push : bool
        Push tasks when their producers have been dispatched, where that is safe (dynamic and mixed).
    queue_capacity : int, optional
        Slots of each queue, a power of two. Default: enough for every task.
    dynamic_grids : sequence of str, optional
        Grids that a mixed schedule feeds through queues. Default: those with run-time extents, or else the
        last one.

    Returns
    -------
    Scheduled

    Raises
    ------
    ScheduleError
        An unknown schedule, policy or grid; a worker count below 1; a grid that cannot be scheduled this way,
        and why.

    Examples
    --------
    >>> from etproto.lowering import lower
    >>> from etproto.models.splitk import program
    >>> scheduled = schedule(lower(program().bind(n=1000)), "static", workers=4)
    >>> scheduled.worker_task.tolist()
    [-1, -2, -1, -2, -1, -2, -1, -2]
    """
    if kind not in SCHEDULES:
        raise ScheduleError(f"schedule: expected one of {', '.join(SCHEDULES)}, got {kind!r}")
    if isinstance(workers, bool) or not isinstance(workers, (int, np.integer)) or workers < 1:
        raise ScheduleError(f"workers must be an integer of at least 1, got {workers!r}")
    if workers > MOST_WORKERS:
        raise ScheduleError(f"workers must be at most {MOST_WORKERS}, more than any device holds, got {workers}")
    find_policy(policy)
    if kind == "auto":
        kind = "device-static" if any(lowered.run_time_grids) else "static"
    grids = len(lowered.grid_name)
    queued = _queued_grids(lowered, kind, dynamic_grids)
    grid_queue = np.full(grids, -1, np.int32)
    if kind == "dynamic":
        grid_queue[:] = 0
        queue_grid = [-1]
    else:
        grid_queue[queued] = np.arange(len(queued))
        queue_grid = queued
    for grid in np.flatnonzero(grid_queue >= 0):
        _require_triggers(lowered, int(grid))
    if policy in _PATTERNS or kind in ("dynamic", "mixed"):
        worker_ptr, worker_task, entries = _formula_lists(lowered, kind, workers, policy, grid_queue)
    else:
        worker_ptr, worker_task = _planned_lists(lowered, workers, policy)
        entries = np.zeros((0, L.ENTRY_WORDS), np.int64)
    if len(queue_grid) == 0 and early_push:
        raise ScheduleError(f"early_push: a {kind} schedule pushes nothing; use dynamic or mixed")
    return Scheduled(
        lowered=lowered,
        schedule=kind,
        policy=policy,
        workers=int(workers),
        worker_ptr=worker_ptr,
        worker_task=worker_task,
        entries=entries,
        grid_queue=grid_queue,
        queue_grid=np.array(queue_grid, np.int32),
        queue_capacity=_capacities(lowered, grid_queue, len(queue_grid), queue_capacity),
        initial_queue=_initial(lowered, grid_queue) if len(queue_grid) else np.zeros((0, 3), np.int64),
        early_push=early_push,
    )


def _queued_grids(lowered: Lowered, kind: str, names: Sequence[str] | None) -> list[int]:
    if kind != "mixed":
        if names is not None:
            raise ScheduleError(f"dynamic_grids belong to a mixed schedule, got {list(names)} for {kind}")
        return []
    if names is None:
        run_time = [grid for grid, known in enumerate(lowered.run_time_grids) if known]
        return run_time or [len(lowered.grid_name) - 1]
    for name in names:
        if name not in lowered.grid_name:
            raise ScheduleError(f"dynamic_grids: no grid {name!r}; grids are {', '.join(lowered.grid_name)}")
    return [grid for grid, name in enumerate(lowered.grid_name) if name in names]


def _formula_lists(
    lowered: Lowered, kind: str, workers: int, policy: str, grid_queue: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same list of entries for every worker: grids in order, each a share or a drain."""
    if kind == "dynamic":
        entries = [(ENTRY_DRAIN, 0, 0, 0)]
    else:
        entries = []
        if kind == "mixed" and policy not in _PATTERNS:
            raise ScheduleError(
                f"policy {policy}: a mixed schedule deals its static grids out by round_robin or zigzag"
            )
        for grid, run_time in enumerate(lowered.run_time_grids):
            if grid_queue[grid] >= 0:
                entries.append((ENTRY_DRAIN, int(grid_queue[grid]), 0, 0))
            else:
                operation = ENTRY_STRIDE_BOUND if run_time and kind == "static" else ENTRY_STRIDE
                entries.append((operation, grid, _PATTERNS[policy], 0))
    worker_ptr = np.arange(workers + 1, dtype=np.int64) * len(entries)
    worker_task = np.tile(-1 - np.arange(len(entries), dtype=np.int32), workers)
    return worker_ptr, worker_task, np.array(entries, np.int64).reshape(-1, L.ENTRY_WORDS)


def _planned_lists(lowered: Lowered, workers: int, policy: str) -> tuple[np.ndarray, np.ndarray]:
    tasks = lowered.task_arrays
    if tasks is None:
        unknown = [name for name, known in zip(lowered.grid_name, lowered.run_time_grids, strict=True) if known]
        if unknown or lowered.instance is None:
            raise ScheduleError(
                f"policy {policy} plans with tasks known before the launch, but the extents of {', '.join(unknown)}"
                " are computed in it;"
                f" use round_robin or zigzag, or a dynamic schedule"
            )
        tasks = expand(lowered.instance)
    order = find_policy(policy)(tasks, workers)
    return order.worker_ptr.astype(np.int64), tasks.task[order.worker_row].astype(np.int32)


def _require_triggers(lowered: Lowered, grid: int) -> None:
    """Every wait of a queued grid must have a trigger record, or its tasks would never be pushed."""
    words = lowered.words
    record = words[L.HEADER_GRIDS] + grid * L.GRID_WORDS
    for number in range(words[record + L.GRID_WAIT_COUNT]):
        edge = words[L.HEADER_EDGES] + (words[record + L.GRID_WAIT_FIRST] + number) * L.EDGE_WORDS
        event = words[L.HEADER_EVENTS] + words[edge + L.EDGE_EVENT] * L.EVENT_WORDS
        first = words[event + L.EVENT_TRIGGER_FIRST]
        records = [
            words[L.HEADER_TRIGGERS] + (first + trigger) * L.TRIGGER_WORDS
            for trigger in range(words[event + L.EVENT_TRIGGER_COUNT])
        ]
        if not any(
            words[at + L.TRIGGER_GRID] == grid and words[at + L.TRIGGER_FORM] != L.TRIGGER_ZERO_CELLS for at in records
        ):
            instance = lowered.instance
            event_name = instance.program.events[words[edge + L.EDGE_EVENT]].name if instance else "graph"
            raise ScheduleError(
                f"{lowered.name}: grid {lowered.grid_name[grid]} cannot be fed by a queue: which of its tasks"
                f" {event_name} makes ready"
                f" does not follow from the wait's map; name them with triggers={{{event_name}: 'event -> low:high'}}"
            )


def _initial(lowered: Lowered, grid_queue: np.ndarray) -> np.ndarray:
    """What is ready before any task has run."""
    words = lowered.resolved_words()
    symbolic = set(lowered.patches[:, 0].tolist())
    rows = []
    for grid, queue in enumerate(grid_queue.tolist()):
        record = words[L.HEADER_GRIDS] + grid * L.GRID_WORDS
        first, count = words[record + L.GRID_WAIT_FIRST], words[record + L.GRID_WAIT_COUNT]
        edges = [words[L.HEADER_EDGES] + (first + number) * L.EDGE_WORDS for number in range(count)]
        if queue >= 0 and not any(words[edge + L.EDGE_TRIGGERS] for edge in edges):
            rows.append((queue, grid, -1))
        elif queue >= 0 and words[record + L.GRID_SOURCE] == L.SOURCE_TABLE:
            tasks = lowered.task_arrays
            roots = int((np.diff(tasks.wait_ptr) == 0).sum()) if tasks is not None else 0
            # rows are in topological order by levels, so the roots come first
            rows.append((queue, grid, roots))
        elif queue >= 0 and all(_may_be_empty(words, edge) for edge in edges if words[edge + L.EDGE_TRIGGERS]):
            rows.append((-2, grid, 0))
    for event in range(words[L.HEADER_EVENT_COUNT]):
        record = words[L.HEADER_EVENTS] + event * L.EVENT_WORDS
        form, need = words[record + L.EVENT_NEED_FORM], words[record + L.EVENT_NEED]
        cells = words[record + L.EVENT_CELLS]
        # A need that depends on a symbol is asked for again at each launch, so that rebinding changes no row.
        zero = form == L.NEED_SCALAR and (need == 0 or record + L.EVENT_NEED in symbolic)
        if form == L.NEED_RUNTIME and lowered.instance is not None:
            program = lowered.instance.program
            count = program.events[event].count
            zero = count is not None and not program.writers(count.name)  # an input: it may hold zeros
        if form == L.NEED_TABLE:
            contents = lowered.buffers[need].contents
            zero = contents is not None and bool((contents[:cells] == 0).any())
        if zero and words[record + L.EVENT_TRIGGER_COUNT]:
            rows.append((-1, event, 0))
    return np.array(rows, np.int64).reshape(-1, 3)


def _may_be_empty(words: np.ndarray, edge: int) -> bool:
    """Whether an edge may name no cell for some task: a clipped range, an empty list."""
    first, count = words[edge + L.EDGE_FIRST_DIMENSION], words[edge + L.EDGE_DIMENSIONS]
    forms = words[first + np.arange(count) * L.DIMENSION_WORDS + L.DIMENSION_FORM]
    return bool((forms != L.FORM_POINT).any())


def _capacities(lowered: Lowered, grid_queue: np.ndarray, queues: int, asked: int | None) -> np.ndarray:
    if asked is not None and (type(asked) is not int or not 1 <= asked <= 1 << 31 or asked & (asked - 1)):
        raise ScheduleError(f"queue_capacity must be a power of two, got {asked!r}")
    sizes = []
    for queue in range(queues):
        tasks = int(lowered.grid_bound[grid_queue == queue].sum())
        sizes.append(asked if asked is not None else 1 << max(tasks - 1, 7).bit_length())
    return np.array(sizes, np.int64)
