"""Compiled kernels on disk: one file a key, written atomically, so that processes may share the folder."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

__all__ = ["cache_folder", "load_binary", "store_binary"]


def cache_folder() -> Path:
    """Where compiled kernels are kept: ``~/.cache/etproto``. Deleting it is always safe."""
    return Path.home() / ".cache" / "etproto"


def load_binary(key: str, folder: Path | None = None) -> tuple[bytes, dict] | None:
    """The binary stored under `key` and the facts stored with it; None when there is none (or half of one)."""
    path = (folder or cache_folder()) / f"{key}.cubin"
    try:
        facts = json.loads(path.with_suffix(".json").read_text())
        return path.read_bytes(), facts
    except (OSError, json.JSONDecodeError):
        return None


def store_binary(key: str, binary: bytes, facts: dict, folder: Path | None = None) -> None:
    """Store a binary under `key`. A folder that cannot be written leaves no trace: the kernel is compiled
    again next time.
    """
    folder = folder or cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The facts come last: who finds them finds the binary.
        for suffix, data in ((".cubin", binary), (".json", json.dumps(facts).encode())):
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(data)
            os.replace(file.name, folder / f"{key}{suffix}")
    except OSError:
        return
