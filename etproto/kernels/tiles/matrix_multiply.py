"""``C = epilogue(A B^T)`` on tensor cores: A is (M, K), B is (N, K), both row-major 16-bit floats; sums are float32.

A task makes 128 x tile_n elements of C: those of row tile ``g * group + r`` and column tile j, at the coordinate
(g, j, r). Tasks that follow each other so share their columns of B within groups of rows, which keeps both in
the second-level cache; those past the last row tile do nothing. Stages hold 64 columns of A and of B as bulk
copies leave them, swizzled over 128 bytes; each consumer warpgroup multiplies 64 rows. Copies fill what lies
outside an array with zeros and leave out what lies outside C, so M, N and K need not be multiples of anything but
8 elements (N and K), which bulk copies ask of row lengths.

With a gated activation B has two halves, gate over up: row n of either half makes column n of C, and
``C = act(A gate^T) * (A up^T)``. A tile then takes tile_n / 2 rows of each half.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32

from etproto.errors import ProgramError
from etproto.kernels.ptx.barrier import mbarrier_expect_transaction, named_barrier
from etproto.kernels.ptx.bulk import (
    bulk_commit,
    bulk_wait_0,
    bulk_wait_read_0,
    proxy_fence,
    proxy_fence_shared,
    tma_load_2d,
    tma_store_2d,
)
from etproto.kernels.ptx.fragment import (
    fragment_map,
    fragment_rotate,
    fragment_store,
    fragment_zero,
    fragment_zip,
)
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.masked import load_bits16_if
from etproto.kernels.ptx.views import array_address
from etproto.kernels.ptx.wgmma import wgmma, wgmma_commit, wgmma_fence, wgmma_wait
from etproto.kernels.roles import (
    announce_staged,
    next_stage,
    release_stage,
    release_staging,
    stage_address,
    staging_address,
    wait_full,
    wait_staged,
    wait_unstaged,
)
from etproto.kernels.tiles.epilogue import ACTIVATIONS, GATED, Half, half
from etproto.layouts import descriptor_bits
from etproto.tensor_maps import TensorMap
from etproto.tile_kind import Operand, TileKind

__all__ = ["TILE_M", "TILE_K", "matrix_multiply"]

TILE_M, TILE_K = 128, 64
_GROUP_ROWS = 64  # rows of a consumer warpgroup
_PART = 64  # columns that go through a staging buffer at once: 128 bytes
_ROW_BYTES = 2 * TILE_K
_FLOPS_PER_US = 5.5e6  # of one multiprocessor


@cache
def matrix_multiply(
    tile_n: int = 256,
    *,
    group: int = 1,
    dtype: str = "bfloat16",
    activation: str = "none",
    bias: bool = False,
    residual: bool = False,
) -> TileKind:
    """The kind for one tile width and epilogue; operands ``a, b[, bias][, residual], c``, coordinates (g, j, r).

    Parameters
    ----------
    tile_n : int
        Columns of a tile, as many as rows of B that it takes: a multiple of 64, at most 256 (of 128, gated).
    group : int
        Row tiles of a group.
    dtype : {"bfloat16", "float16"}
        Type of every operand.
    activation : str
        One of `etproto.kernels.tiles.epilogue.ACTIVATIONS`.
    bias : bool
        Add ``bias[n]``, after the product and before the activation; not with a gated one.
    residual : bool
        Add ``residual[m, n]`` at the end.

    Raises
    ------
    ProgramError
        A tile width or an epilogue that there is not.
    """
    gated = activation in GATED
    multiple = 2 * _PART if gated else _PART
    if tile_n % multiple or not multiple <= tile_n <= 256:
        raise ProgramError(f"matrix_multiply: tile_n must be a multiple of {multiple} up to 256, got {tile_n}")
    if group < 1:
        raise ProgramError(f"matrix_multiply: group must be at least 1, got {group}")
    if activation not in ACTIVATIONS:
        raise ProgramError(f"matrix_multiply: activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    if gated and bias:
        raise ProgramError(f"matrix_multiply: a bias with the gated activation {activation} is not offered")
    bits = half(dtype)
    width = tile_n // 2 if gated else tile_n  # columns of C
    operands = [Operand("a", dtype), Operand("b", dtype)]
    operands += [Operand("bias", dtype, ndim=1)] if bias else []
    operands += [Operand("residual", dtype)] if residual else []
    names = [*(operand.name for operand in operands), "c"]

    def given(arrays: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(names, arrays, strict=True))

    def tile(g: int, j: int, r: int, c: np.ndarray) -> tuple[slice, slice]:
        first = min((g * group + r) * TILE_M, c.shape[0])
        return slice(first, min(first + TILE_M, c.shape[0])), slice(j * width, min((j + 1) * width, c.shape[1]))

    def reference(g: int, j: int, r: int, *arrays: np.ndarray) -> None:
        array = given(arrays)
        rows, columns = tile(g, j, r, array["c"])
        left = bits.to_float32(array["a"][rows])
        right = bits.to_float32(array["b"])
        if gated:
            inner = array["c"].shape[1]
            gate, up = left @ right[columns].T, left @ right[inner:][columns].T
            value = ACTIVATIONS[activation].numpy(gate) * up
        else:
            value = left @ right[columns].T
            if bias:
                value = value + bits.to_float32(array["bias"][columns])
            value = ACTIVATIONS[activation].numpy(value)
        if residual:
            value = value + bits.to_float32(array["residual"][rows, columns])
        array["c"][rows, columns] = bits.from_float32(value)

    def regions(g: int, j: int, r: int, *arrays: np.ndarray) -> dict[str, tuple[slice, ...]]:
        array = given(arrays)
        rows, columns = tile(g, j, r, array["c"])
        whole = slice(0, array["a"].shape[1])
        # The rows of both halves of a gated B cannot be one region: all of B is.
        read = {"a": (rows, whole), "b": (slice(0, array["b"].shape[0]) if gated else columns, whole)}
        if bias:
            read["bias"] = (columns,)
        if residual:
            read["residual"] = (rows, columns)
        return read

    maps = (
        TensorMap("a", (TILE_M, TILE_K)),
        TensorMap("b", (width, TILE_K)),
        TensorMap("c", (_GROUP_ROWS, _PART)),
    )
    return TileKind(
        name=f"matrix_multiply_{tile_n}" + "".join(f"_{part}" for part in _epilogue_names(activation, bias, residual)),
        reference=reference,
        coordinates=3,
        operands=(*operands, Operand("c", dtype, mode="out")),
        portable=_portable(bits, activation, bias, residual, width, group),
        roles=_roles(bits, tile_n, activation, bias, residual, group),
        tensor_maps=maps,
        stage_bytes=(TILE_M + tile_n) * _ROW_BYTES,
        staging_bytes=2 * _GROUP_ROWS * 2 * _PART,
        reads=regions,
        writes=lambda g, j, r, *arrays: {"c": tile(g, j, r, given(arrays)["c"])},
        cost=lambda g, j, r, *arrays: 1.0 + 2 * TILE_M * tile_n * arrays[0].shape[1] / _FLOPS_PER_US,
    )


def _epilogue_names(activation: str, bias: bool, residual: bool) -> list[str]:
    return [activation] * (activation != "none") + ["bias"] * bias + ["residual"] * residual


def _portable(bits: Half, activation: str, bias: bool, residual: bool, width: int, group: int) -> Callable[..., None]:
    """SIMT body: an element a thread at a time, for devices without these tensor cores."""
    gated = activation in GATED
    activate = ACTIVATIONS[activation].device
    to_float32, from_float32 = bits.device_to_float32, bits.device_from_float32

    def dot(a, row, b, column):
        total = np.float32(0)
        for k in range(a.shape[1]):
            total += to_float32(a[row, k]) * to_float32(b[column, k])
        return total

    dot = device_function(dot)

    def gate(a, row, b, column, inner):
        return activate(dot(a, row, b, column)) * dot(a, row, b, inner + column)

    def add_bias(a, row, b, column, extra):
        return activate(dot(a, row, b, column) + to_float32(extra[0][column]))

    def multiply(a, row, b, column, extra):
        return activate(dot(a, row, b, column))

    def add_residual(value, row, column, extra):
        return value + to_float32(extra[residual_at][row, column])

    def keep(value, row, column, extra):
        return value

    residual_at = 1 if bias else 0
    value_of = device_function(add_bias if bias else multiply)
    gated_of = device_function(gate)
    finish = device_function(add_residual if residual else keep)

    def portable(g, j, r, a, b, *extra):
        c = extra[-1]
        i = g * group + r
        for item in range(cuda.threadIdx.x, TILE_M * width, cuda.blockDim.x):
            row = i * TILE_M + item // width
            column = j * width + item % width
            if row < c.shape[0] and column < c.shape[1]:
                value = value_of(a, row, b, column, extra)
                c[row, column] = from_float32(finish(value, row, column, extra))

    def portable_gated(g, j, r, a, b, *extra):
        c = extra[-1]
        i = g * group + r
        for item in range(cuda.threadIdx.x, TILE_M * width, cuda.blockDim.x):
            row = i * TILE_M + item // width
            column = j * width + item % width
            if row < c.shape[0] and column < c.shape[1]:
                value = gated_of(a, row, b, column, c.shape[1])
                c[row, column] = from_float32(finish(value, row, column, extra))

    return portable_gated if gated else portable


def _finisher(bits: Half, activation: str, bias: bool, residual: bool, held: int) -> Callable[..., Any]:
    """Device function (fragment, row, column, others): bias, activation and residual, in this order; `others` as in
    `_roles`.

    `held` is the number of columns of the fragment, a gated one having been combined already. All is done in one pass
    over the elements: a second one would keep the indices of every element in registers in between.
    """
    plain = activation == "none" or activation in GATED
    activate = ACTIVATIONS["none" if plain else activation].device
    to_float32 = bits.device_to_float32
    residual_at = 1 if bias else 0

    def add_bias(value, row, column, given):
        bits = load_bits16_if(given[0] + 2 * column, column < given[3])
        return value + to_float32(bits)

    def add_residual(value, row, column, given):
        inside = (row < given[2]) & (column < given[3])
        bits = load_bits16_if(given[1] + 2 * (row * given[4] + column), inside)
        return value + to_float32(bits)

    def same(value, row, column, given):
        return value

    first = device_function(add_bias if bias else same)
    last = device_function(add_residual if residual else same)

    def element(value, row, column, given):
        return last(activate(first(value, row, column, given)), row, column, given)

    map_elements = fragment_map(held, device_function(element))

    def finish(fragment, row, column, others):
        c = others[-4]
        added = others[residual_at]  # C itself where there is neither bias nor residual
        places = (array_address(others[0]), array_address(added), c.shape[0], c.shape[1], added.shape[-1])
        map_elements(fragment, row, column, places)

    def keep(fragment, row, column, others):
        pass

    return device_function(keep if plain and not bias and not residual else finish)


def _combiner(activation: str, tile_n: int) -> Callable[..., Any]:
    """Device function (accumulator): leaves the columns of C in front; nothing to do unless the activation is gated."""
    activate = ACTIVATIONS[activation].device

    def gate(first, second):
        return activate(first) * second

    def keep(fragment):
        pass

    return fragment_zip(tile_n, device_function(gate)) if activation in GATED else device_function(keep)


def _roles(
    bits: Half, tile_n: int, activation: str, bias: bool, residual: bool, group: int
) -> dict[str, Callable[..., Any]]:
    """Bodies by role; `others` are the operands after a and b, then the addresses of the tensor maps of a, b, c."""
    gated = activation in GATED
    width = tile_n // 2 if gated else tile_n
    parts = width // _PART
    a_bytes, b_bytes = TILE_M * _ROW_BYTES, tile_n * _ROW_BYTES
    upper_offset = a_bytes + width * _ROW_BYTES
    swizzled, held = descriptor_bits(128), tile_n // 2
    zero, multiply = fragment_zero(tile_n), wgmma(tile_n, bits.dtype)
    wait_one, wait_all = wgmma_wait(tile_n, 1), wgmma_wait(tile_n, 0)
    combine, finish = _combiner(activation, tile_n), _finisher(bits, activation, bias, residual, width)
    rotate, stage_out = fragment_rotate(width, _PART // 2), fragment_store(width, _PART, bits.dtype)

    def stages(g, j, r, a, *_others):
        steps = (a.shape[1] + (TILE_K - 1)) // TILE_K
        if (g * group + r) * TILE_M >= a.shape[0]:
            steps = 0 * steps
        return steps

    stages = device_function(stages)

    def ahead(stage, full, step, g, j, r, a, b, *others):
        mbarrier_expect_transaction(full, b_bytes)
        tma_load_2d(stage + a_bytes, others[-2], step * TILE_K, j * width, full)
        if gated:
            tma_load_2d(stage + upper_offset, others[-2], step * TILE_K, b.shape[0] // 2 + j * width, full)

    def load(stage, full, step, g, j, r, a, b, *others):
        mbarrier_expect_transaction(full, a_bytes)
        tma_load_2d(stage, others[-3], step * TILE_K, (g * group + r) * TILE_M, full)

    def compute(ring, stage, phase, turn, g, j, r, a, b, *others):
        half_tile = cuda.threadIdx.x // 128
        thread = cuda.threadIdx.x % 128
        accumulator = cuda.local.array(held, float32)
        zero(accumulator)
        previous = stage
        steps = stages(g, j, r, a)
        for step in range(steps):
            wait_full(ring, stage, phase)
            address = stage_address(ring, stage)
            left = ((address + half_tile * (_GROUP_ROWS * _ROW_BYTES)) >> 4) | swizzled
            right = ((address + a_bytes) >> 4) | swizzled
            wgmma_fence()
            multiply(accumulator, left, right, 1)
            multiply(accumulator, left + 2, right + 2, 1)
            multiply(accumulator, left + 4, right + 4, 1)
            multiply(accumulator, left + 6, right + 6, 1)
            wgmma_commit()
            wait_one(accumulator)  # the step before is done
            if step > 0:
                release_stage(ring, previous)
            previous = stage
            stage, phase = next_stage(ring, stage, phase)
        wait_all(accumulator)
        if steps > 0:
            release_stage(ring, previous)
        row = (g * group + r) * TILE_M + half_tile * _GROUP_ROWS + (thread // 32) * 16 + (thread % 32) // 4
        column = j * width + (thread % 4) * 2
        combine(accumulator)
        finish(accumulator, row, column, others)
        for _ in range(parts):
            wait_unstaged(ring, half_tile, turn)
            stage_out(accumulator, staging_address(ring, half_tile))
            rotate(accumulator)
            proxy_fence_shared()
            named_barrier(2 + half_tile, 128)
            if thread == 0:
                announce_staged(ring, half_tile)
            turn += 1
        return stage, phase, turn

    def store(ring, turn, g, j, r, a, b, *others):
        for part in range(parts):
            for half_tile in range(2):
                wait_staged(ring, half_tile, turn)
                row = (g * group + r) * TILE_M + half_tile * _GROUP_ROWS
                tma_store_2d(others[-1], j * width + part * _PART, row, staging_address(ring, half_tile))
                bulk_commit()
            bulk_wait_read_0()
            release_staging(ring, 0)
            release_staging(ring, 1)
            turn += 1
        bulk_wait_0()
        proxy_fence()
        return turn

    return {"stages": stages, "ahead": ahead, "load": load, "compute": compute, "store": store}
