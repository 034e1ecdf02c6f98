"""`TaskArrays` from plain edge lists, for tests that need no front end."""

from __future__ import annotations

import numpy as np
import pytest

from etproto.tasks import TaskArrays


def task_arrays(cost, edges, *, priority=None, need=None, shared=True) -> TaskArrays:
    """Rows 0..n-1 with one event for each distinct predecessor set, or for each edge where not `shared`.

    `need` overrides needs by event.
    """
    count = len(cost)
    predecessors = [[] for _ in range(count)]
    for source, target in edges:
        predecessors[target].append(source)
    event_of = {}  # by predecessors, and by the one task that waits where events are not shared
    waits = [[] for _ in range(count)]
    for row, sources in enumerate(predecessors):
        keys = [(frozenset(sources), None)] if shared else [(frozenset([i]), row) for i in sources]
        waits[row] = [event_of.setdefault(key, len(event_of)) for key in keys if sources]
    notifies = [[] for _ in range(count)]
    for (sources, _), event in event_of.items():
        for source in sorted(sources):
            notifies[source].append(event)
    event_need = np.array([len(sources) for sources, _ in event_of], np.int32)
    for event, value in (need or {}).items():
        event_need[event] = value
    return from_lists(cost, waits, notifies, event_need, priority=priority)


def from_lists(cost, waits, notifies, event_need, *, priority=None) -> TaskArrays:
    """Tasks that wait for and notify the listed events."""
    count = len(cost)

    def csr(lists):
        ptr = np.zeros(count + 1, np.int64)
        np.cumsum([len(x) for x in lists], out=ptr[1:])
        return ptr, np.array([x for row in lists for x in row], np.int32)

    wait_ptr, wait_event = csr(waits)
    notify_ptr, notify_event = csr(notifies)
    coordinate = np.zeros((count, 4), np.int32)
    coordinate[:, 0] = np.arange(count)
    return TaskArrays(
        task=np.arange(count),
        kind=np.zeros(count, np.int32),
        grid=np.zeros(count, np.int32),
        coordinate=coordinate,
        cost=np.asarray(cost, np.float64),
        priority=np.zeros(count) if priority is None else np.asarray(priority, np.float64),
        wait_ptr=wait_ptr,
        wait_event=wait_event,
        notify_ptr=notify_ptr,
        notify_event=notify_event,
        event_need=np.asarray(event_need, np.int32),
        grid_name=("t",),
        kind_name=("task",),
        grid_ndim=(1,),
    )


def random_edges(rng, count, density=0.15):
    """Distinct edges from lower to higher rows."""
    return [(i, j) for j in range(count) for i in range(j) if rng.random() < density]


@pytest.fixture(name="task_arrays")
def task_arrays_fixture():
    return task_arrays


@pytest.fixture(name="from_lists")
def from_lists_fixture():
    return from_lists


@pytest.fixture(name="random_edges")
def random_edges_fixture():
    return random_edges
