"""Normalisation kinds on the cpu executor and in the simulator, against formulas in float64."""

from __future__ import annotations

import re

import numpy as np
import pytest

from etproto.errors import ProgramError, RunError
from etproto.executors import cpu
from etproto.expressions import Symbol, ceil_div
from etproto.kernels.compile import compile_ptx
from etproto.kernels.tiles.elementwise import elementwise
from etproto.kernels.tiles.normalization import add_rms_norm, layer_norm, rms_norm
from etproto.lowering import lower
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.schedule import schedule
from tests.kernels.tiles.everywhere import bodies, decoded, encoded, run_everywhere

ROUNDING = {"float32": 2e-6, "bfloat16": 2.0**-8, "float16": 2.0**-10}
ROWS = 2  # of a task
M = Symbol("M", bound=64)


def all_kinds(dtype, columns):
    """One grid for each kind: RMS with gains and without, LAYER, and ADDED, which changes H."""
    x, h = Tensor("X", (M, columns), dtype), Tensor("H", (M, columns), dtype)
    g, b = Tensor("G", (columns,), dtype), Tensor("B", (columns,), dtype)
    out = {name: Tensor(name, (M, columns), dtype) for name in ("RMS", "PLAIN", "LAYER", "ADDED")}
    extents = (ceil_div(M, ROWS),)
    return Program(
        "norms",
        (
            TaskGrid("rms", rms_norm(ROWS, dtype), extents, {"x": x, "g": g, "y": out["RMS"]}),
            TaskGrid("plain", rms_norm(ROWS, dtype, 0.5, weight=False), extents, {"x": x, "y": out["PLAIN"]}),
            TaskGrid("layer", layer_norm(ROWS, dtype), extents, {"x": x, "g": g, "b": b, "y": out["LAYER"]}),
            TaskGrid("added", add_rms_norm(ROWS, dtype), extents, {"x": x, "h": h, "g": g, "y": out["ADDED"]}),
        ),
    )


def make_tensors(rng, dtype, rows, columns):
    tensors = {"X": 2 + 3 * rng.standard_normal((rows, columns)), "H": rng.standard_normal((rows, columns))}
    tensors |= {"G": 1 + 0.3 * rng.standard_normal(columns), "B": rng.standard_normal(columns)}
    tensors |= {name: np.full((rows, columns), np.nan) for name in ("RMS", "PLAIN", "LAYER", "ADDED")}
    return {name: encoded(values, dtype) for name, values in tensors.items()}


def rms(x, eps):
    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + eps)


def layer(x, eps):
    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + eps)


@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (1, 1), (3, 7), (2, 261), (5, 520)])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_formulas(rng, dtype, rows, columns):
    """More columns than lanes, fewer, one; a last task with one row; no task at all."""
    tensors = make_tensors(rng, dtype, rows, columns)
    x, h, g, b = (decoded(tensors[name]) for name in "XHGB")
    for results in run_everywhere(all_kinds(dtype, columns), tensors, M=rows):
        tolerance = {"rtol": ROUNDING[dtype], "atol": 2 * ROUNDING[dtype]}
        np.testing.assert_allclose(decoded(results["RMS"]), rms(x, 1e-6) * g, **tolerance)
        np.testing.assert_allclose(decoded(results["PLAIN"]), rms(x, 0.5), **tolerance)
        np.testing.assert_allclose(decoded(results["LAYER"]), layer(x, 1e-5) * g + b, **tolerance)
        np.testing.assert_allclose(decoded(results["H"]), x + h, rtol=ROUNDING[dtype], atol=1e-7)
        np.testing.assert_allclose(decoded(results["ADDED"]), rms(decoded(results["H"]), 1e-6) * g, **tolerance)


@pytest.mark.parametrize("threads", [1, 33, 128, 256])
def test_any_number_of_threads(rng, threads):
    tensors = make_tensors(rng, "bfloat16", 1, 300)
    run_everywhere(all_kinds("bfloat16", 300), tensors, threads=(4, threads), M=1)


