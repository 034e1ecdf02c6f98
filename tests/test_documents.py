"""README, CHANGELOG, docstrings and all tracked text say what they must, and nothing that they must not."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = {".py", ".md", ".cfg", ".toml", ".yml", ".yaml", ".cff", ".txt", ".csv", ".json", ".mplstyle", ""}

# Bracketed letters keep this file from finding itself.
LOCAL_PATH = re.compile(r"(?<![\w.])(?:/(?:home|Users|[r]oot|wo[r]k|mnt)/|[A-Z]:\\Users)[\w.-]*")
OPEN_WORK = re.compile(r"\b(?:TO[D]O|FI[X]ME|X[X]X)\b(?!\s*\(#\d+\))")
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def tracked_files() -> list[Path]:
    """Files of the project: tracked, or new and not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"not a git checkout, so tracked files are not known: {error}")
    return [path for name in sorted(set(listed.split("\0"))) if name and (path := ROOT / name).is_file()]


@pytest.fixture(scope="module")
def readme() -> str:
    path = ROOT / "README.md"
    if not path.is_file():
        pytest.fail("README.md is missing at the top of the repository", pytrace=False)
    return path.read_text(encoding="utf-8")


def matches(pattern: re.Pattern) -> list[str]:
    """Where a pattern is found in the project's text files, as ``file:line: text``."""
    found = []
    for path in tracked_files():
        if path.suffix in TEXT:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if match := pattern.search(line):
                    found.append(f"{path.relative_to(ROOT)}:{number}: {match.group()}")
    return found


# -- README and CHANGELOG ---------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_readme_names_the_commands(readme: str, command: str) -> None:
    assert re.search(rf"^(?:\$ )?{command}\b", readme, re.MULTILINE), (
        f"README.md has no line that starts with {command!r}"
    )


def test_readme_example_runs(readme: str, tmp_path: Path) -> None:
    examples = FENCE.findall(readme)
    assert examples, "README.md has no fenced python example"
    result = subprocess.run(
        [sys.executable, "-"],
        input="\n".join(examples),
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for path in tracked_files():
        if path.suffix == ".md":
            for target in LINK.findall(path.read_text(encoding="utf-8")):
                file = target.partition("#")[0]
                if (
                    file
                    and "://" not in target
                    and not target.startswith("mailto:")
                    and not (path.parent / file).exists()
                ):
                    broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert broken == []


def test_changelog_begins_with_what_is_unreleased() -> None:
    sections = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sections[:1] == ["Unreleased"]


# -- docstrings and text ----------------------------------------------------------------------------


def test_every_public_module_has_a_docstring() -> None:
    public = [p for p in sorted((ROOT / "etproto").rglob("*.py")) if not re.match(r"_(?!_)", p.stem)]
    silent = [p for p in public if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))]
    assert [str(p.relative_to(ROOT)) for p in silent] == []


def test_no_path_of_one_machine_is_in_the_text() -> None:
    assert matches(LOCAL_PATH) == []


def test_open_work_names_its_issue() -> None:
    assert matches(OPEN_WORK) == [], "write what is left into an issue, and its number here: (#12)"


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (LOCAL_PATH, "see /ho" + "me/ann/x.py", True),
        (LOCAL_PATH, "C:\\Us" + "ers\\ann", True),
        (LOCAL_PATH, "https://example.org/wo" + "rk/x", False),
        (LOCAL_PATH, "docs/ho" + "me/x", False),
        (OPEN_WORK, "# TO" + "DO: this", True),
        (OPEN_WORK, "# TO" + "DO (#12): this", False),
    ],
)
def test_text_patterns(pattern: re.Pattern, text: str, expected: bool) -> None:
    assert bool(pattern.search(text)) == expected
