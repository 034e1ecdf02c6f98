"""``Y[l] = epilogue(X[l] W[l]^T)`` for few rows of X: X[l] is (batch, K), W[l] is (N, K), Y[l] is (batch, N).

The leading dimension stacks the layers of a model, so that one grid of tasks serves all of them. The batch is at
most 8.

At this size a product costs what reading W costs. A task makes `rows` columns of Y from as many rows of W; the
copies of W depend on no event, so the loader starts them before X is known. W is the n8 side of
mma.m16n8k16 and X the m16 side; the eight consumer warps split K and add up their sums in shared memory, so
that no two multiprocessors share an element of Y.

X is read by ordinary loads: bulk copies of what another task has just written would ask for proxy fences on both
sides, which cost more than the loads do.

With a gated activation W has two halves, gate over up, and ``Y = act(X gate^T) * (X up^T)``.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import cuda, float32

from etproto.errors import ProgramError
from etproto.kernels.groups import CONSUMER_THREADS, consumer_barrier
from etproto.kernels.ptx.barrier import mbarrier_expect_transaction
from etproto.kernels.ptx.bulk import bulk_load
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.mma import ldmatrix_x4, mma_m16n8k16
from etproto.kernels.ptx.shared import (
    copy_vector,
    load_shared_float32,
    load_shared_int32,
    store_shared_float32,
)
from etproto.kernels.ptx.views import array_address
from etproto.kernels.ptx.warp import warp_barrier
from etproto.kernels.roles import next_stage, release_stage, stage_address, staging_address, wait_full
from etproto.kernels.tiles.epilogue import ACTIVATIONS, GATED, half
from etproto.tile_kind import Operand, TileKind

__all__ = ["CHUNK", "MOST_BATCH", "vector_multiply"]

CHUNK = 1024  # columns of W in a stage: copies of 2 KB
MOST_BATCH = 8
_TILE = 8  # rows of W in a stage
_WARPS = CONSUMER_THREADS // 32
_SLICE = CHUNK // _WARPS  # columns of a chunk that a warp multiplies
_PITCH = 2 * CHUNK + 16  # bytes from row to row: rows start in different banks
_SUM_BYTES = _TILE * MOST_BATCH * 4  # sums of a warp: (batch, row of W)
_STAGE_BYTES = -(-_TILE * _PITCH // 1024) * 1024
_BYTES_PER_US = 34_000.0  # of memory traffic, for one multiprocessor of an H200


def _staged_x_bytes(batch: int, depth: int) -> int:
    """Shared memory for X: a row every ``2 * depth + 16`` bytes."""
    return batch * (2 * depth + 16)


@cache
def vector_multiply(
    rows: int,
    depth: int,
    *,
    batch: int = 1,
    shift: int = 0,
    dtype: str = "bfloat16",
    activation: str = "none",
    residual: bool = False,
) -> TileKind:
    """The kind for `rows` columns of Y a task; operands ``x, w[, residual], y``, coordinates (layer, i).

    Parameters
    ----------
    rows : int
        Columns of Y that a task makes (rows of W that it reads, twice as many when gated): a multiple of 8.
    depth : int
        Most columns of X; the number of columns must be a multiple of 32.
    batch : int
        Most rows of X[layer], 1 to 8.
    shift : int
        The results of a layer go to ``Y[layer + shift]``: 1 makes them the X of the next layer, in one tensor.
    dtype : {"bfloat16", "float16"}
    activation : str
        One of `etproto.kernels.tiles.epilogue.ACTIVATIONS`.
    residual : bool
        Add ``residual[layer, b, n]`` at the end.

    Raises
    ------
    ProgramError
        Sizes or an activation that there is not.
    """
    if rows % _TILE or rows < _TILE:
        raise ProgramError(f"vector_multiply: rows must be a positive multiple of {_TILE}, got {rows}")
    if depth % 32 or depth < 32:
        raise ProgramError(f"vector_multiply: depth must be a positive multiple of 32, got {depth}")
    if not 1 <= batch <= MOST_BATCH:
        raise ProgramError(f"vector_multiply: batch must be 1 to {MOST_BATCH}, got {batch}")
    if activation not in ACTIVATIONS:
        raise ProgramError(f"vector_multiply: activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    bits, gated = half(dtype), activation in GATED
    halves = 2 if gated else 1
    sums_bytes = 2 * halves * _WARPS * _SUM_BYTES  # for two turns
    staging = -(-(_staged_x_bytes(batch, depth) + sums_bytes) // 2048) * 2048
    activate = ACTIVATIONS[activation]
    multiply = mma_m16n8k16(dtype)
    to_float32, from_float32, activated = bits.device_to_float32, bits.device_from_float32, activate.device
    operands = (Operand("x", dtype, 3), Operand("w", dtype, 3), *([Operand("residual", dtype, 3)] if residual else []))

    def columns(i: int, y: np.ndarray) -> slice:
        return slice(i * rows, min((i + 1) * rows, y.shape[2]))

    def reference(layer: int, i: int, x: np.ndarray, w: np.ndarray, *others: np.ndarray) -> None:
        y = others[-1]
        where = columns(i, y)
        left, right = bits.to_float32(x[layer]), bits.to_float32(w[layer])
        value = activate.numpy(left @ right[where].T)
        if gated:
            value = value * (left @ right[y.shape[2] :][where].T)
        if residual:
            value = value + bits.to_float32(others[0][layer, :, where])
        y[layer + shift, :, where] = bits.from_float32(value)

    def reads(layer: int, i: int, x: np.ndarray, w: np.ndarray, *others: np.ndarray) -> dict[str, tuple[slice, ...]]:
        where, whole, one = columns(i, others[-1]), slice(0, x.shape[2]), slice(layer, layer + 1)
        read: dict[str, tuple[slice, ...]] = {"x": (one, slice(0, x.shape[1]), whole)}
        read["w"] = (one, slice(0, w.shape[1]) if gated else where, whole)
        if residual:
            read["residual"] = (one, slice(0, x.shape[1]), where)
        return read

    def writes(layer: int, i: int, x: np.ndarray, w: np.ndarray, *others: np.ndarray) -> dict[str, tuple[slice, ...]]:
        return {"y": (slice(layer + shift, layer + shift + 1), slice(0, x.shape[1]), columns(i, others[-1]))}

    def stages(layer, i, x, w, *others):
        used = (min(others[-1].shape[2] - i * rows, rows) + (_TILE - 1)) // _TILE
        return used * halves * ((x.shape[2] + (CHUNK - 1)) // CHUNK)

    def ahead(stage, full, step, layer, i, x, w, *others):
        inner = others[-1].shape[2]
        chunks = (x.shape[2] + (CHUNK - 1)) // CHUNK
        tile = step // chunks
        k = (step - tile * chunks) * CHUNK
        row = i * rows + tile // halves * _TILE
        count = min(inner - row, _TILE)
        if gated and tile % 2 == 1:
            row += inner
        size = min(x.shape[2] - k, CHUNK) * 2
        mbarrier_expect_transaction(full, count * size)
        source = array_address(w) + ((layer * w.shape[1] + row) * x.shape[2] + k) * 2
        for number in range(count):
            bulk_load(stage + number * _PITCH, source + number * (x.shape[2] * 2), size, full)

    def compute(ring, stage, phase, turn, layer, i, x, w, *others):
        y = others[-1]
        thread = cuda.threadIdx.x
        warp = thread // 32
        lane = thread % 32
        chunks = (x.shape[2] + (CHUNK - 1)) // CHUNK
        x_at = staging_address(ring, 0)
        pitch = 2 * x.shape[2] + 16
        sums = x_at + staged_bytes + (lane // 4) * (_TILE * 4) + (lane % 4) * 8
        stage_x(x, layer, x_at, pitch, chunks, warp, lane)
        used = (min(y.shape[2] - i * rows, rows) + (_TILE - 1)) // _TILE
        total = cuda.local.array(4, float32)
        for tile in range(used):
            for part in range(halves):
                for element in range(4):
                    total[element] = np.float32(0)
                for chunk in range(chunks):
                    wait_full(ring, stage, phase)
                    k = chunk * CHUNK + warp * _SLICE
                    right = stage_address(ring, stage) + (lane % 8) * _PITCH + warp * (2 * _SLICE) + (lane // 8) * 16
                    left = x_at + (lane // 4) * pitch + (k + (lane % 4) * 2) * 2
                    for step in range(_SLICE // 32):
                        if k + step * 32 < x.shape[2]:
                            b = ldmatrix_x4(right + step * 64)
                            a0, a2, a4, a6 = left_fragments(left + step * 64, lane // 4 < x.shape[1])
                            multiply(total, a0, 0, a2, 0, b[0], b[1])
                            multiply(total, a4, 0, a6, 0, b[2], b[3])
                    warp_barrier()
                    release_stage(ring, stage)
                    stage, phase = next_stage(ring, stage, phase)
                at = sums + (((turn & 1) * halves + part) * _WARPS + warp) * _SUM_BYTES
                store_shared_float32(at, total[0])
                store_shared_float32(at + 4, total[1])
            consumer_barrier()
            b = thread // _TILE
            n = i * rows + tile * _TILE + thread % _TILE
            if b < x.shape[1] and n < y.shape[2]:
                value = add_up(x_at + staged_bytes + (turn & 1) * (halves * _WARPS * _SUM_BYTES) + thread * 4)
                y[layer + shift, b, n] = from_float32(finish(value, layer, b, n, others))
            turn += 1
        return stage, phase, turn

    def stage_x(x, layer, x_at, pitch, chunks, warp, lane):
        """A warp copies the columns that it will multiply, so that no barrier of the block is needed."""
        vectors = 2 * _SLICE // 16
        source = array_address(x) + layer * (x.shape[1] * x.shape[2] * 2)
        for item in range(lane, x.shape[1] * chunks * vectors, 32):
            row = item // (chunks * vectors)
            rest = item - row * (chunks * vectors)
            column = rest // vectors * CHUNK + warp * _SLICE + rest % vectors * 8
            if column < x.shape[2]:
                copy_vector(x_at + row * pitch + column * 2, source + (row * x.shape[2] + column) * 2)
        warp_barrier()

    def left_fragments(address, inside):
        """X for two k16 steps: pairs of columns 0, 8, 16 and 24; zeros for rows that X does not have."""
        a0 = 0
        a2 = 0
        a4 = 0
        a6 = 0
        if inside:
            a0 = load_shared_int32(address)
            a2 = load_shared_int32(address + 16)
            a4 = load_shared_int32(address + 32)
            a6 = load_shared_int32(address + 48)
        return a0, a2, a4, a6

    def sum_of_warps(address):
        total = np.float32(0)
        for warp in range(_WARPS):
            total += load_shared_float32(address + warp * _SUM_BYTES)
        return total

    def add_up_one(address):
        return activated(sum_of_warps(address))

    def add_up_gated(address):
        return activated(sum_of_warps(address)) * sum_of_warps(address + _WARPS * _SUM_BYTES)

    def add_residual(value, layer, b, n, others):
        return value + to_float32(others[0][layer, b, n])

    def keep(value, layer, b, n, others):
        return value

    def portable(layer, i, x, w, *others):
        y = others[-1]
        for item in range(cuda.threadIdx.x, rows * x.shape[1], cuda.blockDim.x):
            n = i * rows + item % rows
            b = item // rows
            if n < y.shape[2]:
                value = activated(dot(x, b, w, n, layer))
                if gated:
                    value = value * dot(x, b, w, y.shape[2] + n, layer)
                y[layer + shift, b, n] = from_float32(finish(value, layer, b, n, others))

    def dot(x, b, w, n, layer):
        total = np.float32(0)
        for k in range(x.shape[2]):
            total += to_float32(x[layer, b, k]) * to_float32(w[layer, n, k])
        return total

    staged_bytes = _staged_x_bytes(batch, depth)
    sum_of_warps, dot = device_function(sum_of_warps), device_function(dot)
    stage_x, left_fragments = device_function(stage_x), device_function(left_fragments)
    add_up = device_function(add_up_gated if gated else add_up_one)
    finish = device_function(add_residual if residual else keep)
    return TileKind(
        name=f"vector_multiply_{rows}_{batch}" + f"_{activation}" * (activation != "none") + "_residual" * residual,
        reference=reference,
        coordinates=2,
        operands=(*operands, Operand("y", dtype, 3, mode="inout" if shift else "out")),
        portable=portable,
        roles={"stages": stages, "ahead": ahead, "compute": compute},
        stage_bytes=_STAGE_BYTES,
        staging_bytes=staging,
        reads=reads,
        writes=writes,
        cost=lambda layer, i, x, w, *others: 0.5 + 2 * halves * rows * x.shape[2] / _BYTES_PER_US,
    )
