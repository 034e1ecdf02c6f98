"""Stand-ins for CuPy, PyTorch and the cuda executor, on NumPy arrays and the cpu executor: as much of each as the
experiments use. "Launches" run at once, or when a captured graph is launched.
"""

from __future__ import annotations

import ctypes
import time
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import numpy as np

from etproto.executors import cpu
from etproto.executors.tensors import check_tensors
from etproto.kernels.tiles import brain_float

PROCESSORS = 3


class Stream:
    """Runs what is enqueued at once, or keeps it while it is captured; the last one used is the current one."""

    current = None
    known: ClassVar[dict[int, Stream]] = {}  # by the handle that PyTorch is given

    def __init__(self, non_blocking=False):
        self.ptr, self.graph = len(self.known) + 1, None
        self.known[self.ptr] = self

    def enqueue(self, function):
        self.graph.append(function) if self.graph is not None else function()

    def begin_capture(self):
        self.graph = []

    def end_capture(self):
        kept, self.graph = self.graph, None
        return SimpleNamespace(launch=lambda stream: [function() for function in kept])

    def synchronize(self):
        pass


class Event:
    """A point in the host's time."""

    def record(self, stream):
        self.time = time.perf_counter()

    def synchronize(self):
        pass


class Array:
    """A CuPy array."""

    def __init__(self, array):
        self.array = np.array(array)
        self.size, self.data = self.array.size, SimpleNamespace(ptr=self.array.ctypes.data)

    def get(self):
        return self.array.copy()

    def set(self, array):
        self.array[...] = array

    def fill(self, value):
        self.array.fill(value)


def cupy() -> ModuleType:
    module = ModuleType("cupy")
    module.asarray, module.int64 = Array, np.int64
    module.zeros = lambda count, dtype: Array(np.zeros(count, dtype))
    module.cuda = SimpleNamespace(
        Stream=Stream,
        Event=Event,
        Device=lambda: SimpleNamespace(synchronize=lambda: None),
        get_elapsed_time=lambda start, end: (end.time - start.time) * 1e3,
    )
    module.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=lambda: None)
    return module


class Tensor:
    """A PyTorch tensor: float32, or bfloat16 as bits."""

    def __init__(self, array, dtype="float32"):
        self.array, self.dtype = array, dtype

    @property
    def shape(self):
        return self.array.shape

    @property
    def T(self):
        return Tensor(self.array.T, self.dtype)

    t = T.fget

    @property
    def values(self):
        return brain_float.to_float32(self.array) if self.dtype == "bfloat16" else self.array

    def put(self, values):
        values = np.asarray(values, np.float32)
        assert values.shape == self.shape
        self.array[...] = brain_float.from_float32(values) if self.dtype == "bfloat16" else values
        return self

    def view(self, asked):
        return self.array if asked == "int16" else Tensor(self.array.reshape(asked), self.dtype)

    def to(self, dtype):
        return Tensor(np.empty(self.shape, np.uint16 if dtype == "bfloat16" else np.float32), dtype).put(self.values)

    def float(self):
        return self.to("float32")

    def fill_(self, value):
        return self.put(np.full(self.shape, value))

    def copy_(self, other):
        return self.put(other.values)

    def mul_(self, factor):
        return self.put(self.values * factor)

    def __matmul__(self, other):
        return Tensor(self.values @ other.values)

    def __mul__(self, other):
        return Tensor(self.values * other.values)

    def __sub__(self, other):
        return Tensor(self.values - other.values)

    def __truediv__(self, other):
        return Tensor(self.values / other.values)

    def abs(self):
        return Tensor(np.abs(self.values))

    def max(self):
        return Tensor(np.asarray(self.values.max()))

    def chunk(self, count, axis):
        return [Tensor(part) for part in np.split(self.values, count, axis)]

    def __getitem__(self, index):
        return Tensor(self.array[index], self.dtype)

    def __len__(self):
        return len(self.array)

    def __float__(self):
        return float(self.array)


