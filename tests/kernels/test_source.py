"""The generated kernel source: readable, complete, and the same for the same kinds."""

from __future__ import annotations

import inspect

import pytest

from etproto import layout as L
from etproto.errors import ExecutorUnavailable
from etproto.kernels.source import kernel_function, kernel_source
from etproto.kernels.source_hopper import hopper_source
from etproto.kernels.tiles.cholesky import cholesky_kinds
from etproto.kernels.tiles.matrix_multiply import matrix_multiply
from etproto.kernels.tiles.spin import spin
from etproto.kernels.tiles.vector_multiply import vector_multiply
from etproto.lowering import lower
from etproto.models import MODELS
from etproto.tile_kind import Operand, TileKind


def test_source_of_splitk(golden):
    golden(kernel_source(lower(MODELS["splitk"].build(n=1)).kinds))


def test_hopper_source(golden):
    """Kinds with and without a store role, and one with a portable body alone."""
    golden(hopper_source((matrix_multiply(64), vector_multiply(16, 64), spin)))


def test_turns_are_counted_by_kinds_that_stage_stores():
    """Where no kind has a store role, a kind goes on with its own count, and alone it needs no barrier."""
    one = hopper_source((vector_multiply(16, 64), spin)).split("if kind == 1:")[0]
    assert "stage, phase, turn = compute_0(" in one and "consumer_barrier" not in one and "wait_unstaged" not in one
    two = hopper_source((vector_multiply(16, 64), vector_multiply(16, 96)))
    assert two.count("consumer_barrier()") == 2 and "wait_unstaged" not in two


def test_records_in_global_memory_differ_in_where_they_are_read_alone():
    kinds = lower(MODELS["splitk"].build(n=1)).kinds
    near, far = (kernel_source(kinds, shared_tables=shared).splitlines() for shared in (True, False))
    assert sum("shared.array" in line for line in near) == sum("shared.array" in line for line in far) + 1
    assert (
        near[near.index("    lists = view_int64_1(launch[L.LAUNCH_WORKER_POINTER], workers + 1)") :]
        == (far[far.index("    lists = view_int64_1(launch[L.LAUNCH_WORKER_POINTER], workers + 1)") :])
    )


def test_each_kind_has_one_branch_with_its_own_arguments():
    """C23: bodies are dispatched by a table of kinds, and each branch names its kind."""
    kinds = tuple(cholesky_kinds(4).values())
    source = kernel_source(kinds)
    compile(source, "worker", "exec")
    for number, kind in enumerate(kinds):
        branch = source.split(f"kind == {number}:")[1].split("kind ==")[0]
        assert branch.startswith(f"  # {kind}\n") and f"body_{number}(" in branch
        assert [f"c{c}," in branch for c in range(4)] == [c < kind.coordinates for c in range(4)]
        assert branch.count("view_float32_2(") == len(kind.operands)


def test_integer_operands_and_arguments_are_words():
    kind = TileKind("k", lambda *a: None, 1, (Operand("m", ndim=0), Operand("x")), lambda *a: None, argument=True)
    source = kernel_source((kind,))
    assert "words[operand + 0],  # m" in source and "task_argument" in source
    second = f"operand + {L.OPERAND_WORDS}"
    assert f"view_float32_2(pointers[words[{second}]], words[{second} + 1]" in source
    assert "task_argument" in kernel_source((spin,))


def test_a_kind_without_a_portable_body_is_refused():
    host = TileKind("host_only", lambda i: None, 1)
    with pytest.raises(ExecutorUnavailable, match="tile kind host_only has no portable body.*use the cpu executor"):
        kernel_source((spin, host))


def test_tools_find_the_source():
    function = kernel_function((spin,))
    assert inspect.getsource(function) == kernel_source((spin,))
    assert function.__name__ == "worker"
