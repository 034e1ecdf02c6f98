"""Variants: ways to compute a case whose outputs are poisoned before and compared after, and only then timed."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.common import (
    Call,
    Case,
    Row,
    Timing,
    arguments,
    device_tensors,
    host_tensors,
    interleaved_times,
    run_cases,
)

__all__ = [
    "Builders",
    "Measured",
    "Timer",
    "Variant",
    "fill_ratios",
    "host_check",
    "loaded_variant",
    "measure_case",
    "model_variant",
    "one_line",
    "quickest",
    "rotations",
    "run_variants",
    "row_of",
    "time_variants",
]

ROTATED_BYTES = 1e9  # twenty times the second-level cache of an H200
MOST_SETS = 64


@dataclass(frozen=True)
class Variant:
    """One way to compute a case.

    Parameters
    ----------
    calls : sequence of callable
        ``call(stream)`` enqueues one run on data of its own.
    poison : callable
        Spoils all outputs and intermediates.
    error : callable
        Largest relative error of all outputs after the runs; raises where a run failed.
    tolerance : float
        Largest acceptable error.
    facts : mapping
        Further columns.
    captured : bool
        Timed as a CUDA graph. False: enqueued anew for each time, so that what the host takes counts.
    """

    calls: Sequence[Call]
    poison: Callable[[], None]
    error: Callable[[], float]
    tolerance: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    captured: bool = True


@dataclass(frozen=True)
class Measured:
    """Median and interquartile range in us of one call, or neither where the output was wrong."""

    time_us: float | None
    spread_us: float | None
    error: float | None
    fault: str = ""


Builders = Mapping[str, Callable[[], Variant]]
Timer = Callable[[Mapping[str, Variant], int], dict[str, Measured]]


def rotations(set_bytes: float) -> int:
    """How many copies of its data the calls of a graph rotate over, so that no call finds its own in a cache.

    Examples
    --------
    >>> rotations(2 * 4096 * 4096), rotations(1024), rotations(5e9)
    (30, 64, 1)
    """
    return min(MOST_SETS, max(1, math.ceil(ROTATED_BYTES / max(set_bytes, 1))))


class StreamTiming:
    """Times a call that is enqueued anew at each replay."""

    def __init__(self, call: Call) -> None:
        import cupy

        self._call, self.stream = call, cupy.cuda.Stream(non_blocking=True)
        self._start, self._end = cupy.cuda.Event(), cupy.cuda.Event()

    def replay(self) -> float:
        """Microseconds of one call."""
        import cupy

        self._start.record(self.stream)
        self._call(self.stream)
        self._end.record(self.stream)
        self._end.synchronize()
        return cupy.cuda.get_elapsed_time(self._start, self._end) * 1e3


def _checked_timing(variant: Variant) -> tuple[Any, float]:
    """What times a variant, and its largest error: of each call once, and then of the graph that is timed.

    A graph may run a call more often than there are sets of data, and so read what an earlier call has left: hence
    the check of single calls.
    """
    import cupy

    device = cupy.cuda.Device()
    timing = Timing(variant.calls) if variant.captured else StreamTiming(variant.calls[0])
    variant.poison()
    device.synchronize()
    for call in variant.calls:
        call(timing.stream)
    device.synchronize()
    first = float(variant.error())
    variant.poison()
    device.synchronize()
    timing.replay()
    device.synchronize()
    second = float(variant.error())
    return timing, max(first, second) if first == first and second == second else math.inf


def time_variants(variants: Mapping[str, Variant], repeats: int) -> dict[str, Measured]:
    """Run each variant on poisoned outputs, compare these, and time those that were right, interleaved."""
    timings: dict[str, Any] = {}
    results: dict[str, Measured] = {}
    for name, variant in variants.items():
        try:
            timing, error = _checked_timing(variant)
        except Exception as fault:  # the other variants can still be measured
            results[name] = Measured(None, None, None, one_line(fault))
            continue
        if error <= variant.tolerance:
            timings[name] = timing
            results[name] = Measured(None, None, error)
        else:
            results[name] = Measured(None, None, error, f"relative error {error:.3g} above {variant.tolerance:.3g}")
    for name, (median, spread) in interleaved_times(timings, repeats).items():
        results[name] = Measured(median, spread, results[name].error)
    return results


def quickest(builders: Builders, timing: Callable[[Sequence[Call]], Any] = Timing) -> tuple[str, str]:
    """The name of the quickest of some variants, by the least of three replays, and a line that tells the times of all.

    This chooses a configuration; its outputs are checked, and its time is taken anew, when it is measured.

    Raises
    ------
    RuntimeError
        None of them runs.
    """
    least: dict[str, float] = {}
    faults: dict[str, str] = {}
    for name, builder in builders.items():
        try:
            one = timing(builder().calls)
            least[name] = min(one.replay() for _ in range(3))
        except Exception as fault:  # another configuration may do
            faults[name] = one_line(fault)
    if not least:
        raise RuntimeError("; ".join(f"{name}: {fault}" for name, fault in faults.items()))
    shown = [f"{name}={value:.1f}us" for name, value in least.items()] + [f"{name}=failed" for name in faults]
    return min(least, key=least.__getitem__), " ".join(shown)


def loaded_variant(
    scheduled: Any,
    sets: Sequence[Mapping[str, Any]],
    poison: Callable[[], None],
    error: Callable[[], float],
    tolerance: float,
    worker: str = "auto",
    **facts: Any,
) -> Variant:
    """A schedule, loaded once for each set of tensors; counter resets are part of its calls."""
    from etproto.executors import cuda
    from etproto.executors.launch import LaunchOptions

    loads = []
    for tensors in sets:
        loaded = cuda.load(scheduled, worker=worker, options=LaunchOptions(watchdog_s=5.0))
        loaded.bind_tensors(tensors)
        loads.append(loaded)

    def finished_error() -> float:
        for loaded in loads:
            loaded.finish()  # raises what went wrong in the last launch
        return error()

    calls = [lambda stream, loaded=loaded: loaded.launch(stream=stream) for loaded in loads]
    compile_s = max(loaded.compile_seconds for loaded in loads)
    facts = {"workers": scheduled.workers, "registers": loads[0].worker.kernel.registers} | facts
    return Variant(calls, poison, finished_error, tolerance, facts | {"compile_s": round(compile_s, 3)})


def model_variant(
    model: Any, target: Any, scheduled: Any, seeds: Sequence[int], worker: str = "auto", **facts: Any
) -> Variant:
    """A schedule of a bundled program on data of its own, one set a seed, compared with the program's reference."""
    host = [model.make_tensors(target, np.random.default_rng(seed)) for seed in seeds]
    expected = [model.reference(tensors) for tensors in host]
    sets = [device_tensors(tensors) for tensors in host]
    poison, error = host_check(model, host, expected, sets)
    tolerance = max(model.tolerance(tensors) for tensors in host)
    return loaded_variant(scheduled, sets, poison, error, tolerance, worker, **facts)


