"""Intrinsics: what their Python twins do, and which memory order their PTX has."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest

from etproto.kernels.compile import compile_ptx
from etproto.kernels.ptx import integer, memory, timer
from etproto.kernels.ptx.views import array_address, array_view

ORDERS = {
    "load_int32": r"ld\.global\.b32",
    "load_int64": r"ld\.global\.b64",
    "load_acquire_int32": r"ld\.acquire\.gpu\.global\.b32",
    "load_acquire_int64": r"ld\.acquire\.gpu\.global\.b64",
    "load_acquire_sys_int32": r"ld\.acquire\.sys\.global\.b32",
    "store_release_int64": r"st\.release\.gpu\.global\.b64",
    "store_relaxed_int64": r"st\.relaxed\.gpu\.global\.b64",
    "reduce_release_int32": r"red\.release\.gpu\.global\.add\.s32",
    "reduce_release_sys_int32": r"red\.release\.sys\.global\.add\.s32",
    "atomic_add_acq_rel_int32": r"atom\.acq_rel\.gpu\.global\.add\.s32",
    "atomic_add_acq_rel_int64": r"atom\.acq_rel\.gpu\.global\.add\.u64",
    "atomic_add_relaxed_int64": r"atom\.relaxed\.gpu\.global\.add\.u64",
    "atomic_compare_swap_int64": r"atom\.acq_rel\.gpu\.global\.cas\.b64",
}


def test_every_intrinsic_is_listed():
    assert set(memory.__all__) == set(ORDERS)


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_is_in_the_ptx_and_in_the_docstring(name):
    """What is compiled is what the documentation says; nothing moves over it."""
    intrinsic = getattr(memory, name)
    text, constraints = intrinsic.__ptx__
    assert re.search(ORDERS[name], text) and "~{memory}" in constraints
    assert re.search("``" + ORDERS[name], intrinsic.__doc__)


def _everything(address):
    a = memory.load_int32(address, 1)
    b = memory.load_acquire_int32(address, 2)
    c = memory.load_acquire_int64(address, 3)
    memory.store_release_int64(address, 4, c)
    memory.reduce_release_int32(address, 20, a)
    d = memory.atomic_add_acq_rel_int32(address, 21, b)
    e = memory.atomic_add_acq_rel_int64(address, 6, c)
    f = memory.atomic_compare_swap_int64(address, 7, e, c + d)
    g = memory.atomic_add_relaxed_int64(address, 8, f)
    memory.store_release_int64(address, 9, g)


def test_compiled_in_order():
    """The compiler neither drops nor reorders them, though some results are used by nobody."""
    body = compile_ptx(_everything, (9, 0))
    expected = ["load_int32", "load_acquire_int32", "load_acquire_int64", "store_release_int64"]
    expected += ["reduce_release_int32", "atomic_add_acq_rel_int32", "atomic_add_acq_rel_int64"]
    expected += ["atomic_compare_swap_int64", "atomic_add_relaxed_int64", "store_release_int64"]
    places, at = [], 0
    for name in expected:
        found = re.compile(ORDERS[name]).search(body, at)
        assert found, f"{name} is not after {places}"
        places.append(name)
        at = found.end()


def test_twins_address_elements():
    words, integers = np.arange(10, 20), np.arange(5, dtype=np.int32)
    assert memory.load_int32(integers.ctypes.data, 3) == memory.load_acquire_int32(integers.ctypes.data, 3) == 3
    assert memory.load_acquire_int64(words.ctypes.data, 7) == 17
    memory.store_release_int64(words.ctypes.data, 2, -1)
    assert words[1:4].tolist() == [11, -1, 13]


def test_read_modify_write_twins():
    words, integers = np.array([5, 7]), np.array([1, 2**31 - 1], np.int32)
    assert memory.atomic_add_acq_rel_int64(words.ctypes.data, 1, -8) == 7 and words.tolist() == [5, -1]
    assert memory.atomic_add_relaxed_int64(words.ctypes.data, 1, 2**40) == -1 and words.tolist() == [5, 2**40 - 1]
    assert memory.atomic_add_acq_rel_int32(integers.ctypes.data, 1, 1) == 2**31 - 1
    assert integers.tolist() == [1, -(2**31)], "counters wrap as on the device"
    assert memory.reduce_release_int32(integers.ctypes.data, 0, 2) is None and integers[0] == 3
    assert memory.atomic_compare_swap_int64(words.ctypes.data, 0, 5, 9) == 5 and words[0] == 9
    assert memory.atomic_compare_swap_int64(words.ctypes.data, 0, 5, 1) == 9 and words[0] == 9


def test_twins_are_atomic():
    words, integers = np.zeros(1, np.int64), np.zeros(2, np.int32)

    def add():
        for _ in range(2000):
            memory.atomic_add_acq_rel_int64(words.ctypes.data, 0, 1)
            memory.atomic_add_relaxed_int64(words.ctypes.data, 0, 1)
            memory.reduce_release_int32(integers.ctypes.data, 1, 1)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert words[0] == 16000 and integers[1] == 8000


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 64, 2**31 - 1])
def test_division_rounds_down(divisor):
    for numerator in (-(2**31), -1000, -7, -1, 0, 1, 6, 7, 1000, 2**31 - 1):
        assert integer.floor_divide(numerator, divisor) == numerator // divisor
        assert integer.floor_modulo(numerator, divisor) == numerator % divisor
    for function in (integer.floor_divide, integer.floor_modulo):
        assert "div.s32" in function.__ptx__[0]


def test_clocks():
    assert timer.globaltimer() <= timer.globaltimer() and timer.clock64() <= timer.clock64()
    assert timer.processor() == 0 and timer.nanosleep(20) is None
    assert "%globaltimer" in timer.globaltimer.__ptx__[0] and "%smid" in timer.processor.__ptx__[0]


def test_views_are_the_memory_itself():
    data = np.arange(24, dtype=np.float32)
    for shape in ((24,), (4, 6), (2, 3, 4), (2, 3, 2, 2)):
        view = array_view("float32", len(shape))(data.ctypes.data, *shape)
        np.testing.assert_array_equal(view, np.arange(24, dtype=np.float32).reshape(shape))
    array_view("float32", 2)(data.ctypes.data, 4, 6)[1, 2] = -1
    assert data[8] == -1
    assert array_view("int32", 2)(0, 0, 5).shape == (0, 5)
    assert array_view("int32", 2) is array_view("int32", 2)


def test_an_address_leads_to_the_array():
    """The address of a view is where its first element lies, wherever it begins."""
    data = np.arange(24, dtype=np.int64)
    view = array_view("int64", 2)
    assert array_address(view(data.ctypes.data, 4, 6)) == data.ctypes.data
    assert memory.load_int64(array_address(view(data.ctypes.data, 4, 6)[2]), 1) == data[13]


_view = array_view("int64", 2)


def _address_of_a_view(address):
    memory.store_relaxed_int64(address, 0, array_address(_view(address + 64, 4, 6)))


def test_an_address_needs_no_load():
    """In a kernel it is what the view was made of: sums and conversions between state spaces, as global."""
    body = compile_ptx(_address_of_a_view, (9, 0)).split("ld.param.u64")[1]
    given = re.match(r"\s*(%rd\d+)", body).group(1)
    moved = re.search(rf"add\.s64\s+(%rd\d+), {given}, 64;", body).group(1)
    opaque = re.search(rf"mov\.b64 (%rd\d+), {moved};", body).group(1)
    generic = re.search(rf"cvta\.global\.u64\s+(%rd\d+), {opaque};", body).group(1)
    assert re.search(rf"st\.relaxed\.gpu\.global\.b64 \[a\], {generic};", body)
    assert not re.search(r"\bld\.|\.local", body)
