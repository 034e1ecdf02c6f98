"""The options and fixtures of conftest.py, each seen from a small suite that runs in a child process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
ROOT = CONFTEST.parent.parent
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}  # CUDA then finds no device, on any machine

Suite = Callable[..., subprocess.CompletedProcess]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """Write the tests given to <tmp>/tests and run pytest over them."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "setup.cfg").write_text((ROOT / "setup.cfg").read_text())
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST.read_text())

    def run(body: str, *options: str, **environment: str) -> subprocess.CompletedProcess:
        (tmp_path / "tests" / "test_it.py").write_text(body)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
        environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment
        return subprocess.run(
            command, cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True, timeout=120
        )

    return run


GPU_TEST = "import pytest\n@pytest.mark.gpu\ndef test_it(): raise SystemExit('reached')\n"


def test_gpu_tests_are_skipped_with_the_reason(suite: Suite) -> None:
    result = suite(GPU_TEST, **NO_GPU)
    assert result.returncode == 0, result.stdout
    assert "1 skipped" in result.stdout and "Numba finds no CUDA device" in result.stdout


def test_require_gpu_turns_the_skip_into_a_failure(suite: Suite) -> None:
    result = suite(GPU_TEST, "--require-gpu", **NO_GPU)
    assert result.returncode == 1
    assert "--require-gpu: " in result.stdout and "Numba finds no CUDA device" in result.stdout


def test_require_gpu_leaves_other_skips_alone(suite: Suite) -> None:
    result = suite("import pytest\ndef test_it(): pytest.skip('no data')\n", "--require-gpu")
    assert result.returncode == 0 and "1 skipped" in result.stdout


def test_the_simulator_may_not_be_switched_on_for_the_suite(suite: Suite) -> None:
    result = suite("def test_it(): pass\n", NUMBA_ENABLE_CUDASIM="1")
    assert result.returncode == 4 and "unset NUMBA_ENABLE_CUDASIM" in result.stderr


def test_golden_texts(suite: Suite, tmp_path: Path) -> None:
    body = (
        "import pytest\n@pytest.mark.parametrize('name', ['a/b', 'a_b'])\n"
        "def test_it(golden, name): golden(name + ' says {word}\\r\\n')\n"
    )
    missing = suite(body.format(word="yes"))
    assert missing.returncode == 1 and "pytest --update-golden 'tests/test_it.py::test_it[a/b]'" in missing.stdout
    assert suite(body.format(word="yes"), "--update-golden").returncode == 0
    assert len(list((tmp_path / "tests" / "golden" / "test_it").iterdir())) == 2
    assert suite(body.format(word="yes")).returncode == 0
    different = suite(body.format(word="no"))
    assert different.returncode == 1 and "if the new text is right" in different.stdout


def test_random_numbers_depend_on_the_test_alone(suite: Suite) -> None:
    body = (
        "def test_one(rng): print('one', rng.integers(1 << 30))\n"
        "def test_two(rng): print('two', rng.integers(1 << 30))\n"
    )

    def numbers(*options: str) -> set[str]:
        lines = suite(body, "-q", "-s", *options).stdout.splitlines()
        return {word for line in lines for word in line.replace(".", "").split() if word.isdigit() and len(word) > 3}

    assert len(numbers()) == 2
    assert numbers("-k", "two") < numbers()


def test_shared_data_is_skipped_where_it_is_absent(suite: Suite) -> None:
    result = suite("def test_it(shared_data): raise SystemExit\n")
    assert result.returncode == 0 and "no folder ../shared/data" in result.stdout
