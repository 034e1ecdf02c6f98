"""Reading a lowered program: which task, which event cells, which need, which triggered tasks.

Plain functions over ``words`` (int64 records, see `etproto.layout`) and ``pointers`` (buffer number ->
address). Kernels compile them and the cpu executor calls them as they are, so a record has one meaning.
Coordinates travel as four integers, the form in which they stay in registers.
"""

from __future__ import annotations

from etproto import layout as L
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.integer import floor_divide, floor_modulo
from etproto.kernels.ptx.memory import load_int32

__all__ = [
    "index_value",
    "edge_count",
    "edge_cell",
    "edge_is_fixed",
    "event_need",
    "event_coordinate",
    "grid_of_task",
    "grid_count",
    "map_coordinate",
    "task_coordinate",
    "ready_need",
    "trigger_count",
    "trigger_task",
]


@device_function
def index_value(words, pointers, at, x, y, z, w):
    """Value of the index record at word `at` for one coordinate."""
    value = words[at] * x + words[at + 1] * y + words[at + 2] * z + words[at + 3] * w + words[at + L.INDEX_CONSTANT]
    divisor = words[at + L.INDEX_DIVISOR]
    if divisor != 1:
        value = floor_divide(value, divisor)
    modulus = words[at + L.INDEX_MODULUS]
    if modulus > 0:
        value = floor_modulo(value, modulus)
    buffer = words[at + L.INDEX_BUFFER]
    if buffer >= 0:
        value = load_int32(pointers[buffer], value)
    return value


@device_function
def _dimension_bounds(words, pointers, at, x, y, z, w):
    """(low, number) of the positions that the dimension record at word `at` covers."""
    form = words[at + L.DIMENSION_FORM]
    low = index_value(words, pointers, at + L.DIMENSION_LOW, x, y, z, w)
    if form == L.FORM_POINT:
        return low, 1
    high = index_value(words, pointers, at + L.DIMENSION_HIGH, x, y, z, w)
    if form == L.FORM_RANGE:
        low = max(low, 0)
        high = min(high, words[at + L.DIMENSION_EXTENT])
    return low, max(high - low, 0)


@device_function
def edge_count(words, pointers, edge, x, y, z, w):
    """How many event cells a task touches through the edge record at word `edge`."""
    count = 1
    at = words[edge + L.EDGE_FIRST_DIMENSION]
    for _ in range(words[edge + L.EDGE_DIMENSIONS]):
        _low, number = _dimension_bounds(words, pointers, at, x, y, z, w)
        count *= number
        at += L.DIMENSION_WORDS
    return count


@device_function
def edge_cell(words, pointers, edge, number, x, y, z, w):
    """Flat number of the `number`-th cell of an edge; -1 when a run-time map points outside the event tensor."""
    event = words[L.HEADER_EVENTS] + words[edge + L.EDGE_EVENT] * L.EVENT_WORDS
    cell = words[event + L.EVENT_BASE]
    dimensions = words[edge + L.EDGE_DIMENSIONS]
    at = words[edge + L.EDGE_FIRST_DIMENSION] + (dimensions - 1) * L.DIMENSION_WORDS
    inside = True
    for _ in range(dimensions):
        low, size = _dimension_bounds(words, pointers, at, x, y, z, w)
        value = low
        if size > 1:
            value += floor_modulo(number, size)
            number = floor_divide(number, size)
        if words[at + L.DIMENSION_FORM] == L.FORM_GATHER:
            value = load_int32(pointers[words[at + L.DIMENSION_GATHER]], value)
        if value < 0 or value >= words[at + L.DIMENSION_EXTENT]:
            inside = False
        cell += value * words[at + L.DIMENSION_STRIDE]
        at -= L.DIMENSION_WORDS
    if not inside:
        cell = -1
    return cell


@device_function
def edge_is_fixed(words, edge):
    """Whether an edge's map reads no memory, so that it may be evaluated before the task has run."""
    fixed = True
    at = words[edge + L.EDGE_FIRST_DIMENSION]
    for _ in range(words[edge + L.EDGE_DIMENSIONS]):
        low = words[at + L.DIMENSION_LOW + L.INDEX_BUFFER]
        high = words[at + L.DIMENSION_HIGH + L.INDEX_BUFFER]
        if words[at + L.DIMENSION_FORM] == L.FORM_GATHER or low >= 0 or high >= 0:
            fixed = False
        at += L.DIMENSION_WORDS
    return fixed


