"""The same edge twice, and triggers that are not the inverse of their wait."""

from __future__ import annotations

import numpy as np
import pytest

from etproto.check import check
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.tile_kind import Operand, TileKind


def kind(name, coordinates=1, operands=(), **more):
    return TileKind(name, reference=lambda *_: None, coordinates=coordinates, operands=operands, **more)


E = EventTensor("E", (4,))


def result(*grids, tensors=None):
    return check(Program("p", grids).bind(), tensors)


def test_the_same_map_twice():
    grid = TaskGrid("g", kind("k"), (4,), notifies=[(E, "i->i"), (E, "x -> x")])
    expected = "duplicate edge: task grid g notifies E by two edges, 'i->i' and 'x -> x', which are the same"
    assert check(Program("p", (grid,))).errors == (expected,)
    assert result(grid).errors == (expected,)


def test_maps_that_meet_in_a_cell():
    grid = TaskGrid("g", kind("k"), (4,), notifies=[(E, "i->i"), (E, "i->2*i//2:2"), (E, "i->3-i")])
    assert (
        "two edges, 'i->i' and 'i->2*i//2:2', which both name E[0] from g[0], E[1] from g[1]" in result(grid).errors[0]
    )
    apart = TaskGrid("g", kind("k"), (4,), notifies=[(E, "i->i"), (E, "i->3-i")])
    assert result(apart).ok


def test_waits_too():
    a = TaskGrid("a", kind("a"), (4,), notifies={E: "i->i"})
    b = TaskGrid("b", kind("b"), (4,), waits=[(E, "i->i"), (E, "i->:")])
    assert result(a, b).errors == (
        "duplicate edge: task grid b waits for E by two edges, 'i->i' and 'i->:', which both name E[0] from"
        " b[0], E[1] from b[1], E[2] from b[2], E[3] from b[3]",
    )


def test_a_gather_that_names_a_cell_twice_is_one_edge():
    topk = Tensor("topk", (4, 2), "int32")
    grid = TaskGrid("g", kind("k", 1, (Operand("t", "int32", 2),)), (4,), {"t": topk}, notifies={E: "i->topk[i,:]"})
    assert result(grid, tensors={"topk": np.ones((4, 2), int)}).ok


def producer(n=4):
    return TaskGrid("a", kind("a"), (n,), notifies={E: "i->i"})


@pytest.mark.parametrize(
    ("trigger", "right"), [("e->4*e:4*e+4", True), ("e->e*4 : min(16, e*4+4)", True), ("e->4*e:4*e+3", False)]
)
def test_triggers_are_the_inverse_of_waits(trigger, right):
    b = TaskGrid("b", kind("b", 2), (4, 4), waits={E: "ij->i"}, triggers={E: trigger})
    found = result(producer(), b)
    assert found.ok == right
    if not right:
        assert found.errors[1] == (
            "p(): task grid b, trigger 'e->4*e:4*e+3': E[1] triggers tasks 4:7 of the grid, but tasks 4:8"
            " (b[1, 0], b[1, 1], b[1, 2], b[1, 3]) wait for it"
        )


def test_a_trigger_of_as_many_other_tasks():
    b = TaskGrid("b", kind("b"), (4,), waits={E: "i->i"}, triggers={E: "e->3-e:4-e"})
    assert "E[0] triggers tasks 3:4 of the grid, but tasks 0:1 (b[0]) wait for it" in result(producer(), b).errors[0]


def test_a_trigger_for_which_nobody_waits():
    b = TaskGrid("b", kind("b"), (2,), waits={E: "i->i"}, triggers={E: "e->e:e+1"})
    errors = result(producer(), b).errors
    assert len(errors) == 2 and "E[2] triggers tasks 2:3 of the grid, but nobody waits for it" in errors[0]


def test_a_trigger_by_run_time_values():
    start = Tensor("start", (5,), "int32")
    operands = (Operand("s", "int32", 1),)
    b = TaskGrid(
        "b",
        kind("b", 2, operands),
        (4, "start[i]:start[i+1]"),
        {"s": start},
        waits={E: "ij->i"},
        triggers={E: "e->start[e]:start[e+1]"},
        bound=9,
    )
    assert result(producer(), b, tensors={"start": np.array([0, 2, 2, 5, 9])}).ok
    single = EventTensor("one")
    whole = TaskGrid("c", kind("c"), (3,), waits={single: "i->"}, triggers={single: "->0:3"})
    assert result(TaskGrid("a", kind("a", 0), (), notifies={single: "->"}), whole).ok
