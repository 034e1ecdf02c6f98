"""Run every portable body in Numba's CUDA simulator, in one block, against its reference; print JSON.

A script of its own, since Numba decides for the simulator at import: NUMBA_ENABLE_CUDASIM=1 must be set.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
from numba import cuda
from numba.cuda.simulator import kernel as simulator

from etproto.kernels.tiles import bucket, cholesky, gemm, product, row_sum, spin

MODULES = (bucket, cholesky, gemm, product, row_sum, spin)
rng = np.random.default_rng(0)


def random(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def nan(*shape):
    return np.full(shape, np.nan, np.float32)


def ints(*values):
    return np.array(values, np.int32)


def unset(*shape):
    return np.full(shape, -1, np.int32)


def launch(kind, arguments, threads):
    """Run a body. The simulator replaces `cuda` in the kernel's module alone, so the bodies' follow here."""

    @cuda.jit
    def kernel(*given):
        with ExitStack() as stack:
            for module in MODULES:
                module = SimpleNamespace(__globals__=vars(module))
                stack.enter_context(simulator.swapped_cuda_module(module, simulator._get_kernel_context()))
            kind.portable(*given)

    kernel[1, threads](*arguments)


def spd(size):
    g = rng.standard_normal((size, size))
    return (g @ g.T / size + np.eye(size)).astype(np.float32)


def cases():
    """(label, kind, coordinate, operands) of one task each."""
    yield "partial_sum", row_sum.partial_sum, (1, 2), (random(64, 128), nan(2, 4, 32))
    yield "final_sum", row_sum.final_sum, (1,), (random(2, 4, 32), nan(2, 32))
    for label, tiles, shape, coordinate, splits in (
        ("inner", (8, 8, 4), (17, 20, 10), (1, 0, 1), 2),
        ("edge", (8, 8, 4), (17, 20, 10), (2, 2, 1), 2),
        ("odd", (6, 10, 3), (13, 11, 7), (1, 1, 0), 1),
        ("empty slice", (8, 8, 4), (9, 9, 5), (0, 1, 2), 3),
        ("one row", (8, 8, 4), (1, 8, 4), (0, 0, 0), 1),
        ("several rows a thread", (32, 32, 4), (32, 40, 4), (0, 0, 0), 1),
    ):
        M, N, K = shape
        a, b = random(M, K), random(K, N)
        yield f"gemm_partial {label}", gemm.gemm_partial(*tiles), coordinate, (a, b, nan(splits, M, N))
        p = random(splits, M, N)
        yield f"gemm_reduce {label}", gemm.gemm_reduce(*tiles[:2]), coordinate[:2], (p, nan(M, N))
    for tile in (1, 5, 8, 20):
        kinds = cholesky.cholesky_kinds(tile)
        for name, coordinate in (("potrf", (1,)), ("trsm", (2, 0)), ("syrk", (2, 0)), ("gemm", (2, 1, 0))):
            A = spd(3 * tile)
            yield f"{name} {tile}", kinds[name], coordinate, (A,) * len(kinds[name].operands)
    for clip in (True, False):
        for i, rows in ((0, 13), (1, 13), (0, 1)):
            x = random(rows, 3) * 3 + 1
            operands = (x, unset(rows), unset(rows), unset(-(-rows // 8), 4))
            yield f"route {i} {rows} {clip}", bucket.route(8, clip), (i,), operands
    for blocks, buckets in ((0, 3), (1, 1), (3, 4), (2, 19)):
        histogram = rng.integers(0, 5, (blocks, buckets)).astype(np.int32)
        outputs = (unset(buckets), unset(buckets + 1), unset(buckets), unset(buckets + 1))
        yield f"plan {blocks} {buckets}", bucket.plan(3), (0,), (histogram, *outputs)
    for i in range(5):
        key, rank = ints(1, 0, -1, 1, 2), ints(0, 0, 0, 0, 0)
        histogram, row_start = ints(0, 0, 1, 1).reshape(2, 2), ints(0, 1, 3)
        operands = (random(5, 11), key, rank, histogram, row_start, nan(5, 11))
        yield f"group {i}", bucket.group(3), (i,), operands
    for i, j in ((0, 0), (2, 1), (2, 2)):
        operands = (random(7, 11), ints(0, 2, 2, 7), ints(0, 1, 1, 3), nan(4, 11))
        yield f"chunk_sum {i} {j}", bucket.chunk_sum(3), (i, j), operands
    for i in range(3):
        yield f"combine {i}", bucket.combine, (i,), (random(4, 11), ints(0, 1, 1, 3), nan(3, 11))


def error(got, expected):
    """Largest error relative to the largest value; infinite when NaNs are not in the same places."""
    if got.dtype.kind == "i":
        return 0.0 if np.array_equal(got, expected) else float("inf")
    if not np.array_equal(np.isnan(got), np.isnan(expected)):
        return float("inf")
    finite = ~np.isnan(expected)
    if not finite.any():
        return 0.0
    return float(np.abs(got - expected)[finite].max() / max(np.abs(expected)[finite].max(), 1e-30))


def main():
    """Print {label: [error against the reference, whether 3 threads give the same bits]}."""
    results = {}
    for label, kind, coordinate, operands in cases():
        copies = []
        for threads in (None, 8, 3):
            shared = {id(operand): operand.copy() for operand in operands}  # operands may be one array
            copies.append([shared[id(operand)] for operand in operands])
            if threads is None:
                kind.reference(*coordinate, *copies[-1])
            else:
                launch(kind, (*coordinate, *copies[-1]), threads)
        expected, eight, three = copies
        worst = max(error(got, want) for got, want in zip(eight, expected, strict=True))
        same = all(a.tobytes() == b.tobytes() for a, b in zip(eight, three, strict=True))
        results[label] = [worst, same]
    start = time.perf_counter()
    launch(spin.spin, (0, 0, 0, 0, 20_000_000), 4)
    results["spin"] = [0.0 if time.perf_counter() - start >= 0.02 else float("inf"), True]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
