"""Tensor maps: what is refused, the simulator's words, and what the driver is asked to encode."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from etproto.errors import ProgramError, RunError
from etproto.executors.tensor_map_driver import encode_tensor_map
from etproto.layouts import SharedTile
from etproto.tensor_maps import Geometry, TensorMap, box_bytes, map_geometry, map_words
from etproto.tile_kind import DTYPES, storage_dtype

driver = pytest.importorskip("cuda.bindings.driver")

ADDRESS = 0x7F00_0000_0400
CASES = [
    (TensorMap("a", (128, 64)), (1000, 512), "bfloat16"),
    (TensorMap("a", (64, 32), swizzle=64), (8, 40), "float16"),
    (TensorMap("a", (8, 8), swizzle=32), (1, 8), "float32"),
    (TensorMap("a", (1, 256), swizzle=0), (3, 512), "uint8"),
    (TensorMap("a", (2, 16, 64)), (5, 70, 128), "bfloat16"),
    (TensorMap("a", (16, 2, 64), dimensions=(1, 0, 2)), (5, 70, 128), "bfloat16"),
]


def expected_geometry(tensor_map, shape, dtype):
    """From NumPy's own strides of such an array, its dimensions put into the box's order."""
    array = np.empty(shape, storage_dtype(dtype)).transpose(tensor_map.dimensions or range(len(shape)))
    return Geometry(ADDRESS, array.shape[::-1], array.strides[-2::-1], tensor_map.box[::-1], array.itemsize)


@pytest.mark.parametrize(("tensor_map", "shape", "dtype"), CASES)
def test_geometry_is_that_of_a_numpy_array(tensor_map, shape, dtype):
    assert map_geometry(tensor_map, ADDRESS, shape, dtype) == expected_geometry(tensor_map, shape, dtype)


@pytest.mark.parametrize(("tensor_map", "shape", "dtype"), CASES)
def test_words_of_the_simulator(tensor_map, shape, dtype):
    words = map_words(tensor_map, ADDRESS, shape, dtype)
    assert words.dtype == np.int64 and words.shape == (16,)
    address, extents, strides, box, size = expected_geometry(tensor_map, shape, dtype)
    rank = len(shape)
    kind = {"float32": 1, "bfloat16": 2, "float16": 3}.get(dtype, 0)
    expected = [address, rank, *extents, *[1] * (3 - rank), *strides, *[0] * (3 - rank), *box, *[1] * (3 - rank)]
    assert words.tolist() == [*expected, size, tensor_map.swizzle, kind, 0, 0, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_of_a_box(dtype):
    size = np.dtype(storage_dtype(dtype)).itemsize
    assert box_bytes(TensorMap("a", (24, 32 // size), swizzle=32), dtype) == 24 * 32
    assert box_bytes(TensorMap("a", (3, 5, 64), swizzle=0), dtype) == 3 * 5 * 64 * size


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_the_box_of_a_shared_tile_fills_it(swizzle):
    shared = SharedTile(64, 128, 2, swizzle)
    tensor_map = TensorMap("a", shared.box, shared.swizzle)
    assert box_bytes(tensor_map, "bfloat16") * len(shared.boxes) == shared.bytes


@pytest.mark.parametrize("shape", [(0, 64), (64, 0)])
def test_an_empty_array_has_a_map_of_zeros(shape):
    """Arrays without elements often have no address either."""
    tensor_map = TensorMap("a", (128, 64))
    assert map_words(tensor_map, 0, shape, "bfloat16").tobytes() == bytes(128)
    assert encode_tensor_map(tensor_map, 0, shape, "bfloat16").tobytes() == bytes(128)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: TensorMap("a", (64,)), r"tensor map of a: .* 2 or 3 dimensions, got \(64,\)"),
        (lambda: TensorMap("a", (1, 2, 3, 4)), "2 or 3 dimensions"),
        (lambda: TensorMap("a", (257, 64)), r"1 to 256, got \(257, 64\)"),
        (lambda: TensorMap("a", (0, 64)), r"1 to 256, got \(0, 64\)"),
        (lambda: TensorMap("a", (64, 64), swizzle=16), "got 16"),
        (lambda: TensorMap("a", (64, 64), dimensions=(1, 0)), r"ends with 1, got \(1, 0\)"),
        (lambda: TensorMap("a", (64, 64), dimensions=(0, 2)), r"got \(0, 2\)"),
        (lambda: box_bytes(TensorMap("a", (64, 64)), "int8"), "got 'int8'"),
        (lambda: box_bytes(TensorMap("a", (64, 4), swizzle=0), "float16"), r"16 bytes, got 8 bytes \(4 elements"),
        (lambda: box_bytes(TensorMap("a", (64, 64)), "float32"), "128 bytes, got 256 bytes"),
        (lambda: box_bytes(TensorMap("a", (64, 32)), "float16"), "128 bytes, got 64 bytes"),
    ],
)
def test_bad_maps_are_refused(make, text):
    with pytest.raises(ProgramError, match=text):
        make()


@pytest.mark.parametrize("form", [map_words, encode_tensor_map])
@pytest.mark.parametrize(
    ("address", "shape", "text"),
    [
        (ADDRESS + 8, (64, 64), r"operand a: its address .* got 0x7f0000000408 \(8 bytes past one\)"),
        (
            ADDRESS,
            (64, 68),
            r"rows must be a multiple of 16 bytes apart for bulk copies, got 136 bytes \(shape \(64, 68\)",
        ),
        (ADDRESS, (64, 64, 64), r"boxes of 2 dimensions, got an array of shape \(64, 64, 64\)"),
        (ADDRESS, (1 << 33, 64), "2\\*\\*32"),
        (ADDRESS, (-1, 64), r"got shape \(-1, 64\)"),
    ],
)
def test_what_the_hardware_cannot_copy_is_refused(form, address, shape, text):
    """In the simulator as on a GPU."""
    with pytest.raises(ProgramError, match=text):
        form(TensorMap("a", (64, 64)), address, shape, "bfloat16")


def test_strides_that_are_too_long_are_refused():
    with pytest.raises(ProgramError, match=r"less than 2\*\*40 bytes apart"):
        map_geometry(TensorMap("a", (2, 2, 64)), ADDRESS, (2, 1 << 32, 1 << 10), "bfloat16")


# -- the driver's form ------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """Arguments of the driver call, which answers with 128 known bytes."""
    calls = []
    encoded = driver.CUtensorMap()
    encoded.opaque = [driver.cuuint64_t(0x0101_0101_0101_0101 * number) for number in range(16)]

    def encode(*arguments):
        calls.append(arguments)
        return driver.CUresult.CUDA_SUCCESS, encoded

    monkeypatch.setattr(driver, "cuTensorMapEncodeTiled", encode)
    return calls


@pytest.mark.parametrize(("tensor_map", "shape", "dtype"), CASES)
def test_what_the_driver_is_asked(asked, tensor_map, shape, dtype):
    encoded = encode_tensor_map(tensor_map, ADDRESS, shape, dtype)
    assert encoded.dtype == np.uint8 and encoded.tolist() == [number for number in range(16) for _ in range(8)]
    (arguments,) = asked
    kind, rank, address, extents, strides, box, steps, interleave, swizzle, promotion, fill = arguments
    geometry = expected_geometry(tensor_map, shape, dtype)
    assert kind.name == f"CU_TENSOR_MAP_DATA_TYPE_{dtype.upper()}"
    assert (rank, address) == (len(shape), ADDRESS)
    assert [int(extent) for extent in extents] == list(geometry.extents)
    assert [int(stride) for stride in strides] == list(geometry.strides) and len(strides) == rank - 1
    assert [int(extent) for extent in box] == list(geometry.box)
    assert [int(step) for step in steps] == [1] * rank
    assert {type(one) for one in (*extents, *strides)} == {driver.cuuint64_t}
    assert {type(one) for one in (*box, *steps)} == {driver.cuuint32_t}
    assert interleave == driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE
    assert int(swizzle) == {0: 0, 32: 1, 64: 2, 128: 3}[tensor_map.swizzle]
    assert promotion == driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B
    assert fill == driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_has_one_of_the_drivers(asked, dtype):
    width = 32 // np.dtype(storage_dtype(dtype)).itemsize
    encode_tensor_map(TensorMap("a", (8, width), swizzle=32), ADDRESS, (8, 64), dtype)
    assert asked[0][0].name.endswith(f"_{dtype.upper()}")


@pytest.mark.parametrize(("promotion", "number"), [(0, 0), (64, 1), (128, 2), (256, 3)])
def test_promotion(asked, promotion, number):
    encode_tensor_map(TensorMap("a", (8, 64)), ADDRESS, (8, 64), "bfloat16", promotion=promotion)
    assert int(asked[0][9]) == number
    with pytest.raises(ProgramError, match="got 32"):
        encode_tensor_map(TensorMap("a", (8, 64)), ADDRESS, (8, 64), "bfloat16", promotion=32)


@pytest.mark.parametrize(("tensor_map", "shape", "dtype"), CASES)
def test_the_binding_takes_the_arguments(tensor_map, shape, dtype):
    """The real call, which without a driver fails only after it has looked at its arguments' types."""
    with contextlib.suppress(RuntimeError, RunError):  # no driver; a driver that is not initialised
        assert encode_tensor_map(tensor_map, ADDRESS, shape, dtype).shape == (128,)


def test_a_refusal_of_the_driver_shows_the_numbers(monkeypatch):
    refused = driver.CUresult.CUDA_ERROR_INVALID_VALUE
    success = driver.CUresult.CUDA_SUCCESS
    monkeypatch.setattr(driver, "cuTensorMapEncodeTiled", lambda *arguments: (refused, None))
    monkeypatch.setattr(driver, "cuGetErrorName", lambda error: (success, b"CUDA_ERROR_INVALID_VALUE"))
    monkeypatch.setattr(driver, "cuGetErrorString", lambda error: (success, b"invalid argument"))
    with pytest.raises(RunError, match=r"operand a \(bfloat16, .*extents=\(512, 1000\).*INVALID_VALUE"):
        encode_tensor_map(TensorMap("a", (128, 64)), ADDRESS, (1000, 512), "bfloat16")


def test_the_bytes_are_a_copy(asked):
    """The binding's object goes away with the call."""
    first = encode_tensor_map(TensorMap("a", (8, 64)), ADDRESS, (8, 64), "bfloat16")
    assert first.flags.owndata and first.flags.writeable
