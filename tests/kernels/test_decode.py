"""Two independent meanings of a program agree: the device's records, and expansion by array arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etproto import layout as L
from etproto.errors import ProgramError
from etproto.expand import expand
from etproto.expressions import Symbol
from etproto.kernels import decode
from etproto.lowering import Lowered, lower
from etproto.models import MODELS
from etproto.program import EventTensor, Instance, Program, TaskGrid, Tensor
from etproto.tile_kind import Operand, TileKind


class Decoded:
    """Reads a lowered program as the device does: from its words and the addresses of its buffers."""

    def __init__(self, lowered: Lowered, tensors: dict[str, np.ndarray]) -> None:
        self.words = lowered.resolved_words()
        used = [b.contents if b.contents is not None else tensors.get(b.name) for b in lowered.buffers]
        self.alive = used
        self.pointers = np.array([0 if a is None else a.ctypes.data for a in used], np.int64)
        first = self.words[L.HEADER_GRIDS]
        self.grids = [first + g * L.GRID_WORDS for g in range(self.words[L.HEADER_GRID_COUNT])]
        first = self.words[L.HEADER_EVENTS]
        self.events = [first + e * L.EVENT_WORDS for e in range(self.words[L.HEADER_EVENT_COUNT])]

    def tasks(self, grid: int) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """(task id, coordinate for maps, coordinate for bodies) of each task."""
        for number in range(decode.grid_count(self.words, self.pointers, grid)):
            maps = decode.map_coordinate(self.words, self.pointers, grid, number)
            body = decode.task_coordinate(self.words, self.pointers, grid, number)
            task = int(self.words[grid + L.GRID_FIRST]) + number
            assert decode.grid_of_task(self.words, task) == grid
            yield task, tuple(int(x) for x in maps), tuple(int(x) for x in body)

    def edges(self, grid: int, first: int, count: int) -> list[int]:
        start = self.words[L.HEADER_EDGES] + self.words[grid + first] * L.EDGE_WORDS
        return [start + e * L.EDGE_WORDS for e in range(self.words[grid + count])]

    def cells(self, edge: int, coordinate: tuple[int, ...]) -> list[int]:
        count = decode.edge_count(self.words, self.pointers, edge, *coordinate)
        return [int(decode.edge_cell(self.words, self.pointers, edge, n, *coordinate)) for n in range(count)]

    def need(self, event: int, cell: int) -> int:
        return int(decode.event_need(self.words, self.pointers, self.events[event], cell))

    def triggers(self, event: int) -> list[int]:
        """Trigger records of an event tensor, apart from those for cells that need nothing."""
        record = self.events[event]
        first = self.words[L.HEADER_TRIGGERS] + self.words[record + L.EVENT_TRIGGER_FIRST] * L.TRIGGER_WORDS
        all_records = [first + t * L.TRIGGER_WORDS for t in range(self.words[record + L.EVENT_TRIGGER_COUNT])]
        return [at for at in all_records if self.words[at + L.TRIGGER_FORM] != L.TRIGGER_ZERO_CELLS]

    def triggered(self, trigger: int, event: int, cell: int) -> list[int]:
        arguments = (self.words, self.pointers, trigger, self.events[event], cell)
        first = self.words[self.grids[self.words[trigger + L.TRIGGER_GRID]] + L.GRID_FIRST]
        return [int(first + decode.trigger_task(*arguments, n)) for n in range(decode.trigger_count(*arguments))]


def compare(instance: Instance, tensors: dict[str, np.ndarray]) -> None:
    """All that the device would read of a program against its expansion."""
    lowered = lower(instance)
    seen, expected = Decoded(lowered, tensors), expand(instance, tensors)
    row_of = {int(task): row for row, task in enumerate(expected.task)}
    found = 0
    for index, grid in enumerate(seen.grids):
        for task, maps, body in seen.tasks(grid):
            found += 1
            row = row_of[task]
            assert maps == body == tuple(expected.coordinate[row]) and expected.grid[row] == index
            for first, count, ptr, events in (
                (L.GRID_WAIT_FIRST, L.GRID_WAIT_COUNT, expected.wait_ptr, expected.wait_event),
                (L.GRID_NOTIFY_FIRST, L.GRID_NOTIFY_COUNT, expected.notify_ptr, expected.notify_event),
            ):
                cells = [cell for edge in seen.edges(grid, first, count) for cell in seen.cells(edge, maps)]
                assert Counter(cells) == Counter(events[ptr[row] : ptr[row + 1]].tolist())
            ready = decode.ready_need(seen.words, seen.pointers, grid, *maps)
            counting = [
                edge
                for edge in seen.edges(grid, L.GRID_WAIT_FIRST, L.GRID_WAIT_COUNT)
                if seen.words[edge + L.EDGE_TRIGGERS]
            ]
            assert ready == sum(len(seen.cells(edge, maps)) for edge in counting)
    assert found == expected.count
    touched = set(expected.wait_event.tolist()) | set(expected.notify_event.tolist())
    for event, record in enumerate(seen.events):
        base, cells = (int(seen.words[record + field]) for field in (L.EVENT_BASE, L.EVENT_CELLS))
        for cell in range(base, base + cells):
            if cell in touched:
                assert seen.need(event, cell) == expected.event_need[cell]
        _compare_triggers(seen, event, range(base, base + cells))


def _compare_triggers(seen: Decoded, event: int, cells: range) -> None:
    """What the cells of an event tensor trigger is the inverse of what tasks wait for."""
    for index, grid in enumerate(seen.grids):
        waits = [
            edge
            for edge in seen.edges(grid, L.GRID_WAIT_FIRST, L.GRID_WAIT_COUNT)
            if seen.words[edge + L.EDGE_EVENT] == event
        ]
        records = [at for at in seen.triggers(event) if seen.words[at + L.TRIGGER_GRID] == index]
        if len(records) < len(waits):
            continue  # not every wait can be inverted: the scheduler refuses to queue this grid
        fired = Counter((cell, task) for at in records for cell in cells for task in seen.triggered(at, event, cell))
        waited = Counter(
            (cell, task) for task, maps, _ in seen.tasks(grid) for edge in waits for cell in seen.cells(edge, maps)
        )
        assert fired == waited


def kind(ndim: int) -> TileKind:
    return TileKind(f"kind{ndim}", reference=lambda *arguments: None, coordinates=ndim)


@st.composite
def run_time_tensor(draw, name: str, shape: tuple[int, ...], low: int, high: int, tensors: dict, declared: dict):
    """Declare an int32 input tensor with random elements in low .. high."""
    size = int(np.prod(shape))
    elements = draw(st.lists(st.integers(low, high), min_size=size, max_size=size))
    tensors[name] = np.array(elements, np.int32).reshape(shape)
    declared[name] = Tensor(name, shape, "int32")


@st.composite
def event_dimension(draw, letters: str, extents: list[int], size: int, name: str, tensors: dict, declared: dict):
    """Text of one event coordinate, inside 0 .. size - 1 for every task, or a range of them."""
    axis = draw(st.integers(0, len(letters) - 1))
    x, extent = letters[axis], extents[axis]
    y = draw(st.sampled_from(letters))
    p, q, c, d = (draw(st.integers(0, 3)) for _ in range(4))
    forms = ["affine modulus", "divided modulus", "constant", "whole", "range"]
    forms += ["element", "gather", "part of gather", "run-time range"]
    if (p * (extent - 1) + c) // (d + 1) < size:
        forms += ["divided"] * 2
    form = draw(st.sampled_from(forms))
    if form == "affine modulus":
        return f"({p}*{x} + {q}*{y} + {c}) % {size}"
    if form == "divided modulus":
        return f"(({p}*{x} + {c}) // {d + 1}) % {size}"
    if form == "divided":
        return f"({p}*{x} + {c}) // {d + 1}"
    if form == "constant":
        return str(draw(st.integers(0, size - 1)))
    if form == "whole":
        return ":"
    if form == "range":
        return f"{p}*{x} - {q} : {p}*{x} + {c} - {q}"
    if form == "element":
        draw(run_time_tensor(name, (extent,), 0, size - 1, tensors, declared))
        return f"{name}[{x}]"
    if form == "run-time range":
        draw(run_time_tensor(name, (extent + 1,), -1, size + 1, tensors, declared))
        return f"{name}[{x}] : {name}[{x} + 1]"
    draw(run_time_tensor(name, (extent, 3), 0, size - 1, tensors, declared))
    return f"{name}[{x}, :]" if form == "gather" else f"{name}[{x}, 1:{draw(st.integers(1, 3))}]"


@st.composite
def programs(draw) -> tuple[Instance, dict[str, np.ndarray]]:
    """A program of producers and consumers with random extents, event tensors, maps and run-time values."""
    tensors: dict[str, np.ndarray] = {}
    declared: dict[str, Tensor] = {}
    n = Symbol("n", bound=5, minimum=1)
    n_value = draw(st.integers(1, 5))
    shapes = [tuple(draw(st.lists(st.integers(1, 4), max_size=3))) for _ in range(draw(st.integers(1, 3)))]
    grids = []
    for number in range(draw(st.integers(2, 3))):
        ndim = draw(st.integers(1, 4))
        extents = [draw(st.integers(1, 3)) for _ in range(ndim)]
        written: list = list(extents)
        bound = None
        form = draw(st.sampled_from(["static", "symbol", "run time", "ragged"]))
        if form == "symbol":
            extents[0], written[0] = n_value, n
        elif form == "run time":
            draw(run_time_tensor(f"count{number}", (2,), 0, 3, tensors, declared))
            extents[0], written[0], bound = 3, f"count{number}[1]", 3
        elif form == "ragged" and ndim > 1:
            sizes = draw(st.lists(st.integers(0, 2), min_size=extents[0], max_size=extents[0]))
            name = f"pointer{number}"
            tensors[name] = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
            declared[name] = Tensor(name, (extents[0] + 1,), "int32")
            extents[1], written[1], bound = 2 * extents[0], f"{name}[i]:{name}[i+1]", 2 * extents[0]
        grids.append((ndim, extents, tuple(written), bound))
    events, result = [], []
    for number, shape in enumerate(shapes):
        count = Tensor(f"need{number}", shape, "int32")
        tensors[count.name] = np.arange(1, int(np.prod(shape)) + 1, dtype=np.int32).reshape(shape)
        events.append(EventTensor(f"E{number}", shape, count=count if draw(st.booleans()) else None))
    edges: dict[tuple[int, str], list] = {}
    for grid, (ndim, extents, _, _) in enumerate(grids):
        letters = "ijkl"[:ndim]
        for word in ("waits", "notifies"):
            if (grid == 0 and word == "waits") or (grid == len(grids) - 1 and word == "notifies"):
                continue
            for place in range(draw(st.integers(1, 2))):
                event = draw(st.integers(0, len(events) - 1))
                parts = [
                    draw(event_dimension(letters, extents, size, f"t{grid}{word[0]}{place}{axis}", tensors, declared))
                    for axis, size in enumerate(shapes[event])
                ]
                text = f"{letters if ndim > 1 else letters[0]}->" + ", ".join(parts)
                edges.setdefault((grid, word), []).append((events[event], text))
    for grid, (ndim, _, written, bound) in enumerate(grids):
        result.append(
            TaskGrid(
                f"g{grid}",
                kind(ndim),
                written,
                waits=edges.get((grid, "waits"), ()),
                notifies=edges.get((grid, "notifies"), ()),
                bound=bound,
            )
        )
    holder = TileKind(
        "holder",
        reference=lambda *arguments: None,
        coordinates=0,
        operands=tuple(Operand(name, "int32", len(t.shape)) for name, t in declared.items()),
    )
    result.append(TaskGrid("holder", holder, (), dict(declared)))
    symbols = (n,)
    return Program("random", result, symbols).bind(n=n_value), tensors


@settings(max_examples=200)
@given(programs())
def test_random_programs(drawn):
    instance, tensors = drawn
    try:
        lower(instance)
    except ProgramError as error:
        assert "depends on run-time values" in str(error)  # a need that must be named with count=
        return
    compare(instance, tensors)


BUNDLED = [
    ("splitk", {"n": 0}),
    ("splitk", {"n": 5}),
    ("gemm", {"M": 13, "N": 9, "K": 10, "splits": 3, "tile_m": 4, "tile_n": 4, "tile_k": 2}),
    ("bucket_sum", {"rows": 0, "buckets": 3, "width": 3, "chunk": 4, "block": 8}),
    ("bucket_sum", {"rows": 50, "buckets": 6, "width": 3, "chunk": 4, "block": 8}),
]


@pytest.mark.parametrize("name, values", BUNDLED)
def test_bundled_programs(name, values):
    instance = MODELS[name].build(**values)
    tensors = MODELS[name].make_tensors(instance, np.random.default_rng(0))
    expected = MODELS[name].reference(tensors)
    if name == "bucket_sum":  # run-time values as `plan` leaves them
        key = np.clip(np.floor(tensors["X"][:, 0]), 0, values["buckets"] - 1)
        tensors["key"][:] = key
        tensors["rows_of"][:] = expected["rows_of"]
        tensors["chunks_of"][:] = -(-expected["rows_of"] // values["chunk"])
        tensors["chunk_start"][:] = np.concatenate([[0], np.cumsum(tensors["chunks_of"])])
    compare(instance, tensors)


@pytest.mark.parametrize(
    "text, tasks, expected",
    [
        ("i->i//3", 6, [[0], [0], [0], [1], [1], [1]]),
        ("i->(2*i+1) % 4", 4, [[1], [3], [1], [3]]),
        ("i->i-1:i+2", 4, [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3]]),
        ("i->3-i", 4, [[3], [2], [1], [0]]),
        ("i->pick[i,:]", 2, [[3, 3], [0, 2]]),
        ("i->pick[1,i:]", 2, [[0, 2], [2]]),
        ("i->cut[i]:cut[i+1]", 3, [[0, 1], [], [1, 2, 3]]),
        ("i->", 2, [[0], [0]]),
    ],
)
def test_cells_by_hand(text, tasks, expected):
    """The same cells as Python's own indexing gives."""
    pick, cut = Tensor("pick", (2, 2), "int32"), Tensor("cut", (4,), "int32")
    E = EventTensor("E", () if text == "i->" else (4,), need=1)
    holder = TileKind("holder", lambda *a: None, 0, (Operand("pick", "int32", 2), Operand("cut", "int32", 1)))
    grids = (
        TaskGrid("a", kind(1), (tasks,), notifies={E: text}),
        TaskGrid("holder", holder, (), {"pick": pick, "cut": cut}),
    )
    tensors = {"pick": np.array([[3, 3], [0, 2]], np.int32), "cut": np.array([-1, 2, 1, 9], np.int32)}
    seen = Decoded(lower(Program("p", grids).bind()), tensors)
    grid = seen.grids[0]
    (edge,) = seen.edges(grid, L.GRID_NOTIFY_FIRST, L.GRID_NOTIFY_COUNT)
    assert [seen.cells(edge, maps) for _, maps, _ in seen.tasks(grid)] == expected


