"""The whole product in one small file: public names, the README's example, the examples of the documents."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import etproto

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_public_names() -> None:
    assert 12 <= len(etproto.__all__) <= 20
    for name in etproto.__all__:
        assert getattr(etproto, name) is not None
        assert name in dir(etproto)
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        etproto.no_such_name  # noqa: B018


def test_import_loads_nothing_heavy() -> None:
    code = "import etproto, sys; print([m for m in ('numba', 'numpy', 'networkx', 'cupy') if m in sys.modules])"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert child.stdout == "[]\n"


def test_readme_example_is_right_and_takes_less_than_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    example = FENCE.findall((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    assert len([line for line in example.splitlines() if line]) <= 24
    seconds = []
    for _ in range(3):  # the first one imports
        names: dict[str, object] = {"__name__": "example"}
        start = time.perf_counter()
        exec(compile(example, "README.md", "exec"), names)
        seconds.append(time.perf_counter() - start)
        data = names["data"]
        np.testing.assert_allclose(data["C"], np.einsum("rc->r", data["A"].astype(np.float64)), rtol=0, atol=1e-4)
    assert min(seconds) < 1
    assert "program row_sum(n <= 4096)" in capsys.readouterr().out


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_examples_of_a_page_run(page: str, tmp_path: Path) -> None:
    examples = FENCE.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert examples or page not in {"tutorial.md", "programs.md", "graphs.md", "executors.md"}
    child = subprocess.run(
        [sys.executable, "-W", "error", "-"],
        input="\n".join(examples),
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr
