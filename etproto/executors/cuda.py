"""The cuda executor: the persistent kernel on a GPU.

`run` does everything once. For repeated launches `load` compiles and uploads, `Loaded.launch` enqueues a
launch (and can be captured in a CUDA graph), and `Loaded.finish` waits, checks the status and returns the
trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from etproto import layout as L
from etproto.errors import ResidencyError, RunError
from etproto.executors.compiled import RESET_THREADS, Compiled, compiled_kernel, compiled_reset, resident_limit
from etproto.executors.driver import DeviceFacts, device_facts, stream_handle
from etproto.executors.launch import LaunchOptions, launch_arrays, launch_block, tensor_map_array
from etproto.executors.report import raise_for_status
from etproto.executors.tensor_map_driver import encode_tensor_map
from etproto.executors.tensors import check_tensors
from etproto.kernels.workers import choose_worker, fits_shared_tables
from etproto.scheduled import Scheduled
from etproto.trace import Trace

__all__ = ["Loaded", "load", "run", "compiled_kernel", "resident_limit"]


@dataclass
class Loaded:
    """A schedule on the device. Made by `load`; use `launch`, `finish` and `rebind`."""

    scheduled: Scheduled
    options: LaunchOptions
    threads: int
    facts: DeviceFacts
    worker: Compiled
    reset: Compiled
    arrays: dict[str, Any]
    block: Any
    addresses: np.ndarray
    maps: np.ndarray
    uploaded_bytes: int = 0
    _tensors: Mapping[str, Any] | None = None
    _events: Any = None

    @property
    def compile_seconds(self) -> float:
        """Seconds that compiling and loading the kernels took."""
        return self.worker.seconds + self.reset.seconds

    def bind_tensors(self, tensors: Mapping[str, Any]) -> None:
        """Use these arrays from now on; uploads their addresses where they differ from those before."""
        check_tensors(self.scheduled.lowered, tensors, on_device=True)
        addresses = self.addresses.copy()
        for number, buffer in enumerate(self.scheduled.lowered.buffers):
            if buffer.contents is None:
                addresses[number] = tensors[buffer.name].__cuda_array_interface__["data"][0]
        if not np.array_equal(addresses, self.addresses):
            self._upload("POINTERS", addresses)
            self.addresses = addresses
        self._upload_maps()
        self._tensors = tensors

    def _upload_maps(self) -> None:
        """Encode the tensor maps anew where an address or an extent may differ from those before."""
        if self.scheduled.lowered.tensor_maps:
            maps = tensor_map_array(self.scheduled.lowered, self.addresses, encode_tensor_map)
            if not np.array_equal(maps, self.maps):
                self._upload("TENSOR_MAPS", maps)
                self.maps = maps

    def _upload(self, name: str, array: np.ndarray) -> None:
        self.arrays[name].copy_to_device(array)
        self.uploaded_bytes += array.nbytes

    def rebind(self, scheduled: Scheduled) -> None:
        """Take another binding of the same program, schedule and workers: stores scalars (and tables of needs
        that differ).

        Raises
        ------
        RunError
            The schedule is not another binding of the one loaded.
        """
        old, new = self.scheduled, scheduled
        same = (
            np.array_equal(old.lowered.words, new.lowered.words)
            and np.array_equal(old.lowered.patches, new.lowered.patches)
            and old.lowered.kinds == new.lowered.kinds
            and np.array_equal(old.worker_ptr, new.worker_ptr)
            and np.array_equal(old.worker_task, new.worker_task)
            and np.array_equal(old.entries, new.entries)
            and np.array_equal(old.grid_queue, new.grid_queue)
            and np.array_equal(old.queue_capacity, new.queue_capacity)
            and np.array_equal(old.initial_queue, new.initial_queue)
            and old.early_push == new.early_push
        )
        if not same:
            raise RunError(
                f"rebind: {new.lowered.name} ({new.schedule}, {new.workers} workers) is not another binding of"
                f" {old.lowered.name} ({old.schedule}, {old.workers} workers); load it instead"
            )
        self.uploaded_bytes = 0
        if not np.array_equal(old.lowered.scalars, new.lowered.scalars):
            self._upload("SCALARS", _padded(new.lowered.scalars))
        for number, (before, after) in enumerate(zip(old.lowered.buffers, new.lowered.buffers, strict=True)):
            if after.contents is not None and not np.array_equal(before.contents, after.contents):
                self._upload(f"buffer {number}", after.contents)
        self.scheduled = scheduled
        self._tensors = None  # arrays of the binding before may be too small

    def launch(self, tensors: Mapping[str, Any] | None = None, stream: Any = 0) -> None:
        """Enqueue the reset kernel and the worker kernel.

        Parameters
        ----------
        tensors : mapping, optional
            Arrays to use; those of the last call when left out. While a stream is being captured into a graph
            they must be the same arrays as before.
        stream : stream or int
            A stream of Numba, CuPy or PyTorch, or its handle.
        """
        if tensors is not None:
            self.bind_tensors(tensors)
        elif self._tensors is None:
            raise RunError(
                f"{self.scheduled.lowered.name}: give the tensors with the first launch after load or rebind"
            )
        handle = stream_handle(stream)
        address = np.array([self.block.__cuda_array_interface__["data"][0]], np.int64)
        work = max(int(a.size) for a in (self.arrays["COUNTERS"], self.arrays["SLOTS"]))
        blocks = min(max(1, -(-work // (RESET_THREADS * 8))), self.facts.processors)
        self.reset.kernel.launch(blocks, RESET_THREADS, handle, address)
        self.worker.kernel.launch(self.scheduled.workers, self.threads, handle, address)

    def finish(self, stream: Any = 0) -> Trace:
        """Wait for the launches on `stream`, raise what went wrong, and return the trace of the last one.

        Raises
        ------
        NoProgressError, RunError
        """
        from cuda.bindings import driver

        from etproto.executors.driver import check

        check(driver.cuStreamSynchronize(stream_handle(stream)), "cuStreamSynchronize")
        control, counters, states = (self.arrays[name].copy_to_host() for name in ("CONTROL", "COUNTERS", "STATES"))
        host = _host_run_time_values(self.scheduled, self._tensors or {})
        raise_for_status(self.scheduled, control, counters, states, host)
        return self._trace(host)

    def _trace(self, host: Mapping[str, np.ndarray]) -> Trace:
        scheduled = self.scheduled
        if self.options.trace_capacity:
            records, count, headers = (
                self.arrays[name].copy_to_host() for name in ("TRACE", "TRACE_COUNT", "TRACE_HEADERS")
            )
        else:
            records = np.zeros((scheduled.workers, 0, L.TRACE_WORDS), np.int64)
            count = np.zeros(scheduled.workers, np.int64)
            headers = np.zeros((scheduled.workers, L.TRACE_HEADER_WORDS), np.int64)
        return device_trace(scheduled, "cuda", records, count, headers, host)


def device_trace(
    scheduled: Scheduled,
    executor: str,
    records: np.ndarray,
    count: np.ndarray,
    headers: np.ndarray,
    tensors: Mapping[str, np.ndarray],
) -> Trace:
    """The trace of a device worker's records, with the tasks of the run where they can be expanded."""
    from etproto.expand import expand

    lowered = scheduled.lowered
    tasks = lowered.task_arrays
    if tasks is None and lowered.instance is not None:
        tasks = expand(lowered.instance, tensors)
    table = lowered.task_arrays is not None
    grids = lowered.words[L.HEADER_GRIDS] + np.arange(len(lowered.grid_name)) * L.GRID_WORDS
    return Trace.from_device(
        records,
        count,
        headers,
        grid_first=np.append(lowered.grid_first, lowered.tasks),
        grid_kind=np.full(1, -1) if table else lowered.words[grids + L.GRID_KIND],
        task_kind=tasks.kind if table and tasks is not None else None,
        executor=executor,
        schedule=scheduled.schedule,
        policy=scheduled.policy,
        kind_name=tasks.kind_name if table and tasks is not None else tuple(kind.name for kind in lowered.kinds),
        grid_name=lowered.grid_name,
        grid_ndim=tuple(int(lowered.words[g + L.GRID_DIMENSIONS]) for g in grids) if tasks is None else tasks.grid_ndim,
        tasks=tasks,
    )


