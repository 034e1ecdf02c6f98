"""What experiments share: arguments, timing by interleaved CUDA-graph replays, and tidy CSV files with
provenance.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Timing", "arguments", "device_tensors", "host_tensors", "interleaved_times", "write_csv"]

FIRST = ("experiment", "case", "variant", "time_us", "time_us_iqr", "rel_error", "checked")
# a timed graph lasts at least this long: a one-node replay alone costs 9 to 10 us between two events
LEAST_US = 200.0
LEAST_CALLS = 8


def arguments(description: str, argv: Sequence[str] | None, name: str) -> argparse.Namespace:
    """The options that every experiment has: ``--out --repeats --seed --commit --quick``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=Path("experiments/results") / f"{name}.csv", help="CSV to write")
    parser.add_argument("--repeats", type=int, default=25, help="timed replays of each variant")
    parser.add_argument("--seed", type=int, default=0, help="seed of the inputs")
    parser.add_argument("--commit", help="commit to name where this is no git checkout")
    parser.add_argument("--quick", action="store_true", help="few cases and repeats, to see that it works")
    return parser.parse_args(argv)


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

    def __init__(self, calls: Sequence[Callable[[Any], None]]) -> None:
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

    def _capture(self, calls: Sequence[Callable[[Any], None]]) -> Any:
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


def interleaved_times(variants: Mapping[str, Timing], repeats: int) -> dict[str, tuple[float, float]]:
    """Median and interquartile range in microseconds of each variant, all replayed in turn `repeats` times."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for timing in variants.values():
        timing.replay()
    for _ in range(repeats):
        for name, timing in variants.items():
            times[name].append(timing.replay())
    quartiles = {name: np.percentile(values, [25, 50, 75]) for name, values in times.items()}
    return {name: (float(q[1]), float(q[2] - q[0])) for name, q in quartiles.items()}


def provenance(options: argparse.Namespace) -> dict[str, Any]:
    """Where numbers come from: commit, GPU, driver, versions, seed, repeats, date."""
    from etproto.executors.driver import device_facts
    from etproto.kernels.fingerprint import compiler_versions

    facts = device_facts()
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return {
        "commit": options.commit or git.stdout.strip() or "unknown",
        "gpu": facts.name,
        "driver": f"CUDA {facts.driver // 1000}.{facts.driver % 1000 // 10}",
        "versions": " ".join(f"{name}={version}" for name, version in compiler_versions().items()),
        "seed": options.seed,
        "repeats": options.repeats,
        "date": dt.date.today().isoformat(),
    }


def write_csv(rows: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> None:
    """Write measurements to ``options.out``, one a row, each with its provenance.

    Raises
    ------
    ValueError
        A row with a time whose output was not checked.
    """
    for row in rows:
        if row["checked"] is not True and row["time_us"] is not None:
            raise ValueError(f"{row['case']} {row['variant']}: a time without a checked output is not written")
    where, path = provenance(options), options.out
    others = [name for name in rows[0] if name not in FIRST] if rows else []
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*FIRST, *others, *where], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, **where})
    print(f"wrote {len(rows)} rows to {path}", file=sys.stderr)
