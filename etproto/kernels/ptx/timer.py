"""Clocks and the processor number."""

from __future__ import annotations

import time

from etproto.kernels.ptx.inline import intrinsic_with_twin

__all__ = ["globaltimer", "clock64", "processor", "nanosleep"]


@intrinsic_with_twin("mov.u64 $0, %globaltimer;", "=l,~{memory}", "int64", ())
def globaltimer() -> int:
    """``mov.u64 %globaltimer``: nanoseconds, the same on all multiprocessors, but ticking coarsely: for
    deadlines and for fitting clocks.
    """
    return time.perf_counter_ns()


@intrinsic_with_twin("mov.u64 $0, %clock64;", "=l,~{memory}", "int64", ())
def clock64() -> int:
    """``mov.u64 %clock64``: cycles of one multiprocessor: for spans inside a kernel."""
    return time.perf_counter_ns()


@intrinsic_with_twin("mov.u32 $0, %smid;", "=r,~{memory}", "int32", ())
def processor() -> int:
    """``mov.u32 %smid``: number of the multiprocessor; the simulator has one, number 0."""
    return 0


@intrinsic_with_twin("nanosleep.u32 $0;", "r,~{memory}", None, ("uint32",))
def nanosleep(nanoseconds: int) -> None:
    """``nanosleep.u32``: gives way between polls, at most about that long; in the simulator it lets another
    thread run.
    """
    time.sleep(0)
