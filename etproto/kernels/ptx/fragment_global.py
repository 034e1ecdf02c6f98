"""A wgmma accumulator into global memory, without a detour through shared memory.

Both functions take ``(accumulator, address, row, column, rows, columns, stride)``: the matrix at a global address
has `rows` x `columns` elements, and `stride` elements from row to row; row and column are those of the thread's
first element, as for `etproto.kernels.ptx.fragment.fragment_map`. What lies outside the matrix is left out. Pairs
of columns go together, so column and stride must be even, and the address a multiple of a pair.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from etproto.kernels.ptx.halves import half_bits, ptx_half
from etproto.kernels.ptx.inline import SIMULATED, compile_as, element_pointers
from etproto.kernels.ptx.wgmma import require_columns

__all__ = ["fragment_add_global", "fragment_store_global"]

_adding = threading.Lock()  # twins: Python has no atomic addition

# $0 is the address of a pair, $1 the number of its columns and of those after it that the matrix has, or 0.
_MASKS = ".reg .pred one, two; setp.eq.s32 one, $1, 1; setp.ge.s32 two, $1, 2;"
_STORE_REAL = f"{{{_MASKS} @two st.global.v2.f32 [$0], {{$2, $3}}; @one st.global.f32 [$0], $2;}}"
_ADD_REAL = (
    f"{{{_MASKS} @two red.relaxed.gpu.global.add.f32 [$0], $2; @two red.relaxed.gpu.global.add.f32 [$0+4], $3;"
    " @one red.relaxed.gpu.global.add.f32 [$0], $2;}"
)


def _store_half(name: str) -> str:
    return (
        f"{{{_MASKS} .reg .b32 t; .reg .b16 h; cvt.rn.{name}x2.f32 t, $3, $2; @two st.global.b32 [$0], t;"
        " cvt.u16.u32 h, t; @one st.global.b16 [$0], h;}"
    )


def _inside(n: int, row: int, column: int, rows: int, columns: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Which elements of the thread lie in the matrix, and their places in it."""
    element = np.arange(n // 2)
    at_row = int(row) + 8 * (element // 2 % 2)
    at_column = int(column) + 8 * (element // 4) + element % 2
    inside = (at_row < int(rows)) & (at_column < int(columns))
    return inside, (at_row * int(stride) + at_column)[inside]


def _elements(address: int, places: np.ndarray, dtype: type) -> np.ndarray:
    """The memory at `address`, as far as the last place."""
    size = (int(places.max(initial=-1)) + 1) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(int(address)), dtype)


@cache
def fragment_store_global(n: int, dtype: str) -> Callable[..., Any]:
    """``st.global``: a device function that stores an accumulator as "bfloat16", "float16" or "float32", by ordinary
    stores, which a release after them publishes; ``st.global.v2.f32`` or, rounded, ``st.global.b32`` a pair (sm_80).

    Raises
    ------
    ProgramError
        Another type, or a number of columns that wgmma does not have.
    """
    require_columns(n)
    real = dtype == "float32"
    name = "f32" if real else ptx_half(dtype)

    def store(accumulator, address, row, column, rows, columns, stride):
        inside, places = _inside(n, row, column, rows, columns, stride)
        values = np.asarray(accumulator[: n // 2], np.float32)[inside]
        memory = _elements(address, places, np.float32 if real else np.uint16)
        memory[places] = values if real else half_bits(values, dtype)

    store.__ptx__ = ("st.global", n, name)  # type: ignore[attr-defined]  # part of the key of cached cubins
    if not SIMULATED:
        _compile_pairs(store, n, _STORE_REAL if real else _store_half(name), 4 if real else 2)
    return store


@cache
def fragment_add_global(n: int) -> Callable[..., Any]:
    """``red.relaxed.gpu.global.add.f32``: a device function that adds an accumulator to a float32 matrix, each element
    atomically, in no order; relaxed, since a release after them publishes the sums (sm_70).
    """
    require_columns(n)

    def add(accumulator, address, row, column, rows, columns, stride):
        inside, places = _inside(n, row, column, rows, columns, stride)
        with _adding:
            _elements(address, places, np.float32)[places] += np.asarray(accumulator[: n // 2], np.float32)[inside]

    add.__ptx__ = ("red.global.add", n)  # type: ignore[attr-defined]  # part of the key of cached cubins
    if not SIMULATED:
        _compile_pairs(add, n, _ADD_REAL, 4)
    return add


def _compile_pairs(function: Callable[..., Any], n: int, ptx: str, element_bytes: int) -> None:
    """Emit `ptx` for every pair of columns of the accumulator."""
    from llvmlite import ir
    from numba.cuda import types

    word, long, real = ir.IntType(32), ir.IntType(64), ir.FloatType()
    function_type = ir.FunctionType(ir.VoidType(), [long, word, real, real])

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        places = element_pointers(context, builder, signature.args[0], values[0], n // 2)
        held = [builder.load(place) for place in places]
        address, row, column, rows, columns, stride = values[1:]
        instruction = ir.InlineAsm(function_type, ptx, "l,r,f,f,~{memory}", side_effect=True)
        left = builder.sub(columns, column)
        for h in range(2):
            at_row = builder.add(row, long(8 * h))
            place = builder.add(builder.mul(at_row, stride), column)
            first = builder.add(address, builder.mul(place, long(element_bytes)))
            some = builder.select(builder.icmp_signed("<", at_row, rows), left, long(0))
            for j in range(n // 8):
                pair = held[4 * j + 2 * h : 4 * j + 2 * h + 2]
                at = builder.add(first, long(8 * j * element_bytes))
                remaining = builder.trunc(builder.sub(some, long(8 * j)), word)
                builder.call(instruction, [at, remaining, *pair])
        return context.get_dummy_value()

    compile_as(function, lambda _context, accumulator, *_: (types.void(accumulator, *[types.int64] * 6), generate))
