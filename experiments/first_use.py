"""How long does a kernel take to compile and load in a fresh process? What ``experiments.rebind`` measures with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

from experiments.common import Case, device_tensors, host_tensors
from experiments.variants import Measured

__all__ = ["first_use", "fresh_processes"]

VALUES = {  # sizes of the programs; mlp has the largest kernel
    "splitk": {"n": 64},
    "mlp": {"tokens": 200, "tokens_bound": 256, "hidden": 256, "intermediate": 512, "up_tile": 256, "down_tile": 256},
}


def first_use(name: str, worker: str) -> dict[str, float]:
    """Compile and load the kernel of a program, run it, and say what compiling took and how wrong the result is."""
    from importlib import import_module

    from etproto.executors import cuda
    from etproto.lowering import lower
    from etproto.schedule import schedule

    model = import_module(f"etproto.models.{name}").MODEL
    target = model.build(**VALUES[name])
    host = model.make_tensors(target, np.random.default_rng(0))
    expected, data = model.reference(host), device_tensors(host)
    start = time.perf_counter()
    loaded = cuda.load(schedule(lower(target), "static", workers=4), worker=worker)
    total = time.perf_counter() - start
    loaded.launch(data)
    loaded.finish()
    error = model.compare(host_tensors(data, list(expected)), expected)
    compiled = loaded.worker.seconds
    return {"seconds": compiled, "total_s": total, "error": error, "tolerance": model.tolerance(host)}


def fresh_processes(case: Case, repeats: int = 3) -> dict[str, Measured]:
    """`first_use` in processes of their own: the first of each round with an empty cache folder, the second with what
    the first has left.
    """
    name, worker = case.values["kernel"], case.values["worker"]
    code = (
        f"import json\nfrom experiments.first_use import first_use\nprint(json.dumps(first_use({name!r}, {worker!r})))"
    )
    found: dict[str, list[dict[str, float]]] = {"etproto.first-use": [], "etproto.cached": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as home:
            for variant in found:
                environment = {**os.environ, "HOME": home}
                child = subprocess.run(
                    [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
                )
                if child.returncode != 0:
                    return {one: Measured(None, None, None, child.stderr.strip()[-300:]) for one in found}
                found[variant].append(json.loads(child.stdout.splitlines()[-1]))
    results = {}
    for variant, runs in found.items():
        error = max(run["error"] for run in runs)
        low, median, high = np.percentile([run["seconds"] * 1e6 for run in runs], [25, 50, 75])
        right = error <= runs[0]["tolerance"]
        results[variant] = Measured(float(median), float(high - low), error) if right else Measured(None, None, error)
    return results
