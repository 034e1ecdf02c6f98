"""``Y = X W^T`` for up to 256 rows of X on tensor cores, weights on the M side.

X is (batch, K), W is (N, K), Y is (batch, N). With few rows, tiles of 128 rows of X would leave most of the tensor
cores idle and most multiprocessors without a task. Here the 128 rows of a tile are rows of W, and all of X is the
other side. Copies of W depend on no event, so the loader starts them before X is known.

Coordinate (j, s): rows 128 j to 128 j + 127 of W, slice s of K. One slice writes Y; with several, slice s writes
its float32 sums to ``p[s]``, for `etproto.kernels.tiles.reduction.reduce_parts` to add up in a fixed order. Slices
are multiples of 128 columns, so the last ones may be shorter, or empty and then zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32

from etproto.errors import ProgramError
from etproto.kernels.ptx.barrier import mbarrier_expect_transaction
from etproto.kernels.ptx.bulk import tma_load_2d
from etproto.kernels.ptx.fragment import fragment_map, fragment_zero
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.masked import opaque_index, store_bits16_if, store_float32_if
from etproto.kernels.ptx.views import array_address
from etproto.kernels.ptx.wgmma import wgmma, wgmma_commit, wgmma_fence, wgmma_wait
from etproto.kernels.roles import next_stage, release_stage, stage_address, wait_full
from etproto.kernels.tiles.epilogue import Half, half
from etproto.layouts import descriptor_bits
from etproto.tensor_maps import TensorMap
from etproto.tile_kind import Operand, TileKind

__all__ = ["MOST_BATCH", "STEP", "TILE_N", "skinny_multiply", "slice_columns"]

MOST_BATCH = 256
TILE_N = 128  # rows of W a task
STEP = 128  # columns of K a stage: two panels of 128 bytes
_PANEL = 64
_GROUP_BYTES = 64 * 2 * _PANEL  # 64 rows of a panel: those of one warpgroup
_W_PANEL = TILE_N * 2 * _PANEL
_BYTES_PER_US = 34_000.0  # of memory traffic, for one multiprocessor of an H200


def slice_columns(depth: int, slices: int) -> int:
    """Columns of each slice of K but the last ones: the least multiple of 128 that is enough.

    Examples
    --------
    >>> slice_columns(4096, 4), slice_columns(1000, 3)
    (1024, 384)
    """
    return -(-depth // (slices * STEP)) * STEP


@cache
def skinny_multiply(batch: int, slices: int = 1, *, dtype: str = "bfloat16") -> TileKind:
    """The kind for up to `batch` rows of X; operands ``x, w, y``, or ``x, w, p`` with several slices.

    Parameters
    ----------
    batch : int
        Most rows of X, 1 to 256; rounded up to a multiple of 8.
    slices : int
        Slices of K.
    dtype : {"bfloat16", "float16"}
        Type of x, w and y; p is float32.

    Raises
    ------
    ProgramError
        A batch or a number of slices that there is not.
    """
    if not 1 <= batch <= MOST_BATCH:
        raise ProgramError(f"skinny_multiply: batch must be 1 to {MOST_BATCH}, got {batch}")
    if slices < 1:
        raise ProgramError(f"skinny_multiply: slices must be at least 1, got {slices}")
    bits, columns = half(dtype), -(-batch // 8) * 8
    whole = slices == 1
    output = Operand("y", dtype, mode="out") if whole else Operand("p", "float32", 3, mode="out")

    def tile(j: int, s: int, x: np.ndarray, w: np.ndarray) -> tuple[slice, slice]:
        length, depth = slice_columns(x.shape[1], slices), x.shape[1]
        rows = slice(j * TILE_N, min((j + 1) * TILE_N, w.shape[0]))
        return rows, slice(min(s * length, depth), min((s + 1) * length, depth))

    def reference(j: int, s: int, x: np.ndarray, w: np.ndarray, out: np.ndarray) -> None:
        rows, k = tile(j, s, x, w)
        value = bits.to_float32(x[:, k]) @ bits.to_float32(w[rows, k]).T
        if whole:
            out[:, rows] = bits.from_float32(value)
        else:
            out[s, :, rows] = value

    def reads(j: int, s: int, x: np.ndarray, w: np.ndarray, out: np.ndarray) -> dict[str, tuple[slice, ...]]:
        rows, k = tile(j, s, x, w)
        return {"x": (slice(0, x.shape[0]), k), "w": (rows, k)}

    def writes(j: int, s: int, x: np.ndarray, w: np.ndarray, out: np.ndarray) -> dict[str, tuple[slice, ...]]:
        rows, _ = tile(j, s, x, w)
        inner = (slice(0, x.shape[0]), rows)
        return {"y": inner} if whole else {"p": (slice(s, s + 1), *inner)}

    return TileKind(
        name=f"skinny_multiply_{columns}" + "_parts" * (not whole),
        reference=reference,
        coordinates=2,
        operands=(Operand("x", dtype), Operand("w", dtype), output),
        portable=_portable(bits, slices),
        roles=_roles(bits, columns, slices),
        tensor_maps=(TensorMap("x", (columns, _PANEL)), TensorMap("w", (TILE_N, _PANEL))),
        stage_bytes=2 * (_W_PANEL + columns * 2 * _PANEL),
        reads=reads,
        writes=writes,
        cost=lambda j, s, x, w, out: 0.5 + 2 * TILE_N * slice_columns(x.shape[1], slices) / _BYTES_PER_US,
    )


def _bounds(slices: int) -> Callable[..., Any]:
    """Device function (s, depth) -> (first column, end) of a slice."""

    def bounds(s, depth):
        length = (depth + (slices * STEP - 1)) // (slices * STEP) * STEP
        return min(s * length, depth), min((s + 1) * length, depth)

    return device_function(bounds)


def _writer(bits: Half, whole: bool) -> Callable[..., Any]:
    """Device function (value, row of W, row of X, (output, slice)) -> value, which stores the value."""
    from_float32 = bits.device_from_float32

    def write_y(value, n, b, given):
        out = given[0]
        inside = (b < out.shape[0]) & (n < out.shape[1])
        store_bits16_if(array_address(out) + 2 * (b * out.shape[1] + n), from_float32(value), inside)
        return value

    def write_p(value, n, b, given):
        out = given[0]
        inside = (b < out.shape[1]) & (n < out.shape[2])
        place = (given[1] * out.shape[1] + b) * out.shape[2] + n
        store_float32_if(array_address(out) + 4 * place, value, inside)
        return value

    return device_function(write_y if whole else write_p)


def _portable(bits: Half, slices: int) -> Callable[..., None]:
    """SIMT body: an element a thread at a time, for devices without these tensor cores."""
    to_float32, bounds, write = bits.device_to_float32, _bounds(slices), _writer(bits, slices == 1)

    def portable(j, s, x, w, out):
        first, end = bounds(s, x.shape[1])
        for item in range(cuda.threadIdx.x, TILE_N * x.shape[0], cuda.blockDim.x):
            n = j * TILE_N + item % TILE_N
            b = item // TILE_N
            if n < w.shape[0]:
                total = np.float32(0)
                for k in range(first, end):
                    total += to_float32(x[b, k]) * to_float32(w[n, k])
                write(total, n, b, (out, s))

    return portable


def _roles(bits: Half, columns: int, slices: int) -> dict[str, Callable[..., Any]]:
    bounds, swizzled, held = _bounds(slices), descriptor_bits(128), columns // 2
    x_panel = columns * 2 * _PANEL
    x_at = 2 * _W_PANEL
    zero, multiply, wait_one = fragment_zero(columns), wgmma(columns, bits.dtype), wgmma_wait(columns, 1)
    wait_all = wgmma_wait(columns, 0)
    store = fragment_map(columns, _writer(bits, slices == 1))

    def stages(j, s, x, w, out, map_x, map_w):
        first, end = bounds(s, x.shape[1])
        return (end - first + (STEP - 1)) // STEP

    def ahead(stage, full, step, j, s, x, w, out, map_x, map_w):
        first, _end = bounds(s, x.shape[1])
        mbarrier_expect_transaction(full, 2 * _W_PANEL)
        tma_load_2d(stage, map_w, first + step * STEP, j * TILE_N, full)
        tma_load_2d(stage + _W_PANEL, map_w, first + step * STEP + _PANEL, j * TILE_N, full)

    def load(stage, full, step, j, s, x, w, out, map_x, map_w):
        first, _end = bounds(s, x.shape[1])
        mbarrier_expect_transaction(full, 2 * x_panel)
        tma_load_2d(stage + x_at, map_x, first + step * STEP, 0, full)
        tma_load_2d(stage + x_at + x_panel, map_x, first + step * STEP + _PANEL, 0, full)

    def compute(ring, stage, phase, turn, j, s, x, w, out, map_x, map_w):
        group = cuda.threadIdx.x // 128
        thread = cuda.threadIdx.x % 128
        first, end = bounds(s, x.shape[1])
        steps = (end - first + (STEP - 1)) // STEP
        accumulator = cuda.local.array(held, float32)
        zero(accumulator)
        previous = stage
        for step in range(steps):
            wait_full(ring, stage, phase)
            address = stage_address(ring, stage)
            left = ((address + group * _GROUP_BYTES) >> 4) | swizzled
            right = ((address + x_at) >> 4) | swizzled
            wgmma_fence()
            for _ in range(2):
                multiply(accumulator, left, right, 1)
                multiply(accumulator, left + 2, right + 2, 1)
                multiply(accumulator, left + 4, right + 4, 1)
                multiply(accumulator, left + 6, right + 6, 1)
                left += _W_PANEL // 16
                right += x_panel // 16
            wgmma_commit()
            wait_one(accumulator)  # the step before is done
            if step > 0:
                release_stage(ring, previous)
            previous = stage
            stage, phase = next_stage(ring, stage, phase)
        wait_all(accumulator)
        if steps > 0:
            release_stage(ring, previous)
        row = j * TILE_N + group * 64 + (thread // 32) * 16 + (thread % 32) // 4
        store(accumulator, opaque_index(row), opaque_index((thread % 4) * 2), (out, s))
        return stage, phase, turn

    return {"stages": stages, "ahead": ahead, "load": load, "compute": compute}
