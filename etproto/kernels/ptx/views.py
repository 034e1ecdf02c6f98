"""Arrays over device addresses: how tile bodies see their operands.

Addresses and extents are arguments of the run, so replacing an array never compiles anything.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from etproto.kernels.ptx.inline import SIMULATED

__all__ = ["array_view"]

_UNBOUNDED = 1 << 40


def _view(dtype: str, address: int, shape: tuple[int, ...]) -> np.ndarray:
    element = np.dtype(dtype)
    size = math.prod(shape) * element.itemsize
    if size == 0:
        return np.empty(shape, element)
    memory = (ctypes.c_char * size).from_address(int(address))
    return np.frombuffer(memory, dtype=element).reshape(shape)


@cache
def array_view(dtype: str, ndim: int, *, unbounded: bool = False) -> Callable[..., Any]:
    """A device function ``view(address, extent, ...)`` that returns a C-contiguous array of `ndim` dimensions
    (1 to 4).

    In kernels the address is converted to the global state space, so that elements are accessed by
    ``ld.global`` and ``st.global``. Called from Python it returns a NumPy array over host memory.
    """
    twins: dict[int, Callable[..., np.ndarray]] = {
        1: lambda address, a: _view(dtype, address, (int(a),)),
        2: lambda address, a, b: _view(dtype, address, (int(a), int(b))),
        3: lambda address, a, b, c: _view(dtype, address, (int(a), int(b), int(c))),
        4: lambda address, a, b, c, d: _view(dtype, address, (int(a), int(b), int(c), int(d))),
    }
    twin = twins[ndim]
    twin.__ptx__ = (dtype, ndim, unbounded)  # type: ignore[attr-defined]  # part of the key under which cubins are cached
    if not SIMULATED:
        _compile_as_view(twin, dtype, ndim, unbounded)
    return twin


def _compile_as_view(twin: Callable[..., np.ndarray], dtype: str, ndim: int, unbounded: bool) -> None:
    from llvmlite import ir
    from numba.cuda import cgutils, types
    from numba.cuda.extending import intrinsic, overload
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
        extents = [ir.Constant(ir.IntType(64), _UNBOUNDED)] if unbounded else list(values[1:])
        strides = [size]
        for extent in reversed(values[2:]):
            strides.insert(0, builder.mul(strides[0], extent))
        no_owner = cgutils.get_null_value(result.meminfo.type)
        arrayobj.populate_array(result, data=pointer, shape=extents, strides=strides, itemsize=size, meminfo=no_owner)
        return result._getvalue()

    definitions = {
        1: lambda typing_context, address, a: (signature, generate),
        2: lambda typing_context, address, a, b: (signature, generate),
        3: lambda typing_context, address, a, b, c: (signature, generate),
        4: lambda typing_context, address, a, b, c, d: (signature, generate),
    }
    emit = intrinsic(definitions[ndim])
    calls = {
        1: lambda address, a: lambda address, a: emit(address, a),
        2: lambda address, a, b: lambda address, a, b: emit(address, a, b),
        3: lambda address, a, b, c: lambda address, a, b, c: emit(address, a, b, c),
        4: lambda address, a, b, c, d: lambda address, a, b, c, d: emit(address, a, b, c, d),
    }
    # Numba lets only inlined functions return an array that they were not given.
    overload(twin, inline="always")(calls[ndim])
