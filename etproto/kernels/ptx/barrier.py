"""Barriers inside a block: mbarriers, which also count the bytes of bulk copies, and named barriers.

An mbarrier lies at a shared address, 8 bytes. A phase of it ends when the announced arrivals and bytes have all
come; waiting names the parity of the phase: of the first 0, then 1, 0, ... Waiting for parity 1 on a fresh
barrier returns at once.
"""

from __future__ import annotations

import time

from etproto.kernels.ptx.inline import intrinsic_with_twin
from etproto.kernels.ptx.simulated import hardware

__all__ = [
    "mbarrier_arrive",
    "mbarrier_complete",
    "mbarrier_expect",
    "mbarrier_expect_transaction",
    "mbarrier_init",
    "mbarrier_init_fence",
    "mbarrier_test",
    "mbarrier_wait",
    "named_barrier",
    "named_barrier_arrive",
]

# Cycles, about five minutes: far longer than any run's own watchdog. A thread that has waited for so long traps, so
# that a mistake in a tile body ends in an error instead of a GPU that hangs. How long one try sleeps is not
# specified, so tries are not counted.
LONGEST_WAIT = 1 << 39


@intrinsic_with_twin("mbarrier.init.shared::cta.b64 [$0], $1;", "r,r,~{memory}", None, ("int32", "int32"))
def mbarrier_init(address: int, count: int) -> None:
    """``mbarrier.init``: a barrier whose phases end after `count` arrivals (sm_80)."""
    hardware().init_message_barrier(address, count)


@intrinsic_with_twin("fence.mbarrier_init.release.cluster;", "~{memory}", None, ())
def mbarrier_init_fence() -> None:
    """``fence.mbarrier_init.release.cluster``: makes new mbarriers visible to bulk copies, before a barrier of the
    block makes them visible to its threads (sm_90).
    """


@intrinsic_with_twin("mbarrier.arrive.shared::cta.b64 _, [$0];", "r,~{memory}", None, ("int32",))
def mbarrier_arrive(address: int) -> None:
    """``mbarrier.arrive``: one arrival, with release order at block scope, so that who waits sees what this thread
    has written and seen (sm_80).
    """
    hardware().change_message_barrier(address, arrivals=1)


@intrinsic_with_twin(
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r,~{memory}", None, ("int32", "int32")
)
def mbarrier_expect(address: int, size: int) -> None:
    """``mbarrier.arrive.expect_tx``: one arrival that announces `size` bytes of bulk copies (sm_90)."""
    hardware().change_message_barrier(address, arrivals=1, expected=size)


@intrinsic_with_twin(
    "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [$0], $1;", "r,r,~{memory}", None, ("int32", "int32")
)
def mbarrier_expect_transaction(address: int, size: int) -> None:
    """``mbarrier.expect_tx``: announces `size` bytes of bulk copies without arriving. Relaxed: the arrival that
    follows orders it (sm_90).
    """
    hardware().change_message_barrier(address, expected=size)


@intrinsic_with_twin(
    "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [$0], $1;", "r,r,~{memory}", None, ("int32", "int32")
)
def mbarrier_complete(address: int, size: int) -> None:
    """``mbarrier.complete_tx``: counts `size` announced bytes as landed without a copy, to end a phase whose copies
    will not be made. Relaxed: there is nothing to order (sm_90).
    """
    hardware().change_message_barrier(address, landed=size)


@intrinsic_with_twin(
    "{.reg .pred done; .reg .pred more; .reg .b64 begin; .reg .b64 now;"
    " mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1; @done bra OVER_${:uid}; mov.u64 begin, %clock64;"
    " WAIT_${:uid}: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1; @done bra OVER_${:uid};"
    " mov.u64 now, %clock64; sub.u64 now, now, begin;"
    f" setp.lt.u64 more, now, {LONGEST_WAIT}; @more bra WAIT_${{:uid}}; trap;"
    " OVER_${:uid}: }",
    "r,r,~{memory}",
    None,
    ("int32", "int32"),
)
def mbarrier_wait(address: int, parity: int) -> None:
    """``mbarrier.try_wait.parity`` in a loop, with acquire order at block scope: returns when the phase with that
    parity is over. Traps after a very long time (sm_90).
    """
    hardware().wait_for_phase(address, parity)


@intrinsic_with_twin(
    "{.reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [$1], $2; selp.b32 $0, 1, 0, done;}",
    "=r,r,r,~{memory}",
    "int32",
    ("int32", "int32"),
)
def mbarrier_test(address: int, parity: int) -> int:
    """``mbarrier.try_wait.parity`` once: 1 if the phase with that parity is over, 0 if not yet (sm_90)."""
    over = hardware().phase_is_over(address, parity)
    if not over:
        time.sleep(0.0005)  # gives way, as the instruction does
    return int(over)


@intrinsic_with_twin("bar.sync $0, $1;", "r,r,~{memory}", None, ("int32", "int32"))
def named_barrier(number: int, threads: int) -> None:
    """``bar.sync``: barrier `number` (1 to 15) of `threads` threads, a multiple of 32; orders their memory accesses
    (sm_70).
    """
    hardware().arrive_at_barrier("named", number, threads)


@intrinsic_with_twin("bar.arrive $0, $1;", "r,r,~{memory}", None, ("int32", "int32"))
def named_barrier_arrive(number: int, threads: int) -> None:
    """``bar.arrive``: arrives at barrier `number` without waiting: those that wait in `named_barrier` see what this
    thread wrote before. `threads` counts both (sm_70).
    """
    hardware().arrive_at_barrier("named", number, threads, wait=False)
