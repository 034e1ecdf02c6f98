"""Programs: what they collect and print, and what is refused when they are made or bound."""

from __future__ import annotations

import networkx as nx
import pytest

from etproto.errors import ProgramError
from etproto.expressions import Symbol
from etproto.models import MODELS
from etproto.program import EventTensor, Program, TaskGrid, Tensor
from etproto.tile_kind import Operand, TileKind


def nothing(*arguments):
    """Body of kinds whose tasks are never run here."""


ONE = TileKind("one", nothing, 1)
READER = TileKind("reader", nothing, 1, (Operand("x"), Operand("size", ndim=0)))
WRITER = TileKind("writer", nothing, 1, (Operand("count", "int32", 1, "out"),))
N = Symbol("n", bound=8, minimum=2)
X = Tensor("X", (N, 4))
E, F = EventTensor("E", (N,)), EventTensor("F")
COUNT, POINTER = Tensor("count", (4,), "int32"), Tensor("pointer", (5,), "int32")
WRITES = TaskGrid("w", WRITER, (1,), {"count": COUNT}, notifies={F: "i->"})


@pytest.mark.parametrize("name", ["splitk", "gemm", "bucket_sum"])
def test_printed(golden, name):
    golden(str(MODELS[name].build().program) + "\n")


def test_collected():
    grids = (
        TaskGrid("b", READER, (N,), {"x": X, "size": 3}, waits={E: "i->i"}),
        TaskGrid("a", ONE, (N,), notifies={E: "i->i"}),
    )
    program = Program("p", grids)
    assert [grid.name for grid in program.parsed] == ["a", "b"], "producers come first, whatever the order given"
    assert (program.symbols, program.tensors, program.events) == ((N,), (X,), (E,))
    assert list(program.grid_graph().edges(keys=True)) == [("a", "b", "E")]
    instance = program.bind(n=5)
    assert (instance.shape(X), instance.bounds, str(instance)) == ((5, 4), {"n": 8}, "p(n=5)")


def test_the_task_graph_of_a_binding():
    graph = MODELS["splitk"].build(n=1).program.to_networkx(n=2)
    assert nx.is_directed_acyclic_graph(graph) and len(graph) == 10
    assert sorted(graph.predecessors("final[1]")) == [f"partial[1, {j}]" for j in range(4)]


def test_waits_that_need_no_run_time_value_come_first():
    """A fixed event, then one that the task decides, then one whose need is computed in the launch."""
    counted = EventTensor("C", (4,), count=COUNT)
    waits = {counted: "i->i", E: "i->i", F: "i->"}
    grids = (
        WRITES,
        TaskGrid("a", ONE, (4,), notifies={counted: "i->i", E: "i->i"}),
        TaskGrid("g", ONE, (4,), waits=waits),
    )
    grid = next(grid for grid in Program("p", grids).parsed if grid.name == "g")
    assert [edge.event.name for edge in grid.waits] == ["F", "E", "C"]
    assert [edge.is_gate for edge in grid.waits] == [True, True, False]
    assert [edge.is_constant for edge in grid.waits] == [True, False, False]


def test_run_time_extents():
    grids = (WRITES, TaskGrid("g", ONE, ("count[2]",), waits={F: "i->"}, bound=9))
    grid = next(grid for grid in Program("p", grids).parsed if grid.name == "g")
    assert str(grid.count) == "count[2]" and grid.extent_text(0) == "count[2]"
    assert grid.run_time_reads() == {"count": "extent count[2]"}
    two = TileKind("two", nothing, 2, (Operand("pointer", "int32", 1),))
    ragged = TaskGrid("r", two, (4, "pointer[e]:pointer[e+1]"), {"pointer": POINTER}, bound=20)
    (grid,) = Program("p", (ragged,)).parsed
    assert grid.pointer == "pointer" and grid.extent_text(1) == "pointer[i]:pointer[i+1]"


def program(*grids):
    return lambda: Program("p", grids)


def one(**changes):
    return program(TaskGrid(**{"name": "g", "kind": ONE, "extents": (N,), **changes}))


