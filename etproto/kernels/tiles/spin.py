"""Tasks that only take time: the bodies of graphs that have costs and nothing to compute."""

from __future__ import annotations

import time

from numba import cuda

from etproto.kernels.ptx.timer import globaltimer
from etproto.tile_kind import TileKind

__all__ = ["spin"]


def _reference(i: int, j: int, k: int, m: int, nanoseconds: int) -> None:
    if nanoseconds > 0:
        time.sleep(nanoseconds * 1e-9)


def _portable(i, j, k, m, nanoseconds):
    # One thread is enough: the others wait at the worker's barrier after the body.
    if cuda.threadIdx.x == 0 and nanoseconds > 0:
        start = globaltimer()
        while globaltimer() - start < nanoseconds:
            pass


#: Takes as many nanoseconds as the task's argument says, computes nothing. The timer ticks in up to 1 us.
spin = TileKind(
    name="spin",
    reference=_reference,
    coordinates=4,
    portable=_portable,
    reads=lambda i, j, k, m: {},
    writes=lambda i, j, k, m: {},
    argument=True,
)
