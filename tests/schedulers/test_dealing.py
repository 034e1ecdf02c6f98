"""Round robin and zigzag by their formulas, and the lists they give."""

from __future__ import annotations

import numpy as np

from etproto.schedulers.order import worker_order
from etproto.schedulers.round_robin import round_robin
from etproto.schedulers.zigzag import zigzag


def lists(order):
    return [order.rows(worker).tolist() for worker in range(order.workers)]


def test_round_robin(task_arrays):
    assert lists(round_robin(task_arrays(np.ones(7), []), 3)) == [[0, 3, 6], [1, 4], [2, 5]]


def test_zigzag(task_arrays):
    assert lists(zigzag(task_arrays(np.ones(8), []), 3)) == [[0, 5, 6], [1, 4, 7], [2, 3]]


def test_zigzag_evens_out_falling_costs(task_arrays):
    tasks = task_arrays(np.arange(12, 0, -1), [])

    def heaviest(order):
        return max(tasks.cost[rows].sum() for rows in lists(order))

    assert heaviest(zigzag(tasks, 3)) == 26 < heaviest(round_robin(tasks, 3)) == 30


def test_worker_order_keeps_the_sequence():
    order = worker_order(np.array([1, 0, 1, 1]), 3, sequence=np.array([3, 2, 1, 0]))
    assert lists(order) == [[1], [3, 2, 0], []]
    assert order.worker.tolist() == [1, 0, 1, 1]
    assert str(order) == "4 tasks on 3 workers, 0 to 3 a worker"
