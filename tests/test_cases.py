"""Faults that other megakernel systems shipped, as tests; the numbers are those of the list of cases.

====  ===========================================  =============================================
case  fault                                        where it is tested
====  ===========================================  =============================================
C01   more workers than are resident: silent hang  executors/test_cuda_host, gpu/test_residency
C02   worker count of another device               executors/test_cuda_host
C04   occupancy of another kernel                  gpu/test_residency
C05   GPU code under the CUDA simulator            executors/test_cuda_host
C12   second program in one process                gpu/test_repeats
C15   run after an aborted one                     executors/test_cuda_host, gpu/test_repeats
C19   counters touched outside the protocol        kernels/test_sync
C20   second launch without a reset                executors/test_cuda_host, gpu/test_repeats
C21   overshot counter, equality test              kernels/test_sync, here
C22   unreachable task; several sinks              here
C23   kind dispatch                                kernels/test_source, here, gpu/test_agreement
C24   later slices before earlier ones             here
C25   block index as order                         kernels/test_sync
C26   join that waits for some of its producers    here
C27   message passing                              gpu/test_protocol
C28   spin on a plain load                         test_ptx_gate
C31   right only when producers are fast           test_executors_agree, gpu/test_repeats
C32   wrong from the second task of a worker       here, test_executors_agree
C33   early return before a barrier                kernels/test_sync
C36   lanes that poll beside lanes in a shuffle    kernels/test_sync
C37   full queue overwritten                       here, kernels/test_reset, gpu/test_protocol
C38   queue ring wraps around                      here
C39   consumer of two events pushed twice          here
C46   sizes that the tile does not divide          here, gpu/test_agreement
C53   coordinates past 65535                       here, kernels/test_decode, gpu/test_protocol
C58   full trace; many workers; long kernels       here, gpu/test_protocol
C72   other arrays for the next run                gpu/test_arrays
====  ===========================================  =============================================
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
from numba import cuda

from etproto import layout as L
from etproto.check import check, check_order
from etproto.errors import NoProgressError, RunError
from etproto.executors import cpu, cudasim, simulator
from etproto.expand import expand
from etproto.graph import TaskGraph
from etproto.lowering import lower
from etproto.lowering_graph import lower_graph
from etproto.models import MODELS, bucket_sum, splitk
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.schedule import schedule
from etproto.tile_kind import Operand, TileKind
from etproto.trace import SPAN_TASK, verify

KINDS = ("static", "device-static", "dynamic", "mixed")


def _count(i, j, ran):
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(ran, (i, j), 1)


def _count_reference(i, j, ran):
    ran[i, j] += 1


COUNT = TileKind("count", _count_reference, 2, (Operand("ran", "int32", 2, "accumulate"),), portable=_count)


def counting(name: str, rows: int, columns: int, **edges) -> TaskGrid:
    """A grid whose tasks count how often they run."""
    return TaskGrid(name, COUNT, (rows, columns), {"ran": Tensor(f"{name}_ran", (rows, columns), "int32")}, **edges)


def ran(scheduled, **options):
    """Runs of each task on the simulator, by tensor; and the trace."""
    tensors = {b.name: np.zeros(b.shape, b.dtype) for b in scheduled.lowered.buffers if b.contents is None}
    trace = cudasim.run(scheduled, tensors, **{"threads": 2, "watchdog_s": 20.0, **options})
    return tensors, trace


def test_c21_an_overshot_counter_is_reported():
    """E needs 3 and is notified 4 times: who waits goes on, and the run says so at its end."""
    lowered = lower(splitk.program().bind(n=2))
    words = lowered.words.copy()
    words[words[L.HEADER_EVENTS] + L.EVENT_NEED] = 3
    tensors = splitk.MODEL.make_tensors(lowered.instance, np.random.default_rng(0))
    wrong = dataclasses.replace(lowered, words=words)
    with pytest.raises(RunError, match=r"E\[0\] needs 3 notifications, it was notified 4 times"):
        cudasim.run(schedule(wrong, "static", workers=2), tensors)
    E = EventTensor("E", (2,), need=3)
    program = Program("p", (counting("a", 2, 4, notifies={E: "ij->i"}), counting("b", 2, 1, waits={E: "ij->i"})))
    found = check(program.bind()).errors
    assert any("need 3" in text and "4" in text and "a[0, 0]" in text for text in found)


def test_c22_unreachable_tasks_are_named():
    E = EventTensor("E", (2,), need=1)
    program = Program("p", (counting("alone", 2, 1, waits={E: "ij->i"}),))
    found = check(program.bind()).errors
    assert any("E[0]" in text and "alone[0, 0]" in text for text in found)


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_c22_a_starved_task_ends_the_run(kind):
    E = EventTensor("E", (2,))
    program = Program("p", (counting("a", 2, 4, notifies={E: "ij->i"}), counting("b", 2, 1, waits={E: "ij->i"})))
    lowered = lower(program.bind())
    words = lowered.words.copy()
    words[words[L.HEADER_EVENTS] + L.EVENT_NEED] = 5
    with pytest.raises(NoProgressError, match=r"b\[0, 0\] waits for E\[0\], 4/5 notified, by all its notifiers"):
        ran(schedule(dataclasses.replace(lowered, words=words), kind, workers=2), watchdog_s=0.2)


@pytest.mark.parametrize("kind", KINDS)
def test_c22_a_run_ends_after_all_its_sinks(kind):
    E = EventTensor("E", (3,))
    grids = (
        counting("root", 3, 1, notifies={E: "ij->i"}),
        counting("left", 3, 1, waits={E: "ij->i"}),
        counting("right", 3, 2, waits={E: "ij->i"}),
        counting("apart", 2, 2),
    )
    tensors, trace = ran(schedule(lower(Program("p", grids).bind()), kind, workers=3))
    assert all((array == 1).all() for array in tensors.values()) and verify(trace) == []


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_c23_each_kind_runs_as_often_as_it_has_tasks(kind):
    model = MODELS["cholesky"]
    graph = model.build(tiles=4, tile=2)
    tensors = model.make_tensors(graph, np.random.default_rng(0))
    trace = cudasim.run(schedule(lower_graph(graph, model.kinds(graph)), kind, workers=3), tensors)
    counts = np.bincount(trace.kind[trace.span == SPAN_TASK])
    assert dict(zip(trace.kind_name, counts.tolist(), strict=True)) == {
        "potrf": 4,
        "trsm": 6,
        "syrk": 6,
        "gemm": 4,
    }


def test_c24_a_slice_before_the_one_it_waits_for_is_refused():
    """Split-K in a fixed order: slice k waits for slice k - 1; two lists, the later slices first in each."""
    E = EventTensor("E", (1, 8))
    grid = counting("slice", 1, 8, waits={E: "ij->i, j-1:j"}, notifies={E: "ij->i, j"})
    tasks = expand(Program("p", (grid,)).bind())
    assert check_order(tasks, np.array([0, 4, 8]), np.array([0, 2, 4, 6, 1, 3, 5, 7])) == []
    (text,) = check_order(tasks, np.array([0, 4, 8]), np.array([6, 4, 2, 0, 7, 5, 3, 1]))
    named = [f"slice[0, {j}]" for j in range(8) if f"slice[0, {j}]" in text]
    assert len(named) >= 2 and "worker" in text


def test_c26_a_join_waits_for_all_its_producers():
    """Waiting for 1 of 3 is refused; the join that needs all is right when the middle one lags."""
    partial = EventTensor("E", (2,), need=1)
    grids = (counting("a", 2, 3, notifies={partial: "ij->i"}), counting("b", 2, 1, waits={partial: "ij->i"}))
    assert not check(Program("p", grids).bind()).ok
    model = MODELS["gemm"]
    instance = model.build(M=4, N=4, K=12, splits=3, tile_m=4, tile_n=4, tile_k=4)
    tensors = model.make_tensors(instance, np.random.default_rng(0))
    expected = model.reference(tensors)
    for seed in range(3):  # the longest pause falls on another slice each time
        given = {name: array.copy() for name, array in tensors.items()}
        cudasim.run(schedule(lower(instance), "static", workers=4), given, seed=seed, delay_ns=16_000_000)
        assert model.compare(given, expected) <= model.tolerance(tensors)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tasks, workers", [(1, 1), (2, 1), (3, 1), (7, 1), (7, 2), (7, 7), (7, 12)])
def test_c32_any_number_of_tasks_on_any_number_of_workers(kind, tasks, workers):
    E = EventTensor("E", (tasks,))
    grids = (counting("a", tasks, 1, notifies={E: "ij->i"}), counting("b", tasks, 1, waits={E: "ij->i"}))
    tensors, trace = ran(schedule(lower(Program("p", grids).bind()), kind, workers=workers))
    assert all((array == 1).all() for array in tensors.values())
    assert verify(trace) == [] and trace.workers == workers


def burst(tasks: int):
    """One task makes `tasks` others ready at once."""
    E = EventTensor("E")
    return lower(
        Program(
            "burst",
            (counting("one", 1, 1, notifies={E: "ij->"}), counting("many", tasks, 1, waits={E: "ij->"})),
        ).bind()
    )


def test_c37_a_full_queue_is_reported_with_its_numbers():
    ready = lower(Program("ready", (counting("many", 64, 1),)).bind())
    with pytest.raises(RunError, match=r"ready\(\): queue 0 is full: 64 tasks are in it, its capacity is 4"):
        ran(schedule(ready, "dynamic", workers=2, queue_capacity=4))
    with pytest.raises(RunError, match=r"burst\(\): queue 0 is full: \d+ tasks are in it.*its capacity is 4"):
        ran(schedule(burst(64), "dynamic", workers=1, queue_capacity=4))
    tensors, _ = ran(schedule(burst(64), "dynamic", workers=2))  # by default it holds every task
    assert (tensors["many_ran"] == 1).all()


def chains(count: int, length: int):
    """`count` chains of `length` tasks: never more than `count` are ready."""
    E = EventTensor("E", (count, length))
    grid = counting("step", count, length, waits={E: "ij->i, j-1:j"}, notifies={E: "ij->ij"})
    return lower(Program("chains", (grid,)).bind())


@pytest.mark.parametrize("early", [False, True])
def test_c38_a_ring_of_8_slots_carries_320_tasks(early):
    """64 workers, most of them waiting at a slot for a pass that is still to come: every task runs once."""
    # a task is pushed when its producer has been dispatched: more may be in the queue than are ready
    if early:
        scheduled = schedule(chains(8, 40), "dynamic", workers=64, early_push=True)
    else:
        scheduled = schedule(chains(8, 40), "dynamic", workers=64, queue_capacity=8)
    tensors, trace = ran(scheduled)
    assert (tensors["step_ran"] == 1).all() and verify(trace) == []


@pytest.mark.parametrize("kind, early", [("dynamic", False), ("dynamic", True), ("mixed", False), ("mixed", True)])
def test_c39_a_consumer_of_two_events_is_pushed_once(kind, early):
    """Diamonds whose last task waits for two events of two event tensors."""
    E, F, G = (EventTensor(name, (6,)) for name in "EFG")
    grids = (
        counting("a", 6, 1, notifies={G: "ij->i"}),
        counting("left", 6, 1, waits={G: "ij->i"}, notifies={E: "ij->i"}),
        counting("right", 6, 1, waits={G: "ij->i"}, notifies={F: "ij->i"}),
        counting("last", 6, 1, waits={E: "ij->i", F: "ij->i"}),
    )
    options = {"dynamic_grids": ["last", "right"]} if kind == "mixed" else {}
    lowered = lower(Program("diamonds", grids).bind())
    tensors, trace = ran(schedule(lowered, kind, workers=4, early_push=early, **options))
    assert all((array == 1).all() for array in tensors.values()) and verify(trace) == []


@pytest.mark.parametrize("kind", KINDS)
def test_c46_sizes_that_the_tile_does_not_divide(kind):
    model = MODELS["gemm"]
    instance = model.build(M=130, N=70, K=33, splits=3, tile_m=64, tile_n=64, tile_k=16)
    tensors = model.make_tensors(instance, np.random.default_rng(0))
    expected = model.reference(tensors)
    cpu.run(schedule(lower(instance), kind, workers=3), tensors)
    assert model.compare(tensors, expected) <= model.tolerance(tensors)


def test_c53_seventy_thousand_tasks_of_one_kind():
    graph = TaskGraph.from_arrays(
        np.arange(0, 69_999, 1000),
        np.arange(1, 70_000, 1000),
        70_000,
        args=np.arange(70_000),
        cost=np.zeros(70_000),
    )
    trace = cpu.run(schedule(lower_graph(graph), "static", workers=2), {})
    body = trace.span == SPAN_TASK
    assert sorted(trace.coordinate[body, 0].tolist()) == list(range(70_000))


def test_c58_a_full_trace_says_how_much_it_kept():
    lowered = lower(Program("p", (counting("a", 10, 10),)).bind())
    tensors, trace = ran(schedule(lowered, "static", workers=1), trace_capacity=8)
    assert (tensors["a_ran"] == 1).all() and trace.count == 8
    assert trace.dropped >= 92 and trace.kept == f"kept 8 of {8 + trace.dropped} records"


@pytest.mark.parametrize("kind", ["device-static", "dynamic"])
def test_a_key_outside_its_event_tensor_is_named(kind):
    instance = bucket_sum.program(buckets=5, width=2, chunk=4, block=8, clip=False).bind(rows=20)
    tensors = bucket_sum.MODEL.make_tensors(instance, np.random.default_rng(0))
    tensors["X"][13, 0] = 7.5
    with pytest.raises(RunError, match=r"task group\[13\] names grouped\[7\], outside its extents \(5,\)"):
        cudasim.run(schedule(lower(instance), kind, workers=3), tensors)


@pytest.mark.parametrize("slow", range(4))
def test_threads_that_leave_a_barrier_late_still_learn_that_the_run_has_failed(slow, monkeypatch):
    """A failed wait is told to the block by a flag; no thread may overwrite it before the last has read it."""
    wait = simulator._Thread.syncthreads

    def syncthreads(thread):
        wait(thread)
        if thread.thread_id == slow:
            time.sleep(0.003)

    monkeypatch.setattr(simulator._Thread, "syncthreads", syncthreads)
    instance = bucket_sum.program(buckets=5, width=2, chunk=4, block=8, clip=False).bind(rows=20)
    tensors = bucket_sum.MODEL.make_tensors(instance, np.random.default_rng(0))
    tensors["X"][13, 0] = 7.5
    with pytest.raises(RunError, match=r"task group\[13\] names grouped\[7\]"):
        cudasim.run(schedule(lower(instance), "device-static", workers=3), tensors, timeout_s=20.0)


def _announce(i, count):
    if cuda.threadIdx.x == 0:
        count[0] = 9


ANNOUNCE = TileKind("announce", lambda i, count: None, 1, (Operand("count", "int32", 1, "out"),), portable=_announce)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_time_extent_over_its_bound_is_reported(kind):
    F = EventTensor("F")
    grids = (
        TaskGrid("w", ANNOUNCE, (1,), {"count": Tensor("count", (1,), "int32")}, notifies={F: "i->"}),
        TaskGrid("g", COUNT, ("count[0]", 1), {"ran": Tensor("g_ran", (9, 1), "int32")}, waits={F: "ij->"}, bound=5),
    )
    texts = {
        "extent": "gives 9 tasks, expected 0 to its bound 5",
        "trigger": r"F triggers task [5-8] of grid g",
    }
    if kind in ("static", "device-static"):
        del texts["trigger"]  # with queues, either of the two may be noticed first
    text = "|".join(texts.values())
    with pytest.raises(RunError, match=text):
        ran(schedule(lower(Program("p", grids).bind()), kind, workers=2))


def test_a_trigger_outside_its_grid_is_reported():
    E = EventTensor("E", (2,))
    grids = (
        counting("a", 2, 1, notifies={E: "ij->i"}),
        counting("b", 4, 1, waits={E: "ij->(i//2)%2"}, triggers={E: "e->2*e:2*e+3"}),
    )
    with pytest.raises(RunError, match=r"E\[1\] triggers task 4 of grid b, whose tasks are 0 to 3"):
        ran(schedule(lower(Program("p", grids).bind()), "dynamic", workers=1))


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("workers", [1, 5])
def test_a_wavefront_in_a_queue(workers, early):
    """Task (i, j) waits for (i - 1, j) and (i, j - 1): only the corner waits for nothing."""
    E, F = EventTensor("E", (4, 5)), EventTensor("F", (4, 5))
    grid = counting("cell", 4, 5, waits={E: "ij->i-1:i, j", F: "ij->i, j-1:j"}, notifies={E: "ij->ij", F: "ij->ij"})
    lowered = lower(Program("wave", (grid,)).bind())
    for run in (
        ran,
        lambda scheduled: (None, cpu.run(scheduled, {"cell_ran": np.zeros((4, 5), np.int32)}, seed=1)),
    ):
        tensors, trace = run(schedule(lowered, "dynamic", workers=workers, early_push=early))
        assert verify(trace) == [] and (tensors is None or (tensors["cell_ran"] == 1).all())
