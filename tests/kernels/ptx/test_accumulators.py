"""wgmma accumulators in kernels for sm_90a: registers, never local memory, and products that are not serialised."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from numba import cuda, float32

from etproto.kernels.compile import compile_ptx
from etproto.kernels.ptx.fragment import fragment_map, fragment_rotate, fragment_store, fragment_zero, fragment_zip
from etproto.kernels.ptx.fragment_global import fragment_add_global, fragment_store_global
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.shared import shared_address, store_shared_float32
from etproto.kernels.ptx.views import array_view
from etproto.kernels.ptx.wgmma import wgmma, wgmma_commit, wgmma_fence, wgmma_wait

CAPABILITY = (9, 0, "a")


@device_function
def _shifted(value, row, column, extra):
    return value + extra[row] * np.float32(column)


@device_function
def _gated(first, second):
    return max(first, np.float32(0)) * second


@device_function
def _fused(value, row, column, extra):
    array, factor = extra
    return value * factor + array[row, column]


_matrix = array_view("float32", 2)


def _finisher(n: int, dtype: str) -> Callable[..., None]:
    """A device function (accumulator, address): sums go to shared memory, 16 columns a turn; 8 columns to global."""
    if n < 16:
        store = fragment_store_global(n, dtype)
        return device_function(lambda accumulator, address: store(accumulator, address, 0, 0, 64, n, n))
    stage, rotate = fragment_store(n, 16, dtype), fragment_rotate(n, 8)

    def finish(accumulator, address):
        for part in range(address & 15):
            stage(accumulator, 2048 * part)
            rotate(accumulator)

    return device_function(finish)


def _product(n: int, dtype: str) -> Callable[[int], None]:
    """A kernel with a loop of products, in which one group is unfinished."""
    zero, multiply, wait_one, wait_all = fragment_zero(n), wgmma(n, dtype), wgmma_wait(n, 1), wgmma_wait(n, 0)
    shift, finish, held = fragment_map(n, _shifted), _finisher(n, dtype), n // 2

    def kernel(address):
        weights = cuda.shared.array(64, "float32")
        here = shared_address(weights)
        thread = cuda.threadIdx.x
        accumulator = cuda.local.array(held, float32)
        zero(accumulator)
        for step in range(address):
            wgmma_fence()
            multiply(accumulator, here + 4 * step, here + 64 + 4 * step, 1)
            multiply(accumulator, here + 4 * step + 2, here + 66 + 4 * step, 1)
            wgmma_commit()
            wait_one(accumulator)
        wait_all(accumulator)
        shift(accumulator, thread // 4, 2 * (thread % 4), weights)
        finish(accumulator, address)

    return kernel


def assert_in_registers(ptx: str, said: str, most: int) -> None:
    """Neither the compiler nor ptxas has put an accumulator into local memory, nor serialised its products."""
    assert not re.search(r"\.local\b", ptx)
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in said
    assert int(re.search(r"Used (\d+) registers", said).group(1)) <= most
    assert "serialized" not in said, said


@pytest.mark.parametrize("n", [8, 16, 24, 64, 96, 128, 192, 208, 256])
@pytest.mark.parametrize(("threads", "most"), [(128, 255), (384, 168)])
def test_accumulators_stay_in_registers(n, threads, most, assemble):
    """In a loop of products with one group unfinished, also with the registers of a block of three warpgroups."""
    dtype = "float16" if n % 16 else "bfloat16"
    ptx = compile_ptx(_product(n, dtype), CAPABILITY, threads=threads)
    name = "bf16" if dtype == "bfloat16" else "f16"
    for instruction in (
        rf"wgmma\.mma_async\.sync\.aligned\.m64n{n}k16\.f32\.{name}\.{name} {{",
        r"wgmma\.wait_group\.sync\.aligned 1;",
        r"wgmma\.wait_group\.sync\.aligned 0;",
        rf"cvt\.rn\.{name}x2\.f32 p3, .*stmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16"
        if n >= 16
        else rf"cvt\.rn\.{name}x2\.f32 t, .*st\.global\.b32",
    ):
        assert re.search(instruction, ptx), instruction
    assert_in_registers(ptx, assemble(ptx), most)


def _products_in_flight(n: int, *, touched: bool) -> Callable[[int], None]:
    """Two products before one wait; `touched`: with the accumulator changed between them."""
    zero, multiply, wait, held = fragment_zero(n), wgmma(n), wgmma_wait(n, 0), n // 2
    change = fragment_rotate(n, 4 if touched else 0)
    store = fragment_store_global(n, "float32")

    def kernel(address):
        accumulator = cuda.local.array(held, float32)
        zero(accumulator)
        for step in range(address):
            wgmma_fence()
            multiply(accumulator, 64 + step, 128 + step, 1)
            change(accumulator)
            multiply(accumulator, 66 + step, 130 + step, 1)
            wgmma_commit()
            wait(accumulator)
        store(accumulator, address, 0, 0, 64, n, n)

    return kernel


def test_what_would_be_noticed(assemble):
    """What ptxas says shows when it serialises products, and that an accumulator is no longer in registers."""
    n, held = 64, 32
    smooth, touched = (
        assemble(compile_ptx(_products_in_flight(n, touched=touched), CAPABILITY)) for touched in (False, True)
    )
    assert "serialized" not in smooth and "serialized" in touched
    zero, wait = fragment_zero(n), wgmma_wait(n, 0)

    def indexed(address):
        accumulator = cuda.local.array(held, float32)
        zero(accumulator)
        wait(accumulator)
        store_shared_float32(0, accumulator[address & 31])

    ptx = compile_ptx(indexed, CAPABILITY)
    assert re.search(r"\.local\b", ptx) and "0 bytes stack frame" not in assemble(ptx)


@pytest.mark.parametrize("n", [8, 64, 256])
def test_a_map_may_read_arrays(n, assemble):
    """An array, or a tuple with one, as the map's extra: each element has its own load."""
    zero, held = fragment_zero(n), n // 2
    fuse, store = fragment_map(n, _fused), fragment_store_global(n, "float32")

    def kernel(address):
        residual = _matrix(address, 64, n)
        accumulator = cuda.local.array(held, float32)
        zero(accumulator)
        fuse(accumulator, cuda.threadIdx.x // 4, 2 * (cuda.threadIdx.x % 4), (residual, np.float32(address)))
        store(accumulator, address, 0, 0, 64, n, n)

    ptx = compile_ptx(kernel, CAPABILITY, threads=128)
    assert len(re.findall(r"\bld\.global\.f32", ptx)) == held
    assert_in_registers(ptx, assemble(ptx), 255)


@device_function
def _numbered(value, row, column, extra):
    return value + np.float32(1000 * row + column + extra)


@device_function
def _difference(first, second):
    return first - np.float32(3) * second


def _constants(ptx: str, operands: str) -> np.ndarray:
    """The constants in the registers of the one group, in all places where the pattern `operands` occurs."""
    constants = dict(re.findall(r"mov\.f32\s+(%f\d+), 0f([0-9A-F]{8});", ptx))
    names = ", ".join(re.findall(operands, ptx)).split(", ")
    return np.array([int(constants[name], 16) for name in names], np.uint32).view(np.float32)


_STORED = r"st\.global\.v2\.f32 \[%rd\d+\], \{([^}]*)\}"


def _as_stored(accumulator: np.ndarray) -> np.ndarray:
    """Elements in the order in which they are stored: a row after the other."""
    return accumulator.reshape(-1, 2, 2).swapaxes(0, 1).ravel()


@pytest.mark.parametrize(
    "change",
    [
        fragment_rotate(32, 0),
        fragment_rotate(32, 6),
        fragment_rotate(32, -3),
        fragment_rotate(16, 4),
        fragment_zero(16),
        fragment_zip(32, _difference),
        fragment_zip(16, _difference),
    ],
    ids=lambda change: "-".join(str(part) for part in getattr(change, "__ptx__", ["zip"])),
)
def test_compiled_functions_do_what_their_twins_do(change):
    """Of an accumulator of constants the compiler finds out what becomes of each element."""
    n, held = 32, 16
    zero, number, store = fragment_zero(n), fragment_map(n, _numbered), fragment_store_global(n, "float32")

    def kernel(address):
        accumulator = cuda.local.array(held, float32)
        zero(accumulator)
        number(accumulator, 2, 5, 7)
        change(accumulator)
        store(accumulator, address, 0, 0, 64, n, n)

    expected = np.zeros(held, np.float32)
    number(expected, 2, 5, 7)
    change(expected)
    np.testing.assert_array_equal(_constants(compile_ptx(kernel, CAPABILITY), _STORED), _as_stored(expected))


@pytest.mark.parametrize("n", [8, 40, 256])
def test_a_product_takes_and_gives_back_each_element_in_its_register(n):
    zero, number, store = fragment_zero(n), fragment_map(n, _numbered), fragment_store_global(n, "float32")
    multiply, wait, held = wgmma(n), wgmma_wait(n, 0), n // 2

    def kernel(address):
        accumulator = cuda.local.array(held, float32)
        zero(accumulator)
        number(accumulator, 2, 5, 7)
        multiply(accumulator, address, address + 1, 1)
        wait(accumulator)
        store(accumulator, address, 0, 0, 64, n, n)

    ptx = compile_ptx(kernel, CAPABILITY, threads=128)
    expected = np.zeros(held, np.float32)
    number(expected, 2, 5, 7)
    np.testing.assert_array_equal(_constants(ptx, r"wgmma\.mma_async\S* \{([^}]*)\}"), expected)
    np.testing.assert_array_equal(_constants(ptx, _STORED), _as_stored(expected))
    left, right = re.search(r"wgmma\.mma_async[^}]*\}, (%rd\d+), (%rd\d+), p, 1, 1, 0, 0;", ptx).groups()
    assert re.search(rf"add\.s64\s+{right}, {left}, 1;", ptx), "a comes first"


@pytest.mark.parametrize(("n", "dtype"), [(16, "float16"), (128, "bfloat16")])
def test_each_element_is_stored_once(n, dtype, assemble):
    store_half, add = fragment_store_global(n, dtype), fragment_add_global(n)
    gate, store_real = fragment_zip(n, _gated), fragment_store_global(n // 2, "float32")
    zero, shift, held = fragment_zero(n), fragment_map(n, _shifted), n // 2

    def kernel(address):
        weights = cuda.shared.array(64, "float32")
        accumulator = cuda.local.array(held, float32)
        zero(accumulator)
        shift(accumulator, cuda.threadIdx.x // 4, 0, weights)
        store_half(accumulator, address, 0, 0, 64, address & 63, n)
        add(accumulator, address, 0, 0, 64, address & 63, n)
        gate(accumulator)
        store_real(accumulator, address, 0, 0, 64, address & 63, n)

    ptx = compile_ptx(kernel, CAPABILITY)
    name, pairs = "bf16" if dtype == "bfloat16" else "f16", n // 4
    assert len(re.findall(rf"cvt\.rn\.{name}x2\.f32 t, [^}}]* @two st\.global\.b32", ptx)) == pairs
    assert len(re.findall(r"@two st\.global\.v2\.f32", ptx)) == pairs // 2
    assert len(re.findall(r"red\.relaxed\.gpu\.global\.add\.f32", ptx)) == 3 * pairs
    assert_in_registers(ptx, assemble(ptx), 255)
