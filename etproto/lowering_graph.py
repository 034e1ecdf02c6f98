"""Lowering of a task graph: one grid whose tasks and edges are tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from etproto import layout as L
from etproto.encoding import Encoder
from etproto.errors import ProgramError
from etproto.graph import SECONDS, TaskGraph, compressed
from etproto.graph_expand import graph_tasks
from etproto.kernels.tiles.spin import spin
from etproto.lowering import Buffer, Lowered
from etproto.tasks import TaskArrays
from etproto.tensor_maps import TensorMap
from etproto.tile_kind import TileKind

__all__ = ["lower_graph"]

_LONGEST_SPIN = 2**31 - 1  # nanoseconds: the task table holds int32


def lower_graph(
    graph: TaskGraph, kinds: Mapping[str, TileKind] | None = None, *, time_scale: float = 1.0, timed: bool = True
) -> Lowered:
    """Lower a task graph.

    Parameters
    ----------
    graph : TaskGraph
        Acyclic.
    kinds : mapping, optional
        Kind name -> tile kind. Tasks of other kinds call their Python body, if they have one, and else take the time of
        their cost.
    time_scale : float
        Factor on the time of tasks that only take time.
    timed : bool
        False when nothing will run them (the timing model), so that their length does not matter.

    Raises
    ------
    GraphError
        The graph has a cycle or another fault.
    ProgramError
        A kind whose operands are no tensors of the graph; a dummy task longer than 2.1 s.
    """
    tasks = graph_tasks(graph)
    tile_kinds, kind_of, argument = _bodies(graph, tasks, kinds or {}, time_scale if timed else 0.0)
    table = np.zeros((tasks.count, L.TASK_WORDS), np.int32)
    table[:, L.TASK_KIND] = kind_of
    table[:, L.TASK_COORDINATE : L.TASK_COORDINATE + 4] = tasks.coordinate
    table[:, L.TASK_EPOCH] = 1
    table[:, L.TASK_ARGUMENT] = argument

    tensors = {tensor.name: tensor for tensor in graph.tensors}
    buffers = [Buffer(t.name, t.dtype, tuple(int(e.evaluate({})) for e in t.shape)) for t in graph.tensors]
    trigger_ptr, trigger_task = compressed.transpose(
        tasks.wait_ptr, tasks.wait_event, np.arange(tasks.count), tasks.events
    )
    tables = {
        "task_table": table.ravel(),
        "wait_ptr": tasks.wait_ptr,
        "wait_event": tasks.wait_event,
        "notify_ptr": tasks.notify_ptr,
        "notify_event": tasks.notify_event,
        "need": tasks.event_need,
        "trigger_ptr": trigger_ptr,
        "trigger_task": trigger_task,
    }
    number = {}
    for name, contents in tables.items():
        number[name] = len(buffers)
        contents = np.ascontiguousarray(contents, dtype=np.int32)
        buffers.append(Buffer(f"graph.{name}", "int32", contents.shape, contents))

    grid: list[Any] = [0] * L.GRID_WORDS
    grid[L.GRID_DIMENSIONS] = 1
    grid[L.GRID_SOURCE] = L.SOURCE_TABLE
    grid[L.GRID_BOUND] = tasks.count
    grid[L.GRID_EXTENT : L.GRID_EXTENT + 4] = [tasks.count, 1, 1, 1]
    grid[L.GRID_COUNT_BUFFER] = -1
    grid[L.GRID_WAIT_FIRST], grid[L.GRID_WAIT_COUNT] = 0, 1
    grid[L.GRID_NOTIFY_FIRST], grid[L.GRID_NOTIFY_COUNT] = 1, 1
    grid[L.GRID_WAIT_CELLS] = 1  # tasks with one set of predecessors share one event, so no task waits for two
    grid[L.GRID_EPOCH] = 1

    event: list[Any] = [0] * L.EVENT_WORDS
    event[L.EVENT_CELLS] = tasks.events
    event[L.EVENT_DIMENSIONS] = 1
    event[L.EVENT_EXTENT : L.EVENT_EXTENT + 4] = [tasks.events, 1, 1, 1]
    event[L.EVENT_STRIDE : L.EVENT_STRIDE + 4] = [1, 1, 1, 1]
    event[L.EVENT_NEED_FORM], event[L.EVENT_NEED] = L.NEED_TABLE, number["need"]
    event[L.EVENT_TRIGGER_COUNT] = 1
    event[L.EVENT_EARLY] = 1

    trigger: list[Any] = [0] * L.TRIGGER_WORDS
    trigger[L.TRIGGER_FORM] = L.TRIGGER_GATHER
    trigger[L.TRIGGER_LOW : L.TRIGGER_LOW + L.INDEX_WORDS] = _element(number["trigger_ptr"], 0)
    trigger[L.TRIGGER_HIGH : L.TRIGGER_HIGH + L.INDEX_WORDS] = _element(number["trigger_ptr"], 1)
    trigger[L.TRIGGER_SCALE] = 1
    trigger[L.TRIGGER_EVENT] = number["trigger_task"]

    operands, first_operand, maps = _operands(graph, tile_kinds, tensors, [buffer.name for buffer in buffers])
    encoder = Encoder({})
    words, patches = encoder.assemble(
        grids=[grid],
        edges=[[0, 1, ("dimension", 0), 1], [0, 1, ("dimension", 1), 0]],
        dimensions=[
            _gather(number["wait_ptr"], number["wait_event"], tasks.events),
            _gather(number["notify_ptr"], number["notify_event"], tasks.events),
        ],
        events=[event],
        triggers=[trigger],
        operands=operands,
        table_operands=first_operand,
        task_table=number["task_table"],
        cells=tasks.events,
        tasks=tasks.count,
        buffers=len(buffers),
    )
    return Lowered(
        name=graph.name,
        words=words,
        patches=patches,
        scalars=encoder.scalars(),
        buffers=tuple(buffers),
        kinds=tile_kinds,
        grid_name=("graph",),
        grid_first=np.zeros(1, np.int64),
        grid_bound=np.array([tasks.count], np.int64),
        tasks=tasks.count,
        cells=tasks.events,
        run_time_grids=(False,),
        tensor_maps=maps,
        task_arrays=tasks,
        time_unit=graph.time_unit,
    )


def _element(buffer: int, offset: int) -> list[int]:
    """Index record of ``buffer[i + offset]``."""
    return [1, 0, 0, 0, offset, 1, 0, buffer]


def _gather(pointer: int, elements: int, extent: int) -> list[int]:
    """Dimension record of ``elements[pointer[row]:pointer[row + 1]]``."""
    return [L.FORM_GATHER, *_element(pointer, 0), *_element(pointer, 1), elements, extent, 1]


def _bodies(
    graph: TaskGraph, tasks: TaskArrays, kinds: Mapping[str, TileKind], time_scale: float
) -> tuple[tuple[TileKind, ...], np.ndarray, np.ndarray]:
    """Tile kinds in use, the kind number of each row, and the argument of each row (a body's number, or
    nanoseconds).
    """
    used: list[TileKind] = []
    translate = np.full(len(graph.kind_name), -1, np.int64)
    for position, name in enumerate(graph.kind_name):
        if name in kinds:
            translate[position] = len(used)
            used.append(kinds[name])
    kind_of = translate[tasks.kind] if len(translate) else np.zeros(tasks.count, np.int64)
    argument = np.zeros(tasks.count, np.int64)
    order = graph.topological_order()
    if graph.bodies is not None:
        bodies = [graph.bodies[task] for task in order.tolist()]
        callable_rows = [row for row, body in enumerate(bodies) if body is not None and kind_of[row] < 0]
        if callable_rows:
            kind_of[callable_rows] = len(used)
            argument[callable_rows] = callable_rows
            used.append(_python_kind(bodies, graph.args_count[order]))
    timed = np.flatnonzero(kind_of < 0)
    if len(timed):
        nanoseconds = tasks.cost[timed] * (SECONDS[graph.time_unit] * 1e9 * time_scale)
        if nanoseconds.max() > _LONGEST_SPIN:
            row = int(timed[nanoseconds.argmax()])
            raise ProgramError(
                f"graph {graph.name}: task {tasks.name(row)} would spin for {nanoseconds.max() * 1e-9:.3g} s, at most"
                f" {_LONGEST_SPIN * 1e-9:.3g} s; shorten dummy tasks with"
                f" time_scale={_LONGEST_SPIN / nanoseconds.max() * time_scale:.1g}"
            )
        kind_of[timed] = len(used)
        argument[timed] = np.rint(nanoseconds)
        used.append(spin)
    return tuple(used), kind_of, argument


def _python_kind(bodies: list[Callable | None], args_count: np.ndarray) -> TileKind:
    """A kind whose tasks call their own Python body with the task's coordinate; it runs on the cpu executor only."""

    def reference(i: int, j: int, k: int, m: int, row: int) -> None:
        bodies[row](*(i, j, k, m)[: args_count[row]])  # type: ignore[misc]  # rows of this kind have a body

    return TileKind(name="python_body", reference=reference, coordinates=4, argument=True)


