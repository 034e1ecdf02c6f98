"""The timing model by hand on small cases, and on random ones by re-checking every span."""

from __future__ import annotations

import dataclasses
import runpy
import time
from pathlib import Path

import numpy as np
import pytest

from etproto.errors import ScheduleError
from etproto.executors.model_engine import describe_blocked, simulate
from etproto.executors.worker_items import WorkerItems, dynamic_items, static_items
from etproto.schedulers import critical_path, round_robin
from etproto.schedulers.levels import bottom_levels, lower_bound

helpers = runpy.run_path(str(Path(__file__).parents[1] / "schedulers" / "conftest.py"))
task_arrays, from_lists, random_edges = (helpers[name] for name in ("task_arrays", "from_lists", "random_edges"))


def items_of(lists, row_queue):
    """Items from one list a worker."""
    ptr = np.concatenate([[0], np.cumsum([len(x) for x in lists])])
    return WorkerItems(ptr, np.array([x for row in lists for x in row], np.int64), np.array(row_queue, np.int64))


def static(*lists):
    return items_of(lists, [-1] * sum(map(len, lists)))


class TestStatic:
    def test_lists_in_order(self):
        tasks = task_arrays([1, 2, 4], [(0, 2)])
        run = simulate(tasks, static([1, 0], [2]))
        assert run.start.tolist() == [2, 0, 3]
        assert run.end.tolist() == [3, 2, 7]
        assert run.worker.tolist() == [0, 0, 1]
        assert run.wait_start.tolist() == [2, 0, 0]
        assert run.makespan == 7 and run.finished and len(run.blocked) == 0

    def test_event_latency_once_a_hop(self):
        tasks = task_arrays([1, 1, 1, 1], [(0, 1), (1, 2)])
        run = simulate(tasks, static([0, 1], [3, 2]), event_latency=0.5)
        assert run.ready.tolist() == [0, 1.5, 3, 0]
        assert run.start.tolist() == [0, 1.5, 3, 0]

    def test_late_worker_does_not_wait_for_a_seen_event(self):
        tasks = task_arrays([1, 4, 1], [(0, 2)])
        assert simulate(tasks, static([0], [1, 2]), event_latency=0.5).start.tolist() == [0, 0, 4]

    def test_queue_costs_do_not_touch_lists(self):
        tasks = task_arrays([1, 4, 1], [(0, 2)])
        run = simulate(tasks, static([0], [1, 2]), pop_cost=9, push_cost=9)
        assert run.end.tolist() == [1, 4, 5]

    @pytest.mark.parametrize("need, start", [(0, 0), (1, 2), (2, 5), (3, 8)])
    def test_event_that_needs_k(self, need, start):
        tasks = task_arrays([8, 2, 5, 1], [(0, 3), (1, 3), (2, 3)], need={0: need})
        assert simulate(tasks, static([0], [1], [2], [3])).start[3] == start

    def test_task_that_notifies_and_waits_twice(self):
        tasks = from_lists([3, 4, 1], [[], [], [0, 0]], [[0, 0], [0], []], [2])
        assert simulate(tasks, static([0], [1], [2])).start[2] == 3

    @pytest.mark.parametrize("latency", [0.0, 0.25])
    def test_against_relaxation(self, latency):
        """Start times are the least that satisfy every edge and list."""
        rng = np.random.default_rng(2)
        for count in (1, 10, 40):
            edges = random_edges(rng, count)
            cost = rng.integers(0, 5, count).astype(float)
            order = round_robin(task_arrays(cost, edges), 3)
            run = simulate(task_arrays(cost, edges), static_items(order), event_latency=latency)
            start = np.zeros(count)
            for _ in range(count):
                for i, j in edges:
                    start[j] = max(start[j], start[i] + cost[i] + latency)
                for w in range(3):
                    rows = order.rows(w)
                    for i, j in zip(rows[:-1], rows[1:], strict=True):
                        start[j] = max(start[j], start[i] + cost[i])
            np.testing.assert_array_equal(run.start, start)


