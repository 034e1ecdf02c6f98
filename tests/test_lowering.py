"""Lowering: what a binding changes, buffers, needs and gates. What records mean: kernels/test_decode.py."""

from __future__ import annotations

import numpy as np
import pytest

from etproto import layout as L
from etproto.errors import ProgramError
from etproto.expressions import Symbol, ceil_div
from etproto.lowering import Lowered, lower
from etproto.models import MODELS
from etproto.numbering import number
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.tile_kind import Operand, TileKind

BINDINGS = [
    ("splitk", {"n": 0}, {"n": 131072}),
    ("gemm", {"M": 1}, {"M": 8192}),
    ("bucket_sum", {"rows": 0}, {"rows": 4096}),
]


@pytest.mark.parametrize("name, small, large", BINDINGS)
def test_a_binding_changes_scalars_alone(name, small, large):
    """The template is the same for every value up to the bound; what differs is at most 256 bytes."""
    one, many = (lower(MODELS[name].build(**values)) for values in (small, large))
    np.testing.assert_array_equal(one.words, many.words)
    np.testing.assert_array_equal(one.patches, many.patches)
    assert one.kinds == many.kinds and one.buffers == many.buffers
    assert one.scalars.shape == many.scalars.shape and one.scalars.nbytes <= 256
    assert (one.resolved_words() != many.resolved_words()).any()


def test_each_symbolic_value_is_one_scalar():
    lowered = lower(MODELS["splitk"].build(n=5))
    assert sorted(lowered.scalars.tolist()) == [5, 160], "n and 32 n, however often they occur"
    words = lowered.resolved_words()
    assert (lowered.words[lowered.patches[:, 0]] == 0).all()
    assert set(words[lowered.patches[:, 0]].tolist()) == {5, 160}


def test_buffers_are_the_tensors_then_tables():
    n = Symbol("n", bound=6)
    E = EventTensor("E", (ceil_div(n, 2),))
    kind = TileKind("k", lambda *a: None, 1, (Operand("x", ndim=1),))
    grid = TaskGrid("g", kind, (n,), {"x": Tensor("x", (n,))}, notifies={E: "i->i//2"})
    lowered = lower(Program("p", (grid,)).bind(n=5))
    assert [(b.name, b.shape, b.contents is None) for b in lowered.buffers] == [
        ("x", (6,), True),
        ("E.need", (3,), False),
    ]
    assert lowered.buffers[1].contents.tolist() == [2, 2, 1], "the last pair has one notifier"
    assert lowered.buffer_number("E.need") == 1


def event_word(lowered: Lowered, event: str, word: int) -> int:
    names = [e.name for e in lowered.instance.program.events]
    words = lowered.resolved_words()
    return int(words[words[L.HEADER_EVENTS] + names.index(event) * L.EVENT_WORDS + word])


def grid_word(lowered: Lowered, grid: str, word: int) -> int:
    words = lowered.resolved_words()
    return int(words[words[L.HEADER_GRIDS] + lowered.grid_name.index(grid) * L.GRID_WORDS + word])


def test_forms_of_needs():
    lowered = lower(MODELS["bucket_sum"].build(rows=130, block=64))
    assert event_word(lowered, "routed", L.EVENT_NEED_FORM) == L.NEED_SCALAR
    assert event_word(lowered, "routed", L.EVENT_NEED) == 3
    assert event_word(lowered, "grouped", L.EVENT_NEED_FORM) == L.NEED_RUNTIME
    assert event_word(lowered, "grouped", L.EVENT_NEED) == lowered.buffer_number("rows_of")


def test_gates_come_before_run_time_values():
    """Which tasks exist, and what they wait for, is asked only after the events before it."""
    lowered = lower(MODELS["bucket_sum"].build(rows=9))
    gates = {
        g: (grid_word(lowered, g, L.GRID_GATE_COUNT), grid_word(lowered, g, L.GRID_CONSTANT_GATES))
        for g in lowered.grid_name
    }
    assert gates == {"route": (0, 0), "plan": (0, 0), "group": (1, 1), "chunk_sum": (1, 1), "combine": (1, 1)}
    assert dict(zip(lowered.grid_name, lowered.run_time_grids, strict=True)) == {
        "route": False,
        "plan": False,
        "group": False,
        "chunk_sum": True,
        "combine": False,
    }


