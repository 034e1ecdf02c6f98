"""What the tests of the host executors share: small programs, and schedules built by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import networkx as nx
import numpy as np
import pytest

from etproto.graph import TaskGraph
from etproto.lowering import Lowered
from etproto.lowering_graph import lower_graph
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.scheduled import Scheduled
from etproto.tile_kind import Operand, TileKind


def _scheduled(
    lowered: Lowered,
    lists: Sequence[Sequence[int]],
    entries: Sequence[Sequence[int]] = (),
    *,
    grid_queue: Sequence[int] | None = None,
    queue_grid: Sequence[int] = (),
    queue_capacity: Sequence[int] = (),
    initial_queue: Sequence[Sequence[int]] = (),
    early_push: bool = False,
) -> Scheduled:
    return Scheduled(
        lowered=lowered,
        schedule="by hand",
        policy="by hand",
        workers=len(lists),
        worker_ptr=np.cumsum([0, *map(len, lists)]),
        worker_task=np.array([item for items in lists for item in items], np.int32),
        entries=np.array(entries, np.int64).reshape(-1, 4),
        grid_queue=np.full(len(lowered.grid_name), -1) if grid_queue is None else np.array(grid_queue),
        queue_grid=np.array(queue_grid, np.int32),
        queue_capacity=np.array(queue_capacity, np.int64),
        initial_queue=np.array(initial_queue, np.int64).reshape(-1, 3),
        early_push=early_push,
    )


@pytest.fixture(scope="session")
def by_hand() -> Callable[..., Scheduled]:
    """``by_hand(lowered, lists, entries, ...)``: a `Scheduled` from one list of items for each worker."""
    return _scheduled


@pytest.fixture
def body_graph() -> Callable[..., tuple[Lowered, list[str]]]:
    """``body_graph(edges, bodies)``: a lowered graph whose tasks note their names in the list returned."""

    def build(edges: Sequence[tuple[str, str]], bodies: dict[str, Callable[[], None]] | None = None):
        ran: list[str] = []
        G = nx.DiGraph(edges)
        for name in G.nodes:

            def body(name: str = name) -> None:
                (bodies or {}).get(name, lambda: None)()
                ran.append(name)

            G.nodes[name]["body"] = body
        return lower_graph(TaskGraph.from_networkx(G, name="graph")), ran

    return build


def chain_kind() -> TileKind:
    """Task (r, i) counts itself."""

    def reference(r: int, i: int, runs: np.ndarray) -> None:
        runs[r, i] += 1

    return TileKind(
        "count",
        reference,
        operands=(Operand("runs", "int32", mode="inout"),),
        reads=lambda r, i, runs: {"runs": (slice(r, r + 1), slice(i, i + 1))},
        writes=lambda r, i, runs: {"runs": (slice(r, r + 1), slice(i, i + 1))},
    )


@pytest.fixture(scope="session")
def rounds() -> Callable[[int, int], Program]:
    """``rounds(number, width)``: a round's tasks wait for all of the round before; each counts its runs."""

    def build(number: int, width: int) -> Program:
        done = EventTensor("done", (number,))
        operands = {"runs": Tensor("runs", (number, width), "int32")}
        grid = TaskGrid("round", chain_kind(), (number, width), operands, {done: "ri->r-1:r"}, {done: "ri->r"})
        return Program("rounds", (grid,))

    return build


@pytest.fixture(scope="session")
def bursts() -> Callable[[int], Program]:
    """``bursts(width)``: one task makes `width` others ready at once; each counts its runs."""

    def build(width: int) -> Program:
        ready = EventTensor("ready")
        runs, first = Tensor("runs", (1, width), "int32"), Tensor("first", (1, 1), "int32")
        kind = chain_kind()
        return Program(
            "bursts",
            (
                TaskGrid("first", kind, (1, 1), {"runs": first}, notifies={ready: "ri->"}),
                TaskGrid("rest", kind, (1, width), {"runs": runs}, waits={ready: "ri->"}),
            ),
        )

    return build
