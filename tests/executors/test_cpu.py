"""The cpu executor: right results under every schedule and interleaving, and what it says without any."""

from __future__ import annotations

import dataclasses
import threading
import time

import numpy as np
import pytest

from etproto import layout as L
from etproto.errors import NoProgressError, ProgramError, RunError
from etproto.executors import cpu
from etproto.lowering import lower
from etproto.lowering_graph import lower_graph
from etproto.models import MODELS, bucket_sum
from etproto.program import Program, TaskGrid, Tensor
from etproto.schedule import schedule
from etproto.scheduled import ENTRY_DRAIN, ENTRY_STRIDE
from etproto.tile_kind import Operand, TileKind
from etproto.trace import SPAN_NAMES, SPAN_TASK, verify

K = Operand("k", ndim=0)
DRIVERS = {"threads": {}, "seed": {"seed": 3}}
HOW = [("static", {}), ("dynamic", {}), ("dynamic", {"early_push": True}), ("mixed", {})]
HOW += [("mixed", {"early_push": True}), ("device-static", {"policy": "zigzag"})]


def splitk(n: int):
    """(lowered, tensors, row sums by NumPy)."""
    instance = MODELS["splitk"].build(n=n)
    tensors = MODELS["splitk"].make_tensors(instance, np.random.default_rng(n))
    return lower(instance), tensors, tensors["A"].astype(np.float64).sum(axis=1).reshape(n, 32)


def starved(lowered, more: int):
    """The same program whose first event tensor needs `more` notifications than it gets."""
    words = lowered.words.copy()
    words[words[L.HEADER_EVENTS] + L.EVENT_NEED] += more
    return dataclasses.replace(lowered, words=words)


def partial_and_final(n: int) -> tuple[list[int], list[int]]:
    first = lower(MODELS["splitk"].build(n=n)).grid_first[1]
    return list(range(4 * n)), [int(first) + i for i in range(n)]


@pytest.mark.parametrize("driver", DRIVERS)
def test_lists_by_hand(by_hand, driver):
    """Consumers on one worker, producers backwards on two others."""
    lowered, tensors, expected = splitk(6)
    partial, final = partial_and_final(6)
    trace = cpu.run(by_hand(lowered, [final, partial[:5:-1], partial[5::-1]]), tensors, **DRIVERS[driver])
    np.testing.assert_allclose(tensors["C"], expected, atol=1e-4)
    assert verify(trace) == []
    ran = trace.task[(trace.span == SPAN_TASK) & (trace.worker == 1)]
    assert ran.tolist() == partial[:5:-1]


@pytest.mark.parametrize("driver", DRIVERS)
def test_entries_among_tasks(by_hand, driver):
    """A share of grid 0, then a drain of grid 1, in the list of every worker."""
    lowered, tensors, expected = splitk(5)
    entries = [(ENTRY_STRIDE, 0, 0, 0), (ENTRY_DRAIN, 0, 0, 0)]
    scheduled = by_hand(lowered, [[-1, -2]] * 4, entries, grid_queue=[-1, 0], queue_grid=[1], queue_capacity=[5])
    trace = cpu.run(scheduled, tensors, **DRIVERS[driver])
    np.testing.assert_allclose(tensors["C"], expected, atol=1e-4)
    assert verify(trace) == []


@pytest.mark.parametrize("kind, options", HOW)
@pytest.mark.parametrize("name", ["splitk", "cholesky", "bucket_sum"])
def test_twenty_interleavings(name, kind, options):
    """C26, C31: notifications are held back at random; every seed gives NumPy's result, and the same bits."""
    values = {
        "splitk": {"n": 4},
        "cholesky": {"tiles": 4, "tile": 5},
        "bucket_sum": {"rows": 40, "buckets": 6},
    }
    model = MODELS[name]
    target = model.build(**values[name])
    lowered = lower(target) if model.kinds is None else lower_graph(target, model.kinds(target))
    given = model.make_tensors(target, np.random.default_rng(0))
    expected, first = model.reference(given), None
    for seed in range(21):
        tensors = {name: array.copy() for name, array in given.items()}
        trace = cpu.run(schedule(lowered, kind, workers=1 + seed % 5, **options), tensors, seed=seed)
        assert model.compare(tensors, expected) <= model.tolerance(given)
        assert verify(trace) == []
        first = first or tensors
        for tensor, array in tensors.items():
            np.testing.assert_array_equal(array, first[tensor], err_msg=f"{tensor}, seed {seed}")


