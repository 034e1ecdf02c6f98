"""Every graph file of the shared data loads, checks and runs on the timing model, or is refused with its
cycle named.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from etproto.check import check
from etproto.executors import model
from etproto.graph import TaskGraph
from etproto.lowering_graph import lower_graph
from etproto.readers import read_graph, read_stg_archive
from etproto.schedule import schedule
from etproto.schedulers.levels import lower_bound
from etproto.trace import verify

CYCLIC = {
    "conditional-tasking-1",
    "conditional-tasking-2",
    "conditional-tasking-do-while",
    "conditional-tasking-while",
    "conditional-tasking-while-wrong",
    "conditional-tasking-pitfalls",
    "dreamplace_3",
    "starpu_cholesky_codelets",
}


def run_on_model(graph: TaskGraph, kind: str, policy: str, workers: int) -> float:
    """Check a graph and run it on the model; the makespan, which is verified and not below the lower bound."""
    lowered = lower_graph(graph, timed=False)
    scheduled = schedule(lowered, kind, workers=workers, policy=policy)
    result = check(scheduled)
    assert result.ok, result.errors
    trace = model.run(scheduled)
    assert verify(trace, lowered.task_arrays) == []
    assert trace.makespan_ns >= lower_bound(lowered.task_arrays, workers) * (1 - 1e-12)
    return trace.makespan_ns


@pytest.mark.parametrize("archive", ["stg_rand_50.tar.gz", "stg_rand_100.tar.gz"])
def test_stg_archives(shared_data: Path, archive: str):
    graphs = list(read_stg_archive(shared_data / "stg" / archive))
    assert len(graphs) == 180
    for number, graph in enumerate(graphs):
        kind, policy = ("static", "critical_path") if number % 2 else ("dynamic", "round_robin")
        run_on_model(graph, kind, policy, 4)


@pytest.mark.filterwarnings("ignore:.*merged .* duplicate edge:UserWarning")  # opentimer_4.dot repeats edges
def test_files(shared_data: Path):
    paths = [
        *sorted((shared_data / "wfinstances").glob("*.json")),
        *sorted((shared_data / "dagbench").glob("*.json")),
        *sorted((shared_data / "dot").rglob("*.dot")),
    ]
    acyclic = [path for path in paths if path.stem not in CYCLIC]
    assert len(acyclic) >= 20
    for path in acyclic:
        run_on_model(read_graph(path), "dynamic", "round_robin", 4)


def test_cyclic_files_are_refused_with_the_cycle_named(shared_data: Path):
    found = {path.stem: path for path in (shared_data / "dot").rglob("*.dot") if path.stem in CYCLIC}
    assert set(found) == CYCLIC
    for path in found.values():
        graph = read_graph(path)
        cycle = graph.shortest_cycle()
        assert cycle is not None
        result = check(graph)
        assert not result.ok
        assert str(graph.names[cycle[0]]) in " ".join(result.errors)
        with pytest.raises(ValueError, match="cycle"):
            lower_graph(graph)
