"""Expressions: parsing, printing and values agree with Python's own."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etproto.errors import ProgramError
from etproto.expressions import Constant, Coordinate, Read, Symbol, as_expression, ceil_div, parse

NAMES = {"i": Coordinate("i"), "n": Symbol("n"), "t": "t", "u": "u"}


def read(text: str):
    return parse(ast.parse(text, mode="eval").body, NAMES, text)


@st.composite
def texts(draw, depth: int = 4) -> str:
    """Random integer arithmetic over i, n and small constants, divisors positive."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(["i", "n", "0", "1", "2", "7"]))
    left = draw(texts(depth - 1))
    operator = draw(st.sampled_from(["+", "-", "*", "//", "%", "min", "max", "ceil_div"]))
    if operator in ("//", "%"):
        return f"({left}) {operator} {draw(st.integers(1, 5))}"
    if operator == "ceil_div":
        return f"ceil_div({left}, {draw(st.integers(1, 5))})"
    right = draw(texts(depth - 1))
    return f"{operator}({left}, {right})" if operator in ("min", "max") else f"({left}) {operator} ({right})"


@given(texts(), st.integers(-20, 20), st.integers(-20, 20))
def test_values_are_pythons(text, i, n):
    values = {"i": i, "n": n}
    expected = eval(text, {"ceil_div": lambda a, b: -(-a // b)}, values)
    expression = read(text)
    assert expression.evaluate(values) == expected
    assert read(str(expression)).evaluate(values) == expected, f"printed as {expression}"
    array = np.broadcast_to(expression.evaluate({"i": np.array([i, 0, i]), "n": n}), 3)
    assert array[0] == array[2] == expected


@pytest.mark.parametrize(
    "text, printed",
    [
        ("(n + 63) // 64", "(n + 63) // 64"),
        ("n + 0 * i", "n"),
        ("1 * n // 1", "n"),
        ("n - (i - 1)", "n - (i - 1)"),
        ("2 * (3 + 4)", "14"),
        ("ceil_div(n, 64)", "(n + 63) // 64"),
        ("min(n, 2 * i)", "min(n, 2 * i)"),
        ("t[i, n + 1]", "t[i, n + 1]"),
        ("n * (i % 2)", "n * (i % 2)"),
    ],
)
def test_printing(text, printed):
    assert str(read(text)) == printed


def test_reads_index_tensors_when_they_are_evaluated():
    expression = read("t[u[i]] + 1")
    values = {"t": np.array([5, 6, 7], np.int32), "u": np.array([2, 0], np.int32)}
    assert expression.evaluate({**values, "i": 0}) == 8
    assert expression.evaluate({**values, "i": np.array([0, 1])}).tolist() == [8, 6]
    assert [str(leaf) for leaf in expression.leaves()] == ["t[u[i]]", "u[i]", "i"]
    with pytest.raises(ProgramError, match=r"run-time value t is not known"):
        Read("t", (Constant(0),)).evaluate({})


def test_operators_on_objects():
    n, m = Symbol("n"), Symbol("m")
    values = {"n": 10, "m": 3}
    for expression, value in (
        (n + m, 13),
        (7 - m, 4),
        (2 * n % 7, 6),
        (100 // n, 10),
        (ceil_div(n, m), 4),
        (5 % m, 2),
    ):
        assert expression.evaluate(values) == value
    assert as_expression(np.int64(4)) == Constant(4) and n == Symbol("n") != m


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: read("n ** 2"), r"cannot read 'n \*\* 2'.*i, n, t, u"),
        (lambda: read("q + 1"), "cannot read 'q'"),
        (lambda: read("n[1]"), r"cannot read 'n\[1\]'"),
        (lambda: read("t"), "cannot read 't'"),
        (lambda: read("n / 2"), "cannot read 'n / 2'"),
        (lambda: read("n + 1.5"), "cannot read '1.5'"),
        (lambda: read("n + True"), "cannot read 'True'"),
        (lambda: read("n // 0"), "n // 0: the divisor must be positive"),
        (lambda: Symbol("n") % -2, "n % -2: the divisor must be positive"),
        (lambda: Symbol("2n"), "Python identifier, got '2n'"),
        (lambda: Symbol("n", bound=3, minimum=4), "symbol n: the bound must be at least 4, got 3"),
        (lambda: Symbol("n").evaluate({"m": 1}), "symbol n has no value"),
        (lambda: as_expression(1.0), "expected an integer or an expression, got 1.0 of type float"),
        (lambda: as_expression(True), "got True of type bool"),
        (lambda: Symbol("n") + "1", "got '1' of type str"),
    ],
)
def test_refused(call, text):
    with pytest.raises(ProgramError, match=text):
        call()