@device_function
def event_need(words, pointers, event, cell):
    """Notifications that satisfy `cell`; `event` is the word of its event tensor's record."""
    need = words[event + L.EVENT_NEED]
    if words[event + L.EVENT_NEED_FORM] != L.NEED_SCALAR:
        need = load_int32(pointers[need], cell - words[event + L.EVENT_BASE])
    return need


@device_function
def event_coordinate(words, event, cell, dimension):
    """Coordinate of a cell along one dimension of its event tensor."""
    offset = cell - words[event + L.EVENT_BASE]
    position = floor_divide(offset, words[event + L.EVENT_STRIDE + dimension])
    return floor_modulo(position, words[event + L.EVENT_EXTENT + dimension])


@device_function
def grid_of_task(words, task):
    """Word of the record of the grid that `task` belongs to (grids are in order of their first task)."""
    low = 0
    high = words[L.HEADER_GRID_COUNT]
    base = words[L.HEADER_GRIDS]
    while high - low > 1:
        middle = (low + high) >> 1
        if words[base + middle * L.GRID_WORDS + L.GRID_FIRST] <= task:
            low = middle
        else:
            high = middle
    return base + low * L.GRID_WORDS


@device_function
def _outer_extent(words, pointers, grid):
    """Extent 0 of a grid; for a ragged grid the total number of positions."""
    extent = words[grid + L.GRID_EXTENT]
    buffer = words[grid + L.GRID_COUNT_BUFFER]
    if buffer >= 0:
        index = words[grid + L.GRID_COUNT_INDEX]
        if words[grid + L.GRID_RAGGED] == 1:
            index = extent
        extent = load_int32(pointers[buffer], index)
    return extent


@device_function
def _inner_volume(words, grid):
    """Tasks for each value of dimension 0 (of each position, in a ragged grid)."""
    volume = words[grid + L.GRID_EXTENT + 2] * words[grid + L.GRID_EXTENT + 3]
    if words[grid + L.GRID_RAGGED] == 0:
        volume *= words[grid + L.GRID_EXTENT + 1]
    return volume


@device_function
def grid_count(words, pointers, grid):
    """Number of tasks of a grid in this run. Run-time extents must be known by now.

    The row pointer of a ragged grid must begin with 0, since its tasks are numbered from there; else the
    count is negative.
    """
    count = _outer_extent(words, pointers, grid) * _inner_volume(words, grid)
    if words[grid + L.GRID_RAGGED] == 1:
        first = load_int32(pointers[words[grid + L.GRID_COUNT_BUFFER]], 0)
        if first != 0:
            count = count * 0 - abs(first)
    return count


@device_function
def map_coordinate(words, pointers, grid, number):
    """Coordinate that the edge maps of the `number`-th task of a grid are evaluated at (its row, for a
    table).
    """
    if words[grid + L.GRID_SOURCE] == L.SOURCE_TABLE:
        return number, number * 0, number * 0, number * 0
    w = number * 0
    z = number * 0
    if words[grid + L.GRID_DIMENSIONS] > 2:
        w = floor_modulo(number, words[grid + L.GRID_EXTENT + 3])
        number = floor_divide(number, words[grid + L.GRID_EXTENT + 3])
        z = floor_modulo(number, words[grid + L.GRID_EXTENT + 2])
        number = floor_divide(number, words[grid + L.GRID_EXTENT + 2])
    if words[grid + L.GRID_RAGGED] == 1:
        pointer = pointers[words[grid + L.GRID_COUNT_BUFFER]]
        low = number * 0
        high = words[grid + L.GRID_EXTENT]
        while high - low > 1:
            middle = (low + high) >> 1
            if load_int32(pointer, middle) <= number:
                low = middle
            else:
                high = middle
        return low, number, z, w
    inner = words[grid + L.GRID_EXTENT + 1]
    return floor_divide(number, inner), floor_modulo(number, inner), z, w


@device_function
def task_coordinate(words, pointers, grid, number):
    """Coordinate that a task's body is given: from the task table, or as `map_coordinate`."""
    if words[grid + L.GRID_SOURCE] == L.SOURCE_TABLE:
        table = pointers[words[L.HEADER_TASK_TABLE]]
        at = (number + words[grid + L.GRID_TABLE_ROW]) * L.TASK_WORDS + L.TASK_COORDINATE
        zero = number * 0  # keeps all coordinates 64 bits wide
        return (
            zero + load_int32(table, at),
            zero + load_int32(table, at + 1),
            zero + load_int32(table, at + 2),
            zero + load_int32(table, at + 3),
        )
    return map_coordinate(words, pointers, grid, number)


