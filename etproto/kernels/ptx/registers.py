"""Registers moved between warpgroups (sm_90a)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from etproto.errors import ProgramError
from etproto.kernels.ptx.inline import intrinsic_with_twin

__all__ = ["decrease_registers", "increase_registers"]


def _move(direction: str, count: int) -> Callable[[], None]:
    if not 24 <= count <= 256 or count % 8:
        raise ProgramError(f"setmaxnreg: registers must be a multiple of 8 from 24 to 256, got {count}")

    @intrinsic_with_twin(f"setmaxnreg.{direction}.sync.aligned.u32 {count};", "~{memory}", None, ())
    def move() -> None:
        """``setmaxnreg``: nothing to do in the simulator."""

    return move


@cache
def increase_registers(count: int) -> Callable[[], None]:
    """``setmaxnreg.inc.sync.aligned.u32``: the warpgroup may use `count` registers a thread, once others have given
    theirs up.

    Over the warpgroups, registers times threads must not exceed what the launch allotted; else the kernel hangs.
    """
    return _move("inc", count)


@cache
def decrease_registers(count: int) -> Callable[[], None]:
    """``setmaxnreg.dec.sync.aligned.u32``: the warpgroup gives up registers beyond `count` a thread."""
    return _move("dec", count)