REFUSED = {
    "no grid": (program(), "program p: expected at least one task grid"),
    "name twice": (
        program(TaskGrid("g", ONE, (1,)), TaskGrid("g", ONE, (2,))),
        "two task grids are called 'g'",
    ),
    "two things": (
        program(
            TaskGrid("g", ONE, (2,), notifies={EventTensor("E", (2,)): "i->i"}),
            TaskGrid("h", ONE, (3,), notifies={EventTensor("E", (3,)): "i->i"}),
        ),
        "two different things are called 'E'",
    ),
    "circle": (
        program(
            TaskGrid("g", ONE, (N,), waits={E: "i->i"}, notifies={F: "i->"}),
            TaskGrid("h", ONE, (N,), waits={F: "i->"}, notifies={E: "i->i"}),
        ),
        "task grids wait for each other in a circle: g -> h -> g|h -> g -> h",
    ),
    "dimensions": (one(extents=(2, 2)), "tile kind one has 1 coordinates, got extents"),
    "extent text": (one(extents=("n +",)), r"extent 0: cannot read 'n \+'"),
    "unknown name": (one(extents=("q",)), "cannot read 'q'"),
    "no bound": (
        program(WRITES, TaskGrid("g", ONE, ("count[0]",), waits={F: "i->"})),
        "task grid g: a run-time extent needs bound=",
    ),
    "computed run-time extent": (
        program(WRITES, TaskGrid("g", ONE, ("count[0] + 1",), bound=3)),
        "must be one element of an int32 tensor, got 'count\\[0\\] \\+ 1'",
    ),
    "ragged dimension 0": (
        program(WRITES, TaskGrid("g", ONE, ("count[i]:count[i+1]",), bound=3)),
        "ragged extent is dimension 1",
    ),
    "operands missing": (one(kind=READER), "tile kind reader has operands x, size, got none"),
    "operand rank": (
        one(kind=READER, operands={"x": Tensor("V", (N,)), "size": 1}),
        "operand x must be a tensor with 2 dimensions",
    ),
    "operand type": (
        one(kind=READER, operands={"x": Tensor("V", (N, 2), "float64"), "size": 1}),
        "of float32, got V: float64",
    ),
    "operand no tensor": (
        one(kind=READER, operands={"x": 3, "size": 1}),
        "operand x must be a tensor .* got 3",
    ),
    "trigger event": (one(triggers={F: "->0:n"}), "triggers name F, which the grid does not wait for"),
    "trigger form": (
        one(waits={E: "i->i"}, triggers={E: "i->i"}),
        "expected a range of task numbers, low:high",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    make, message = REFUSED[case]
    with pytest.raises(ProgramError, match=message):
        make()


@pytest.mark.parametrize(
    "values, message",
    [
        ({}, "program p: bind n=..."),
        ({"n": 9}, "n must be at most its bound 8, got 9"),
        ({"n": 1}, "n must be at least 2, got 1"),
        ({"n": 2.0}, "n must be an integer, got 2.0"),
        ({"n": True}, "n must be an integer, got True"),
        ({"n": 2, "m": 1}, "no symbol 'm'; its symbols are n"),
    ],
)
def test_bindings_refused(values, message):
    with pytest.raises(ProgramError, match=message):
        one()().bind(**values)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: EventTensor("E", (3,), scope="cluster"), "scope must be 'gpu' or 'sys', got 'cluster'"),
        (
            lambda: EventTensor("E", (3,), need=2, count=Tensor("c", (3,), "int32")),
            "need=2 or count=c, not both",
        ),
        (
            lambda: EventTensor("E", (3,), count=Tensor("c", (4,), "int32")),
            r"an int32 tensor of shape \(3,\), got c",
        ),
        (lambda: EventTensor("E", (3,), count=Tensor("c", (3,))), "must be an int32 tensor"),
        (lambda: EventTensor("E", 3), "must be a tuple of at most 4"),
        (lambda: Tensor("T", (1, 2, 3, 4, 5)), "must be a tuple of at most 4"),
        (lambda: Tensor("T", (2,), "float8"), "dtype must be one of float32.*got 'float8'"),
        (lambda: TileKind("2k", nothing), "must be a Python identifier, got '2k'"),
        (lambda: TileKind("k", nothing, 5), "coordinates must be 0 to 4, got 5"),
        (lambda: TileKind("k", nothing, 1, (Operand("a"), Operand("a"))), "operand 'a' is declared 2 times"),
        (lambda: Operand("a", ndim=5), "ndim must be 0 .* to 4, got 5"),
        (lambda: Operand("a", mode="update"), "mode must be one of in, out, inout, accumulate, got 'update'"),
    ],
)
def test_parts_refused(make, message):
    with pytest.raises(ProgramError, match=message):
        make()
