"""Loads, stores and atomics on global memory by address, with the memory orders that the event protocol
needs.

Addresses are int64; indices count elements. `.gpu` scope orders threads of one GPU; events across GPUs use
the `_sys` forms.
"""

from __future__ import annotations

import ctypes
import threading

from etproto.kernels.ptx.inline import intrinsic_with_twin

__all__ = [
    "load_int32",
    "load_int64",
    "load_acquire_int32",
    "load_acquire_int64",
    "load_acquire_sys_int32",
    "store_relaxed_int64",
    "store_release_int64",
    "reduce_release_int32",
    "reduce_release_sys_int32",
    "atomic_add_acq_rel_int32",
    "atomic_add_acq_rel_int64",
    "atomic_add_relaxed_int64",
    "atomic_compare_swap_int64",
]

_one_at_a_time = threading.Lock()  # twins: Python has no atomic read-modify-write


def _element(address: int, index: int, kind: type) -> ctypes._SimpleCData:
    return kind.from_address(int(address) + int(index) * ctypes.sizeof(kind))


def _read_modify_write(cell: ctypes._SimpleCData, value: int) -> int:
    with _one_at_a_time:
        old = cell.value
        cell.value = old + int(value)
        return old


_INDEXED = "{{.reg .b64 a; mad.lo.s64 a, {index}, {size}, {base}; {operation}}}"


def _at(operation: str, result: bool, size: int) -> str:
    base, index = ("$1", "$2") if result else ("$0", "$1")
    return _INDEXED.format(index=index, size=size, base=base, operation=operation)


@intrinsic_with_twin(_at("ld.global.b32 $0, [a];", True, 4), "=r,l,l,~{memory}", "int32", ("int64", "int64"))
def load_int32(address: int, index: int) -> int:
    """``ld.global.b32``: an ordinary load; what it reads was ordered by an acquire before it."""
    return _element(address, index, ctypes.c_int32).value


@intrinsic_with_twin(_at("ld.global.b64 $0, [a];", True, 8), "=l,l,l,~{memory}", "int64", ("int64", "int64"))
def load_int64(address: int, index: int) -> int:
    """``ld.global.b64``: an ordinary load, for tables that no task writes."""
    return _element(address, index, ctypes.c_int64).value


@intrinsic_with_twin(
    _at("st.relaxed.gpu.global.b64 [a], $2;", False, 8), "l,l,l,~{memory}", None, ("int64", "int64", "int64")
)
def store_relaxed_int64(address: int, index: int, value: int) -> None:
    """``st.relaxed.gpu.global.b64``: state that others may look at without relying on an order, and trace
    records.

    A release would wait for all earlier stores of the thread; nothing here needs that.
    """
    _element(address, index, ctypes.c_int64).value = int(value)


@intrinsic_with_twin(
    _at("ld.acquire.gpu.global.b32 $0, [a];", True, 4), "=r,l,l,~{memory}", "int32", ("int64", "int64")
)
def load_acquire_int32(address: int, index: int) -> int:
    """``ld.acquire.gpu.global.b32``: polls an event counter; what its notifiers wrote is visible afterwards."""
    return _element(address, index, ctypes.c_int32).value


@intrinsic_with_twin(
    _at("ld.acquire.gpu.global.b64 $0, [a];", True, 8), "=l,l,l,~{memory}", "int64", ("int64", "int64")
)
def load_acquire_int64(address: int, index: int) -> int:
    """``ld.acquire.gpu.global.b64``: polls a queue slot or the status word; the pusher's view is visible
    afterwards.
    """
    return _element(address, index, ctypes.c_int64).value


@intrinsic_with_twin(
    _at("ld.acquire.sys.global.b32 $0, [a];", True, 4), "=r,l,l,~{memory}", "int32", ("int64", "int64")
)
def load_acquire_sys_int32(address: int, index: int) -> int:
    """``ld.acquire.sys.global.b32``: as `load_acquire_int32`, for an event whose notifiers may be on other
    GPUs.
    """
    return _element(address, index, ctypes.c_int32).value


@intrinsic_with_twin(
    _at("st.release.gpu.global.b64 [a], $2;", False, 8), "l,l,l,~{memory}", None, ("int64", "int64", "int64")
)
def store_release_int64(address: int, index: int, value: int) -> None:
    """``st.release.gpu.global.b64``: publishes a queue slot; everything the pusher has seen is visible to the
    popper.
    """
    _element(address, index, ctypes.c_int64).value = int(value)


@intrinsic_with_twin(
    _at("red.release.gpu.global.add.s32 [a], $2;", False, 4), "l,l,r,~{memory}", None, ("int64", "int64", "int32")
)
def reduce_release_int32(address: int, index: int, value: int) -> None:
    """``red.release.gpu.global.add.s32``: notifies an event that triggers nothing; no value comes back, so
    nothing waits for it.
    """
    _read_modify_write(_element(address, index, ctypes.c_int32), value)


@intrinsic_with_twin(
    _at("red.release.sys.global.add.s32 [a], $2;", False, 4), "l,l,r,~{memory}", None, ("int64", "int64", "int32")
)
def reduce_release_sys_int32(address: int, index: int, value: int) -> None:
    """``red.release.sys.global.add.s32``: notifies an event that another GPU may wait for."""
    _read_modify_write(_element(address, index, ctypes.c_int32), value)


@intrinsic_with_twin(
    _at("atom.acq_rel.gpu.global.add.s32 $0, [a], $3;", True, 4),
    "=r,l,l,r,~{memory}",
    "int32",
    ("int64", "int64", "int32"),
)
def atomic_add_acq_rel_int32(address: int, index: int, value: int) -> int:
    """``atom.acq_rel.gpu.global.add.s32``: notifies an event that may trigger.

    Release publishes this task's output; acquire lets the notifier that meets the need pass on what all the
    others published.
    """
    return _read_modify_write(_element(address, index, ctypes.c_int32), value)


@intrinsic_with_twin(
    _at("atom.acq_rel.gpu.global.add.u64 $0, [a], $3;", True, 8),
    "=l,l,l,l,~{memory}",
    "int64",
    ("int64", "int64", "int64"),
)
def atomic_add_acq_rel_int64(address: int, index: int, value: int) -> int:
    """``atom.acq_rel.gpu.global.add.u64``: queue tickets and the count of live tasks."""
    return _read_modify_write(_element(address, index, ctypes.c_int64), value)


@intrinsic_with_twin(
    _at("atom.relaxed.gpu.global.add.u64 $0, [a], $3;", True, 8),
    "=l,l,l,l,~{memory}",
    "int64",
    ("int64", "int64", "int64"),
)
def atomic_add_relaxed_int64(address: int, index: int, value: int) -> int:
    """``atom.relaxed.gpu.global.add.u64``: places in a trace, whose records the host reads after the launch."""
    return _read_modify_write(_element(address, index, ctypes.c_int64), value)


@intrinsic_with_twin(
    _at("atom.acq_rel.gpu.global.cas.b64 $0, [a], $3, $4;", True, 8),
    "=l,l,l,l,l,~{memory}",
    "int64",
    ("int64", "int64", "int64", "int64"),
)
def atomic_compare_swap_int64(address: int, index: int, expected: int, value: int) -> int:
    """``atom.acq_rel.gpu.global.cas.b64``: sets the status word once, so that the first error is the one
    reported.
    """
    cell = _element(address, index, ctypes.c_int64)
    with _one_at_a_time:
        old = cell.value
        if old == int(expected):
            cell.value = int(value)
        return old