def _operands(
    graph: TaskGraph, kinds: tuple[TileKind, ...], tensors: Mapping[str, Any], buffers: list[str]
) -> tuple[list[list], list[int], tuple[tuple[int, TensorMap], ...]]:
    """Operand records, the number of each kind's first one, and the tensor maps with their records."""
    records: list[list] = []
    first = []
    maps: list[tuple[int, TensorMap]] = []
    for kind in kinds:
        first.append(len(records))
        given = graph.operands.get(kind.name, {})
        for operand in kind.operands:
            value = given.get(operand.name, operand.name)
            if operand.ndim == 0:
                records.append([int(value), 1, 1, 1, 1, len(maps)])
                continue
            tensor = tensors.get(value)
            if tensor is None or len(tensor.shape) != operand.ndim or tensor.dtype != operand.dtype:
                raise ProgramError(
                    f"graph {graph.name}: operand {operand.name} of kind {kind.name} needs a tensor with"
                    f" {operand.ndim} dimensions"
                    f" of {operand.dtype}, got {tensor or value!r}; tensors are {', '.join(tensors) or 'none'}"
                )
            shape = [int(extent.evaluate({})) for extent in tensor.shape]
            records.append([buffers.index(value), *shape, *[1] * (4 - len(shape)), len(maps)])
            maps += [(len(records) - 1, one) for one in kind.tensor_maps if one.operand == operand.name]
    return records, first, tuple(maps)
