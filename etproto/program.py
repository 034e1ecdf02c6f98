"""Symbolic programs: task grids joined by event tensors through edge maps, with symbols unbound until `Program.bind`."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from etproto.edge_map import EdgeMap, Point, Range, parse_edge_map, run_time_tensors
from etproto.errors import ProgramError
from etproto.expressions import Constant, Coordinate, Expression, Read, Symbol, as_expression, parse
from etproto.tile_kind import DTYPES, TileKind

__all__ = ["Tensor", "EventTensor", "TaskGrid", "Edge", "Grid", "Program", "Instance"]


def _shape(owner: str, shape: Sequence[Any]) -> tuple[Expression, ...]:
    if isinstance(shape, (str, int)) or not isinstance(shape, Sequence) or len(shape) > 4:
        raise ProgramError(f"{owner}: the shape must be a tuple of at most 4 integers or expressions, got {shape!r}")
    return tuple(as_expression(extent) for extent in shape)


@dataclass(frozen=True)
class Tensor:
    """A data tensor that the program's tasks read and write; arrays are given at run time, C-contiguous.

    int32 tensors may be read by extents, edge maps and counts: these are the program's run-time values.
    """

    name: str
    shape: tuple[Any, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _shape(f"tensor {self.name}", self.shape))
        if self.dtype not in DTYPES:
            raise ProgramError(f"tensor {self.name}: dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class EventTensor:
    """An array of events.

    Parameters
    ----------
    name : str
        Its name.
    shape : tuple
        Extents, integers or expressions of symbols; ``()`` is a single event.
    need : int, expression or None
        Notifications that satisfy each event. None: derived from the notify edges. A given number is checked against them.
    count : Tensor or None
        An int32 tensor of the same shape, written by this program before it is needed, that holds the need of each event.
    scope : {"gpu", "sys"}
        Who notifies and waits: one GPU, or several.
    any_of : bool
        A wait is satisfied by the first notification, whoever gives it.
    """

    name: str
    shape: tuple[Any, ...] = ()
    need: Any = None
    count: Tensor | None = None
    scope: str = "gpu"
    any_of: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _shape(f"event tensor {self.name}", self.shape))
        if self.need is not None:
            object.__setattr__(self, "need", as_expression(self.need))
        if self.scope not in ("gpu", "sys"):
            raise ProgramError(f"event tensor {self.name}: scope must be 'gpu' or 'sys', got {self.scope!r}")
        if self.count is not None and self.need is not None:
            raise ProgramError(f"event tensor {self.name}: give need={self.need} or count={self.count.name}, not both")
        if self.count is not None and (self.count.dtype != "int32" or self.count.shape != self.shape):
            raise ProgramError(
                f"event tensor {self.name}: the count must be an int32 tensor of shape {_show(self.shape)}, got {self.count}"
            )

    def __str__(self) -> str:
        parts = [f"shape={_show(self.shape)}"]
        if self.need is not None:
            parts.append(f"need={self.need}")
        if self.count is not None:
            parts.append(f"count={self.count.name}")
        if self.scope != "gpu":
            parts.append(f"scope={self.scope}")
        if self.any_of:
            parts.append("any_of")
        return f"{self.name} = EventTensor({', '.join(parts)})"


def _show(shape: tuple[Expression, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


Edges = Mapping[EventTensor, str] | Sequence[tuple[EventTensor, str]]


@dataclass(frozen=True)
class TaskGrid:
    """All tasks of one operator, as the user writes it.

    Parameters
    ----------
    name : str
        Its name.
    kind : TileKind
        What its tasks compute.
    extents : tuple
        One a dimension: an integer, an expression of symbols, or text. Dimension 0 may be a run-time value (``"total[0]"``);
        dimension 1 may be ragged (``"indptr[i]:indptr[i+1]"``: for row i, every position of that range).
    operands : mapping
        Operand name -> Tensor (or an integer or expression for a scalar operand).
    waits, notifies : mapping or sequence of pairs
        Event tensor -> edge map.
    triggers : mapping
        Event tensor -> map from event coordinates to a range of task numbers of this grid, for waits whose inverse cannot be
        derived. Only the dynamic schedules use it.
    bound : int, expression or None
        Largest value of a run-time extent (of ``indptr[-1]`` for a ragged grid).
    """

    name: str
    kind: TileKind
    extents: tuple[Any, ...]
    operands: Mapping[str, Any] = field(default_factory=dict)
    waits: Edges = ()
    notifies: Edges = ()
    triggers: Mapping[EventTensor, str] = field(default_factory=dict)
    bound: Any = None


@dataclass(frozen=True)
class Edge:
    """One wait or notify of a grid."""

    event: EventTensor
    map: EdgeMap

    @property
    def is_gate(self) -> bool:
        """Whether this wait can be evaluated without any run-time value."""
        return self.event.count is None and not _edge_tensors(self)

    @property
    def is_constant(self) -> bool:
        """Whether this is a gate that names one fixed event, whatever the task."""
        return self.is_gate and all(isinstance(d, Point) and not d.value.leaves() for d in self.map.dimensions)


@dataclass(frozen=True)
class Grid:
    """A task grid with everything parsed; waits whose maps need no run-time value come first (its *gates*)."""

    name: str
    kind: TileKind
    coordinates: tuple[str, ...]
    extents: tuple[Expression, ...]
    count: Read | None
    pointer: str | None
    bound: Expression | None
    operands: Mapping[str, Tensor | Expression]
    waits: tuple[Edge, ...]
    notifies: tuple[Edge, ...]
    triggers: Mapping[str, EdgeMap]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.extents)

    def run_time_reads(self) -> dict[str, str]:
        """int32 tensors that deciding about this grid's tasks reads -> what for."""
        found: dict[str, str] = {}
        if self.count is not None:
            found[self.count.tensor] = f"extent {self.count}"
        if self.pointer is not None:
            found[self.pointer] = f"ragged extent {self.pointer}"
        for word, edges in (("wait", self.waits), ("notify", self.notifies)):
            for edge in edges:
                for tensor in _edge_tensors(edge):
                    found.setdefault(tensor, f"{word} {edge.event.name}: {edge.map}")
                if edge.event.count is not None:
                    found.setdefault(edge.event.count.name, f"need of {edge.event.name}")
        return found

    def extent_text(self, dimension: int) -> str:
        """How dimension `dimension`'s extent is written."""
        if dimension == 0 and self.count is not None:
            return str(self.count)
        if dimension == 1 and self.pointer is not None:
            row = self.coordinates[0]
            return f"{self.pointer}[{row}]:{self.pointer}[{row}+1]"
        return str(self.extents[dimension])


