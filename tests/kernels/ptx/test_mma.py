"""Fragments of one warp: what each lane holds, and products of them."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float32

from etproto.kernels.ptx.mma import ldmatrix_x2, ldmatrix_x4, mma_m16n8k16, stmatrix_x4
from etproto.kernels.ptx.shared import load_shared_int32, load_shared_vector, store_shared_int32, store_shared_vector
from etproto.kernels.ptx.warp import (
    lane,
    shuffle_down_float32,
    shuffle_index_int32,
    shuffle_xor_float32,
    warp_barrier,
)

A, B = 2048, 4096
COLUMN_BYTES = 16  # a row of an 8 x 8 matrix


def bits_of(values: np.ndarray, dtype: str) -> np.ndarray:
    """16-bit patterns of small integers, which both types hold exactly."""
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def fill(address: int, bits: np.ndarray) -> None:
    for number, word in enumerate(np.ascontiguousarray(bits).view(np.int32).ravel()):
        store_shared_int32(address + 4 * number, word)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_loaded_matrices_multiply_as_numpy_does(simulate, rng, dtype):
    """A from ldmatrix x4, B from x2 of its transpose, two warps, the sum carried over three products."""
    left, right = rng.integers(-8, 9, (16, 16)), rng.integers(-8, 9, (8, 16))
    start = rng.integers(-8, 9, (16, 8)).astype(np.float32)
    multiply = mma_m16n8k16(dtype)
    out = np.zeros((2, 16, 8), np.float32)

    def kernel(out):
        if cuda.threadIdx.x == 0:
            fill(A, bits_of(left, dtype))
            fill(B, bits_of(right, dtype))
        cuda.syncthreads()
        warp, me = cuda.threadIdx.x // 32, lane()
        a = ldmatrix_x4(A + 32 * (me % 16) + COLUMN_BYTES * (me // 16))
        b = ldmatrix_x2(B + 32 * (me % 8) + COLUMN_BYTES * (me // 8 % 2))
        row, column = me // 4, 2 * (me % 4)
        c = cuda.local.array(4, float32)
        c[:2], c[2:] = start[row, column : column + 2], start[row + 8, column : column + 2]
        for _ in range(3):
            multiply(c, *a, *b)
        out[warp, row, column : column + 2] = c[:2]
        out[warp, row + 8, column : column + 2] = c[2:]

    simulate(kernel, 64, out)
    np.testing.assert_array_equal(out, np.broadcast_to(start + 3 * left @ right.T, (2, 16, 8)))


def test_registers_go_where_they_came_from(simulate):
    """A store with two registers exchanged undoes a load up to that exchange."""
    values = np.arange(4 * 64, dtype=np.uint16)
    found = np.zeros(4 * 64, np.uint16)

    def kernel(found):
        me = cuda.threadIdx.x
        if me == 0:
            fill(A, values)
        warp_barrier()
        a, b, c, d = ldmatrix_x4(A + COLUMN_BYTES * me)
        stmatrix_x4(B + COLUMN_BYTES * me, b, a, c, d)
        if me == 0:
            words = [load_shared_int32(B + 4 * word) for word in range(128)]
            found[:] = np.array(words, np.int32).view(np.uint16)

    simulate(kernel, 32, found)
    np.testing.assert_array_equal(found.reshape(4, 64), values.reshape(4, 64)[[1, 0, 2, 3]])


def test_a_row_must_be_aligned(simulate):
    with pytest.raises(ValueError, match="multiple of 16, got 2056"):
        simulate(lambda: ldmatrix_x4(A + 8), 32)


def test_vectors_of_shared_memory(simulate):
    out = np.zeros(4, np.int64)

    def kernel(out):
        store_shared_vector(A, 1, -2, 3, -4)
        out[:] = load_shared_vector(A)

    simulate(kernel, 1, out)
    assert out.tolist() == [1, -2, 3, -4]


def test_shuffles(simulate):
    found = np.zeros((3, 64))

    def kernel(found):
        me = cuda.threadIdx.x
        value = np.float32(me) + np.float32(0.5)
        found[0, me] = shuffle_down_float32(value, 5)
        found[1, me] = shuffle_xor_float32(value, 9)
        found[2, me] = shuffle_index_int32(-me, 7)

    simulate(kernel, 64, found)
    lanes, first = np.arange(64) % 32, np.arange(64) // 32 * 32
    np.testing.assert_array_equal(found[0], first + np.where(lanes + 5 < 32, lanes + 5, lanes) + 0.5)
    np.testing.assert_array_equal(found[1], first + (lanes ^ 9) + 0.5)
    np.testing.assert_array_equal(found[2], -(first + 7))


def test_a_reduction_over_a_warp(simulate, rng):
    values = rng.integers(-100, 100, 32).astype(np.float32)
    out = np.zeros(32, np.float32)

    def kernel(out):
        value = values[cuda.threadIdx.x]
        for step in (16, 8, 4, 2, 1):
            value += shuffle_xor_float32(value, step)
        out[cuda.threadIdx.x] = value

    simulate(kernel, 32, out)
    assert (out == values.sum()).all()


def test_a_last_warp_may_be_short(simulate):
    """Its barrier has as many threads as there are."""
    out = np.zeros(40, np.int64)

    def kernel(out):
        me = cuda.threadIdx.x
        store_shared_int32(A + 4 * me, me)
        warp_barrier()
        out[me] = load_shared_int32(A + 4 * (me // 32 * 32))

    simulate(kernel, 40, out)
    np.testing.assert_array_equal(out, np.arange(40) // 32 * 32)
