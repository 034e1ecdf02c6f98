"""Block-wide code run by a part of a block: in the simulator, and as PTX."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numba import cuda, int64

from etproto.errors import NoProgressError
from etproto.executors.simulator import launch_simulated
from etproto.kernels.compile import compile_ptx
from etproto.kernels.groups import CONSUMER_THREADS, CONSUMERS, WARP, ThreadGroup, reaches_cuda, rebound
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.views import array_view

view = array_view("int64", 1)


@device_function
def number():
    return cuda.threadIdx.x


@device_function
def square(value):
    return value * value


@device_function
def body(out, first):
    """Every thread says who it is, and the last one, after a barrier, adds up what the group has written."""
    me = number()
    out[first + me] = me + 1
    cuda.syncthreads()
    if me == cuda.blockDim.x - 1:
        total = 0
        for other in range(cuda.blockDim.x):
            total += out[first + other]
        out[first + me] = square(total)


warp_body = rebound(body, WARP)
consumer_body = rebound(body, CONSUMERS)


def parts(address):
    """Warp 1 alone, and the first 256 threads: neither barrier waits for other threads."""
    out = view(address, 512)
    if cuda.threadIdx.x < CONSUMER_THREADS:
        consumer_body(out, 0)
    elif cuda.threadIdx.x // 32 == 9:
        warp_body(out, 256)


def whole(address):
    body(view(address, 64), 0)


def whole_block_barrier_in_a_part(address):
    if cuda.threadIdx.x < 32:
        body(view(address, 64), 0)


def expected(threads):
    numbers = np.arange(1, threads + 1)
    numbers[-1] = numbers.sum() ** 2
    return numbers


def test_indices_and_barriers_are_those_of_the_group():
    out = np.zeros(512, np.int64)
    launch_simulated(parts, 1, 320, (out.ctypes.data,), timeout_s=30.0)
    np.testing.assert_array_equal(out[:256], expected(256))
    np.testing.assert_array_equal(out[256:288], expected(32))
    assert not out[288:].any()


def test_the_original_stays_as_it_was():
    out = np.zeros(64, np.int64)
    launch_simulated(whole, 1, 64, (out.ctypes.data,), timeout_s=30.0)
    np.testing.assert_array_equal(out, expected(64))
    with pytest.raises(NoProgressError):
        launch_simulated(whole_block_barrier_in_a_part, 1, 64, (out.ctypes.data,), timeout_s=0.5)
    assert body.__globals__["cuda"] is cuda and warp_body.__globals__["cuda"] is WARP


def test_what_does_not_use_cuda_is_not_copied():
    assert warp_body.__globals__["square"] is square
    assert warp_body.__globals__["number"] is not number
    assert rebound(square, WARP) is square and rebound(body, WARP) is warp_body
    assert reaches_cuda(body, set()) and not reaches_cuda(square, set())


def closure_over(inner):
    def outer(out, first):
        inner(out, first)

    return device_function(outer)


def test_closures_are_followed():
    outer = rebound(closure_over(body), WARP)
    assert outer.__closure__[0].cell_contents.__globals__["cuda"] is WARP


def recursive(depth):
    return cuda.threadIdx.x if depth == 0 else recursive(depth - 1)


def test_a_function_that_calls_itself_is_copied_once():
    copied = rebound(recursive, WARP)
    assert copied.__globals__["recursive"].__code__ is recursive.__code__
    assert copied.__globals__["recursive"].__globals__["cuda"] is WARP


def shared_kernel(address):
    out = view(address, 64)
    if cuda.threadIdx.x >= 32:
        shared_body(out)


def _shared(out):
    total = cuda.shared.array(1, int64)
    if cuda.threadIdx.x == 0:
        total[0] = 5
    cuda.syncthreads()
    cuda.atomic.add(total, 0, 1)
    cuda.syncthreads()
    out[cuda.threadIdx.x] = total[0]


shared_body = rebound(device_function(_shared), WARP)


def test_shared_memory_and_atomics_are_those_of_the_block():
    out = np.zeros(64, np.int64)
    launch_simulated(shared_kernel, 1, 64, (out.ctypes.data,), timeout_s=30.0)
    assert out.tolist() == [37] * 32 + [0] * 32
    text = compile_ptx(shared_kernel, (9, 0))
    assert "atom.shared" in text.replace("::cta", "") and len(re.findall(r"\bbar\.warp\.sync", text)) == 2


def test_compiled_groups():
    """A warp's thread number is its lane; the consumers' barrier is a named one of 256 threads."""
    text = compile_ptx(parts, (9, 0))
    assert "%laneid" in text and "bar.warp.sync" in text
    assert re.search(r"mov\.(?:u|b)32\s+%r\d+, 256;", text) and re.search(r"bar\.sync %r\d+, %r\d+;", text)
    assert not re.search(r"bar\.sync\s+0", text) and "%ntid" not in text
    assert re.search(r"bar\.sync\s+0", compile_ptx(whole, (9, 0)))


def test_a_group_is_a_module_with_everything_else_of_cuda():
    group = ThreadGroup("quarter", 64, None, lambda: None)
    assert group.threads == 64 and group.atomic is cuda.atomic and group.shared is cuda.shared
