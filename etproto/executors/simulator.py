"""Numba's CUDA simulator with all blocks of a grid running at once.

The stock simulator runs blocks one after another, so a persistent kernel whose blocks wait for each other
hangs in it. Here every CUDA thread of every block is a Python thread, barriers are per block, shared memory
is per block and starts poisoned, and one lock serves all atomics. The kernel and everything that it calls are
copied with ``cuda`` bound to the simulated module, so that simulating changes nothing for code that compiles
the same functions.

Python is sequentially consistent: the simulator finds wrong protocols, never a missing fence.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import cuda
from numba.cuda.simulator.kernelapi import Dim3, FakeCUDAAtomic, FakeCUDAModule

from etproto.errors import NoProgressError
from etproto.kernels.groups import ThreadGroup
from etproto.kernels.ptx.simulated import SimulatedBlock

__all__ = ["launch_simulated", "MOST_THREADS"]

MOST_THREADS = 2048  # Python threads that a simulated launch may start
POISON = 0xA5


class _Stopped(BaseException):
    """Raised inside simulated threads to end them."""


class _Atomic(FakeCUDAAtomic):
    """Numba's simulated atomics behind one lock: the stock ones have a lock an operation, so add and cas do
    not exclude each other.
    """

    def __init__(self) -> None:
        lock = threading.RLock()
        for name in ("add", "sub", "and_", "or_", "xor", "max", "min", "inc", "dec", "exch", "cas", "compare_and_swap"):
            setattr(self, name, _locked(lock, getattr(super(), name)))


def _locked(lock: Any, operation: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with lock:
            return operation(*arguments)

    return call


class _Shared:
    """Shared memory of one block: an array for each place in the source that asks for one, as in a compiled
    kernel.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrays: dict[tuple[Any, int], np.ndarray] = {}

    def array(self, shape: Any, dtype: Any) -> np.ndarray:
        """The block's array for the calling line, filled with a pattern when it is first asked for."""
        frame = sys._getframe(1)
        place = (frame.f_code, frame.f_lineno)
        with self._lock:
            if place not in self._arrays:
                array = np.empty(shape, getattr(np, str(dtype), dtype))
                array.view(np.uint8).fill(POISON)
                self._arrays[place] = array
            return self._arrays[place]


class _Block:
    """One running block: its shared memory, its barriers, and what else stands in for hardware."""

    def __init__(self, threads: int) -> None:
        self.shared = _Shared()
        self.hardware = SimulatedBlock(threads)
        self.votes = np.zeros(threads, np.int64)
        self.barrier = threading.Barrier(threads)

    def stop(self) -> None:
        """End every wait of the block's threads."""
        self.barrier.abort()
        self.hardware.stop()


class _Module(FakeCUDAModule):
    """What the name ``cuda`` means inside simulated code."""

    def __init__(self, grid: int, threads: int) -> None:
        super().__init__((grid, 1, 1), (threads, 1, 1), 0)
        self._atomic = _Atomic()
        self.copying = threading.RLock()

    @property
    def shared(self) -> _Shared:
        return threading.current_thread().block.shared  # type: ignore[attr-defined]  # all simulated code runs in _Thread

    def syncwarp(self, mask: int = 0xFFFFFFFF) -> None:
        """Nothing: warps have no meaning here, so no portable body relies on them."""


class _Thread(threading.Thread):
    """One CUDA thread. Numba's simulated module finds its indices and barriers on the current thread."""

    def __init__(self, run: Callable[[], None], block: _Block, number: int, thread: int, failed: Callable[..., None]):
        super().__init__(daemon=True)
        self.block = block
        self.blockIdx, self.threadIdx = Dim3(number, 0, 0), Dim3(thread, 0, 0)
        self.thread_id = thread
        self._body, self._failed = run, failed

    def run(self) -> None:
        with suppress(_Stopped):  # which may also come while an exception is handled
            try:
                self._body()
            except (_Stopped, threading.BrokenBarrierError):
                pass
            except BaseException as error:
                error.add_note(f"in simulated block {self.blockIdx.x}, thread {self.threadIdx.x}")
                self._failed(error)

    def syncthreads(self) -> None:
        self.block.barrier.wait()

    def _vote(self, value: int) -> np.ndarray:
        self.block.votes[self.thread_id] = value
        self.block.barrier.wait()
        votes = self.block.votes.copy()
        self.block.barrier.wait()
        return votes

    def syncthreads_count(self, value: int) -> int:
        return int(np.count_nonzero(self._vote(value)))

    def syncthreads_and(self, value: int) -> int:
        return int(self._vote(value).all())

    def syncthreads_or(self, value: int) -> int:
        return int(self._vote(value).any())


