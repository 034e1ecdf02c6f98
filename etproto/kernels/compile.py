"""Compilation of kernels to PTX, which needs no GPU."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from etproto.errors import ExecutorUnavailable

__all__ = ["compile_ptx", "entry_name"]

_one_at_a_time = threading.Lock()


@contextmanager
def _adapted_numba(capability: tuple[int | str, ...]) -> Iterator[None]:
    """Numba CUDA with two changes, for the time of one compilation.

    It asks the current device for its capability when it types device functions, even where there is none:
    here it gets the one compiled for. And a device function that is reached by two paths is linked twice, so
    that compile time grows with the number of paths and a shared array in it is "multiply defined": here
    every module is linked once.
    """
    from numba.cuda import dispatcher
    from numba.cuda.codegen import CUDACodeLibrary

    class Device:
        compute_capability = capability
        id = 0

    with _one_at_a_time:
        asked, listed = dispatcher.get_current_device, CUDACodeLibrary.modules
        dispatcher.get_current_device = Device
        CUDACodeLibrary.modules = property(_distinct_modules)
        try:
            yield
        finally:
            dispatcher.get_current_device, CUDACodeLibrary.modules = asked, listed


def _distinct_modules(library: Any) -> list[Any]:
    """The module of a code library and those of all it links, each once."""
    found: dict[int, Any] = {}
    pending = [library]
    while pending:
        linked = pending.pop()
        if id(linked._module) not in found:
            found[id(linked._module)] = linked._module
            pending += sorted(linked._linking_libraries, key=lambda one: one.name)
    return list(found.values())


def compile_ptx(kernel: Callable[..., None], capability: tuple[int | str, ...], threads: int | None = None) -> str:
    """PTX of a kernel that takes the address of a launch block.

    Parameters
    ----------
    kernel : callable
        ``kernel(launch_address: int64)``.
    capability : tuple
        Compute capability, such as ``(9, 0)``; ``(9, 0, "a")`` for what only that architecture has.
    threads : int, optional
        Threads of a block, if they are known: then registers are allotted for one such block on a
        multiprocessor, which `setmaxnreg` asks for.

    Raises
    ------
    ExecutorUnavailable
        Numba runs as a simulator, or NVVM and NVRTC are not installed.
    """
    from numba import cuda, types
    from numba.core import config

    if config.ENABLE_CUDASIM:
        raise ExecutorUnavailable(
            "NUMBA_ENABLE_CUDASIM is set, so Numba cannot compile for a GPU; unset it, or use the cpu or cudasim"
            " executor"
        )
    try:
        with _adapted_numba(capability):
            ptx, _ = cuda.compile_ptx(kernel, types.void(types.int64), cc=capability)
    except (ImportError, OSError, RuntimeError) as error:
        if "nvvm" in str(error).lower() or "nvrtc" in str(error).lower():
            raise ExecutorUnavailable(
                f"compiling for a GPU needs NVVM and NVRTC (install etproto[compile], [cuda12] or [cuda13]): {error}"
            ) from error
        raise
    if threads is not None:
        bounds = f"\n.maxntid {threads}, 1, 1\n.minnctapersm 1\n{{"
        ptx = re.sub(r"(\.visible \.entry \w+\([^)]*\))\s*\{", lambda found: found.group(1) + bounds, ptx)
    return ptx


def entry_name(ptx: str) -> str:
    """Name of the one kernel in a PTX module."""
    found: list[Any] = re.findall(r"\.visible \.entry (\w+)", ptx)
    if len(found) != 1:
        raise ExecutorUnavailable(f"expected one kernel in the PTX, got {len(found)}")
    return found[0]
