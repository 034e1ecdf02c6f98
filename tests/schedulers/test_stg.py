"""360 random graphs of the Standard Task Graph Set against the published table of best known makespans."""

from __future__ import annotations

import csv
import tarfile

import numpy as np
import pytest

from etproto.executors.model_engine import simulate
from etproto.executors.worker_items import dynamic_items, static_items
from etproto.schedulers.critical_path import critical_path
from etproto.schedulers.levels import bottom_levels, lower_bound

# Of 180 graphs each: how many lists are as short as the best known schedule, and the mean gap to the table's
# lower bound.
HITS = {
    (50, 2): 108,
    (50, 4): 102,
    (50, 8): 153,
    (50, 16): 180,
    (100, 2): 117,
    (100, 4): 97,
    (100, 8): 143,
    (100, 16): 176,
}
MEAN_GAP_PERCENT = {(50, 4): 1.155, (100, 4): 0.543}


def parse(text):
    """Costs and edges of one graph; a second reading of the format, apart from the package's own."""
    numbers = map(int, text.split("#")[0].split())
    cost, edges = [], []
    for row in range(next(numbers) + 2):  # with the two dummies of cost 0
        assert next(numbers) == row
        cost.append(next(numbers))
        edges += [(next(numbers), row) for _ in range(next(numbers))]
    return cost, edges


@pytest.fixture(scope="module", name="results")
def results_fixture(shared_data):
    """Costs and edges of every graph, and the rows of the table."""
    stg = shared_data / "stg"
    graphs = {}
    for archive in sorted(stg.glob("*.tar.gz")):
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.name.endswith(".stg"):
                    graphs[member.name] = parse(tar.extractfile(member).read().decode())
    with open(stg / "stg_v2_optimal_50_100.csv") as table:
        return graphs, list(csv.DictReader(table))


def test_critical_path_lists(results, task_arrays):
    graphs, table = results
    tasks = {name: task_arrays(*graph) for name, graph in graphs.items()}
    priority = {name: bottom_levels(arrays) for name, arrays in tasks.items()}
    assert len(tasks) == 360 and len(table) == 1440
    gap, gap_to_best, hits = {}, [], dict.fromkeys(HITS, 0)
    for row in table:
        name, workers = row["graph"], int(row["processors"])
        least, best = int(row["lower_bound"]), int(row["best_found"])
        arrays = tasks[name]
        size = arrays.count - 2
        order = critical_path(arrays, workers)
        assert order.makespan >= least >= np.ceil(lower_bound(arrays, workers) - 1e-9)
        listed = simulate(arrays, static_items(order))
        np.testing.assert_array_equal(listed.end, order.finish)
        queued = simulate(arrays, dynamic_items(arrays.count, workers), priority=priority[name])
        np.testing.assert_array_equal(queued.end, order.finish)
        np.testing.assert_array_equal(queued.worker, order.worker)
        if row["proven_optimal"] == "1":
            assert best <= order.makespan <= (2 - 1 / workers) * best
        gap.setdefault((size, workers), []).append(100 * (order.makespan / least - 1))
        gap_to_best.append(100 * (order.makespan / best - 1))
        hits[size, workers] += order.makespan <= best
    assert hits == HITS
    for case, expected in MEAN_GAP_PERCENT.items():
        assert np.mean(gap[case]) == pytest.approx(expected, abs=0.01), case
    assert np.mean(gap_to_best) == pytest.approx(0.33, abs=0.01)
    assert max(max(values) for values in gap.values()) == pytest.approx(22.9, abs=0.1)


def test_first_come_first_served(results, task_arrays):
    """Ready tasks in row order, on four workers: a worse policy, by as much as is known."""
    graphs, table = results
    gap = {50: [], 100: []}
    for row in table:
        if row["processors"] == "4":
            tasks = task_arrays(*graphs[row["graph"]])
            run = simulate(tasks, dynamic_items(tasks.count, 4), priority=-np.arange(tasks.count))
            gap[tasks.count - 2].append(100 * (run.makespan / int(row["lower_bound"]) - 1))
    assert np.mean(gap[50]) == pytest.approx(6.25, abs=0.1)
    assert np.mean(gap[100]) == pytest.approx(3.63, abs=0.1)
