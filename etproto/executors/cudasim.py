"""The cudasim executor: the workers' own source in the simulator, all blocks at once. For small graphs.

It needs no GPU and no compiler. What it can show is that the protocol is right for the interleavings that it
meets; since Python is sequentially consistent, it cannot show a missing fence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from etproto import layout as L
from etproto.errors import ResidencyError
from etproto.executors.cuda import default_capacity, device_trace
from etproto.executors.launch import LaunchOptions, launch_arrays, launch_block, tensor_map_array
from etproto.executors.report import raise_for_status
from etproto.executors.simulator import MOST_THREADS, launch_simulated
from etproto.executors.tensors import check_tensors
from etproto.kernels.reset import reset
from etproto.kernels.workers import choose_worker, fits_shared_tables, worker_kernel
from etproto.scheduled import Scheduled
from etproto.tensor_maps import map_words
from etproto.trace import Trace

__all__ = ["run", "THREADS"]

THREADS = 4  # threads of a block of the portable worker: each is a Python thread
CAPABILITY = (9, 0)  # what the simulator can do


def run(
    scheduled: Scheduled,
    tensors: Mapping[str, Any],
    *,
    seed: int | None = None,
    watchdog_s: float = 10.0,
    trace: bool = True,
    trace_capacity: int | None = None,
    threads: int = THREADS,
    worker: str = "portable",
    delay_ns: int = 0,
    timeout_s: float = 120.0,
) -> Trace:
    """Run a schedule once in the simulator.

    Parameters
    ----------
    scheduled : Scheduled
    tensors : mapping
        Name -> NumPy array, changed in place.
    seed : int, optional
        Seed of the delays.
    watchdog_s : float
        Seconds without a finished task after which the run ends itself.
    trace : bool
        Keep a record of every task.
    trace_capacity : int, optional
        Records a worker; by default enough for all tasks.
    threads : int
        Threads of a block of the portable worker.
    worker : {"auto", "portable", "hopper"}
        The hopper worker has 384 threads a block, so a block of it takes seconds.
    delay_ns : int
        Largest pseudo-random pause before each notify.
    timeout_s : float
        Seconds after which a launch whose bodies do not return is stopped.

    Returns
    -------
    Trace

    Raises
    ------
    ResidencyError
        More simulated threads than Python can usefully run.
    NoProgressError, RunError
    """
    lowered = scheduled.lowered
    worker = choose_worker(worker, lowered.kinds, CAPABILITY)
    tables = fits_shared_tables(scheduled, worker)
    kernel = worker_kernel(worker, lowered.kinds, shared_tables=tables, traced=trace)
    if worker != "portable":
        threads = kernel.threads
    if scheduled.workers * threads > MOST_THREADS:
        raise ResidencyError(
            f"{lowered.name}: {scheduled.workers} workers of {threads} threads asked for, the simulator runs at"
            f" most {MOST_THREADS}"
            f" threads, each a Python thread; use the cpu executor"
        )
    check_tensors(lowered, tensors)
    capacity = trace_capacity if trace_capacity is not None else default_capacity(scheduled)
    options = LaunchOptions(watchdog_s, capacity if trace else 0, delay_ns, seed or 0)
    prepared = launch_arrays(scheduled, options)
    scalars = np.append(prepared.scalars, 0)
    used = [tensors[b.name] if b.contents is None else b.contents for b in lowered.buffers]
    pointers = np.array([array.ctypes.data for array in used], np.int64)
    maps = tensor_map_array(lowered, pointers, map_words)
    arrays = {**prepared.constant, **prepared.state, "TENSOR_MAPS": maps}
    addresses = {name: array.ctypes.data for name, array in arrays.items()}
    block = launch_block(scheduled, options, addresses, pointers=pointers.ctypes.data, scalars=scalars.ctypes.data)
    argument = (block.ctypes.data,)
    launch_simulated(reset, 1, THREADS, argument, timeout_s=timeout_s)
    launch_simulated(kernel.function, scheduled.workers, threads, argument, timeout_s=timeout_s)
    raise_for_status(scheduled, arrays["CONTROL"], arrays["COUNTERS"], arrays["STATES"], tensors)
    records = arrays.get("TRACE", np.zeros((scheduled.workers, 0, L.TRACE_WORDS), np.int64))
    count = arrays.get("TRACE_COUNT", np.zeros(scheduled.workers, np.int64))
    headers = arrays.get("TRACE_HEADERS", np.zeros((scheduled.workers, L.TRACE_HEADER_WORDS), np.int64))
    return device_trace(scheduled, "cudasim", records, count, headers, tensors)
