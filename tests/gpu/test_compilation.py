"""What compiles and what does not: one kernel for every size, and never a stale one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from etproto.executors import compiled, cuda
from etproto.kernels import cache
from etproto.lowering import lower
from etproto.models import splitk
from etproto.schedule import schedule

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """Calls of the compiler and of the loader; no kernel is known from before, in memory or on disk."""
    counts = {"compile_ptx": 0, "load_kernel": 0}

    def counting(name):
        called = getattr(cuda, name)

        def call(*arguments, **options):
            counts[name] += 1
            return called(*arguments, **options)

        return call

    for name in counts:
        monkeypatch.setattr(cuda, name, counting(name))
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    _forget()
    yield counts
    _forget()


def _forget() -> None:
    compiled._worker.cache_clear()
    compiled.compiled_reset.cache_clear()


def test_one_kernel_for_every_n(counted, to_device, to_host):
    """One worker kernel and one reset kernel, compiled and loaded once, for every n and every schedule."""
    program = splitk.program()
    for n in (1, 7, 64, 1000):
        instance = program.bind(n=n)
        tensors = splitk.MODEL.make_tensors(instance, np.random.default_rng(n))
        for kind in ("static", "device-static", "dynamic", "mixed"):
            arrays = to_device(tensors)
            cuda.run(schedule(lower(instance), kind, workers=40), arrays)
            error = splitk.MODEL.compare(to_host(arrays), splitk.MODEL.reference(tensors))
            assert error <= splitk.MODEL.tolerance(tensors)
    assert counted == {"compile_ptx": 2, "load_kernel": 2}
    _forget()
    kinds = lower(program.bind(n=1)).kinds
    assert cuda.compiled_kernel(kinds).cached, "the next process finds the kernel on disk"
    assert counted == {"compile_ptx": 2, "load_kernel": 3}


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_rebinding_uploads_scalars_only(monkeypatch, kind):
    """From n = 1 to n = 100,000: at most 256 bytes, new arrays' addresses included; no compilation."""
    from numba import cuda as numba_cuda

    rng = np.random.default_rng(0)
    program = splitk.program()
    one, many = (schedule(lower(program.bind(n=n)), kind, workers=132) for n in (1, 100_000))
    loaded = cuda.load(one)
    monkeypatch.setattr(compiled, "compile_ptx", None)  # calling it would fail
    monkeypatch.setattr(compiled, "load_kernel", None)
    for scheduled, n in ((one, 1), (many, 100_000), (one, 1)):
        loaded.rebind(scheduled)
        row, column = rng.random(32 * n, np.float32), rng.random(128, np.float32)
        arrays = {
            "A": numba_cuda.to_device(row[:, None] * column),
            "B": numba_cuda.device_array((n, 4, 32), np.float32),
            "C": numba_cuda.to_device(np.full((n, 32), np.nan, np.float32)),
        }
        loaded.launch(arrays)
        loaded.finish()
        assert 0 < loaded.uploaded_bytes <= 256
        expected = (row.astype(np.float64) * column.astype(np.float64).sum()).reshape(n, 32)
        np.testing.assert_allclose(arrays["C"].copy_to_host(), expected, rtol=1e-4)


SCRIPT = """
import json
import numpy as np
from numba import cuda as numba_cuda
from edited import kind
from etproto.executors import cuda
from etproto.lowering import lower
from etproto.program import Program, TaskGrid, Tensor
from etproto.schedule import schedule

program = Program("edited", (TaskGrid("only", kind, (4,), {"out": Tensor("out", (4,))}),))
lowered = lower(program.bind())
out = numba_cuda.to_device(np.zeros(4, np.float32))
cuda.run(schedule(lowered, "static", workers=2), {"out": out})
print(json.dumps([out.copy_to_host().tolist(), cuda.compiled_kernel(lowered.kinds).cached]))
"""

KIND = """
from numba import cuda
from etproto.tile_kind import Operand, TileKind

def scaled(value):
    return value * FACTOR

def body(i, out):
    if cuda.threadIdx.x == 0:
        out[i] = scaled_on_device(i) + OFFSET

from etproto.kernels.ptx.inline import device_function
scaled_on_device = device_function(scaled)
kind = TileKind("edited", lambda i, out: None, 1, (Operand("out", ndim=1, mode="out"),), portable=body)
"""


def test_editing_a_tile_body_on_disk_changes_the_next_result(tmp_path):
    """A function that the body calls, and a constant in the module: each edit is seen by the next process."""
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": f"{ROOT}:{tmp_path}:" + _python_path()}
    results = []
    for factor, offset in ((2, 1), (2, 1), (5, 1), (5, 3)):
        body = KIND.replace("FACTOR", str(factor)) + f"\nOFFSET = {offset}\n"
        (tmp_path / "edited.py").write_text(body)
        command = [sys.executable, "-B", str(tmp_path / "script.py")]
        child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert child.returncode == 0, child.stderr
        results.append(child.stdout.strip().splitlines()[-1])
    assert results == [
        "[[1.0, 3.0, 5.0, 7.0], false]",
        "[[1.0, 3.0, 5.0, 7.0], true]",
        "[[1.0, 6.0, 11.0, 16.0], false]",
        "[[3.0, 8.0, 13.0, 18.0], false]",
    ]


def _python_path() -> str:
    return os.environ.get("PYTHONPATH", "")
