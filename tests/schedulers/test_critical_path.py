"""The critical-path list against a slow scheduler written from the definition, and Graham's inequality."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from etproto.errors import ScheduleError
from etproto.schedulers.critical_path import critical_path, critical_path_ranking
from etproto.schedulers.levels import bottom_levels, critical_path_length
from etproto.schedulers.list_schedule import list_schedule


def slow_list_schedule(cost, edges, workers, ranking):
    """Try every task and worker at every time at which something ends."""
    rank = {row: place for place, row in enumerate(ranking)}
    start, finish, worker = {}, {}, {}
    free = [0.0] * workers
    now = 0.0
    while len(start) < len(cost):
        ready = [
            row
            for row in range(len(cost))
            if row not in start and all(i in finish and finish[i] <= now for i, j in edges if j == row)
        ]
        idle = [w for w in range(workers) if free[w] <= now]
        if ready and idle:
            row = min(ready, key=rank.get)
            w = min(idle, key=lambda w: (free[w], w))
            start[row], finish[row], worker[row] = now, now + cost[row], w
            free[w] = finish[row]
        else:
            now = min(t for t in finish.values() if t > now)
    rows = range(len(cost))
    return [start[row] for row in rows], [worker[row] for row in rows]


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_against_the_definition(task_arrays, random_edges, workers):
    rng = np.random.default_rng(workers)
    for count in (1, 12, 35):
        edges = random_edges(rng, count)
        cost = rng.integers(0, 6, count).astype(float)
        tasks = task_arrays(cost, edges, shared=count != 12)
        order = critical_path(tasks, workers)
        start, worker = slow_list_schedule(cost, edges, workers, critical_path_ranking(tasks).tolist())
        assert order.start.tolist() == start
        assert order.worker.tolist() == worker
        np.testing.assert_array_equal(order.finish, order.start + cost)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_any_list_is_within_grahams_inequality(task_arrays, random_edges, workers):
    rng = np.random.default_rng(11)
    for _ in range(20):
        edges = random_edges(rng, 40, 0.05)
        tasks = task_arrays(rng.random(40), edges)
        order = list_schedule(tasks, workers, rng.permutation(40))
        bound = tasks.cost.sum() / workers + (1 - 1 / workers) * critical_path_length(tasks)
        assert order.makespan <= bound + 1e-9


def test_ranking_level_then_priority_then_row(task_arrays):
    tasks = task_arrays([1, 2, 2, 2, 5], [(0, 4)], priority=[0, 0, 1, 0, 9])
    assert bottom_levels(tasks).tolist() == [6, 2, 2, 2, 5]
    assert critical_path_ranking(tasks).tolist() == [0, 4, 2, 1, 3]


def test_long_way_first(task_arrays):
    """Two tasks before a chain in row order: in that order the chain would start late and end at 7."""
    tasks = task_arrays([3, 3, 1, 1, 1, 1], [(2, 3), (3, 4), (4, 5)])
    assert critical_path(tasks, 2).makespan == 6
    assert list_schedule(tasks, 2, np.arange(6)).makespan == 7


def test_tasks_without_cost_take_no_worker(task_arrays):
    """A zero-cost entry, exit and chain in the middle leave the schedule of the others as it was."""
    plain = task_arrays([4, 3, 2, 2], [(0, 3), (1, 3)])
    padded = task_arrays(
        [0, 4, 3, 2, 0, 0, 2, 0],
        [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (4, 5), (5, 6), (6, 7), (3, 7)],
    )
    for workers in (1, 2, 3, 4):
        np.testing.assert_array_equal(
            critical_path(padded, workers).start[[1, 2, 3, 6]], critical_path(plain, workers).start
        )


def test_event_that_needs_one_of_three(task_arrays):
    tasks = task_arrays([8, 2, 5, 1], [(0, 3), (1, 3), (2, 3)], need={0: 1})
    assert critical_path(tasks, 3).start.tolist() == [0, 0, 0, 2]
    assert critical_path(tasks, 4).worker[3] == 3


def test_event_that_needs_nothing(task_arrays, from_lists):
    tasks = task_arrays([5, 1], [(0, 1)], need={0: 0})
    assert critical_path(tasks, 2).start.tolist() == [0, 0]
    backwards = from_lists([5, 1], [[0], []], [[], [0]], [0])
    assert critical_path(backwards, 2).start.tolist() == [0, 0]


def test_wrong_ranking(task_arrays):
    tasks = task_arrays([1, 1], [])
    for ranking in ([0], [0, 0], [0, 2], [-1, 0]):
        with pytest.raises(ScheduleError, match="ranking: expected each of 2 rows once, got"):
            list_schedule(tasks, 1, np.array(ranking))


def test_a_hundred_thousand_tasks_in_a_second(task_arrays):
    layers, width = 100, 1000
    tasks = layered(task_arrays([1.0], []), layers, width)
    critical_path(layered(task_arrays([1.0], []), 2, 2), 2)  # compiled before the clock starts
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        order = critical_path(tasks, 132)
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 1.0
    assert order.makespan < 1.01 * tasks.cost.sum() / 132


def layered(template, layers, width):
    """Layers of equal width, each task after two random ones of the layer before."""
    rng = np.random.default_rng(5)
    count = layers * width
    source = rng.integers(0, width, (layers - 1, width, 2)) + width * np.arange(layers - 1)[:, None, None]
    event = np.repeat(np.arange(count - width, dtype=np.int32), 2)
    by_source = np.argsort(source, axis=None, kind="stable")
    return dataclasses.replace(
        template,
        task=np.arange(count),
        kind=np.zeros(count, np.int32),
        grid=np.zeros(count, np.int32),
        coordinate=np.zeros((count, 4), np.int32),
        cost=rng.random(count),
        priority=np.zeros(count),
        wait_ptr=np.maximum(np.arange(-width, count - width + 1), 0),
        wait_event=np.arange(count - width, dtype=np.int32),
        notify_ptr=np.concatenate([[0], np.cumsum(np.bincount(source.ravel(), minlength=count))]),
        notify_event=event[by_source],
        event_need=np.full(count - width, 2, np.int32),
    )
