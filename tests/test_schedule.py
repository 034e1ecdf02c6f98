"""Schedules: who runs what, by formula, by plan or through queues, and what cannot be scheduled."""

from __future__ import annotations

import numpy as np
import pytest

from etproto import layout as L
from etproto.errors import ScheduleError
from etproto.graph import TaskGraph
from etproto.lowering import lower
from etproto.lowering_graph import lower_graph
from etproto.models import MODELS
from etproto.program import EventTensor, Program, TaskGrid
from etproto.schedule import SCHEDULES, schedule
from etproto.scheduled import ENTRY_DRAIN, ENTRY_STRIDE, ENTRY_STRIDE_BOUND, PATTERN_ZIGZAG
from etproto.tile_kind import TileKind

BUCKETS = {"buckets": 4, "width": 3, "chunk": 4, "block": 8}


@pytest.fixture(scope="module")
def splitk():
    return lower(MODELS["splitk"].build(n=9))


@pytest.fixture(scope="module")
def bucket_sum():
    return lower(MODELS["bucket_sum"].build(rows=20, **BUCKETS))


def operations(scheduled) -> list[tuple[int, int]]:
    """(operation, grid or queue) of each worker's list; all workers have the same."""
    rows = scheduled.worker_task.reshape(scheduled.workers, -1)
    assert (rows == rows[0]).all() and (rows < 0).all()
    return [tuple(scheduled.entries[~entry, :2].tolist()) for entry in rows[0]]


def test_formulas_hold_nothing_task_sized(splitk):
    large = lower(MODELS["splitk"].build(n=100_000))
    for kind in ("static", "device-static", "dynamic", "mixed"):
        small, big = (schedule(one, kind, workers=132) for one in (splitk, large))
        for name in ("worker_ptr", "worker_task", "entries", "grid_queue", "queue_capacity", "initial_queue"):
            np.testing.assert_array_equal(getattr(small, name), getattr(big, name))
        assert small.worker_task.size <= 132 * 2


def test_static_and_device_static_differ_in_run_time_extents_alone(splitk, bucket_sum):
    assert operations(schedule(splitk, "static", workers=3)) == [(ENTRY_STRIDE, 0), (ENTRY_STRIDE, 1)]
    at_bound = operations(schedule(bucket_sum, "static", workers=3))
    assert at_bound == [(ENTRY_STRIDE_BOUND if g == 3 else ENTRY_STRIDE, g) for g in range(5)]
    assert operations(schedule(bucket_sum, "device-static", workers=3)) == [(ENTRY_STRIDE, g) for g in range(5)]


def test_auto(splitk, bucket_sum):
    assert schedule(splitk, workers=2).schedule == "static"
    assert schedule(bucket_sum, workers=2).schedule == "device-static"


def test_dynamic_is_one_queue_for_all(bucket_sum):
    scheduled = schedule(bucket_sum, "dynamic", workers=3)
    assert operations(scheduled) == [(ENTRY_DRAIN, 0)]
    assert scheduled.grid_queue.tolist() == [0] * 5 and scheduled.queue_grid.tolist() == [-1]
    assert scheduled.queue_capacity[0] >= bucket_sum.tasks
    assert scheduled.queue_capacity[0] & (scheduled.queue_capacity[0] - 1) == 0


def test_mixed_drains_its_dynamic_grids_in_order(splitk, bucket_sum):
    scheduled = schedule(bucket_sum, "mixed", workers=3)
    assert operations(scheduled) == [(0, 0), (0, 1), (0, 2), (ENTRY_DRAIN, 0), (0, 4)]
    assert scheduled.queue_grid.tolist() == [3], "the grid with a run-time extent"
    assert schedule(splitk, "mixed", workers=3).queue_grid.tolist() == [1], "the last one, if there is none"
    chosen = schedule(bucket_sum, "mixed", workers=3, dynamic_grids=["combine", "route"])
    assert chosen.queue_grid.tolist() == [0, 4] and chosen.grid_queue.tolist() == [0, -1, -1, -1, 1]


def test_zigzag_is_a_pattern_of_the_formula(splitk):
    scheduled = schedule(splitk, "static", workers=3, policy="zigzag")
    assert (scheduled.entries[:, 2] == PATTERN_ZIGZAG).all() and scheduled.policy == "zigzag"


