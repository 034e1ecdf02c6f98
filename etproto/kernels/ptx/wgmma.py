"""Matrix products of a warpgroup from shared memory, wgmma m64nNk16 (sm_90a).

An accumulator is a local array of n / 2 float32 a thread, ``cuda.local.array(n // 2, float32)``. Since it is only
accessed through constant indices, the compiler keeps it in registers. (A tuple, the other way to say so in Numba,
sent NVVM into an endless loop when a loop of the worker carried it.)

Element ``4 j + 2 h + c`` of thread t of the warpgroup (warp w = t // 32, lane l = t % 32) is row
``16 w + l // 4 + 8 h``, column ``8 j + 2 (l % 4) + c``. Source: PTX ISA, "Register fragments for
wgmma.mma_async.m64nNk16".

A wgmma runs asynchronously: between issue and `wgmma_wait` its accumulator and its shared memory must be left
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from etproto.errors import ProgramError
from etproto.kernels.ptx.halves import half_values, ptx_half
from etproto.kernels.ptx.inline import SIMULATED, compile_as, element_pointers, intrinsic_with_twin, store_struct
from etproto.kernels.ptx.simulated import hardware, swizzled, thread_number

__all__ = ["require_columns", "wgmma", "wgmma_commit", "wgmma_fence", "wgmma_wait"]

_SPAN = {0: 0, 1: 128, 2: 64, 3: 32}  # bytes, by the descriptor's mode


def require_columns(n: int) -> None:
    """Refuse a number of columns that wgmma does not have.

    Raises
    ------
    ProgramError
        It is no multiple of 8 from 8 to 256.
    """
    if n % 8 or not 8 <= n <= 256:
        raise ProgramError(f"wgmma: columns must be a multiple of 8 from 8 to 256, got {n}")


@intrinsic_with_twin("wgmma.fence.sync.aligned;", "~{memory}", None, ())
def wgmma_fence() -> None:
    """``wgmma.fence``: orders earlier accesses to the accumulator's registers before the wgmma that follow (sm_90a)."""


@intrinsic_with_twin("wgmma.commit_group.sync.aligned;", "~{memory}", None, ())
def wgmma_commit() -> None:
    """``wgmma.commit_group``: the wgmma issued since the last one make a group, for which `wgmma_wait` can wait
    (sm_90a).
    """


def _rows(descriptor: int, rows: np.ndarray, dtype: str) -> np.ndarray:
    """float32[rows, 16]: rows of the K-major operand that a shared-memory descriptor names."""
    bits = int(descriptor)
    start, leading, stride = ((bits >> place & 0x3FFF) << 4 for place in (0, 16, 32))
    span = _SPAN[(bits >> 62) & 3]
    byte = np.arange(32)
    if span == 0:  # 8 rows of 16 bytes lie together, and the next 8 columns elsewhere
        byte = byte // 16 * leading + byte % 16
    first = start + rows // 8 * stride + rows % 8 * (span or 16)
    addresses = swizzled(first[:, None] + byte, span)
    return half_values(np.ascontiguousarray(hardware().window[addresses]).view(np.uint16), dtype)


@cache
def wgmma(n: int, dtype: str = "bfloat16") -> Callable[..., Any]:
    """``wgmma.mma_async.sync.aligned.m64nNk16.f32``: a device function (accumulator, a, b, keep) that adds to the
    accumulator.

    a and b are descriptors of K-major operands in shared memory, 64 x 16 and n x 16 (`etproto.layouts`); with
    keep = 0 the old accumulator is ignored.
    """
    require_columns(n)
    name = ptx_half(dtype)

    def multiply(accumulator, a, b, keep):
        thread = thread_number() % 128
        warp, lane = thread // 32, thread % 32
        left = _rows(a, 16 * warp + lane // 4 + np.array([0, 8]), dtype)
        column = (8 * np.arange(n // 8)[:, None] + 2 * (lane % 4) + np.arange(2)).ravel()
        product = left @ _rows(b, column, dtype).T  # (h, j and c)
        product = product.reshape(2, n // 8, 2).transpose(1, 0, 2).ravel()
        accumulator[:] = accumulator + product if int(keep) else product

    multiply.__ptx__ = ("wgmma", n, name)  # type: ignore[attr-defined]  # part of the key of cached cubins
    if not SIMULATED:
        _compile_wgmma(multiply, n, name)
    return multiply


def _compile_wgmma(multiply: Callable[..., Any], n: int, name: str) -> None:
    from numba.cuda import types

    count = n // 2
    registers = ", ".join(f"${number}" for number in range(count))
    ptx = (
        f"{{.reg .pred p; setp.ne.b32 p, ${2 * count + 2}, 0; wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{name}.{name}"
        f" {{{registers}}}, ${2 * count}, ${2 * count + 1}, p, 1, 1, 0, 0;}}"
    )
    # The accumulator goes in and out by the same registers.
    constraints = ",".join(["=f"] * count + [str(number) for number in range(count)] + ["l", "l", "r"])
    compile_as(multiply, _in_place(ptx, constraints, count, (types.int64, types.int64, types.int32)))


def _in_place(ptx: str, constraints: str, count: int, others: tuple[Any, ...]) -> Callable[..., Any]:
    """Typing of an instruction that takes an accumulator and `others`, and gives the accumulator back."""
    from llvmlite import ir
    from numba.cuda import types

    real = ir.FloatType()
    words = [ir.IntType(one.bitwidth) for one in others]
    function_type = ir.FunctionType(ir.LiteralStructType([real] * count), [real] * count + words)

    def typing(_context: Any, accumulator: Any, *_others: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            places = element_pointers(context, builder, signature.args[0], values[0], count)
            held = [builder.load(place) for place in places]
            instruction = ir.InlineAsm(function_type, ptx, constraints, side_effect=True)
            store_struct(builder, builder.call(instruction, [*held, *values[1:]]), places)
            return context.get_dummy_value()

        return types.void(accumulator, *others), generate

    return typing


@cache
def wgmma_wait(n: int, pending: int) -> Callable[..., Any]:
    """``wgmma.wait_group.sync.aligned``: a device function (accumulator): until at most `pending` groups of the
    warpgroup are unfinished. Taking the accumulator through it keeps its registers in place until then.
    """
    require_columns(n)

    def wait(accumulator):
        hardware().wait_for_warp()  # all lanes have read shared memory when it returns

    wait.__ptx__ = ("wgmma.wait_group", n, pending)  # type: ignore[attr-defined]  # part of the key of cached cubins
    if not SIMULATED:
        count = n // 2
        constraints = ",".join(["=f"] * count + [str(number) for number in range(count)] + ["~{memory}"])
        compile_as(wait, _in_place(f"wgmma.wait_group.sync.aligned {pending};", constraints, count, ()))
    return wait
