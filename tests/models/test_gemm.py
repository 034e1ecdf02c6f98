"""Split-K matrix product."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etproto.errors import ProgramError
from etproto.models.gemm import program


@pytest.mark.parametrize("M", [0, 1, 2, 63, 64, 65, 130])
def test_sizes_that_do_not_divide_the_tile(run_in_order, M):
    _, tensors, _ = run_in_order("gemm", M=M, N=70, K=33, splits=3)
    assert tensors["C"].shape == (M, 70)


@pytest.mark.parametrize("K, splits", [(0, 1), (0, 3), (1, 4), (16, 2), (20, 3), (33, 8)])
def test_empty_slices_give_zeros(run_in_order, K, splits):
    _, tensors, _ = run_in_order("gemm", M=5, N=3, K=K, splits=splits)
    used = -(-K // 16)
    per_slice = -(-used // splits)
    for s in range(splits):
        if s * per_slice >= used:
            assert (tensors["P"][s] == 0).all()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_sizes(run_in_order, data):
    sizes = {name: data.draw(st.integers(0, 40), name) for name in ("M", "N", "K")}
    tiles = {name: data.draw(st.integers(1, 20), name) for name in ("splits", "tile_m", "tile_n", "tile_k")}
    run_in_order("gemm", **sizes, **tiles)


@pytest.mark.parametrize("name", ["splits", "tile_m", "tile_n", "tile_k"])
def test_refused(name):
    with pytest.raises(ProgramError, match=f"gemm: {name} must be at least 1, got 0"):
        program(**{name: 0})
    with pytest.raises(ProgramError, match="gemm: K must be at least 0, got -1"):
        program(K=-1)


def test_grids():
    instance = program(N=70, K=33, splits=3).bind(M=130)
    extents = [[int(e.evaluate(instance.values)) for e in grid.extents] for grid in instance.program.parsed]
    assert extents == [[3, 2, 3], [3, 2]]
    assert [grid.kind for grid in program().parsed] == [grid.kind for grid in program(N=9, K=7).parsed]
    assert np.prod(extents[0]) == 18
