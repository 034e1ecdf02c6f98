"""What the tests of intrinsics share: simulated launches, memory aligned as bulk copies want it, and ptxas."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from etproto.executors.simulator import launch_simulated


def _simulate(kernel: Callable[..., None], threads: int, *arguments: object, grid: int = 1) -> None:
    launch_simulated(kernel, grid, threads, arguments, timeout_s=60.0)


def _aligned(values: np.ndarray) -> np.ndarray:
    memory = np.zeros(values.nbytes + 128, np.uint8)
    first = -memory.ctypes.data % 128
    copy = memory[first : first + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


@pytest.fixture
def simulate() -> Callable[..., None]:
    """``simulate(kernel, threads, *arguments)``: runs a kernel in the simulator, one block by default."""
    return _simulate


@pytest.fixture
def aligned() -> Callable[[np.ndarray], np.ndarray]:
    """A copy of an array whose address is a multiple of 128."""
    return _aligned


@pytest.fixture
def assemble(tmp_path: Path) -> Callable[[str], str]:
    """What ``ptxas -v`` says of PTX for sm_90a; its objections fail the test."""
    if shutil.which("ptxas") is None:
        pytest.skip("no ptxas: it comes with the CUDA toolkit")

    def run(ptx: str) -> str:
        source = tmp_path / "kernel.ptx"
        source.write_text(ptx, encoding="utf-8")
        command = ["ptxas", "-arch=sm_90a", "-v", str(source), "-o", str(tmp_path / "kernel.cubin")]
        made = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert made.returncode == 0, made.stdout + made.stderr
        return made.stdout + made.stderr

    return run
