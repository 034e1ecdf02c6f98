"""One battery over all policies; a policy entered in `POLICIES` is tested here without another line."""

from __future__ import annotations

import copy

import networkx as nx
import numpy as np
import pytest

from etproto.errors import ScheduleError
from etproto.executors.model_engine import simulate
from etproto.executors.worker_items import static_items
from etproto.schedulers import POLICIES, find_policy
from etproto.schedulers.levels import lower_bound

pytestmark = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())

SHAPES = {
    "none": (0, []),
    "one": (1, []),
    "independent": (9, []),
    "chain": (6, [(i, i + 1) for i in range(5)]),
    "two chains": (8, [(i, i + 2) for i in range(6)]),
    "diamond": (4, [(0, 1), (0, 2), (1, 3), (2, 3)]),
    "bipartite": (10, [(i, j) for i in range(5) for j in range(5, 10)]),
}


@pytest.fixture(name="programs")
def programs_fixture(task_arrays, random_edges):
    """Named (tasks, edges): the shapes above and random graphs, with some tasks of cost 0."""
    rng = np.random.default_rng(7)
    graphs = dict(SHAPES)
    for count in (5, 20, 60):
        graphs[f"random {count}"] = (count, random_edges(rng, count))
    return {name: (task_arrays(rng.integers(0, 9, count), edges), edges) for name, (count, edges) in graphs.items()}


WORKERS = (1, 2, 3, 7, 100)


def test_every_task_once_on_a_known_worker(policy, programs):
    for tasks, _ in programs.values():
        for workers in WORKERS:
            order = policy(tasks, workers)
            assert order.workers == workers
            assert order.worker_ptr[0] == 0 and order.worker_ptr[-1] == tasks.count
            assert (np.diff(order.worker_ptr) >= 0).all()
            assert sorted(order.worker_row.tolist()) == list(range(tasks.count))
            assert order.worker_ptr.dtype == order.worker_row.dtype == np.int64


def test_legal(policy, programs):
    """Dependence edges and successive pairs of every list, expanded one by one, have no cycle."""
    for name, (tasks, edges) in programs.items():
        for workers in WORKERS:
            order = policy(tasks, workers)
            graph = nx.DiGraph(edges)
            for worker in range(workers):
                graph.add_edges_from(nx.utils.pairwise(order.rows(worker).tolist()))
            assert nx.is_directed_acyclic_graph(graph), (name, workers)


def test_plan_is_what_the_model_runs(policy, programs):
    for name, (tasks, _) in programs.items():
        for workers in WORKERS:
            order = policy(tasks, workers)
            run = simulate(tasks, static_items(order))
            assert run.finished and run.makespan >= lower_bound(tasks, workers) - 1e-9, (name, workers)
            np.testing.assert_array_equal(run.worker, order.worker)
            if order.start is None:
                assert order.finish is None and order.makespan is None
            else:
                np.testing.assert_array_equal(run.start, order.start)
                np.testing.assert_array_equal(run.end, order.finish)
                assert run.makespan == order.makespan


def test_deterministic(policy, programs):
    for tasks, _ in programs.values():
        first, second = policy(tasks, 3), policy(tasks, 3)
        np.testing.assert_array_equal(first.worker_ptr, second.worker_ptr)
        np.testing.assert_array_equal(first.worker_row, second.worker_row)


def test_inputs_stay_as_they_are(policy, programs):
    for tasks, _ in programs.values():
        before = copy.deepcopy(tasks)
        policy(tasks, 4)
        for field, value in vars(before).items():
            np.testing.assert_array_equal(getattr(tasks, field), value, err_msg=field)


@pytest.mark.parametrize("workers", [0, -1, 2.5, True, None])
def test_wrong_number_of_workers(policy, task_arrays, workers):
    with pytest.raises(ScheduleError, match=r"workers: expected an integer >= 1, got"):
        policy(task_arrays([1, 2], [(0, 1)]), workers)


@pytest.mark.parametrize("cost", [-1.0, np.nan, np.inf])
def test_wrong_cost(policy, task_arrays, cost):
    with pytest.raises(ScheduleError, match=rf"cost of t\[1\]: expected a finite number >= 0, got {cost}"):
        policy(task_arrays([1, cost], [(0, 1)]), 2)


def test_wrong_priority(policy, task_arrays):
    with pytest.raises(ScheduleError, match=r"priority of t\[0\]: expected a number, got nan"):
        policy(task_arrays([1, 1], [(0, 1)], priority=[np.nan, 0]), 2)
    with pytest.raises(ScheduleError, match=r"priority: expected one value for each of 2 tasks, got 3"):
        policy(task_arrays([1, 1], [(0, 1)], priority=[0, 0, 0]), 2)


def test_need_that_is_never_met(policy, task_arrays):
    tasks = task_arrays([1, 1, 1], [(0, 2), (1, 2)], need={0: 3})
    with pytest.raises(ScheduleError, match=r"t\[2\] waits for event 0, which needs 3 notifications and gets 2"):
        policy(tasks, 2)


@pytest.mark.parametrize("source", [1, 2])
def test_rows_out_of_order(policy, task_arrays, source):
    tasks = task_arrays([1, 1, 1], [(source, 1)])
    with pytest.raises(ScheduleError, match=rf"t\[1\] \(row 1\) waits for event 0, which t\[{source}\]"):
        policy(tasks, 2)


def test_found_by_name(policy):
    name = next(name for name, value in POLICIES.items() if value is policy)
    assert find_policy(name) is policy
    with pytest.raises(ScheduleError, match=f"expected one of .*{name}.*, got '{name}s'"):
        find_policy(name + "s")