def _copy_with(function: Any, module: _Module, copies: dict[int, Any]) -> Any:
    """A copy of a Python function, and of the Python functions that it can reach, with ``cuda`` bound to
    `module`.
    """
    function = getattr(function, "py_func", function)  # a compiled device function
    if not isinstance(function, FunctionType) or not _mentions_cuda(function, set()):
        return function
    if id(function) not in copies:
        names: dict[str, Any] = dict(function.__globals__)
        copied = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
        copied.__kwdefaults__ = function.__kwdefaults__
        copies[id(function)] = copied
        for name in _names(function):
            value = names.get(name)
            if value is cuda:
                names[name] = module
            elif isinstance(value, ThreadGroup):
                names[name] = value.simulated(module, _copy_with(value.syncthreads, module, copies))
            elif isinstance(value, ModuleType) and value.__name__.startswith("etproto."):
                names[name] = _ModuleCopy(value, module, copies)
            elif value is not None:
                names[name] = _copy_with(value, module, copies)
        if function.__closure__:
            cells = tuple(_cell(_copy_with(cell.cell_contents, module, copies)) for cell in function.__closure__)
            copied = FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)
            copies[id(function)] = copied
    return copies[id(function)]


class _ModuleCopy:
    """A module seen from simulated code: its functions are copies."""

    def __init__(self, module: ModuleType, simulated: _Module, copies: dict[int, Any]) -> None:
        self._source, self._simulated, self._copies = module, simulated, copies

    def __getattr__(self, name: str) -> Any:
        with self._simulated.copying:  # a copy is in `copies` before it is complete
            value = _copy_with(getattr(self._source, name), self._simulated, self._copies)
        setattr(self, name, value)
        return value


def _cell(value: Any) -> Any:
    return (lambda: value).__closure__[0]  # type: ignore[index]  # the lambda closes over value


def _names(function: FunctionType) -> tuple[str, ...]:
    return function.__code__.co_names


def _mentions_cuda(function: Any, seen: set[int]) -> bool:
    """Whether a function can reach ``cuda``; the others (twins of intrinsics, record readers) need no copy."""
    function = getattr(function, "py_func", function)
    if isinstance(function, ModuleType):
        return function.__name__.startswith("etproto.kernels")
    if not isinstance(function, FunctionType) or id(function) in seen:
        return False
    seen.add(id(function))
    values = [function.__globals__.get(name) for name in _names(function)]
    values += [cell.cell_contents for cell in function.__closure__ or ()]
    return any(value is cuda or isinstance(value, ThreadGroup) or _mentions_cuda(value, seen) for value in values)


def launch_simulated(
    kernel: Callable[..., None], grid: int, threads: int, arguments: tuple[Any, ...], *, timeout_s: float
) -> None:
    """Run ``kernel[grid, threads](*arguments)`` with all blocks at once.

    Parameters
    ----------
    kernel : callable
        A plain Python function written for Numba CUDA; blocks and threads are one-dimensional.
    grid, threads : int
    arguments : tuple
    timeout_s : float
        Seconds after which the launch is stopped, for bodies that never return.

    Raises
    ------
    NoProgressError
        The time ran out; simulated threads have been told to stop.
    BaseException
        What a simulated thread raised first, with its block and thread noted.
    """
    module = _Module(grid, threads)
    run = _copy_with(kernel, module, {})
    errors: list[BaseException] = []
    blocks = [_Block(threads) for _ in range(grid)]

    def failed(error: BaseException) -> None:
        errors.append(error)
        for block in blocks:
            block.stop()

    started = [
        _Thread(lambda: run(*arguments), block, number, thread, failed)
        for number, block in enumerate(blocks)
        for thread in range(threads)
    ]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # polling threads hold the interpreter until they are made to give way
    try:
        for thread in started:
            thread.start()
        deadline = time.monotonic() + timeout_s
        late = False
        while any(thread.is_alive() for thread in started):
            for thread in started:
                thread.join(timeout=0.05)
                if errors or time.monotonic() > deadline:
                    break
            if errors or time.monotonic() > deadline:
                late = not errors
                _stop(started)
                break
    finally:
        sys.setswitchinterval(interval)
    if errors:
        raise errors[0]
    if late:
        raise NoProgressError(f"simulated kernel: still running after {timeout_s:g} s, and stopped")


def _stop(threads: list[_Thread]) -> None:
    """End all waits, and raise `_Stopped` in threads that go on nevertheless; wait a little for them to end."""
    for thread in threads:
        thread.block.stop()
    deadline = time.monotonic() + 0.2
    for thread in threads:
        thread.join(timeout=max(0.0, deadline - time.monotonic()))
    for thread in threads:
        if thread.is_alive() and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Stopped))
    for thread in threads:
        thread.join(timeout=1.0)
