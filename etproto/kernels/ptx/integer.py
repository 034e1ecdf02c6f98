"""Integer division as the records need it: by a positive divisor, rounding down, on values that fit 32 bits.

Numba's own ``//`` on 64-bit integers emits a slow path, a zero check and sign handling at every use: ten
times the code.
"""

from __future__ import annotations

from etproto.kernels.ptx.inline import intrinsic_with_twin

__all__ = ["floor_divide", "floor_modulo"]

_DIVIDE = (
    "{{.reg .s32 a, b, q, r; .reg .pred p; cvt.u32.u64 a, $1; cvt.u32.u64 b, $2; div.s32 q, a, b; mul.lo.s32 r, q, b;"
    " sub.s32 r, a, r; setp.lt.s32 p, r, 0; {adjust} cvt.s64.s32 $0, {result};}}"
)


@intrinsic_with_twin(_DIVIDE.format(adjust="@p sub.s32 q, q, 1;", result="q"), "=l,l,l", "int64", ("int64", "int64"))
def floor_divide(numerator: int, divisor: int) -> int:
    """``div.s32``, corrected to round down; `divisor` is positive, both fit 32 bits."""
    return numerator // divisor


@intrinsic_with_twin(_DIVIDE.format(adjust="@p add.s32 r, r, b;", result="r"), "=l,l,l", "int64", ("int64", "int64"))
def floor_modulo(numerator: int, divisor: int) -> int:
    """``div.s32`` and the remainder, in ``0 .. divisor - 1``; `divisor` is positive, both fit 32 bits."""
    return numerator % divisor