def test_critical_path_lists_every_task_once(splitk):
    scheduled = schedule(splitk, "static", workers=4, policy="critical_path")
    tasks = sorted(scheduled.worker_task.tolist())
    assert tasks == [*range(36), *range(splitk.grid_first[1], splitk.grid_first[1] + 9)]
    assert len(scheduled.entries) == 0 and scheduled.worker_ptr[-1] == 45
    assert (np.diff(scheduled.worker_ptr) > 0).all()


def rows_of(lowered, **options) -> list[list[int]]:
    return schedule(lowered, "dynamic", workers=2, **options).initial_queue.tolist()


def test_what_is_ready_at_the_start(splitk, bucket_sum):
    assert rows_of(splitk) == [[0, 0, -1]], "all of `partial`"
    events = [event.name for event in bucket_sum.instance.program.events]
    # `routed` needs as many notifications as there are row blocks: none, if there are no rows.
    assert rows_of(bucket_sum) == [[0, 0, -1], [-1, events.index("routed"), 0]]
    diamond = TaskGraph.from_arrays([0, 0, 1, 2], [1, 2, 3, 3], 4)
    assert rows_of(lower_graph(diamond)) == [[0, 0, 1]], "the one root"


@pytest.mark.parametrize(
    "text, row",
    [("i->i-1:i", [[-2, 0, 0]]), ("i->i-1:i+2", [[-2, 0, 0]]), ("i->0", [])],
)
def test_tasks_that_wait_for_nothing_among_tasks_that_wait(text, row):
    """The first tasks of a wavefront: their range is clipped to nothing."""
    E = EventTensor("E", (6,), need=1)
    grid = TaskGrid("g", TileKind("k", lambda i: None, 1), (6,), waits={E: text}, notifies={E: "i->i"})
    if text == "i->0":
        with pytest.raises(ScheduleError, match="cannot be fed by a queue"):
            rows_of(lower(Program("p", (grid,)).bind()))
    else:
        assert rows_of(lower(Program("p", (grid,)).bind())) == row


def test_rows_do_not_depend_on_the_binding():
    """So that rebinding needs no new schedule: M = 0 makes the need of no event 0 that was not before."""
    for name, sizes in (("gemm", [{"M": 0}, {"M": 64}]), ("bucket_sum", [{"rows": 0}, {"rows": 64}])):
        first, second = (rows_of(lower(MODELS[name].build(**size))) for size in sizes)
        assert first == second


def test_early_push_and_capacity_are_kept(splitk):
    scheduled = schedule(splitk, "dynamic", workers=2, early_push=True, queue_capacity=8)
    assert scheduled.early_push and scheduled.queue_capacity.tolist() == [8]
    for kind in ("static", "device-static"):
        with pytest.raises(ScheduleError, match=f"early_push: a {kind} schedule pushes nothing"):
            schedule(splitk, kind, workers=2, early_push=True)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"kind": "random"}, f"expected one of {', '.join(SCHEDULES)}, got 'random'"),
        ({"workers": 0}, "workers must be an integer of at least 1, got 0"),
        ({"workers": 2.0}, "workers must be an integer of at least 1, got 2.0"),
        ({"workers": True}, "got True"),
        ({"policy": "fastest"}, "policy: expected one of .*got 'fastest'"),
        ({"kind": "dynamic", "queue_capacity": 6}, "queue_capacity must be a power of two, got 6"),
        ({"kind": "dynamic", "queue_capacity": 0}, "queue_capacity must be a power of two, got 0"),
        ({"kind": "mixed", "dynamic_grids": ["last"]}, "no grid 'last'; grids are partial, final"),
        ({"kind": "static", "dynamic_grids": ["final"]}, "dynamic_grids belong to a mixed schedule"),
        ({"kind": "mixed", "policy": "critical_path"}, "policy critical_path: a mixed schedule deals"),
    ],
)
def test_refused(splitk, options, message):
    with pytest.raises(ScheduleError, match=message):
        schedule(splitk, **{"kind": "static", "workers": 2, **options})


def test_a_plan_needs_tasks_that_are_known(bucket_sum):
    with pytest.raises(ScheduleError, match="extents of chunk_sum are computed in it; use round_robin or zigzag"):
        schedule(bucket_sum, "static", workers=2, policy="critical_path")


def test_capacity_is_a_power_of_two_that_holds_every_task():
    for tasks in (0, 1, 128, 129, 1000):
        lowered = lower_graph(TaskGraph.from_arrays([], [], tasks))
        (capacity,) = schedule(lowered, "dynamic", workers=1).queue_capacity.tolist()
        assert capacity >= max(tasks, 1) and capacity & (capacity - 1) == 0
        assert L.SLOT_MASK > tasks