def host_check(
    model: Any, host: Sequence[Mapping], expected: Sequence[Mapping], sets: Sequence[Mapping]
) -> tuple[Callable[[], None], Callable[[], float]]:
    """Functions that write the (poisoned) tensors of `host` to the device again, and that compare results."""

    def poison() -> None:
        for tensors, arrays in zip(host, sets, strict=True):
            for name, array in tensors.items():
                if array.size:
                    arrays[name].set(array)

    def error() -> float:
        pairs = [(arrays, right) for arrays, right in zip(sets, expected, strict=True) if right]
        compared = (model.compare(host_tensors(arrays, list(right)), right) for arrays, right in pairs)
        return max(compared, default=0.0)  # a program without outputs: the end of a run has counted its tasks

    return poison, error


def measure_case(
    experiment: str,
    case: Case,
    build: Callable[[], Builders],
    repeats: int,
    *,
    timer: Timer = time_variants,
    baseline: Sequence[str] = (),
) -> list[Row]:
    """Rows of a case: its variants, and the floor where it has one.

    Parameters
    ----------
    build : callable
        Makes the inputs, and gives variant name -> function that builds the variant. One that raises gives a row
        without a time.
    baseline : sequence of str
        Variants whose names contain one of these are the baseline: ``ratio_to_baseline`` is the time of the fastest
        of them over a variant's own.
    """
    variants: dict[str, Variant] = {}
    measured: dict[str, Measured] = {}
    try:
        builders = build()
    except Exception as fault:  # the other cases can still be measured
        return [row_of(experiment, case, "inputs", Measured(None, None, None, one_line(fault)), {})]
    for name, builder in builders.items():
        try:
            variants[name] = builder()
        except Exception as fault:  # the other variants can still be measured
            measured[name] = Measured(None, None, None, one_line(fault))
    measured |= timer(variants, repeats)
    rows: list[Row] = []
    for name in builders:
        facts = variants[name].facts if name in variants else {}
        rows.append(row_of(experiment, case, name, measured[name], facts))
    if case.floor_us > 0:
        rows.append(row_of(experiment, case, "floor", Measured(case.floor_us, 0.0, 0.0), {}))
    fill_ratios(rows, baseline)
    return rows


