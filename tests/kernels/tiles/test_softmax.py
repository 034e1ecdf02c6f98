"""Softmax and top-k on the cpu executor and in the simulator, against float64 and a sort in plain Python."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from etproto.errors import ProgramError
from etproto.executors import cpu
from etproto.expressions import Symbol, ceil_div
from etproto.kernels.compile import compile_ptx
from etproto.kernels.tiles.elementwise import elementwise
from etproto.kernels.tiles.softmax import softmax_rows, top_k
from etproto.lowering import lower
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.schedule import schedule
from tests.kernels.tiles.everywhere import bodies, decoded, encoded, run_everywhere

ROUNDING = {"float32": 2e-6, "bfloat16": 2.0**-8, "float16": 2.0**-10}
M = Symbol("M", bound=64)


def softmax_everywhere(x, dtype="float32", threads=(4, 3)):
    """Softmax of x by tasks of two rows."""
    operands = {"x": Tensor("X", (M, x.shape[1]), dtype), "y": Tensor("Y", (M, x.shape[1]), dtype)}
    program = Program("softmax", (TaskGrid("softmax", softmax_rows(2, dtype), (ceil_div(M, 2),), operands),))
    tensors = {"X": x, "Y": encoded(np.full(x.shape, np.nan), dtype)}
    return [results["Y"] for results in run_everywhere(program, tensors, threads, M=len(x))]


def softmax(x):
    weights = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("rows", "columns"), [(0, 4), (2, 0), (1, 1), (3, 7), (4, 300), (2, 513)])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_softmax(rng, dtype, rows, columns):
    x = encoded(4 * rng.standard_normal((rows, columns)), dtype)
    for y in softmax_everywhere(x, dtype):
        np.testing.assert_allclose(decoded(y), softmax(decoded(x)), rtol=2 * ROUNDING[dtype], atol=1e-7)


@pytest.mark.parametrize("threads", [1, 33, 128, 256])
def test_softmax_by_any_number_of_threads(rng, threads):
    softmax_everywhere(rng.standard_normal((2, 300)).astype(np.float32), threads=(4, threads))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_softmax_of_extreme_rows():
    """Huge logits neither overflow nor vanish; -inf masks; a row without a finite maximum is NaN."""
    inf, nan = np.inf, np.nan
    x = np.float32([[3e38, 3e38, -3e38], [-3e38, -inf, -3e38], [-inf, -7, -inf], [-inf] * 3, [1, nan, 2], [inf, 0, 0]])
    expected = np.float32([[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 1, 0], [nan] * 3, [nan] * 3, [nan] * 3])
    for y in softmax_everywhere(x):
        np.testing.assert_array_equal(y, expected)


def test_softmax_in_place(rng):
    """Of what another task has written: twice x."""
    x = rng.standard_normal((3, 9)).astype(np.float32)
    y, E = Tensor("Y", (3, 9)), EventTensor("E", (3,))
    program = Program(
        "in_place",
        (
            TaskGrid(
                "add",
                elementwise("add", 1, 9),
                (3, 1),
                {"a": Tensor("X", (3, 9)), "b": Tensor("X", (3, 9)), "y": y},
                notifies={E: "ij->i"},
            ),
            TaskGrid("softmax", softmax_rows(1), (3,), {"x": y, "y": y}, waits={E: "i->i"}),
        ),
    )
    for results in run_everywhere(program, {"X": x, "Y": np.full((3, 9), np.nan, np.float32)}):
        np.testing.assert_allclose(results["Y"], softmax(2 * x.astype(np.float64)), rtol=2e-6)


def top_k_everywhere(x, k, renormalize, *, rows=2, dtype="float32", threads=(4, 3)):
    """[(weights, ids, counts)] of each executor; counts start at 100."""
    operands = {
        "x": Tensor("X", (M, x.shape[1]), dtype),
        "weights": Tensor("W", (M, k)),
        "ids": Tensor("I", (M, k), "int32"),
        "counts": Tensor("N", (x.shape[1],), "int32"),
    }
    kind = top_k(k, renormalize, rows, dtype, counts=True)
    program = Program("route", (TaskGrid("route", kind, (ceil_div(M, rows),), operands),))
    tensors = {"X": x, "W": np.full((len(x), k), np.nan, np.float32), "I": np.full((len(x), k), -9, np.int32)}
    tensors["N"] = np.full(x.shape[1], 100, np.int32)
    return [(found["W"], found["I"], found["N"]) for found in run_everywhere(program, tensors, threads, M=len(x))]


def expected_row(row, k, renormalize):
    """(weights, ids) of one row by Python's sort, NaN before everything."""

    def key(column):
        value = float(row[column])
        return (0, 0.0, column) if math.isnan(value) else (1, -value, column)

    ids = sorted(range(len(row)), key=key)[:k]
    if any(math.isnan(value) for value in row) or not math.isfinite(max(row, default=0)):
        weights = [math.nan] * len(ids)
    else:
        shares = [math.exp(float(value) - float(max(row))) for value in row]
        total = math.fsum(shares[column] for column in ids) if renormalize else math.fsum(shares)
        weights = [shares[column] / total for column in ids]
    missing = k - len(ids)
    return weights + [0.0] * missing, ids + [-1] * missing


