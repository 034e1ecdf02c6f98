"""What is installed, and where: setup.cfg, environment.yml, the Makefile and .ci/install.py agree."""

from __future__ import annotations

import configparser
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
CORE = {"numba", "numba-cuda", "numpy", "networkx"}


def lines(text: str) -> list[Requirement]:
    return [Requirement(line) for line in text.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def config() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


@pytest.fixture(scope="module")
def extras(config: configparser.ConfigParser) -> dict[str, list[Requirement]]:
    return {name: lines(text) for name, text in config["options.extras_require"].items()}


@pytest.fixture(scope="module")
def environment() -> dict:
    return yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def install() -> ModuleType:
    """The installer of the Makefile, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("install", ROOT / ".ci" / "install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- setup.cfg --------------------------------------------------------------------------------------


def test_core_requirements(config: configparser.ConfigParser) -> None:
    core = {r.name: r.specifier for r in lines(config["options"]["install_requires"])}
    assert set(core) == CORE
    assert core["numba"] == SpecifierSet("==0.68.*")
    assert core["numba-cuda"] == SpecifierSet("==0.30.*")
    assert "2.5" not in core["numpy"] and "2.4.6" in core["numpy"]


def test_every_extra_agrees_with_the_core(config: configparser.ConfigParser, extras: dict) -> None:
    core = {r.name: r.specifier for r in lines(config["options"]["install_requires"])}
    repeated = [r for requirements in extras.values() for r in requirements if r.name in core]
    assert repeated and all(r.specifier == core[r.name] for r in repeated)


@pytest.mark.parametrize("major", ["12", "13"])
def test_cuda_extras_hold_to_one_major_version(extras: dict, major: str) -> None:
    found = {r.name: r for r in extras[f"cuda{major}"]}
    assert found["numba-cuda"].extras == {f"cu{major}"}
    assert f"cupy-cuda{major}x" in found


def test_compile_needs_what_cuda13_needs_less_the_arrays(extras: dict) -> None:
    assert set(map(str, extras["compile"])) == {str(r) for r in extras["cuda13"] if not r.name.startswith("cupy")}


def test_python_versions(config: configparser.ConfigParser) -> None:
    supported = SpecifierSet(config["options"]["python_requires"])
    classifiers = config["metadata"]["classifiers"]
    for minor in range(8, 20):
        assert (f"3.{minor}.1" in supported) == (f"Python :: 3.{minor}\n" in classifiers), f"Python 3.{minor}"
    assert "3.10.1" not in supported and "3.11.0" in supported and "3.14.0" not in supported
    assert f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}" in supported


def test_versions_installed_here_are_those_asked_for(config: configparser.ConfigParser) -> None:
    for requirement in lines(config["options"]["install_requires"]):
        version = importlib.metadata.version(requirement.name)
        assert version in requirement.specifier, f"{requirement.name}: got {version}, expected {requirement.specifier}"


def test_the_citation_names_the_version(config: configparser.ConfigParser) -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == config["metadata"]["version"]
    assert citation["license"] == config["metadata"]["license"] == "MIT"


# -- environment.yml --------------------------------------------------------------------------------


def test_environment_names_and_pins(config: configparser.ConfigParser, extras: dict, environment: dict) -> None:
    assert environment["name"] == config["metadata"]["name"]
    assert environment["channels"][0] == "conda-forge"
    (pip,) = (entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    (editable,) = (line.removeprefix("-e ") for line in pip if line.startswith("-e "))
    project = Requirement(editable.replace(".", config["metadata"]["name"], 1))
    assert project.extras == {"cuda12", "figures", "test"} <= set(extras)

    known = lines(config["options"]["install_requires"]) + [r for name in project.extras for r in extras[name]]
    pins = {r.name: r.specifier for r in known}
    for line in pip:
        if not line.startswith("-e "):
            requirement = Requirement(line)
            assert requirement.specifier == pins[requirement.name], line


def test_environment_conda_part(config: configparser.ConfigParser, environment: dict) -> None:
    conda = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    versions = dict(entry.partition("=")[::2] for entry in conda)
    assert f"{versions['python']}.0" in SpecifierSet(config["options"]["python_requires"])
    # What pip installs from setup.cfg's pins may not come from conda too, where nothing holds it to them.
    assert set(versions) == {"python", "pip"}


# -- .ci/install.py ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (
            "| NVIDIA-SMI 580.95.05   Driver Version: 580.95.05   CUDA Version: 13.0     |",
            ["cuda13", "cuda12"],
        ),
        ("| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4     |", ["cuda12"]),
        ("| NVIDIA-SMI 470.82.01   Driver Version: 470.82.01   CUDA Version: 11.4     |", []),
        (
            "| NVIDIA-SMI 600.10    KMD Version: 600.10    CUDA UMD Version: 14.1        |",
            ["cuda13", "cuda12"],
        ),
        ("", []),
    ],
)
def test_cuda_extra_of_a_driver(install: ModuleType, report: str, expected: list[str]) -> None:
    assert install.cuda_extras(report) == expected


def test_driver_report(install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    _script(tmp_path / "nvidia-smi", "echo 'CUDA Version: 13.0'")
    assert install.cuda_extras(install.driver_report()) == ["cuda13", "cuda12"]
    _script(tmp_path / "nvidia-smi", "[ $# = 0 ] && echo 'CUDA Version: 13.0' || exit 9")  # a driver, no GPU
    assert install.driver_report() == ""
    (tmp_path / "nvidia-smi").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install.driver_report() == ""


def test_choice_of_extras(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "installed", lambda extras: False)
    assert install.choose(["compile", "test"], []) == ["compile", "test"]
    assert install.choose(["compile", "test"], ["cuda13", "cuda12"]) == ["cuda13", "test"]
    monkeypatch.setattr(install, "installed", lambda extras: extras == ["cuda12"])
    assert install.choose(["compile", "test"], ["cuda13", "cuda12"]) == ["cuda12", "test"]


def test_installed_means_this_checkout_and_every_extra(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(install.metadata, "version", lambda name: "0.1")
    monkeypatch.setattr(install, "satisfied", lambda requirement: requirement.name != "matplotlib")
    assert install.installed(["test"])
    assert not install.installed(["test", "figures"])
    (tmp_path / "setup.cfg").write_text((ROOT / "setup.cfg").read_text())
    monkeypatch.setattr(install, "ROOT", tmp_path)
    assert not install.installed([])


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("numpy>=2.0,<2.5", True),
        ("numpy>=99", False),
        ("no-such-package-of-that-name", False),
        ("numba-cuda==0.30.*", True),
        ("networkx[no-such-extra]", True),
    ],
)
def test_satisfied(install: ModuleType, requirement: str, expected: bool) -> None:
    assert install.satisfied(Requirement(requirement)) is expected


def test_satisfied_looks_into_extras(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    class Distribution:
        version = "1.0"

        def __init__(self, requires: list[str]) -> None:
            self.requires = requires

    present = {"outer": Distribution(['inner>=2; extra == "x"']), "inner": Distribution([])}
    monkeypatch.setattr(install.metadata, "distribution", present.__getitem__)
    assert install.satisfied(Requirement("outer"))
    assert not install.satisfied(Requirement("outer[x]"))
    present["inner"].version = "2.1"
    assert install.satisfied(Requirement("outer[x]"))


# -- Makefile ---------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile, stand-ins for what it starts, and ``bin`` to be the only folder on PATH."""
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "install.py").write_text("import sys; print('install', *sys.argv[1:], 'into', sys.prefix)")
    (tmp_path / "etproto.py").write_text("import sys; print('ran', *sys.argv[1:], 'in', sys.prefix)")
    (tmp_path / "bin").mkdir()
    for tool in ("make", "sh"):
        (tmp_path / "bin" / tool).symlink_to(_which(tool))
    return tmp_path


