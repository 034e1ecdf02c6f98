"""Needs derived from edge maps equal the notifications counted one by one."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etproto.expressions import Symbol
from etproto.needs import notifiers, static_needs, uniform_need
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.tile_kind import Operand, TileKind


def kind(ndim: int) -> TileKind:
    return TileKind(f"kind{ndim}", lambda *a: None, ndim)


def grid(name: str, extents: tuple, event: EventTensor, text: str) -> TaskGrid:
    return TaskGrid(name, kind(len(extents)), extents, notifies={event: text})


def counted(extents: tuple[int, ...], shape: tuple[int, ...], cells) -> np.ndarray:
    """Needs by brute force: `cells(*coordinate)` yields the cells that a task notifies."""
    needs = Counter(cell for task in itertools.product(*map(range, extents)) for cell in cells(*task))
    return np.array([needs[cell] for cell in itertools.product(*map(range, shape))])


N, M = Symbol("n", bound=9), Symbol("m", bound=9)


@pytest.mark.parametrize(
    "extents, shape, text, uniform",
    [
        ((N, 4), (N,), "ij->i", "4"),
        ((N, M), (M,), "ij->j", "n"),
        ((N, M, 3), (M, N), "ijk->ji", "3"),
        ((N,), (), "i->", "n"),
        ((N,), (N, 4), "i->ij", "1"),  # each task notifies a whole row
        ((3, 5), (7,), "ij->", None),
        ((N,), (4,), "i->i%4", None),
        ((4,), (4,), "i->i:i+2", None),
        ((N, N), (N,), "ij->i", "n"),
        ((N,), (M,), "i->i", None),  # other extents: some cell may get none
    ],
)
def test_uniform_needs(extents, shape, text, uniform):
    event = EventTensor("E", shape)
    if text == "ij->":
        event = EventTensor("E", ())
        uniform = "15"
    program = Program("p", (grid("g", extents, event, text),), (N, M))
    derived = uniform_need(program, event)
    assert (None if derived is None else str(derived)) == uniform
    for values in ({"n": 5, "m": 3}, {"n": 0, "m": 2}, {"n": 1, "m": 9}):
        instance = program.bind(**values)
        if derived is not None:
            needs = static_needs(instance, event)
            assert set(needs.tolist()) <= {int(derived.evaluate(values))}


def test_needs_of_several_grids_add_up():
    event = EventTensor("E", (N,))
    program = Program("p", (grid("a", (N, 4), event, "ij->i"), grid("b", (2, N), event, "ij->j")))
    assert str(uniform_need(program, event)) == "6"
    assert [g.name for g, _ in notifiers(program, event)] == ["a", "b"]
    assert static_needs(program.bind(n=3), event).tolist() == [6, 6, 6]


@given(
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.integers(1, 5),
    st.tuples(*[st.integers(0, 3)] * 3),
    st.integers(1, 3),
)
def test_affine_maps(extents, size, numbers, divisor):
    p, q, c = numbers
    event = EventTensor("E", (size,))
    program = Program("p", (grid("g", extents, event, f"ij->({p}*i + {q}*j + {c}) // {divisor} % {size}"),))
    expected = counted(extents, (size,), lambda i, j: [((p * i + q * j + c) // divisor % size,)])
    np.testing.assert_array_equal(static_needs(program.bind(), event), expected)


@given(st.integers(1, 5), st.integers(1, 5), st.tuples(*[st.integers(-3, 3)] * 3))
def test_clipped_ranges(tasks, size, numbers):
    """Ranges are clipped as Python clips slices with indices below 0 taken as 0."""
    p, low, high = numbers
    event = EventTensor("E", (2, size))
    program = Program("p", (grid("g", (tasks,), event, f"i->:, {p}*i + {low} : {p}*i + {high}"),))

    def cells(i):
        inside = range(max(p * i + low, 0), min(p * i + high, size))
        return itertools.product(range(2), inside)

    np.testing.assert_array_equal(static_needs(program.bind(), event), counted((tasks,), (2, size), cells))


def test_any_of_needs_one():
    event = EventTensor("E", (N,), any_of=True)
    program = Program("p", (grid("g", (N, 4), event, "ij->i"),))
    assert str(uniform_need(program, event)) == "1"
    assert static_needs(program.bind(n=2), event).tolist() == [1, 1]


def test_no_tasks_and_no_notifiers():
    event, lonely = EventTensor("E", (2,)), EventTensor("F", (3,))
    waits = TaskGrid("w", kind(1), (3,), waits={lonely: "i->i"})
    program = Program("p", (grid("g", (N,), event, "i->i%2"), waits))
    assert static_needs(program.bind(n=0), event).tolist() == [0, 0]
    assert static_needs(program.bind(n=3), lonely).tolist() == [0, 0, 0]
    assert str(uniform_need(program, lonely)) == "0"


@pytest.mark.parametrize("text", ["i->t[i]", "i->t[0]:t[i]", "i->t[i:]"])
def test_run_time_maps_have_no_static_need(text):
    t = Tensor("t", (4,), "int32")
    event = EventTensor("E", (4,), count=Tensor("c", (4,), "int32"))
    reads = TileKind("reads", lambda *a: None, 1, (Operand("t", "int32", 1),))
    program = Program("p", (TaskGrid("g", reads, (3,), {"t": t}, notifies={event: text}),))
    assert uniform_need(program, event) is None and static_needs(program.bind(), event) is None


def test_run_time_extents_have_no_static_need():
    t = Tensor("t", (4,), "int32")
    reads = TileKind("reads", lambda *a: None, 1, (Operand("t", "int32", 1),))
    event = EventTensor("E", ())
    program = Program("p", (TaskGrid("g", reads, ("t[1]",), {"t": t}, notifies={event: "i->"}, bound=5),))
    assert uniform_need(program, event) is None and static_needs(program.bind(), event) is None
