"""Shared memory by address: loads and stores of words and of 16 bytes, and 16 bytes of global memory at once.

Addresses are those of the shared window, in which bulk copies, mbarriers and wgmma work too. Any
architecture has these instructions (sm_50).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from etproto.kernels.ptx.inline import SIMULATED, compile_as, intrinsic_with_twin
from etproto.kernels.ptx.simulated import WINDOW_START, hardware

__all__ = [
    "copy_vector",
    "load_global_vector",
    "load_shared_float32",
    "load_shared_int32",
    "load_shared_int64",
    "load_shared_vector",
    "shared_address",
    "store_global_vector",
    "store_shared_float32",
    "store_shared_int32",
    "store_shared_int64",
    "store_shared_vector",
]


def shared_address(array: Any) -> int:
    """``cvta.to.shared.u64``: window address of the block's dynamic shared array (of any shared array, compiled)."""
    return WINDOW_START


def _compile_shared_address() -> None:
    from llvmlite import ir
    from numba.cuda import types

    def typing(_context: Any, array: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, values[0]).data
            word = ir.IntType(64)
            function_type = ir.FunctionType(word, [word])
            convert = ir.InlineAsm(function_type, "cvta.to.shared.u64 $0, $1;", "=l,l", side_effect=False)
            return builder.call(convert, [builder.ptrtoint(data, word)])

        return types.int64(array), generate

    compile_as(shared_address, typing)


if not SIMULATED:
    _compile_shared_address()


def _words(address: int, count: int, dtype: str) -> np.ndarray:
    return hardware().words(address, count, dtype)


def _global_vector(address: int) -> np.ndarray:
    if int(address) % 16:
        raise ValueError(f"global memory: the address must be a multiple of 16, got {address}")
    return np.frombuffer((ctypes.c_char * 16).from_address(int(address)), np.int32)


@intrinsic_with_twin("ld.shared.b32 $0, [$1];", "=r,r,~{memory}", "int32", ("int32",))
def load_shared_int32(address: int) -> int:
    """``ld.shared.b32``: an ordinary load, ordered by barriers."""
    return int(_words(address, 1, "int32")[0])


@intrinsic_with_twin("ld.shared.b64 $0, [$1];", "=l,r,~{memory}", "int64", ("int32",))
def load_shared_int64(address: int) -> int:
    """``ld.shared.b64``: an ordinary load, ordered by barriers."""
    return int(_words(address, 1, "int64")[0])


@intrinsic_with_twin("ld.shared.f32 $0, [$1];", "=f,r,~{memory}", "float32", ("int32",))
def load_shared_float32(address: int) -> float:
    """``ld.shared.f32``: an ordinary load, ordered by barriers."""
    return _words(address, 1, "float32")[0]


@intrinsic_with_twin("st.shared.b32 [$0], $1;", "r,r,~{memory}", None, ("int32", "int32"))
def store_shared_int32(address: int, value: int) -> None:
    """``st.shared.b32``: an ordinary store, ordered by barriers."""
    _words(address, 1, "int32")[0] = value


@intrinsic_with_twin("st.shared.b64 [$0], $1;", "r,l,~{memory}", None, ("int32", "int64"))
def store_shared_int64(address: int, value: int) -> None:
    """``st.shared.b64``: an ordinary store, ordered by barriers."""
    _words(address, 1, "int64")[0] = value


@intrinsic_with_twin("st.shared.f32 [$0], $1;", "r,f,~{memory}", None, ("int32", "float32"))
def store_shared_float32(address: int, value: float) -> None:
    """``st.shared.f32``: an ordinary store, ordered by barriers."""
    _words(address, 1, "float32")[0] = value


@intrinsic_with_twin("ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,r,~{memory}", ("int32",) * 4, ("int32",))
def load_shared_vector(address: int) -> tuple[int, int, int, int]:
    """``ld.shared.v4.b32``: 16 bytes from an address that is a multiple of 16."""
    a, b, c, d = (int(word) for word in _words(address, 4, "int32"))
    return a, b, c, d


@intrinsic_with_twin("st.shared.v4.b32 [$0], {$1, $2, $3, $4};", "r,r,r,r,r,~{memory}", None, ("int32",) * 5)
def store_shared_vector(address: int, a: int, b: int, c: int, d: int) -> None:
    """``st.shared.v4.b32``: 16 bytes to an address that is a multiple of 16."""
    _words(address, 4, "int32")[:] = (a, b, c, d)


@intrinsic_with_twin("ld.global.v4.b32 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,l,~{memory}", ("int32",) * 4, ("int64",))
def load_global_vector(address: int) -> tuple[int, int, int, int]:
    """``ld.global.v4.b32``: 16 bytes from a global address that is a multiple of 16; an ordinary load, since another
    task may have written them before an acquire.
    """
    a, b, c, d = (int(word) for word in _global_vector(address))
    return a, b, c, d


@intrinsic_with_twin(
    "st.global.v4.b32 [$0], {$1, $2, $3, $4};", "l,r,r,r,r,~{memory}", None, ("int64",) + ("int32",) * 4
)
def store_global_vector(address: int, a: int, b: int, c: int, d: int) -> None:
    """``st.global.v4.b32``: 16 bytes to a global address that is a multiple of 16; a release publishes them."""
    _global_vector(address)[:] = (a, b, c, d)


@intrinsic_with_twin(
    "{.reg .b32 a, b, c, d; ld.global.v4.b32 {a, b, c, d}, [$1]; st.shared.v4.b32 [$0], {a, b, c, d};}",
    "r,l,~{memory}",
    None,
    ("int32", "int64"),
)
def copy_vector(destination: int, source: int) -> None:
    """``ld.global.v4.b32``, then ``st.shared.v4.b32``: 16 bytes of what other tasks may have written, so ordinary
    loads and not the read-only path; an acquire before them orders them.
    """
    _words(destination, 4, "int32")[:] = _global_vector(source)
