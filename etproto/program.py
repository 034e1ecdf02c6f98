"""Symbolic programs: task grids joined by event tensors through edge maps; `Program.bind` gives the symbols
values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from etproto.errors import ProgramError
from etproto.expressions import Expression, Symbol
from etproto.program_parse import parse_grid, topological_grids
from etproto.program_parts import Edge, EventTensor, Grid, TaskGrid, Tensor, edge_pairs

__all__ = ["Tensor", "EventTensor", "TaskGrid", "Edge", "Grid", "Program", "Instance"]


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
            for event, _ in [*edge_pairs(grid.waits), *edge_pairs(grid.notifies)]:
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
        parsed = [parse_grid(grid, symbols, shapes) for grid in self.grids]
        object.__setattr__(self, "parsed", topological_grids(self.name, parsed))

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
                raise ProgramError(
                    f"program {self.name}: no symbol {name!r}; its symbols are {', '.join(known) or 'none'}"
                )
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

        Run-time values that the program itself computes are not known here: programs that have them need
        `expand`.
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
            lines.append(
                f"  {grid.name} = call_device({grid.kind.name}, task_grid=({extents}{',' if grid.ndim == 1 else ''}),"
            )
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


def _collect(table: dict[str, Any], name: str, value: Any, program: str) -> None:
    if table.setdefault(name, value) != value:
        raise ProgramError(f"program {program}: two different things are called {name!r}: {table[name]} and {value}")