def test_a_gathered_element_outside_is_minus_one():
    E, pick = EventTensor("E", (4,), need=1), Tensor("pick", (3,), "int32")
    holder = TileKind("holder", lambda pick: None, 0, (Operand("pick", "int32", 1),))
    grids = (
        TaskGrid("a", kind(1), (3,), notifies={E: "i->pick[i]"}),
        TaskGrid("h", holder, (), {"pick": pick}),
    )
    seen = Decoded(lower(Program("p", grids).bind()), {"pick": np.array([4, -1, 3], np.int32)})
    (edge,) = seen.edges(seen.grids[0], L.GRID_NOTIFY_FIRST, L.GRID_NOTIFY_COUNT)
    assert [seen.cells(edge, maps) for _, maps, _ in seen.tasks(seen.grids[0])] == [[-1], [-1], [3]]


def test_coordinates_and_task_numbers_past_16_bits():
    """C53: 70,000 tasks of one kind in one dimension."""
    instance = MODELS["splitk"].build(n=70_000)
    seen = Decoded(lower(instance), {})
    partial, final = seen.grids
    assert decode.grid_count(seen.words, seen.pointers, partial) == 280_000
    assert tuple(decode.map_coordinate(seen.words, seen.pointers, partial, 279_999)) == (69_999, 3, 0, 0)
    assert tuple(decode.map_coordinate(seen.words, seen.pointers, final, 69_999)) == (69_999, 0, 0, 0)
    (edge,) = seen.edges(partial, L.GRID_NOTIFY_FIRST, L.GRID_NOTIFY_COUNT)
    assert seen.cells(edge, (69_999, 3, 0, 0)) == [69_999]
    (trigger,) = seen.triggers(0)
    assert seen.triggered(trigger, 0, 69_999) == [int(seen.words[final + L.GRID_FIRST]) + 69_999]
