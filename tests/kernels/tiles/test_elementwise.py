"""Elementwise kinds on the cpu executor and in the simulator, against formulas in float64."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from etproto.errors import ProgramError
from etproto.expressions import Symbol, ceil_div
from etproto.kernels.compile import compile_ptx
from etproto.kernels.tiles.brain_float import from_float32, to_float32
from etproto.kernels.tiles.elementwise import BINARY, UNARY, bias_add, element_type, elementwise
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from tests.kernels.tiles.everywhere import bodies, decoded, encoded, run_everywhere

ROUNDING = {"float32": 2e-6, "bfloat16": 2.0**-8, "float16": 2.0**-10}
erf = np.vectorize(math.erf, otypes=[np.float64])


def silu(a):
    return a / (1 + np.exp(-a))


def gelu(a):
    return a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3))) / 2


FORMULAS = {
    "copy": lambda a, b: a,
    "exp": lambda a, b: np.exp(a),
    "relu": lambda a, b: np.where(a > 0, a, 0),
    "silu": lambda a, b: silu(a),
    "gelu": lambda a, b: gelu(a),
    "gelu_erf": lambda a, b: a * (1 + erf(a / np.sqrt(2))) / 2,
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "swiglu": lambda a, b: silu(a) * b,
    "geglu": lambda a, b: gelu(a) * b,
    "scale": lambda a, b: -0.375 * a,
    "bias_add": lambda a, b: a + b[0] if len(b) else a,
}


def all_functions(dtype, rows, columns):
    """(program for M rows of 7 columns, its functions): one grid and one output for each function."""
    M = Symbol("M", bound=64)
    a, b, bias = Tensor("A", (M, 7), dtype), Tensor("B", (M, 7), dtype), Tensor("BIAS", (7,), dtype)
    factor = Tensor("FACTOR", (1,))
    grids = []
    for name in FORMULAS:
        y = Tensor(f"Y_{name}", (M, 7), dtype)
        kind = bias_add(rows, columns, dtype) if name == "bias_add" else elementwise(name, rows, columns, dtype)
        inputs = {"b": b} if name in BINARY else {"bias": bias} if name == "bias_add" else {}
        inputs |= {"factor": factor} if name == "scale" else {}
        grids.append(TaskGrid(name, kind, (ceil_div(M, rows), ceil_div(7, columns)), {"a": a, **inputs, "y": y}))
    return Program("functions", grids)


def make_tensors(rng, dtype, rows):
    b = rng.standard_normal((rows, 7))
    bias = rng.standard_normal((1, 7)) if rows == 0 else b[:1]
    tensors = {"A": 3 * rng.standard_normal((rows, 7)), "B": b, "BIAS": bias[0]}
    tensors |= {f"Y_{name}": np.full((rows, 7), np.nan) for name in FORMULAS}
    return {name: encoded(array, dtype) for name, array in tensors.items()} | {"FACTOR": np.float32([-0.375])}


def test_every_function_has_a_formula():
    assert set(FORMULAS) == {*UNARY, *BINARY, "scale", "bias_add"}


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_functions(rng, dtype, rows):
    """Tiles of 4 x 5 on up to 5 x 7 elements: whole ones, and ones cut off on either side."""
    tensors = make_tensors(rng, dtype, rows)
    a, b = decoded(tensors["A"]), decoded(tensors["B"])
    for results in run_everywhere(all_functions(dtype, 4, 5), tensors, M=rows):
        for name, formula in FORMULAS.items():
            expected = formula(a, b)
            atol = ROUNDING[dtype] * 0.5
            np.testing.assert_allclose(decoded(results[f"Y_{name}"]), expected, ROUNDING[dtype], atol, err_msg=name)


@pytest.mark.parametrize("threads", [1, 33, 128])
def test_any_number_of_threads(rng, threads):
    tensors = make_tensors(rng, "float32", 3)
    run_everywhere(all_functions("float32", 2, 7), tensors, threads=(4, threads), M=3)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_extreme_values():
    """No body raises where Python's own functions would; NaN stays NaN; nothing finite becomes NaN."""
    values = np.float32([[np.nan, np.inf, 1e30, 100, -100, -1e30, -np.inf]])
    tensors = {name: np.full((1, 7), np.nan, np.float32) for name in [f"Y_{name}" for name in FORMULAS]}
    tensors |= {"A": values, "B": np.ones((1, 7), np.float32), "BIAS": np.zeros(7, np.float32)}
    tensors["FACTOR"] = np.float32([2])
    expected = {
        "exp": [np.nan, np.inf, np.inf, np.inf, np.exp(-100.0), 0, 0],
        "relu": [np.nan, np.inf, 1e30, 100, 0, 0, 0],
        "silu": [np.nan, np.inf, 1e30, 100, 0, 0, np.nan],
        "gelu": [np.nan, np.inf, 1e30, 100, 0, 0, np.nan],
        "gelu_erf": [np.nan, np.inf, 1e30, 100, 0, 0, np.nan],
        "swiglu": [np.nan, np.inf, 1e30, 100, 0, 0, np.nan],
        "scale": [np.nan, np.inf, 2e30, 200, -200, -2e30, -np.inf],
    }
    for results in run_everywhere(all_functions("float32", 1, 7), tensors, M=1):
        for name, row in expected.items():
            np.testing.assert_allclose(results[f"Y_{name}"][0], row, rtol=1e-6, atol=1e-35, err_msg=name)