def torch() -> ModuleType:
    """``module.used`` names the forms of products that were asked for."""
    module = ModuleType("torch")
    module.bfloat16, module.float32, module.int16 = "bfloat16", "float32", "int16"
    module.used, library = set(), ["cublas"]

    def full(shape, value, device, dtype):
        return Tensor(np.zeros(shape, np.uint16 if dtype == "bfloat16" else np.float32), dtype).fill_(value)

    def enqueue(name, compute):
        module.used.add(name)
        Stream.current.enqueue(compute)

    def mm(x, w, out):
        enqueue(f"mm-{library[-1]}", lambda: out.put(x.values @ w.values))

    def addmm(bias, x, w, out):
        enqueue("addmm", lambda: out.put(bias.values + x.values @ w.values))

    def mv(w, x, out):
        enqueue("mv", lambda: out.put(w.values @ x.values))

    def row_sum(source, axis, out):
        enqueue("sum", lambda: out.put(source.values.sum(axis)))

    def preferred(name=None):
        before = library[-1]
        if name is not None:
            library.append(name)
        return before

    @contextmanager
    def stream(given):
        Stream.current = given
        yield

    def generator(device):
        return SimpleNamespace(manual_seed=np.random.default_rng)

    module.full, module.mm, module.addmm, module.mv, module.sum = full, mm, addmm, mv, row_sum
    module.zeros = lambda count, device, dtype: full((count,), 0, device, dtype)
    module.Generator = generator
    module.randn = lambda shape, generator, device, dtype: full(shape, 0, device, dtype).put(
        generator.standard_normal(shape)
    )
    module.isfinite = lambda tensor: bool(np.isfinite(tensor.values))
    module.as_tensor = lambda array, device: Tensor(array.array)
    module.nn = SimpleNamespace(
        functional=SimpleNamespace(silu=lambda x: Tensor(x.values / (1 + np.exp(-x.values)))),
    )
    module.backends = SimpleNamespace(cuda=SimpleNamespace(preferred_blas_library=preferred))
    module.cuda = SimpleNamespace(stream=stream, empty_cache=lambda: None)
    module.cuda.ExternalStream = Stream.known.__getitem__
    return module


def gated() -> ModuleType:
    """The module of the Triton kernel."""
    module = ModuleType("gated")

    def silu_multiply(both, out):
        def compute():
            gate, up = np.split(both.values, 2, 1)
            out.put(gate / (1 + np.exp(-gate)) * up)

        Stream.current.enqueue(compute)

    module.silu_multiply = silu_multiply
    return module


class Loaded:
    """A schedule on the cpu executor, which checks tensors as the cuda executor does."""

    compile_seconds = 0.0
    threads = 1

    def __init__(self, scheduled, worker="auto", options=None):
        self.scheduled = scheduled
        self.worker = SimpleNamespace(kernel=SimpleNamespace(registers=1, launch=self._launch_kernel), seconds=0.0)
        self.block = SimpleNamespace(__cuda_array_interface__={"data": (1,)})

    def bind_tensors(self, tensors):
        self.tensors = {name: getattr(array, "array", array) for name, array in tensors.items()}
        check_tensors(self.scheduled.lowered, self.tensors)

    def run(self):
        cpu.run(self.scheduled, self.tensors, seed=0, trace=False)

    def launch(self, tensors=None, stream=None):
        if tensors is not None:
            self.bind_tensors(tensors)
        self.run() if stream is None else stream.enqueue(self.run)

    def _launch_kernel(self, blocks, threads, handle, argument):
        Stream.current.enqueue(self.run)

    def rebind(self, scheduled):
        self.scheduled = scheduled

    def finish(self, stream=0):
        pass


def stream_handle(stream) -> int:
    Stream.current = stream
    return 0


class CountingKernel:
    """A kernel that adds one to the word at its argument's address, if it counts."""

    def __init__(self, body, counting):
        self.counts = body is counting

    def launch(self, blocks, threads, handle, argument):
        def count():
            if self.counts:
                ctypes.c_int64.from_address(int(argument[0])).value += 1

        Stream.current.enqueue(count)
