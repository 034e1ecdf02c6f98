"""A key for everything that a compiled kernel depends on, so that a cached binary is never stale.

Numba's own cache looks at the kernel's file alone and misses changes in the functions that it calls. This key
covers the code of every function reached, the constants and closure values they use, and the versions of what
compiles them.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from importlib.metadata import version
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

__all__ = ["fingerprint", "compiler_versions"]


def compiler_versions() -> dict[str, str]:
    """Versions of the packages that turn Python into device code."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("numba", "numba-cuda", "llvmlite", "numpy")},
    }


def fingerprint(function: Callable[..., Any], *settings: Any) -> str:
    """SHA-256 of a function, all it reaches, the compilers' versions and `settings` (such as the
    architecture), in hex.

    Examples
    --------
    >>> def scaled(factor):
    ...     return lambda x: factor * x
    >>> fingerprint(scaled(2)) == fingerprint(scaled(2)), fingerprint(scaled(2)) == fingerprint(scaled(3))
    (True, False)
    """
    digest = hashlib.sha256()

    def update(part: bytes) -> None:
        digest.update(len(part).to_bytes(8, "little") + part)  # so that 1, 23 and 12, 3 differ

    update(repr((sorted(compiler_versions().items()), settings)).encode())
    _visit(function, (), update, set())
    return digest.hexdigest()


def _visit(value: Any, names: tuple[str, ...], update: Callable[[bytes], Any], seen: set[int]) -> None:
    """Feed a value to the digest; `names` are the attributes that the referring code may take of it."""
    value = getattr(value, "py_func", value)
    if hasattr(value, "__ptx__"):
        update(repr(value.__ptx__).encode())
    if isinstance(value, FunctionType):
        if id(value) in seen:
            return
        seen.add(id(value))
        used = _visit_code(value.__code__, update)
        for name in used:
            if name in value.__globals__:
                update(name.encode())
                _visit(value.__globals__[name], used, update, seen)
        for cell in value.__closure__ or ():
            _visit(cell.cell_contents, used, update, seen)
        for default in value.__defaults__ or ():
            _visit(default, used, update, seen)
    elif isinstance(value, ModuleType):
        update(value.__name__.encode())
        if value.__name__.startswith(("numba", "numpy")):
            return  # covered by the versions
        for name in names:
            if hasattr(value, name):
                update(name.encode())
                _visit(getattr(value, name), names, update, seen)
    elif isinstance(value, np.ndarray):
        update(repr((value.dtype, value.shape)).encode() + value.tobytes())
    elif isinstance(value, (tuple, list)):
        update(f"{len(value)} elements".encode())
        for element in value:
            _visit(element, names, update, seen)
    elif isinstance(value, (int, float, str, bytes, bool, np.generic, type(None))):
        update(repr(value).encode())
    elif isinstance(value, type):
        update(f"{value.__module__}.{value.__qualname__}".encode())
    else:  # the name tells Numba's and NumPy's types apart
        update(f"{type(value).__module__}.{type(value).__qualname__} {getattr(value, 'name', '')}".encode())


def _visit_code(code: CodeType, update: Callable[[bytes], Any]) -> tuple[str, ...]:
    """Feed a code object and those inside it to the digest; the names they use."""
    update(code.co_code + repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    used = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            used += _visit_code(constant, update)
        else:
            update(repr(constant).encode())
    return tuple(used)
