"""vector_multiply in the simulated hopper worker and by its portable body, against float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from etproto.errors import ProgramError
from etproto.executors import cpu, cudasim
from etproto.kernels.tiles.brain_float import from_float32
from etproto.kernels.tiles.vector_multiply import vector_multiply
from etproto.lowering import lower
from etproto.models import MODELS
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


class Layers:
    """Independent products, one a layer: their program, random operands, and Y in float64."""

    def __init__(self, rng, layers, batch, N, K, rows=8, *, most_batch=None, depth=None, dtype="bfloat16", **epilogue):
        kind = vector_multiply(rows, depth or K, batch=most_batch or batch, dtype=dtype, **epilogue)
        activation = epilogue.get("activation", "none")
        gated = activation in GATED
        result = (layers, batch, N)
        shapes = {"x": (layers, batch, K), "w": (layers, 2 * N if gated else N, K), "residual": result, "y": result}
        shapes = {operand.name: shapes[operand.name] for operand in kind.operands}
        operands = {name: Tensor(name, shape, dtype) for name, shape in shapes.items()}
        grid = TaskGrid("layers", kind, (layers, -(-N // rows)), operands)
        self.lowered = lower(Program("products", (grid,)).bind())
        self.tensors = {name: encoded(rng.standard_normal(shape), dtype) for name, shape in shapes.items()}
        self.tensors["w"] = encoded(rng.standard_normal(shapes["w"]) / np.sqrt(K), dtype)
        self.tensors["y"] = np.full(result, 0x7FC0 if dtype == "bfloat16" else np.nan, storage_dtype(dtype))
        given = {name: decoded(array) for name, array in self.tensors.items()}
        product = given["x"] @ given["w"].transpose(0, 2, 1)
        value = activated(activation, product[..., :N])
        self.expected = value * (product[..., N:] if gated else 1) + given.get("residual", 0)
        self.tolerance = UNIT[dtype] * max(np.abs(self.expected).max(initial=0), 1) + 1e-5

    def run(self, executor, workers=1, **options):
        tensors = {name: array.copy() for name, array in self.tensors.items()}
        trace = executor.run(schedule(self.lowered, "static", workers=workers), tensors, **options)
        np.testing.assert_allclose(decoded(tensors["y"]), self.expected, rtol=0, atol=self.tolerance)
        assert verify(trace) == []


CASES = {
    "one row, depth below a chunk": ((1, 1, 24, 32), {}),
    "three rows, the last tile cut off": ((1, 3, 21, 96), {"rows": 16}),
    "eight rows, depth no multiple of a chunk": ((1, 8, 8, 1056), {}),
    "fewer rows and columns than the kind allows": ((1, 2, 16, 64), {"most_batch": 8, "depth": 256}),
    "the ring wraps between tasks": ((2, 2, 32, 1056), {"rows": 16}),
    "float16 and a residual": ((2, 3, 16, 160), {"dtype": "float16", "residual": True}),
    "relu": ((1, 1, 16, 64), {"activation": "relu"}),
    "silu and a residual": ((1, 2, 12, 64), {"activation": "silu", "residual": True}),
    "gelu": ((1, 8, 16, 64), {"activation": "gelu", "dtype": "float16"}),
    "swiglu": ((1, 3, 13, 1056), {"activation": "swiglu", "rows": 16}),
    "geglu and a residual": ((1, 8, 16, 64), {"activation": "geglu", "residual": True}),
}


@pytest.mark.parametrize("label", CASES)
def test_against_float64(rng, label):
    sizes, options = CASES[label]
    products = Layers(rng, *sizes, **options)
    products.run(cudasim, worker="hopper")
    products.run(cpu, workers=2, seed=1, race_check=True)
    if sizes[3] <= 160:
        products.run(cudasim, threads=4)


def test_a_chain_whose_lists_wrap_over_layers():
    """More tasks a worker than there are descriptors; the weights of later layers are loaded ahead of events."""
    model = MODELS["chain"]
    instance = model.build(N=32, layers=5, batch=1, workers=4)
    tensors = model.make_tensors(instance, np.random.default_rng(0))
    expected = model.reference(tensors)
    trace = cudasim.run(schedule(lower(instance), "static", workers=2), tensors, worker="hopper", watchdog_s=30.0)
    assert model.compare(tensors, expected) <= model.tolerance(tensors) and verify(trace) == []


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((12, 64), {}, "rows must be a positive multiple of 8, got 12"),
        ((0, 64), {}, "rows must be a positive multiple of 8, got 0"),
        ((8, 40), {}, "depth must be a positive multiple of 32, got 40"),
        ((8, 64), {"batch": 9}, "batch must be 1 to 8, got 9"),
        ((8, 64), {"batch": 0}, "batch must be 1 to 8, got 0"),
        ((8, 64), {"activation": "tanh"}, "activation must be one of .*, got 'tanh'"),
        ((8, 64), {"dtype": "float32"}, "dtype must be bfloat16 or float16, got 'float32'"),
    ],
)
def test_what_there_is_not(arguments, options, text):
    with pytest.raises(ProgramError, match=text):
        vector_multiply(*arguments, **options)
