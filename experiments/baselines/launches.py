"""Kernel boundaries: every operator of a program as a launch of its own, with the same tile bodies.

Each grid becomes a program without events, whose kernel holds its tile kind alone. The records that a program's
reset kernel writes are written once, when it is loaded: without events and queues there is nothing to reset between
launches, so an operator costs exactly one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numba import cuda

from etproto.kernels.ptx.views import array_view
from etproto.program import Instance, Program
from experiments.variants import Variant

__all__ = ["Launches", "launches_variant", "nodes_variant", "split"]

int64_view = array_view("int64", 1)


def split(instance: Instance) -> list[Instance]:
    """The grids of a program as programs of their own, in an order in which they may run.

    Examples
    --------
    >>> from etproto.models.splitk import program
    >>> for one in split(program().bind(n=3)):
    ...     print(one, [tensor.name for tensor in one.program.tensors], one.program.events)
    partial(n=3) ['A', 'B'] ()
    final(n=3) ['B', 'C'] ()
    """
    program = instance.program
    written = {grid.name: grid for grid in program.grids}
    parts = []
    for grid in program.parsed:
        alone = replace(written[grid.name], waits=(), notifies=(), triggers={})
        parts.append(Program(grid.name, (alone,), program.symbols).bind(**instance.values))
    return parts


class Launches:
    """The operators of an instance, loaded one by one.

    Parameters
    ----------
    instance : Instance
        Its extents must be known before the launch.
    tensors : mapping
        All tensors of the program, on the GPU.
    workers : int
        Most blocks of a launch; one with fewer tasks has as many blocks as tasks.
    worker : {"auto", "portable", "hopper"}
    """

    def __init__(self, instance: Instance, tensors: Mapping[str, Any], workers: int, worker: str = "auto") -> None:
        from etproto.executors.cuda import load
        from etproto.executors.launch import LaunchOptions
        from etproto.lowering import lower
        from etproto.schedule import schedule

        self._loads = []
        for part in split(instance):
            tasks = int(np.prod([int(extent.evaluate(part.values)) for extent in part.program.parsed[0].extents]))
            if tasks == 0:
                continue
            scheduled = schedule(lower(part), "static", workers=min(workers, tasks))
            loaded = load(scheduled, worker=worker, options=LaunchOptions(watchdog_s=5.0))
            loaded.launch({tensor.name: tensors[tensor.name] for tensor in part.program.tensors})
            loaded.finish()
            self._loads.append(loaded)
        self._arguments = [
            np.array([loaded.block.__cuda_array_interface__["data"][0]], np.int64) for loaded in self._loads
        ]

    def __call__(self, stream: Any) -> None:
        """Enqueue one kernel an operator."""
        from etproto.executors.driver import stream_handle

        handle = stream_handle(stream)
        for loaded, argument in zip(self._loads, self._arguments, strict=True):
            loaded.worker.kernel.launch(loaded.scheduled.workers, loaded.threads, handle, argument)


def launches_variant(
    instance: Instance,
    sets: Sequence[Mapping[str, Any]],
    poison: Callable[[], None],
    error: Callable[[], float],
    tolerance: float,
    workers: int,
    worker: str = "auto",
    **facts: Any,
) -> Variant:
    """The operators of an instance, one launch each, on each set of tensors."""
    names = [tensor.name for tensor in instance.program.tensors]
    calls = [Launches(instance, {name: one[name] for name in names}, workers, worker) for one in sets]
    return Variant(calls, poison, error, tolerance, {"workers": workers, **facts})


def _nothing(address):
    pass


def _count(address):
    if cuda.blockIdx.x == 0 and cuda.threadIdx.x == 0:
        counter = int64_view(address, 1)
        counter[0] += 1


@cache
def _kernel(body: Callable[..., None]) -> Any:
    from etproto.executors.driver import device_facts, link, load_kernel
    from etproto.kernels.compile import compile_ptx, entry_name

    ptx = compile_ptx(body, device_facts().capability)
    return load_kernel(link(ptx), entry_name(ptx))


def nodes_variant(blocks: int, count: int, *, counting: bool, captured: bool = True, threads: int = 128) -> Variant:
    """`count` kernels of `blocks` blocks, one after the other: what a dependence costs that is a kernel boundary.

    With `counting` each reads a word that the one before has written and writes it, plus one; otherwise kernels are
    empty, and there is no output to check.
    """
    import cupy

    counter = cupy.zeros(1, cupy.int64)
    argument = np.array([counter.data.ptr], np.int64)
    kernel = _kernel(_count if counting else _nothing)

    def call(stream: Any) -> None:
        from etproto.executors.driver import stream_handle

        handle = stream_handle(stream)
        for _ in range(count):
            kernel.launch(blocks, threads, handle, argument)

    def error() -> float:
        """Some number of calls have run, each of which adds `count`."""
        total = int(counter.get()[0])
        return 0.0 if not counting or (total > 0 and total % count == 0) else float("inf")

    return Variant([call], lambda: counter.fill(0), error, 0.0, {"units": count}, captured)