def test_wait_cells():
    n = Symbol("n", bound=4)
    E, F = EventTensor("E", (n,)), EventTensor("F")
    kind = TileKind("k", lambda *a: None, 1)
    grids = (
        TaskGrid("a", kind, (n,), notifies={E: "i->i", F: "i->"}),
        TaskGrid("one", kind, (n,), waits={E: "i->i"}),
        TaskGrid("two", kind, (n,), waits={E: "i->i", F: "i->"}),
        TaskGrid("span", kind, (n,), waits={E: "i->i:i+2"}),
    )
    lowered = lower(Program("p", grids).bind(n=3))
    counts = {name: grid_word(lowered, name, L.GRID_WAIT_CELLS) for name in lowered.grid_name}
    assert counts == {"a": 0, "one": 1, "two": 2, "span": 2}


def test_numbering_follows_the_bounds():
    """Task ids and cells do not move when a symbol is bound to another value."""
    numbers = [number(MODELS["gemm"].build(M=M)) for M in (0, 64, 8192)]
    assert numbers[0] == numbers[1] == numbers[2]
    lowered = lower(MODELS["gemm"].build(M=64))
    assert lowered.grid_first.tolist() == [0, 128 * 8 * 4] and lowered.tasks == 128 * 8 * 5
    assert lowered.cells == 128 * 8


def test_more_than_2_to_the_31_tasks_are_refused():
    n = Symbol("n", bound=2**20)
    grid = TaskGrid("g", TileKind("k", lambda *a: None, 2), (n, n))
    with pytest.raises(ProgramError, match=r"1099511627776 tasks at the symbols' bounds, at most 2147483647"):
        lower(Program("p", (grid,)).bind(n=1))


def test_scope_rank_and_epoch_are_carried():
    E = EventTensor("E", (2,), scope="sys")
    grid = TaskGrid("g", TileKind("k", lambda *a: None, 1), (2,), notifies={E: "i->i"})
    lowered = lower(Program("p", (grid,)).bind())
    assert event_word(lowered, "E", L.EVENT_SCOPE) == L.SCOPE_SYSTEM
    assert grid_word(lowered, "g", L.GRID_EPOCH) == 1
    assert lowered.words[L.HEADER_RANKS] == 1


def test_integer_operands_are_words_that_may_depend_on_symbols():
    n = Symbol("n", bound=9)
    kind = TileKind("k", lambda *a: None, 1, (Operand("size", ndim=0), Operand("fixed", ndim=0)))
    lowered = lower(Program("p", (TaskGrid("g", kind, (2,), {"size": 2 * n + 1, "fixed": 7}),)).bind(n=4))
    words = lowered.resolved_words()
    at = grid_word(lowered, "g", L.GRID_OPERANDS)
    assert (words[at], words[at + L.OPERAND_WORDS]) == (9, 7)


def test_an_unknown_need_is_refused():
    t = Tensor("t", (3,), "int32")
    kind = TileKind("k", lambda *a: None, 1, (Operand("t", "int32", 1),))
    grid = TaskGrid("g", kind, (3,), {"t": t}, notifies={EventTensor("E", (4,)): "i->t[i]"})
    with pytest.raises(ProgramError, match="the need of E depends on run-time values; name the tensor.*count="):
        lower(Program("p", (grid,)).bind())


def test_words_of_splitk(golden):
    """All records, one a line: a change of the layout or of what is lowered is seen here."""
    lowered = lower(MODELS["splitk"].build(n=5))
    words = lowered.resolved_words().tolist()
    sections = {
        "header": (0, L.HEADER_WORDS),
        "grid": (words[L.HEADER_GRIDS], L.GRID_WORDS),
        "edge": (words[L.HEADER_EDGES], L.EDGE_WORDS),
        "dimension": (words[L.HEADER_DIMENSIONS], L.DIMENSION_WORDS),
        "event": (words[L.HEADER_EVENTS], L.EVENT_WORDS),
        "trigger": (words[L.HEADER_TRIGGERS], L.TRIGGER_WORDS),
        "operand": (words[L.HEADER_OPERANDS], L.OPERAND_WORDS),
    }
    ends = [*[first for first, _ in sections.values()][1:], words[L.HEADER_TABLE_OPERANDS]]
    lines = [
        f"{name} {(at - first) // size}: {' '.join(map(str, words[at : at + size]))}"
        for (name, (first, size)), end in zip(sections.items(), ends, strict=True)
        for at in range(first, end, size)
    ]
    lines.append(f"symbolic words: {' '.join(f'{w}<-{s}' for w, s in lowered.patches.tolist())}")
    golden("\n".join(lines) + "\n")
