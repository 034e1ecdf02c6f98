"""The two worker kernels behind one description, so that executors need not know which one runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from etproto.errors import ExecutorUnavailable
from etproto.kernels import source, source_hopper
from etproto.scheduled import Scheduled
from etproto.tile_kind import TileKind

__all__ = ["WORKERS", "WorkerKernel", "choose_worker", "fits_shared_tables", "worker_kernel"]

WORKERS = ("portable", "hopper")
PORTABLE_THREADS = 128


@dataclass(frozen=True)
class WorkerKernel:
    """A worker kernel that has not been compiled yet.

    Parameters
    ----------
    name : {"portable", "hopper"}
    function : callable
        ``function(launch_address)``.
    threads : int
        Threads of a block: of every block (hopper), or by default (portable).
    dynamic_bytes : int
        Shared memory that a launch asks for.
    architecture_specific : bool
        Compile for the device's own architecture alone (sm_90a), and for exactly `threads` threads.
    """

    name: str
    function: Callable[[int], None]
    threads: int
    dynamic_bytes: int
    architecture_specific: bool


def choose_worker(asked: str, kinds: Sequence[TileKind], capability: tuple[int, ...]) -> str:
    """The worker that runs `kinds`: the one asked for, or with "auto" the hopper worker where a kind has roles and
    the device is an sm_90.

    Raises
    ------
    ExecutorUnavailable
        There is no such worker, or the device cannot run it.

    Examples
    --------
    >>> from etproto.kernels.tiles.row_sum import partial_sum
    >>> choose_worker("auto", (partial_sum,), (9, 0))
    'portable'
    """
    hopper = tuple(capability[:1]) == (9,)
    if asked == "auto":
        return "hopper" if hopper and any(kind.roles for kind in kinds) else "portable"
    if asked not in WORKERS:
        raise ExecutorUnavailable(f"worker must be auto, {' or '.join(WORKERS)}, got {asked!r}")
    if asked == "hopper" and not hopper:
        raise ExecutorUnavailable(
            f"the hopper worker needs a device of compute capability 9.0, this one has"
            f" {'.'.join(map(str, capability))}; use the portable worker"
        )
    return asked


def fits_shared_tables(scheduled: Scheduled, worker: str) -> bool:
    """Whether a worker keeps the records of a schedule in shared memory."""
    fits = source_hopper.fits_shared_tables if worker == "hopper" else source.fits_shared_tables
    return fits(scheduled)


def worker_kernel(
    worker: str, kinds: tuple[TileKind, ...], *, shared_tables: bool = True, traced: bool = False
) -> WorkerKernel:
    """The kernel of a worker for a set of tile kinds.

    Parameters
    ----------
    worker : {"portable", "hopper"}
    kinds : tuple of TileKind
    shared_tables : bool
        As `fits_shared_tables` answers for the schedule.
    traced : bool
        Whether the launch keeps a trace; the hopper worker is compiled without that code otherwise.
    """
    if worker == "portable":
        function = source.kernel_function(kinds, shared_tables=shared_tables)
        return WorkerKernel(worker, function, PORTABLE_THREADS, 0, False)
    where = source_hopper.geometry(kinds, shared_tables=shared_tables)
    function = source_hopper.hopper_function(kinds, shared_tables=shared_tables, traced=traced)
    return WorkerKernel(worker, function, source_hopper.HOPPER_THREADS, where.dynamic_bytes, True)
