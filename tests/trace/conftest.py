"""Small task sets and traces whose numbers are known by hand."""

from __future__ import annotations

import numpy as np
import pytest

from etproto.tasks import TaskArrays
from etproto.trace import SPAN_TASK, Trace


def make_tasks(waits, notifies, need, cost=None, ids=None, name="gemm") -> TaskArrays:
    """Tasks from a list of wait events and a list of notified events for each."""
    n = len(waits)
    coordinate = np.zeros((n, 4), np.int32)
    coordinate[:, 0] = np.arange(n)

    def csr(lists, dtype=np.int32):
        ptr = np.concatenate([[0], np.cumsum([len(x) for x in lists])]).astype(np.int64)
        return ptr, np.array([e for x in lists for e in x], dtype)

    wait_ptr, wait_event = csr(waits)
    notify_ptr, notify_event = csr(notifies)
    return TaskArrays(
        task=np.arange(n) if ids is None else np.array(ids, np.int64),
        kind=np.zeros(n, np.int32),
        grid=np.zeros(n, np.int32),
        coordinate=coordinate,
        cost=np.ones(n) if cost is None else np.array(cost, float),
        priority=np.zeros(n),
        wait_ptr=wait_ptr,
        wait_event=wait_event,
        notify_ptr=notify_ptr,
        notify_event=notify_event,
        event_need=np.array(need, np.int32),
        grid_name=(name,),
        kind_name=(name,),
        grid_ndim=(1,),
    )


def make_run(tasks, worker, start, end, /, **facts) -> Trace:
    """A trace of TASK spans, row i of `tasks` on ``worker[i]``."""
    n = len(worker)
    columns = {
        "span": np.full(n, SPAN_TASK),
        "task": tasks.task[:n],
        "kind": tasks.kind[:n],
        "grid": tasks.grid[:n],
        "coordinate": tasks.coordinate[:n],
        "workers": int(max(worker)) + 1,
        "makespan_ns": float(max(end)),
    }
    names = {"kind_name": tasks.kind_name, "grid_name": tasks.grid_name, "grid_ndim": tasks.grid_ndim}
    return Trace(**{**columns, **names, "worker": worker, "start": start, "end": end, **facts})


def assert_same(a: Trace, b: Trace) -> None:
    """Every column, counter and fact is equal, dtypes included."""
    from etproto.trace.files import META, tasks_to_json
    from etproto.trace.records import COLUMNS

    for name in COLUMNS:
        left, right = getattr(a, name), getattr(b, name)
        assert left.dtype == right.dtype, name
        np.testing.assert_array_equal(left, right, err_msg=name)
    for name in META:
        assert getattr(a, name) == getattr(b, name), name
    assert list(a.counters) == list(b.counters)
    for name in a.counters:
        np.testing.assert_array_equal(a.counters[name], b.counters[name])
    assert tasks_to_json(a.tasks) == tasks_to_json(b.tasks)


@pytest.fixture(scope="session")
def tasks_of():
    return make_tasks


@pytest.fixture(scope="session")
def run_of():
    return make_run


@pytest.fixture(scope="session")
def same():
    return assert_same


@pytest.fixture(scope="session")
def diamond() -> TaskArrays:
    """gemm[0] -> gemm[1], gemm[2] -> gemm[3]; event 0 after the first, event 1 before the last."""
    return make_tasks([[], [0], [0], [1]], [[0], [1], [1], []], [1, 2])


@pytest.fixture(scope="session")
def diamond_run(diamond) -> Trace:
    """The diamond on two workers: 10, then 30 beside 20, then 10; makespan 50."""
    return make_run(diamond, [0, 0, 1, 0], [0, 10, 10, 40], [10, 40, 30, 50], tasks=diamond)
