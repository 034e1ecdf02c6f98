"""Layouts, shared tiles, descriptors and fragments, element by element against formulas written out here."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

from etproto.errors import ProgramError
from etproto.executors.simulator import launch_simulated
from etproto.kernels.compile import compile_ptx
from etproto.kernels.fingerprint import fingerprint
from etproto.kernels.ptx.memory import store_relaxed_int64
from etproto.layouts import (
    AccumulatorFragment,
    Layout,
    MmaFragment,
    SharedTile,
    Swizzle,
    bank_conflicts,
    column_major,
    compose,
    descriptor_bits,
    device_offset,
    row_major,
    tile,
)

# -- algebra ----------------------------------------------------------------------------------------

NESTED = st.recursive(st.integers(1, 4), lambda inner: st.tuples(inner, inner), max_leaves=3)


def same_nesting(shape, numbers):
    return tuple(same_nesting(one, numbers) for one in shape) if isinstance(shape, tuple) else numbers.draw(STEPS)


STEPS = st.integers(0, 12)


def coordinates(shape):
    """All nested coordinates of a shape, the last part fastest."""
    if isinstance(shape, int):
        return list(range(shape))
    return list(itertools.product(*(coordinates(one) for one in shape)))


def dot(coordinate, stride):
    if isinstance(stride, int):
        return coordinate * stride
    return sum(dot(c, s) for c, s in zip(coordinate, stride, strict=True))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.tuples(NESTED, NESTED), st.data())
def test_a_layout_is_the_product_of_coordinate_and_stride(shape, numbers):
    layout = Layout(shape, same_nesting(shape, numbers))
    expected = [dot(coordinate, layout.stride) for coordinate in coordinates(shape)]
    assert [layout(*coordinate) for coordinate in coordinates(shape)] == expected
    assert [layout(number) for number in range(layout.size)] == expected
    assert layout.offsets().ravel().tolist() == expected
    assert layout.offsets().shape == tuple(len(coordinates(one)) for one in shape)
    assert (layout.size, layout.cosize) == (len(expected), max(expected) + 1)


def test_row_and_column_major_are_numpys_orders():
    array = np.arange(4 * 6 * 5)
    assert (row_major(4, 6, 5).offsets() == array.reshape(4, 6, 5)).all()
    assert (column_major(4, 6, 5).offsets() == array.reshape(4, 6, 5, order="F")).all()


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        (row_major(8, 12), (2, 3)),
        (column_major(8, 12), (8, 4)),
        (Layout((8, (3, 4)), (4, (32, 1))), (4, 2)),
        (Layout((8, (4, 4)), (4, (32, 1))), (2, 8)),  # a tile reaches over two panels
    ],
)
def test_tiles_hold_every_element_once(layout, shape):
    rows, columns = shape
    tiled = tile(layout, shape)
    offsets = layout.offsets()
    for i, j in itertools.product(range(offsets.shape[0] // rows), range(offsets.shape[1] // columns)):
        for r, c in itertools.product(range(rows), range(columns)):
            assert tiled((i, j), (r, c)) == offsets[i * rows + r, j * columns + c]
    assert sorted(tiled.offsets().ravel()) == sorted(offsets.ravel())


def test_tiling_twice():
    """Warps in tiles in a matrix: the inner mode of a tiling can be tiled again."""
    tiled = tile(row_major(16, 16), (8, 8))
    inner = tile(Layout(tiled.shape[1], tiled.stride[1]), (2, 4))
    expected = np.arange(256).reshape(16, 16)[:8, :8]
    for i, j, r, c in itertools.product(range(4), range(2), range(2), range(4)):
        assert inner((i, j), (r, c)) == expected[2 * i + r, 4 * j + c]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([(2, 1), (3, 8), (4, 2), (6, 5), (8, 3)]), min_size=1, max_size=3), st.data())
def test_compositions_are_right_or_refused(outer_leaves, numbers):
    outer = Layout(tuple(extent for extent, _ in outer_leaves), tuple(step for _, step in outer_leaves))
    extents = tuple(numbers.draw(st.lists(st.integers(1, 6), min_size=1, max_size=2)))
    inner = Layout(extents, tuple(numbers.draw(STEPS) for _ in extents))
    table = outer.offsets().ravel()
    try:
        composed = compose(outer, inner)
    except ProgramError:
        return
    assert (composed.offsets() == table[inner.offsets()]).all()


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        (row_major(4, 8), Layout((8,), (3,)), "((8,),(3,))"),
        (row_major(32), row_major(4, 8), "((4,8),(8,1))"),
        (column_major(4, 8), Layout((4,), (2,)), "((4,),(8,))"),
        (column_major(4, 8), Layout((32,), (1,)), "(((4,8),),((1,4),))"),
        (Layout((4, 8), (100, 2)), Layout((2, 2), (16, 4)), "((2,2),(200,8))"),
        (row_major(10), Layout((3,), (4,)), "((3,),(4,))"),  # the last step ends at the end
    ],
)
def test_compositions_that_must_be_found(outer, inner, expected):
    composed = compose(outer, inner)
    assert (composed.offsets() == outer.offsets().ravel()[inner.offsets()]).all()
    if outer.offsets().ravel().tolist() != list(range(outer.size)):
        assert str((composed.shape, composed.stride)).replace(" ", "") == expected


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Layout((4, 8), (8,)), "nest alike"),
        (lambda: Layout((4, (2, 2)), (8, 1)), "nest alike"),
        (lambda: Layout((0, 8), (8, 1)), "extents >= 1"),
        (lambda: Layout((4, 8), (8, -1)), "steps >= 0"),
        (lambda: row_major(4, 8)(1, 2, 3), "expected 2 coordinates"),
        (lambda: tile(row_major(4, 8), (3, 4)), r"\[4, 8\], got \(3, 4\)"),
        (lambda: tile(row_major(4, 8), (4,)), r"got \(4,\)"),
        (lambda: tile(Layout((8, (3, 4)), (4, (32, 1))), (1, 6)), "splits unevenly"),  # one and a half panels
        (lambda: compose(row_major(4, 8), row_major(5, 8)), "do not compose"),
        (lambda: compose(column_major(4, 6), Layout((4,), (4,))), "splits unevenly"),
        (lambda: compose(row_major(16), Layout((2, 2), (1, 3))), "do not nest"),
    ],
)
def test_bad_layouts_are_refused(make, text):
    with pytest.raises(ProgramError, match=text):
        make()


# -- swizzle and shared tiles -----------------------------------------------------------------------


@pytest.mark.parametrize("span", [0, 32, 64, 128])
def test_swizzle_exchanges_chunks_within_a_span(span):
    addresses = np.arange(4096)
    moved = Swizzle(span)(addresses)
    assert (Swizzle(span)(moved) == addresses).all() and sorted(moved) == addresses.tolist()
    for address in range(0, 4096, 4):
        bits = f"{address:012b}"  # the XOR, bit by bit: bit 4 + i with bit 7 + i
        expected = list(bits)
        for i in range({0: 0, 32: 1, 64: 2, 128: 3}[span]):
            expected[-1 - (4 + i)] = str(int(bits[-1 - (4 + i)]) ^ int(bits[-1 - (7 + i)]))
        assert moved[address] == int("".join(expected), 2)
    if span:
        assert (moved // span == addresses // span).all()
        assert (moved[8 * span :] == moved[: -8 * span] + 8 * span).all(), "the period is eight spans"


TILES = [
    SharedTile(rows, columns, size, span)
    for rows in (8, 24, 64, 256)
    for size in (1, 2, 4)
    for span in (0, 32, 64, 128)
    for columns in (16, 32, 64, 128, 192)
    if columns * size % (span or 16) == 0 and (span or columns) // (size if span else 1) <= 256
]


def copied(shared):
    """Position of every element of a tile after its bulk copies: rows of a box dense, chunks exchanged."""
    positions = np.full((shared.rows, shared.columns), -1)
    rows, width = shared.box
    line = width * shared.element_bytes
    for box in shared.boxes:
        for row, chunk in itertools.product(range(rows), range(line // 16)):
            dense = box.offset + row * line + 16 * chunk
            chunks = {0: 1, 32: 2, 64: 4, 128: 8}[shared.swizzle]
            inside = dense // 16 % chunks
            place = dense - 16 * inside + 16 * (inside ^ dense // 128 % chunks)
            per_chunk = 16 // shared.element_bytes
            columns = box.column + chunk * per_chunk + np.arange(per_chunk)
            positions[row, columns] = place + shared.element_bytes * np.arange(per_chunk)
    return positions


@pytest.mark.parametrize("shared", TILES, ids=str)
def test_a_shared_tile_is_what_its_copies_write(shared):
    addresses = shared.address(*np.ix_(np.arange(shared.rows), np.arange(shared.columns)))
    assert (addresses == copied(shared)).all()
    assert sorted(addresses.ravel()) == list(range(0, shared.bytes, shared.element_bytes)), "each byte once"
    assert all(box.offset % 128 == 0 for box in shared.boxes)


def walk(descriptor, rows):
    """Addresses that wgmma reads for `rows` rows of 32 bytes: decoded from the descriptor alone."""
    start = (descriptor & 0x3FFF) * 16
    stride = (descriptor >> 32 & 0x3FFF) * 16
    base_offset, mode = descriptor >> 49 & 7, descriptor >> 62
    assert base_offset == 0 and mode in (1, 2, 3)
    span, chunks = {1: (128, 8), 2: (64, 4), 3: (32, 2)}[mode]
    row, byte = np.ix_(np.arange(rows), np.arange(32))
    address = start + row // 8 * stride + row % 8 * span + byte
    return address ^ (address // 128 % chunks) * 16


@pytest.mark.parametrize("shared", [one for one in TILES if one.swizzle and one.element_bytes == 2], ids=str)
def test_descriptors_lead_to_the_elements(shared):
    base = 7 * shared.alignment
    bits, _ = shared.descriptor(0, 0)
    assert bits == descriptor_bits(shared.swizzle)
    low = np.arange(32) % 2  # the byte in the element
    for row, column in itertools.product(range(0, shared.rows, 8), range(0, shared.columns, 16)):
        bits, units = shared.descriptor(row, column)
        rows = min(64, shared.rows - row)
        columns = column + np.arange(32) // 2
        expected = base + shared.address(*np.ix_(row + np.arange(rows), columns)) + low
        assert (walk(bits | ((base >> 4) + units & 0x3FFF), rows) == expected).all()
        assert (walk((bits | base >> 4) + units, rows) == expected).all(), "adding to a whole descriptor is the same"
        if column % (shared.swizzle // 2):
            assert units == shared.descriptor(row, column - 16)[1] + 2


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Swizzle(16), "got 16"),
        (lambda: SharedTile(64, 32, 2), "multiple of 128 bytes, got 64"),
        (lambda: SharedTile(64, 4, 2, 0), "multiple of 16 bytes, got 8"),
        (lambda: SharedTile(512, 64, 2), r"at most 256 elements in each dimension, got \(512, 64\)"),
        (lambda: SharedTile(4, 128, 2), "multiple of 8 rows, got 4"),
        (lambda: SharedTile(64, 64, 3), "1, 2, 4 or 8 bytes"),
        (lambda: SharedTile(0, 64, 2), "at least one row"),
        (lambda: SharedTile(64, 64, 2).descriptor(4, 0), "row 4"),
        (lambda: SharedTile(64, 64, 2).descriptor(8, 4), "column 4"),
        (lambda: SharedTile(64, 64, 2, 0).descriptor(0, 0), "32, 64 or 128 bytes, got 0"),
        (lambda: AccumulatorFragment(12), "got 12"),
        (lambda: AccumulatorFragment(264), "got 264"),
        (lambda: MmaFragment("d"), "got 'd'"),
    ],
)
def test_bad_tiles_and_fragments_are_refused(make, text):
    with pytest.raises(ProgramError, match=text):
        make()


# -- fragments --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_an_accumulator_holds_every_element_once(n):
    fragment = AccumulatorFragment(n)
    seen = set()
    for t, j, h, c in itertools.product(range(128), range(n // 8), range(2), range(2)):
        place = 16 * (t // 32) + t % 32 // 4 + 8 * h, 8 * j + 2 * (t % 4) + c
        assert fragment(t, 4 * j + 2 * h + c) == place
        seen.add(place)
    assert seen == set(itertools.product(range(64), range(n)))


def test_mma_fragments_multiply():
    """Values dealt out by the fragments, multiplied by the instruction's definition for each lane's registers."""
    a, b, c = MmaFragment("a"), MmaFragment("b"), MmaFragment("c")
    for lane in range(32):
        group, place = lane // 4, lane % 4
        for i in range(8):
            row = group + (8 if i in (2, 3, 6, 7) else 0)
            assert a(lane, i) == (row, 2 * place + i % 2 + (8 if i >= 4 else 0))
        for i in range(4):
            assert b(lane, i) == (2 * place + i % 2 + (8 if i >= 2 else 0), group)
            assert c(lane, i) == (group + (8 if i >= 2 else 0), 2 * place + i % 2)
    for fragment, elements, rows, columns in ((a, 8, 16, 16), (b, 4, 16, 8), (c, 4, 16, 8)):
        places = {fragment(lane, element) for lane in range(32) for element in range(elements)}
        assert places == set(itertools.product(range(rows), range(columns)))


@pytest.mark.parametrize(("operand", "tiles"), [("a", 1), ("b", 2), ("c", 2)])
def test_four_matrices_are_fragments(operand, tiles):
    """ldmatrix: lane l gets elements 2 (l % 4) and the next of row l // 4 of each of the four matrices, whose rows lie
    where lanes 8 i to 8 i + 7 say.
    """
    fragment = MmaFragment(operand)
    for lane, register, half in itertools.product(range(32), range(4), range(2)):
        row, column = fragment.matrix_row(8 * register + lane // 4)
        along = 2 * (lane % 4) + half
        loaded = (row + along, column) if operand == "b" else (row, column + along)
        number, register_of_tile = divmod(register, 4 // tiles)
        row, column = fragment(lane, 2 * register_of_tile + half)
        assert loaded == (row, column + 8 * number)


# -- bank conflicts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("addresses", "size", "expected"),
    [
        ([4 * lane for lane in range(32)], 4, 1),
        ([0] * 32, 4, 1),  # all read one word
        ([8 * lane for lane in range(32)], 4, 2),
        ([132 * lane for lane in range(32)], 4, 1),  # a padded row
        ([2 * lane for lane in range(32)], 2, 1),
        ([8 * lane for lane in range(32)], 8, 1),
        ([64 * lane for lane in range(32)], 16, 4),
    ],
)
def test_bank_conflicts(addresses, size, expected):
    assert bank_conflicts(addresses, size) == expected


@pytest.mark.parametrize("span", [32, 64, 128])
@pytest.mark.parametrize("operand", ["a", "b", "c"])
def test_swizzled_tiles_are_free_of_conflicts(span, operand):
    """The address pattern of ldmatrix and stmatrix, at every 16 x 16 block of a tile, and on dense rows."""
    columns = span // 2
    dense = []
    for first_row, first_column in itertools.product(range(0, 64, 16), range(0, columns, 16)):
        places = [MmaFragment(operand).matrix_row(lane) for lane in range(32)]
        places = [(column, row) if operand == "b" else (row, column) for row, column in places]
        for shared in (SharedTile(64, columns, 2, span), SharedTile(64, columns, 2, 0)):
            worst = bank_conflicts([shared.address(first_row + r, first_column + c) for r, c in places], 16)
            if shared.swizzle:
                assert worst == 1
            else:
                dense.append(worst)
    assert set(dense) == {span // 16}


# -- index code -------------------------------------------------------------------------------------

INDEXED = [
    row_major(6, 10),
    Layout((4, (3, 5, 2)), (30, (10, 2, 1))),
    Layout(((4, 3, 7),), ((21, 7, 1),)),
    Layout((1, (1, 4)), (8, (0, 3))),
    AccumulatorFragment(24).layout,
    tile(row_major(32, 24), (8, 6)),
    SharedTile(16, 128, 2),
    SharedTile(16, 96, 2, 64),
    SharedTile(16, 48, 2, 0),
]


@pytest.mark.parametrize("layout", INDEXED, ids=str)
def test_index_code_is_the_layout(layout):
    offset = device_offset(layout)
    if isinstance(layout, SharedTile):
        expected = copied(layout)
    else:
        expected = layout.offsets()
    for coordinate in itertools.product(*(range(extent) for extent in expected.shape)):
        assert offset(*coordinate) == expected[coordinate]


TILE_OFFSET = device_offset(SharedTile(16, 128, 2))
DIVIDING = device_offset(Layout((4, (3, 5)), (15, (1, 3))))


def _store_offsets(address):
    i = cuda.threadIdx.x
    store_relaxed_int64(address, i, TILE_OFFSET(i // 128, i % 128))


def _store_divided(address):
    store_relaxed_int64(address, cuda.threadIdx.x, DIVIDING(cuda.blockIdx.x, cuda.threadIdx.x))


def test_index_code_runs_in_kernels():
    stored = np.full(256, -1)
    launch_simulated(_store_offsets, 1, 256, (stored.ctypes.data,), timeout_s=30)
    assert (stored == copied(SharedTile(16, 128, 2))[:2].ravel()).all()


def test_index_code_is_shifts_and_masks(tmp_path):
    """Powers of two cost no division, other extents the short one; both assemble for the device."""
    ptx = compile_ptx(_store_offsets, (9, 0))
    assert not re.search(r"\b(?:div|rem)\.", ptx) and re.search(r"\bxor\.b", ptx)
    divided = compile_ptx(_store_divided, (9, 0))
    assert set(re.findall(r"\b(?:div|rem)\.\w+", divided)) == {"div.s32"}
    if shutil.which("ptxas") is None:
        pytest.skip("there is no ptxas to assemble with")
    for number, text in enumerate((ptx, divided)):
        (tmp_path / f"{number}.ptx").write_text(text)
        command = ["ptxas", "-arch=sm_90a", f"{number}.ptx", "-o", f"{number}.cubin"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)


def test_index_code_is_part_of_the_key_of_kernels():
    one, other = device_offset(row_major(4, 8)), device_offset(row_major(4, 9))
    assert one is device_offset(row_major(4, 8)) and fingerprint(one) != fingerprint(other)
