"""What this machine offers: Python, packages, GPU, limits, and why a GPU is not used."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata

from etproto.errors import EtprotoError
from etproto.executors.driver import device_facts, why_no_gpu
from etproto.kernels.cache import cache_folder

__all__ = ["findings", "report"]

CORE = ("numba", "numba-cuda", "numpy", "networkx")
EXTRAS = {
    "cuda12": ("cupy-cuda12x", "nvidia-cuda-nvcc-cu12"),
    "cuda13": ("cupy-cuda13x",),
    "compile": ("cuda-toolkit", "nvidia-nvvm", "nvidia-cuda-nvrtc"),
    "figures": ("matplotlib",),
    "test": ("pytest", "pytest-xdist", "hypothesis", "scipy", "pyyaml"),
}


def report() -> str:
    """All findings, one a line.

    Examples
    --------
    >>> report().splitlines()[0].startswith("etproto")
    True
    """
    return "\n".join(f"{name:<18} {value}" for name, value in findings())


def findings() -> list[tuple[str, str]]:
    """Pairs of a name and what was found; never raises for what is missing."""
    found = [
        ("etproto", _version("etproto") or "not installed, used from its source"),
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("processors", str(os.cpu_count())),
    ]
    found += [(name, _version(name) or "missing: etproto needs it") for name in CORE]
    for extra, packages in EXTRAS.items():
        versions = [f"{name} {version}" for name in packages if (version := _version(name))]
        found.append((f"extra {extra}", ", ".join(versions) or "not installed"))
    return [*found, ("kernel cache", str(cache_folder())), *_gpu()]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _gpu() -> list[tuple[str, str]]:
    reason = why_no_gpu()
    if reason is not None:
        return [("gpu", f"not used: {reason}"), ("default executor", "cpu")]
    try:
        facts = device_facts()
        found = [
            ("gpu", f"{facts.name}, compute capability {facts.capability[0]}.{facts.capability[1]}"),
            ("driver", f"CUDA {facts.driver // 1000}.{facts.driver % 1000 // 10}"),
            ("multiprocessors", str(facts.processors)),
            ("shared memory", f"{facts.shared_per_block:,} bytes a block at most"),
        ]
    except (EtprotoError, RuntimeError, OSError) as error:
        return [("gpu", f"not used: it does not answer: {error}"), ("default executor", "cpu")]
    try:
        found.append(("resident workers", _residents()))
    except (EtprotoError, RuntimeError, OSError) as error:
        found.append(("resident workers", f"unknown, since no kernel can be made: {error}"))
    return [*found, ("default executor", "cuda")]


def _residents() -> str:
    from etproto.executors.cuda import resident_limit
    from etproto.models import splitk

    kinds = tuple(grid.kind for grid in splitk.program().parsed)
    limit, why = resident_limit(kinds)
    return f"{limit} of the splitk kernel: {why}"