@device_function
def ready_need(words, pointers, grid, x, y, z, w):
    """How many triggers make a task ready: its wait cells, over the edges that count."""
    total = x * 0
    edge = words[L.HEADER_EDGES] + words[grid + L.GRID_WAIT_FIRST] * L.EDGE_WORDS
    for _ in range(words[grid + L.GRID_WAIT_COUNT]):
        if words[edge + L.EDGE_TRIGGERS] == 1:
            total += edge_count(words, pointers, edge, x, y, z, w)
        edge += L.EDGE_WORDS
    return total


@device_function
def _box_bounds(words, pointers, trigger, grid, event, cell, dimension):
    """(low, number) of the grid coordinates along one dimension that a cell triggers."""
    extent = words[grid + L.GRID_EXTENT + dimension]
    if dimension == 0:
        extent = _outer_extent(words, pointers, grid)
    at = trigger + L.TRIGGER_BOX + dimension * L.BOX_WORDS
    source = words[at + L.BOX_DIMENSION]
    low = extent * 0
    high = extent
    if source >= 0:
        scaled = event_coordinate(words, event, cell, source) * words[at + L.BOX_SCALE]
        low = max(low, floor_divide(scaled + words[at + L.BOX_LOW], words[at + L.BOX_DIVISOR]))
        high = min(high, floor_divide(scaled + words[at + L.BOX_HIGH], words[at + L.BOX_DIVISOR]))
    return low, max(high - low, 0)


@device_function
def trigger_count(words, pointers, trigger, event, cell):
    """How many tasks the trigger record at word `trigger` names for a cell (never called for
    TRIGGER_ZERO_CELLS).
    """
    if words[trigger + L.TRIGGER_FORM] == L.TRIGGER_BOX_FORM:
        grid = words[L.HEADER_GRIDS] + words[trigger + L.TRIGGER_GRID] * L.GRID_WORDS
        count = cell * 0 + 1
        for dimension in range(words[grid + L.GRID_DIMENSIONS]):
            _low, number = _box_bounds(words, pointers, trigger, grid, event, cell, dimension)
            count *= number
        return count
    low, high = _trigger_range(words, pointers, trigger, event, cell)
    return max(high - low, 0)


@device_function
def _trigger_range(words, pointers, trigger, event, cell):
    """Low and high task number of TRIGGER_RANGE, or positions of TRIGGER_GATHER."""
    x = cell - words[event + L.EVENT_BASE]
    y = x * 0
    z = x * 0
    w = x * 0
    if words[event + L.EVENT_DIMENSIONS] > 1:
        x = event_coordinate(words, event, cell, 0)
        y = event_coordinate(words, event, cell, 1)
        z = event_coordinate(words, event, cell, 2)
        w = event_coordinate(words, event, cell, 3)
    scale = words[trigger + L.TRIGGER_SCALE]
    low = index_value(words, pointers, trigger + L.TRIGGER_LOW, x, y, z, w) * scale
    high = index_value(words, pointers, trigger + L.TRIGGER_HIGH, x, y, z, w) * scale
    return low, high


@device_function
def trigger_task(words, pointers, trigger, event, cell, number):
    """Number within its grid of the `number`-th task that a cell triggers."""
    form = words[trigger + L.TRIGGER_FORM]
    if form == L.TRIGGER_BOX_FORM:
        grid = words[L.HEADER_GRIDS] + words[trigger + L.TRIGGER_GRID] * L.GRID_WORDS
        task = cell * 0
        scale = cell * 0 + 1
        dimension = words[grid + L.GRID_DIMENSIONS]
        while dimension > 0:
            dimension -= 1
            low, size = _box_bounds(words, pointers, trigger, grid, event, cell, dimension)
            task += (low + floor_modulo(number, size)) * scale
            number = floor_divide(number, size)
            scale *= words[grid + L.GRID_EXTENT + dimension]
        return task
    low, _high = _trigger_range(words, pointers, trigger, event, cell)
    task = low + number
    if form == L.TRIGGER_GATHER:
        task = cell * 0 + load_int32(pointers[words[trigger + L.TRIGGER_EVENT]], task)
    return task
