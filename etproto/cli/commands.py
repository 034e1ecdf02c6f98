"""What each command does: from parsed options to text and an exit status."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

import numpy as np

from etproto import doctor as diagnosis
from etproto.check import check as check_target
from etproto.cli.explain import explain_target
from etproto.cli.measure import (
    Measured,
    choose_executor,
    default_workers,
    make_schedule,
    measure,
    run_time_values,
)
from etproto.cli.progress import progress
from etproto.cli.target import Target, UsageError, load_target, parse_settings
from etproto.errors import GraphError, RunError
from etproto.graph import TaskGraph
from etproto.models import MODELS
from etproto.scheduled import Scheduled
from etproto.trace import Trace, summarize

__all__ = ["check", "demo", "doctor", "explain", "list_programs", "run", "trace"]


def run(options: Namespace) -> int:
    """Run and check a target; status 1 and no time if the result is not right."""
    if options.trace is not None and Path(options.trace).suffix not in (".json", ".npz"):
        raise UsageError(f"--trace: expected a name that ends in .json or .npz, got {options.trace!r}")
    executor = choose_executor(options.executor)
    with progress(f"reading {options.target}"):
        target = load_target(options.target, parse_settings(options.set))
        scheduled = _scheduled(target, options, executor)
    with progress(f"running {options.target} on {executor}"):
        measured = measure(target, scheduled, executor, seed=options.seed, repeat=options.repeat)
    if options.trace is not None:
        measured.trace.save(options.trace)
    print(json.dumps(asdict(measured.report)) if options.json else _describe(measured, scheduled, options.trace))
    if measured.faults:
        print(f"error: {'; '.join(measured.faults)}", file=sys.stderr)
    return 0 if measured.report.checked else 1


def _scheduled(target: Target, options: Namespace, executor: str) -> Scheduled:
    timed = executor != "model"
    lowered = target.lower(time_scale=getattr(options, "time_scale", 1.0), timed=timed)
    return make_schedule(
        lowered,
        options.schedule,
        workers=default_workers(executor) if options.workers is None else options.workers,
        policy=options.policy,
        early_push=options.early_push,
    )


def _describe(measured: Measured, scheduled: Scheduled, saved: str | None) -> str:
    report, unit = measured.report, measured.report.time_unit
    lines = [
        f"{scheduled.lowered.name}: {report.tasks:,} tasks, {report.events:,} events",
        f"{report.executor}, {report.schedule} {report.policy}, {report.workers} workers",
    ]
    if not report.checked:
        return "\n".join([*lines, "checked: false"])
    if report.max_rel_error is None:
        how = "every task once, none before its waits, makespan not below its bound"
    else:
        how = f"max relative error {report.max_rel_error:.2g} of {measured.tolerance:.2g} allowed"
    lines.append(f"checked: true ({how})")
    spread = ""
    if len(measured.makespans) > 1:
        low, high = (time_text(limit(measured.makespans), unit) for limit in (min, max))
        spread = f", median of {len(measured.makespans)} from {low} to {high}"
    makespan, bound = (time_text(value, unit) for value in (report.makespan, report.lower_bound))
    lines.append(f"makespan {makespan}{spread}; lower bound {bound}")
    shares = zip(("busy", "wait", "queue", "idle"), summarize(measured.trace).total, strict=True)
    lines.append("workers " + ", ".join(f"{share:.0%} {name}" for name, share in shares))
    if report.compile_s:
        lines.append(f"kernel ready in {report.compile_s:.2f} s")
    if saved:
        lines.append(f"trace saved in {saved}; https://ui.perfetto.dev opens .json")
    return "\n".join(lines)


def time_text(value: float, unit: str) -> str:
    """A time with its unit, nanoseconds as what is easiest to read.

    Examples
    --------
    >>> time_text(1234567.0, "ns"), time_text(3.0, "unit")
    ('1.235 ms', '3 unit')
    """
    if unit == "ns":
        for size, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
            if value >= size:
                return f"{value / size:.4g} {name}"
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.4g} {unit}"


def check(options: Namespace) -> int:
    """Print counts, then ``ok`` or every fault."""
    with progress(f"checking {options.target}"):
        target = load_target(options.target, parse_settings(options.set))
        try:
            scheduled = _scheduled(target, options, "model")
        except GraphError:
            scheduled = target.work
        known: dict[str, np.ndarray] = {}
        notes = []
        if target.run_time_tensors():
            try:
                known = run_time_values(target)
            except RunError as error:
                notes = [f"warning: no run-time values, since a run on the cpu executor failed: {error}"]
        result = check_target(scheduled, known)
    graph = target.work if isinstance(target.work, TaskGraph) else None
    unit = "us" if graph is None else graph.time_unit
    counts = dict(result.stats)
    if graph is not None:  # known however wrong the graph is
        counts |= {"tasks": graph.count, "edges": graph.edges}
    workers = f" with {counts['workers']} workers" if "lower_bound" in counts else ""
    numbers = [f"{counts[name]:,} {name}" if name in counts else f"{name} unknown" for name in _COUNTED]
    times = [
        f"{text} {time_text(counts[name], unit)}" if name in counts else f"{text} unknown"
        for name, text in (("critical_path", "critical path"), ("lower_bound", "bound"))
    ]
    print(", ".join(numbers + times) + workers)
    print("\n".join([str(result), *notes]))
    if not result.ok:
        print(f"error: {options.target}: {'; '.join(result.errors)}", file=sys.stderr)
    return 0 if result.ok else 1


_COUNTED = ("tasks", "edges", "events")


def explain(options: Namespace) -> int:
    """Print what a target was lowered to, and the kernel made for it."""
    print(explain_target(load_target(options.target, parse_settings(options.set))))
    return 0


def trace(options: Namespace) -> int:
    """Print the summary of a saved trace, and convert it."""
    if options.chrome is not None and Path(options.chrome).suffix != ".json":
        raise UsageError(f"--chrome: expected a name that ends in .json, got {options.chrome!r}")
    loaded = Trace.load(options.file)
    print(summarize(loaded))
    if options.chrome is not None:
        loaded.save(options.chrome)
        print(f"\nChrome trace in {options.chrome}; https://ui.perfetto.dev opens it")
    return 0


def list_programs(options: Namespace) -> int:
    """Print the bundled programs."""
    for model in MODELS.values():
        print(f"{model.name}: {model.description}")
        for word, values in (("symbols", model.symbols), ("parameters", model.parameters)):
            if values:
                print(f"    {word}: {', '.join(f'{name}={value}' for name, value in values.items())}")
    return 0


def demo(options: Namespace) -> int:
    """Run the demonstration."""
    from etproto.demo import demo as demonstrate  # here because the demo stands on these commands' modules

    return demonstrate(options.trace)


def doctor(options: Namespace) -> int:
    """Print what is known of this machine."""
    print(diagnosis.report())
    return 0
