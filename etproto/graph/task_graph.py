"""The class `TaskGraph`: its arrays, how they are made and saved, and what can be asked of it."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import networkx as nx
import numpy as np

from etproto.errors import FileFormatError, GraphError
from etproto.graph import compressed, faults, networkx_form, order
from etproto.graph.columns import array, items, read_only

__all__ = ["SECONDS", "TaskGraph"]

#: Seconds in each time unit. Abstract time ("unit") counts as microseconds where timed dummy bodies are run.
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "unit": 1e-6}

_ARRAYS = ("kind", "cost", "priority", "args", "args_count", "edge_source", "edge_target")


@dataclass(frozen=True, eq=False, repr=False)
class TaskGraph:
    """A directed graph of n tasks and m edges. It may hold a cycle: who needs none calls `require_valid`.

    Use `from_networkx`, `from_arrays` or a reader to make one. The arrays are read-only.

    Parameters
    ----------
    names : tuple of hashable, length n
        Node names in input order.
    kind : int32[n]
        Index into `kind_name`.
    kind_name : tuple of str
        Names of the task kinds, in order of appearance.
    cost : float64[n]
        Work of each task in `time_unit`.
    priority : float64[n]
        Larger runs first where a policy has a choice.
    args : int32[n, 4]
        Tile coordinate of each task, unused places 0.
    args_count : int32[n]
        How many places of `args` a task uses, 0 to 4.
    edge_source, edge_target : int32[m]
        Task ``edge_source[e]`` ends before task ``edge_target[e]`` starts. In order of appearance.
    labels : tuple of str, length n, or None
        Display names where they differ from `names`, as in DOT files.
    bodies : tuple of (callable or None), length n, or None
        Python bodies for the cpu executor.
    tensors : tuple
        Tensor declarations, handed on to lowering.
    operands : mapping of kind to a dict of operand name to tensor name
        Which tensors the bodies of a kind work on, handed on to lowering.
    name : str
        Name of the graph.
    time_unit : {"us", "ns", "ms", "s", "unit"}
        Unit of `cost`; "unit" is abstract time.
    """

    names: tuple[Hashable, ...]
    kind: np.ndarray
    kind_name: tuple[str, ...]
    cost: np.ndarray
    priority: np.ndarray
    args: np.ndarray
    args_count: np.ndarray
    edge_source: np.ndarray
    edge_target: np.ndarray
    labels: tuple[str, ...] | None = None
    bodies: tuple[Callable | None, ...] | None = None
    tensors: tuple = ()
    operands: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    name: str = "graph"
    time_unit: str = "us"

    @classmethod
    def from_arrays(
        cls,
        edge_source: Sequence[int] | np.ndarray,
        edge_target: Sequence[int] | np.ndarray,
        count: int,
        *,
        names: Iterable[Hashable] | None = None,
        kind: Sequence[int] | np.ndarray | None = None,
        kind_name: Sequence[str] = ("task",),
        cost: Sequence[float] | np.ndarray | None = None,
        priority: Sequence[float] | np.ndarray | None = None,
        args: Sequence | np.ndarray | None = None,
        args_count: Sequence[int] | np.ndarray | None = None,
        labels: Iterable[str] | None = None,
        bodies: Iterable[Callable | None] | None = None,
        tensors: Iterable = (),
        operands: Mapping[str, Mapping[str, str]] | None = None,
        name: str = "graph",
        time_unit: str = "us",
    ) -> TaskGraph:
        """Build a graph of `count` tasks from arrays, without a Python loop.

        Parameters
        ----------
        edge_source, edge_target : int[m]
            Task indices. Missing tasks, self loops and duplicates are left for `validate` to name.
        count : int
            Number of tasks, n.
        names : iterable of hashable, optional
            Default ``range(count)``.
        kind : int[n], optional
            Default: all tasks are of kind 0.
        cost, priority : float[n], optional
            Defaults 1 and 0.
        args : int[n, k] with k <= 4, or int[n], optional
            Tile coordinates; absent means none.
        args_count : int[n], optional
            Default k for every task.

        Raises
        ------
        GraphError
            If an array has another length or type than said here, or `time_unit` is unknown.

        Examples
        --------
        >>> graph = TaskGraph.from_arrays([0, 0, 1, 2], [1, 2, 3, 3], 4, cost=[1, 2, 3, 4])
        >>> print(graph)
        graph: 4 tasks (task 4), 4 edges, critical path 8 us
        """
        if time_unit not in SECONDS:
            raise GraphError(f"time_unit: expected one of {', '.join(SECONDS)}, got {time_unit!r}")
        given = array("args", np.zeros((count, 0), int) if args is None else args, (count, -1), np.int32)
        width = given.shape[1]
        if width > 4:
            raise GraphError(f"args: expected at most 4 numbers a task, got {width}")
        coordinate = np.zeros((count, 4), np.int32)
        coordinate[:, :width] = given
        edges = len(edge_source)
        return cls(
            names=items("names", range(count) if names is None else names, count),
            kind=array("kind", np.zeros(count, int) if kind is None else kind, (count,), np.int32),
            kind_name=tuple(kind_name),
            cost=array("cost", np.ones(count) if cost is None else cost, (count,), np.float64),
            priority=array("priority", np.zeros(count) if priority is None else priority, (count,), np.float64),
            args=read_only(coordinate),
            args_count=array(
                "args_count", np.full(count, width) if args_count is None else args_count, (count,), np.int32
            ),
            edge_source=array("edge_source", edge_source, (edges,), np.int32),
            edge_target=array("edge_target", edge_target, (edges,), np.int32),
            labels=None if labels is None else items("labels", labels, count),
            bodies=None if bodies is None else items("bodies", bodies, count),
            tensors=tuple(tensors),
            operands=dict(operands or {}),
            name=str(name),
            time_unit=time_unit,
        )

    @classmethod
    def from_networkx(
        cls,
        G: nx.DiGraph,
        *,
        name: str | None = None,
        time_unit: str | None = None,
        tensors: Iterable = (),
        operands: Mapping[str, Mapping[str, str]] | None = None,
        default_kind: str = "task",
        default_cost: float = 1.0,
    ) -> TaskGraph:
        """Build a graph from a networkx DiGraph whose nodes are tasks.

        Node attributes, all optional: `kind` (str), `cost` (float), `priority` (float), `args` (the tile
        coordinate: an int or up to four), `body` (a callable for the cpu executor), `label` (a display name).

        Parameters
        ----------
        G : networkx.DiGraph
            Node names may be any hashables. A MultiDiGraph must have no two edges that join the same pair.
        name, time_unit : str, optional
            Default to the graph attributes of these names, then to "graph" and "us".
        tensors, operands
            Stored and handed on; see the class.
        default_kind, default_cost
            For nodes without `kind` or `cost`.

        Raises
        ------
        GraphError
            If G is undirected, holds a duplicate edge, or a node attribute has the wrong type.

        Examples
        --------
        >>> G = nx.DiGraph([("load", "gemm"), ("gemm", "store")])
        >>> G.nodes["gemm"].update(kind="gemm", cost=6.0, args=(2, 1))
        >>> print(TaskGraph.from_networkx(G, name="tile"))
        tile: 3 tasks (task 2, gemm 1), 2 edges, critical path 8 us
        """
        return cls.from_arrays(
            **networkx_form.columns(G, default_kind, default_cost),
            tensors=tensors,
            operands=operands,
            name=(G.graph.get("name") or "graph") if name is None else name,
            time_unit=G.graph.get("time_unit", "us") if time_unit is None else time_unit,
        )

    def to_networkx(self) -> nx.DiGraph:
        """The same graph as a networkx DiGraph with the attributes that `from_networkx` reads.

        Raises
        ------
        GraphError
            If an edge leads to a missing task or is there twice, or two tasks share a name.
        """
        if found := faults.name_faults(self) + faults.edge_faults(self, self.successors):
            raise GraphError("\n".join(found))
        return networkx_form.digraph(self)

    @property
    def count(self) -> int:
        """Number of tasks."""
        return len(self.names)

    @property
    def edges(self) -> int:
        """Number of edges."""
        return len(self.edge_source)

    def __str__(self) -> str:
        numbers = np.bincount(self.kind[(self.kind >= 0) & (self.kind < len(self.kind_name))], minlength=1).tolist()
        kinds = [f"{kind} {number}" for kind, number in zip(self.kind_name, numbers, strict=False) if number]
        shown = ", ".join(kinds[:6] + ["..."] * (len(kinds) > 6))
        try:
            length = self.critical_path()
            path = f"critical path {f'{length:.6g}' if length < 1e6 else f'{length:.0f}'} {self.time_unit}"
        except GraphError:
            path = "no critical path (not an acyclic graph)"
        tasks, edges = f"task{'s' * (self.count != 1)}", f"edge{'s' * (self.edges != 1)}"
        return f"{self.name}: {self.count} {tasks}{f' ({shown})' if shown else ''}, {self.edges} {edges}, {path}"

    def __repr__(self) -> str:
        return f"<TaskGraph {self}>"

    def validate(self) -> list[str]:
        """Every fault of the graph as a line of text, none for an acyclic graph of known tasks. Never raises.

        A cycle is shown by a shortest one, each node by name; of many faults of one sort ten are listed.

        Examples
        --------
        >>> G = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a"), ("b", "a"), ("d", "a")])
        >>> TaskGraph.from_networkx(G).validate()
        ['cycle of 2 tasks: a -> b -> a']
        """
        structure = faults.name_faults(self) + faults.edge_faults(self, self.successors)
        return structure + faults.cycle_faults(self, self._proper_cycle()) + faults.column_faults(self)

    def require_valid(self) -> TaskGraph:
        """Return the graph itself, or raise the text of `validate`.

        Raises
        ------
        GraphError
            If there is any fault.
        """
        if found := self.validate():
            raise GraphError("\n".join(found))
        return self

    def topological_order(self) -> np.ndarray:
        """Task indices, int64[n]: by level (number of edges on the longest path to it), then in input order.

        Raises
        ------
        GraphError
            If the graph has a cycle, named, or an edge to a missing task.

        Examples
        --------
        >>> TaskGraph.from_arrays([3, 2], [1, 0], 4).topological_order().tolist()
        [2, 3, 0, 1]
        """
        return self._acyclic_levels()[0].copy()

    def bottom_levels(self) -> np.ndarray:
        """Cost of the longest path from each task to a sink, its own cost included: float64[n], `time_unit`.

        Raises
        ------
        GraphError
            As `topological_order`.
        """
        return order.bottom_levels(self.cost, *self.successors, self._acyclic_levels()[0])

    def critical_path(self) -> float:
        """Cost of the longest path, in `time_unit`; 0.0 for no tasks.

        Raises
        ------
        GraphError
            As `topological_order`.

        Examples
        --------
        >>> TaskGraph.from_arrays([0, 1], [1, 2], 4, cost=[1, 2, 4, 6.5]).critical_path()
        7.0
        """
        return float(self.bottom_levels().max(initial=0.0))

    def shortest_cycle(self) -> list[int] | None:
        """Task indices of a shortest cycle, in edge order from its lowest index; None if there is none.

        A self loop is a cycle of length 1.
        """
        loops = self.edge_source[(self.edge_source == self.edge_target) & self.known_edges()]
        return [int(loops[0])] if len(loops) else self._proper_cycle()

    def known_edges(self) -> np.ndarray:
        """Which edges join two tasks of the graph: bool[m]."""
        # Read without its sign, a negative number is larger than any count.
        return (self.edge_source.view(np.uint32) < self.count) & (self.edge_target.view(np.uint32) < self.count)

    @cached_property
    def successors(self) -> tuple[np.ndarray, np.ndarray]:
        """Tasks after each task in order of appearance: int64[n + 1], int32[<= m].

        Task i comes before ``after[ptr[i]:ptr[i + 1]]``. Edges to missing tasks are left out.
        """
        source, target, known = self.edge_source, self.edge_target, self.known_edges()
        if not known.all():
            source, target = read_only(source[known]), read_only(target[known])
        ptr, after = compressed.group(source, target, self.count)
        return read_only(ptr), read_only(after)

    def save(self, path: str | Path) -> None:
        """Write the graph to an ``.npz`` file.

        Bodies, tensors and operands are not saved: they are Python objects. A name that is not a str is saved
        as its `repr`, so an int task 7 comes back as "7".

        Raises
        ------
        GraphError
            If two names would become one.
        """
        names = [name if isinstance(name, str) else repr(name) for name in self.names]
        if len(set(names)) < len(set(self.names)):
            twice = next(name for name, times in Counter(names).items() if times > 1)
            raise GraphError(f"save: expected names that differ as text, got several that read {twice!r}")
        text = {"names": names, "labels": self.labels, "kind_name": self.kind_name}
        text |= {"name": self.name, "time_unit": self.time_unit}
        with open(path, "wb") as file:
            columns = {column: getattr(self, column) for column in _ARRAYS}
            np.savez(file, text=np.frombuffer(json.dumps(text).encode(), np.uint8), **columns)

    @classmethod
    def load(cls, path: str | Path) -> TaskGraph:
        """Read what `save` wrote.

        Raises
        ------
        FileFormatError
            If the file is not such an archive.
        """
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
                text = json.loads(archive["text"].tobytes())
                arrays = {column: archive[column] for column in _ARRAYS}
            return cls.from_arrays(count=len(text["names"]), **text, **arrays)
        except (ValueError, KeyError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
            raise FileFormatError(f"{path}: expected a graph saved by TaskGraph.save, got {error}") from error

    @cached_property
    def _levels(self) -> tuple[np.ndarray, np.ndarray]:
        return order.levels(*self.successors)

    def _acyclic_levels(self) -> tuple[np.ndarray, np.ndarray]:
        if not self.known_edges().all():
            raise GraphError("\n".join(faults.edge_faults(self, self.successors)))
        if len(self._levels[0]) < self.count:
            raise GraphError("\n".join(faults.cycle_faults(self, self._proper_cycle())))
        return self._levels

    def _proper_cycle(self) -> list[int] | None:
        """A shortest cycle of at least two tasks."""
        if len(self._levels[0]) == self.count:
            return None
        proper = self.known_edges() & (self.edge_source != self.edge_target)
        left = np.ones(self.count, bool)
        left[self._levels[0]] = False
        proper[proper] = left[self.edge_source[proper]] & left[self.edge_target[proper]]
        return order.shortest_cycle(self.edge_source[proper].tolist(), self.edge_target[proper].tolist())
