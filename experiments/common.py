"""What experiments share: arguments, cases, timing by interleaved CUDA-graph replays, and tidy CSV files with
provenance.

A script lists its cases and gives a function from a case to rows; `run_cases` does the rest. Rows that are times of
CUDA graphs are made by `experiments.variants.measure_case`.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import gc
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "Case",
    "Row",
    "Timing",
    "arguments",
    "device_tensors",
    "host_tensors",
    "interleaved_times",
    "run_cases",
    "summary",
    "system",
    "write_csv",
]

FIRST = ("experiment", "case", "variant", "time_us", "time_us_iqr", "rel_error", "checked")
# a timed graph lasts at least this long: a one-node replay alone costs 9 to 10 us between two events
LEAST_US = 200.0
LEAST_CALLS = 8
# Measured on an H200: a tuned sum over 4.3 GB, and the best large product of bfloat16.
FLOOR_TB_PER_S = 4.50
FLOOR_TFLOPS = 780.0

Call = Callable[[Any], None]
Row = dict[str, Any]


def arguments(
    description: str,
    argv: Sequence[str] | None,
    name: str,
    repeats: int = 25,
    add: Callable[[argparse.ArgumentParser], None] | None = None,
) -> argparse.Namespace:
    """The options that every experiment has: ``--out --repeats --seed --commit --quick --cases --limit-s``."""
    parser = argparse.ArgumentParser(prog=f"python -m experiments.{name}", description=description)
    parser.add_argument("--out", type=Path, default=Path("experiments/results") / f"{name}.csv", help="CSV to write")
    parser.add_argument("--repeats", type=int, default=repeats, help="timed replays of each variant")
    parser.add_argument("--seed", type=int, default=0, help="seed of the inputs")
    parser.add_argument("--commit", help="commit to name where this is no git checkout")
    parser.add_argument("--quick", action="store_true", help="few cases and repeats, to see that it works")
    parser.add_argument("--cases", default="", help="only cases whose text contains one of these, separated by commas")
    parser.add_argument("--limit-s", type=float, default=math.inf, help="start no case after this many seconds")
    if add is not None:
        add(parser)
    options = parser.parse_args(argv)
    if options.quick:
        options.repeats = min(options.repeats, 5)
    return options


@dataclass(frozen=True)
class Case:
    """One instance of the question.

    Parameters
    ----------
    values : mapping
        What tells it from the others.
    flops, moved_bytes : float
        Least work, and least traffic with global memory, of one call; 0 where a floor means nothing.
    """

    values: Mapping[str, Any]
    flops: float = 0.0
    moved_bytes: float = 0.0

    def __str__(self) -> str:
        return ";".join(f"{key}={value}" for key, value in self.values.items())

    @property
    def floor_us(self) -> float:
        """Time below which no implementation can be, from the measured peaks of an H200."""
        return max(self.moved_bytes / FLOOR_TB_PER_S, self.flops / FLOOR_TFLOPS) / 1e6


def device_tensors(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Copies on the GPU, as CuPy arrays."""
    import cupy

    return {name: cupy.asarray(array) for name, array in tensors.items()}


def host_tensors(tensors: Mapping[str, Any], names: Sequence[str]) -> dict[str, np.ndarray]:
    """NumPy copies of some tensors."""
    return {name: tensors[name].get() for name in names}


class Timing:
    """A variant as a CUDA graph of several calls, on rotated data.

    Parameters
    ----------
    calls : sequence of callable
        ``call(stream)`` enqueues one run on its own data; they are captured in turn.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        import cupy

        self._calls = calls  # what they hold (loaded programs, arrays) is what the graph works on
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._start, self._end = cupy.cuda.Event(), cupy.cuda.Event()
        self.count = max(LEAST_CALLS, len(calls))
        self._graph = self._capture(calls)
        once = self.replay()
        if once * self.count < LEAST_US:
            self.count = int(np.ceil(LEAST_US / max(once, 0.1)))
            self._graph = self._capture(calls)

    def _capture(self, calls: Sequence[Call]) -> Any:
        for call in calls:  # everything is loaded before the capture
            call(self.stream)
        self.stream.synchronize()
        self.stream.begin_capture()
        for number in range(self.count):
            calls[number % len(calls)](self.stream)
        return self.stream.end_capture()

    def replay(self) -> float:
        """Microseconds of one call, from one replay of the graph."""
        import cupy

        self._start.record(self.stream)
        self._graph.launch(self.stream)
        self._end.record(self.stream)
        self._end.synchronize()
        return cupy.cuda.get_elapsed_time(self._start, self._end) * 1e3 / self.count


def interleaved_times(variants: Mapping[str, Any], repeats: int) -> dict[str, tuple[float, float]]:
    """Median and interquartile range in microseconds of each variant, all replayed in turn `repeats` times."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for timing in variants.values():
        timing.replay()
    for _ in range(repeats):
        for name, timing in variants.items():
            times[name].append(timing.replay())
    quartiles = {name: np.percentile(values, [25, 50, 75]) for name, values in times.items()}
    return {name: (float(q[1]), float(q[2] - q[0])) for name, q in quartiles.items()}


