"""Portable bodies against their references, in the simulator: one block, in one child process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
KINDS = ["partial_sum", "final_sum", "gemm_partial", "gemm_reduce", "potrf", "trsm", "syrk", "gemm"] + [
    "route",
    "plan",
    "group",
    "chunk_sum",
    "combine",
    "spin",
]


@pytest.fixture(scope="module")
def results():
    """Case -> [error against the reference, whether another number of threads gives the same bits]."""
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(ROOT)}
    script = Path(__file__).with_name("simulate.py")
    child = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=240)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


@pytest.mark.parametrize("kind", KINDS)
def test_body_agrees_with_reference(results, kind):
    errors = {label: error for label, (error, _) in results.items() if label.split()[0] == kind}
    assert errors
    assert max(errors.values()) < 1e-5, errors


def test_the_number_of_threads_changes_no_bit(results):
    assert [label for label, (_, same) in results.items() if not same] == []
