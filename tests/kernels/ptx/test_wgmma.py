"""Products of a warpgroup: bulk copy, wgmma, stmatrix, bulk copy, against NumPy; and what a fragment's functions do."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numba import cuda, float32

from etproto.errors import ProgramError
from etproto.kernels.ptx.barrier import mbarrier_expect, mbarrier_init, mbarrier_wait, named_barrier
from etproto.kernels.ptx.bulk import bulk_commit, bulk_wait_0, proxy_fence_shared, tma_load_2d, tma_store_2d
from etproto.kernels.ptx.fragment import fragment_map, fragment_rotate, fragment_store, fragment_zero, fragment_zip
from etproto.kernels.ptx.fragment_global import fragment_add_global, fragment_store_global
from etproto.kernels.ptx.registers import decrease_registers, increase_registers
from etproto.kernels.ptx.shared import store_shared_int32
from etproto.kernels.ptx.wgmma import wgmma, wgmma_commit, wgmma_fence, wgmma_wait
from etproto.layouts import descriptor_bits
from etproto.tensor_maps import TensorMap, map_words

BARRIER, LEFT, RIGHT, OUT = 1024, 2048, 16384, 65536


def half(values: np.ndarray, dtype: str) -> np.ndarray:
    """16-bit patterns of small integers, which both types hold exactly."""
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def value(bits: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def elements(matrix: np.ndarray, row: int, column: int) -> list[float]:
    """What a thread whose first element is at row and column holds of a matrix of 64 rows."""
    blocks = range(matrix.shape[1] // 8)
    return [matrix[row + 8 * h, column + 8 * j + c] for j in blocks for h in range(2) for c in range(2)]


def first_element() -> tuple[int, int]:
    """Row and column of a thread's first element."""
    thread = cuda.threadIdx.x % 128
    return 16 * (thread // 32) + thread % 32 // 4, 2 * (thread % 4)


@pytest.mark.parametrize(
    ("n", "span", "columns", "dtype", "ignored"),
    [
        (64, 128, 64, "bfloat16", True),
        (128, 128, 32, "float16", False),
        (24, 64, 16, "bfloat16", False),
        (8, 32, None, "float16", True),
    ],
)
def test_copy_multiply_and_store(simulate, aligned, rng, n, span, columns, dtype, ignored):
    """Rows of A beyond its 50 come as zeros; the store takes the part of the columns that it was made for.

    What an accumulator holds at first does not matter: it is set to zero, or `ignored` by the first product.
    """
    k = span // 2
    a, b = rng.integers(-4, 5, (50, k)), rng.integers(-4, 5, (n, k))
    left, right = aligned(half(a, dtype)), aligned(half(b, dtype))
    out = aligned(np.zeros((50, columns or 8), np.uint16))
    maps = [
        map_words(TensorMap("a", (64, k), span), left.ctypes.data, left.shape, dtype),
        map_words(TensorMap("b", (n, k), span), right.ctypes.data, right.shape, dtype),
    ]
    if columns:
        maps.append(map_words(TensorMap("c", (64, columns), 2 * columns), out.ctypes.data, out.shape, dtype))
    zero, multiply, wait = fragment_zero(n), wgmma(n, dtype), wgmma_wait(n, 0)
    store = fragment_store(n, columns, dtype) if columns else fragment_store_global(n, dtype)
    held = n // 2

    def kernel():
        if cuda.threadIdx.x == 0:
            mbarrier_init(BARRIER, 1)
            mbarrier_expect(BARRIER, (64 + n) * 2 * k)
            tma_load_2d(LEFT, maps[0].ctypes.data, 0, 0, BARRIER)
            tma_load_2d(RIGHT, maps[1].ctypes.data, 0, 0, BARRIER)
        cuda.syncthreads()
        mbarrier_wait(BARRIER, 0)
        accumulator = cuda.local.array(held, float32)
        accumulator[:] = np.nan
        if not ignored:
            zero(accumulator)
        wgmma_fence()
        for step in range(k // 16):
            first = (LEFT >> 4) + 2 * step | descriptor_bits(span)
            second = (RIGHT >> 4) + 2 * step | descriptor_bits(span)
            multiply(accumulator, first, second, int(step > 0 or not ignored))
        wgmma_commit()
        wait(accumulator)
        if columns:
            store(accumulator, OUT)
            proxy_fence_shared()
            named_barrier(1, 128)
            if cuda.threadIdx.x == 0:
                tma_store_2d(maps[2].ctypes.data, 0, 0, OUT)
                bulk_commit()
                bulk_wait_0()
        else:
            store(accumulator, out.ctypes.data, *first_element(), *out.shape, 8)

    simulate(kernel, 128)
    np.testing.assert_array_equal(value(out, dtype), (a @ b.T)[:, : out.shape[1]])


def test_operands_without_swizzle(simulate, rng):
    """Core matrices of 8 rows of 16 bytes; the next 8 columns lie `leading`, the next 8 rows `stride` bytes on."""
    a, b = rng.integers(-4, 5, (64, 16)), rng.integers(-4, 5, (16, 16))
    leading, stride = 128, 256
    multiply, wait = wgmma(16), wgmma_wait(16, 0)
    out = np.zeros((64, 16), np.float32)
    store = fragment_store_global(16, "float32")

    def place(matrix, start):
        words = half(matrix, "bfloat16").view(np.int32)  # two columns each
        for row in range(matrix.shape[0]):
            for pair in range(8):
                at = start + row // 8 * stride + pair // 4 * leading + row % 8 * 16 + pair % 4 * 4
                store_shared_int32(at, words[row, pair])

    def kernel(out):
        if cuda.threadIdx.x == 0:
            place(a, LEFT)
            place(b, RIGHT)
        cuda.syncthreads()
        shape = leading >> 4 << 16 | stride >> 4 << 32
        accumulator = cuda.local.array(8, float32)
        accumulator[:] = 1
        multiply(accumulator, LEFT >> 4 | shape, RIGHT >> 4 | shape, 1)
        wait(accumulator)
        store(accumulator, out.ctypes.data, *first_element(), 64, 16, 16)

    simulate(kernel, 128, out)
    np.testing.assert_array_equal(out, 1 + a @ b.T)


def test_no_lane_goes_on_before_its_warp_has_read(simulate):
    """The first lane overwrites the operands after the wait: a lane that is late must still have multiplied the old."""
    multiply, wait = wgmma(8), wgmma_wait(8, 0)
    shape = 128 >> 4 << 16 | 256 >> 4 << 32
    out = np.zeros((128, 4), np.float32)
    one = half(np.ones(2), "bfloat16").view(np.int32)[0]

    def fill(word):
        for number in range(64 * 16 // 2):
            store_shared_int32(LEFT + 4 * number, word)
            store_shared_int32(RIGHT + 4 * number, one)

    def kernel(out):
        me = cuda.threadIdx.x
        if me == 0:
            fill(one)
        cuda.syncthreads()
        accumulator = cuda.local.array(4, float32)
        accumulator[:] = 0
        for late in range(1, 31):
            if me == late:
                time.sleep(0.002)
            multiply(accumulator, LEFT >> 4 | shape, RIGHT >> 4 | shape, 1)
            wait(accumulator)
            if me == 0:
                fill(0)
            cuda.syncthreads()
            if me == 0:
                fill(one)
            cuda.syncthreads()
        out[me] = accumulator

    simulate(kernel, 32, out)
    assert (out[:32] == 30 * 16).all()


def test_functions_of_elements(simulate, rng):
    """A map sees each element's own row and column; zip joins halves of columns; rotate brings later columns first."""
    n, held = 32, 16
    matrix, bias = rng.integers(-9, 9, (64, n)).astype(np.float32), rng.integers(-9, 9, n).astype(np.float32)

    def weigh(value, row, column, extra):
        return value + np.float32(1000) * row + extra[column]

    def gate(first, second):
        return first - np.float32(2) * second

    functions = [
        (fragment_map(n, weigh), True, matrix + 1000 * np.arange(64)[:, None] + bias),
        # The second half of the accumulator is left as it was.
        (fragment_zip(n, gate), False, np.hstack((matrix[:, :16] - 2 * matrix[:, 16:], matrix[:, 16:]))),
        (fragment_rotate(n, 8), False, np.roll(matrix, -16, axis=1)),
        (fragment_rotate(n, 4 + 3 * held), False, np.roll(matrix, -8, axis=1)),
        (fragment_rotate(n, -8), False, np.roll(matrix, 16, axis=1)),
        # Functions for fewer columns than the accumulator has change only those.
        (fragment_rotate(n // 2, 4), False, np.hstack((np.roll(matrix[:, :16], -8, axis=1), matrix[:, 16:]))),
        (fragment_zero(n // 2), False, np.hstack((np.zeros((64, 16)), matrix[:, 16:]))),
    ]
    found = np.zeros((len(functions), 64, n), np.float32)
    store = fragment_store_global(n, "float32")

    def kernel(found):
        row, column = first_element()
        for number, (function, placed, _expected) in enumerate(functions):
            accumulator = cuda.local.array(held, float32)
            accumulator[:] = elements(matrix, row, column)
            if placed:
                function(accumulator, row, column, bias)
            else:
                function(accumulator)
            store(accumulator, found[number].ctypes.data, row, column, 64, n, n)

    simulate(kernel, 128, found)
    np.testing.assert_array_equal(found, np.array([expected for _, _, expected in functions], np.float32))


@pytest.mark.parametrize("shape", [(64, 24), (37, 24), (64, 13), (5, 1), (0, 0)])
@pytest.mark.parametrize("held", [12, 24], ids=["its own accumulator", "a wider accumulator"])
def test_stores_to_global_memory_keep_to_the_matrix(simulate, shape, held):
    """After a gated activation an accumulator has more columns than there are to store."""
    rows, columns = shape
    matrix = (100 * np.arange(64)[:, None] + np.arange(24)).astype(np.float32)
    stored, added = np.full((70, 30), 7, np.float32), np.full((70, 30), 7, np.float32)
    store, add = fragment_store_global(24, "float32"), fragment_add_global(24)

    def kernel(stored, added):
        row, column = first_element()
        accumulator = cuda.local.array(held, float32)
        accumulator[:12], accumulator[12:] = elements(matrix, row, column), np.nan
        store(accumulator, stored.ctypes.data, row, column, rows, columns, 30)
        add(accumulator, added.ctypes.data, row, column, rows, columns, 30)
        add(accumulator, added.ctypes.data, row, column, rows, columns, 30)

    simulate(kernel, 128, stored, added)
    expected = np.full((70, 30), 7.0)
    part = matrix[:rows, :columns]
    expected[:rows, :columns] = part
    np.testing.assert_array_equal(stored, expected)
    expected[:rows, :columns] = 7 + 2 * part
    np.testing.assert_array_equal(added, expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wgmma(12), "multiple of 8 from 8 to 256, got 12"),
        (lambda: wgmma(264), "got 264"),
        (lambda: wgmma(64, "float32"), "bfloat16 or float16, got 'float32'"),
        (lambda: fragment_zip(24, max), "got 24 columns"),
        (lambda: fragment_store(64, 48, "bfloat16"), "16, 32 or 64 and at most 64, got 48"),
        (lambda: fragment_store(32, 64, "bfloat16"), "at most 32, got 64"),
        (lambda: fragment_store_global(64, "float64"), "got 'float64'"),
        (lambda: increase_registers(100), "multiple of 8 from 24 to 256, got 100"),
        (lambda: decrease_registers(16), "got 16"),
    ],
)
def test_what_there_is_not_is_refused(make, message):
    with pytest.raises(ProgramError, match=message):
        make()
