"""The hopper worker in the simulator: every schedule, run-time extents, failing runs, and threads that are late.

A simulated block of it has 384 Python threads, so that programs are tiny and each combination is there once.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from functools import cache

import numpy as np
import pytest
from numba import cuda

from etproto import layout as L
from etproto.errors import ExecutorUnavailable, NoProgressError, RunError
from etproto.executors import cpu, cudasim
from etproto.kernels import source_hopper
from etproto.kernels.ptx.simulated import SimulatedBlock
from etproto.kernels.tiles.matrix_multiply import matrix_multiply
from etproto.kernels.tiles.vector_multiply import vector_multiply
from etproto.lowering import lower
from etproto.lowering_graph import lower_graph
from etproto.models import MODELS, bucket_sum, splitk
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.schedule import schedule
from etproto.tile_kind import Operand, TileKind, storage_dtype
from etproto.trace import SPAN_POP, SPAN_PUSH, SPAN_TASK, SPAN_WAIT, summarize, verify

PROGRAMS = {
    "splitk": {"n": 2},
    "splitk empty": {"n": 0},
    "bucket_sum": {"rows": 9, "buckets": 3, "width": 2, "chunk": 4, "block": 8},
    "cholesky": {"tiles": 3, "tile": 2},
    "gemm": {"M": 5, "N": 4, "K": 6, "splits": 2, "tile_m": 4, "tile_n": 4, "tile_k": 2},
    "chain": {"N": 32, "layers": 3, "batch": 3, "workers": 2},
    "mlp": {"hidden": 64, "intermediate": 64, "tokens": 4},
    "skinny": {"B": 8, "N": 128, "K": 128, "bound": 8, "slices": 2},
}
# (label, schedule, workers, options): each schedule and each program with what is hard for it
RUNS = [
    ("splitk", "static", 1, {"policy": "zigzag"}),
    ("splitk", "dynamic", 1, {"early_push": True}),
    ("splitk empty", "static", 2, {}),
    ("splitk empty", "dynamic", 2, {}),
    ("bucket_sum", "device-static", 2, {}),  # gates, run-time extents, maps and needs
    ("bucket_sum", "dynamic", 1, {}),
    ("bucket_sum", "mixed", 2, {"early_push": True}),
    ("cholesky", "static", 2, {"policy": "critical_path"}),  # a table of tasks
    ("cholesky", "dynamic", 2, {}),
    ("gemm", "mixed", 2, {}),
    ("chain", "dynamic", 2, {"early_push": True}),
    ("chain", "static", 2, {}),
    ("mlp", "mixed", 1, {}),
    ("skinny", "dynamic", 2, {}),
]


@cache
def built(label: str):
    """(model, target, lowered) of a program."""
    model = MODELS[label.split()[0]]
    target = model.build(**PROGRAMS[label])
    return model, target, lower(target) if model.kinds is None else lower_graph(target, model.kinds(target))


def simulate(scheduled, tensors, **options):
    return cudasim.run(scheduled, tensors, worker="hopper", **{"watchdog_s": 30.0, "timeout_s": 60.0, **options})


def run_model(label, kind, workers, options, **launch):
    model, target, lowered = built(label)
    tensors = model.make_tensors(target, np.random.default_rng(3))
    expected = model.reference(tensors)
    trace = simulate(schedule(lowered, kind, workers=workers, **options), tensors, **launch)
    assert model.compare(tensors, expected) <= model.tolerance(tensors)
    assert verify(trace) == [] and trace.workers == workers and trace.dropped == 0
    return trace, tensors


@pytest.mark.parametrize(("label", "kind", "workers", "options"), RUNS)
def test_every_schedule(label, kind, workers, options):
    trace, _ = run_model(label, kind, workers, options)
    spans = np.bincount(trace.span, minlength=4)
    tasks = spans[SPAN_TASK]
    assert spans[SPAN_PUSH] <= tasks and spans[SPAN_WAIT] <= tasks
    assert (spans[SPAN_POP] == tasks) == (kind == "dynamic" or tasks == 0)
    assert spans[SPAN_PUSH] > 0 or tasks == 0
    assert tasks == 0 or spans[SPAN_WAIT] > 0 or (kind in ("dynamic", "mixed") and not options.get("early_push"))
    assert summarize(trace).clamped == 0, "each part of the worker has a lane of its own"


def test_records_in_global_memory(monkeypatch):
    monkeypatch.setattr(cudasim, "fits_shared_tables", lambda *_: False)
    run_model("gemm", "device-static", 1, {})


def test_without_a_trace():
    tensors = splitk.MODEL.make_tensors(built("splitk")[1], np.random.default_rng(0))
    expected = splitk.MODEL.reference(tensors)
    trace = simulate(schedule(built("splitk")[2], "static", workers=1), tensors, trace=False)
    assert splitk.MODEL.compare(tensors, expected) <= splitk.MODEL.tolerance(tensors) and trace.count == 0


def test_late_producers():
    """C31: a pause before each notify."""
    run_model("splitk", "static", 2, {}, delay_ns=20_000_000, seed=7)


# -- tasks that count how often they run --------------------------------------------------------------------


def _count(i, j, ran):
    if cuda.threadIdx.x == cuda.blockDim.x - 1:
        cuda.atomic.add(ran, (i, j), 1)


COUNT = TileKind("count", lambda i, j, ran: None, 2, (Operand("ran", "int32", 2, "accumulate"),), portable=_count)


def counting(name: str, rows: int, columns: int, **edges) -> TaskGrid:
    return TaskGrid(name, COUNT, (rows, columns), {"ran": Tensor(f"{name}_ran", (rows, columns), "int32")}, **edges)


def ran(scheduled, **options):
    buffers = [buffer for buffer in scheduled.lowered.buffers if buffer.contents is None]
    tensors = {buffer.name: np.zeros(buffer.shape, storage_dtype(buffer.dtype)) for buffer in buffers}
    return tensors, simulate(scheduled, tensors, **options)


@pytest.mark.parametrize(("kind", "tasks", "workers"), [("static", 1, 3), ("dynamic", 1, 3), ("static", 19, 1)])
def test_more_workers_than_tasks_and_more_tasks_than_descriptors(kind, tasks, workers):
    E = EventTensor("E", (tasks,))
    grids = (counting("a", tasks, 1, notifies={E: "ij->i"}), counting("b", tasks, 1, waits={E: "ij->i"}))
    tensors, trace = ran(schedule(lower(Program("p", grids).bind()), kind, workers=workers))
    assert all((array == 1).all() for array in tensors.values()) and verify(trace) == []


@pytest.mark.parametrize("early", [False, True])
def test_several_drains(early):
    """C39: two grids through queues, one of them waiting for both; the pop runs one task ahead of static ones."""
    E, F, G = (EventTensor(name, (4,)) for name in "EFG")
    grids = (
        counting("a", 4, 1, notifies={G: "ij->i"}),
        counting("left", 4, 1, waits={G: "ij->i"}, notifies={E: "ij->i"}),
        counting("right", 4, 1, waits={G: "ij->i"}, notifies={F: "ij->i"}),
        counting("last", 4, 1, waits={E: "ij->i", F: "ij->i"}),
    )
    lowered = lower(Program("diamonds", grids).bind())
    scheduled = schedule(lowered, "mixed", workers=2, early_push=early, dynamic_grids=["last", "right"])
    tensors, trace = ran(scheduled)
    assert all((array == 1).all() for array in tensors.values()) and verify(trace) == []


def test_a_wavefront_pushed_early():
    """Task (i, j) waits for (i - 1, j) and (i, j - 1): workers hold tasks whose events are far from met."""
    E, F = EventTensor("E", (3, 4)), EventTensor("F", (3, 4))
    grid = counting("cell", 3, 4, waits={E: "ij->i-1:i, j", F: "ij->i, j-1:j"}, notifies={E: "ij->ij", F: "ij->ij"})
    tensors, trace = ran(schedule(lower(Program("wave", (grid,)).bind()), "dynamic", workers=2, early_push=True))
    assert (tensors["cell_ran"] == 1).all() and verify(trace) == []


def _announce(i, count):
    if cuda.threadIdx.x == 0:
        count[0] = 3


ANNOUNCE = TileKind("announce", lambda i, count: None, 1, (Operand("count", "int32", 1, "out"),), portable=_announce)


def announced(bound: int) -> Program:
    """Three tasks of as many as `bound`."""
    F, count = EventTensor("F"), Tensor("count", (1,), "int32")
    results = {"ran": Tensor("g_ran", (bound, 1), "int32")}
    grids = (
        TaskGrid("w", ANNOUNCE, (1,), {"count": count}, notifies={F: "i->"}),
        TaskGrid("g", COUNT, ("count[0]", 1), results, waits={F: "ij->"}, bound=bound),
    )
    return Program("announced", grids)


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_tasks_that_do_not_exist_in_this_run_are_skipped(kind):
    tensors, trace = ran(schedule(lower(announced(11).bind()), kind, workers=1))
    assert tensors["g_ran"].ravel().tolist() == [1, 1, 1] + 8 * [0]
    assert (trace.span == SPAN_TASK).sum() == 4 and verify(trace) == []


# -- kinds with roles beside others -------------------------------------------------------------------------


def _copy(i, x, y):
    for item in range(cuda.threadIdx.x, 65 * x.shape[1], cuda.blockDim.x):
        row = i * 65 + item // x.shape[1]
        y[row, item % x.shape[1]] = x[row, item % x.shape[1]]


COPY = TileKind("copy", lambda *a: None, 1, (Operand("x", "bfloat16"), Operand("y", "bfloat16", mode="out")), _copy)


def bfloat16(rng, *shape):
    """Small integers, which bfloat16 holds exactly, as bits; and in float64."""
    values = rng.integers(-3, 4, shape).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16), values.astype(np.float64)


def floats(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_what_ordinary_stores_wrote_is_read_by_bulk_copies_and_the_reverse(rng, kind):
    """Copy -> product (TMA in and out) -> copy, events between, one worker, tasks of both sorts in turn."""
    M, N, K = 130, 64, 72
    X, A, B = Tensor("X", (M, K), "bfloat16"), Tensor("A", (M, K), "bfloat16"), Tensor("B", (N, K), "bfloat16")
    C, D = Tensor("C", (M, N), "bfloat16"), Tensor("D", (M, N), "bfloat16")
    E, F = EventTensor("E"), EventTensor("F")
    program = Program(
        "beside",
        (
            TaskGrid("fill", COPY, (2,), {"x": X, "y": A}, notifies={E: "i->"}),
            TaskGrid(
                "multiply",
                matrix_multiply(64),
                (2, 1, 1),
                {"a": A, "b": B, "c": C},
                waits={E: "ijk->"},
                notifies={F: "ijk->"},
            ),
            TaskGrid("take", COPY, (2,), {"x": C, "y": D}, waits={F: "i->"}),
        ),
    )
    (x, a), (b_bits, b) = bfloat16(rng, M, K), bfloat16(rng, N, K)
    poison = np.uint16(0x7FC0)
    tensors = {"X": x, "B": b_bits, "A": np.full((M, K), poison), "C": np.full((M, N), poison)}
    tensors["D"] = np.full((M, N), poison)
    trace = simulate(schedule(lower(program.bind()), kind, workers=1), tensors)
    np.testing.assert_allclose(floats(tensors["D"]), a @ b.T, rtol=2.0**-8)
    assert verify(trace) == []


def apart(kinds, widths, batch, rng):
    """A program of independent products, one grid a kind, of either family: (program, tensors, expected)."""
    grids, tensors, expected = [], {}, {}
    for number, kind in enumerate(kinds):
        N, K = widths[number]
        lead = (1,) if kind.coordinates == 2 else ()
        extents = (1, -(-N // 8)) if lead else (1, -(-N // 64), 1)
        shapes = ((*lead, batch, K), (*lead, N, K), (*lead, batch, N))
        names = [f"{letter}{number}" for letter in "XWY"]
        operands = {
            operand.name: Tensor(name, shape, "bfloat16")
            for operand, name, shape in zip(kind.operands, names, shapes, strict=True)
        }
        grids.append(TaskGrid(f"g{number}", kind, extents, operands))
        (tensors[names[0]], x), (tensors[names[1]], w) = bfloat16(rng, *shapes[0]), bfloat16(rng, *shapes[1])
        tensors[names[2]] = np.full(shapes[2], np.uint16(0x7FC0))
        expected[names[2]] = x @ np.swapaxes(w, -1, -2)
    return Program("apart", tuple(grids)), tensors, expected


@pytest.mark.parametrize("slow", ["consumer", "notifier"])
def test_kinds_that_use_staging_memory_in_different_ways(rng, slow, monkeypatch):
    """vector_multiply counts turns of its own and keeps X where matrix_multiply stages its stores: no kind may
    disturb another, though a consumer that adds up sums, or the store thread, is late.
    """
    hold_back(monkeypatch, {"consumer": 40, "notifier": LATE["notifier"]}[slow], 0.03)
    kinds = (
        vector_multiply(8, 64, batch=8),
        vector_multiply(8, 96, batch=8),
        matrix_multiply(64),
        vector_multiply(8, 128, batch=8),
    )
    program, tensors, expected = apart(kinds, [(16, 64), (16, 96), (64, 72), (16, 128)], 8, rng)
    trace = simulate(schedule(lower(program.bind()), "static", workers=1), tensors)
    for name, values in expected.items():
        np.testing.assert_allclose(floats(tensors[name]), values, rtol=2.0**-8, err_msg=name)
    assert verify(trace) == []


# -- threads that are late ----------------------------------------------------------------------------------

LATE = {"consumer": 0, "last consumer": 255, "scheduler": 256, "scheduler's last lane": 287, "waiter": 288}
LATE |= {"waiter's last lane": 319, "loader": 320, "notifier": 352, "notifier's last lane": 383}


def hold_back(monkeypatch, slow: int, seconds: float = 0.002) -> None:
    """Thread `slow` of every block leaves each wait late."""
    phase, arrive = SimulatedBlock.wait_for_phase, SimulatedBlock.arrive_at_barrier

    def pause():
        if threading.current_thread().thread_id == slow:
            time.sleep(seconds)

    def wait_for_phase(self, address, parity):
        phase(self, address, parity)
        pause()

    def arrive_at_barrier(self, kind, number, threads, **options):
        arrive(self, kind, number, threads, **options)
        pause()

    monkeypatch.setattr(SimulatedBlock, "wait_for_phase", wait_for_phase)
    monkeypatch.setattr(SimulatedBlock, "arrive_at_barrier", arrive_at_barrier)


@pytest.mark.parametrize("slow", LATE)
def test_a_late_thread_changes_nothing(slow, monkeypatch):
    hold_back(monkeypatch, LATE[slow])
    program = {"scheduler": ("cholesky", "dynamic"), "scheduler's last lane": ("gemm", "dynamic")}
    label, kind = program.get(slow, ("chain", "dynamic"))
    run_model(label, kind, 1, {"early_push": "last" in slow})


@pytest.mark.parametrize("slow", ["scheduler's last lane", "waiter's last lane", "notifier's last lane", "loader"])
def test_a_late_thread_still_learns_that_the_run_has_failed(slow, monkeypatch):
    hold_back(monkeypatch, LATE[slow])
    with pytest.raises(RunError, match=r"task group\[7\] names grouped\[7\], outside its extents \(5,\)"):
        run_out_of_range("device-static", 1)


# -- runs that fail -----------------------------------------------------------------------------------------


def run_out_of_range(kind, workers):
    instance = bucket_sum.program(buckets=5, width=2, chunk=4, block=8, clip=False).bind(rows=10)
    tensors = bucket_sum.MODEL.make_tensors(instance, np.random.default_rng(0))
    tensors["X"][7, 0] = 7.5
    return simulate(schedule(lower(instance), kind, workers=workers), tensors, timeout_s=30.0)


@pytest.mark.parametrize(("kind", "workers"), [("device-static", 2), ("dynamic", 2), ("mixed", 1)])
def test_a_key_outside_its_event_tensor_is_named(kind, workers):
    with pytest.raises(RunError, match=r"task group\[7\] names grouped\[7\], outside its extents \(5,\)"):
        run_out_of_range(kind, workers)


def starved():
    E = EventTensor("E", (2,))
    program = Program("p", (counting("a", 2, 4, notifies={E: "ij->i"}), counting("b", 2, 1, waits={E: "ij->i"})))
    lowered = lower(program.bind())
    words = lowered.words.copy()
    words[words[L.HEADER_EVENTS] + L.EVENT_NEED] = 5
    return dataclasses.replace(lowered, words=words), lowered


@pytest.mark.parametrize(("kind", "who"), [("static", "worker [01]: "), ("dynamic", "")])
def test_a_starved_task_ends_the_run_and_the_next_is_right(kind, who):
    """C15, C22: the report names the worker that holds the task, though its other warps are elsewhere."""
    wrong, right = starved()
    text = who + r"b\[0, 0\] waits for E\[0\], 4/5 notified, by all its notifiers"
    with pytest.raises(NoProgressError, match=text):
        ran(schedule(wrong, kind, workers=2), watchdog_s=0.5)
    tensors, trace = ran(schedule(right, kind, workers=2))
    assert all((array == 1).all() for array in tensors.values()) and verify(trace) == []


def test_a_run_time_extent_over_its_bound_is_reported():
    with pytest.raises(RunError, match="gives 3 tasks, expected 0 to its bound 2"):
        ran(schedule(lower(announced(2).bind()), "device-static", workers=2))


def test_a_full_queue_is_reported():
    ready = lower(Program("ready", (counting("many", 64, 1),)).bind())
    with pytest.raises(RunError, match=r"queue 0 is full: 64 tasks are in it, its capacity is 4"):
        ran(schedule(ready, "dynamic", workers=1, queue_capacity=4))


def _broken(i, count):
    if i == 5 and cuda.threadIdx.x == 17:
        raise ZeroDivisionError("body 5")


def test_a_body_that_raises_ends_the_launch():
    broken = TileKind("broken", lambda i, count: None, 1, ANNOUNCE.operands, portable=_broken)
    grid = TaskGrid("g", broken, (9,), {"count": Tensor("count", (1,), "int32")})
    start = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="body 5") as caught:
        ran(schedule(lower(Program("p", (grid,)).bind()), "static", workers=2))
    assert "in simulated block 1, thread 17" in caught.value.__notes__ and time.monotonic() - start < 20


def test_no_copy_is_in_flight_when_a_failed_run_ends(monkeypatch):
    """Weights are on their way for a task that is never ready: shared memory must not be given up under them."""
    change = SimulatedBlock.change_message_barrier
    flying = []

    def land_late(self, address, *, arrivals=0, expected=0, landed=0):
        if not landed:
            return change(self, address, arrivals=arrivals, expected=expected)
        flying.append(address)

        def land():
            flying.remove(address)
            change(self, address, landed=landed)

        timer = threading.Timer(2.0, land)
        timer.daemon = True
        return timer.start()

    monkeypatch.setattr(SimulatedBlock, "change_message_barrier", land_late)
    kind, E = vector_multiply(16, 64), EventTensor("E", (1,))
    a = TaskGrid("a", COUNT, (1, 1), {"ran": Tensor("ran", (1, 1), "int32")}, notifies={E: "ij->0"})
    shapes = {"x": (1, 1, 64), "w": (1, 32, 64), "y": (1, 1, 32)}
    operands = {name: Tensor(name, shape, "bfloat16") for name, shape in shapes.items()}
    lowered = lower(Program("p", (a, TaskGrid("b", kind, (1, 2), operands, waits={E: "ij->0"}))).bind())
    words = lowered.words.copy()
    words[words[L.HEADER_EVENTS] + L.EVENT_NEED] = 2
    with pytest.raises(NoProgressError, match=r"b\[0, 0\] waits for E\[0\], 1/2 notified"):
        ran(schedule(dataclasses.replace(lowered, words=words), "static", workers=1), watchdog_s=0.3)
    assert flying == []


# -- what the source and the geometry are -------------------------------------------------------------------


def test_a_kind_without_bodies_is_refused():
    host = TileKind("host_only", lambda i: None, 1)
    with pytest.raises(ExecutorUnavailable, match="tile kind host_only has neither roles nor a portable body"):
        source_hopper.hopper_source((COUNT, host))


def test_geometry():
    """Stages fill shared memory; buffers, barriers and tables have their room; two stages must fit."""
    kinds = (matrix_multiply(256), vector_multiply(16, 4096, batch=8))
    where = source_hopper.geometry(kinds)
    assert where.stages >= 2 and where.stage_bytes == 48 * 1024 and where.staging_bytes % 2048 == 0
    assert where.staging_bytes == max(kind.staging_bytes for kind in kinds)
    used = where.stages * where.stage_bytes + where.staging_bytes
    assert used + 1024 < where.dynamic_bytes < 227 * 1024 < used + where.stage_bytes + 48 * 1024
    assert source_hopper.geometry((COUNT,)).stages == 0
    odd = dataclasses.replace(vector_multiply(16, 64), staging_bytes=3 * 1024)
    assert source_hopper.geometry((odd,)).staging_bytes == 4096, "each of two buffers begins at a multiple of 1024"
    large = dataclasses.replace(matrix_multiply(256), name="large", stage_bytes=120 * 1024)
    with pytest.raises(ExecutorUnavailable, match="large: two stages of 122880 bytes need 245760 bytes"):
        source_hopper.geometry((large,))


def test_cpu_agrees():
    """The definition: the same program by threads on the cpu executor."""
    model, target, lowered = built("mlp")
    tensors = model.make_tensors(target, np.random.default_rng(3))
    expected = model.reference(tensors)
    cpu.run(schedule(lowered, "static", workers=2), tensors)
    assert model.compare(tensors, expected) <= model.tolerance(tensors)