class TestQueue:
    def test_first_in_first_out(self):
        tasks = task_arrays([3, 1, 1, 1], [(1, 3)])
        run = simulate(tasks, dynamic_items(4, 2))
        assert run.worker.tolist() == [0, 1, 1, 1]
        assert run.start.tolist() == [0, 0, 1, 2]

    def test_priority_then_row(self):
        tasks = task_arrays([1, 1, 1, 1], [])
        run = simulate(tasks, dynamic_items(4, 1), priority=[0, 2, 1, 2])
        assert np.argsort(run.start).tolist() == [1, 3, 2, 0]

    def test_pop_cost(self):
        run = simulate(task_arrays([1, 1], []), dynamic_items(2, 1), pop_cost=0.25)
        assert run.pop_start.tolist() == [0, 1.25]
        assert run.pop_end.tolist() == run.start.tolist() == [0.25, 1.5]
        assert run.makespan == 2.5

    def test_push_cost(self):
        tasks = task_arrays([1, 2, 2], [(0, 1), (0, 2)])
        run = simulate(tasks, dynamic_items(3, 2), push_cost=0.25)
        assert run.free[0] == 1.5  # two pushes, by the worker that ran task 0
        assert run.worker.tolist() == [0, 1, 0]
        assert run.start.tolist() == [0, 1.25, 1.5]

    def test_early_push_hides_the_pop(self):
        tasks = task_arrays([1, 1], [(0, 1)])
        late = simulate(tasks, dynamic_items(2, 2), pop_cost=0.25)
        assert late.start.tolist() == [0.25, 1.5]
        early = simulate(tasks, dynamic_items(2, 2), pop_cost=0.25, early_push=True)
        assert early.pop_end.tolist() == early.wait_start.tolist() == [0.25, 0.5]
        assert early.start.tolist() == [0.25, 1.25]

    def test_early_push_is_paid_before_the_body(self):
        tasks = task_arrays([1, 1], [(0, 1)])
        run = simulate(tasks, dynamic_items(2, 2), push_cost=0.25, early_push=True)
        assert (run.wait_start[0], run.start[0], run.end[0], run.free[0]) == (0.25, 0.25, 1.25, 1.25)
        assert (run.pop_end[1], run.start[1]) == (0.25, 1.25)

    def test_early_push_waits_until_all_are_dispatched(self):
        tasks = task_arrays([1, 5, 1, 1], [(1, 2), (0, 3), (1, 3)])
        run = simulate(tasks, dynamic_items(4, 3), early_push=True)
        assert run.pop_end.tolist() == [0, 0, 0, 1]
        assert run.start.tolist() == [0, 0, 5, 5]

    def test_early_push_for_some_events(self):
        tasks = task_arrays([2, 1, 1], [(0, 1), (1, 2)])
        run = simulate(tasks, dynamic_items(3, 3), early_push=np.array([False, True]))
        assert run.pop_end.tolist() == [0, 2, 2]
        assert run.start.tolist() == [0, 2, 3]

    def test_task_with_several_events_is_pushed_once(self):
        tasks = from_lists([1, 2, 3, 1], [[], [], [], [0, 1, 2]], [[0], [1], [2], []], [1, 1, 1])
        for early in (False, True):
            run = simulate(tasks, dynamic_items(4, 4), early_push=early)
            assert run.start.tolist() == [0, 0, 0, 3]

    def test_more_workers_than_tasks(self):
        run = simulate(task_arrays([1, 1], [(0, 1)]), dynamic_items(2, 50))
        assert run.finished and run.makespan == 2

    def test_no_tasks(self):
        run = simulate(task_arrays([], []), dynamic_items(0, 3))
        assert run.finished and run.makespan == 0 and len(run.blocked) == 0

    @pytest.mark.parametrize("workers", [1, 2, 3, 9])
    def test_by_bottom_level_it_is_the_critical_path_list(self, workers):
        rng = np.random.default_rng(workers)
        for count in (5, 30, 80):
            for least in (0, 1):
                tasks = task_arrays(rng.integers(least, 5, count), random_edges(rng, count, 0.1))
                order = critical_path(tasks, workers)
                run = simulate(tasks, dynamic_items(count, workers), priority=bottom_levels(tasks))
                np.testing.assert_array_equal(run.start, order.start)
                # A worker that comes back at once from a task of cost 0 may find the last ticket claimed.
                if least > 0:
                    np.testing.assert_array_equal(run.worker, order.worker)


class TestMixed:
    def test_drain_between_lists(self):
        """Grid A (0, 1) by list, B (2, 3, 4; 2 after 0) by queue, C (5, 6 after all of B) by list."""
        tasks = task_arrays([2, 1, 1, 1, 1, 1, 1], [(0, 2)] + [(i, j) for i in (2, 3, 4) for j in (5, 6)])
        items = items_of([[0, ~0, 5], [1, ~0, 6]], [-1, -1, 0, 0, 0, -1, -1])
        run = simulate(tasks, items)
        assert run.start.tolist() == [0, 0, 2, 1, 2, 3, 3]
        assert run.worker.tolist() == [0, 1, 1, 1, 0, 0, 1]

    def test_worker_passes_a_queue_whose_tasks_are_all_claimed(self):
        tasks = task_arrays([5, 1], [])
        run = simulate(tasks, items_of([[~0], [~0, 1]], [0, -1]))
        assert run.start.tolist() == [0, 0]

    def test_two_queues_in_order(self):
        tasks = task_arrays([1, 1, 1, 1], [(0, 2), (1, 3)])
        run = simulate(tasks, items_of([[~0, ~1]], [1, 1, 0, 0][::-1]))
        assert run.start.tolist() == [0, 1, 2, 3]

    def test_queue_without_tasks(self):
        run = simulate(task_arrays([1], []), items_of([[~3, 0]], [-1]))
        assert run.start.tolist() == [0]