def _edge_tensors(edge: Edge) -> set[str]:
    gathered = {dimension.tensor for dimension in edge.map.dimensions if hasattr(dimension, "tensor")}
    return gathered | run_time_tensors(edge.map.expressions())


@dataclass(frozen=True)
class Program:
    """Task grids in any order; event tensors, tensors and symbols are collected from them.

    Parameters
    ----------
    name : str
        Its name.
    grids : sequence of TaskGrid
        The operators.
    symbols : sequence of Symbol
        Symbols that no shape mentions but texts use.

    Raises
    ------
    ProgramError
        Names that clash, edges that do not parse, operands that do not fit their kind, grids in a circle.

    Examples
    --------
    >>> from etproto.models.splitk import program
    >>> print(program())  # doctest: +ELLIPSIS
    program splitk(n <= 131072)
      ...
    """

    name: str
    grids: Sequence[TaskGrid]
    symbols: Sequence[Symbol] = ()
    tensors: tuple[Tensor, ...] = field(init=False)
    events: tuple[EventTensor, ...] = field(init=False)
    parsed: tuple[Grid, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not self.grids:
            raise ProgramError(f"program {self.name}: expected at least one task grid")
        tensors: dict[str, Tensor] = {}
        events: dict[str, EventTensor] = {}
        symbols = {symbol.name: symbol for symbol in self.symbols}
        grid_names: set[str] = set()
        for grid in self.grids:
            if grid.name in grid_names:
                raise ProgramError(f"program {self.name}: two task grids are called {grid.name!r}")
            grid_names.add(grid.name)
            for value in grid.operands.values():
                if isinstance(value, Tensor):
                    _collect(tensors, value.name, value, self.name)
            for event, _ in [*_pairs(grid.waits), *_pairs(grid.notifies)]:
                _collect(events, event.name, event, self.name)
                if event.count is not None:
                    _collect(tensors, event.count.name, event.count, self.name)
        expressions: list[Expression] = [e for tensor in tensors.values() for e in tensor.shape]
        expressions += [e for event in events.values() for e in event.shape]
        for grid in self.grids:
            values = [*grid.extents, grid.bound, *grid.operands.values()]
            expressions += [value for value in values if isinstance(value, Expression)]
        for leaf in (leaf for expression in expressions for leaf in expression.leaves()):
            if isinstance(leaf, Symbol):
                _collect(symbols, leaf.name, leaf, self.name)
        object.__setattr__(self, "symbols", tuple(symbols.values()))
        object.__setattr__(self, "tensors", tuple(tensors.values()))
        object.__setattr__(self, "events", tuple(events.values()))
        shapes = {tensor.name: tensor.shape for tensor in tensors.values() if tensor.dtype == "int32"}
        parsed = [_parse_grid(grid, symbols, shapes) for grid in self.grids]
        object.__setattr__(self, "parsed", _topological(self.name, parsed))

    def bind(self, **values: int) -> Instance:
        """Give every symbol a value.

        Parameters
        ----------
        **values : int
            Symbol name -> value.

        Returns
        -------
        Instance

        Raises
        ------
        ProgramError
            A symbol without a value, an unknown name, a value below the minimum or above the bound.

        Examples
        --------
        >>> from etproto.models.splitk import program
        >>> program().bind(n=200000)
        Traceback (most recent call last):
        ...
        etproto.errors.ProgramError: program splitk: n must be at most its bound 131072, got 200000
        """
        known = {symbol.name: symbol for symbol in self.symbols}
        for name, value in values.items():
            if name not in known:
                raise ProgramError(f"program {self.name}: no symbol {name!r}; its symbols are {', '.join(known) or 'none'}")
            symbol = known[name]
            if isinstance(value, bool) or not isinstance(value, int):
                raise ProgramError(f"program {self.name}: {name} must be an integer, got {value!r}")
            if value < symbol.minimum:
                raise ProgramError(f"program {self.name}: {name} must be at least {symbol.minimum}, got {value}")
            if symbol.bound is not None and value > symbol.bound:
                raise ProgramError(f"program {self.name}: {name} must be at most its bound {symbol.bound}, got {value}")
        missing = [name for name in known if name not in values]
        if missing:
            raise ProgramError(f"program {self.name}: bind {', '.join(f'{name}=...' for name in missing)}")
        return Instance(self, dict(values))

    def writers(self, tensor: str) -> list[Grid]:
        """Grids whose tasks write `tensor`."""
        return [
            grid
            for grid in self.parsed
            for operand in grid.kind.operands
            if operand.writes and isinstance(bound := grid.operands[operand.name], Tensor) and bound.name == tensor
        ]

    def grid_graph(self) -> nx.MultiDiGraph:
        """Grids as nodes, one edge for each event tensor from a notifier to a waiter (key: the event's name)."""
        graph = nx.MultiDiGraph()
        graph.add_nodes_from(grid.name for grid in self.parsed)
        for producer in self.parsed:
            for notify in producer.notifies:
                for consumer in self.parsed:
                    for wait in consumer.waits:
                        if wait.event.name == notify.event.name:
                            graph.add_edge(producer.name, consumer.name, key=wait.event.name)
        return graph

    def to_networkx(self, **values: int) -> nx.DiGraph:
        """The task graph of one binding, events resolved to task -> task edges, for drawing and checking.

        Run-time values that the program itself computes are not known here: programs that have them need `expand`.
        """
        from etproto.expand import expand, to_networkx

        return to_networkx(expand(self.bind(**values)))

    def __str__(self) -> str:
        symbols = ", ".join(s.name + (f" <= {s.bound}" if s.bound is not None else "") for s in self.symbols)
        lines = [f"program {self.name}({symbols})"]
        lines += [f"  {tensor}" for tensor in self.tensors]
        lines += [f"  {event}" for event in self.events]
        for grid in self.parsed:
            extents = ", ".join(grid.extent_text(d) for d in range(grid.ndim))
            operands = ", ".join(
                f"{name}={value.name if isinstance(value, Tensor) else value}" for name, value in grid.operands.items()
            )
            waits = ", ".join(f'{edge.event.name}: "{edge.map}"' for edge in grid.waits)
            notifies = ", ".join(f'{edge.event.name}: "{edge.map}"' for edge in grid.notifies)
            lines.append(f"  {grid.name} = call_device({grid.kind.name}, task_grid=({extents}{',' if grid.ndim == 1 else ''}),")
            lines.append(f"      in_edges={{{waits}}}, out_edges={{{notifies}}},")
            lines.append(f"      {operands})")
        return "\n".join(lines)


@dataclass(frozen=True)
class Instance:
    """A program whose symbols have values."""

    program: Program
    values: Mapping[str, int]

    @property
    def bounds(self) -> dict[str, int]:
        """Symbol name -> the value that device arrays are sized for."""
        return {
            symbol.name: self.values[symbol.name] if symbol.bound is None else symbol.bound
            for symbol in self.program.symbols
        }

    def shape(self, tensor: Tensor | EventTensor) -> tuple[int, ...]:
        """Shape of a tensor under this binding."""
        return tuple(int(extent.evaluate(self.values)) for extent in tensor.shape)

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return f"{self.program.name}({values})"


def _pairs(edges: Edges) -> list[tuple[EventTensor, str]]:
    return list(edges.items()) if isinstance(edges, Mapping) else list(edges)


def _collect(table: dict[str, Any], name: str, value: Any, program: str) -> None:
    if table.setdefault(name, value) != value:
        raise ProgramError(f"program {program}: two different things are called {name!r}: {table[name]} and {value}")


def _parse_grid(
    grid: TaskGrid, symbols: Mapping[str, Symbol], shapes: Mapping[str, tuple[Expression, ...]]
) -> Grid:
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
    waits = [_parse_edge(grid, event, text, symbols, shapes) for event, text in _pairs(grid.waits)]
    notifies = [_parse_edge(grid, event, text, symbols, shapes) for event, text in _pairs(grid.notifies)]
    # Gates first: a wait may use run-time values only once the waits before it are satisfied. Constant ones lead, since
    # they can be asked before it is known which tasks exist.
    waits.sort(key=lambda edge: 0 if edge.is_constant else 1 if edge.is_gate else 2)
    triggers = {}
    for event, text in grid.triggers.items():
        if event.name not in {edge.event.name for edge in waits}:
            raise ProgramError(f"{owner}: triggers name {event.name}, which the grid does not wait for")
        triggers[event.name] = parse_edge_map(text, (Constant(0),), len(event.shape), symbols, shapes)
        if not isinstance(triggers[event.name].dimensions[0], Range):
            raise ProgramError(f"{owner}: trigger {text!r}: expected a range of task numbers, low:high")
    return Grid(
        grid.name, grid.kind, coordinates, extents, count, pointer, bound, operands, tuple(waits), tuple(notifies), triggers
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
                    f"{where}: a ragged extent is dimension 1, written 'pointer[i]:pointer[i+1]' with an int32 tensor, got {extent!r}"
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
                f"task grid {grid.name}: operand {name} must be a tensor with {operand.ndim} dimensions of {operand.dtype}, got {got}"
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


def _topological(name: str, grids: list[Grid]) -> tuple[Grid, ...]:
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
        raise ProgramError(f"program {name}: task grids wait for each other in a circle: {' -> '.join([*cycle, cycle[0]])}")
    order = nx.lexicographical_topological_sort(graph, key=lambda grid: position[grid])
    return tuple(by_name[grid] for grid in order)
