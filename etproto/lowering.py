"""Lowering: an instance of a program, or a task graph, becomes the arrays of `etproto.layout`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from etproto import layout as L
from etproto.edge_map import Gather, Index, Point, as_index
from etproto.encoding import Encoder
from etproto.errors import ProgramError
from etproto.expressions import Constant, Expression, Symbol
from etproto.needs import static_needs, uniform_need
from etproto.numbering import Numbering, number
from etproto.program import Edge, EventTensor, Grid, Instance, Tensor
from etproto.tasks import TaskArrays
from etproto.tensor_maps import TensorMap
from etproto.tile_kind import TileKind
from etproto.triggers import trigger_records

__all__ = ["Buffer", "Lowered", "lower"]


@dataclass(frozen=True)
class Buffer:
    """An array that records name by number.

    `contents` is None for a tensor, whose array is given at run time; for the program's own tables it is the
    int32 data.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    contents: np.ndarray | None = None


@dataclass(frozen=True)
class Lowered:
    """What executors and schedulers need to know of a program, as arrays.

    Parameters
    ----------
    name : str
        Name for messages.
    words : int64[...]
        Records; words that depend on a symbol hold 0 (see `patches`).
    patches : int32[p, 2]
        Rows (word, scalar): before a launch ``words[word] = scalars[scalar]``.
    scalars : int64[s]
        All that a new binding changes.
    buffers : tuple of Buffer
        Tensors first, in the program's order; then the program's own tables.
    kinds : tuple of TileKind
        Kind numbers are positions in it.
    grid_name, grid_first, grid_bound
        Name, first task id and most tasks of each grid.
    tasks, cells : int
        Task ids and event cells at the symbols' bounds.
    run_time_grids : tuple of bool
        Grids whose number of tasks is read in the launch.
    tensor_maps : tuple of (int, TensorMap)
        What bulk copies need to know of operands: number of the operand record, and the map.
    instance : Instance or None
        The bound program this came from.
    task_arrays : TaskArrays or None
        The expanded tasks of a graph.
    time_unit : str
        Unit of the tasks' costs.
    """

    name: str
    words: np.ndarray
    patches: np.ndarray
    scalars: np.ndarray
    buffers: tuple[Buffer, ...]
    kinds: tuple[TileKind, ...]
    grid_name: tuple[str, ...]
    grid_first: np.ndarray
    grid_bound: np.ndarray
    tasks: int
    cells: int
    run_time_grids: tuple[bool, ...]
    tensor_maps: tuple[tuple[int, TensorMap], ...] = ()
    instance: Instance | None = None
    task_arrays: TaskArrays | None = None
    time_unit: str = "us"

    def resolved_words(self) -> np.ndarray:
        """`words` with every patch applied, as the reset kernel leaves them on the device."""
        words = self.words.copy()
        words[self.patches[:, 0]] = self.scalars[self.patches[:, 1]]
        return words

    def buffer_number(self, name: str) -> int:
        """Number of the buffer called `name`."""
        return [buffer.name for buffer in self.buffers].index(name)


@dataclass
class _Context:
    """What the record writers share while one instance is lowered."""

    instance: Instance
    numbering: Numbering
    encoder: Encoder
    shapes: Mapping[str, tuple[Expression, ...]]
    buffers: list[Buffer] = field(default_factory=list)

    def buffer(self, name: str) -> int:
        return [buffer.name for buffer in self.buffers].index(name)

    def index(self, index: Index) -> list[Expression | int]:
        coefficients = [*index.coefficients, *[0] * (4 - len(index.coefficients))]
        modulus = 0 if index.modulus is None else index.modulus
        buffer = -1 if index.buffer is None else self.buffer(index.buffer)
        return [*coefficients, index.constant, index.divisor, modulus, buffer]


