"""The few CUDA driver calls that the cuda executor makes, with their errors as Python exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from etproto.errors import ExecutorUnavailable, RunError

__all__ = ["DeviceFacts", "Kernel", "check", "device_facts", "link", "load_kernel", "stream_handle", "why_no_gpu"]


def check(result: tuple[Any, ...], what: str) -> Any:
    """The value of a driver call, or a RunError that names the call and the driver's reason."""
    from cuda.bindings import driver

    error, *values = result
    if error != driver.CUresult.CUDA_SUCCESS:
        _, name = driver.cuGetErrorName(error)
        _, text = driver.cuGetErrorString(error)
        raise RunError(f"{what}: {(name or b'?').decode()}: {(text or b'?').decode()}")
    return values[0] if len(values) == 1 else tuple(values)


def why_no_gpu() -> str | None:
    """Why the cuda executor cannot run here, or None when it can."""
    from numba.core import config

    if config.ENABLE_CUDASIM:
        return "NUMBA_ENABLE_CUDASIM is set, so Numba simulates CUDA; unset it, or use the cpu or cudasim executor"
    try:
        from cuda.bindings import driver

        check(driver.cuInit(0), "cuInit")
        if check(driver.cuDeviceGetCount(), "cuDeviceGetCount") == 0:
            return "the NVIDIA driver finds no GPU; use the cpu executor"
    except ImportError as error:
        return (
            f"cuda.bindings cannot be imported ({error}); install etproto[cuda12] or etproto[cuda13],"
            f" or use the cpu executor"
        )
    except RuntimeError as error:
        return f"there is no NVIDIA driver ({error}); use the cpu executor"
    except RunError as error:
        return f"the NVIDIA driver does not start ({error}); use the cpu executor"
    return None


@dataclass(frozen=True)
class DeviceFacts:
    """What decides how many workers a device can hold."""

    name: str
    capability: tuple[int, int]
    processors: int
    shared_per_block: int
    driver: int


def device_facts() -> DeviceFacts:
    """Facts of the current device.

    Raises
    ------
    ExecutorUnavailable
        There is none; the text says why.
    """
    reason = why_no_gpu()
    if reason is not None:
        raise ExecutorUnavailable(f"cuda executor: {reason}")
    from cuda.bindings import driver
    from numba import cuda

    cuda.current_context()  # creates the primary context, which CuPy and PyTorch share
    device = check(driver.cuCtxGetDevice(), "cuCtxGetDevice")
    attribute = driver.CUdevice_attribute

    def ask(name: str) -> int:
        number = getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(driver.cuDeviceGetAttribute(number, device), f"cuDeviceGetAttribute {name}"))

    return DeviceFacts(
        name=check(driver.cuDeviceGetName(128, device), "cuDeviceGetName").split(b"\0")[0].decode(),
        capability=(ask("COMPUTE_CAPABILITY_MAJOR"), ask("COMPUTE_CAPABILITY_MINOR")),
        processors=ask("MULTIPROCESSOR_COUNT"),
        shared_per_block=ask("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        driver=int(check(driver.cuDriverGetVersion(), "cuDriverGetVersion")),
    )


def link(ptx: str) -> bytes:
    """Machine code of a PTX module for the current device, by the driver's own compiler."""
    from cuda.bindings import driver

    state = check(driver.cuLinkCreate(0, [], []), "cuLinkCreate")
    try:
        image = ptx.encode() + b"\0"
        kind = driver.CUjitInputType.CU_JIT_INPUT_PTX
        check(driver.cuLinkAddData(state, kind, image, len(image), b"worker.ptx", 0, [], []), "cuLinkAddData")
        address, size = check(driver.cuLinkComplete(state), "cuLinkComplete")
        import ctypes

        return ctypes.string_at(int(address), size)
    finally:
        driver.cuLinkDestroy(state)


@dataclass(frozen=True)
class Kernel:
    """A loaded kernel; `module` keeps it loaded. A launch asks for `dynamic_bytes` of shared memory."""

    function: Any
    module: Any
    registers: int
    shared_bytes: int
    local_bytes: int
    dynamic_bytes: int = 0

    def resident_blocks(self, threads: int) -> int:
        """Blocks of `threads` threads that one multiprocessor holds at once, for the kernel as it was
        compiled.
        """
        from cuda.bindings import driver

        call = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(self.function, threads, self.dynamic_bytes)
        return int(check(call, "cuOccupancyMaxActiveBlocksPerMultiprocessor"))

    def launch(self, grid: int, threads: int, stream: int, argument: np.ndarray) -> None:
        """Enqueue the kernel with one int64 argument."""
        from cuda.bindings import driver

        parameters = np.array([argument.ctypes.data], np.uint64)
        shape = (grid, 1, 1, threads, 1, 1)
        call = driver.cuLaunchKernel(self.function, *shape, self.dynamic_bytes, stream, parameters.ctypes.data, 0)
        check(call, f"launch of {grid} blocks of {threads} threads")


def load_kernel(binary: bytes, name: str, dynamic_bytes: int = 0) -> Kernel:
    """Load machine code into the current context; its launches will ask for `dynamic_bytes` of shared memory."""
    from cuda.bindings import driver

    module = check(driver.cuModuleLoadData(binary), "cuModuleLoadData")
    function = check(driver.cuModuleGetFunction(module, name.encode()), "cuModuleGetFunction")
    attribute = driver.CUfunction_attribute

    def ask(what: str) -> int:
        number = getattr(attribute, f"CU_FUNC_ATTRIBUTE_{what}")
        return int(check(driver.cuFuncGetAttribute(number, function), f"cuFuncGetAttribute {what}"))

    if dynamic_bytes:
        limit = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call = driver.cuFuncSetAttribute(function, limit, dynamic_bytes)
        check(call, f"cuFuncSetAttribute: {dynamic_bytes} bytes of dynamic shared memory")
    return Kernel(function, module, ask("NUM_REGS"), ask("SHARED_SIZE_BYTES"), ask("LOCAL_SIZE_BYTES"), dynamic_bytes)


def stream_handle(stream: Any) -> int:
    """Integer handle of a stream of Numba, CuPy or PyTorch, of anything with ``__cuda_stream__``, or an
    integer.
    """
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for attribute in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, attribute):
            handle = getattr(stream, attribute)
            return int(getattr(handle, "value", handle) or 0)
    return int(stream)
