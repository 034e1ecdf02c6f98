"""The protocol on real memory: message passing, order of a trace, and what happens at the limits."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda as numba_cuda

from etproto.errors import RunError
from etproto.executors import cuda
from etproto.expressions import Symbol
from etproto.graph import TaskGraph
from etproto.lowering import lower
from etproto.lowering_graph import lower_graph
from etproto.models import bucket_sum, splitk
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.schedule import schedule
from etproto.tile_kind import Operand, TileKind
from etproto.trace import SPAN_TASK, verify

pytestmark = pytest.mark.gpu

WORDS = 32  # of the message: 128 bytes, one cache line


def _relay(i, message, wrong):
    """Check the message of task i - 1, each thread another word than it writes, and leave the next."""
    thread = numba_cuda.threadIdx.x
    seen = i
    if thread < WORDS:
        seen = message[(thread + 11) % WORDS]
    numba_cuda.syncthreads()
    if thread < WORDS:
        if seen != i:
            numba_cuda.atomic.add(wrong, 0, 1)
        message[thread] = i + 1


RELAY = TileKind(
    "relay",
    lambda i, message, wrong: None,
    1,
    (Operand("message", "int32", 1, "inout"), Operand("wrong", "int32", 1, "accumulate")),
    portable=_relay,
)


def relay(rounds: int):
    """Task i waits for task i - 1."""
    n = Symbol("n", bound=1 << 20)
    E = EventTensor("E", (n,))
    operands = {"message": Tensor("message", (WORDS,), "int32"), "wrong": Tensor("wrong", (1,), "int32")}
    grid = TaskGrid("relay", RELAY, (n,), operands, waits={E: "i->i-1:i"}, notifies={E: "i->i"})
    return lower(Program("relay", (grid,)).bind(n=rounds))


@pytest.mark.parametrize(
    "kind, workers, rounds", [("static", 2, 1_000_000), ("static", 132, 100_000), ("dynamic", 2, 100_000)]
)
def test_message_passing(kind, workers, rounds):
    """Each worker reads again and again a line that it has in its cache and another worker has changed."""
    arrays = {
        "message": numba_cuda.to_device(np.zeros(WORDS, np.int32)),
        "wrong": numba_cuda.to_device(np.zeros(1, np.int32)),
    }
    cuda.run(schedule(relay(rounds), kind, workers=workers), arrays, trace=False)
    assert arrays["wrong"].copy_to_host().tolist() == [0]
    assert arrays["message"].copy_to_host().tolist() == [rounds] * WORDS


def test_a_full_trace_says_so(case, to_device, to_host):
    program = case("splitk", n=70)
    arrays = to_device(program.inputs)
    trace = cuda.run(schedule(program.lowered, "static", workers=3), arrays, trace_capacity=8)
    program.check(to_host(arrays))
    assert trace.dropped > 0 and trace.count == 24
    assert trace.kept == f"kept 24 of {24 + trace.dropped} records"


def test_more_workers_than_a_byte_can_count(case, to_device, to_host):
    program = case("splitk", n=70)
    limit, why = cuda.resident_limit(program.lowered.kinds)
    assert limit >= 260, why
    arrays = to_device(program.inputs)
    trace = cuda.run(schedule(program.lowered, "static", workers=260), arrays)
    program.check(to_host(arrays))
    assert verify(trace) == []
    assert sorted(set(trace.worker[trace.span == SPAN_TASK].tolist())) == list(range(260))


def test_a_kernel_longer_than_32_bits_of_nanoseconds():
    graph = TaskGraph.from_arrays([0, 1], [1, 2], 3, cost=[1.5, 1.5, 1.5], time_unit="s")
    trace = cuda.run(schedule(lower_graph(graph), "static", workers=2), {})
    assert verify(trace) == []
    assert 4.5e9 <= trace.makespan_ns < 4.8e9
    body = trace.span == SPAN_TASK
    np.testing.assert_allclose((trace.end - trace.start)[body], 1.5e9, rtol=0.02)


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_a_cost_only_graph_takes_its_critical_path(kind):
    """A diamond of 2 ms tasks on enough workers."""
    graph = TaskGraph.from_arrays([0, 0, 1, 2], [1, 2, 3, 3], 4, cost=[2000.0] * 4)
    trace = cuda.run(schedule(lower_graph(graph), kind, workers=4), {})
    assert verify(trace) == []
    assert 6e6 <= trace.makespan_ns < 6.5e6


def test_a_key_outside_its_event_tensor_is_reported(to_device):
    program = bucket_sum.program(buckets=9, width=20, chunk=8, block=16, clip=False).bind(rows=100)
    tensors = bucket_sum.MODEL.make_tensors(program, np.random.default_rng(0))
    tensors["X"][57, 0] = 12.5  # bucket 12 of 9
    with pytest.raises(RunError, match=r"grouped.*9"):
        cuda.run(schedule(lower(program), "device-static", workers=8), to_device(tensors))


def test_a_full_queue_is_reported(to_device):
    instance = splitk.program().bind(n=64)
    tensors = splitk.MODEL.make_tensors(instance, np.random.default_rng(0))
    with pytest.raises(RunError, match=r"queue.*256.*\b4\b"):
        cuda.run(schedule(lower(instance), "dynamic", workers=4, queue_capacity=4), to_device(tensors))
