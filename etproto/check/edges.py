"""Edges of programs: the same edge twice, and trigger maps that are not the inverse of their wait map."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from etproto.cells import cell_name, edge_cells, evaluate, run_time_values
from etproto.check.naming import SHOWN, some
from etproto.edge_map import EdgeMap
from etproto.errors import ProgramError
from etproto.expand import grid_coordinates
from etproto.numbering import number
from etproto.program import Edge, EventTensor, Grid, Instance, Program

__all__ = ["check_duplicates", "check_triggers"]


def check_duplicates(
    program: Program, instance: Instance | None = None, tensors: Mapping[str, Any] | None = None
) -> list[str]:
    """Two edges of a grid that name one cell from one task: a notification counted twice, or a wait repeated.

    Without an instance, only edges with equal maps are found.
    """
    known = None if instance is None else run_time_values(instance, tensors)
    faults = []
    for grid in program.parsed:
        coordinate = None
        for word, edges in (("waits for", grid.waits), ("notifies", grid.notifies)):
            for first, second in combinations(edges, 2):
                if first.event.name != second.event.name:
                    continue
                maps = f"{str(first.map)!r} and {str(second.map)!r}"
                head = f"task grid {grid.name} {word} {first.event.name} by two edges, {maps}"
                if first.map.dimensions == second.map.dimensions:
                    faults.append(f"duplicate edge: {head}, which are the same")
                elif instance is not None and known is not None:
                    if coordinate is None:
                        coordinate, _ = grid_coordinates(instance, grid, known)
                    common = _common(instance, grid, first, second, coordinate, known)
                    if common:
                        faults.append(f"duplicate edge: {head}, which both name {common}")
    return faults


def _common(
    instance: Instance,
    grid: Grid,
    first: Edge,
    second: Edge,
    coordinate: np.ndarray,
    known: Mapping[str, np.ndarray],
) -> str:
    """The (task, cell) pairs that two edges share, as text."""
    cells = math.prod(instance.shape(first.event))
    pairs = []
    for edge in (first, second):
        counts, cell = edge_cells(instance, grid, edge, coordinate, known)
        pairs.append(np.unique(np.repeat(np.arange(len(counts)), counts) * cells + cell))
    both = np.intersect1d(*pairs, assume_unique=True)
    numbering, events = number(instance), [event.name for event in instance.program.events]
    base = numbering.event_base[events.index(first.event.name)]
    return some(
        (
            f"{cell_name(instance, base + pair % cells)} from {_task(grid, coordinate[pair // cells])}"
            for pair in both[:SHOWN].tolist()
        ),
        len(both),
    )


def check_triggers(instance: Instance, tensors: Mapping[str, Any] | None = None) -> list[str]:
    """Trigger maps that name other tasks than those that wait for the cell."""
    known = run_time_values(instance, tensors)
    faults = []
    for grid in instance.program.parsed:
        for name, given in grid.triggers.items():
            event = next(edge.event for edge in grid.waits if edge.event.name == name)
            try:
                faults += _trigger_faults(instance, grid, event, given, known)
            except ProgramError as fault:
                faults.append(str(fault))
    return faults


def _trigger_faults(
    instance: Instance, grid: Grid, event: EventTensor, given: EdgeMap, known: Mapping[str, np.ndarray]
) -> list[str]:
    where = f"{instance}: task grid {grid.name}, trigger {str(given)!r}"
    shape = instance.shape(event)
    cells = math.prod(shape)
    axes = dict(zip(given.coordinates, np.indices(shape).reshape(len(shape), cells), strict=True))
    low, high = (
        np.broadcast_to(evaluate(side, instance, axes, known, where), cells)
        for side in (given.dimensions[0].low, given.dimensions[0].high)
    )
    coordinate, task = grid_coordinates(instance, grid, known)
    waiting: list[np.ndarray] = []
    for edge in grid.waits:
        if edge.event.name == event.name:
            counts, cell = edge_cells(instance, grid, edge, coordinate, known)
            waiting.append(np.stack([cell, np.repeat(task, counts)]))
    cell, waiter = np.concatenate(waiting, axis=1)
    faults = []
    size = np.maximum(high - low, 0)
    # A range is right if it holds exactly its waiters: as many as it is long, and none outside it.
    outside = np.bincount(cell[(waiter < low[cell]) | (waiter >= high[cell])], minlength=cells)
    wrong = np.flatnonzero((outside > 0) | (np.bincount(cell, minlength=cells) != size))
    for index in wrong[:SHOWN].tolist():
        text = (
            f"{event.name}[{', '.join(str(int(x)) for x in np.unravel_index(index, shape))}]" if shape else event.name
        )
        waiters = np.sort(waiter[cell == index])
        names = some((_task(grid, coordinate[np.searchsorted(task, t)]) for t in waiters[:SHOWN]), len(waiters))
        waiting_text = f"tasks {_spans(waiters)} ({names}) wait" if len(waiters) else "nobody waits"
        faults.append(
            f"{where}: {text} triggers tasks {low[index]}:{high[index]} of the grid, but {waiting_text} for it"
        )
    if len(wrong) > SHOWN:
        faults.append(f"{where}: and {len(wrong) - SHOWN} more cells of {event.name}")
    return faults


def _spans(numbers: np.ndarray) -> str:
    """Sorted numbers as ranges: ``4:8, 12:16``."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    return some(f"{part[0]}:{part[-1] + 1}" for part in np.split(numbers, breaks))


def _task(grid: Grid, coordinate: np.ndarray) -> str:
    return f"{grid.name}[{', '.join(str(int(x)) for x in coordinate[: grid.ndim])}]"
