"""`Model` itself: binding, comparing, poisoning, and what holds for every bundled program."""

from __future__ import annotations

import numpy as np
import pytest

from etproto.errors import ProgramError
from etproto.graph import TaskGraph
from etproto.kernels.tiles import brain_float
from etproto.models import MODELS
from etproto.models.model import relative_error
from etproto.program import Instance


def test_names():
    assert list(MODELS) == [
        "splitk",
        "cholesky",
        "gemm",
        "bucket_sum",
        "matmul",
        "skinny",
        "chain",
        "mlp",
        "layers",
    ]
    assert all(model.name == name and model.description for name, model in MODELS.items())


@pytest.mark.parametrize("name", MODELS)
def test_unknown_name(name):
    with pytest.raises(ProgramError, match=f"model {name}: no symbol or parameter 'frobnicate'; it has"):
        MODELS[name].build(frobnicate=1)


@pytest.mark.parametrize("value", [2.0, True, "3"])
def test_value_that_is_no_integer(value):
    with pytest.raises(ProgramError, match="n must be an integer"):
        MODELS["splitk"].build(n=value)


def test_above_the_bound():
    with pytest.raises(ProgramError, match="must be at most its bound 131072, got 131073"):
        MODELS["splitk"].build(n=131073)


@pytest.mark.parametrize("name", MODELS)
def test_defaults_build(name):
    assert isinstance(MODELS[name].build(), Instance | TaskGraph)


def _tensors(target):
    return target.program.tensors if isinstance(target, Instance) else target.tensors


@pytest.mark.parametrize("name", MODELS)
def test_tensors_are_fresh_and_outputs_poisoned(name):
    model = MODELS[name]
    target = model.build()
    one, two = (model.make_tensors(target, np.random.default_rng(1)) for _ in range(2))
    other = model.make_tensors(target, np.random.default_rng(2))
    inputs = {
        "splitk": {"A"},
        "cholesky": {"A"},
        "gemm": {"A", "B"},
        "bucket_sum": {"X"},
        "matmul": {"A", "B"},
        "skinny": {"X", "W"},
        "chain": {"W0"},
        "mlp": {"X", "W_up", "W_down"},
        "layers": set(),
    }[name]
    row = {"chain": "Y0", "layers": "S"}.get(name)
    if row is not None:  # the input in its first row, outputs in the others
        assert (one[row][0] != other[row][0]).any()
        one, two, other = ({**given, row: given[row][1:]} for given in (one, two, other))
    for tensor, array in one.items():
        assert array.flags.c_contiguous and array.flags.writeable
        np.testing.assert_array_equal(array, two[tensor])
        assert not np.shares_memory(array, two[tensor])
        dtype = next(t.dtype for t in _tensors(target) if t.name == tensor)
        if dtype == "bfloat16":
            array, other[tensor] = (brain_float.to_float32(a) for a in (array, other[tensor]))
        if tensor in inputs:
            assert np.isfinite(array).all() and (array != other[tensor]).any()
        elif array.dtype.kind == "f":
            assert np.isnan(array).all()
        else:
            assert (array == -1).all()


@pytest.mark.parametrize("name", MODELS)
def test_a_run_that_does_nothing_is_noticed(name):
    model = MODELS[name]
    tensors = model.make_tensors(model.build(), np.random.default_rng(0))
    expected = model.reference(tensors)
    assert model.compare(tensors, expected) > model.tolerance(tensors)


@pytest.mark.parametrize("name", MODELS)
def test_reference_changes_nothing(name):
    model = MODELS[name]
    tensors = model.make_tensors(model.build(), np.random.default_rng(0))
    before = {tensor: array.copy() for tensor, array in tensors.items()}
    expected = model.reference(tensors)
    for tensor, array in tensors.items():
        np.testing.assert_array_equal(array, before[tensor])
        assert not any(np.shares_memory(array, value) for value in expected.values())


class TestRelativeError:
    def test_integers_are_right_or_wrong(self):
        assert relative_error(np.array([1, 2]), np.array([1, 2])) == 0
        assert relative_error(np.array([1, 3]), np.array([1, 2])) == np.inf

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_not_finite(self, bad):
        assert relative_error(np.array([bad, 1.0]), np.array([0.0, 1.0])) == np.inf

    def test_zeros(self):
        assert relative_error(np.zeros(3), np.zeros(3)) == 0
        assert relative_error(np.full(3, 1e-30), np.zeros(3)) == np.inf
        assert relative_error(np.zeros((0, 4)), np.zeros((0, 4))) == 0

    def test_shapes(self):
        with pytest.raises(ProgramError, match=r"expected an array of shape \(3,\) to compare, got \(2,\)"):
            relative_error(np.zeros(2), np.zeros(3))
