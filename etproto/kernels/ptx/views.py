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

from etproto.kernels.ptx.inline import SIMULATED, compile_as, opaque

__all__ = ["array_address", "array_view"]

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
    from numba.cuda.np import arrayobj

    element = getattr(types, dtype)
    array = types.Array(element, ndim, "C")
    signature = array(*([types.int64] * (ndim + 1)))

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        result = context.make_array(array)(context, builder)
        element_type = context.get_data_type(element)
        # Opaque, or NVVM makes a load of a pointer of a load of an address: where the address lies in shared memory
        # and the pointer leads to global memory, its pass that infers state spaces goes round for ever.
        pointer = builder.inttoptr(opaque(builder, values[0]), ir.PointerType(element_type, addrspace=1))
        pointer = builder.addrspacecast(pointer, result.data.type)
        size = context.get_constant(types.intp, context.get_abi_sizeof(element_type))
        extents = [ir.Constant(ir.IntType(64), _UNBOUNDED)] if unbounded else list(values[1:])
        strides = [size]
        for extent in reversed(values[2:]):
            strides.insert(0, builder.mul(strides[0], extent))
        no_owner = cgutils.get_null_value(result.meminfo.type)
        arrayobj.populate_array(result, data=pointer, shape=extents, strides=strides, itemsize=size, meminfo=no_owner)
        return result._getvalue()

    compile_as(twin, lambda *_types: (signature, generate))


def array_address(array: np.ndarray) -> int:
    """Address of an array's first element, as bulk copies and vector loads take it."""
    return array.ctypes.data


def _compile_array_address() -> None:
    from llvmlite import ir
    from numba.cuda import types

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    compile_as(array_address, lambda _context, array: (types.int64(array), generate))


if not SIMULATED:
    _compile_array_address()
