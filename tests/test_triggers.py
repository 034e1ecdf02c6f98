"""Trigger records are the inverse of the wait maps, where there is one. Tasks: kernels/test_decode.py."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etproto import layout as L
from etproto.errors import ScheduleError
from etproto.lowering import lower
from etproto.models import MODELS
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.schedule import schedule
from etproto.tile_kind import Operand, TileKind
from etproto.triggers import inverse_box


def kind(ndim: int) -> TileKind:
    return TileKind(f"kind{ndim}", lambda *a: None, ndim)


def box_of(extents: tuple[int, ...], shape: tuple[int, ...], text: str):
    program = Program("p", (TaskGrid("g", kind(len(extents)), extents, waits={EventTensor("E", shape): text}),))
    (grid,) = program.parsed
    return inverse_box(grid, grid.waits[0])


def tasks_of(box, extents: tuple[int, ...], cell: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Coordinates in a box for one cell."""
    axes = []
    for (dimension, *entry), extent in zip(box, extents, strict=True):
        scale, low, high, divisor = (int(word.evaluate({})) for word in entry)
        first, last = 0, extent
        if dimension >= 0:
            first = max(0, (cell[dimension] * scale + low) // divisor)
            last = min(extent, (cell[dimension] * scale + high) // divisor)
        axes.append(range(first, last))
    return set(itertools.product(*axes))


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(-3, 6), st.integers(1, 4))
def test_inverse_of_an_affine_point(tasks, size, step, constant, divisor):
    box = box_of((tasks, 2), (size,), f"ij->({step}*i + {constant}) // {divisor}")
    for e in range(size):
        expected = {(i, j) for i in range(tasks) for j in range(2) if (step * i + constant) // divisor == e}
        assert tasks_of(box, (tasks, 2), (e,)) == expected


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(-4, 4), st.integers(-4, 4))
def test_inverse_of_a_range(tasks, size, step, low, high):
    box = box_of((tasks,), (size,), f"i->{step}*i + {low} : {step}*i + {high}")
    for e in range(size):
        expected = {(i,) for i in range(tasks) if step * i + low <= e < step * i + high}
        assert tasks_of(box, (tasks,), (e,)) == expected


def test_whole_axes_and_projections():
    box = box_of((3, 4, 5), (5, 7, 3), "ijk->k, :, i")
    assert tasks_of(box, (3, 4, 5), (4, 6, 1)) == {(1, j, 4) for j in range(4)}


@pytest.mark.parametrize(
    "extents, shape, text",
    [
        ((3, 3), (9,), "ij->i+j"),  # an event coordinate that mixes task coordinates
        ((3,), (3, 3), "i->i, i"),  # one coordinate used twice
        ((6,), (3,), "i->i%3"),
        ((6,), (6,), "i->5-i"),
        ((6,), (6,), "i->i//2:(i+4)//2"),
        ((6,), (6,), "i->i:2*i"),
        ((6,), (6,), "i->2"),  # a fixed cell of several
    ],
)
def test_maps_without_such_an_inverse(extents, shape, text):
    """A grid with such a wait is not fed by a queue: which tasks an event makes ready must be named."""
    assert box_of(extents, shape, text) is None
    E = EventTensor("E", shape, need=1)
    grids = (
        TaskGrid("a", kind(len(shape)), shape, notifies={E: "ijkl"[: len(shape)] + "->" + "ijkl"[: len(shape)]}),
        TaskGrid("g", kind(len(extents)), extents, waits={E: text}),
    )
    lowered = lower(Program("p", grids).bind())
    schedule(lowered, "static", workers=2)
    with pytest.raises(
        ScheduleError, match=r"grid g cannot be fed by a queue: which of its tasks E makes ready.*triggers="
    ):
        schedule(lowered, "dynamic", workers=2)


def test_named_triggers_take_the_inverses_place():
    E = EventTensor("E", (3,))
    grids = (
        TaskGrid("a", kind(1), (3,), notifies={E: "i->i"}),
        TaskGrid("g", kind(1), (6,), waits={E: "i->(i//2)%3"}, triggers={E: "e->2*e:2*e+2"}),
    )
    lowered = lower(Program("p", grids).bind())
    schedule(lowered, "dynamic", workers=2)
    words = lowered.resolved_words()
    assert words[words[L.HEADER_TRIGGERS] + L.TRIGGER_FORM] == L.TRIGGER_RANGE


def early_of(lowered) -> dict[str, bool]:
    words = lowered.resolved_words()
    events = lowered.instance.program.events
    at = words[L.HEADER_EVENTS]
    return {e.name: bool(words[at + n * L.EVENT_WORDS + L.EVENT_EARLY]) for n, e in enumerate(events)}


def test_early_push_only_where_nothing_that_decides_is_written():
    """`planned` is early for nobody: its waiters' extents and needs are what its notifier writes."""
    assert early_of(lower(MODELS["splitk"].build(n=2))) == {"E": True}
    assert early_of(lower(MODELS["bucket_sum"].build(rows=9))) == {
        "routed": True,
        "planned": False,
        "grouped": False,
        "summed": False,
    }


def test_inputs_do_not_forbid_early_push():
    """A map read from a tensor that no task writes is known before the launch."""
    pick = Tensor("pick", (3,), "int32")
    reads = TileKind("reads", lambda *a: None, 1, (Operand("pick", "int32", 1),))
    E, F = EventTensor("E", (4,), need=1), EventTensor("F", (3,))
    grids = (
        TaskGrid("a", reads, (3,), {"pick": pick}, notifies={E: "i->pick[i]", F: "i->i"}),
        TaskGrid("b", kind(1), (3,), waits={F: "i->i"}),
    )
    assert early_of(lower(Program("p", grids).bind())) == {"E": True, "F": True}


def test_zero_cells_are_triggered_by_what_makes_their_needs_known():
    """Empty buckets: `planned` pushes what waits for cells of `grouped` and `summed` that need nothing."""
    lowered = lower(MODELS["bucket_sum"].build(rows=9))
    words, events = lowered.resolved_words(), [e.name for e in lowered.instance.program.events]
    record = words[L.HEADER_EVENTS] + events.index("planned") * L.EVENT_WORDS
    first = words[L.HEADER_TRIGGERS] + words[record + L.EVENT_TRIGGER_FIRST] * L.TRIGGER_WORDS
    rows = [first + n * L.TRIGGER_WORDS for n in range(words[record + L.EVENT_TRIGGER_COUNT])]
    zero = {
        (lowered.grid_name[words[at + L.TRIGGER_GRID]], events[words[at + L.TRIGGER_EVENT]])
        for at in rows
        if words[at + L.TRIGGER_FORM] == L.TRIGGER_ZERO_CELLS
    }
    assert zero == {("chunk_sum", "grouped"), ("combine", "summed")}
