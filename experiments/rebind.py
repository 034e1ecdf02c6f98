"""What does a new size cost, until its result is there? Writes ``rebind.csv``.

The split-K row sum goes from one number of row blocks to another, whose data lie on the GPU already. Times are the
host's, from the moment the new size is known until the stream has finished:

- ``etproto.rebind``: bind, lower, schedule, store the new scalars, launch. ``-prepared``: the schedule was made before.
- ``etproto.load``: load the new size afresh; the kernel is in the process already.
- ``etproto.recompile``: the kernel as well, as if a constant in it had changed.
- ``launches.recapture``: two kernels (one an operator) whose arguments are ready are captured into a CUDA graph, which
  is instantiated and launched. ``launches.captured``: the graph of the new size was made before.

A case ``kernel=...`` is the time to compile and load the kernel of a program in a fresh process: for the first time
(``etproto.first-use``), and when the machine code is in the cache on disk (``etproto.cached``).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import numpy as np

from experiments.common import Case, Row, arguments, device_tensors, host_tensors, run_cases
from experiments.first_use import fresh_processes
from experiments.variants import Measured, fill_ratios, one_line, row_of

CASES = [
    Case({"from": 64, "to": 512, "worker": "hopper"}),
    Case({"from": 64, "to": 512, "worker": "portable"}),
    Case({"from": 1, "to": 4096, "worker": "portable"}),
    Case({"kernel": "mlp", "worker": "hopper"}),
    Case({"kernel": "splitk", "worker": "hopper"}),
    Case({"kernel": "splitk", "worker": "portable"}),
]
FEW_REPEATS = 3  # of what takes seconds


@dataclass(frozen=True)
class Action:
    """``run(n)`` returns when the result of size n is there; `slow` ones are repeated a few times only."""

    run: Callable[[int], None]
    slow: bool = False


@dataclass(frozen=True)
class Setting:
    """Actions by variant name, and what spoils the results of a size and compares them afterwards."""

    actions: Mapping[str, Callable[[], Action]]
    poison: Callable[[int], None]
    error: Callable[[int], float]
    tolerance: float


def build(case: Case, options: argparse.Namespace) -> Setting:
    """Data of both sizes, and how to build the actions."""
    import cupy

    from etproto.executors import cuda
    from etproto.executors.driver import device_facts
    from etproto.executors.launch import LaunchOptions
    from etproto.lowering import lower
    from etproto.models.splitk import MODEL, program
    from etproto.schedule import schedule
    from experiments.baselines.launches import Launches

    whole, worker, facts = program(), case.values["worker"], device_facts()
    sizes = (case.values["from"], case.values["to"])
    host = {n: MODEL.make_tensors(whole.bind(n=n), np.random.default_rng(options.seed)) for n in sizes}
    expected = {n: MODEL.reference(host[n]) for n in sizes}
    data = {n: device_tensors(host[n]) for n in sizes}
    stream = cupy.cuda.Stream()  # ordered with the uploads, which go to the default stream
    launch_options = LaunchOptions(watchdog_s=5.0)

    def scheduled(n: int) -> Any:
        return schedule(lower(whole.bind(n=n)), "static", workers=facts.processors)

    def rebind(prepared: bool) -> Action:
        loaded = cuda.load(scheduled(sizes[0]), worker=worker, options=launch_options)
        known = {n: scheduled(n) for n in sizes}

        def run(n: int) -> None:
            loaded.rebind(known[n] if prepared else scheduled(n))
            loaded.launch(data[n], stream)
            stream.synchronize()

        return Action(run)

    def load(compile_too: bool) -> Action:
        def run(n: int) -> None:
            new = scheduled(n)
            if compile_too:
                compile_afresh(new, worker)
            loaded = cuda.load(new, worker=worker, options=launch_options)
            loaded.launch(data[n], stream)
            stream.synchronize()

        return Action(run, slow=compile_too)

    def graphs(captured: bool) -> Action:
        launches = {n: Launches(whole.bind(n=n), data[n], facts.processors, worker) for n in sizes}

        def capture(n: int) -> Any:
            stream.begin_capture()
            launches[n](stream)
            return stream.end_capture()

        known = {n: capture(n) for n in sizes} if captured else {}

        def run(n: int) -> None:
            graph = known[n] if captured else capture(n)
            graph.launch(stream)
            stream.synchronize()

        return Action(run)

    def poison(n: int) -> None:
        for name, array in host[n].items():
            data[n][name].set(array)
        cupy.cuda.Device().synchronize()

    return Setting(
        {
            "etproto.rebind": lambda: rebind(False),
            "etproto.rebind-prepared": lambda: rebind(True),
            "etproto.load": lambda: load(False),
            "etproto.recompile": lambda: load(True),
            "launches.recapture": lambda: graphs(False),
            "launches.captured": lambda: graphs(True),
        },
        poison,
        lambda n: MODEL.compare(host_tensors(data[n], list(expected[n])), expected[n]),
        MODEL.tolerance(host[sizes[0]]),
    )


def compile_afresh(scheduled: Any, worker: str) -> None:
    """Everything between tile kinds and a loaded kernel, without a cache; bodies are new to Numba each time."""
    from etproto.executors.driver import device_facts, link, load_kernel
    from etproto.kernels.compile import compile_ptx, entry_name
    from etproto.kernels.workers import choose_worker, fits_shared_tables, worker_kernel

    capability = device_facts().capability
    worker = choose_worker(worker, scheduled.lowered.kinds, capability)
    kinds = tuple(_with_new_body(kind) for kind in scheduled.lowered.kinds)
    kernel = worker_kernel(worker, kinds, shared_tables=fits_shared_tables(scheduled, worker))
    fixed = kernel.architecture_specific
    asked = (*capability, "a") if fixed else capability
    ptx = compile_ptx(kernel.function, asked, threads=kernel.threads if fixed else None)
    load_kernel(link(ptx), entry_name(ptx), kernel.dynamic_bytes)


def _with_new_body(kind: Any) -> Any:
    body = kind.portable
    new = FunctionType(body.__code__, body.__globals__, body.__name__, body.__defaults__, body.__closure__)
    return replace(kind, portable=new)


def time_actions(
    setting: Setting, sizes: tuple[int, int], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Measured]:
    """Wall time in us of each action for the second size, coming from the first, all in turn; then results are
    compared.
    """
    actions, results = {}, {}
    for name, make in setting.actions.items():
        try:
            actions[name] = make()
            errors = []
            for n in sizes:
                setting.poison(n)
                actions[name].run(n)
                errors.append(setting.error(n))
            results[name] = Measured(None, None, max(errors))
            if not max(errors) <= setting.tolerance:
                results[name] = Measured(None, None, max(errors), f"relative error {max(errors):.3g}")
                del actions[name]
        except Exception as fault:  # the others can still be measured
            actions.pop(name, None)
            results[name] = Measured(None, None, None, one_line(fault))
    times: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(repeats):
        for name, action in actions.items():
            if number < FEW_REPEATS or not action.slow:
                action.run(sizes[0])
                start = clock()
                action.run(sizes[1])
                times[name].append((clock() - start) * 1e6)
    for name, values in times.items():
        low, median, high = np.percentile(values, [25, 50, 75])
        results[name] = Measured(float(median), float(high - low), results[name].error)
    return results


def main(
    argv: Sequence[str] | None = None,
    *,
    build: Any = build,
    timer: Any = time_actions,
    fresh: Any = fresh_processes,
) -> int:
    """Measure and write the CSV."""
    options = arguments(__doc__ or "", argv, "rebind")

    def measure(case: Case) -> list[Row]:
        try:
            if "kernel" in case.values:
                results = fresh(case, min(options.repeats, FEW_REPEATS))
            else:
                sizes = (case.values["from"], case.values["to"])
                results = timer(build(case, options), sizes, options.repeats)
        except Exception as fault:  # the other cases can still be measured
            results = {"inputs": Measured(None, None, None, one_line(fault))}
        rows = [row_of("rebind", case, name, measured, {}) for name, measured in results.items()]
        fill_ratios(rows, ("launches.recapture",))
        return rows

    return run_cases(CASES[:1] if options.quick else CASES, measure, options)


if __name__ == "__main__":
    sys.exit(main())
