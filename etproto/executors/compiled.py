"""Kernels for the current device: from this process, from the disk cache, or compiled now; and how many of their
blocks the device holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from etproto.executors.driver import DeviceFacts, Kernel, device_facts, link, load_kernel
from etproto.kernels.cache import load_binary, store_binary
from etproto.kernels.compile import compile_ptx, entry_name
from etproto.kernels.fingerprint import fingerprint
from etproto.kernels.reset import reset
from etproto.kernels.workers import choose_worker, worker_kernel
from etproto.tile_kind import TileKind

__all__ = ["RESET_THREADS", "Compiled", "compiled_kernel", "compiled_reset", "resident_limit"]

RESET_THREADS = 256


@dataclass(frozen=True)
class Compiled:
    """A kernel ready to launch, with what making it took: seconds, and whether a cached binary served.

    `threads` is the number of threads of a block: any number may be asked for where `any_threads` is True.
    """

    kernel: Kernel
    seconds: float
    cached: bool
    threads: int
    any_threads: bool = True


def _compiled(
    function: Callable[..., None], facts: DeviceFacts, *, threads: int, fixed: bool = False, dynamic_bytes: int = 0
) -> Compiled:
    start = time.perf_counter()
    capability = (*facts.capability, "a") if fixed else facts.capability
    bound = threads if fixed else None
    key = fingerprint(function, capability, bound, facts.driver)
    stored = load_binary(key)
    if stored is None:
        ptx = compile_ptx(function, capability, threads=bound)
        binary, name = link(ptx), entry_name(ptx)
        store_binary(key, binary, {"entry": name, "capability": facts.capability})
    else:
        binary, name = stored[0], stored[1]["entry"]
    kernel = load_kernel(binary, name, dynamic_bytes)
    return Compiled(kernel, time.perf_counter() - start, stored is not None, threads, not fixed)


@lru_cache(maxsize=64)
def _worker(
    kinds: tuple[TileKind, ...], shared_tables: bool, worker: str, traced: bool, facts: DeviceFacts
) -> Compiled:
    chosen = worker_kernel(worker, kinds, shared_tables=shared_tables, traced=traced)
    return _compiled(
        chosen.function,
        facts,
        threads=chosen.threads,
        fixed=chosen.architecture_specific,
        dynamic_bytes=chosen.dynamic_bytes,
    )


@lru_cache(maxsize=4)
def compiled_reset(facts: DeviceFacts) -> Compiled:
    """The reset kernel."""
    return _compiled(reset, facts, threads=RESET_THREADS)


def compiled_kernel(
    kinds: tuple[TileKind, ...], *, shared_tables: bool = True, worker: str = "auto", traced: bool = False
) -> Compiled:
    """The worker kernel for a set of tile kinds: from this process, from the disk cache, or compiled now.

    Parameters are those of `etproto.kernels.workers.worker_kernel`; `worker` may be "auto".
    """
    facts = device_facts()
    return _worker(kinds, shared_tables, choose_worker(worker, kinds, facts.capability), traced, facts)


def resident_limit(
    kinds: tuple[TileKind, ...],
    threads: int | None = None,
    *,
    shared_tables: bool = True,
    worker: str = "auto",
    traced: bool = False,
) -> tuple[int, str]:
    """Most workers that the device holds at once for the kernel really compiled, and why that many."""
    facts = device_facts()
    compiled = compiled_kernel(kinds, shared_tables=shared_tables, worker=worker, traced=traced)
    kernel = compiled.kernel
    threads = compiled.threads if threads is None else threads
    blocks = kernel.resident_blocks(threads)
    why = (
        f"{blocks} blocks of {threads} threads on each of {facts.processors} multiprocessors"
        f" ({kernel.registers} registers a thread, {kernel.shared_bytes + kernel.dynamic_bytes} bytes of shared"
        f" memory a block)"
    )
    return blocks * facts.processors, why