def lower(instance: Instance) -> Lowered:
    """Lower a bound program.

    The template (`words`, `patches`, tables) is the same for every binding up to the bounds; only `scalars`,
    and the tables of needs of event tensors whose cells differ, depend on the values bound.

    Raises
    ------
    ProgramError
        A map or extent outside the forms that the device evaluates.

    Examples
    --------
    >>> from etproto.models.splitk import program
    >>> one, many = (lower(program().bind(n=n)) for n in (1, 100_000))
    >>> bool((one.words == many.words).all()), many.scalars.nbytes <= 256
    (True, True)
    """
    program = instance.program
    tensor_shapes = {tensor.name: tensor.shape for tensor in program.tensors}
    context = _Context(instance, number(instance), Encoder(instance.values), tensor_shapes)
    bounds = instance.bounds
    for tensor in program.tensors:
        shape = tuple(int(extent.evaluate(bounds)) for extent in tensor.shape)
        context.buffers.append(Buffer(tensor.name, tensor.dtype, shape))
    written = {tensor.name for tensor in program.tensors if program.writers(tensor.name)}
    needs = [_need(context, event, written) for event in program.events]

    encoder = context.encoder
    grids, edges, dimensions, operands = [], [], [], []
    maps: list[tuple[int, TensorMap]] = []
    kinds: list[TileKind] = []
    for position, grid in enumerate(program.parsed):
        if grid.kind not in kinds:
            kinds.append(grid.kind)
        record = _grid_record(context, grid, position, written)
        record[L.GRID_KIND] = kinds.index(grid.kind)
        record[L.GRID_WAIT_FIRST], record[L.GRID_WAIT_COUNT] = len(edges), len(grid.waits)
        for edge in grid.waits:
            event = program.events.index(edge.event)
            edges.append([event, len(edge.map.dimensions), ("dimension", len(dimensions)), 1])
            dimensions += _dimension_records(context, grid, edge)
        record[L.GRID_NOTIFY_FIRST], record[L.GRID_NOTIFY_COUNT] = len(edges), len(grid.notifies)
        for edge in grid.notifies:
            event = program.events.index(edge.event)
            edges.append([event, len(edge.map.dimensions), ("dimension", len(dimensions)), 0])
            dimensions += _dimension_records(context, grid, edge)
        record[L.GRID_OPERANDS] = ("operand", len(operands))
        operands += _operand_records(context, grid, len(operands), maps)
        grids.append(record)

    triggers, events = [], []
    for position, event in enumerate(program.events):
        record = _event_record(context, event, position, needs[position])
        records, early = trigger_records(program, event, written, context.index, tensor_shapes)
        record[L.EVENT_TRIGGER_FIRST], record[L.EVENT_TRIGGER_COUNT] = len(triggers), len(records)
        record[L.EVENT_EARLY] = int(early)
        triggers += records
        events.append(record)

    words, patches = encoder.assemble(
        grids=grids,
        edges=edges,
        dimensions=dimensions,
        events=events,
        triggers=triggers,
        operands=operands,
        table_operands=[],
        task_table=-1,
        cells=context.numbering.cells,
        tasks=context.numbering.tasks,
        buffers=len(context.buffers),
    )
    return Lowered(
        name=str(instance),
        words=words,
        patches=patches,
        scalars=encoder.scalars(),
        buffers=tuple(context.buffers),
        kinds=tuple(kinds),
        grid_name=tuple(grid.name for grid in program.parsed),
        grid_first=np.array(context.numbering.grid_first, np.int64),
        grid_bound=np.array(context.numbering.grid_bound, np.int64),
        tasks=context.numbering.tasks,
        cells=context.numbering.cells,
        run_time_grids=tuple(
            (grid.count is not None and grid.count.tensor in written) or (grid.pointer in written)
            for grid in program.parsed
        ),
        tensor_maps=tuple(maps),
        instance=instance,
    )


def _grid_record(context: _Context, grid: Grid, position: int, written: set[str]) -> list:
    record: list = [0] * L.GRID_WORDS
    record[L.GRID_DIMENSIONS] = grid.ndim
    record[L.GRID_SOURCE] = L.SOURCE_FORMULA
    record[L.GRID_FIRST] = context.numbering.grid_first[position]
    record[L.GRID_BOUND] = context.numbering.grid_bound[position]
    extents = [*grid.extents, *[1] * (4 - grid.ndim)]
    record[L.GRID_COUNT_BUFFER] = -1
    if grid.count is not None:
        index = as_index(grid.count, (), context.shapes)
        record[L.GRID_COUNT_BUFFER] = context.buffer(grid.count.tensor)
        record[L.GRID_COUNT_INDEX] = index.constant
    if grid.pointer is not None:
        record[L.GRID_COUNT_BUFFER] = context.buffer(grid.pointer)
        record[L.GRID_RAGGED] = 1
        extents[1] = 1
    record[L.GRID_EXTENT : L.GRID_EXTENT + 4] = extents
    reads = set(grid.run_time_reads()) & written
    if reads:
        record[L.GRID_GATE_COUNT] = sum(edge.is_gate for edge in grid.waits)
        record[L.GRID_CONSTANT_GATES] = sum(edge.is_constant for edge in grid.waits)
    record[L.GRID_WAIT_CELLS] = _wait_cells(grid)
    record[L.GRID_EPOCH] = 1
    return record


def _wait_cells(grid: Grid) -> int:
    """0: no waits; 1: exactly one cell, so its trigger can push at once; 2: count."""
    if not grid.waits:
        return 0
    single = len(grid.waits) == 1 and all(isinstance(dimension, Point) for dimension in grid.waits[0].map.dimensions)
    return 1 if single else 2


