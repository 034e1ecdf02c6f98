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
def _without_device(capability: tuple[int, ...]) -> Iterator[None]:
    """Let Numba type device functions where there is no GPU: it asks the current device for nothing but its capability."""
    from numba.cuda import dispatcher

    class Device:
        compute_capability = capability
        id = 0

    with _one_at_a_time:
        asked = dispatcher.get_current_device
        dispatcher.get_current_device = Device
        try:
            yield
        finally:
            dispatcher.get_current_device = asked


def compile_ptx(kernel: Callable[..., None], capability: tuple[int, ...]) -> str:
    """PTX of a kernel that takes the address of a launch block.

    Parameters
    ----------
    kernel : callable
        ``kernel(launch_address: int64)``.
    capability : tuple of int
        Compute capability, such as ``(9, 0)``.

    Raises
    ------
    ExecutorUnavailable
        Numba runs as a simulator, or NVVM and NVRTC are not installed.
    """
    from numba import cuda, types
    from numba.core import config

    if config.ENABLE_CUDASIM:
        raise ExecutorUnavailable(
            "NUMBA_ENABLE_CUDASIM is set, so Numba cannot compile for a GPU; unset it, or use the cpu or cudasim executor"
        )
    try:
        with _without_device(capability):
            ptx, _ = cuda.compile_ptx(kernel, types.void(types.int64), cc=capability)
    except (ImportError, OSError, RuntimeError) as error:
        if "nvvm" in str(error).lower() or "nvrtc" in str(error).lower():
            raise ExecutorUnavailable(
                f"compiling for a GPU needs NVVM and NVRTC (install etproto[compile], [cuda12] or [cuda13]): {error}"
            ) from error
        raise
    return ptx


def entry_name(ptx: str) -> str:
    """Name of the one kernel in a PTX module."""
    found: list[Any] = re.findall(r"\.visible \.entry (\w+)", ptx)
    if len(found) != 1:
        raise ExecutorUnavailable(f"expected one kernel in the PTX, got {len(found)}")
    return found[0]
