"""The protocol's own rules: wrap-around, and what may touch counters, poll or return early in device code."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest

import etproto.kernels
from etproto.kernels import sync
from etproto.kernels.tiles import bucket, cholesky, gemm, row_sum, spin

KERNELS = Path(etproto.kernels.__file__).parent
TILES = (bucket, cholesky, gemm, row_sum, spin)
EDGES = [0, 1, 2, 3, 2**30, 2**31 - 2, 2**31 - 1]


@pytest.mark.parametrize("epoch", [1, 2, 7, 2**31 // 3 + 1, 2**31 - 1, 2**32 // 3, 2**32 - 1, 2**32 + 5])
@pytest.mark.parametrize("need", [0, 1, 3, 100])
def test_satisfied_across_wrap(need, epoch):
    """A counter 1 to 2**31 behind its goal does not satisfy a wait, one 0 to 2**31 - 1 past it does."""
    goal = need * epoch
    for distance in (*EDGES, 5, 1000):
        counter = np.int64(goal + distance).astype(np.int32)  # as the 32-bit counter in memory reads
        assert sync.satisfied(int(counter), goal), (goal, distance)
    for distance in (*EDGES[1:], 2**31):
        counter = np.int64(goal - distance).astype(np.int32)
        assert not sync.satisfied(int(counter), goal), (goal, -distance)


def test_equality_is_not_the_test():
    """C21: a counter past its need satisfies the wait."""
    assert [sync.satisfied(seen, 3) for seen in range(6)] == [False, False, False, True, True, True]


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]


def names_in(node: ast.AST) -> set[str]:
    attributes = {leaf.attr for leaf in ast.walk(node) if isinstance(leaf, ast.Attribute)}
    return attributes | {leaf.id for leaf in ast.walk(node) if isinstance(leaf, ast.Name)}


def test_only_wait_and_notify_touch_counters():
    """C19: everything else that names the counters is the reset kernel, which runs before the launch, and the hopper
    worker's notifier, where the one cell to notify is known ahead.
    """
    touching = {
        (path.name, function.name)
        for path in KERNELS.rglob("*.py")
        for function in functions(path)
        if "LAUNCH_COUNTERS" in names_in(function)
    }
    assert touching == {
        ("reset.py", "reset"),
        ("worker_hopper_notifier.py", "notify_task"),
        ("sync.py", "poll_event"),
        ("sync.py", "notify_edges"),
        ("sync.py", "_push_triggered"),
    }
    launch = (KERNELS.parent / "executors" / "launch.py").read_text()
    assert "COUNTERS" in launch, "the counters' address is handed over there"


def test_no_warp_intrinsics_in_portable_code():
    """C36: lanes that poll beside lanes in a shuffle hang; here one thread polls and a barrier follows."""
    forbidden = {
        "syncwarp",
        "shfl_sync",
        "shfl_up_sync",
        "shfl_down_sync",
        "shfl_xor_sync",
        "vote_sync_intrinsic",
    }
    forbidden |= {
        "all_sync",
        "any_sync",
        "eq_sync",
        "ballot_sync",
        "match_any_sync",
        "match_all_sync",
        "activemask",
    }
    for path in KERNELS.rglob("*.py"):
        assert not names_in(ast.parse(path.read_text())) & forbidden, path.name


def test_nobody_polls_but_the_protocol():
    """C28: a `while` over a load stands in the protocol alone, never in a tile body."""
    loads = {"load_int32", "load_int64", "load_acquire_int32", "load_acquire_int64"}
    polling = {
        (path.name, function.name)
        for path in KERNELS.rglob("*.py")
        for function in functions(path)
        for loop in ast.walk(function)
        if isinstance(loop, ast.While) and names_in(loop) & loads
    }
    assert {name for name, _ in polling} <= {"sync.py", "worker_portable.py", "decode.py"}
    assert {name for file, name in polling if file == "sync.py"} >= {"poll_event", "push", "pop"}


def test_task_order_comes_from_lists_and_tickets():
    """C25: a block's index is its worker number, read in one place of each kernel, and no order among tasks."""
    using = {path.name for path in KERNELS.rglob("*.py") if "blockIdx" in names_in(ast.parse(path.read_text()))}
    assert using <= {"reset.py", "source.py", "kernel_hopper.py"}


def portable_bodies() -> list[tuple[str, ast.FunctionDef]]:
    found = []
    for module in TILES:
        tree = ast.parse(inspect.getsource(module))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and "portable" in node.name:
                found.append((f"{module.__name__}.{node.name}:{node.lineno}", node))
    assert len(found) >= 10
    return found


@pytest.mark.parametrize("name, body", portable_bodies())
def test_no_body_returns_before_a_barrier(name, body):
    """C33: nor leaves a loop around one: a thread that skips a barrier leaves its block hanging."""
    assert not [node for node in ast.walk(body) if isinstance(node, ast.Return)], name
    for loop in ast.walk(body):
        if isinstance(loop, (ast.For, ast.While)) and "syncthreads" in names_in(loop):
            assert not [n for n in ast.walk(loop) if isinstance(n, (ast.Break, ast.Continue))], name
    for branch in ast.walk(body):
        if isinstance(branch, ast.If) and "threadIdx" in names_in(branch.test):
            assert "syncthreads" not in names_in(ast.Module(branch.body, [])), name