def _host_run_time_values(scheduled: Scheduled, tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Host copies of the int32 tensors that extents, maps and counts read."""
    from numba import cuda

    instance = scheduled.lowered.instance
    if instance is None:
        return {}
    names = {name for grid in instance.program.parsed for name in grid.run_time_reads()}
    return {name: cuda.as_cuda_array(tensors[name], sync=False).copy_to_host() for name in names if name in tensors}


def _padded(scalars: np.ndarray) -> np.ndarray:
    """Scalars, at least one, since a device array cannot be empty."""
    return np.append(scalars, 0)


def load(
    scheduled: Scheduled,
    *,
    threads: int | None = None,
    worker: str = "auto",
    options: LaunchOptions | None = None,
) -> Loaded:
    """Compile (or take from the cache) and upload everything but the tensors.

    Parameters
    ----------
    scheduled : Scheduled
    threads : int, optional
        Threads of a block of the portable worker; the hopper worker's blocks have a size of their own.
    worker : {"auto", "portable", "hopper"}
        auto: the hopper worker where a tile kind has roles and the device is an sm_90.
    options : LaunchOptions, optional

    Raises
    ------
    ExecutorUnavailable
        No GPU, and why; or a worker that this device cannot run.
    RunError
        A number of threads that the worker cannot have.
    ResidencyError
        More workers than the device holds at once, before anything is launched.
    """
    from numba import cuda

    options = options or LaunchOptions()
    facts = device_facts()
    kinds = scheduled.lowered.kinds
    worker = choose_worker(worker, kinds, facts.capability)
    traced, shared_tables = options.trace_capacity > 0, fits_shared_tables(scheduled, worker)
    compiled = compiled_kernel(kinds, shared_tables=shared_tables, worker=worker, traced=traced)
    threads = compiled.threads if threads is None else threads
    if threads != compiled.threads and not compiled.any_threads:
        raise RunError(
            f"{scheduled.lowered.name}: blocks of the {worker} worker have {compiled.threads} threads, got {threads}"
        )
    allowed, why = resident_limit(kinds, threads, shared_tables=shared_tables, worker=worker, traced=traced)
    if scheduled.workers > allowed:
        raise ResidencyError(
            f"{scheduled.lowered.name}: {scheduled.workers} workers asked for, at most {allowed} are resident at"
            f" once on {facts.name}: {why};"
            f" a worker that is not resident would be waited for forever"
        )
    prepared = launch_arrays(scheduled, options)
    maps = np.zeros((len(scheduled.lowered.tensor_maps), L.TENSOR_MAP_BYTES), np.uint8)
    host = {**prepared.constant, **prepared.state, "SCALARS": _padded(prepared.scalars), "TENSOR_MAPS": maps}
    arrays = {name: cuda.to_device(array if array.size else np.zeros(1, array.dtype)) for name, array in host.items()}
    pointers = np.zeros(len(scheduled.lowered.buffers), np.int64)
    for number, buffer in enumerate(scheduled.lowered.buffers):
        if buffer.contents is not None:
            contents = buffer.contents if buffer.contents.size else np.zeros(1, np.int32)
            arrays[f"buffer {number}"] = cuda.to_device(contents)
            pointers[number] = _address(arrays[f"buffer {number}"])
    arrays["POINTERS"] = cuda.to_device(pointers)
    addresses = {name: _address(arrays[name]) for name in (*prepared.constant, *prepared.state, "TENSOR_MAPS")}
    block = launch_block(
        scheduled, options, addresses, pointers=_address(arrays["POINTERS"]), scalars=_address(arrays["SCALARS"])
    )
    return Loaded(
        scheduled=scheduled,
        options=options,
        threads=threads,
        facts=facts,
        worker=compiled,
        reset=compiled_reset(facts),
        arrays=arrays,
        block=cuda.to_device(block),
        addresses=pointers,
        maps=maps,
    )


def _address(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0])


def run(
    scheduled: Scheduled,
    tensors: Mapping[str, Any],
    *,
    seed: int | None = None,
    watchdog_s: float = 10.0,
    trace: bool = True,
    trace_capacity: int | None = None,
    threads: int | None = None,
    worker: str = "auto",
    delay_ns: int = 0,
    stream: Any = 0,
) -> Trace:
    """Run a schedule once on the current GPU.

    Parameters
    ----------
    scheduled : Scheduled
    tensors : mapping
        Name -> device array (CuPy, PyTorch, Numba: anything with ``__cuda_array_interface__``), used where it
        lies. NumPy arrays are refused: copying them would happen behind your back.
    seed : int, optional
        Seed of the delays.
    watchdog_s : float
        Seconds without a finished task after which the run ends itself.
    trace : bool
        Keep a record of every task.
    trace_capacity : int, optional
        Records a worker; by default enough for all tasks, up to 64 MB.
    threads : int, optional
        Threads of a block of the portable worker.
    worker : {"auto", "portable", "hopper"}
        See `load`.
    delay_ns : int
        Largest pseudo-random pause before each notify.
    stream : stream or int

    Returns
    -------
    Trace
    """
    capacity = trace_capacity if trace_capacity is not None else default_capacity(scheduled)
    options = LaunchOptions(watchdog_s, capacity if trace else 0, delay_ns, seed or 0)
    loaded = load(scheduled, threads=threads, worker=worker, options=options)
    loaded.launch(tensors, stream)
    return loaded.finish(stream)


def default_capacity(scheduled: Scheduled) -> int:
    """Trace records a worker: four spans for every task, were one worker to run them all, within 64 MB for
    all workers.
    """
    most = (64 << 20) // (8 * L.TRACE_WORDS * scheduled.workers)
    return int(min(4 * scheduled.lowered.tasks + 16, most))