def system(variant: str) -> str:
    """The part of a variant's name before the first dot: etproto, cublas, floor, ..."""
    return variant.partition(".")[0]


def run_cases(
    cases: Sequence[Case],
    measure: Callable[[Case], list[Row]],
    options: argparse.Namespace,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Measure the cases that the options choose, most important first; write the CSV after each, so that nothing is
    lost; print a summary. The exit status is 1 when a variant failed.
    """
    start = clock()
    asked = [text for text in options.cases.split(",") if text]
    chosen = [case for case in cases if not asked or any(text in str(case) for text in asked)]
    rows: list[Row] = []
    for number, case in enumerate(chosen):
        if clock() - start > options.limit_s:
            left = ", ".join(map(str, chosen[number:]))
            print(f"time limit of {options.limit_s:g} s: not measured: {left}", flush=True)
            break
        found = measure(case)
        rows += found
        for row in found:
            shown = "no time" if row["time_us"] is None else f"{row['time_us']:12.3f} us"
            ratio = "" if row["ratio_to_baseline"] is None else f"{row['ratio_to_baseline']:8.3f}x"
            print(f"{row['case']:44} {row['variant']:36} {shown}{ratio} {row.get('fault', '')}", flush=True)
        write_csv(rows, options)
        _release()
    print(summary(rows))
    return int(any(row["checked"] is not True for row in rows) or not rows)


def _release() -> None:
    """Give device memory of the case before back to the driver, for whichever library needs it next."""
    if "torch" in sys.modules or "cupy" in sys.modules:
        gc.collect()
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.empty_cache()
    if "cupy" in sys.modules:
        sys.modules["cupy"].get_default_memory_pool().free_all_blocks()


def summary(rows: Sequence[Row]) -> str:
    """For each variant the geometric mean and the minimum of its ratios to the baseline, and the same for the best
    etproto variant of each case.
    """
    ratios: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["ratio_to_baseline"] and row["variant"] != "floor":
            ratios.setdefault(row["variant"], {})[row["case"]] = row["ratio_to_baseline"]
            if system(row["variant"]) == "etproto":
                best = ratios.setdefault("best of etproto", {})
                best[row["case"]] = max(row["ratio_to_baseline"], best.get(row["case"], 0.0))
    lines = [f"{'baseline time / time':36} {'cases':>5} {'mean':>7} {'least':>7}"]
    for variant, found in ratios.items():
        mean = math.exp(sum(map(math.log, found.values())) / len(found))
        least = min(found, key=found.__getitem__)
        lines.append(f"{variant:36} {len(found):5} {mean:7.3f} {found[least]:7.3f}  {least}")
    failed = [f"{row['case']} {row['variant']}: {row.get('fault', '')}" for row in rows if row["checked"] is not True]
    return "\n".join([*lines, *(f"FAILED {text}" for text in failed)])


def provenance(options: argparse.Namespace) -> dict[str, Any]:
    """Where numbers come from: commit, GPU, driver, versions, seed, repeats, date."""
    from etproto.executors.driver import device_facts
    from etproto.kernels.fingerprint import compiler_versions

    facts = device_facts()
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    versions = dict(compiler_versions())
    for name in ("torch", "triton", "cupy"):
        if name in sys.modules:
            versions[name] = getattr(sys.modules[name], "__version__", "unknown")
    return {
        "commit": options.commit or git.stdout.strip() or "unknown",
        "gpu": facts.name,
        "driver": f"CUDA {facts.driver // 1000}.{facts.driver % 1000 // 10}",
        "versions": " ".join(f"{name}={version}" for name, version in versions.items()),
        "seed": options.seed,
        "repeats": options.repeats,
        "date": dt.date.today().isoformat(),
    }


def write_csv(rows: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> None:
    """Write measurements to ``options.out``, one a row, each with its provenance; columns are those of all rows.

    Raises
    ------
    ValueError
        A row with a time whose output was not checked.
    """
    for row in rows:
        if row["checked"] is not True and row["time_us"] is not None:
            raise ValueError(f"{row['case']} {row['variant']}: a time without a checked output is not written")
    where, path = provenance(options), options.out
    others = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in FIRST]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*FIRST, *others, *where], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, **where})
    print(f"wrote {len(rows)} rows to {path}", file=sys.stderr)
