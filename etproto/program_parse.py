"""Parsing of task grids: extents, operands, edge maps, and the order in which producers come first."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import networkx as nx

from etproto.edge_map import EdgeMap, Range, parse_edge_map, run_time_tensors
from etproto.errors import ProgramError
from etproto.expressions import Constant, Coordinate, Expression, Read, Symbol, as_expression, parse
from etproto.program_parts import Edge, EventTensor, Grid, TaskGrid, Tensor, edge_pairs

__all__ = ["parse_grid", "topological_grids"]


def parse_grid(grid: TaskGrid, symbols: Mapping[str, Symbol], shapes: Mapping[str, tuple[Expression, ...]]) -> Grid:
    """Parse everything that a task grid gives as text, and check it against its tile kind."""
    owner = f"task grid {grid.name}"
    if not isinstance(grid.extents, tuple) or len(grid.extents) != grid.kind.coordinates:
        raise ProgramError(
            f"{owner}: tile kind {grid.kind.name} has {grid.kind.coordinates} coordinates, got extents {grid.extents!r}"
        )
    coordinates = tuple("ijkl"[: len(grid.extents)])
    extents, count, pointer = _parse_extents(grid, symbols, shapes)
    bound = None if grid.bound is None else as_expression(grid.bound)
    if (count is not None or pointer is not None) and bound is None:
        raise ProgramError(f"{owner}: a run-time extent needs bound=, the largest value it may take")
    operands = _parse_operands(grid)
    waits = [_parse_edge(grid, event, text, symbols, shapes) for event, text in edge_pairs(grid.waits)]
    notifies = [_parse_edge(grid, event, text, symbols, shapes) for event, text in edge_pairs(grid.notifies)]
    # Gates first: a wait may use run-time values only once the waits before it are satisfied. Constant ones
    # lead, since they can be asked before it is known which tasks exist.
    waits.sort(key=lambda edge: 0 if edge.is_constant else 1 if edge.is_gate else 2)
    triggers = {}
    for event, text in grid.triggers.items():
        if event.name not in {edge.event.name for edge in waits}:
            raise ProgramError(f"{owner}: triggers name {event.name}, which the grid does not wait for")
        triggers[event.name] = parse_edge_map(text, (Constant(0),), len(event.shape), symbols, shapes)
        if not isinstance(triggers[event.name].dimensions[0], Range):
            raise ProgramError(f"{owner}: trigger {text!r}: expected a range of task numbers, low:high")
    return Grid(
        grid.name,
        grid.kind,
        coordinates,
        extents,
        count,
        pointer,
        bound,
        operands,
        tuple(waits),
        tuple(notifies),
        triggers,
    )


def _parse_extents(
    grid: TaskGrid, symbols: Mapping[str, Symbol], shapes: Mapping[str, tuple[Expression, ...]]
) -> tuple[tuple[Expression, ...], Read | None, str | None]:
    extents: list[Expression] = []
    count, pointer = None, None
    names: dict[str, Expression | str] = {**symbols, **{name: name for name in shapes}}
    for dimension, extent in enumerate(grid.extents):
        where = f"task grid {grid.name}: extent {dimension}"
        if not isinstance(extent, str):
            extents.append(as_expression(extent))
            continue
        try:
            node = ast.parse(f"_[{extent}]", mode="eval").body.slice  # type: ignore[attr-defined]  # '_[...]' is a Subscript
        except SyntaxError:
            raise ProgramError(f"{where}: cannot read {extent!r}") from None
        if isinstance(node, ast.Slice):
            pointer = _ragged_pointer(node, shapes)
            if dimension != 1 or pointer is None:
                raise ProgramError(
                    f"{where}: a ragged extent is dimension 1, written 'pointer[i]:pointer[i+1]' with an int32"
                    f" tensor, got {extent!r}"
                )
            extents.append(Constant(0))
            continue
        value = parse(node, names, extent)
        if isinstance(value, Read):
            if dimension != 0 or any(not isinstance(leaf, Read) for leaf in value.leaves()):
                raise ProgramError(
                    f"{where}: a run-time extent is dimension 0, an element at constant indices, got {extent!r}"
                )
            count = value
            value = Constant(0)
        elif run_time_tensors([value]):
            raise ProgramError(f"{where}: a run-time extent must be one element of an int32 tensor, got {extent!r}")
        extents.append(value)
    if count is not None and pointer is not None:
        raise ProgramError(f"task grid {grid.name}: a grid has one run-time extent, got {grid.extents!r}")
    return tuple(extents), count, pointer


def _ragged_pointer(node: ast.Slice, shapes: Mapping[str, tuple[Expression, ...]]) -> str | None:
    if not isinstance(node.lower, ast.Subscript) or not isinstance(node.lower.value, ast.Name):
        return None
    pointer, row = node.lower.value.id, ast.unparse(node.lower.slice)
    expected = f"{pointer}[{row} + 1]"
    if pointer in shapes and node.upper is not None and ast.unparse(node.upper) == expected and row.isidentifier():
        return pointer
    return None


def _parse_operands(grid: TaskGrid) -> dict[str, Tensor | Expression]:
    wanted = {operand.name: operand for operand in grid.kind.operands}
    if set(grid.operands) != set(wanted):
        raise ProgramError(
            f"task grid {grid.name}: tile kind {grid.kind.name} has operands {', '.join(wanted) or 'none'},"
            f" got {', '.join(grid.operands) or 'none'}"
        )
    result: dict[str, Tensor | Expression] = {}
    for name, operand in wanted.items():
        value = grid.operands[name]
        if operand.ndim == 0:
            result[name] = as_expression(value)
        elif not isinstance(value, Tensor) or len(value.shape) != operand.ndim or value.dtype != operand.dtype:
            got = value if isinstance(value, Tensor) else repr(value)
            raise ProgramError(
                f"task grid {grid.name}: operand {name} must be a tensor with {operand.ndim} dimensions of"
                f" {operand.dtype}, got {got}"
            )
        else:
            result[name] = value
    return result


def _parse_edge(
    grid: TaskGrid,
    event: EventTensor,
    text: str,
    symbols: Mapping[str, Symbol],
    shapes: Mapping[str, tuple[Expression, ...]],
) -> Edge:
    parsed = parse_edge_map(text, event.shape, len(grid.extents), symbols, shapes)
    renamed = dict(zip(parsed.coordinates, "ijkl", strict=False))
    if any(new != old for old, new in renamed.items()):
        parsed = EdgeMap(
            tuple(renamed.values()),
            tuple(
                type(d)(**{key: _rename(value, renamed) for key, value in vars(d).items()}) for d in parsed.dimensions
            ),
            parsed.text,
        )
    return Edge(event, parsed)


def _rename(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Coordinate):
        return Coordinate(names[value.name])
    if isinstance(value, Read):
        return Read(value.tensor, tuple(_rename(index, names) for index in value.indices))
    if hasattr(value, "operator"):
        return type(value)(value.operator, _rename(value.left, names), _rename(value.right, names))
    return value


def topological_grids(name: str, grids: list[Grid]) -> tuple[Grid, ...]:
    """Grids in an order in which producers come first; a grid may wait for itself."""
    graph = nx.DiGraph()
    graph.add_nodes_from(grid.name for grid in grids)
    for producer in grids:
        notified = {edge.event.name for edge in producer.notifies}
        for consumer in grids:
            if consumer.name != producer.name and notified & {edge.event.name for edge in consumer.waits}:
                graph.add_edge(producer.name, consumer.name)
    by_name = {grid.name: grid for grid in grids}
    position = {grid.name: index for index, grid in enumerate(grids)}
    if not nx.is_directed_acyclic_graph(graph):
        cycle = [edge[0] for edge in nx.find_cycle(graph)]
        raise ProgramError(
            f"program {name}: task grids wait for each other in a circle: {' -> '.join([*cycle, cycle[0]])}"
        )
    order = nx.lexicographical_topological_sort(graph, key=lambda grid: position[grid])
    return tuple(by_name[grid] for grid in order)