def _which(tool: str) -> str:
    return subprocess.run(["sh", "-c", f"command -v {tool}"], capture_output=True, text=True, check=True).stdout.strip()


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _make(checkout: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    environment = {"PATH": str(checkout / "bin"), "HOME": os.environ.get("HOME", "/"), **variables}
    return subprocess.run(
        [_which("make"), *arguments],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_make_skips_interpreters_that_do_not_run_and_builds_an_environment(checkout: Path) -> None:
    _script(checkout / "bin" / "python3.12", "echo 'shim: no such version' >&2; exit 127")
    _script(checkout / "bin" / "python3.13", "exit 1")  # runs, and says that it is not supported
    _script(checkout / "bin" / "python3.11", f'exec "{sys.executable}" "$@"')
    first = _make(checkout, "demo")
    assert first.returncode == 0, first.stderr
    assert f"install --gpu into {checkout}/.venv" in first.stdout
    assert f"ran demo in {checkout}/.venv" in first.stdout
    (checkout / "bin" / "python3.11").unlink()
    assert _make(checkout, "demo").returncode == 0, "an environment that is there needs no other Python"


def test_make_without_a_usable_python_says_so(checkout: Path) -> None:
    result = _make(checkout, "demo")
    assert result.returncode == 2 and "no usable Python among: python3.12" in result.stderr
    result = _make(checkout, "demo", "PYTHON=python2")
    assert result.returncode == 2 and "no usable Python among: python2." in result.stderr


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_make_uses_the_active_environment(checkout: Path, variable: str) -> None:
    result = _make(checkout, "demo", **{variable: sys.prefix})
    assert result.returncode == 0, result.stderr
    assert f"install --gpu into {sys.prefix}\n" in result.stdout and f"ran demo in {sys.prefix}\n" in result.stdout
    assert not (checkout / ".venv").exists()


def test_make_leaves_the_base_environment_of_conda_alone(checkout: Path) -> None:
    result = _make(checkout, "demo", CONDA_PREFIX=sys.prefix, CONDA_DEFAULT_ENV="base")
    assert result.returncode == 2 and "no usable Python" in result.stderr


def test_make_prefers_the_python_it_is_given(checkout: Path) -> None:
    result = _make(checkout, "demo", f"PYTHON={sys.executable}", VIRTUAL_ENV="/nonexistent")
    assert result.returncode == 0, result.stderr
    assert f"ran demo in {checkout}/.venv" in result.stdout
