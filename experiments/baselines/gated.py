"""Fused ``silu(gate) * up`` as a Triton kernel: what stands between the two products of a gated block."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

__all__ = ["silu_multiply"]

# Eight elements of 2 bytes a thread: loads and stores of 16 bytes.
_BLOCK, _WARPS = 1024, 4


@triton.jit
def _silu_multiply(source, target, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    gate = tl.load(source + row * 2 * columns + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(source + row * 2 * columns + columns + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(target + row * columns + column, (gate * tl.sigmoid(gate) * up).to(tl.bfloat16), mask=inside)


def silu_multiply(both: Any, out: Any) -> None:
    """``out[t, n] = silu(both[t, n]) * both[t, columns + n]`` for bfloat16 tensors on the GPU."""
    rows, columns = out.shape
    _silu_multiply[(rows, triton.cdiv(columns, _BLOCK))](both, out, columns, BLOCK=_BLOCK, num_warps=_WARPS)
