"""The programs that experiments build for themselves, on the cpu executor, and kernels that baselines compile."""

from __future__ import annotations

import math

import numpy as np
import pytest

from etproto.check import check
from etproto.executors import cpu
from etproto.kernels.compile import compile_ptx, entry_name
from etproto.kernels.tiles import brain_float
from etproto.lowering import lower
from etproto.models import MODELS, chain, mlp
from etproto.schedule import schedule
from experiments import gemm_chain, granularity, skinny_gemm
from experiments.baselines import launches


def run(instance, tensors, kind="static", early=False):
    scheduled = schedule(lower(instance), kind, workers=3, early_push=early)
    result = check(scheduled)
    assert result.ok, result.errors
    return cpu.run(scheduled, tensors)


@pytest.mark.parametrize(("kind", "early"), granularity.SCHEDULES)
@pytest.mark.parametrize("name", granularity.GRANULARITIES)
def test_splitk_of_every_granularity(name, kind, early):
    model = MODELS["splitk"]
    instance = granularity.splitk_program(name).bind(n=5)
    tensors = model.make_tensors(instance, np.random.default_rng(0))
    expected = model.reference(tensors)
    run(instance, tensors, kind, early)
    assert model.compare(tensors, expected) <= model.tolerance(tensors)
    cells = {"tile": 20, "row": 5, "barrier": 1}[name]
    assert math.prod(instance.shape(instance.program.events[0])) == cells


def test_vector_program():
    instance = skinny_gemm.vector_program(72, 64, 3, 4).bind()
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((1, 3, 64), (1, 72, 64)))
    tensors = {"X": brain_float.from_float32(x), "W": brain_float.from_float32(w)}
    tensors["Y"] = np.full((1, 3, 72), 0xFFFF, np.uint16)
    run(instance, tensors)
    expected = brain_float.to_float32(tensors["X"][0]) @ brain_float.to_float32(tensors["W"][0]).T
    np.testing.assert_allclose(brain_float.to_float32(tensors["Y"][0]), expected, rtol=2**-8, atol=1e-3)


@pytest.fixture
def numpy_data(monkeypatch):
    """`gemm_chain.Data` on NumPy arrays."""

    def random_normal(shape, seed, scale=1.0):
        values = np.random.default_rng(seed).standard_normal(tuple(shape), np.float32)
        return brain_float.from_float32(values * np.float32(scale))

    monkeypatch.setattr(gemm_chain, "random_normal", random_normal)
    monkeypatch.setattr(gemm_chain, "poisoned", lambda shape: np.full(tuple(shape), 0xFFFF, np.uint16))
    monkeypatch.setattr(gemm_chain, "bits", lambda tensor: tensor)
    return gemm_chain.Data


CHAINS = [(((64, 32), (32, 64)), 2), (((64, 64),), 3)]


def products_hold(data) -> bool:
    for x, w, out in data.products:
        expected = brain_float.to_float32(x) @ brain_float.to_float32(w).T
        if not np.abs(brain_float.to_float32(out) - expected).max() <= 2**-8 * np.abs(expected).max():
            return False
    return True


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize(("shapes", "layers"), CHAINS)
@pytest.mark.parametrize(("kind", "early"), gemm_chain.SCHEDULES)
def test_unrolled_chain(numpy_data, shapes, layers, kind, early, batch):
    data = numpy_data(shapes, layers, batch, 0)
    data.results[0][0] = data.first
    assert not products_hold(data)
    run(gemm_chain.unrolled_program(shapes, layers, batch, 4).bind(), data.separate(), kind, early)
    assert products_hold(data) and len(data.products) == layers * len(shapes)


def test_unrolled_chain_as_launches(numpy_data):
    data = numpy_data(*CHAINS[0], 1, 0)
    data.results[0][0] = data.first
    tensors = data.separate()
    for part in launches.split(gemm_chain.unrolled_program(*CHAINS[0], 1, 4).bind()):
        run(part, {tensor.name: tensors[tensor.name] for tensor in part.program.tensors})
    assert products_hold(data)


def test_layered_chain_on_the_same_data(numpy_data):
    shapes, layers = CHAINS[1]
    data = numpy_data(shapes, layers, 1, 0)
    data.results[0][0] = data.first
    instance = chain.program(shapes, layers, batch=1, workers=4).bind()
    cpu.run(schedule(lower(instance), "static", workers=3), data.stacked())
    assert products_hold(data)


def test_layered_chain_as_launches(numpy_data):
    shapes, layers = CHAINS[1]
    data = numpy_data(shapes, layers, 1, 0)
    data.results[0][0] = data.first
    layer = chain.program(shapes, 1, batch=1, workers=4).bind()
    for at in range(layers):
        tensors = data.stacked(at, 1)
        for part in launches.split(layer):
            given = {tensor.name: tensors[tensor.name] for tensor in part.program.tensors}
            cpu.run(schedule(lower(part), "static", workers=2), given)
    assert products_hold(data)


@pytest.mark.parametrize("bound", [8, 300])
def test_split_runs_operator_by_operator(bound):
    instance = mlp.program(64, 128, bound, workers=4, up_tile=128, down_tile=64, group=2).bind(tokens=7)
    tensors = mlp.make_tensors(instance, np.random.default_rng(0))
    expected = mlp.reference(tensors)
    parts = launches.split(instance)
    assert [part.program.name for part in parts] == ["up", "down"]
    for part in parts:
        assert part.program.events == ()
        run(part, {tensor.name: tensors[tensor.name] for tensor in part.program.tensors})
    assert mlp.MODEL.compare(tensors, expected) <= mlp.MODEL.tolerance(tensors)


@pytest.mark.parametrize("body", [launches._nothing, launches._count])
def test_kernels_of_baselines_compile(body):
    ptx = compile_ptx(body, (9, 0))
    assert entry_name(ptx) in ptx
    assert ("st.global" in ptx or "st." in ptx) == (body is launches._count)
