"""Rows summed by a bucket that is computed in the launch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etproto.errors import ProgramError
from etproto.models import MODELS
from etproto.models.bucket_sum import program

SMALL = {"buckets": 5, "width": 3, "chunk": 4, "block": 8}


def keys(values):
    """Change the keys of a set of tensors."""

    def change(tensors):
        tensors["X"][:, 0] = np.asarray(values, np.float32) + 0.25

    return change


def check_plan(tensors, chunk):
    """Everything that `route`, `plan` and `group` leave, against a sort by NumPy."""
    X, key = tensors["X"], tensors["key"]
    buckets = len(tensors["rows_of"])
    np.testing.assert_array_equal(key, np.clip(np.floor(X[:, 0]), 0, buckets - 1))
    rows_of = np.array([(key == bucket).sum() for bucket in range(buckets)])
    np.testing.assert_array_equal(tensors["rows_of"], rows_of)
    np.testing.assert_array_equal(tensors["row_start"], [0, *np.cumsum(rows_of)])
    np.testing.assert_array_equal(tensors["chunks_of"], np.ceil(rows_of / chunk))
    np.testing.assert_array_equal(tensors["chunk_start"], [0, *np.cumsum(np.ceil(rows_of / chunk))])
    np.testing.assert_array_equal(tensors["Y"], X[np.argsort(key, kind="stable")])
    written = tensors["chunk_start"][-1]
    assert np.isfinite(tensors["partial"][:written]).all() and np.isnan(tensors["partial"][written:]).all()


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 100])
def test_sizes(run_in_order, rows):
    _, tensors, _ = run_in_order("bucket_sum", rows=rows, **SMALL)
    check_plan(tensors, SMALL["chunk"])


def test_defaults(run_in_order):
    _, tensors, _ = run_in_order("bucket_sum", rows=1000)
    check_plan(tensors, 32)
    assert (tensors["rows_of"] == 0).sum() >= 4 and tensors["rows_of"].max() > 300


@pytest.mark.parametrize("bucket", range(5))
def test_all_rows_in_one_bucket(run_in_order, bucket):
    _, tensors, _ = run_in_order("bucket_sum", rows=41, change=keys([bucket] * 41), **SMALL)
    check_plan(tensors, SMALL["chunk"])
    assert tensors["chunks_of"][bucket] == 11
    assert (np.delete(tensors["out"], bucket, axis=0) == 0).all()


def test_empty_buckets_first_middle_last(run_in_order):
    _, tensors, _ = run_in_order("bucket_sum", rows=20, change=keys([1, 3] * 10), **SMALL)
    check_plan(tensors, SMALL["chunk"])
    assert tensors["rows_of"].tolist() == [0, 10, 0, 10, 0]
    assert (tensors["out"][[0, 2, 4]] == 0).all()


def test_keys_out_of_range_are_clipped(run_in_order):
    _, tensors, _ = run_in_order("bucket_sum", rows=4, change=keys([-7, 99, 2, 4]), **SMALL)
    assert tensors["key"].tolist() == [0, 4, 2, 4]


def test_keys_out_of_range_when_not_clipped(run_in_order, tasks_in_order):
    model = MODELS["bucket_sum"]
    target = program(**SMALL, clip=False).bind(rows=6)
    tensors = model.make_tensors(target, np.random.default_rng(0))
    keys([-1, 0, 5, 1, 1, 900])(tensors)
    for kind, coordinate, operands in tasks_in_order(model, target, tensors):
        kind.reference(*coordinate, *operands)
    assert tensors["key"].tolist() == [-1, 0, 5, 1, 1, 900]
    assert tensors["rows_of"].tolist() == [1, 2, 0, 0, 0]
    np.testing.assert_array_equal(tensors["out"][0], tensors["X"][1])
    assert np.isnan(tensors["Y"][3:]).all()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_sizes(run_in_order, data):
    sizes = {name: data.draw(st.integers(1, 12), name) for name in ("buckets", "width", "chunk", "block")}
    rows = data.draw(st.integers(0, 60), "rows")
    values = data.draw(st.lists(st.integers(-2, sizes["buckets"] + 1), min_size=rows, max_size=rows))
    target, tensors, _ = run_in_order("bucket_sum", rows=rows, change=keys(values), **sizes)
    check_plan(tensors, sizes["chunk"])
    grid = next(grid for grid in target.program.parsed if grid.name == "chunk_sum")
    assert tensors["chunk_start"][-1] <= grid.bound.evaluate(target.values)


@pytest.mark.parametrize("name", SMALL)
def test_refused(name):
    with pytest.raises(ProgramError, match=f"bucket_sum: {name} must be at least 1, got 0"):
        program(**{**SMALL, name: 0})
