"""NumPy references of the tile kinds against plain Python or another NumPy routine, one task at a time."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etproto.errors import ProgramError
from etproto.kernels.tiles import bucket
from etproto.kernels.tiles.cholesky import LARGEST_TILE, cholesky_kinds
from etproto.kernels.tiles.gemm import gemm_partial, gemm_reduce, slice_bounds
from etproto.kernels.tiles.row_sum import final_sum, partial_sum
from etproto.kernels.tiles.spin import spin


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_partial_and_final_sum():
    a, b, c = random(96, 128), np.full((3, 4, 32), np.nan, np.float32), np.full((3, 32), np.nan, np.float32)
    partial_sum.reference(2, 1, a, b)
    expected = [sum(float(x) for x in a[64 + r, 32:64]) for r in range(32)]
    np.testing.assert_allclose(b[2, 1], expected, atol=1e-5)
    assert np.isfinite(b).sum() == 32
    b[:] = random(3, 4, 32, seed=1)
    final_sum.reference(1, b, c)
    np.testing.assert_allclose(c[1], b[1, 0] + b[1, 1] + b[1, 2] + b[1, 3], atol=1e-6)
    assert np.isfinite(c).sum() == 32


@given(slices=st.integers(1, 9), depth=st.integers(0, 100), tile_k=st.integers(1, 20))
def test_slices_partition_k(slices, depth, tile_k):
    bounds = [slice_bounds(s, slices, depth, tile_k) for s in range(slices)]
    assert bounds[0][0] == 0 and bounds[-1][1] == depth
    assert all(last == first for (_, last), (first, _) in zip(bounds, bounds[1:], strict=False))
    assert all(first <= last and (first % tile_k == 0 or first == depth) for first, last in bounds)


def test_gemm_tile_at_the_corner():
    a, b = random(130, 33), random(33, 70, seed=1)
    p, c = np.full((3, 130, 70), np.nan, np.float32), np.full((130, 70), np.nan, np.float32)
    for s in range(3):
        gemm_partial(64, 64, 16).reference(2, 1, s, a, b, p)
    assert np.isfinite(p).sum() == 3 * 2 * 6
    np.testing.assert_allclose(p[1, 128:, 64:], np.einsum("mk,kn->mn", a[128:, 16:32], b[16:32, 64:]), atol=1e-4)
    gemm_reduce(64, 64).reference(2, 1, p, c)
    assert np.isfinite(c).sum() == 2 * 6
    np.testing.assert_allclose(c[128:, 64:], np.einsum("mk,kn->mn", a[128:], b[:, 64:]), atol=1e-4)


class TestCholesky:
    tile = 6
    kinds = cholesky_kinds(6)

    def matrix(self):
        g = random(18, 18)
        return (g @ g.T / 18 + np.eye(18)).astype(np.float32)

    def test_potrf(self):
        a = self.matrix()
        block = a[6:12, 6:12].astype(np.float64)
        self.kinds["potrf"].reference(1, a)
        lower = np.tril(a[6:12, 6:12]).astype(np.float64)
        np.testing.assert_allclose(lower @ lower.T, block, atol=1e-6)
        np.testing.assert_array_equal(np.triu(a[6:12, 6:12], 1), np.triu(block, 1).astype(np.float32))

    def test_trsm(self):
        a = self.matrix()
        before = a[12:, :6].astype(np.float64)
        self.kinds["trsm"].reference(2, 0, a, a)
        np.testing.assert_allclose(a[12:, :6] @ np.tril(a[:6, :6]).astype(np.float64).T, before, atol=1e-6)

    def test_syrk_and_gemm(self):
        a = self.matrix()
        before = a.astype(np.float64)
        self.kinds["syrk"].reference(2, 0, a, a)
        self.kinds["gemm"].reference(2, 1, 0, a, a, a)
        expected = before.copy()
        for row in range(12, 18):
            for column in range(6, row + 1):
                expected[row, column] -= sum(before[row, k] * before[column, k] for k in range(6))
        np.testing.assert_allclose(a, expected, atol=1e-5)

    @pytest.mark.parametrize("tile", [0, -3, LARGEST_TILE + 1])
    def test_tile_refused(self, tile):
        with pytest.raises(ProgramError, match=f"tile must be 1 to {LARGEST_TILE}, got {tile}"):
            cholesky_kinds(tile)


@settings(max_examples=30)
@given(st.lists(st.integers(-2, 6), max_size=20), st.integers(1, 7), st.booleans())
def test_route(values, block, clip):
    rows, buckets = len(values), 5
    x = random(rows, 2)
    x[:, 0] = np.array(values, np.float32).reshape(-1) + 0.5
    key, rank = np.full(rows, -9, np.int32), np.full(rows, -9, np.int32)
    histogram = np.full((-(-rows // block), buckets), -9, np.int32)
    for i in range(len(histogram)):
        bucket.route(block, clip).reference(i, x, key, rank, histogram)
    expected = [min(max(value, 0), buckets - 1) if clip else value for value in values]
    assert key.tolist() == expected
    for i in range(len(histogram)):
        mine = expected[i * block : (i + 1) * block]
        assert histogram[i].tolist() == [mine.count(b) for b in range(buckets)]
        assert rank[i * block : (i + 1) * block].tolist() == [mine[:r].count(k) for r, k in enumerate(mine)]


def test_plan():
    histogram = np.array([[2, 0, 1], [0, 0, 5], [3, 0, 1]], np.int32)
    rows_of, chunks_of = np.full(3, -1, np.int32), np.full(3, -1, np.int32)
    row_start, chunk_start = np.full(4, -1, np.int32), np.full(4, -1, np.int32)
    bucket.plan(4).reference(0, histogram, rows_of, row_start, chunks_of, chunk_start)
    assert histogram.tolist() == [[0, 0, 0], [2, 0, 1], [2, 0, 6]]
    assert (rows_of.tolist(), row_start.tolist()) == ([5, 0, 7], [0, 5, 5, 12])
    assert (chunks_of.tolist(), chunk_start.tolist()) == ([2, 0, 2], [0, 2, 2, 4])


def test_group_chunk_sum_and_combine():
    x = random(5, 3)
    key, rank = np.array([1, 0, 1, 1, 9], np.int32), np.array([0, 0, 1, 0, 0], np.int32)
    histogram = np.array([[0, 0], [1, 2]], np.int32)  # of all earlier blocks, 3 rows each
    row_start, chunk_start = np.array([0, 1, 4], np.int32), np.array([0, 1, 3], np.int32)
    y, partial = np.full((5, 3), np.nan, np.float32), np.full((4, 3), np.nan, np.float32)
    out = np.full((2, 3), np.nan, np.float32)
    for i in range(5):
        bucket.group(3).reference(i, x, key, rank, histogram, row_start, y)
    np.testing.assert_array_equal(y[:4], x[[1, 0, 2, 3]])
    assert np.isnan(y[4]).all()
    for i, j in ((0, 0), (1, 1), (1, 2)):
        bucket.chunk_sum(2).reference(i, j, y, row_start, chunk_start, partial)
    np.testing.assert_allclose(partial[:3], [x[1], x[0] + x[2], x[3]], rtol=1e-6)
    for i in range(2):
        bucket.combine.reference(i, partial, chunk_start, out)
    np.testing.assert_allclose(out, [x[1], x[0] + x[2] + x[3]], rtol=1e-5, atol=1e-6)
    bucket.combine.reference(1, partial, np.array([0, 1, 1], np.int32), out)
    assert (out[1] == 0).all()


def test_spin_takes_its_time():
    start = time.perf_counter()
    spin.reference(0, 0, 0, 0, 5_000_000)
    assert time.perf_counter() - start >= 0.005
    spin.reference(0, 0, 0, 0, 0)
    assert spin.argument and spin.coordinates == 4 and not spin.operands