class TestBlocked:
    def test_two_lists_that_wait_for_each_other(self):
        """a1 -> a2 and b1 -> b2, in the lists [a2, b1] and [b2, a1]."""
        tasks = task_arrays([1, 1, 1, 1, 1], [(0, 1), (2, 3)])
        tasks = dataclasses.replace(tasks, task_name=("a1", "a2", "b1", "b2", "c"))
        run = simulate(tasks, static([1, 2], [3, 0], [4]))
        assert not run.finished
        assert run.blocked.tolist() == [[0, 1, 0], [1, 3, 1]]
        assert run.makespan == 1  # c ran
        assert np.isnan(run.end[:4]).all() and np.isnan(run.ready[[1, 3]]).all()
        assert describe_blocked(run, tasks).splitlines() == [
            "4 of 5 tasks never ran",
            "worker 0: a2 waits for event 0, 0/1 notified",
            "worker 1: b2 waits for event 1, 0/1 notified",
        ]
        assert describe_blocked(run, tasks, limit=1).endswith("and 1 more workers")

    def test_need_that_is_never_met(self):
        tasks = task_arrays([1, 1, 1], [(0, 2), (1, 2)], need={0: 3})
        run = simulate(tasks, dynamic_items(3, 2))
        assert run.blocked.tolist() == [[0, ~0, -1]]
        assert describe_blocked(run, tasks) == "1 of 3 tasks never ran\nworker 0 waits at queue 0"
        run = simulate(tasks, static([0, 1, 2]))
        assert "t[2] waits for event 0, 2/3 notified" in describe_blocked(run, tasks)

    def test_finished_run_has_nothing_to_say(self):
        tasks = task_arrays([1], [])
        assert describe_blocked(simulate(tasks, static([0])), tasks) == ""


class TestTies:
    def test_seed(self):
        tasks = task_arrays(np.ones(30), [(i, i + 10) for i in range(20)])
        runs = [simulate(tasks, dynamic_items(30, 4), seed=seed) for seed in (None, None, 1, 1, 2)]
        plain, again, one, one_again, two = [run.worker.tolist() for run in runs]
        assert plain == again and one == one_again
        assert plain != one != two
        assert {run.makespan for run in runs} == {8}


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_every_span_from_its_definition(seed, shared, early):
    """Random graphs, costs, needs and mixed schedules; nothing here looks at the engine's own state."""
    rng = np.random.default_rng(seed)
    count, workers = 50, int(rng.integers(1, 7))
    edges = random_edges(rng, count, 0.08)
    tasks = task_arrays(rng.integers(0, 4, count) / 2, edges, shared=shared)
    need = tasks.event_need.copy()
    lowered = rng.random(len(need)) < 0.3
    need[lowered] = rng.integers(0, need[lowered] + 1)
    tasks = dataclasses.replace(tasks, event_need=need)
    # Blocks of ten rows in turn, each dealt to the lists or fed through its own queue.
    lists, row_queue = [[] for _ in range(workers)], np.full(count, -1)
    for block in range(5):
        rows = np.arange(10 * block, 10 * block + 10)
        if rng.random() < 0.6:
            row_queue[rows] = block
            for entries in lists:
                entries.append(~block)
        else:
            for row in rows:
                lists[rng.integers(workers)].append(row)
    latency, pop_cost, push_cost = 0.125, 0.25, 0.0625
    run = simulate(
        tasks,
        items_of(lists, row_queue),
        event_latency=latency,
        pop_cost=pop_cost,
        push_cost=push_cost,
        early_push=early,
        seed=seed,
    )
    assert run.finished and len(run.blocked) == 0
    assert run.makespan >= lower_bound(tasks, workers)

    # Readiness, by counting the notifications of each event.
    def kth(times, event):
        notifiers = np.repeat(np.arange(count), np.diff(tasks.notify_ptr))[tasks.notify_event == event]
        return np.sort(times[notifiers])[need[event] - 1]

    queued = row_queue >= 0
    for row in range(count):
        events = [e for e in tasks.wait_event[tasks.wait_ptr[row] : tasks.wait_ptr[row + 1]] if need[e] > 0]
        assert run.ready[row] == max((kth(run.end, e) + latency for e in events), default=0)
        if queued[row] and events:
            pushable = max(kth(run.pop_end if early else run.end, e) for e in events)
            assert run.pop_end[row] >= pushable + push_cost + pop_cost
    np.testing.assert_array_equal(run.start, np.maximum(run.wait_start, run.ready))
    np.testing.assert_array_equal(run.end, run.start + tasks.cost)
    assert (run.pop_end[queued] >= run.pop_start[queued] + pop_cost).all()
    assert (run.pop_end[~queued] == run.pop_start[~queued]).all()

    # Every push is paid for, once, by somebody: early before the body, otherwise after it.
    wait_row = np.repeat(np.arange(count), np.diff(tasks.wait_ptr))
    waits = np.bincount(wait_row[need[tasks.wait_event] > 0], minlength=count)
    paid = (run.wait_start - run.pop_end).sum() if early else (run.free - run.end).sum()
    assert paid == push_cost * np.count_nonzero(queued & (waits > 0))
    assert (run.free == run.end if early else run.wait_start == run.pop_end).all()

    # A worker does one thing after another without a gap, in the order of its items.
    for worker, entries in enumerate(lists):
        mine = np.flatnonzero(run.worker == worker)
        mine = mine[np.lexsort((run.free[mine], run.pop_start[mine]))]
        np.testing.assert_array_equal(run.pop_start[mine], np.append(0, run.free[mine])[:-1])
        place = [entries.index(~row_queue[row] if queued[row] else row) for row in mine]
        assert place == sorted(place)


