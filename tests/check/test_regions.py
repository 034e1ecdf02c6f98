"""Races and reads of unwritten tiles: who, and which region."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from etproto.check import check
from etproto.check.happens_before import LIMIT, happens_before
from etproto.check.regions import _not_covered
from etproto.expand import graph_tasks, to_networkx
from etproto.graph import TaskGraph
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.tile_kind import Operand, TileKind

C = Tensor("C", (256, 256))
B = Tensor("B", (8, 4))
DONE = EventTensor("done", (8,))


def kind(name, operands, coordinates=1, **more):
    return TileKind(name, reference=lambda *_: None, coordinates=coordinates, operands=operands, **more)


def tile(size=64):
    return lambda i, j, *_: {"c": (slice(i * size, (i + 1) * size), slice(j * size, (j + 1) * size))}


def cell(name):
    return lambda i, j, *_: {name: (slice(i, i + 1), slice(j, j + 1))}


def row(name):
    return lambda i, *_: {name: (slice(i, i + 1), slice(None))}


def result(*grids):
    return check(Program("p", grids).bind())


PARTIAL = kind("partial", (Operand("b", mode="out"),), 2, writes=cell("b"))
FINAL = kind("final", (Operand("b"),), 1, reads=row("b"))


def partials(notify="ij->i"):
    return TaskGrid("partial", PARTIAL, (8, 4), {"b": B}, notifies={DONE: notify})


def test_ordered_reads_are_right():
    found = result(partials(), TaskGrid("final", FINAL, (8,), {"b": B}, waits={DONE: "i->i"}))
    assert found.ok and not found.warnings


def test_two_unordered_writers_of_a_tile():
    gemm = kind("gemm", (Operand("c", mode="out"),), 3, writes=lambda i, j, k, c: tile()(i, j))
    found = result(TaskGrid("gemm", gemm, (1, 2, 2), {"c": C}))
    assert found.errors == (
        "unordered writers: gemm[0, 0, 0] and gemm[0, 0, 1] both write C[0:64, 0:64]",
        "unordered writers: gemm[0, 1, 0] and gemm[0, 1, 1] both write C[0:64, 64:128]",
    )


def test_the_overlap_is_named():
    wide = kind(
        "wide",
        (Operand("c", mode="out"),),
        1,
        writes=lambda i, c: {"c": (slice(i * 48, i * 48 + 64), slice(0, 8))},
    )
    found = result(TaskGrid("wide", wide, (3,), {"c": C}))
    assert found.errors == (
        "unordered writers: wide[0] and wide[1] both write C[48:64, 0:8]",
        "unordered writers: wide[1] and wide[2] both write C[96:112, 0:8]",
    )


def test_accumulation_needs_no_order_among_itself():
    add = kind("add", (Operand("c", mode="accumulate"),), 1, writes=lambda i, c: {"c": (slice(0, 64), slice(0, 64))})
    assert result(TaskGrid("add", add, (4,), {"c": C})).ok
    use = kind("use", (Operand("c"),), 0, reads=lambda c: {"c": (slice(0, 1), slice(0, 1))})
    racing = result(TaskGrid("add", add, (2,), {"c": C}), TaskGrid("use", use, (), {"c": C}))
    assert racing.errors[0] == (
        "unordered read: use[] reads C[0:1, 0:1], which add[0] writes, and no event path orders them"
    )


def test_a_read_that_its_event_does_not_cover():
    found = result(partials("ij->j"), TaskGrid("final", FINAL, (4,), {"b": B}, waits={DONE: "i->i"}))
    assert (
        "unordered read: final[0] reads B[0:1, 1:2], which partial[0, 1] writes, and no event path orders"
        " them" in found.errors
    )


def test_any_of_readers_may_touch_no_producer():
    any_ = EventTensor("any", (8,), any_of=True)
    grids = (
        TaskGrid("partial", PARTIAL, (8, 4), {"b": B}, notifies={any_: "ij->i"}),
        TaskGrid("final", FINAL, (8,), {"b": B}, waits={any_: "i->i"}),
    )
    assert (
        "final[0] reads B[0:1, 0:1], which partial[0, 0] writes, and no event path orders them (event any[0]"
        " is any_of: final[0] may start after any one notification, so it may touch no notifier's region)"
    ) in result(*grids).errors[0]
    other = TaskGrid("other", kind("other", (Operand("c"),), 1, reads=row("c")), (8,), {"c": C}, waits={any_: "i->i"})
    assert result(grids[0], other).ok


def test_any_of_orders_what_all_notifiers_share():
    any_, first = EventTensor("any", any_of=True), EventTensor("first")
    init = TaskGrid("init", kind("init", (Operand("b", mode="out"),), 0), (), {"b": B}, notifies={first: "->"})
    either = TaskGrid("either", kind("either", ()), (2,), waits={first: "i->"}, notifies={any_: "i->"})
    last = TaskGrid("last", kind("last", (Operand("b"),), 0), (), {"b": B}, waits={any_: "->"})
    found = result(init, either, last)
    assert found.ok and not found.warnings


def test_a_tile_that_no_task_writes():
    found = result(
        TaskGrid("partial", PARTIAL, (6, 4), {"b": B}, notifies={DONE: "ij->i"}),
        TaskGrid("final", FINAL, (8,), {"b": B}, waits={DONE: "i->min(i, 5)"}),
    )
    assert found.errors[0].startswith(
        "read of an unwritten tile: final[6] reads B[6:7, 0:4], but B[6:7, 0:4] is written by no task (declare"
    )
    assert len(found.errors) == 2


def test_a_tile_written_only_later():
    back = EventTensor("back", (8,))
    found = result(
        TaskGrid("final", FINAL, (8,), {"b": B}, notifies={back: "i->i"}),
        TaskGrid("partial", PARTIAL, (8, 4), {"b": B}, waits={back: "ij->i"}),
    )
    assert "final[0] reads B[0:1, 0:4], but B[0:1, 0:4] is written only after it, by partial[0, 0]" in found.errors[0]


def test_part_of_a_read_is_unwritten():
    found = result(
        TaskGrid("partial", PARTIAL, (8, 3), {"b": B}, notifies={DONE: "ij->i"}),
        TaskGrid("final", FINAL, (8,), {"b": B}, waits={DONE: "i->i"}),
    )
    assert "final[2] reads B[2:3, 0:4], but B[2:3, 3:4] is written by no task" in found.errors[2]


def test_inout_tensors_have_contents_from_before():
    step = EventTensor("step", (9,))
    scale = kind("scale", (Operand("b", mode="inout"),), 1, reads=row("b"), writes=row("b"))
    grid = TaskGrid("scale", scale, (8,), {"b": B}, waits={step: "i->i:i+1"}, notifies={step: "i->i+1"})
    assert result(grid).ok
    twice = kind(
        "twice",
        (Operand("b", mode="inout"),),
        1,
        reads=lambda i, b: row("b")(0),
        writes=lambda i, b: row("b")(0),
    )
    assert result(TaskGrid("twice", twice, (2,), {"b": B})).errors == (
        "unordered writers: twice[0] and twice[1] both write B[0:1, 0:4]",
    )


def test_tensors_never_written_are_inputs():
    assert result(TaskGrid("final", FINAL, (8,), {"b": B})).ok


def test_undeclared_regions_are_warnings():
    vague = kind("vague", (Operand("b", mode="out"),))
    found = result(TaskGrid("vague", vague, (2,), {"b": B}))
    assert found.ok and found.warnings == (
        "unordered writers: vague[0] and vague[1] both write B[0:8, 0:4] (a tile kind that declares no"
        " regions counts as touching everything)",
    )


def test_data_dependent_regions_are_not_asked():
    def never(*_):
        raise AssertionError

    vague = kind("vague", (Operand("b", mode="out"),), writes=never, reads=never, data_dependent=True)
    assert result(TaskGrid("vague", vague, (2,), {"b": B})).ok


def test_tiles_at_the_edge_are_clipped():
    D = Tensor("D", (100, 70))
    gemm = kind("gemm", (Operand("c", mode="out"),), 2, writes=tile())
    read = kind("read", (Operand("c"),), 2, reads=tile())
    done = EventTensor("d", (2, 2))
    found = result(
        TaskGrid("gemm", gemm, (2, 2), {"c": D}, notifies={done: "ij->ij"}),
        TaskGrid("read", read, (2, 2), {"c": D}, waits={done: "ij->ij"}),
    )
    assert found.ok and not found.warnings


def test_bad_regions_are_named():
    for regions, message in (
        (lambda i, b: 1 / 0, "tile kind k: reads of g[0] raised ZeroDivisionError: division by zero"),
        (lambda i, b: {"x": ()}, "tile kind k: reads of g[0]: expected regions of operands b, got {'x': ()}"),
        (lambda i, b: {"b": (slice(0, 4, 2),)}, "operand b: expected slices without a step"),
        (lambda i, b: {"b": (0, 0, 0)}, "operand b: expected at most 2 slices"),
    ):
        found = result(TaskGrid("g", kind("k", (Operand("b"),), reads=regions), (2,), {"b": B}))
        assert message in found.errors[0]


def test_too_many_tasks_are_a_warning():
    big = Tensor("big", (LIMIT + 1, 1))
    write = kind("w", (Operand("b", mode="out"),), writes=row("b"))
    found = result(TaskGrid("w", write, (LIMIT + 1,), {"b": big}))
    assert found.ok and f"{LIMIT + 1} tasks, at most {LIMIT} are" in found.warnings[0]


def test_faults_are_cut_to_a_few_for_each_tensor():
    gemm = kind("gemm", (Operand("c", mode="out"),), writes=lambda i, c: {"c": (slice(0, 1), slice(0, 1))})
    errors = result(TaskGrid("gemm", gemm, (9,), {"c": C})).errors
    assert len(errors) == 9 and errors[-1] == "and 28 more faults of C"


@settings(max_examples=60, deadline=None)
@given(edges=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25))
def test_happens_before_is_reachability(edges):
    edges = sorted({(a, b) for a, b in edges if a < b})
    tasks = graph_tasks(TaskGraph.from_arrays([a for a, _ in edges], [b for _, b in edges], 10))
    before = happens_before(tasks)
    G = to_networkx(tasks)
    for a in range(10):
        assert {tasks.name(b) for b in np.flatnonzero(before[a])} == nx.ancestors(G, tasks.name(a))


boxes = st.lists(st.tuples(*[st.integers(0, 5)] * 4), max_size=6)


@settings(max_examples=200, deadline=None)
@given(boxes=boxes)
def test_cover_by_boxes_equals_cover_by_cells(boxes):
    box = np.array([1, 0]), np.array([5, 4])
    cells = np.zeros((6, 6), bool)
    lows, highs = np.zeros((len(boxes), 2), int), np.zeros((len(boxes), 2), int)
    for k, (a, b, c, d) in enumerate(boxes):
        lows[k], highs[k] = (min(a, c), min(b, d)), (max(a, c), max(b, d))
        cells[lows[k][0] : highs[k][0], lows[k][1] : highs[k][1]] = True
    touching = ((lows < box[1]) & (box[0] < highs)).all(axis=1) & (lows < highs).all(axis=1)
    missing = _not_covered(box, lows[touching], highs[touching])
    assert (missing is None) == cells[1:5, 0:4].all()
    if missing is not None:
        (a, b), (c, d) = missing
        assert a < c and b < d and not cells[a:c, b:d].any()
