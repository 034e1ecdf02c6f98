"""Edge maps: the four forms, what they parse to, what is refused. Their cells: kernels/test_decode.py."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etproto.edge_map import Gather, Point, Range, as_index, parse_edge_map, run_time_tensors
from etproto.errors import ProgramError
from etproto.expressions import Constant, Coordinate, Symbol
from etproto.program import EventTensor, Program, TaskGrid
from etproto.tile_kind import TileKind

N = Symbol("n")
SHAPES = {"topk": (N, Constant(2)), "indptr": (N,), "flat": (Constant(1),)}


def parsed(text: str, event: tuple, dimensions: int = 2):
    shape = tuple(Constant(e) if isinstance(e, int) else e for e in event)
    return parse_edge_map(text, shape, dimensions, {"n": N}, SHAPES)


@pytest.mark.parametrize(
    "text, event, dimensions, expected",
    [
        ("ij->i", (N,), 2, ["i"]),
        ("ij->ji", (4, N), 2, ["j", "i"]),
        ("i->ik", (N, 4), 1, ["i", "0:4"]),  # a letter only on the right is the whole axis
        ("i->", (), 1, []),
        ("i, j -> (i // 2, j + 1)", (4, 5), 2, ["i // 2", "j + 1"]),
        ("row, column -> column, row", (4, 4), 2, ["column", "row"]),
        ("i->i-1:i+2", (N,), 1, ["i - 1:i + 2"]),
        ("i->:", (N,), 1, ["0:n"]),
        ("i->n-i:", (N,), 1, ["n - i:n"]),
        ("i->topk[i,:]", (8,), 1, ["topk[i, :]"]),
        ("i->indptr[i]:indptr[i+1]", (8,), 1, ["indptr[i]:indptr[i + 1]"]),
        ("i->topk[i, 0], :", (8, 3), 1, ["topk[i, 0]", "0:3"]),
        ("ij->(2*i + j) % 3", (3,), 2, ["(2 * i + j) % 3"]),
        ("ij->n", (N,), 2, ["n"]),  # a symbol, not a letter of a projection
    ],
)
def test_forms(text, event, dimensions, expected):
    edge_map = parsed(text, event, dimensions)
    assert [str(dimension) for dimension in edge_map.dimensions] == expected
    assert str(edge_map) == text


def test_kinds_of_dimensions():
    point, span = parsed("i->topk[i, 1], i:i+1", (8, 8), 1).dimensions
    (gather,) = parsed("i->topk[i, 1:]", (8,), 1).dimensions
    assert isinstance(point, Point) and isinstance(span, Range) and isinstance(gather, Gather)
    assert (str(gather.low), str(gather.high)) == ("i * 2 + 1", "i * 2 + 2")
    assert run_time_tensors([point.value]) == {"topk"} and run_time_tensors([span.low]) == set()


@pytest.mark.parametrize(
    "text, event, dimensions, message",
    [
        ("i", (N,), 1, "expected 'coordinates -> event coordinates'"),
        ("ij->i", (N,), 1, "expected 1 different coordinate names left of the arrow, got 'ij'"),
        ("ii->i", (N,), 2, "expected 2 different coordinate names"),
        ("ij->ij", (N,), 2, "the event tensor has 1 dimensions, the map names 2"),
        ("i->i+", (N,), 1, "not a list of event coordinates"),
        ("i->q+1", (N,), 1, "cannot read 'q'"),
        ("i->i:n:2", (N,), 1, "a range has no step"),
        ("i->topk[:,i]", (N,), 1, "only the last index may be a slice"),
        ("i->topk[i:]", (N,), 1, "topk has 2 dimensions"),
        ("i->i**2", (N,), 1, "cannot read"),
    ],
)
def test_refused(text, event, dimensions, message):
    with pytest.raises(ProgramError, match=message) as caught:
        parsed(text, event, dimensions)
    assert repr(text) in str(caught.value)


@given(
    st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-9, 9)),
    st.integers(1, 5),
    st.one_of(st.none(), st.integers(1, 5)),
)
def test_index_records_mean_what_the_expression_says(numbers, divisor, modulus):
    """Affine, divided, reduced: the record's parts put together give the expression's value."""
    a, b, c = numbers
    i, j = Coordinate("i"), Coordinate("j")
    expression = (i * a + (j * b + c)) // divisor
    expression = expression if modulus is None else expression % modulus
    index = as_index(expression, ("i", "j"), {})
    p, q = (int(coefficient.evaluate({})) for coefficient in index.coefficients)
    for x in range(-3, 4):
        for y in range(-3, 4):
            value = (p * x + q * y + int(index.constant.evaluate({}))) // int(index.divisor.evaluate({}))
            if index.modulus is not None:
                value %= int(index.modulus.evaluate({}))
            assert value == expression.evaluate({"i": x, "j": y})


@pytest.mark.parametrize("text", ["i * j", "(i // 2) * 2", "i // j", "min(i, 2)", "(i % 3) // 2", "topk[i, 0] + 1"])
def test_what_the_device_cannot_evaluate_is_refused_when_lowered(text):
    from etproto.lowering import lower
    from etproto.program import Tensor
    from etproto.tile_kind import Operand

    topk = Tensor("topk", (4, 2), "int32")
    kind = TileKind("k", lambda *a: None, 2, (Operand("topk", "int32", 2),))
    E = EventTensor("E", (9,), need=1)
    grid = TaskGrid("g", kind, (3, 3), {"topk": topk}, notifies={E: f"i,j->{text}"})
    with pytest.raises(ProgramError, match="expected .affine in i, j. // divisor % modulus"):
        lower(Program("p", (grid,)).bind())


def test_a_read_of_the_wrong_rank_is_refused():
    with pytest.raises(ProgramError, match="topk has 2 dimensions"):
        as_index(parsed("i->topk[i]", (8,), 1).dimensions[0].value, ("i",), SHAPES)


def test_flat_index_of_a_read():
    index = as_index(parsed("i->topk[i, 1]", (8,), 1).dimensions[0].value, ("i",), SHAPES)
    assert index.buffer == "topk"
    assert [int(c.evaluate({})) for c in index.coefficients] == [2] and int(index.constant.evaluate({})) == 1
    assert np.arange(8).reshape(4, 2)[3, 1] == 2 * 3 + 1
