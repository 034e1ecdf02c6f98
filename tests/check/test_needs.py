"""Needs against notifications, and tasks that therefore never run."""

from __future__ import annotations

import pytest

from etproto.check import check, require
from etproto.errors import ProgramError
from etproto.expand import expand
from etproto.program import EventTensor, Program, TaskGrid
from etproto.tile_kind import TileKind


def kind(name, coordinates=1, **more):
    return TileKind(name, reference=lambda *_: None, coordinates=coordinates, **more)


def partial_sums(need=None, slices=4, any_of=False):
    done = EventTensor("E", (5,), need=need, any_of=any_of)
    return Program(
        "sums",
        (
            TaskGrid("partial", kind("p", 2), (5, slices), notifies={done: "ij->i"}),
            TaskGrid("final", kind("f"), (5,), waits={done: "i->i"}),
        ),
    ).bind()


def test_derived_needs_are_right():
    result = check(partial_sums())
    assert result.ok and not result.warnings
    assert result.stats == {"tasks": 25, "edges": 20, "events": 5, "critical_path": 2.0}
    assert str(result) == "ok" and require(result) is result


def test_a_need_below_its_notifications_names_both_and_the_tasks():
    result = check(partial_sums(need=3))
    assert result.errors[3] == (
        "event E[3]: need 3, but 4 notifications: partial[3, 0], partial[3, 1], partial[3, 2], partial[3, 3];"
        " final[3] waits for it, and 3 of 4 do not say which have finished"
    )
    with pytest.raises(ProgramError) as raised:
        require(result)
    assert str(raised.value) == "\n".join(result.errors)


def test_a_need_above_its_notifications_names_the_unreachable_tasks():
    result = check(partial_sums(need=6))
    assert result.errors[0].startswith("event E[0]: need 6, but only 4 notifications: partial[0, 0]")
    assert result.errors[0].endswith("never satisfied: final[0] waits for it")
    assert "5 of 25 tasks are unreachable: final[0], final[1], final[2], final[3], final[4]" in result.errors


def test_many_names_are_cut():
    done = EventTensor("E", (20,), need=1)
    program = Program(
        "p",
        (
            TaskGrid("a", kind("a", 2), (20, 30), notifies={done: "ij->i"}),
            TaskGrid("b", kind("b"), (20,), waits={done: "i->i"}),
        ),
    )
    errors = check(program.bind()).errors
    assert "a[0, 7] and 22 more; b[0] waits for it" in errors[0]
    assert errors[-1] == "and 12 more events whose need differs from their notifications"


def test_everything_behind_an_unreachable_task_is_unreachable():
    one, two, three = EventTensor("one", need=2), EventTensor("two"), EventTensor("three")
    program = Program(
        "chain",
        (
            TaskGrid("a", kind("a", 0), (), notifies={one: "->"}),
            TaskGrid("b", kind("b", 0), (), waits={one: "->"}, notifies={two: "->"}),
            TaskGrid("c", kind("c", 0), (), waits={two: "->"}, notifies={three: "->"}),
            TaskGrid("d", kind("d", 0), (), notifies={three: "->"}),
        ),
    )
    errors = check(program.bind()).errors
    assert "2 of 4 tasks are unreachable: b[], c[]" in errors


def test_an_event_tensor_that_no_grid_notifies():
    lonely = EventTensor("lonely", (3,))
    program = Program("p", (TaskGrid("a", kind("a"), (3,), waits={lonely: "i->i"}),))
    expected = "program p: task grid a waits for event tensor lonely, which no task grid notifies"
    assert check(program).errors == (expected,)
    assert expected in check(program.bind()).errors


def test_nobody_notifies_a_needed_event():
    event = EventTensor("e", (2,), need=1)
    program = Program(
        "p",
        (
            TaskGrid("a", kind("a"), (1,), notifies={event: "i->i"}),
            TaskGrid("b", kind("b"), (2,), waits={event: "i->i"}),
        ),
    )
    assert check(program.bind()).errors == (
        "event e[1]: need 1, but only 0 notifications (nobody notifies it); never satisfied: b[1] waits for it",
        "1 of 3 tasks are unreachable: b[1]",
    )


def test_two_leaf_branches_are_fine():
    root = EventTensor("root")
    leaves = [TaskGrid(name, kind(name), (1,), waits={root: "i->"}) for name in ("left", "right")]
    program = Program("fork", (TaskGrid("start", kind("s", 0), (), notifies={root: "->"}), *leaves))
    assert check(program.bind()).ok


def test_a_derived_need_of_nothing_is_a_warning():
    event = EventTensor("e", (3,))
    program = Program(
        "p",
        (
            TaskGrid("a", kind("a"), (2,), notifies={event: "i->i"}),
            TaskGrid("b", kind("b"), (3,), waits={event: "i->i"}),
        ),
    )
    result = check(program.bind())
    assert result.ok and result.warnings == (
        "p(): waited for, but nobody notifies them, so they hold nobody back: e[2]",
    )


def test_any_of_needs_one():
    instance = partial_sums(any_of=True)
    assert set(expand(instance).event_need.tolist()) == {1} and check(instance).ok
