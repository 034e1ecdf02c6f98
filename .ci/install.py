"""Install etproto, editable, with the extras named, into the environment of the Python that runs this.

Does nothing when all of it is there already, so that `make` can call it before every target and work offline.
With ``--gpu``, a machine with an NVIDIA GPU gets the CUDA extra that its driver can run as well. Needs only
the standard library.
"""

from __future__ import annotations

import argparse
import configparser
import importlib.util
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent


def driver_report() -> str:
    """Text of ``nvidia-smi``; empty where there is no driver or no GPU."""
    try:
        subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, timeout=60)
        return subprocess.run(["nvidia-smi"], check=True, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def cuda_extras(report: str) -> list[str]:
    """CUDA extras that the driver of an ``nvidia-smi`` report can run, best first; none before CUDA 12."""
    found = re.search(r"CUDA (?:\w+ )?Version\s*:\s*(\d+)", report)
    major = int(found.group(1)) if found else 0
    return [extra for extra in ("cuda13", "cuda12") if major >= int(extra.removeprefix("cuda"))]


def requirements(extras: list[str]) -> list[str]:
    """Requirement lines of setup.cfg: those of the core, then those of `extras`."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    sections = [config["options"]["install_requires"], *(config["options.extras_require"][e] for e in extras)]
    return [line.strip() for text in sections for line in text.splitlines() if line.strip()]


def satisfied(requirement: Requirement) -> bool:
    """Whether a requirement and what its extras bring are installed here in versions that it allows."""
    from packaging.requirements import Requirement

    try:
        distribution = metadata.distribution(requirement.name)
    except metadata.PackageNotFoundError:
        return False
    brought = [Requirement(line) for line in distribution.requires or ()]
    return requirement.specifier.contains(distribution.version, prereleases=True) and all(
        satisfied(one)
        for one in brought
        if one.marker and any(one.marker.evaluate({"extra": extra}) for extra in requirement.extras)
    )


def installed(extras: list[str]) -> bool:
    """Whether this checkout and all requirements of `extras` are installed here."""
    try:
        from packaging.requirements import Requirement

        metadata.version("etproto")
    except (ImportError, metadata.PackageNotFoundError):
        return False
    found = importlib.util.find_spec("etproto")
    here = found is not None and Path(found.origin or "").resolve() == ROOT / "etproto" / "__init__.py"
    return here and all(satisfied(Requirement(line)) for line in requirements(extras))


def choose(extras: list[str], cuda: list[str]) -> list[str]:
    """Extras to install when the driver can run those of `cuda`; a CUDA extra brings what `compile` would.

    One that is installed already is kept: packages of CUDA 12 run on a driver of CUDA 13, and mixing the two
    breaks both.
    """
    if not cuda:
        return extras
    chosen = next((extra for extra in cuda if installed([extra])), cuda[0])
    return [chosen, *(extra for extra in extras if extra != "compile")]


def main() -> int:
    """Install what is missing; the exit status is pip's."""
    parser = argparse.ArgumentParser(description="Install etproto and extras where anything of them is missing.")
    parser.add_argument("extras", nargs="*", help="names of extras in setup.cfg")
    parser.add_argument("--gpu", action="store_true", help="add the CUDA extra of this machine's driver")
    arguments = parser.parse_args()
    extras = choose(arguments.extras, cuda_extras(driver_report()) if arguments.gpu else [])
    if installed(extras):
        return 0
    target = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    print(f"installing etproto with {', '.join(extras) or 'no extras'} into {sys.prefix} ...", flush=True)
    if importlib.util.find_spec("pip") is None:
        subprocess.run([sys.executable, "-m", "ensurepip"], check=True, stdout=subprocess.DEVNULL)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if sys.prefix != sys.base_prefix:  # a root user's virtual environment is no reason to warn
        pip.append("--root-user-action=ignore")
    return subprocess.run([*pip, "--editable", target]).returncode


if __name__ == "__main__":
    sys.exit(main())
