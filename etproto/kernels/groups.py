"""Parts of a thread block that run block-wide code: the consumer warps, or one warp.

Bodies say ``cuda.threadIdx.x``, ``cuda.blockDim.x`` and ``cuda.syncthreads()``. In a block whose warps have roles
these must mean the group that runs the body, so the body is copied with ``cuda`` bound to a module of the
group; everything else in it is Numba's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from numba import cuda

from etproto.kernels.ptx.barrier import named_barrier
from etproto.kernels.ptx.inline import SIMULATED, device_function
from etproto.kernels.ptx.warp import lane, warp_barrier

__all__ = ["CONSUMERS", "CONSUMER_THREADS", "WARP", "ThreadGroup", "rebound"]

CONSUMER_THREADS = 256
_CONSUMER_BARRIER = 1  # 0 is that of the whole block


class ThreadGroup(ModuleType):
    """A module that stands for ``numba.cuda`` in the code of a group of threads.

    Parameters
    ----------
    name : str
    threads : int
        Threads of the group.
    thread : callable or None
        Device function that gives a thread's number in the group; None: its number in the block.
    barrier : callable
        Device function of no arguments: a barrier of the group.
    """

    def __init__(self, name: str, threads: int, thread: Callable[[], int] | None, barrier: Callable[[], None]) -> None:
        super().__init__(f"etproto.kernels.groups.{name}")
        self.threads, self.thread = threads, thread
        self.copies: dict[Any, Any] = {}  # by original; one a group, so that each is compiled once
        for attribute in dir(cuda):
            if not attribute.startswith("_"):
                setattr(self, attribute, getattr(cuda, attribute))
        self.syncthreads = barrier
        if not SIMULATED:
            _teach_numba(self)

    def simulated(self, module: Any, syncthreads: Callable[[], None]) -> SimulatedGroup:
        """What the group's module is in simulated code, where `module` is the simulator's ``cuda``."""
        return SimulatedGroup(self, module, syncthreads)


class SimulatedGroup:
    """The simulator's ``cuda`` but for the group's own threads; which thread asks is looked up anew every time."""

    def __init__(self, group: ThreadGroup, module: Any, syncthreads: Callable[[], None]) -> None:
        self._group, self._module = group, module
        self.blockDim = SimpleNamespace(x=group.threads)
        self.syncthreads = syncthreads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    @property
    def threadIdx(self) -> SimpleNamespace:  # CUDA's name
        thread = self._module.threadIdx.x if self._group.thread is None else self._group.thread()
        return SimpleNamespace(x=thread)


def _teach_numba(group: ThreadGroup) -> None:
    """Type and lower the group's ``threadIdx`` and ``blockDim``; the rest is typed as for ``numba.cuda``."""
    from llvmlite import ir
    from numba.cuda import cgutils, types
    from numba.cuda.cudadecl import CudaModuleTemplate
    from numba.cuda.cudadecl import registry as declarations
    from numba.cuda.cudaimpl import registry as implementations
    from numba.cuda.descriptor import cuda_target

    kind = types.Module(group)
    word = ir.IntType(32)
    zero = ir.Constant(word, 0)

    class Template(CudaModuleTemplate):
        key = kind

    def thread_index(context: Any, builder: Any, _signature: Any, _value: Any) -> Any:
        register = "tid.x" if group.thread is None else "laneid"
        from numba.cuda import nvvmutils

        return cgutils.pack_struct(builder, (nvvmutils.call_sreg(builder, register), zero, zero))

    def block_extent(context: Any, builder: Any, _signature: Any, _value: Any) -> Any:
        one = ir.Constant(word, 1)
        return cgutils.pack_struct(builder, (ir.Constant(word, group.threads), one, one))

    declarations.register_attr(Template)
    implementations.lower_getattr(kind, "threadIdx")(thread_index)
    implementations.lower_getattr(kind, "blockDim")(block_extent)
    context = cuda_target.target_context
    context.nonconst_module_attrs = (*context.nonconst_module_attrs, (kind, "threadIdx"), (kind, "blockDim"))


@device_function
def consumer_barrier():
    """Barrier of the consumer warps."""
    named_barrier(_CONSUMER_BARRIER, CONSUMER_THREADS)


CONSUMERS = ThreadGroup("consumers", CONSUMER_THREADS, None, consumer_barrier)
WARP = ThreadGroup("warp", 32, lane, warp_barrier)


@cache
def rebound(function: Callable[..., Any], group: ThreadGroup) -> Callable[..., Any]:
    """A device function like `function`, run by a group: it and the functions that it reaches are copied with
    ``cuda`` bound to the group's module.
    """
    copied = _copy(function, group)
    return device_function(copied) if isinstance(copied, FunctionType) else copied


def _copy(function: Any, group: ThreadGroup) -> Any:
    if not isinstance(function, FunctionType) or not reaches_cuda(function, set()):
        return function
    if function in group.copies:
        return group.copies[function]
    names = dict(function.__globals__)
    cells = tuple(_cell(_copy(cell.cell_contents, group)) for cell in function.__closure__ or ())
    copied = FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells or None)
    copied.__kwdefaults__ = function.__kwdefaults__
    group.copies[function] = copied
    for name in function.__code__.co_names:
        value = names.get(name)
        if value is cuda:
            names[name] = group
        elif isinstance(value, FunctionType):
            names[name] = _copy(value, group)
    return device_function(copied)


def _cell(value: Any) -> Any:
    return (lambda: value).__closure__[0]  # type: ignore[index]  # the lambda closes over value


def reaches_cuda(function: Any, seen: set[int]) -> bool:
    """Whether a plain function, or one that it calls by name, mentions ``cuda``."""
    if not isinstance(function, FunctionType) or id(function) in seen:
        return False
    seen.add(id(function))
    values = [function.__globals__.get(name) for name in function.__code__.co_names]
    values += [cell.cell_contents for cell in function.__closure__ or ()]
    return any(value is cuda or reaches_cuda(value, seen) for value in values)
