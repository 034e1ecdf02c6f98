"""Arrays over device addresses: how tile bodies see their operands.

Addresses and extents are arguments of the run, so replacing an array never compiles anything.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from etproto.kernels.ptx.inline import SIMULATED

__all__ = ["array_view"]


def _twin(dtype: str, ndim: int) -> Callable[..., np.ndarray]:
    element = np.dtype(dtype)

    def view(address: int, *extents: int) -> np.ndarray:
        shape = tuple(int(extent) for extent in extents)
        size = int(np.prod(shape)) * element.itemsize
        if size == 0:
            return np.empty(shape, element)
        return np.frombuffer((ctypes.c_char * size).from_address(int(address)), dtype=element).reshape(shape)

    return view


def array_view(dtype: str, ndim: int) -> Callable[..., Any]:
    """A device function ``view(address, extent, ...)`` that returns a C-contiguous array of `ndim` dimensions.

    The address is converted to the global state space, so that elements are accessed by ``ld.global``/``st.global``.
    """
    if SIMULATED:
        return _twin(dtype, ndim)
    from llvmlite import ir
    from numba.cuda import cgutils, types
    from numba.cuda.extending import intrinsic
    from numba.cuda.np import arrayobj

    element = getattr(types, dtype)
    array = types.Array(element, ndim, "C")
    signature = array(*([types.int64] * (ndim + 1)))

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        result = context.make_array(array)(context, builder)
        element_type = context.get_data_type(element)
        pointer = builder.inttoptr(values[0], ir.PointerType(element_type, addrspace=1))
        pointer = builder.addrspacecast(pointer, result.data.type)
        size = context.get_constant(types.intp, context.get_abi_sizeof(element_type))
        strides = [size]
        for extent in reversed(values[2:]):
            strides.insert(0, builder.mul(strides[0], extent))
        arrayobj.populate_array(
            result, data=pointer, shape=list(values[1:]), strides=strides, itemsize=size, meminfo=cgutils.get_null_value(result.meminfo.type)
        )
        return result._getvalue()

    definitions = {
        1: lambda typing_context, address, a: (signature, generate),
        2: lambda typing_context, address, a, b: (signature, generate),
        3: lambda typing_context, address, a, b, c: (signature, generate),
        4: lambda typing_context, address, a, b, c, d: (signature, generate),
    }
    return intrinsic(definitions[ndim])