class TestMisuse:
    tasks = task_arrays([1, 1], [(0, 1)])

    @pytest.mark.parametrize("name", ["event_latency", "pop_cost", "push_cost"])
    @pytest.mark.parametrize("value", [-1, np.nan, np.inf])
    def test_times(self, name, value):
        with pytest.raises(ScheduleError, match=rf"{name}: expected a finite number >= 0, got {value}"):
            simulate(self.tasks, dynamic_items(2, 1), **{name: value})

    def test_cost(self):
        with pytest.raises(ScheduleError, match="cost: expected 1 finite numbers >= 0"):
            simulate(task_arrays([np.nan], []), dynamic_items(1, 1))

    def test_shapes(self):
        with pytest.raises(ScheduleError, match="priority: expected 2 numbers"):
            simulate(self.tasks, dynamic_items(2, 1), priority=[1])
        with pytest.raises(ScheduleError, match=r"early_push: expected a bool or 1 of them, got shape \(2,\)"):
            simulate(self.tasks, dynamic_items(2, 1), early_push=[True, True])
        with pytest.raises(ScheduleError, match="row_queue: expected 2 rows, got 3"):
            simulate(self.tasks, dynamic_items(3, 1))
        with pytest.raises(ScheduleError, match="item_ptr: expected to rise from 0 to 2"):
            simulate(self.tasks, WorkerItems(np.array([0, 1]), np.array([0, 1]), np.full(2, -1)))

    def test_workers(self):
        for build in (lambda: dynamic_items(2, 0), lambda: simulate(self.tasks, items_of([], [-1, -1]))):
            with pytest.raises(ScheduleError, match="workers: expected an integer >= 1, got 0"):
                build()

    @pytest.mark.parametrize(
        "lists, row_queue, text",
        [
            ([[0]], [-1, -1], r"t\[1\] \(row 1, no queue\).* got it 0 times"),
            ([[0, 1], [1]], [-1, -1], r"t\[1\] \(row 1, no queue\).* got it 2 times"),
            ([[0]], [-1, 0], r"t\[1\] \(row 1, queue 0\).* got it 0 times"),
            ([[0, ~0]], [0, 0], r"t\[0\] \(row 0, queue 0\).* got it 2 times"),
            ([[0, 1, 2]], [-1, -1], "expected rows below 2, got 2"),
        ],
    )
    def test_rows_never_or_twice(self, lists, row_queue, text):
        with pytest.raises(ScheduleError, match=text):
            simulate(self.tasks, items_of(lists, row_queue))


def test_a_hundred_thousand_tasks_in_seconds():
    """A hundred layers of a thousand equal tasks, barriers between: eight rounds a layer on 132 workers."""
    layers, width = 100, 1000
    waits = [[layer - 1] if layer else [] for layer in range(layers) for _ in range(width)]
    notifies = [[layer] if layer < layers - 1 else [] for layer in range(layers) for _ in range(width)]
    tasks = from_lists(np.ones(layers * width), waits, notifies, [width] * (layers - 1))
    simulate(task_arrays([1], []), dynamic_items(1, 1))  # compiled before the clock starts
    begin = time.perf_counter()
    assert simulate(tasks, dynamic_items(tasks.count, 132)).makespan == 8 * layers
    assert simulate(tasks, static_items(critical_path(tasks, 132))).makespan == 8 * layers
    assert time.perf_counter() - begin < 5
