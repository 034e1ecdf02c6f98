"""A block's part of a matrix product, for the bodies of the GEMM and of the Cholesky kinds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import gcd
from typing import Any

import numpy as np
from numba import cuda, float32

from etproto.kernels.ptx.inline import device_function

__all__ = ["block_product", "stage_bytes"]


@cache
def block_product(tile_m: int, tile_n: int, tile_k: int, transposed: bool, subtract: bool) -> Callable[..., Any]:
    """Make a device function that computes one tile of ``out = a @ b`` or of ``out -= a @ b.T``.

    All threads of the block take part. Operands are staged through shared memory, `tile_k` deep. A thread
    keeps up to 8 x 4 elements of the result in registers, far apart in the tile, so that neighbouring threads
    read neighbouring words. 128 threads take one pass over k for a 64 x 64 tile, fewer threads several. Every
    element is summed in ascending k, whatever their number.

    Parameters
    ----------
    tile_m, tile_n, tile_k : int
        Rows and columns of the tile, and the depth of one stage.
    transposed : bool
        b is given by rows, as (n, k) instead of (k, n).
    subtract : bool
        Subtract the product from `out` instead of storing it.

    Returns
    -------
    callable
        ``product(a, b, out, a_row, b_column, out_row, out_column, k_first, k_last, lower)`` on float32
        matrices. What lies beyond the arrays or `k_last` counts as zeros and is not stored, nor, with
        `lower`, what lies above the diagonal of `out`.
    """
    high = gcd(tile_m, min(8, max(1, tile_m * tile_n // 512)))
    wide = gcd(tile_n, 4)
    threads_m, threads_n = tile_m // high, tile_n // wide
    pieces, piece = threads_m * threads_n, high * wide
    # One element more in a row: no bank conflicts when neighbouring threads write neighbouring k.
    a_shape, b_shape = (tile_k, tile_m + 1), (tile_k, tile_n + 1)

    @device_function
    def product(a, b, out, a_row, b_column, out_row, out_column, k_first, k_last, lower):
        a_stage = cuda.shared.array(a_shape, float32)
        b_stage = cuda.shared.array(b_shape, float32)
        total = cuda.local.array(piece, float32)  # stays in registers: every loop over it is unrolled
        for first in range(0, pieces, cuda.blockDim.x):
            mine = first + cuda.threadIdx.x
            row = mine // threads_n
            column = mine % threads_n
            for item in range(piece):
                total[item] = np.float32(0)
            for k in range(k_first, k_last, tile_k):
                cuda.syncthreads()
                for item in range(cuda.threadIdx.x, tile_m * tile_k, cuda.blockDim.x):
                    m = item // tile_k
                    p = item % tile_k
                    value = np.float32(0)
                    if a_row + m < a.shape[0] and k + p < k_last:
                        value = a[a_row + m, k + p]
                    a_stage[p, m] = value
                for item in range(cuda.threadIdx.x, tile_n * tile_k, cuda.blockDim.x):
                    value = np.float32(0)
                    if transposed:
                        n = item // tile_k
                        p = item % tile_k
                        if b_column + n < b.shape[0] and k + p < k_last:
                            value = b[b_column + n, k + p]
                    else:
                        n = item % tile_n
                        p = item // tile_n
                        if b_column + n < b.shape[1] and k + p < k_last:
                            value = b[k + p, b_column + n]
                    b_stage[p, n] = value
                cuda.syncthreads()
                if mine < pieces:
                    for p in range(tile_k):
                        for x in range(high):
                            for y in range(wide):
                                total[x * wide + y] += (
                                    a_stage[p, row + x * threads_m] * b_stage[p, column + y * threads_n]
                                )
            if mine < pieces:
                for x in range(high):
                    for y in range(wide):
                        m = out_row + row + x * threads_m
                        n = out_column + column + y * threads_n
                        if m < out.shape[0] and n < out.shape[1] and (n <= m or not lower):
                            if subtract:
                                out[m, n] -= total[x * wide + y]
                            else:
                                out[m, n] = total[x * wide + y]

    return product


def stage_bytes(tile_m: int, tile_n: int, tile_k: int) -> int:
    """Shared memory of `block_product`: one stage of a and of b, with one element more in a row.

    Examples
    --------
    >>> stage_bytes(64, 64, 16)
    8320
    """
    return 4 * tile_k * (tile_m + tile_n + 2)