def _dimension_records(context: _Context, grid: Grid, edge: Edge) -> list[list]:
    records = []
    strides = _strides(edge.event.shape)
    for dimension, extent, stride in zip(edge.map.dimensions, edge.event.shape, strides, strict=True):
        record: list = [0] * L.DIMENSION_WORDS
        low = dimension.value if isinstance(dimension, Point) else dimension.low
        high = dimension.value if isinstance(dimension, Point) else dimension.high
        record[L.DIMENSION_LOW : L.DIMENSION_LOW + L.INDEX_WORDS] = context.index(
            as_index(low, grid.coordinates, context.shapes)
        )
        record[L.DIMENSION_HIGH : L.DIMENSION_HIGH + L.INDEX_WORDS] = context.index(
            as_index(high, grid.coordinates, context.shapes)
        )
        record[L.DIMENSION_FORM] = L.FORM_POINT if isinstance(dimension, Point) else L.FORM_RANGE
        record[L.DIMENSION_GATHER] = -1
        if isinstance(dimension, Gather):
            record[L.DIMENSION_FORM] = L.FORM_GATHER
            record[L.DIMENSION_GATHER] = context.buffer(dimension.tensor)
        record[L.DIMENSION_EXTENT], record[L.DIMENSION_STRIDE] = extent, stride
        records.append(record)
    return records


def _strides(shape: tuple[Expression, ...]) -> list[Expression]:
    strides: list[Expression] = [Constant(1)] * len(shape)
    for dimension in range(len(shape) - 2, -1, -1):
        strides[dimension] = strides[dimension + 1] * shape[dimension + 1]
    return strides


def _operand_records(context: _Context, grid: Grid, first: int, maps: list[tuple[int, TensorMap]]) -> list[list]:
    """Operand records of a grid, the first of them number `first`; adds their tensor maps to `maps`."""
    records: list[list] = []
    for operand in grid.kind.operands:
        bound = grid.operands[operand.name]
        if isinstance(bound, Tensor):
            number = first + len(records)
            records.append([context.buffer(bound.name), *bound.shape, *[1] * (4 - len(bound.shape)), len(maps)])
            maps += [(number, one) for one in grid.kind.tensor_maps if one.operand == operand.name]
        else:
            records.append([bound, 1, 1, 1, 1, len(maps)])
    return records


def _need(context: _Context, event: EventTensor, written: set[str]) -> tuple[int, Expression | int]:
    """(form, need or buffer number) of an event tensor, adding the table of needs to the buffers where one is
    needed.
    """
    program = context.instance.program
    if event.any_of:
        return L.NEED_SCALAR, Constant(1)
    if event.count is not None:
        return L.NEED_RUNTIME, context.buffer(event.count.name)
    uniform = uniform_need(program, event)
    if uniform is not None:
        return L.NEED_SCALAR, uniform
    if event.need is not None:
        return L.NEED_SCALAR, event.need
    needs = static_needs(context.instance, event)
    if needs is None:
        raise ProgramError(
            f"program {program.name}: the need of {event.name} depends on run-time values; name the tensor that"
            " holds it, count=..."
        )
    symbolic = any(isinstance(leaf, Symbol) for extent in event.shape for leaf in extent.leaves())
    if not symbolic and len(needs) and (needs == needs[0]).all():
        return L.NEED_SCALAR, Constant(int(needs[0]))
    bound = context.numbering.event_bound[program.events.index(event)]
    table = np.zeros(bound, np.int32)
    table[: len(needs)] = needs
    context.buffers.append(Buffer(f"{event.name}.need", "int32", (bound,), table))
    return L.NEED_TABLE, len(context.buffers) - 1


def _event_record(context: _Context, event: EventTensor, position: int, need: tuple[int, Expression | int]) -> list:
    record: list = [0] * L.EVENT_WORDS
    cells: Expression = Constant(1)
    for extent in event.shape:
        cells = cells * extent
    record[L.EVENT_BASE] = context.numbering.event_base[position]
    record[L.EVENT_CELLS] = cells
    record[L.EVENT_DIMENSIONS] = len(event.shape)
    record[L.EVENT_EXTENT : L.EVENT_EXTENT + 4] = [*event.shape, *[1] * (4 - len(event.shape))]
    record[L.EVENT_STRIDE : L.EVENT_STRIDE + 4] = [*_strides(event.shape), *[1] * (4 - len(event.shape))]
    record[L.EVENT_NEED_FORM], record[L.EVENT_NEED] = need
    record[L.EVENT_SCOPE] = L.SCOPE_SYSTEM if event.scope == "sys" else L.SCOPE_GPU
    record[L.EVENT_ANY_OF] = int(event.any_of)
    return record
