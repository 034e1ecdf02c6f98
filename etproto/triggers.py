"""Triggers: which tasks a satisfied event makes ready. The inverse of the wait maps, or what the program
names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from etproto import layout as L
from etproto.edge_map import Gather, Index, Point, Range, as_index, run_time_tensors
from etproto.expressions import Constant, Coordinate, Expression, Read
from etproto.program import Edge, EventTensor, Grid, Program

__all__ = ["trigger_records", "inverse_box"]

EVENT_COORDINATES = ("i", "j", "k", "l")


def trigger_records(
    program: Program,
    event: EventTensor,
    written: set[str],
    encode: Callable[[Index], list],
    shapes: Mapping[str, tuple[Expression, ...]],
) -> tuple[list[list], bool]:
    """Trigger records of an event tensor, and whether its tasks may be pushed early.

    A task may be pushed when its producers have merely been dispatched if nothing that decides about the push
    (ranges, extents, maps, needs) is written in this launch.

    Parameters
    ----------
    program : Program
    event : EventTensor
    written : set of str
        Tensors that tasks of the program write.
    encode : callable
        Turns an `Index` into the words of an index record.
    shapes : mapping
        Tensor name -> shape.

    Returns
    -------
    records : list of list
        One record for each wait on the event; a wait that cannot be inverted has none, and its grid cannot be
        scheduled dynamically.
    early : bool
    """
    records: list[list] = []
    early = event.count is None
    for grid in program.parsed:
        for edge in grid.notifies:
            if edge.event == event and set(grid.run_time_reads()) & written:
                early = False
    for position, grid in enumerate(program.parsed):
        for edge in grid.waits:
            if edge.event == event:
                record = _record(grid, edge, encode, shapes)
                if record is not None:
                    record[L.TRIGGER_GRID] = position
                    records.append(record)
                if set(grid.run_time_reads()) & written:
                    early = False
    for position, grid in enumerate(program.parsed):
        for other in _counted_after(program, grid, event, written):
            record = [0] * L.TRIGGER_WORDS
            record[L.TRIGGER_FORM], record[L.TRIGGER_GRID] = L.TRIGGER_ZERO_CELLS, position
            record[L.TRIGGER_EVENT] = program.events.index(other)
            record[L.TRIGGER_LOW] = _gate_cell(grid)
            records.append(record)
    return records, early


def _counted_after(program: Program, grid: Grid, event: EventTensor, written: set[str]) -> list[EventTensor]:
    """Event tensors that `grid` waits for whose run-time needs become known to it when `event` is met.

    That is the first gate that is constant in the coordinates: it is met once, so cells that need nothing are
    met once.
    """
    gate = next((edge for edge in grid.waits if edge.is_constant), None)
    if gate is None or gate.event != event:
        return []
    return [edge.event for edge in grid.waits if edge.event.count is not None and edge.event.count.name in written]


def _gate_cell(grid: Grid) -> Expression:
    """Number, within its event tensor, of the event that a grid's first constant gate names."""
    gate = next(edge for edge in grid.waits if edge.is_constant)
    cell: Expression = Constant(0)
    for dimension, extent in zip(gate.map.dimensions, gate.event.shape, strict=True):
        cell = cell * extent + dimension.value  # type: ignore[union-attr]  # a constant gate has points only
    return cell


def _record(
    grid: Grid, edge: Edge, encode: Callable[[Index], list], shapes: Mapping[str, tuple[Expression, ...]]
) -> list | None:
    record: list = [0] * L.TRIGGER_WORDS
    given = grid.triggers.get(edge.event.name)
    if given is not None:
        span = given.dimensions[0]
        return _range(record, span.low, span.high, Constant(1), given.coordinates, encode, shapes)
    box = inverse_box(grid, edge)
    if box is None:
        return None
    if grid.pointer is not None:
        if any(entry[0] != -1 for entry in box[1:]):
            return None
        rows = box[0]
        inner: Expression = Constant(1)
        for extent in grid.extents[2:]:
            inner = inner * extent
        if rows[0] == -1:
            low, high = Constant(0), grid.extents[0]
        elif rows[1:] == (Constant(1), Constant(0), Constant(1), Constant(1)):
            low = Coordinate(EVENT_COORDINATES[rows[0]])
            high = low + 1
        else:
            return None
        names = EVENT_COORDINATES[: max(len(edge.event.shape), 1)]
        return _range(record, Read(grid.pointer, (low,)), Read(grid.pointer, (high,)), inner, names, encode, shapes)
    record[L.TRIGGER_FORM] = L.TRIGGER_BOX_FORM
    whole = (-1, Constant(0), Constant(0), Constant(0), Constant(1))
    for dimension in range(4):
        entry = box[dimension] if dimension < len(box) else whole
        at = L.TRIGGER_BOX + dimension * L.BOX_WORDS
        record[at : at + L.BOX_WORDS] = entry
    return record


def _range(record, low, high, scale, names, encode, shapes):
    record[L.TRIGGER_FORM] = L.TRIGGER_RANGE
    record[L.TRIGGER_LOW : L.TRIGGER_LOW + L.INDEX_WORDS] = encode(as_index(low, names, shapes))
    record[L.TRIGGER_HIGH : L.TRIGGER_HIGH + L.INDEX_WORDS] = encode(as_index(high, names, shapes))
    record[L.TRIGGER_SCALE] = scale
    return record


Box = tuple[int, Expression, Expression, Expression, Expression]


def inverse_box(grid: Grid, edge: Edge) -> list[Box] | None:
    """For each grid dimension, the coordinates that wait for a cell: (event dimension, scale, low, high,
    divisor).

    Coordinate x is in ``(e * scale + low) // divisor <= x < (e * scale + high) // divisor``; event dimension
    -1 means all. None when the map is not of that form: an event coordinate that mixes task coordinates, a
    run-time value, a modulus.

    For one cell, ``(a x + c) // d == e`` holds for x from ceil((e d - c) / a) to ceil((e d + d - c) / a) - 1;
    for a range, ``s x + b <= e < s x + t`` holds for x from (e - t) // s + 1 to (e - b) // s.
    """
    whole: Box = (-1, Constant(0), Constant(0), Constant(0), Constant(1))
    box = [whole] * grid.ndim
    for number, (dimension, extent) in enumerate(zip(edge.map.dimensions, edge.event.shape, strict=True)):
        if isinstance(dimension, Gather) or run_time_tensors([*vars(dimension).values()]):
            return None
        if isinstance(dimension, Range) and dimension == Range(Constant(0), extent):
            continue
        if isinstance(dimension, Point):
            low = high = as_index(dimension.value, grid.coordinates, {})
        else:
            low, high = (as_index(side, grid.coordinates, {}) for side in (dimension.low, dimension.high))
        if low.modulus is not None or high.modulus is not None:
            return None
        used = [axis for axis, coefficient in enumerate(low.coefficients) if coefficient != Constant(0)]
        if not used and low.coefficients == high.coefficients and extent == Constant(1):
            continue
        if len(used) != 1 or box[used[0]] != whole or low.coefficients != high.coefficients:
            return None
        step = low.coefficients[used[0]]
        if isinstance(step, Constant) and step.value < 0:
            return None
        if isinstance(dimension, Point):
            first = step - 1 - low.constant
            box[used[0]] = (number, low.divisor, first, first + low.divisor, step)
        elif low.divisor == high.divisor == Constant(1):
            box[used[0]] = (number, Constant(1), step - high.constant, step - low.constant, step)
        else:
            return None
    return box
