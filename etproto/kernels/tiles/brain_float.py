"""bfloat16 on the host: float32 values from and to the 16-bit patterns that arrays hold.

A bfloat16 is the upper half of a float32: sign, eight bits of exponent, seven of mantissa. NumPy has no such
type, so arrays hold the bits as uint16.
"""

from __future__ import annotations

import numpy as np

__all__ = ["from_float32", "to_float32"]


def to_float32(bits: np.ndarray) -> np.ndarray:
    """Values of bfloat16 patterns; exact.

    Parameters
    ----------
    bits : ndarray of uint16, any shape

    Returns
    -------
    ndarray of float32, the same shape

    Examples
    --------
    >>> to_float32(np.array([0x3F80, 0xC000, 0x7F80], np.uint16))
    array([ 1., -2., inf], dtype=float32)
    """
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def from_float32(values: np.ndarray) -> np.ndarray:
    """Nearest bfloat16 patterns, ties to the even one; beyond the largest becomes infinite, a NaN stays one.

    Parameters
    ----------
    values : ndarray of float32 (others are converted to it), any shape

    Returns
    -------
    ndarray of uint16, the same shape

    Examples
    --------
    >>> [hex(bits) for bits in from_float32(np.array([1.0, 1.00390625, 1.01171875]))]
    ['0x3f80', '0x3f80', '0x3f82']
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).reshape(np.shape(values))
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    # Adding to a NaN's mantissa may carry into its exponent and sign: keep its upper half, and make it quiet.
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(is_nan, quiet, rounded).astype(np.uint16)