def test_a_seed_gives_one_interleaving():
    lowered, tensors, _ = splitk(6)
    scheduled = schedule(lowered, "dynamic", workers=4)

    def order(seed):
        trace = cpu.run(scheduled, tensors, seed=seed)
        return list(zip(trace.worker.tolist(), trace.span.tolist(), trace.task.tolist(), strict=True))

    assert order(5) == order(5)
    assert len({tuple(order(seed)) for seed in range(6)}) > 1


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("kind", ["static", "dynamic", "mixed"])
@pytest.mark.parametrize("workers", [1, 2, 3, 7, 40])
def test_any_number_of_workers(kind, workers, driver):
    """C32, C20: one to more than there are tasks, three runs each; and with nothing to do."""
    lowered, tensors, expected = splitk(3)
    for _ in range(3):
        tensors["C"][:] = np.nan
        trace = cpu.run(schedule(lowered, kind, workers=workers), tensors, **DRIVERS[driver])
        np.testing.assert_allclose(tensors["C"], expected, atol=1e-4)
    assert trace.workers == workers
    empty, tensors, _ = splitk(0)
    trace = cpu.run(schedule(empty, kind, workers=workers), tensors, **DRIVERS[driver])
    assert trace.count == 0 and verify(trace) == []


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_body_of_a_graph_runs_once_after_those_before(body_graph, driver):
    """C22: a graph with two leaf branches; C39: a diamond, whose last task waits for two."""
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "leaf"), ("leaf", "leaf 2")]
    lowered, ran = body_graph(edges)
    for kind in ("static", "dynamic"):
        ran.clear()
        cpu.run(schedule(lowered, kind, workers=3), {}, **DRIVERS[driver])
        assert sorted(ran) == ["a", "b", "c", "d", "leaf", "leaf 2"]
        assert all(ran.index(one) < ran.index(two) for one, two in edges)


def test_late_producers_in_threads(body_graph):
    """Producers that sleep: consumers wait, on more workers than there are cores."""
    edges = [(f"p{i}", f"c{i // 3}") for i in range(12)]
    delays = {f"p{i}": lambda i=i: time.sleep(0.001 * (i * 7 % 5)) for i in range(12)}
    lowered, ran = body_graph(edges, delays)
    trace = cpu.run(schedule(lowered, "dynamic", workers=16), {})
    assert verify(trace) == [] and all(ran.index(one) < ran.index(two) for one, two in edges)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_kind_without_operands_before_one_with_some(driver):
    """Their operand records begin at the same place."""
    calls: list[tuple[int, ...]] = []
    nothing = TileKind("nothing", lambda i: calls.append((i,)), 1)
    add = TileKind("add", lambda i, x, k: x.__setitem__(i, x[i] + k), 1, (Operand("x", ndim=1, mode="inout"), K))
    first = TaskGrid("first", nothing, (3,))
    second = TaskGrid("second", add, (4,), {"x": Tensor("X", (4,)), "k": 5})
    X = np.arange(4, dtype=np.float32)
    lowered = lower(Program("two", (first, second)).bind())
    cpu.run(schedule(lowered, "static", workers=2), {"X": X}, **DRIVERS[driver])
    assert sorted(calls) == [(0,), (1,), (2,)] and X.tolist() == [5, 6, 7, 8]


# -- queues -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_ring_of_8_slots_and_320_tasks(rounds, driver):
    """C38: 64 workers take tickets ahead, slots are reused 40 times; every task runs once."""
    runs = np.zeros((40, 8), np.int32)
    scheduled = schedule(lower(rounds(40, 8).bind()), "dynamic", workers=64, queue_capacity=8)
    trace = cpu.run(scheduled, {"runs": runs}, **DRIVERS[driver])
    assert (runs == 1).all() and verify(trace) == []


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_full_queue_is_an_error_with_its_numbers(bursts, driver):
    """C37: capacity 4, 64 tasks ready at once."""
    tensors = {"runs": np.zeros((1, 64), np.int32), "first": np.zeros((1, 1), np.int32)}
    scheduled = schedule(lower(bursts(64).bind()), "dynamic", workers=1, queue_capacity=4)
    with pytest.raises(RunError, match=r"bursts\(\): queue 0 is full: 5 tasks .*rest\[0, 4\].* capacity is 4"):
        cpu.run(scheduled, tensors, **DRIVERS[driver])
    assert tensors["runs"].sum() == 0
    cpu.run(schedule(scheduled.lowered, "dynamic", workers=1), tensors)
    assert (tensors["runs"] == 1).all()
    lowered, tensors, _ = splitk(16)
    with pytest.raises(RunError, match="queue 0 is full: 64 tasks are in it, its capacity is 4"):
        cpu.run(schedule(lowered, "dynamic", workers=2, queue_capacity=4), tensors, **DRIVERS[driver])


