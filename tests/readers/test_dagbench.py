"""DAGBench JSON: costs and dependencies, faults by JSON path, and seven workflows with their stated sizes."""

from __future__ import annotations

import copy
import json

import pytest
import yaml

from etproto.errors import FileFormatError
from etproto.readers import dagbench, read_graph

TWO = {
    "name": "two",
    "task_graph": {
        "tasks": [{"name": "b", "cost": 2.5}, {"name": "a", "cost": 4}],
        "dependencies": [{"source": "b", "target": "a", "size": 8.0}],
    },
}


def test_tasks_and_dependencies():
    graph = dagbench.parse(json.dumps(TWO), "x.json")
    assert graph.names == ("b", "a")
    assert graph.cost.tolist() == [2.5, 4]
    assert list(graph.to_networkx().edges) == [("b", "a")]
    assert (graph.name, graph.time_unit) == ("two", "unit")


def test_duplicate_dependencies_are_merged_with_a_warning():
    data = copy.deepcopy(TWO)
    data["task_graph"]["dependencies"] *= 2
    with pytest.warns(UserWarning, match="x: merged 1 duplicate edge, first b -> a"):
        assert dagbench.parse(json.dumps(data), "x").edges == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g.pop("tasks"), r"\$\.task_graph: expected the key 'tasks', got only 'dependencies'"),
        (
            lambda g: g["tasks"][1].update(name="b"),
            r"\$\.task_graph\.tasks\[1\]\.name: expected a name not used before",
        ),
        (
            lambda g: g["tasks"][0].update(cost=None),
            r"\$\.task_graph\.tasks\[0\]\.cost: expected a number, got null",
        ),
        (
            lambda g: g["dependencies"][0].update(target="c"),
            r"\$\.task_graph\.dependencies\[0\]\.target: expected the name of a task, got missing node 'c'",
        ),
    ],
)
def test_faults_name_the_json_path(change, message):
    data = copy.deepcopy(TWO)
    change(data["task_graph"])
    with pytest.raises(FileFormatError, match=f"^x: at {message}"):
        dagbench.parse(json.dumps(data), "x")


def test_workflows_have_the_sizes_that_their_metadata_states(shared_data):
    files = sorted((shared_data / "dagbench").glob("*.json"))
    assert len(files) == 7
    for path in files:
        graph = read_graph(path).require_valid()
        stated = yaml.safe_load(path.with_suffix(".metadata.yaml").read_text())["graph_stats"]
        assert (graph.count, graph.edges) == (stated["num_tasks"], stated["num_edges"])
