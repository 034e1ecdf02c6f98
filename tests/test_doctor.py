"""The doctor names what it finds, and what is missing, and never fails."""

from __future__ import annotations

import numba
import pytest

from etproto import doctor
from etproto.cli import main
from etproto.errors import ExecutorUnavailable
from etproto.executors.driver import DeviceFacts

FACTS = DeviceFacts("Test Device", (9, 0), 132, 232448, 12090)


def test_no_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "why_no_gpu", lambda: "the GPU is on holiday; use the cpu executor")
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = dict(
        line.split(None, 1) for line in out.splitlines() if not line.startswith(("extra", "kernel", "default"))
    )
    assert lines["gpu"] == "not used: the GPU is on holiday; use the cpu executor"
    assert lines["numba"] == numba.__version__
    assert "default executor   cpu" in out


def test_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "why_no_gpu", lambda: None)
    monkeypatch.setattr(doctor, "device_facts", lambda: FACTS)
    monkeypatch.setattr(doctor, "_residents", lambda: "264 of the splitk kernel: 2 blocks on each")
    found = dict(doctor.findings())
    assert found["gpu"] == "Test Device, compute capability 9.0"
    assert found["driver"] == "CUDA 12.9"
    assert found["multiprocessors"] == "132"
    assert found["shared memory"] == "232,448 bytes a block at most"
    assert found["resident workers"].startswith("264")
    assert found["default executor"] == "cuda"


def test_gpu_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise ExecutorUnavailable("compiling for a GPU needs NVVM")

    monkeypatch.setattr(doctor, "why_no_gpu", lambda: None)
    monkeypatch.setattr(doctor, "device_facts", lambda: FACTS)
    monkeypatch.setattr(doctor, "_residents", missing)
    assert dict(doctor.findings())["resident workers"] == (
        "unknown, since no kernel can be made: compiling for a GPU needs NVVM"
    )


def test_gpu_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> DeviceFacts:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(doctor, "why_no_gpu", lambda: None)
    monkeypatch.setattr(doctor, "device_facts", broken)
    found = dict(doctor.findings())
    assert found["gpu"] == "not used: it does not answer: out of memory"
    assert found["default executor"] == "cpu"


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "why_no_gpu", lambda: "none")
    monkeypatch.setattr(doctor, "CORE", ("no-such-package",))
    monkeypatch.setattr(doctor, "EXTRAS", {"cuda12": ("no-such-package",), "test": ("pytest", "no-such-package")})
    found = dict(doctor.findings())
    assert found["no-such-package"] == "missing: etproto needs it"
    assert found["extra cuda12"] == "not installed"
    assert found["extra test"] == f"pytest {pytest.__version__}"


@pytest.mark.gpu
def test_this_gpu() -> None:
    found = dict(doctor.findings())
    assert found["default executor"] == "cuda"
    assert int(found["resident workers"].split()[0]) >= int(found["multiprocessors"])