# -- no progress ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", DRIVERS)
def test_two_lists_that_deadlock(body_graph, by_hand, driver):
    """Each list follows the dependences; seen at once, whatever the watchdog's time. C15: then a good run."""
    lowered, ran = body_graph([("a1", "a2"), ("b1", "b2")])
    names = lowered.task_arrays.task_name
    lists = [[names.index(name) for name in task] for task in (("a2", "b1"), ("b2", "a1"))]
    start = time.monotonic()
    with pytest.raises(NoProgressError) as caught:
        cpu.run(by_hand(lowered, lists), {}, watchdog_s=60.0, **DRIVERS[driver])
    assert time.monotonic() - start < 10
    text = str(caught.value)
    assert "no worker can go on, 0 of 4 tasks have run" in text
    assert "worker 0: a2 waits for event" in text and "0/1 notified, not by a1" in text
    assert "worker 1: b2 waits for event" in text and "0/1 notified, not by b1" in text
    cpu.run(by_hand(lowered, [lists[0][::-1], lists[1][::-1]]), {}, **DRIVERS[driver])
    assert sorted(ran) == ["a1", "a2", "b1", "b2"]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("kind, options", HOW)
def test_an_event_that_is_never_met(kind, options, driver):
    """C22: who waits, for which event, seen and needed, and that everybody has notified it."""
    lowered, tensors, expected = splitk(3)
    scheduled = schedule(starved(lowered, 1), kind, workers=2, **options)
    with pytest.raises(NoProgressError) as caught:
        cpu.run(scheduled, tensors, **DRIVERS[driver])
    text = str(caught.value)
    assert "no worker can go on, 12 of 15 tasks have run" in text
    assert "final[0] waits for E[0], 4/5 notified, by all its notifiers: partial[0, 0]" in text
    cpu.run(schedule(lowered, kind, workers=2, **options), tensors, **DRIVERS[driver])
    np.testing.assert_allclose(tensors["C"], expected, atol=1e-4)


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_missing_notifier_is_named(by_hand, driver):
    lowered, tensors, _ = splitk(2)
    partial, final = partial_and_final(2)
    lists = [final, [task for task in partial if task != 6]]
    with pytest.raises(NoProgressError, match=r"final\[1\] waits for E\[1\], 3/4 notified, not by partial\[1, 2\]"):
        cpu.run(by_hand(lowered, lists), tensors, **DRIVERS[driver])


def test_a_body_that_does_not_return():
    release = threading.Event()
    lowered, tensors, _ = splitk(1)
    kinds = tuple(dataclasses.replace(kind) for kind in lowered.kinds)
    object.__setattr__(kinds[0], "reference", lambda i, j, a, b: release.wait(30) if j == 2 else None)
    stuck = dataclasses.replace(lowered, kinds=kinds)
    with pytest.raises(NoProgressError, match="no task finished for 0.2 s, 3 of 5 tasks have run") as caught:
        cpu.run(schedule(stuck, "static", workers=4), tensors, watchdog_s=0.2)
    release.set()
    assert "worker 2: partial[0, 2] has not returned from its body" in str(caught.value)
    assert "final[0] waits for E[0], 3/4 notified, not by partial[0, 2]" in str(caught.value)


