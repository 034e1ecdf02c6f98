"""Task graphs become one table grid: rows, events and triggers mean the graph's edges."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from etproto import layout as L
from etproto.errors import GraphError, ProgramError
from etproto.graph import TaskGraph
from etproto.kernels import decode
from etproto.kernels.tiles.cholesky import cholesky_kinds
from etproto.lowering_graph import lower_graph
from etproto.models import MODELS


def random_graph(seed: int, tasks: int = 40) -> TaskGraph:
    rng = np.random.default_rng(seed)
    edges = {(int(a), int(b)) for a, b in rng.integers(0, tasks, (90, 2)) if a < b}
    order = rng.permutation(tasks)  # edges do not follow the order of the nodes
    source, target = (order[[edge[side] for edge in sorted(edges)]] for side in (0, 1))
    return TaskGraph.from_arrays(source, target, tasks, cost=rng.random(tasks))


@pytest.mark.parametrize("seed", range(5))
def test_records_mean_the_edges(seed):
    """By the device's own readers: a task waits for all its predecessors, and is triggered once."""
    graph = random_graph(seed)
    lowered = lower_graph(graph)
    words = lowered.resolved_words()
    pointers = np.array([buffer.contents.ctypes.data for buffer in lowered.buffers], np.int64)
    grid, event = words[L.HEADER_GRIDS], words[L.HEADER_EVENTS]
    wait, notify = (words[L.HEADER_EDGES] + n * L.EDGE_WORDS for n in (0, 1))

    def cells(edge: int, row: int) -> list[int]:
        count = decode.edge_count(words, pointers, edge, row, 0, 0, 0)
        return [int(decode.edge_cell(words, pointers, edge, n, row, 0, 0, 0)) for n in range(count)]

    names = lowered.task_arrays.task_name
    assert decode.grid_count(words, pointers, grid) == graph.count
    notified: dict[int, set[str]] = {}
    for row in range(graph.count):
        for cell in cells(notify, row):
            notified.setdefault(cell, set()).add(names[row])
    expected = nx.DiGraph((str(int(a)), str(int(b))) for a, b in zip(graph.edge_source, graph.edge_target, strict=True))
    expected.add_nodes_from(names)
    triggered = []
    trigger = words[L.HEADER_TRIGGERS]
    for row in range(graph.count):
        waits = cells(wait, row)
        before = set().union(*(notified[cell] for cell in waits))
        assert before == set(expected.predecessors(names[row])) and len(waits) <= 1
        for cell in waits:
            assert decode.event_need(words, pointers, event, cell) == len(before)
    for cell in range(lowered.cells):
        count = decode.trigger_count(words, pointers, trigger, event, cell)
        tasks = [int(decode.trigger_task(words, pointers, trigger, event, cell, n)) for n in range(count)]
        assert all(cells(wait, task) == [cell] for task in tasks)
        triggered += tasks
    assert sorted(triggered) == [row for row in range(graph.count) if cells(wait, row)]


def test_tasks_with_the_same_predecessors_share_an_event():
    """A full bipartite layer of 3 x 5 edges: 3 notifications and 5 waits."""
    edges = [(a, b) for a in range(3) for b in range(3, 8)]
    lowered = lower_graph(TaskGraph.from_arrays(*zip(*edges, strict=True), 8))
    tables = {buffer.name.removeprefix("graph."): buffer.contents for buffer in lowered.buffers}
    assert lowered.cells == 1 and tables["need"].tolist() == [3]
    assert len(tables["notify_event"]) == 3 and len(tables["wait_event"]) == 5


def test_kinds_coordinates_and_operands():
    graph = MODELS["cholesky"].build(tiles=3, tile=4)
    lowered = lower_graph(graph, MODELS["cholesky"].kinds(graph))
    words, table = (
        lowered.words,
        lowered.buffers[lowered.words[L.HEADER_TASK_TABLE]].contents.reshape(-1, L.TASK_WORDS),
    )
    kinds = [lowered.kinds[k].name for k in table[:, L.TASK_KIND]]
    assert sorted(kinds) == sorted(graph.kind_name[k] for k in graph.kind)
    coordinates = {
        tuple(row[L.TASK_COORDINATE : L.TASK_COORDINATE + 2])
        for row, k in zip(table, kinds, strict=True)
        if k == "trsm"
    }
    assert coordinates == {(1, 0), (2, 0), (2, 1)}
    for number, kind in enumerate(lowered.kinds):
        at = words[words[L.HEADER_TABLE_OPERANDS] + number]
        for position in range(len(kind.operands)):
            record = words[at + position * L.OPERAND_WORDS :][: L.OPERAND_WORDS].tolist()
            assert record == [lowered.buffer_number("A"), 12, 12, 1, 1, 0]


def test_costs_become_nanoseconds():
    graph = TaskGraph.from_arrays([0], [1], 2, cost=[1.5, 2.0], time_unit="us")
    for scale, expected in ((1.0, [1500, 2000]), (0.1, [150, 200])):
        lowered = lower_graph(graph, time_scale=scale)
        table = lowered.buffers[lowered.words[L.HEADER_TASK_TABLE]].contents.reshape(-1, L.TASK_WORDS)
        assert table[:, L.TASK_ARGUMENT].tolist() == expected
        assert [kind.name for kind in lowered.kinds] == ["spin"]


def test_a_task_that_would_take_too_long_is_refused_with_a_scale():
    graph = TaskGraph.from_arrays([0], [1], 2, names=["short", "long"], cost=[1.0, 5.0], time_unit="s")
    with pytest.raises(ProgramError, match=r"task long would spin for 5 s, at most 2.15 s; .*time_scale=0.4"):
        lower_graph(graph)
    lower_graph(graph, time_scale=0.4)
    lower_graph(graph, timed=False)


def test_python_bodies_get_their_coordinate():
    seen = []
    bodies = [lambda i, j: seen.append((i, j)), None, lambda i, j: seen.append((i, j))]
    graph = TaskGraph.from_arrays([0], [2], 3, args=[[1, 2], [3, 4], [5, 6]], bodies=bodies, cost=[0.0, 0.0, 0.0])
    lowered = lower_graph(graph)
    assert [kind.name for kind in lowered.kinds] == ["python_body", "spin"]
    table = lowered.buffers[lowered.words[L.HEADER_TASK_TABLE]].contents.reshape(-1, L.TASK_WORDS)
    for row in table[table[:, L.TASK_KIND] == 0]:
        lowered.kinds[0].reference(*row[L.TASK_COORDINATE : L.TASK_COORDINATE + 4].tolist(), int(row[L.TASK_ARGUMENT]))
    assert sorted(seen) == [(1, 2), (5, 6)]


def test_a_cycle_is_refused():
    with pytest.raises(GraphError, match="cycle of 2 tasks"):
        lower_graph(TaskGraph.from_arrays([0, 1], [1, 0], 2))


def test_an_operand_without_a_tensor_is_refused():
    graph = TaskGraph.from_arrays([], [], 1, kind_name=["potrf"], args=[[0]])
    with pytest.raises(
        ProgramError, match="operand .* of kind potrf needs a tensor with 2 dimensions.*tensors are none"
    ):
        lower_graph(graph, cholesky_kinds(4))


def test_no_tasks():
    lowered = lower_graph(TaskGraph.from_arrays([], [], 0))
    assert (lowered.tasks, lowered.cells) == (0, 0)
