"""What programs are made of: tensors, event tensors, task grids as they are written, and grids as they are
parsed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from etproto.edge_map import EdgeMap, Point, run_time_tensors
from etproto.errors import ProgramError
from etproto.expressions import Expression, Read, as_expression
from etproto.tile_kind import DTYPES, TileKind

__all__ = ["Tensor", "EventTensor", "TaskGrid", "Edge", "Edges", "Grid", "edge_pairs"]


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
        Notifications that satisfy each event. None: derived from the notify edges. A given number is checked
        against them.
    count : Tensor or None
        An int32 tensor of the same shape, written by this program before it is needed, that holds the need of
        each event.
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
                f"event tensor {self.name}: the count must be an int32 tensor of shape {_show(self.shape)}, got"
                f" {self.count}"
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
        One a dimension: an integer, an expression of symbols, or text. Dimension 0 may be a run-time value
        (``"total[0]"``);
        dimension 1 may be ragged (``"indptr[i]:indptr[i+1]"``: for row i, every position of that range).
    operands : mapping
        Operand name -> Tensor (or an integer or expression for a scalar operand).
    waits, notifies : mapping or sequence of pairs
        Event tensor -> edge map.
    triggers : mapping
        Event tensor -> map from event coordinates to a range of task numbers of this grid, for waits whose
        inverse cannot be derived. Only the dynamic schedules use it.
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


def edge_pairs(edges: Edges) -> list[tuple[EventTensor, str]]:
    """Edges as a list of pairs, whether they were written as a mapping or as pairs."""
    return list(edges.items()) if isinstance(edges, Mapping) else list(edges)
