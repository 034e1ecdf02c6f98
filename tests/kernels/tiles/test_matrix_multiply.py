"""matrix_multiply in the simulated hopper worker and by its portable body, against float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from etproto.errors import ProgramError
from etproto.executors import cpu, cudasim
from etproto.kernels.tiles.brain_float import from_float32
from etproto.kernels.tiles.matrix_multiply import TILE_M, matrix_multiply
from etproto.lowering import lower
from etproto.program import Program, TaskGrid, Tensor
from etproto.schedule import schedule
from etproto.tile_kind import storage_dtype
from etproto.trace import verify

GATED = ("swiglu", "geglu")
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # half the distance of neighbours, relative


def encoded(values, dtype):
    return from_float32(values.astype(np.float32)) if dtype == "bfloat16" else values.astype(np.float16)


def decoded(array):
    values = (array.astype(np.uint32) << 16).view(np.float32) if array.dtype == np.uint16 else array
    return values.astype(np.float64)


def activated(name, values):
    if name in ("silu", "swiglu"):
        return values / (1 + np.exp(-values))
    if name in ("gelu", "geglu"):
        return 0.5 * values * (1 + np.tanh(math.sqrt(2 / math.pi) * (values + 0.044715 * values**3)))
    return np.maximum(values, 0) if name == "relu" else values


class Product:
    """One product: its program, random operands, and C in float64."""

    def __init__(self, rng, M, N, K, tile_n=64, *, dtype="bfloat16", group=1, **epilogue):
        kind = matrix_multiply(tile_n, dtype=dtype, group=group, **epilogue)
        activation = epilogue.get("activation", "none")
        gated = activation in GATED
        width = tile_n // 2 if gated else tile_n
        shapes = {"a": (M, K), "b": (2 * N if gated else N, K), "bias": (N,), "residual": (M, N), "c": (M, N)}
        shapes = {operand.name: shapes[operand.name] for operand in kind.operands}
        operands = {name: Tensor(name, shape, dtype) for name, shape in shapes.items()}
        extents = (-(-M // (TILE_M * group)), -(-N // width), group)
        self.lowered = lower(Program("product", (TaskGrid("tiles", kind, extents, operands),)).bind())
        self.tensors = {name: encoded(rng.standard_normal(shape), dtype) for name, shape in shapes.items()}
        self.tensors["b"] = encoded(rng.standard_normal(shapes["b"]) / np.sqrt(max(K, 1)), dtype)
        self.tensors["c"] = np.full((M, N), 0x7FC0 if dtype == "bfloat16" else np.nan, storage_dtype(dtype))
        given = {name: decoded(array) for name, array in self.tensors.items()}
        product = given["a"] @ given["b"].T
        if gated:
            product = activated(activation, product[:, :N]) * product[:, N:]
        else:
            product = activated(activation, product + given.get("bias", 0))
        self.expected = product + given.get("residual", 0)
        self.tolerance = UNIT[dtype] * max(np.abs(self.expected).max(initial=0), 1) + 1e-5

    def run(self, executor, workers=1, kind="static", **options):
        tensors = {name: array.copy() for name, array in self.tensors.items()}
        trace = executor.run(schedule(self.lowered, kind, workers=workers), tensors, **options)
        np.testing.assert_allclose(decoded(tensors["c"]), self.expected, rtol=0, atol=self.tolerance)
        assert verify(trace) == []
        for name in self.tensors.keys() - {"c"}:
            np.testing.assert_array_equal(tensors[name], self.tensors[name], err_msg=f"{name} was written")
        return tensors["c"]


SIZES = {
    "nothing divides, the ring wraps within a worker's tasks": ((130, 72, 200), {}),
    "no rows": ((0, 64, 64), {}),
    "one row, K below a tile": ((1, 8, 8), {}),
    "tasks past the last row tile": ((130, 64, 72), {"group": 3}),
    "a wide tile": ((70, 264, 136), {"tile_n": 256}),
    "no depth": ((5, 8, 0), {}),
}


@pytest.mark.parametrize("label", SIZES)
def test_sizes(rng, label):
    sizes, options = SIZES[label]
    Product(rng, *sizes, **options).run(cudasim, worker="hopper")


EPILOGUES = [
    {"bias": True},
    {"bias": True, "activation": "gelu", "residual": True},
    {"activation": "relu", "residual": True, "dtype": "float16"},
    {"bias": True, "activation": "silu"},
    {"activation": "swiglu", "tile_n": 128},
    {"activation": "geglu", "tile_n": 128, "residual": True, "dtype": "float16"},
]


@pytest.mark.parametrize("options", EPILOGUES, ids=lambda options: "-".join(map(str, options.values())))
def test_epilogues(rng, options):
    """In the hopper worker, by the portable body and by the reference: bias, activation, residual."""
    product = Product(rng, 66, 72, 72, **options)
    product.run(cudasim, worker="hopper")
    product.run(cpu, workers=2)
    small = Product(rng, 3, 8, 8, **options)
    small.run(cudasim, threads=4)


def test_two_workers_share_a_product_through_a_queue(rng):
    product = Product(rng, 200, 136, 72)
    first = product.run(cudasim, worker="hopper")
    again = product.run(cudasim, worker="hopper", workers=2, kind="dynamic")
    np.testing.assert_array_equal(first, again, err_msg="sums of a tile are in one order, whoever makes it")


def test_declared_regions_cover_every_element_once(rng):
    """The race check: tasks write what they say, and no element twice."""
    for options in ({}, {"tile_n": 128, "activation": "swiglu"}, {"bias": True, "residual": True}):
        Product(rng, 130, 72, 8, **options).run(cpu, workers=2, seed=1, race_check=True)


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((96,), {}, "tile_n must be a multiple of 64 up to 256, got 96"),
        ((320,), {}, "tile_n must be a multiple of 64 up to 256, got 320"),
        ((0,), {}, "tile_n must be a multiple of 64 up to 256, got 0"),
        ((64,), {"activation": "swiglu"}, "tile_n must be a multiple of 128 up to 256, got 64"),
        ((64,), {"activation": "tanh"}, "activation must be one of .*, got 'tanh'"),
        ((64,), {"group": 0}, "group must be at least 1, got 0"),
        ((64,), {"dtype": "float32"}, "dtype must be bfloat16 or float16, got 'float32'"),
        ((128,), {"activation": "geglu", "bias": True}, "a bias with the gated activation geglu is not offered"),
    ],
)
def test_what_there_is_not(arguments, options, text):
    with pytest.raises(ProgramError, match=text):
        matrix_multiply(*arguments, **options)
