"""16-bit floats: every bit pattern, rounding to even, NaN, and pairs."""

from __future__ import annotations

import numpy as np
import pytest

from etproto.errors import ProgramError
from etproto.kernels.ptx import convert
from etproto.kernels.ptx.halves import half_bits, half_values, ptx_half

PATTERNS = np.arange(1 << 16, dtype=np.uint16)


def exact(bits: np.ndarray) -> np.ndarray:
    """float64 values of bfloat16 by its definition: sign, 8 bits of exponent, 7 of fraction."""
    sign = np.where(bits >> 15, -1.0, 1.0)
    exponent, fraction = (bits >> 7 & 255).astype(int), (bits & 127).astype(float)
    with np.errstate(over="ignore"):
        finite = np.where(
            exponent > 0, (1 + fraction / 128) * np.exp2(exponent - 127.0), fraction / 128 * np.exp2(-126.0)
        )
    special = np.where(fraction > 0, np.nan, np.inf)
    return sign * np.where(exponent == 255, special, finite)


def test_every_bfloat16_has_its_value():
    np.testing.assert_array_equal(half_values(PATTERNS, "bfloat16"), exact(PATTERNS))
    np.testing.assert_array_equal(half_values(PATTERNS, "float16"), PATTERNS.view(np.float16))
    chosen = PATTERNS[::97]
    got = [convert.bfloat16_to_float32(int(bits)) for bits in chosen]
    np.testing.assert_array_equal(np.array(got, np.float32), exact(chosen))
    got = [convert.float16_to_float32(int(bits)) for bits in chosen]
    np.testing.assert_array_equal(np.array(got, np.float32), chosen.view(np.float16).astype(np.float32))


def test_rounding_is_to_nearest_even(rng):
    """Halfway between neighbours goes to the even pattern, a little beside it to the nearer one."""
    low = PATTERNS[(exact(PATTERNS) > 0) & (exact(PATTERNS) < 1e38)][:-1]
    middle = (low.astype(np.uint32) << 16) + 0x8000
    for offset, expected in ((-1, low), (0, low + (low & 1)), (1, low + 1)):
        values = (middle + np.uint32(offset & 0xFFFFFFFF)).astype(np.uint32).view(np.float32)
        np.testing.assert_array_equal(half_bits(values, "bfloat16"), expected)
        for index in rng.integers(0, low.size, 50):
            assert convert.float32_to_bfloat16(values[index]) == expected[index]
            assert convert.float32_to_bfloat16(-values[index]) == expected[index] | 0x8000


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4028235e38, -3.4028235e38, 65519.0, 65520.0])
def test_special_values(value):
    bits = convert.float32_to_bfloat16(np.float32(value))
    assert 0 <= bits < 1 << 16 and bits == half_bits(np.array([value]), "bfloat16")[0]
    half = convert.float32_to_float16(np.float32(value))
    assert half == half_bits(np.array([value]), "float16")[0]
    if np.isnan(value):
        assert bits == half == 0x7FFF, "the one NaN that the instruction makes"
    else:
        with np.errstate(over="ignore"):
            assert half == np.float16(value).view(np.uint16)
        assert np.signbit(convert.bfloat16_to_float32(bits)) == np.signbit(value)
    if abs(value) > 1e38:
        assert abs(convert.bfloat16_to_float32(bits)) == np.inf


def test_pairs_lie_as_in_memory(rng):
    for low, high in rng.standard_normal((20, 2), np.float32):
        pair = np.int32(convert.pack_bfloat16(low, high))
        first, second = np.frombuffer(pair.tobytes(), np.uint16)
        assert (first, second) == (convert.float32_to_bfloat16(low), convert.float32_to_bfloat16(high))
        assert convert.unpack_low_bfloat16(pair) == convert.bfloat16_to_float32(first)
        assert convert.unpack_high_bfloat16(pair) == convert.bfloat16_to_float32(second)


def test_elements_in_memory():
    memory = np.zeros(4, np.uint16)
    convert.store_bfloat16(memory.ctypes.data, 2, np.float32(-1.5))
    assert memory.tolist() == [0, 0, 0xBFC0, 0]
    assert convert.load_bfloat16(memory.ctypes.data, 2) == -1.5


def test_other_types_are_refused():
    with pytest.raises(ProgramError, match="bfloat16 or float16, got 'float32'"):
        ptx_half("float32")