def fill_ratios(rows: Sequence[Row], baseline: Sequence[str]) -> None:
    """Fill in the ratios of the rows of one case."""
    times = [row["time_us"] for row in rows if row["time_us"] and any(text in row["variant"] for text in baseline)]
    for row in rows:
        row["ratio_to_baseline"] = round(min(times) / row["time_us"], 4) if times and row["time_us"] else None


def row_of(
    experiment: str, case: Case, variant: str, measured: Measured, facts: Mapping[str, Any], digits: int = 3
) -> Row:
    """A row of the CSV, times rounded to `digits`; the ratio to the baseline is left open."""
    time_us = measured.time_us
    return {
        "experiment": experiment,
        "case": str(case),
        "variant": variant,
        "time_us": None if time_us is None else round(time_us, digits),
        "time_us_iqr": None if measured.spread_us is None else round(measured.spread_us, digits),
        "rel_error": measured.error,
        "checked": time_us is not None,
        "ratio_to_baseline": None,
        "tflops": round(case.flops / time_us / 1e6, 2) if time_us and case.flops else None,
        "tb_per_s": round(case.moved_bytes / time_us / 1e6, 3) if time_us and case.moved_bytes else None,
        **facts,
        "fault": measured.fault,
    }


def one_line(fault: BaseException) -> str:
    return " ".join(f"{type(fault).__name__}: {fault}".split())[:300]


def run_variants(
    name: str,
    description: str,
    cases: Sequence[Case],
    quick: Sequence[Case],
    build: Callable[[Case, argparse.Namespace], Builders],
    baseline: Sequence[str],
    argv: Sequence[str] | None,
    timer: Timer,
    *,
    repeats: int = 25,
    add: Callable[[argparse.ArgumentParser], None] | None = None,
) -> int:
    """A script's main function, where every row is the time of a variant: read `argv`, measure, write the CSV.

    Parameters
    ----------
    name, description : str
    cases, quick : sequence of Case
        All cases, most important first, and those of ``--quick``.
    build : callable
        ``build(case, options)`` makes the inputs of a case, and gives what builds its variants.
    baseline : sequence of str
        See `measure_case`.
    timer : callable
        Times variants; `time_variants`, but in tests.
    repeats, add
        See `experiments.common.arguments`.
    """
    options = arguments(description, argv, name, repeats, add)

    def measure(case: Case) -> list[Row]:
        return measure_case(name, case, lambda: build(case, options), options.repeats, timer=timer, baseline=baseline)

    return run_cases(quick if options.quick else cases, measure, options)
