"""Matrix fragments of one warp: mma.sync m16n8k16 (sm_80), ldmatrix (sm_75) and stmatrix (sm_90).

A fragment is what the 32 lanes hold together. Lane l of A (16 x 16) holds in a0 the columns ``2 (l % 4)`` and the
next of row ``l // 4``, in a1 those of row + 8, in a2 and a3 those of column + 8; of B (16 x 8) in b0 the rows
``2 (l % 4)`` and the next of column ``l // 4``, in b1 those of row + 8; of C (16 x 8) in c0 and c1 the columns
``2 (l % 4)`` and the next of row ``l // 4``, in c2 and c3 those of row + 8. Source: PTX ISA, "Matrix fragments
for mma.m16n8k16 with floating point type".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from etproto.kernels.ptx.halves import half_values, ptx_half
from etproto.kernels.ptx.inline import SIMULATED, compile_as, element_pointers, intrinsic_with_twin, store_struct
from etproto.kernels.ptx.simulated import hardware, thread_number

__all__ = ["ldmatrix_x2", "ldmatrix_x4", "mma_m16n8k16", "stmatrix_x4"]


@cache
def mma_m16n8k16(dtype: str = "bfloat16") -> Callable[..., Any]:
    """``mma.sync.aligned.m16n8k16.row.col.f32``: a device function (c, a0, a1, a2, a3, b0, b1) of one
    warp that adds to c.

    c is a local array of four float32 (``cuda.local.array(4, float32)``); the others are registers of two 16-bit
    floats each.
    """
    name = ptx_half(dtype)

    def multiply(c, a0, a1, a2, a3, b0, b1):
        given = hardware().warp_exchange(a0, a1, a2, a3, b0, b1).astype(np.int32)
        lane = thread_number() % 32
        values = half_values(np.ascontiguousarray(given).view(np.uint16), dtype).reshape(32, 6, 2)
        a, b = np.empty((2, 8, 2, 8), np.float32), np.empty((2, 8, 8), np.float32)
        for register, (row, column) in enumerate(((0, 0), (1, 0), (0, 1), (1, 1))):
            a[row, :, column, :] = values[:, register].reshape(8, 8)
        for register in range(2):
            b[register] = values[:, 4 + register].reshape(8, 4 * 2).T
        left, right = a.reshape(16, 16), b.reshape(16, 8)
        rows, columns = (lane // 4, lane // 4 + 8), slice(2 * (lane % 4), 2 * (lane % 4) + 2)
        product = np.concatenate([left[row] @ right[:, columns] for row in rows])
        c[:] = c + product

    multiply.__ptx__ = ("mma.m16n8k16", name)  # type: ignore[attr-defined]  # part of the key of cached cubins
    if not SIMULATED:
        _compile_mma(multiply, name)
    return multiply


def _compile_mma(multiply: Callable[..., Any], name: str) -> None:
    from llvmlite import ir
    from numba.cuda import types

    ptx = (
        f"mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32 {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}},"
        " {$8, $9}, {$10, $11, $12, $13};"
    )
    constraints = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
    real, word = ir.FloatType(), ir.IntType(32)
    function_type = ir.FunctionType(ir.LiteralStructType([real] * 4), [word] * 6 + [real] * 4)

    def typing(_context: Any, c: Any, *_registers: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            places = element_pointers(context, builder, signature.args[0], values[0], 4)
            instruction = ir.InlineAsm(function_type, ptx, constraints, side_effect=False)
            store_struct(
                builder, builder.call(instruction, [*values[1:], *(builder.load(place) for place in places)]), places
            )
            return context.get_dummy_value()

        return types.void(c, *[types.int32] * 6), generate

    compile_as(multiply, typing)


@intrinsic_with_twin(
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];",
    "=r,=r,=r,=r,r,~{memory}",
    ("int32",) * 4,
    ("int32",),
)
def ldmatrix_x4(address: int) -> tuple[int, int, int, int]:
    """``ldmatrix.sync.aligned.m8n8.x4``: four 8 x 8 matrices of 16-bit elements; lanes 8 m to 8 m + 7 give the
    addresses of the rows of matrix m. Lane l gets of each the elements ``2 (l % 4)`` and the next of row ``l // 4``.
    """
    return _load_matrices(address, 4)


@intrinsic_with_twin(
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {$0, $1}, [$2];", "=r,=r,r,~{memory}", ("int32",) * 2, ("int32",)
)
def ldmatrix_x2(address: int) -> tuple[int, int]:
    """``ldmatrix.sync.aligned.m8n8.x2``: as `ldmatrix_x4`, two matrices; the addresses of lanes from 16 on are unused
    (sm_75).
    """
    return _load_matrices(address, 2)


def _load_matrices(address: int, count: int) -> tuple[int, ...]:
    addresses = hardware().warp_exchange(address)[:, 0]
    lane = thread_number() % 32
    found = []
    for matrix in range(count):
        row = hardware().words(addresses[8 * matrix + lane // 4], 4, "int32")
        found.append(int(row[lane % 4]))
    hardware().wait_for_warp()  # all lanes have read before one goes on
    return tuple(found)


@intrinsic_with_twin(
    "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};", "r,r,r,r,r,~{memory}", None, ("int32",) * 5
)
def stmatrix_x4(address: int, a: int, b: int, c: int, d: int) -> None:
    """``stmatrix.sync.aligned.m8n8.x4``: the reverse of `ldmatrix_x4`."""
    addresses = hardware().warp_exchange(address)[:, 0]
    lane = thread_number() % 32
    for matrix, register in enumerate((a, b, c, d)):
        hardware().words(addresses[8 * matrix + lane // 4], 4, "int32")[lane % 4] = register
    hardware().wait_for_warp()