def test_a_chain_that_converts_and_works_in_place(rng):
    """float32 -> bfloat16, silu in place of that: each element is rounded twice, to nearest even."""
    M, E = Symbol("M", bound=64), EventTensor("E", (Symbol("M", bound=64), 3))
    a, y = Tensor("A", (M, 5)), Tensor("Y", (M, 5), "bfloat16")
    cast, apply = elementwise("copy", 1, 2, out="bfloat16"), elementwise("silu", 1, 2, "bfloat16")
    chain = (
        TaskGrid("cast", cast, (M, 3), {"a": a, "y": y}, notifies={E: "ij->ij"}),
        TaskGrid("silu", apply, (M, 3), {"a": y, "y": y}, waits={E: "ij->ij"}),
    )
    tensors = {"A": rng.standard_normal((3, 5)).astype(np.float32), "Y": np.full((3, 5), 0xFFFF, np.uint16)}
    expected = from_float32(silu(decoded(from_float32(tensors["A"]))))
    for results in run_everywhere(Program("chain", chain), tensors, M=3):
        difference = results["Y"].astype(int) - expected
        assert np.abs(difference).max() <= 1 and (difference != 0).mean() < 0.1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_pattern_is_copied(dtype):
    """A copy goes through float32, which holds every 16-bit float; the 16-bit NaNs stay NaNs."""
    kind = elementwise("copy", 256, 256, dtype)
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    a = bits.view(np.float16) if dtype == "float16" else bits
    y = np.zeros_like(a)
    kind.reference(0, 0, a, y)
    number = np.isfinite(element_type(dtype).read(a))
    np.testing.assert_array_equal(y.view(np.uint16)[number], bits[number])
    assert np.isnan(element_type(dtype).read(y)).sum() == np.isnan(element_type(dtype).read(a)).sum() > 0
    load, store = element_type(dtype).load, element_type(dtype).store
    some = [int(value) for value in bits[number][::37]]
    assert [int(store(load(value))) for value in some] == some


class TestBrainFloat:
    bits = np.arange(1 << 16, dtype=np.uint16)

    def test_values_of_all_patterns(self):
        """By the definition: sign, exponent less 127, mantissa of seven bits; subnormal numbers without a 1."""
        sign, exponent, mantissa = self.bits >> 15, (self.bits >> 7) & 255, self.bits & 127
        value = np.where(exponent == 0, mantissa / 128, 1 + mantissa / 128)
        value = value * 2.0 ** (np.maximum(exponent, 1).astype(np.float64) - 127)
        value[exponent == 255] = np.where(mantissa[exponent == 255] == 0, np.inf, np.nan)
        np.testing.assert_array_equal(to_float32(self.bits), np.where(sign == 1, -value, value))

    def test_all_patterns_come_back(self):
        back = from_float32(to_float32(self.bits))
        is_nan = np.isnan(to_float32(self.bits))
        np.testing.assert_array_equal(back[~is_nan], self.bits[~is_nan])
        assert np.isnan(to_float32(back[is_nan])).all()

    def test_halves_go_to_the_even_pattern_and_others_to_the_nearest(self):
        """Between all neighbours: the middle, and the float32 on either side of it."""
        low = np.arange(0x7F7F, dtype=np.uint32)
        low = np.concatenate([low, low + 0x8000])
        middle = (low << 16) + 0x8000
        even = (low + (low & 1)).astype(np.uint16)
        np.testing.assert_array_equal(from_float32(middle.view(np.float32)), even)
        np.testing.assert_array_equal(from_float32((middle - 1).view(np.float32)), low.astype(np.uint16))
        np.testing.assert_array_equal(from_float32((middle + 1).view(np.float32)), (low + 1).astype(np.uint16))

    def test_ends(self):
        largest = np.float32(3.4028235e38)
        assert from_float32(np.array([largest, -largest, np.inf])).tolist() == [0x7F80, 0xFF80, 0x7F80]
        payload = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
        assert np.isnan(to_float32(from_float32(payload))).all(), "a NaN whose upper half alone is infinite"
        assert from_float32(np.zeros((0, 3))).shape == (0, 3) and to_float32(np.uint16(0x4040)) == 3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: elementwise("sinh", 4, 4), "element functions are copy, exp, .*, got 'sinh'"),
        (lambda: elementwise("silu", 0, 4), "silu: rows must be at least 1, got 0"),
        (lambda: bias_add(4, -1), "bias_add: columns must be at least 1, got -1"),
        (lambda: elementwise("add", 4, 4, "float64"), "one of float32, bfloat16, float16, got 'float64'"),
        (lambda: elementwise("copy", 4, 4, out="int32"), "one of float32, bfloat16, float16, got 'int32'"),
    ],
)
def test_refused(make, words):
    with pytest.raises(ProgramError, match=words):
        make()


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_compiled_without_doubles_or_calls(capability):
    kinds = [elementwise(name, 4, 32, "bfloat16") for name in UNARY]
    kinds += [elementwise(name, 4, 32, "float16") for name in (*BINARY, "scale")] + [bias_add(4, 32)]
    ptx = compile_ptx(bodies(kinds), capability)
    assert "ex2.approx" in ptx and ".f64" not in ptx
    assert ".local" not in ptx and "ld.global.nc" not in ptx and not re.findall(r"^\s*(?:@!?%\w+\s+)?call\b", ptx, re.M)
