"""The hopper worker with its largest bodies: NVVM ends, ptxas takes the PTX, and accumulators stay in registers.

An accumulator of 256 columns takes 128 of a thread's 168 registers. One that does not stay there lies in a stack frame
of 512 bytes, and every wgmma spills.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from etproto.kernels.compile import compile_ptx
from etproto.kernels.tiles.epilogue import ACTIVATIONS, half
from etproto.kernels.tiles.matrix_multiply import _finisher, matrix_multiply
from etproto.kernels.tiles.skinny_multiply import skinny_multiply
from etproto.kernels.workers import worker_kernel
from etproto.tile_kind import TileKind

ROUNDING = 2.0**-8  # of bfloat16


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas: it comes with the CUDA toolkit")
@pytest.mark.parametrize(
    "kind",
    [matrix_multiply(256, bias=True, activation="gelu", residual=True), skinny_multiply(256)],
    ids=lambda kind: kind.name,
)
def test_accumulators_stay_in_registers(kind: TileKind, tmp_path: Path) -> None:
    """Both read pointers from shared memory tables, which once sent NVVM into an endless loop."""
    worker = worker_kernel("hopper", (kind,))
    source = tmp_path / "worker.ptx"
    source.write_text(compile_ptx(worker.function, (9, 0, "a"), threads=worker.threads), encoding="utf-8")
    command = ["ptxas", "-arch=sm_90a", "-v", str(source), "-o", str(tmp_path / "worker.cubin")]
    made = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, made.stderr
    assert "C7508" not in made.stderr  # wgmma one after the other, since their registers are touched in between
    frame, stored = (int(re.search(rf"(\d+) bytes {what}", made.stderr).group(1)) for what in ("stack", "spill stores"))
    assert frame < 512
    assert stored < 600


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("activation", ["none", "gelu"])
def test_an_epilogue_is_done_in_one_pass(activation: str, bias: bool, residual: bool) -> None:
    """Every element of a fragment gets the bias of its column and its residual; those outside C get neither."""
    bits, rng, row, column = half("bfloat16"), np.random.default_rng(1), 3, 2
    rows, columns = 10, 40  # less than the fragment of rows 3 and 11, columns 2, 3, 10, 11, ... 59
    c, added, offsets = (
        bits.from_float32(rng.normal(size=shape).astype(np.float32))
        for shape in ((rows, columns), (rows, columns), (columns,))
    )
    fragment = rng.normal(size=32).astype(np.float32)
    others = (*([offsets] if bias else []), *([added] if residual else []), c, 0, 0, 0)
    expected = fragment.copy()
    for number in range(32):
        m, n = row + 8 * (number // 2 % 2), column + 8 * (number // 4) + number % 2
        value = expected[number]
        if bias and n < columns:
            value = value + bits.to_float32(offsets[n : n + 1])[0]
        value = ACTIVATIONS[activation].numpy(value)
        if residual and m < rows and n < columns:
            value = value + bits.to_float32(added[m, n : n + 1])[0]
        expected[number] = value
    _finisher(bits, activation, bias, residual, 64)(fragment, row, column, others)
    np.testing.assert_allclose(fragment, expected, rtol=ROUNDING, atol=1e-6)
