"""WfFormat 1.5 JSON, the workflow instances of WfCommons: a specification, and run times of one execution."""

from __future__ import annotations

from pathlib import Path

from etproto.graph import TaskGraph
from etproto.readers.common import bad, field, load_json, read_text, task_graph

__all__ = ["parse", "read"]


def read(path: str | Path) -> TaskGraph:
    """Read a WfFormat file; see `parse`."""
    return parse(read_text(path), str(path))


def parse(text: str, source: str) -> TaskGraph:
    """Parse a WfFormat 1.5 instance.

    Tasks are named by their ids and labelled by their names; costs are the measured run times in seconds.
    Files, machines and the measured makespan are not used.

    Parameters
    ----------
    text : str
        The whole file.
    source : str
        Where it came from, for messages.

    Raises
    ------
    FileFormatError
        If it is not JSON of that structure, a task has no run time, an id is unknown or used twice, or the
        children of one task and the parents of another disagree.
    """
    data = load_json(text, source)
    version = field(data, "schemaVersion", str, "$", source)
    if version != "1.5":
        raise bad(f"{source}: at $.schemaVersion", '"1.5"', f'"{version}"')
    workflow = field(data, "workflow", dict, "$", source)
    specification = field(workflow, "specification", dict, "$.workflow", source)
    execution = field(workflow, "execution", dict, "$.workflow", source)
    tasks = field(specification, "tasks", list, "$.workflow.specification", source)
    index = _by_id(tasks, "$.workflow.specification.tasks", source)
    runs = field(execution, "tasks", list, "$.workflow.execution", source)
    run_index = _by_id(runs, "$.workflow.execution.tasks", source)

    nodes: dict[str, dict] = {}
    edges: list[tuple[str, str]] = []
    by_parents: set[tuple[str, str]] = set()
    for i, (name, task) in enumerate(zip(index, tasks, strict=True)):
        path = f"$.workflow.specification.tasks[{i}]"
        if name not in run_index:
            raise bad(f"{source}: at $.workflow.execution.tasks", f"a run time for task {name!r}", "none")
        run_path = f"$.workflow.execution.tasks[{run_index[name]}]"
        cost = field(runs[run_index[name]], "runtimeInSeconds", (int, float), run_path, source)
        nodes[name] = {"cost": cost, "label": field(task, "name", str, path, source)}
        edges += [(name, child) for child in _ids(task, "children", index, path, source)]
        by_parents.update((parent, name) for parent in _ids(task, "parents", index, path, source))
    for parent, child in sorted(by_parents.symmetric_difference(edges)):
        says, lacks = ("parents", "children") if (parent, child) in by_parents else ("children", "parents")
        path = f"$.workflow.specification.tasks[{index[child if lacks == 'parents' else parent]}].{lacks}"
        raise bad(f"{source}: at {path}", f"{parent} -> {child} as in {says} of the other task", "no such entry")
    return task_graph(nodes, edges, source, name=data.get("name"), time_unit="s")


def _by_id(tasks: list, path: str, source: str) -> dict[str, int]:
    index: dict[str, int] = {}
    for i, task in enumerate(tasks):
        name = field(task, "id", str, f"{path}[{i}]", source)
        if name in index:
            raise bad(f"{source}: at {path}[{i}].id", "an id not used before", repr(name))
        index[name] = i
    return index


def _ids(task: dict, key: str, index: dict[str, int], path: str, source: str) -> list[str]:
    names = field(task, key, list, path, source)
    for i, name in enumerate(names):
        if not isinstance(name, str) or name not in index:
            raise bad(f"{source}: at {path}.{key}[{i}]", "the id of a task", f"missing node {name!r}")
    return names