# -- exceptions and bounds --------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_an_exception_in_a_body(body_graph, kind, driver):
    """It comes out as it is, with the task's name; the other workers stop, and the next run is right."""
    broken = [True]

    def fail():
        if broken[0]:
            raise ZeroDivisionError("by zero")

    lowered, ran = body_graph([("a", "b"), ("b", "c"), ("x", "y")], {"b": fail})
    with pytest.raises(ZeroDivisionError, match="by zero") as caught:
        cpu.run(schedule(lowered, kind, workers=3), {}, **DRIVERS[driver])
    assert any(note.startswith("in task b, on worker ") for note in caught.value.__notes__)
    assert "c" not in ran
    broken[0] = False
    ran.clear()
    cpu.run(schedule(lowered, kind, workers=3), {}, **DRIVERS[driver])
    assert sorted(ran) == ["a", "b", "c", "x", "y"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_run_time_map_outside_its_event_tensor(driver):
    instance = bucket_sum.program(buckets=4, clip=False).bind(rows=50)
    tensors = MODELS["bucket_sum"].make_tensors(instance, np.random.default_rng(0))
    tensors["X"][37, 0] = 7.5
    with pytest.raises(RunError, match=r"group\[37\] names grouped\[7\], outside its extents \(4,\)"):
        cpu.run(schedule(lower(instance), "device-static", workers=3), tensors, **DRIVERS[driver])


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("kind", ["static", "device-static", "dynamic"])
def test_a_run_time_extent_over_its_bound(kind, driver):
    model = MODELS["bucket_sum"]
    instance = model.build(rows=60, buckets=4, chunk=16)
    lowered = lower(instance)
    grid = lowered.words[L.HEADER_GRIDS] + lowered.grid_name.index("chunk_sum") * L.GRID_WORDS
    words = lowered.words.copy()
    words[grid + L.GRID_BOUND] = 2
    tensors = model.make_tensors(instance, np.random.default_rng(0))
    scheduled = schedule(dataclasses.replace(lowered, words=words), kind, workers=2)
    match = r"task \d+ of grid chunk_sum|grid chunk_sum: a run-time extent gives \d+ tasks, .* bound 2"
    with pytest.raises(RunError, match=match):
        cpu.run(scheduled, tensors, **DRIVERS[driver])


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_more_notifications_than_needed(kind):
    """C21: needs 3, has 4 producers. Nothing waits for equality, and the end of the run tells."""
    lowered, tensors, _ = splitk(2)
    with pytest.raises(RunError, match=r"E\[0\] needs 3 notifications, it was notified 4 times\n.*E\[1\]"):
        cpu.run(schedule(starved(lowered, -1), kind, workers=3), tensors)


# -- tensors and traces -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, match",
    [
        ({"A": None}, "got none for A"),
        ({"Z": np.zeros(1)}, "no tensor 'Z'; tensors are A, B, C"),
        ({"B": np.zeros((2, 4, 32))}, "tensor B: expected dtype float32, got float64"),
        ({"C": np.zeros((3, 32), np.float32)}, r"tensor C: expected shape \(2, 32\), got \(3, 32\)"),
        ({"C": np.zeros((32, 2), np.float32).T}, "tensor C: expected a C-contiguous array, got strides"),
        ({"C": [[0.0] * 32] * 2}, "tensor C: expected a NumPy array, got builtins.list"),
        ({"C": np.broadcast_to(np.float32(0), (2, 32))}, "tensor C: expected an array that can be written"),
    ],
)
def test_tensors_that_cannot_be_used(change, match):
    lowered, tensors, _ = splitk(2)
    tensors = {name: array for name, array in {**tensors, **change}.items() if array is not None}
    with pytest.raises(ProgramError, match=match):
        cpu.run(schedule(lowered, "static", workers=1), tensors)


def test_a_read_only_input_is_taken():
    lowered, tensors, expected = splitk(2)
    tensors["A"].flags.writeable = False
    cpu.run(schedule(lowered, "static", workers=1), tensors)
    np.testing.assert_allclose(tensors["C"], expected, atol=1e-4)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_trace_has_a_span_of_every_sort(driver):
    lowered, tensors, _ = splitk(4)
    trace = cpu.run(schedule(lowered, "dynamic", workers=3, early_push=True), tensors, **DRIVERS[driver])
    counts = np.bincount(trace.span, minlength=4)
    assert dict(zip(SPAN_NAMES, counts.tolist(), strict=True)) == {
        "task": 20,
        "wait": 4,
        "pop": 20,
        "push": 16,
    }
    assert (trace.executor, trace.time_unit, trace.schedule) == ("cpu", "ns", "dynamic")
    assert trace.tasks.count == 20 and trace.end.max() <= trace.makespan_ns
    assert trace.extra.get("seed") == DRIVERS[driver].get("seed")


def test_a_full_trace_says_so():
    """C58: 8 records a worker, many more tasks."""
    lowered, tensors, _ = splitk(20)
    trace = cpu.run(schedule(lowered, "static", workers=3), tensors, trace_capacity=8)
    assert trace.count == 24 and trace.kept == f"kept 24 of {24 + trace.dropped} records"
    assert cpu.run(schedule(lowered, "static", workers=3), tensors, trace=False).kept == "0 records"
