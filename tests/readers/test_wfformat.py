"""WfFormat 1.5: structure, run times, the agreement of children and parents, and five recorded workflows."""

from __future__ import annotations

import copy
import json

import pytest

from etproto.errors import FileFormatError
from etproto.readers import read_graph, wfformat

TWO = {
    "name": "two",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {"id": "t1", "name": "split", "parents": [], "children": ["t2"]},
                {"id": "t2", "name": "t2", "parents": ["t1"], "children": []},
            ]
        },
        "execution": {"tasks": [{"id": "t2", "runtimeInSeconds": 2.5}, {"id": "t1", "runtimeInSeconds": 4}]},
    },
}


def test_structure_comes_from_the_specification_and_costs_from_the_execution():
    graph = wfformat.parse(json.dumps(TWO), "x.json")
    assert graph.names == ("t1", "t2")
    assert graph.labels == ("split", "t2")
    assert graph.cost.tolist() == [4, 2.5]
    assert list(graph.to_networkx().edges) == [("t1", "t2")]
    assert (graph.name, graph.time_unit) == ("two", "s")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schemaVersion="1.4"), r'\$\.schemaVersion: expected "1\.5", got "1\.4"'),
        (lambda d: d["workflow"].pop("execution"), r"\$\.workflow: expected the key 'execution'"),
        (
            lambda d: d["workflow"]["execution"]["tasks"].pop(),
            r"\$\.workflow\.execution\.tasks: expected a run time for task 't1', got none",
        ),
        (
            lambda d: d["workflow"]["execution"]["tasks"][0].update(runtimeInSeconds="1"),
            r"\$\.workflow\.execution\.tasks\[0\]\.runtimeInSeconds: expected a number, got \"1\"",
        ),
        (
            lambda d: d["workflow"]["execution"]["tasks"][0].update(runtimeInSeconds=True),
            r"\$\.workflow\.execution\.tasks\[0\]\.runtimeInSeconds: expected a number, got true",
        ),
        (
            lambda d: d["workflow"]["specification"]["tasks"][1].update(parents=[]),
            r"\$\.workflow\.specification\.tasks\[1\]\.parents: expected t1 -> t2 as in children of",
        ),
        (
            lambda d: d["workflow"]["specification"]["tasks"][0].update(children=[]),
            r"\$\.workflow\.specification\.tasks\[0\]\.children: expected t1 -> t2 as in parents of",
        ),
        (
            lambda d: d["workflow"]["specification"]["tasks"][0].update(children=["t2", "t3"]),
            r"\$\..*\.tasks\[0\]\.children\[1\]: expected the id of a task, got missing node 't3'",
        ),
        (
            lambda d: d["workflow"]["specification"]["tasks"][1].update(id="t1"),
            r"\$\.workflow\.specification\.tasks\[1\]\.id: expected an id not used before, got 't1'",
        ),
    ],
)
def test_faults_name_the_json_path(change, message):
    data = copy.deepcopy(TWO)
    change(data)
    with pytest.raises(FileFormatError, match=f"^x: at {message}"):
        wfformat.parse(json.dumps(data), "x")


def test_recorded_workflows(shared_data):
    """The measured makespan includes waiting, so it is never below the critical path."""
    files = sorted((shared_data / "wfinstances").glob("*.json"))
    assert len(files) == 5
    for path in files:
        workflow = json.loads(path.read_text())["workflow"]
        graph = read_graph(path)
        tasks = workflow["specification"]["tasks"]
        assert graph.validate() == []
        assert (graph.count, graph.edges) == (len(tasks), sum(len(task["parents"]) for task in tasks))
        assert graph.critical_path() <= workflow["execution"]["makespanInSeconds"]


def test_critical_path_of_a_recorded_workflow(shared_data):
    graph = read_graph(shared_data / "wfinstances" / "seismology-chameleon-100p-001.json")
    assert graph.critical_path() == pytest.approx(2.84)
