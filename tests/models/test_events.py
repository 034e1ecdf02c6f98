"""Event tensors of the symbolic programs: needs match notifications, and all that must be ordered is."""

from __future__ import annotations

import numpy as np
import pytest

from etproto.expand import expand
from etproto.models import MODELS

CASES = [
    ("splitk", {"n": 0}),
    ("splitk", {"n": 3}),
    ("gemm", {"M": 0}),
    ("gemm", {"M": 13, "N": 9, "K": 10, "splits": 3, "tile_m": 4, "tile_n": 4, "tile_k": 2}),
    ("bucket_sum", {"rows": 0, "buckets": 3}),
    ("bucket_sum", {"rows": 50, "buckets": 6, "width": 3, "chunk": 4, "block": 8}),
]


@pytest.mark.parametrize("name, values", CASES)
def test_needs_match_notifications(run_in_order, name, values):
    target, tensors, _ = run_in_order(name, **values)
    tasks = expand(target, tensors)
    np.testing.assert_array_equal(
        np.bincount(tasks.notify_event, minlength=tasks.events), tasks.event_need[: tasks.events]
    )


@pytest.mark.parametrize("name, values", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_any_order_that_events_allow_gives_the_same_bits(run_in_order, name, values, seed):
    """Tasks run at random as soon as their events allow; outputs start poisoned, so a missing wait shows."""
    target, first, _ = run_in_order(name, **values)
    tasks = expand(target, first)
    tensors = MODELS[name].make_tensors(target, np.random.default_rng(0))
    grids = target.program.parsed
    seen, waiting = np.zeros(tasks.events, int), set(range(tasks.count))
    rng = np.random.default_rng(seed)
    while waiting:
        ready = [
            row
            for row in sorted(waiting)
            if all(
                seen[event] >= tasks.event_need[event]
                for event in tasks.wait_event[tasks.wait_ptr[row] : tasks.wait_ptr[row + 1]]
            )
        ]
        assert ready, "the events never let these tasks run"
        for row in rng.permutation(ready)[: rng.integers(1, 6)]:
            grid = grids[tasks.grid[row]]
            coordinate = tasks.coordinate[row, : grid.ndim].tolist()
            grid.kind.reference(*coordinate, *[tensors[value.name] for value in grid.operands.values()])
            np.add.at(seen, tasks.notify_event[tasks.notify_ptr[row] : tasks.notify_ptr[row + 1]], 1)
            waiting.discard(int(row))
    for tensor, array in first.items():
        np.testing.assert_array_equal(tensors[tensor], array, err_msg=tensor)