def require_top_k(x, k, renormalize, found):
    expected = [expected_row(row, k, renormalize) for row in decoded(x).tolist()]
    for weights, ids, counts in found:
        assert ids.tolist() == [ids for _, ids in expected]
        np.testing.assert_allclose(weights, np.reshape([w for w, _ in expected], (-1, k)), rtol=2e-6, atol=1e-30)
        kept = [column for _, ids in expected for column in ids if column >= 0]
        assert (counts - 100).tolist() == [kept.count(column) for column in range(x.shape[1])]


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "k"), [(0, 8, 2), (1, 1, 1), (5, 8, 2), (3, 60, 8), (2, 300, 4), (3, 2, 5), (2, 0, 2)]
)
def test_top_k(rng, rows, columns, k, renormalize):
    """Places for some of many, of as many, and of fewer columns than places."""
    x = 3 * rng.standard_normal((rows, columns)).astype(np.float32)
    require_top_k(x, k, renormalize, top_k_everywhere(x, k, renormalize))


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_ties_go_to_the_lower_column(rng, dtype, renormalize):
    """Logits of few values, among them both zeros, which are equal."""
    x = encoded(rng.choice([-1.5, -0.0, 0.0, 1.0, 2.0], (7, 12)), dtype)
    found = top_k_everywhere(x, 5, renormalize, dtype=dtype)
    require_top_k(x, 5, renormalize, found)
    weights = found[1][0]
    assert (np.diff(weights, axis=1) <= 0).all()
    assert np.allclose(weights.sum(axis=1), 1, atol=1e-6) == renormalize


def test_order_is_that_of_the_logits_where_weights_underflow():
    """All but one of the weights are 0 in float32, and still the second logit comes second."""
    x = np.float32([[-500, 0, -900, -300]])
    for weights, ids, _ in top_k_everywhere(x, 3, False):
        assert ids.tolist() == [[1, 3, 0]] and weights.tolist() == [[1, 0, 0]]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("renormalize", [False, True])
def test_top_k_of_extreme_rows(renormalize):
    """Masked columns come last; a NaN comes first, and whatever a row holds its ids are columns of x."""
    inf, nan = np.inf, np.nan
    rows = [[-inf, 3, -inf, 1], [-inf, -inf, 2, -inf], [-inf] * 4, [1, nan, 5, nan], [nan] * 4, [3e38, -3e38, 0, 3e38]]
    rows += [[1, nan, inf, inf], [inf, 0, 1, -inf]]
    x = np.float32(rows)
    found = top_k_everywhere(x, 3, renormalize)
    ids = [[1, 3, 0], [2, 0, 1], [0, 1, 2], [1, 3, 2], [0, 1, 2], [0, 3, 2], [1, 2, 3], [0, 2, 1]]
    for weights, got, _ in found:
        assert got.tolist() == ids
        assert np.isnan(weights[[2, 3, 4, 6]]).all() and np.isnan(weights[7, 0])
        np.testing.assert_allclose(weights[[1, 5]], [[1, 0, 0], [0.5, 0.5, 0]])


@pytest.mark.parametrize("threads", [1, 33, 128])
def test_top_k_by_any_number_of_threads(rng, threads):
    x = rng.integers(0, 9, (4, 40)).astype(np.float32)
    for renormalize in (False, True):
        require_top_k(x, 6, renormalize, top_k_everywhere(x, 6, renormalize, rows=4, threads=(threads, 4)))


def test_top_k_without_counts(rng):
    x = rng.standard_normal((3, 6)).astype(np.float32)
    operands = {"x": Tensor("X", (3, 6)), "weights": Tensor("W", (3, 2)), "ids": Tensor("I", (3, 2), "int32")}
    program = Program("route", (TaskGrid("route", top_k(2, True, 1), (3,), operands),))
    tensors = {"X": x, "W": np.full((3, 2), np.nan, np.float32), "I": np.full((3, 2), -9, np.int32)}
    for results in run_everywhere(program, tensors):
        assert results["I"].tolist() == [expected_row(row, 2, True)[1] for row in x.tolist()]


def test_counts_of_tasks_at_the_same_time(rng):
    """Threads of the cpu executor add to one array: nothing is lost."""
    x = rng.standard_normal((64, 3)).astype(np.float32)
    kind = top_k(2, True, 1, counts=True)
    operands = {
        "x": Tensor("X", (64, 3)),
        "weights": Tensor("W", (64, 2)),
        "ids": Tensor("I", (64, 2), "int32"),
        "counts": Tensor("N", (3,), "int32"),
    }
    program = Program("route", (TaskGrid("route", kind, (64,), operands),))
    scheduled = schedule(lower(program.bind()), "static", workers=8)
    for _ in range(5):
        tensors = {"X": x, "W": np.zeros((64, 2), np.float32), "I": np.zeros((64, 2), np.int32)}
        tensors["N"] = np.zeros(3, np.int32)
        cpu.run(scheduled, tensors, trace=False)
        assert tensors["N"].tolist() == np.bincount(tensors["I"].ravel(), minlength=3).tolist()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: softmax_rows(0), "softmax_rows: rows must be at least 1, got 0"),
        (lambda: softmax_rows(1, "int32"), "got 'int32'"),
        (lambda: top_k(0, True, 1), "top_k: k must be at least 1, got 0"),
        (lambda: top_k(2, True, -1), "top_k: rows must be at least 1, got -1"),
        (lambda: top_k(2, True, 1, "float64"), "got 'float64'"),
    ],
)
def test_refused(make, words):
    with pytest.raises(ProgramError, match=words):
        make()


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_compiled_without_doubles_or_calls(capability):
    kinds = [softmax_rows(2), softmax_rows(2, "bfloat16"), top_k(4, True, 2, "float16")]
    kinds += [top_k(4, False, 2, counts=True)]
    ptx = compile_ptx(bodies(kinds), capability)
    assert "ex2.approx" in ptx and re.search(r"(?:red|atom)\.\S*add\.[su]32", ptx), "exponentials, counts"
    assert ".f64" not in ptx and ".local" not in ptx and "ld.global.nc" not in ptx
    assert not re.findall(r"^\s*(?:@!?%\w+\s+)?call\b", ptx, re.M)
