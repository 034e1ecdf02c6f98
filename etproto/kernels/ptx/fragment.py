"""What becomes of a wgmma accumulator (`etproto.kernels.ptx.wgmma`): functions of its elements, and stores.

Elements are registers, so a loop over them must be unrolled: these functions are emitted element by element. Where
an accumulator has more than n columns, as after `fragment_zip`, they take its first n. Only sm_90a has such
accumulators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from etproto.errors import ProgramError
from etproto.kernels.ptx.halves import half_bits, ptx_half
from etproto.kernels.ptx.inline import SIMULATED, compile_as, element_pointers
from etproto.kernels.ptx.simulated import hardware, swizzled, thread_number
from etproto.kernels.ptx.wgmma import require_columns

__all__ = ["fragment_map", "fragment_rotate", "fragment_store", "fragment_zero", "fragment_zip"]


def _caller(typing_context: Any, function: Callable[..., Any], types_given: tuple[Any, ...]) -> Callable[..., Any]:
    """``call(context, builder, values)``: emits a call of a device function with arguments of these types, whose
    result is a float32.
    """
    from numba.cuda import types

    kind = typing_context.resolve_value_type(function)
    signature = kind.get_call_type(typing_context, types_given, {})

    def call(context: Any, builder: Any, values: list[Any]) -> Any:
        cast = [
            context.cast(builder, value, given, wanted)
            for value, given, wanted in zip(values, types_given, signature.args, strict=True)
        ]
        result = context.get_function(kind, signature)(builder, cast)
        return context.cast(builder, result, signature.return_type, types.float32)

    return call


@cache
def fragment_zero(n: int) -> Callable[..., None]:
    """A device function (accumulator): zeros; ``mov.f32`` of 0."""
    require_columns(n)

    def zero(accumulator):
        accumulator[: n // 2] = 0

    zero.__ptx__ = ("zero", n)  # type: ignore[attr-defined]  # part of the key under which cubins are cached
    if not SIMULATED:
        from llvmlite import ir

        nothing = ir.Constant(ir.FloatType(), 0.0)
        compile_as(zero, _elementwise(n // 2, lambda _context, _builder, held, _values: [nothing] * len(held)))
    return zero


def _elementwise(count: int, change: Callable[..., Any], *others: Any, typed: Any = None) -> Callable[..., Any]:
    """Typing of a function that replaces an accumulator's elements by ``change(context, builder, elements, values)``,
    `values` being the other arguments, of the types `others`.
    """
    from numba.cuda import types

    def typing(typing_context: Any, accumulator: Any, *given: Any) -> Any:
        wanted = tuple(given[number] if other is None else other for number, other in enumerate(others))
        prepared = typed(typing_context, *given) if typed else None

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            places = element_pointers(context, builder, signature.args[0], values[0], count)
            held = [builder.load(place) for place in places]
            rest = values[1:] if prepared is None else (prepared, *values[1:])
            for place, value in zip(places, change(context, builder, held, rest), strict=False):
                builder.store(value, place)
            return context.get_dummy_value()

        return types.void(accumulator, *wanted), generate

    return typing


@cache
def fragment_map(n: int, function: Callable[..., Any]) -> Callable[..., None]:
    """A device function (accumulator, row, column, extra): every element becomes ``function(value, row, column,
    extra)``; plain arithmetic and ``ld.global``, as the function has it.

    The caller gives row and column of the thread's first element. `extra` is passed on as it is.
    """
    require_columns(n)
    elements = [(h, j, c) for j in range(n // 8) for h in range(2) for c in range(2)]

    def apply(accumulator, row, column, extra):
        for number, (h, j, c) in enumerate(elements):
            accumulator[number] = function(accumulator[number], row + 8 * h, column + 8 * j + c, extra)

    if not SIMULATED:
        from numba.cuda import types

        def typed(typing_context: Any, row: Any, column: Any, extra: Any) -> Any:
            return _caller(typing_context, function, (types.float32, types.int64, types.int64, extra))

        def change(context: Any, builder: Any, held: Any, values: Any) -> Any:
            call, row, column, extra = values
            return [
                call(
                    context,
                    builder,
                    [value, builder.add(row, row.type(8 * h)), builder.add(column, row.type(8 * j + c)), extra],
                )
                for value, (h, j, c) in zip(held, elements, strict=True)
            ]

        compile_as(apply, _elementwise(n // 2, change, types.int64, types.int64, None, typed=typed))
    return apply


@cache
def fragment_zip(n: int, function: Callable[..., Any]) -> Callable[..., None]:
    """A device function (accumulator): each element in the first half of the columns becomes ``function(first,
    second)`` of itself and its counterpart in the second, for gated activations; plain arithmetic, ``fma.f32``.
    """
    require_columns(n)
    if n % 16:
        raise ProgramError(f"fragment_zip: half of the columns must be a multiple of 8, got {n} columns")
    half = n // 4

    def combine(accumulator):
        for e in range(half):
            accumulator[e] = function(accumulator[e], accumulator[half + e])

    if not SIMULATED:
        from numba.cuda import types

        def typed(typing_context: Any) -> Any:
            return _caller(typing_context, function, (types.float32, types.float32))

        def change(context: Any, builder: Any, held: Any, values: Any) -> Any:
            return [values[0](context, builder, [held[e], held[half + e]]) for e in range(half)]

        compile_as(combine, _elementwise(2 * half, change, typed=typed))
    return combine


@cache
def fragment_rotate(n: int, count: int) -> Callable[..., None]:
    """A device function (accumulator): elements of the first n columns move `count` places to the front, the first ones
    to the end, so that each pass of a loop finds its columns in the same registers; ``mov.f32``.
    """
    require_columns(n)
    size = n // 2

    def rotate(accumulator):
        accumulator[:size] = np.roll(accumulator[:size], -count)

    rotate.__ptx__ = ("rotate", n, count)  # type: ignore[attr-defined]  # part of the key of cached cubins
    if not SIMULATED:
        shift = count % size
        compile_as(rotate, _elementwise(size, lambda _context, _builder, held, _values: held[shift:] + held[:shift]))
    return rotate


@cache
def fragment_store(n: int, columns: int, dtype: str) -> Callable[..., Any]:
    """``stmatrix.sync.aligned.m8n8.x4``: a device function (accumulator, address): the first `columns` columns of the
    warpgroup's 64 rows, rounded to `dtype`, into shared memory at `address`, a multiple of 1024.

    They lie as a bulk copy of a box of 64 rows reads them, swizzled over a row (sm_90).

    Parameters
    ----------
    columns : int
        16, 32 or 64: rows of 32, 64 or 128 bytes.
    """
    require_columns(n)
    if columns not in (16, 32, 64) or columns > n:
        raise ProgramError(f"fragment_store: columns must be 16, 32 or 64 and at most {n}, got {columns}")
    name = ptx_half(dtype)
    pitch = 2 * columns
    element = np.arange(columns // 2)
    j, h, c = element // 4, element // 2 % 2, element % 2

    def store(accumulator, address):
        thread = thread_number() % 128
        warp, lane = thread // 32, thread % 32
        row, column = 16 * warp + lane // 4 + 8 * h, 8 * j + 2 * (lane % 4) + c
        at = swizzled(int(address) + row * pitch + 2 * column, pitch)
        hardware().window.view(np.uint16)[at // 2] = half_bits(np.array(accumulator[: columns // 2]), dtype)

    store.__ptx__ = ("stmatrix", n, columns, name)  # type: ignore[attr-defined]  # part of the key of cached cubins
    if not SIMULATED:
        _compile_store(store, columns, name)
    return store


def _compile_store(store: Callable[..., Any], columns: int, name: str) -> None:
    from llvmlite import ir
    from numba.cuda import types

    pitch = 2 * columns
    word, real = ir.IntType(32), ir.FloatType()
    pairs = " ".join(f"cvt.rn.{name}x2.f32 p{i}, ${2 * i + 2}, ${2 * i + 1};" for i in range(4))
    ptx = f"{{.reg .b32 p<4>; {pairs} stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {{p0, p1, p2, p3}};}}"
    store_type = ir.FunctionType(ir.VoidType(), [word] + [real] * 8)
    read_type = ir.FunctionType(word, [])

    def read(builder: Any, register: str) -> Any:
        return builder.call(ir.InlineAsm(read_type, f"mov.u32 $0, %{register};", "=r", side_effect=False), [])

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        places = element_pointers(context, builder, signature.args[0], values[0], columns // 2)
        held, base = [builder.load(place) for place in places], values[1]
        lane, thread = read(builder, "laneid"), read(builder, "tid.x")

        def bits(value: Any, shift: int, mask: int) -> Any:
            return builder.and_(builder.lshr(value, word(shift)), word(mask))

        # Lane l gives the address of row l % 8 of matrix l // 8; matrices go down 8 rows, then right 8 columns.
        row = builder.add(bits(lane, 0, 7), builder.mul(bits(lane, 3, 1), word(8)))
        row = builder.add(row, builder.mul(bits(thread, 5, 3), word(16)))
        first = builder.add(base, builder.mul(row, word(pitch)))
        first = builder.add(first, builder.mul(bits(lane, 4, 1), word(16)))
        for q in range(columns // 16):
            address = builder.add(first, word(32 * q))
            chunk = builder.shl(bits(address, 7, pitch // 16 - 1), word(4))
            given = held[8 * q : 8 * q + 8]
            instruction = ir.InlineAsm(store_type, ptx, ",".join(["r"] + ["f"] * 8 + ["~{memory}"]), side_effect=True)
            builder.call(instruction, [builder.xor(address, chunk), *given])
        return context.get_dummy_value()

    compile_as(store, lambda _context, accumulator, _address: (types.void(accumulator, types.int32), generate))
