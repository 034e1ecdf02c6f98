"""Run-time values need an event path from whoever writes them to whoever reads them."""

from __future__ import annotations

import numpy as np
import pytest

from etproto.check import check
from etproto.expand import grid_coordinates, operand_values
from etproto.models.bucket_sum import MODEL
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.tile_kind import Operand, TileKind


def kind(name, coordinates=1, operands=(), **more):
    return TileKind(name, reference=lambda *_: None, coordinates=coordinates, operands=operands, **more)


COUNT = Tensor("count", (1,), "int32")
EXPERT = Tensor("expert", (8,), "int32")
KNOWN = EventTensor("known")
KNOWN_EACH = EventTensor("known_each", (8,))
DONE = EventTensor("done", (8,))


def router(**more):
    operands = (Operand("count", "int32", 1, "out"), Operand("expert", "int32", 1, "out"))
    return TaskGrid("router", kind("route", 1, operands), (2,), {"count": COUNT, "expert": EXPERT}, **more)


def faults(*grids):
    return list(check(Program("moe", grids)).errors)


def test_a_map_read_without_a_path_from_its_writer():
    tiles = TaskGrid("tiles", kind("tile"), (8,), notifies={DONE: "i->expert[i]"})
    expected = (
        "program moe: run-time value expert is read by task grid tiles (notify done: i->expert[i])"
        " with no event path from its writer, task grid router"
    )
    assert faults(router(notifies={KNOWN: "i->"}), tiles) == [expected]
    waiting = TaskGrid("tiles", kind("tile"), (8,), waits={KNOWN: "i->"}, notifies={DONE: "i->expert[i]"})
    assert faults(router(notifies={KNOWN: "i->"}), waiting) == []


def test_inputs_need_no_writer():
    reader = kind("tile", 1, (Operand("expert", "int32", 1),))
    tiles = TaskGrid("tiles", reader, (8,), {"expert": EXPERT}, notifies={DONE: "i->expert[i]"})
    assert faults(tiles) == []


def test_a_path_may_go_through_other_grids():
    step = EventTensor("step", (2,))
    middle = TaskGrid("middle", kind("m"), (2,), waits={KNOWN: "i->"}, notifies={step: "i->i"})
    tiles = TaskGrid("tiles", kind("tile"), ("count[0]",), waits={step: "i->0"}, notifies={DONE: "i->i"}, bound=8)
    assert faults(router(notifies={KNOWN: "i->"}), middle, tiles) == []
    (fault,) = faults(router(), TaskGrid("start", kind("s"), (1,), notifies={KNOWN: "i->"}), middle, tiles)
    assert (
        "count is read by task grid tiles (extent count[0]) with no event path from its writer, task grid"
        " router" in fault
    )


def test_a_path_through_an_any_of_event_is_none():
    any_ = EventTensor("any", any_of=True)
    tiles = TaskGrid("tiles", kind("tile"), ("count[0]",), waits={any_: "i->"}, bound=8)
    assert "no event path" in faults(router(notifies={any_: "i->"}), tiles)[0]


def test_an_extent_needs_one_fixed_event():
    tiles = TaskGrid("tiles", kind("tile"), ("count[0]",), waits={KNOWN_EACH: "i->i"}, bound=8)
    (fault,) = faults(router(notifies={KNOWN_EACH: "i->i"}), tiles)
    assert "to one fixed event: known_each: 'i->i' depends on the task" in fault
    for text in ("i->0", "i->(3)"):
        fixed = TaskGrid("tiles", kind("tile"), ("count[0]",), waits={KNOWN_EACH: text}, bound=8)
        assert faults(router(notifies={KNOWN_EACH: "i->i"}), fixed) == []


def test_a_wait_that_needs_values_itself_is_no_gate():
    tiles = TaskGrid("tiles", kind("tile"), (8,), waits={KNOWN_EACH: "i->expert[i]"})
    (fault,) = faults(router(notifies={KNOWN_EACH: "i->i"}), tiles)
    assert "(wait known_each: i->expert[i]) with no event path" in fault
    assert fault.endswith("known_each: 'i->expert[i]' is too late, it needs run-time values")
    gated = TaskGrid("tiles", kind("tile"), (8,), waits=[(KNOWN_EACH, "i->expert[i]"), (KNOWN, "i->")])
    assert faults(router(notifies=[(KNOWN_EACH, "i->i"), (KNOWN, "i->")]), gated) == []


def test_ragged_extents():
    pointer = Tensor("pointer", (9,), "int32")
    plan = TaskGrid(
        "plan",
        kind("plan", 0, (Operand("p", "int32", 1, "out"),)),
        (),
        {"p": pointer},
        notifies={KNOWN: "->"},
    )
    grid = TaskGrid("rows", kind("row", 2), (8, "pointer[i]:pointer[i+1]"), bound=99)
    (fault,) = faults(plan, grid)
    assert "pointer is read by task grid rows (ragged extent pointer[i]:pointer[i+1])" in fault
    gated = TaskGrid("rows", kind("row", 2), (8, "pointer[i]:pointer[i+1]"), waits={KNOWN: "ij->"}, bound=99)
    assert faults(plan, gated) == []


