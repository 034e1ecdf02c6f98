"""Split-K row sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etproto.models.splitk import program


@pytest.mark.parametrize("n", [0, 1, 7, 64])
def test_sizes(run_in_order, n):
    _, tensors, _ = run_in_order("splitk", n=n)
    assert tensors["C"].shape == (n, 32) and tensors["B"].shape == (n, 4, 32)


@settings(max_examples=10, deadline=None)
@given(n=st.integers(0, 30), seed=st.integers(0, 99))
def test_any_size(run_in_order, n, seed):
    run_in_order("splitk", seed, n=n)


def test_partial_sums(run_in_order):
    _, tensors, _ = run_in_order("splitk", n=3)
    for i, j in np.ndindex(3, 4):
        block = tensors["A"][32 * i : 32 * i + 32, 32 * j : 32 * j + 32]
        np.testing.assert_allclose(tensors["B"][i, j], [sum(row) for row in block.tolist()], rtol=0, atol=2e-5)


def test_one_program_for_every_size():
    whole = program()
    assert [whole.bind(n=n).bounds for n in (0, 1, 131072)] == [{"n": 131072}] * 3
    again = program()
    assert [grid.kind for grid in whole.grids] == [grid.kind for grid in again.grids]
