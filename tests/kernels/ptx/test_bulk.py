"""Bulk copies: where each byte of a box lies, what happens at the edges, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

from etproto.kernels.ptx.barrier import mbarrier_expect, mbarrier_init, mbarrier_wait
from etproto.kernels.ptx.bulk import (
    bulk_commit,
    bulk_load,
    bulk_load_hint,
    bulk_store,
    bulk_wait_0,
    policy_evict_first,
    prefetch_tensor_map,
    proxy_fence,
    tma_load_2d,
    tma_load_2d_hint,
    tma_load_2d_multicast,
    tma_load_3d,
    tma_reduce_add_2d,
    tma_store_2d,
    tma_store_3d,
)
from etproto.kernels.ptx.shared import (
    load_global_vector,
    load_shared_int32,
    shared_address,
    store_global_vector,
    store_shared_float32,
    store_shared_int32,
)
from etproto.tensor_maps import TensorMap, map_words

BARRIER, TILE = 1024, 4096


def swizzle(offset: int, span: int) -> int:
    """Place of a byte of a tile whose rows have `span` bytes: chunks of row r change places by r's lower bits.

    Rows are counted in units of 128 bytes, which hold 1, 2 or 4 of them.
    """
    if span == 0:
        return offset
    line, within = divmod(offset, 128)
    chunk, byte = divmod(within, 16)
    return 128 * line + 16 * (chunk ^ (line % (span // 16))) + byte


def dump(size):
    """Kernel part: the bytes of shared memory from TILE on, as int32."""
    return np.array([load_shared_int32(TILE + 4 * word) for word in range(size // 4)], np.int32).view(np.uint8)


@pytest.mark.parametrize(("span", "columns"), [(128, 64), (64, 32), (32, 16), (0, 24)])
@pytest.mark.parametrize("at", [(0, 0), (16, 3), (-8, -2), (40, 9), (1000, 0)])
def test_a_loaded_box_is_swizzled_and_filled_with_zeros(simulate, aligned, rng, span, columns, at):
    rows = 16
    source = aligned(rng.integers(1, 1 << 16, (13, 56)).astype(np.uint16))
    words = map_words(TensorMap("a", (rows, columns), span), source.ctypes.data, source.shape, "uint16")
    found = np.zeros(rows * columns * 2, np.uint8)

    def kernel(found):
        mbarrier_init(BARRIER, 1)
        prefetch_tensor_map(words.ctypes.data)
        mbarrier_expect(BARRIER, found.size)
        tma_load_2d(TILE, words.ctypes.data, at[0], at[1], BARRIER)
        mbarrier_wait(BARRIER, 0)
        found[:] = dump(found.size)

    simulate(kernel, 1, found)
    expected = np.zeros((rows, columns), np.uint16)
    for row in range(rows):
        for column in range(columns):
            if 0 <= row + at[1] < 13 and 0 <= column + at[0] < 56:
                expected[row, column] = source[row + at[1], column + at[0]]
    places = [swizzle(offset, span) for offset in range(found.size)]
    np.testing.assert_array_equal(found[places].view(np.uint16).reshape(rows, columns), expected)


def test_three_dimensions_and_their_edges(simulate, aligned, rng):
    source = aligned(rng.standard_normal((5, 7, 8), np.float32))
    target = aligned(np.full((5, 7, 8), 9, np.float32))
    box = TensorMap("a", (2, 4, 8), 32)
    maps = [map_words(box, array.ctypes.data, array.shape, "float32") for array in (source, target)]

    def kernel():
        mbarrier_init(BARRIER, 1)
        phase = 0
        for z in (0, 2, 4):
            for y in (0, 4):
                mbarrier_expect(BARRIER, 2 * 4 * 8 * 4)
                tma_load_3d(TILE, maps[0].ctypes.data, 0, y, z, BARRIER)
                mbarrier_wait(BARRIER, phase)
                phase ^= 1
                tma_store_3d(maps[1].ctypes.data, 0, y, z, TILE)
                bulk_commit()
                bulk_wait_0()

    simulate(kernel, 1)
    np.testing.assert_array_equal(target, source)


def test_dimensions_may_be_exchanged(simulate, aligned, rng):
    source = aligned(rng.integers(0, 255, (4, 6, 16)).astype(np.uint8))
    words = map_words(TensorMap("a", (6, 4, 16), 0, (1, 0, 2)), source.ctypes.data, source.shape, "uint8")
    found = np.zeros(4 * 6 * 16, np.uint8)

    def kernel(found):
        mbarrier_init(BARRIER, 1)
        mbarrier_expect(BARRIER, found.size)
        tma_load_3d(TILE, words.ctypes.data, 0, 0, 0, BARRIER)
        mbarrier_wait(BARRIER, 0)
        found[:] = dump(found.size)

    simulate(kernel, 1, found)
    np.testing.assert_array_equal(found.reshape(6, 4, 16), source.transpose(1, 0, 2))


def test_a_store_leaves_what_is_outside(simulate, aligned):
    """The box sticks out at the right and at the bottom: neither the next row nor what follows the array changes."""
    memory = aligned(np.zeros((8, 16), np.float32))
    target = memory[:6, :16]
    words = map_words(TensorMap("a", (4, 8), 0), target.ctypes.data, target.shape, "float32")

    def kernel():
        for word in range(32):
            store_shared_float32(TILE + 4 * word, np.float32(1 + word))
        proxy_fence()
        tma_store_2d(words.ctypes.data, 12, 4, TILE)

    simulate(kernel, 1)
    expected = np.zeros((8, 16), np.float32)
    expected[4:6, 12:] = np.arange(1, 33).reshape(4, 8)[:2, :4]
    np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_boxes_are_added(simulate, aligned, dtype):
    """Eight threads add a box at once; sums of small integers are exact in every type."""
    bits = {"float32": np.uint32, "float16": np.uint16, "bfloat16": np.uint16}[dtype]
    small = np.arange(32, dtype=np.float32).reshape(2, 16)

    def stored(values):
        if dtype == "bfloat16":
            return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return values.astype(dtype).view(bits)

    target = aligned(stored(small))
    words = map_words(TensorMap("a", (2, 16), 0), target.ctypes.data, target.shape, dtype)
    given = stored(small[::-1] % 8).view(np.int32).ravel()

    def kernel():
        if cuda.threadIdx.x == 0:
            for number, word in enumerate(given):
                store_shared_int32(TILE + 4 * number, word)
        cuda.syncthreads()
        tma_reduce_add_2d(words.ctypes.data, 0, 0, TILE)

    simulate(kernel, 8)
    np.testing.assert_array_equal(target, stored(small + 8 * (small[::-1] % 8)))


def test_adding_bytes_is_refused(simulate, aligned):
    target = aligned(np.zeros((2, 16), np.uint8))
    words = map_words(TensorMap("a", (2, 16), 0), target.ctypes.data, target.shape, "uint8")
    with pytest.raises(ValueError, match="element type 0"):
        simulate(lambda: tma_reduce_add_2d(words.ctypes.data, 0, 0, TILE), 1)


def test_hints_and_multicast_copy_alike(simulate, aligned, rng):
    source = aligned(rng.integers(0, 255, (4, 32)).astype(np.uint8))
    words = map_words(TensorMap("a", (4, 32), 32), source.ctypes.data, source.shape, "uint8")
    found = np.zeros((4, 128), np.uint8)

    def kernel(found):
        mbarrier_init(BARRIER, 1)
        mbarrier_expect(BARRIER, 4 * 128)
        policy = policy_evict_first()
        tma_load_2d(TILE, words.ctypes.data, 0, 0, BARRIER)
        found[0] = dump(128)
        tma_load_2d_hint(TILE, words.ctypes.data, 0, 1, BARRIER, policy)
        tma_load_2d_hint(TILE, words.ctypes.data, 0, 0, BARRIER, policy)
        found[1] = dump(128)
        tma_load_2d_multicast(TILE, words.ctypes.data, 0, 3, BARRIER, 2)  # for another block alone
        found[2] = dump(128)
        tma_load_2d_multicast(TILE, words.ctypes.data, 0, 0, BARRIER, 3)
        found[3] = dump(128)
        mbarrier_wait(BARRIER, 0)

    simulate(kernel, 1, found)
    assert (found == found[0]).all() and found[0].any()


def test_plain_copies(simulate, aligned, rng):
    source, target = aligned(rng.integers(0, 255, 96).astype(np.uint8)), aligned(np.zeros(96, np.uint8))

    def kernel():
        dynamic = cuda.shared.array(0, np.uint8)
        first = shared_address(dynamic)
        mbarrier_init(first, 1)
        mbarrier_expect(first, 96)
        bulk_load(first + 64, source.ctypes.data, 64, first)
        bulk_load_hint(first + 128, source.ctypes.data + 64, 32, first, policy_evict_first())
        mbarrier_wait(first, 0)
        bulk_store(target.ctypes.data, first + 64, 80)
        store_global_vector(target.ctypes.data + 80, *load_global_vector(source.ctypes.data + 80))

    simulate(kernel, 1)
    np.testing.assert_array_equal(target, source)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 24}, "multiples of 16, got 4096, .*, 24"),
        ({"address": 8}, "multiples of 16"),
        ({"tile": TILE + 16}, "the shared address must be a multiple of 128, got 4112"),
    ],
)
def test_misaligned_copies_are_refused(simulate, aligned, change, message):
    source = aligned(np.zeros((4, 32), np.uint8))
    words = map_words(TensorMap("a", (4, 32), 0), source.ctypes.data, source.shape, "uint8")

    def kernel():
        mbarrier_init(BARRIER, 1)
        bulk_load(TILE, source.ctypes.data + change.get("address", 0), change.get("size", 32), BARRIER)
        tma_load_2d(change.get("tile", TILE), words.ctypes.data, 0, 0, BARRIER)

    with pytest.raises(ValueError, match=message):
        simulate(kernel, 1)


def test_a_coordinate_of_another_rank_is_refused(simulate, aligned):
    source = aligned(np.zeros((4, 32), np.uint8))
    words = map_words(TensorMap("a", (4, 32), 0), source.ctypes.data, source.shape, "uint8")

    def kernel():
        mbarrier_init(BARRIER, 1)
        tma_load_3d(TILE, words.ctypes.data, 0, 0, 0, BARRIER)

    with pytest.raises(ValueError, match="rank 2"):
        simulate(kernel, 1)