def test_variance_is_of_distances_from_the_mean():
    """The difference of two means of squares would lose all digits here."""
    x = np.float32([[10000, 10001, 10002, 10003]])
    tensors = {"X": x, "G": np.ones(4, np.float32), "B": np.zeros(4, np.float32), "Y": np.full((1, 4), np.nan, "f4")}
    operands = {
        "x": Tensor("X", (1, 4)),
        "g": Tensor("G", (4,)),
        "b": Tensor("B", (4,)),
        "y": Tensor("Y", (1, 4)),
    }
    program = Program("layer", (TaskGrid("layer", layer_norm(1), (1,), operands),))
    for results in run_everywhere(program, tensors):
        np.testing.assert_allclose(results["Y"][0], layer(x.astype(np.float64), 1e-5)[0], rtol=1e-5)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_fused_is_the_sum_and_then_the_norm(rng, dtype):
    """The same bits as two grids joined by an event; the second of them works in place."""
    tensors = make_tensors(rng, dtype, 5, 70)
    x, h, y = (Tensor(name, (M, 70), dtype) for name in ("X", "H", "ADDED"))
    g, E = Tensor("G", (70,), dtype), EventTensor("E", (ceil_div(M, ROWS),))
    fused = TaskGrid("fused", add_rms_norm(ROWS, dtype), (ceil_div(M, ROWS),), {"x": x, "h": h, "g": g, "y": y})
    apart = (
        TaskGrid(
            "add",
            elementwise("add", ROWS, 64, dtype),
            (ceil_div(M, ROWS), 2),
            {"a": h, "b": x, "y": y},
            notifies={E: "ij->i"},
        ),
        TaskGrid("norm", rms_norm(ROWS, dtype), (ceil_div(M, ROWS),), {"x": y, "g": g, "y": y}, waits={E: "i->i"}),
    )
    tensors = {name: tensors[name] for name in ("X", "H", "G", "ADDED")}
    together = run_everywhere(Program("fused", (fused,)), tensors, M=5)
    separate = run_everywhere(Program("apart", apart), tensors, M=5)
    for one, other in zip(together, separate, strict=True):
        np.testing.assert_array_equal(one["ADDED"], other["ADDED"])
    unordered = Program("unordered", (apart[0], TaskGrid("norm", apart[1].kind, apart[1].extents, apart[1].operands)))
    with pytest.raises(RunError, match="race on ADDED"):
        for seed in range(20):
            scheduled = schedule(lower(unordered.bind(M=5)), "dynamic", workers=3)
            cpu.run(scheduled, {name: a.copy() for name, a in tensors.items()}, seed=seed, race_check=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nan_stays_in_its_row(rng):
    tensors = make_tensors(rng, "float32", 3, 9)
    tensors["X"][1, 4] = np.nan
    for results in run_everywhere(all_kinds("float32", 9), tensors, M=3):
        for name in ("RMS", "PLAIN", "LAYER", "ADDED"):
            np.testing.assert_array_equal(np.isnan(results[name]).all(axis=1), [False, True, False], err_msg=name)
            assert np.isfinite(results[name][[0, 2]]).all()


@pytest.mark.parametrize("make", [rms_norm, layer_norm, add_rms_norm])
def test_refused(make):
    with pytest.raises(ProgramError, match=f"{make.__name__}: rows must be at least 1, got 0"):
        make(0)
    for eps in (0.0, -1e-5, np.inf, np.nan):
        with pytest.raises(ProgramError, match=f"{make.__name__}: eps must be positive and finite, got {eps}"):
            make(1, "float32", eps)
    with pytest.raises(ProgramError, match="got 'int32'"):
        make(1, "int32")


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_compiled_without_doubles_or_calls(capability):
    kinds = [rms_norm(2), rms_norm(2, "float16", weight=False), layer_norm(2, "bfloat16"), add_rms_norm(2, "bfloat16")]
    ptx = compile_ptx(bodies(kinds), capability)
    assert "sqrt." in ptx and ".f64" not in ptx
    assert ".local" not in ptx and "ld.global.nc" not in ptx and not re.findall(r"^\s*(?:@!?%\w+\s+)?call\b", ptx, re.M)
