"""Options and fixtures of all tests: GPU tests, golden texts, shared data, seeded random numbers."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from urllib.parse import quote

import hypothesis
import numpy as np
import pytest

# The same examples in every run, and no time limit for one: the machine may be busy.
hypothesis.settings.register_profile("etproto", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("etproto")

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent

# Switches the simulator on. Numba reads it when it is imported, so it holds for a whole process.
SIMULATOR = "NUMBA_ENABLE_CUDASIM"

PROBE = """
from numba import cuda
if cuda.is_available():
    cuda.current_context()
else:
    reason = cuda.cuda_error() or "the driver counts none"
    raise SystemExit("Numba finds no CUDA device: " + " ".join(reason.split()))
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-gpu", action="store_true", help="fail GPU tests that would be skipped")
    parser.addoption("--update-golden", action="store_true", help="write what tests produce to tests/golden")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get(SIMULATOR, "0") != "0":
        raise pytest.UsageError(f"unset {SIMULATOR}: tests that need the simulator start it in child processes")


@cache
def no_gpu_because() -> str:
    """Why no CUDA device can be used here; empty if one can.

    A child process is asked, since a driver may end the process or leave state in it.
    """
    try:
        child = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "the CUDA device did not answer in 120 s"
    if child.returncode == 0:
        return ""
    lines = child.stderr.strip().splitlines()
    return lines[-1] if lines else f"looking for a CUDA device ended with status {child.returncode}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and (reason := no_gpu_because()):
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """With --require-gpu no GPU test may be skipped, whatever skips it."""
    report = yield
    required = item.config.getoption("--require-gpu") and item.get_closest_marker("gpu")
    if required and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"--require-gpu: {reason}"
    return report


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Compare a text with the one kept for this test: ``golden(str(program))``; at most once in a test."""
    folder = TESTS / "golden" / request.path.relative_to(TESTS).with_suffix("")
    test = request.node.nodeid.split("::", 1)[1]
    path = folder / (quote(test, safe="[]=,;:+- ") + ".txt")
    update = f"pytest --update-golden '{request.node.nodeid}'"

    def compare(text: str) -> None:
        if request.config.getoption("--update-golden"):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
        elif not path.exists():
            pytest.fail(f"no golden text {path}: run {update} and read it before it is committed", pytrace=False)
        else:
            with path.open(encoding="utf-8", newline="") as file:
                kept = file.read()
            assert text == kept, f"differs from {path}; if the new text is right: {update}"

    return compare


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of public graph files that stands beside the repository, and is no part of it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no folder ../shared/data beside the repository")
    return folder


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers seeded by the test's own name: the same in every run and order."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))
