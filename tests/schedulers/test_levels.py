"""Levels against longest paths found edge by edge, and bounds that hold behind events of every kind."""

from __future__ import annotations

import time

import numpy as np
import pytest

from etproto.errors import ScheduleError
from etproto.schedulers.levels import bottom_levels, critical_path_length, lower_bound, top_levels


def test_against_plain_recursion(task_arrays, random_edges):
    rng = np.random.default_rng(3)
    for count in (1, 2, 10, 40):
        edges = random_edges(rng, count, 0.2)
        cost = rng.integers(0, 10, count).astype(float)
        tasks = task_arrays(cost, edges)
        top, bottom = np.zeros(count), cost.copy()
        for i, j in sorted(edges, key=lambda edge: edge[1]):
            top[j] = max(top[j], top[i] + cost[i])
        for i, j in sorted(edges, reverse=True):
            bottom[i] = max(bottom[i], cost[i] + bottom[j])
        np.testing.assert_array_equal(top_levels(tasks), top)
        np.testing.assert_array_equal(bottom_levels(tasks), bottom)
        assert critical_path_length(tasks) == bottom.max() == (top + cost).max()
        assert lower_bound(tasks, 3) == max(bottom.max(), cost.sum() / 3)


def test_no_tasks(task_arrays):
    tasks = task_arrays([], [])
    assert len(top_levels(tasks)) == len(bottom_levels(tasks)) == 0
    assert critical_path_length(tasks) == lower_bound(tasks, 4) == 0.0


def test_lower_bound_terms(task_arrays):
    assert lower_bound(task_arrays([9, 1, 1], []), 3) == 9  # the largest task
    assert lower_bound(task_arrays([2, 2, 2, 2], []), 2) == 4  # the work
    assert lower_bound(task_arrays([2, 2, 2], [(0, 1), (1, 2)]), 2) == 6  # the path
    with pytest.raises(ScheduleError, match="workers: expected an integer >= 1, got 0"):
        lower_bound(task_arrays([1], []), 0)


@pytest.mark.parametrize("need, start", [(0, 0), (1, 2), (2, 5), (3, 8)])
def test_event_that_needs_k_of_its_notifications(task_arrays, need, start):
    tasks = task_arrays([8, 2, 5, 1], [(0, 3), (1, 3), (2, 3)], need={0: need})
    assert top_levels(tasks)[3] == start
    assert critical_path_length(tasks) == max(8, start + 1)


def test_task_that_notifies_twice(from_lists):
    tasks = from_lists([3, 4, 1], [[], [], [0]], [[0, 0], [0], []], [2])
    assert top_levels(tasks).tolist() == [0, 0, 3]


def test_event_that_needs_nothing_joins_nothing(task_arrays):
    tasks = task_arrays([5, 1], [(0, 1)], need={0: 0})
    assert top_levels(tasks)[1] == 0
    assert bottom_levels(tasks).tolist() == [5, 1]


def test_bipartite_layer_costs_arcs_not_pairs(from_lists):
    width = 100_000  # 10**10 pairs
    tasks = from_lists(np.ones(2 * width), [[]] * width + [[0]] * width, [[0]] * width + [[]] * width, [width])
    begin = time.perf_counter()
    assert critical_path_length(tasks) == 2
    assert bottom_levels(tasks)[[0, -1]].tolist() == [2, 1]
    assert time.perf_counter() - begin < 5
