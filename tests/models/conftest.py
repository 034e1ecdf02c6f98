"""Run a program's tasks one by one with their NumPy references: an oracle that no executor has a part in."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from etproto.models import MODELS
from etproto.program import Instance, Tensor


def program_tasks(instance: Instance, tensors: dict) -> Iterator[tuple]:
    """(kind, coordinate, operands) of every task; run-time extents are read when their grid is reached."""
    for grid in instance.program.parsed:
        operands = [
            tensors[value.name] if isinstance(value, Tensor) else int(value.evaluate(instance.values))
            for value in grid.operands.values()
        ]
        extents = [int(extent.evaluate(instance.values)) for extent in grid.extents]
        assert grid.count is None, "no bundled program has one"
        if grid.pointer is None:
            coordinates = list(itertools.product(*map(range, extents)))
        else:
            pointer = tensors[grid.pointer]
            coordinates = [(i, j) for i in range(extents[0]) for j in range(pointer[i], pointer[i + 1])]
        for coordinate in coordinates:
            yield grid.kind, coordinate, operands


def graph_tasks(graph, kinds, tensors: dict) -> Iterator[tuple]:
    """(kind, coordinate, operands) of every task of a graph in topological order."""
    for task in graph.topological_order():
        kind = kinds[graph.kind_name[graph.kind[task]]]
        operands = [tensors[graph.operands[kind.name][operand.name]] for operand in kind.operands]
        yield kind, tuple(graph.args[task, : graph.args_count[task]].tolist()), operands


def _tasks(model, target, tensors):
    if isinstance(target, Instance):
        return program_tasks(target, tensors)
    return graph_tasks(target, model.kinds(target), tensors)


@pytest.fixture(scope="session")
def tasks_in_order():
    """``tasks_in_order(model, target, tensors)``: an iterator over (kind, coordinate, operands)."""
    return _tasks


@pytest.fixture(scope="session")
def run_in_order():
    """``run_in_order(name, seed=0, change=None, **values) -> (target, tensors, error)``, error tolerable."""

    def run(name: str, seed: int = 0, change=None, **values: int):
        model = MODELS[name]
        target = model.build(**values)
        tensors = model.make_tensors(target, np.random.default_rng(seed))
        if change is not None:
            change(tensors)
        expected = model.reference(tensors)
        for kind, coordinate, operands in _tasks(model, target, tensors):
            kind.reference(*coordinate, *operands)
        error = model.compare(tensors, expected)
        assert error <= model.tolerance(tensors), (name, values, error, model.tolerance(tensors))
        return target, tensors, error

    return run
