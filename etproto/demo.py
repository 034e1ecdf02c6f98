"""The demonstration of ``make demo``: every bundled program on every schedule, each result checked."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np

from etproto.check import check
from etproto.cli.measure import Measured, default_workers, make_schedule, measure
from etproto.cli.progress import progress
from etproto.cli.target import Target, load_target
from etproto.executors import find_executor
from etproto.executors.driver import why_no_gpu
from etproto.generators import cholesky
from etproto.graph import TaskGraph
from etproto.lowering_graph import lower_graph
from etproto.scheduled import Scheduled
from etproto.trace import Trace, summarize

__all__ = ["deadlock", "demo"]

SIZES = {"splitk": {"n": 48}, "cholesky": {"tiles": 6}, "gemm": {"M": 200}, "bucket_sum": {"rows": 500}}
TRACED = ("cholesky", "dynamic")  # the run whose trace is saved

MODEL_WORKERS = 8
MODEL_COSTS = {"event_latency": 0.5, "pop_cost": 0.5, "push_cost": 0.1}  # in the graph's units


def demo(trace_file: str | None = None) -> int:
    """Print the demonstration, save one trace, and return 0 if every result was right."""
    reason = why_no_gpu()
    executors = ["cpu"] if reason else ["cpu", "cuda"]
    print(f"Running {len(SIZES)} programs on {' and '.join(executors)}.")
    if reason:
        print(f"No GPU is used: {reason}")
    print("Each output is poisoned, computed, and compared with an independent NumPy reference.\n")
    rows = [
        (
            "program",
            "executor",
            "schedule",
            "workers",
            "tasks",
            "events",
            "error",
            "allowed",
            "time",
            "busy",
            "wait",
        )
    ]
    wrong, kept = [], None
    for target, executor, schedule in _runs(executors):
        with progress(f"{target.name} on {executor}, {schedule}"):
            scheduled = make_schedule(target.lower(), schedule, workers=default_workers(executor))
            measured = measure(target, scheduled, executor, repeat=2)  # the first warms the caches
        rows.append(_row(measured))
        wrong += measured.faults
        if (target.name, schedule) == TRACED:
            kept = measured.trace
    print("\n".join(_table(rows)))
    print(f"\n{len(rows) - 1} runs, " + ("all right" if not wrong else f"{len(wrong)} faults: {'; '.join(wrong)}"))
    print("\n" + _model_comparison())
    print("\n" + _refusal())
    path = Path(trace_file) if trace_file else Path(tempfile.mkdtemp(prefix="etproto-")) / "trace.json"
    kept.save(path)
    print(f"\nTrace of {' '.join(TRACED)}: {path}\nOpen it at https://ui.perfetto.dev, or: etproto trace {path}")
    return 1 if wrong else 0


def _runs(executors: list[str]) -> Iterator[tuple[Target, str, str]]:
    for name, values in SIZES.items():
        target = load_target(name, values)
        data_dependent = ["device-static"] if target.run_time_tensors() else []
        for executor in executors:
            for schedule in ["static", *data_dependent, "dynamic", "mixed"]:
                yield target, executor, schedule


def _row(measured: Measured) -> tuple[str, ...]:
    report = measured.report
    run = (
        report.target,
        report.executor,
        report.schedule,
        f"{report.workers}",
        f"{report.tasks:,}",
        f"{report.events:,}",
    )
    if not report.checked:
        return (*run, "WRONG", f"{measured.tolerance:.0e}", "", "", "")
    busy, wait = summarize(measured.trace).total[:2]
    time = f"{measured.trace.makespan_ns * 1e-6:.2f} ms"
    return (
        *run,
        f"{report.max_rel_error:.0e}",
        f"{measured.tolerance:.0e}",
        time,
        f"{busy:.0%}",
        f"{wait:.0%}",
    )


def _model_comparison() -> str:
    """Three schedules of one graph in the timing model."""
    graph = cholesky(12)
    lowered = lower_graph(graph, timed=False)
    rows = [("schedule", "policy", "makespan", "lower bound", "busy", "wait", "queue", "idle")]
    for schedule, policy in (
        ("static", "round_robin"),
        ("static", "critical_path"),
        ("dynamic", "round_robin"),
    ):
        scheduled = make_schedule(lowered, schedule, workers=MODEL_WORKERS, policy=policy)
        trace: Trace = find_executor("model")(scheduled, {}, **MODEL_COSTS)
        summary = summarize(trace)
        shares = [f"{share:.0%}" for share in summary.total]
        rows.append((schedule, policy, f"{summary.makespan:,.0f}", f"{summary.lower_bound:,.0f}", *shares))
    costs = ", ".join(f"{name} {value}" for name, value in MODEL_COSTS.items())
    title = f"The timing model, {graph}, {MODEL_WORKERS} workers, {costs}:"
    return "\n".join([title, *_table(rows)])


def deadlock() -> Scheduled:
    """A schedule that deadlocks though each of its lists is in an order that the dependences allow.

    ``a1 -> a2`` and ``b1 -> b2``; worker 0 runs a2, b1, worker 1 runs b2, a1.

    Examples
    --------
    >>> check(deadlock()).ok
    False
    """
    graph = TaskGraph.from_networkx(nx.DiGraph([("a1", "a2"), ("b1", "b2")]), name="two lists")
    scheduled = make_schedule(lower_graph(graph), "static", workers=2, policy="critical_path")
    row = {name: number for number, name in enumerate(scheduled.lowered.task_arrays.task_name)}
    lists = np.array([row[name] for name in ("a2", "b1", "b2", "a1")], np.int32)
    return replace(scheduled, policy="by_hand", worker_ptr=np.array([0, 2, 4]), worker_task=lists)


def _refusal() -> str:
    result = check(deadlock())
    return "\n".join(
        [
            "Refused before it can hang: a1 -> a2, b1 -> b2; worker 0 runs a2, b1, worker 1 runs b2, a1.",
            *(f"  {error}" for error in result.errors),
        ]
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows in columns, names to the left and numbers to the right."""
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = [not any(character.isdigit() for character in cell) for cell in rows[1]]
    return [
        "  ".join(
            cell.ljust(size) if words else cell.rjust(size) for cell, size, words in zip(row, width, left, strict=True)
        ).rstrip()
        for row in rows
    ]
