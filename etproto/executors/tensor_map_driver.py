"""Tensor maps as the GPU reads them: 128 bytes that only the CUDA driver knows how to fill."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from etproto.errors import ProgramError
from etproto.executors.driver import check
from etproto.tensor_maps import TensorMap, map_geometry

__all__ = ["encode_tensor_map"]

_BYTES = 128


def encode_tensor_map(
    tensor_map: TensorMap, address: int, shape: Sequence[int], dtype: str, *, promotion: int = 128
) -> np.ndarray:
    """A tensor map for ``cp.async.bulk.tensor``, by ``cuTensorMapEncodeTiled``; kernels need it at a multiple of
    64 bytes.

    Copies outside the array read zeros. An array without elements has a map of zeros, which no copy may use.

    Parameters
    ----------
    tensor_map : TensorMap
    address : int
        Device address of the array's first element.
    shape : sequence of int
    dtype : str
    promotion : {0, 64, 128, 256}
        Bytes that the second-level cache fetches at least; 0 for what is asked.

    Returns
    -------
    numpy.ndarray
        uint8[128].

    Raises
    ------
    ProgramError
        What `etproto.tensor_maps.map_geometry` refuses, or another promotion.
    RunError
        The driver refused the map; the text holds what it was given.
    """
    from cuda.bindings import driver

    promotions = {0: "NONE", 64: "L2_64B", 128: "L2_128B", 256: "L2_256B"}
    if promotion not in promotions:
        raise ProgramError(
            f"tensor map of {tensor_map.operand}: promotion must be 0, 64, 128 or 256 bytes, got {promotion!r}"
        )
    geometry = map_geometry(tensor_map, address, shape, dtype)
    if geometry is None:
        return np.zeros(_BYTES, np.uint8)
    swizzle = f"{tensor_map.swizzle}B" if tensor_map.swizzle else "NONE"
    result = driver.cuTensorMapEncodeTiled(
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{dtype.upper()}"),
        len(geometry.box),
        geometry.address,
        [driver.cuuint64_t(extent) for extent in geometry.extents],
        [driver.cuuint64_t(stride) for stride in geometry.strides],
        [driver.cuuint32_t(extent) for extent in geometry.box],
        [driver.cuuint32_t(1)] * len(geometry.box),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
        getattr(driver.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{promotions[promotion]}"),
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    encoded = check(result, f"cuTensorMapEncodeTiled for operand {tensor_map.operand} ({dtype}, {geometry})")
    return np.frombuffer(ctypes.string_at(int(encoded.getPtr()), _BYTES), np.uint8).copy()
