"""All workers are on the device at once, or the launch is refused before it happens."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda as numba_cuda
from numba import float32

from etproto.errors import ResidencyError
from etproto.executors import cuda
from etproto.executors.driver import device_facts
from etproto.expressions import Symbol
from etproto.kernels.source import fits_shared_tables
from etproto.lowering import lower
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.schedule import schedule
from etproto.tile_kind import Operand, TileKind

pytestmark = pytest.mark.gpu

BIG = 10_000  # floats: 40 kB of shared memory


def _light(i, out):
    if numba_cuda.threadIdx.x == 0:
        out[i] = i + 1


def _heavy(i, out):
    pieces = numba_cuda.shared.array(BIG, float32)
    for place in range(numba_cuda.threadIdx.x, BIG, numba_cuda.blockDim.x):
        pieces[place] = place + i
    numba_cuda.syncthreads()
    if numba_cuda.threadIdx.x == 0:
        out[i] = pieces[BIG - 1] - (BIG - 2)


def _reference(i, out):
    out[i] = i + 1


KINDS = {
    name: TileKind(name, _reference, 1, (Operand("out", ndim=1, mode="out"),), portable=body, shared_bytes=size)
    for name, body, size in (("light", _light, 0), ("heavy", _heavy, 4 * BIG))
}


def chain(kind: TileKind, tasks: int):
    """Task i waits for task i + 1: with a worker for each task, all workers must run at once."""
    n = Symbol("n", bound=1 << 16)
    E = EventTensor("E", (n,))
    grid = TaskGrid("chain", kind, (n,), {"out": Tensor("out", (n,))}, {E: "i->i+1:i+2"}, {E: "i->i"})
    return lower(Program("chain", (grid,)).bind(n=tasks))


def limit_of(name: str, threads: int | None = None) -> tuple[int, str]:
    """Limit of the kernel that `load` would take."""
    tables = fits_shared_tables(schedule(chain(KINDS[name], 1), "static", workers=1))
    return cuda.resident_limit((KINDS[name],), threads, shared_tables=tables)


@pytest.mark.parametrize("threads", [128, 32])
@pytest.mark.parametrize("name", KINDS)
def test_the_limit_runs_and_one_more_is_refused(name, threads):
    """The occupancy asked for is that of the kernel really compiled, not of some other one."""
    kind = KINDS[name]
    limit, why = limit_of(name, threads)
    assert limit % device_facts().processors == 0 and "registers" in why
    out = numba_cuda.to_device(np.zeros(limit, np.float32))
    scheduled = schedule(chain(kind, limit), "static", workers=limit)
    cuda.run(scheduled, {"out": out}, watchdog_s=2.0, threads=threads)
    np.testing.assert_array_equal(out.copy_to_host(), np.arange(limit) + 1)
    more = schedule(chain(kind, limit + 1), "static", workers=limit + 1)
    with pytest.raises(ResidencyError, match=rf"{limit + 1} workers asked for, at most {limit} .*shared memory"):
        cuda.load(more, threads=threads)


def test_a_heavier_body_lowers_the_limit():
    """With blocks of one warp it is shared memory, not registers, that decides."""
    assert limit_of("heavy", 32)[0] < limit_of("light", 32)[0]


def test_more_threads_a_worker_lower_the_limit():
    assert limit_of("light", 256)[0] < limit_of("light")[0] < limit_of("light", 32)[0]