def test_counts_are_known_to_waiters_and_notifiers():
    counts = Tensor("counts", (8,), "int32")
    filled = EventTensor("filled", (8,), count=counts)
    plan = TaskGrid(
        "plan", kind("plan", 0, (Operand("c", "int32", 1, "out"),)), (), {"c": counts}, notifies={KNOWN: "->"}
    )
    fill = TaskGrid("fill", kind("fill"), (8,), notifies={filled: "i->i"})
    use = TaskGrid("use", kind("use"), (8,), waits={filled: "i->i"})
    assert [fault.partition(" with")[0].partition("by ")[2] for fault in faults(plan, fill, use)] == [
        "task grid fill (need of filled)",
        "task grid use (need of filled)",
    ]
    good = (
        TaskGrid("fill", kind("fill"), (8,), waits={KNOWN: "i->"}, notifies={filled: "i->i"}),
        TaskGrid("use", kind("use"), (8,), waits=[(filled, "i->i"), (KNOWN, "i->")]),
    )
    assert faults(plan, *good) == []


def test_a_task_may_notify_by_what_it_has_written():
    assert faults(router(notifies={DONE: "i->expert[i]"})) == []


@pytest.mark.parametrize(("notify", "wait", "early"), [("i->i", "i->0", True), ("i->0", "i->0", False)])
def test_every_writer_comes_before_the_gate_of_an_extent(notify, wait, early):
    tiles = TaskGrid("tiles", kind("tile"), ("count[0]",), waits={KNOWN_EACH: wait}, bound=8)
    instance = Program("moe", (router(notifies={KNOWN_EACH: notify}), tiles)).bind()
    expected = (
        "moe(): task grid tiles reads count (extent count[0]) once known_each[0] is satisfied, but"
        " router[1] may write it later: every task that writes count must come before"
    )
    for tensors in (None, {"count": np.array([3])}):
        assert (expected in check(instance, tensors).errors) == early


def test_writers_before_a_gate_through_a_run_time_grid_are_left_alone():
    step = EventTensor("step")
    rows = TaskGrid("rows", kind("rows"), ("count[0]",), waits={KNOWN: "i->"}, notifies={step: "i->"}, bound=8)
    tiles = TaskGrid("tiles", kind("tile"), ("expert[0]",), waits={step: "i->"}, bound=8)
    # A need that depends on run-time values takes a count; here only the grids' paths are looked at.
    assert check(Program("moe", (router(notifies={KNOWN: "i->"}), rows, tiles)).bind()).ok


def test_unknown_values_are_a_warning():
    tiles = TaskGrid("tiles", kind("tile"), ("count[0]",), waits={KNOWN: "i->"}, bound=8)
    instance = Program("moe", (router(notifies={KNOWN: "i->"}), tiles)).bind()
    result = check(instance)
    assert (
        result.ok
        and "tasks are not checked one by one" in result.warnings[0]
        and "count (read by tiles)" in result.warnings[0]
    )
    assert check(instance, {"count": np.array([9])}).errors == (
        "moe(): task grid tiles: extent 0 (count[0]) must be at most its bound 8, got 9",
    )


def test_writers_that_declare_what_they_write():
    def writes(i, count, expert):
        return {"count": (slice(0, 1),)} if i == 0 else {"expert": (slice(0, 8),)}

    operands = (Operand("count", "int32", 1, "out"), Operand("expert", "int32", 1, "out"))
    for more in ({}, {"writes": writes}):
        source = kind("route", 1, operands, **more)
        route = TaskGrid("router", source, (2,), {"count": COUNT, "expert": EXPERT}, notifies={KNOWN_EACH: "i->i"})
        tiles = TaskGrid("tiles", kind("tile"), ("count[0]",), waits={KNOWN_EACH: "i->0"}, bound=8)
        found = check(Program("moe", (route, tiles)).bind())
        assert found.ok == bool(more)


def test_bucket_sum_with_the_values_of_a_run():
    instance = MODEL.builder(rows=100, buckets=6)
    tensors = MODEL.make_tensors(instance, np.random.default_rng(0))
    known = {tensor.name: tensors[tensor.name] for tensor in instance.program.tensors if tensor.dtype == "int32"}
    for grid in instance.program.parsed:  # grid by grid, so that values are there when they are read
        coordinate, _ = grid_coordinates(instance, grid, known)
        for task in coordinate[:, : grid.ndim].tolist():
            grid.kind.reference(*task, *operand_values(instance, grid, tensors))
    found = check(instance, tensors)
    assert found.errors == () and found.warnings == ()
    assert found.stats["tasks"] == 2 + 1 + 100 + int(tensors["chunks_of"].sum()) + 6
    wrong = dict(tensors, rows_of=tensors["rows_of"] + 1)
    assert "(rows_of), but only" in check(instance, wrong).errors[0]
