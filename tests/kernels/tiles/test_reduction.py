"""Reduction kinds on the cpu executor and in the simulator, against float64 and against plain Python sums."""

from __future__ import annotations

import re

import numpy as np
import pytest

from etproto.errors import ProgramError
from etproto.expressions import Symbol, ceil_div
from etproto.kernels.compile import compile_ptx
from etproto.kernels.tiles.reduction import column_sum, larger, own_value, reduce_parts, row_fold, row_reduce
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from tests.kernels.tiles.everywhere import bodies, decoded, encoded, run_everywhere

ROUNDING = {"float32": 2e-6, "bfloat16": 2.0**-8, "float16": 2.0**-10}
M = Symbol("M", bound=64)
OPERATIONS = ("sum", "max", "mean")


def nan(*shape):
    return np.full(shape, np.nan, np.float32)


def row_program(dtype, columns, rows=2):
    x = Tensor("X", (M, columns), dtype)
    grids = [
        TaskGrid(name, row_reduce(name, rows, dtype), (ceil_div(M, rows),), {"x": x, "y": Tensor(name.upper(), (M,))})
        for name in OPERATIONS
    ]
    return Program("rows", grids)


@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (1, 1), (3, 17), (5, 256), (4, 601)])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_rows(rng, dtype, rows, columns):
    tensors = {"X": encoded(rng.standard_normal((rows, columns)) - 3, dtype)}
    tensors |= {name.upper(): nan(rows) for name in OPERATIONS}
    x = decoded(tensors["X"])
    for results in run_everywhere(row_program(dtype, columns), tensors, M=rows):
        np.testing.assert_allclose(results["SUM"], x.sum(axis=1), rtol=2e-6)
        np.testing.assert_allclose(results["MEAN"], x.mean(axis=1), rtol=2e-6)
        np.testing.assert_array_equal(results["MAX"], x.max(axis=1))


@pytest.mark.parametrize("threads", [1, 33, 128, 256])
def test_any_number_of_threads(rng, threads):
    tensors = {"X": rng.standard_normal((2, 700)).astype(np.float32), **{name.upper(): nan(2) for name in OPERATIONS}}
    run_everywhere(row_program("float32", 700), tensors, threads=(4, threads), M=2)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_special_rows():
    """No columns, negative infinity alone, NaN wherever it stands, infinities of both signs."""
    tensors = {"X": nan(2, 0), "SUM": nan(2), "MAX": nan(2), "MEAN": nan(2)}
    for results in run_everywhere(row_program("float32", 0), tensors, M=2):
        assert [results[name].tolist() for name in ("SUM", "MEAN", "MAX")] == [[0, 0], [0, 0], [-np.inf, -np.inf]]
    x = np.full((12, 300), 2, np.float32)
    for row, column in enumerate((0, 1, 16, 17, 44, 255, 256, 272, 299)):
        x[row, column] = np.nan
    x[9] = -np.inf
    x[10, 5] = np.inf
    x[11, 3], x[11, 200] = np.inf, -np.inf
    tensors = {"X": x, "SUM": nan(12), "MAX": nan(12), "MEAN": nan(12)}
    for results in run_everywhere(row_program("float32", 300), tensors, M=12):
        assert np.isnan([results[name][:9] for name in ("SUM", "MEAN", "MAX")]).all()
        assert results["MAX"][9:].tolist() == [-np.inf, np.inf, np.inf]
        np.testing.assert_array_equal(results["SUM"][9:], [-np.inf, np.inf, np.nan])


def column_program(dtype, function, columns=7):
    """Sums of columns over row blocks of 4, then the sum of those; tiles of 3 columns."""
    blocks, tiles = ceil_div(M, 4), ceil_div(columns, 3)
    x, p = Tensor("X", (M, columns), dtype), Tensor("P", (blocks, 1, columns))
    c, E = Tensor("C", (1, columns), dtype), EventTensor("E", (tiles,))
    return Program(
        "columns",
        (
            TaskGrid("parts", column_sum(4, 3, dtype), (blocks, tiles), {"x": x, "p": p}, notifies={E: "ij->j"}),
            TaskGrid("whole", reduce_parts(1, 3, dtype, function), (1, tiles), {"p": p, "c": c}, waits={E: "ij->j"}),
        ),
    )


@pytest.mark.parametrize("rows", [1, 4, 11])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_columns(rng, dtype, rows):
    """Both steps in ascending order, so float32 gives the bits of a plain loop."""
    tensors = {"X": encoded(rng.standard_normal((rows, 7)), dtype), "P": nan(-(-rows // 4), 1, 7)}
    tensors["C"] = encoded(nan(1, 7), dtype)
    x = decoded(tensors["X"])
    parts = np.zeros((len(tensors["P"]), 7), np.float32)
    for row in range(rows):
        parts[row // 4] += np.float32(x[row])
    whole = np.zeros(7, np.float32)
    for part in parts:
        whole += part
    on_cpu, simulated = run_everywhere(column_program(dtype, "relu"), tensors, M=rows)
    np.testing.assert_array_equal(simulated["P"][:, 0], parts)
    np.testing.assert_array_equal(simulated["C"][0], encoded(np.maximum(whole, 0), dtype))
    expected = np.maximum(x.sum(axis=0), 0)
    np.testing.assert_allclose(decoded(on_cpu["C"])[0], expected, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])


@pytest.mark.parametrize("parts", [0, 1, 5])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_parts(rng, dtype, parts):
    """Tiles of 4 x 5 of a 6 x 7 matrix, with a function of the sum; without parts that of 0."""
    p = rng.standard_normal((parts, 6, 7)).astype(np.float32)
    operands = {"p": Tensor("P", (parts, 6, 7)), "c": Tensor("C", (6, 7), dtype)}
    program = Program("parts", (TaskGrid("parts", reduce_parts(4, 5, dtype, "exp"), (2, 2), operands),))
    expected = np.exp(p.astype(np.float64).sum(axis=0))
    for results in run_everywhere(program, {"P": p, "C": encoded(nan(6, 7), dtype)}, threads=(4, 33)):
        np.testing.assert_allclose(decoded(results["C"]), expected, rtol=ROUNDING[dtype])


def test_a_fold_is_made_once():
    assert row_fold(own_value, larger, -np.inf) is row_fold(own_value, larger, -np.inf)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: row_reduce("min", 1), "operation must be one of sum, max, mean, got 'min'"),
        (lambda: row_reduce("sum", 0), "row_reduce: rows must be at least 1, got 0"),
        (lambda: row_reduce("sum", 1, "int32"), "got 'int32'"),
        (lambda: column_sum(4, 0), "column_sum: columns must be at least 1, got 0"),
        (lambda: reduce_parts(-2, 4), "reduce_parts: rows must be at least 1, got -2"),
        (lambda: reduce_parts(4, 4, function="add"), "element functions are copy, .*, got 'add'"),
    ],
)
def test_refused(make, words):
    with pytest.raises(ProgramError, match=words):
        make()


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_compiled_without_doubles_or_calls(capability):
    kinds = [row_reduce("sum", 2), row_reduce("max", 2, "bfloat16"), row_reduce("mean", 2, "float16")]
    kinds += [column_sum(8, 32, "bfloat16"), reduce_parts(4, 32, "bfloat16", "silu")]
    ptx = compile_ptx(bodies(kinds), capability)
    assert "add.f32" in ptx or "add.rn.f32" in ptx
    assert ".f64" not in ptx and ".local" not in ptx and "ld.global.nc" not in ptx
    assert not re.findall(r"^\s*(?:@!?%\w+\s+)?call\b", ptx, re.M)
