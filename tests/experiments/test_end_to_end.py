"""Every script from its inputs to its file on small cases, on stand-ins for CuPy, PyTorch and the GPU.

What is checked is that programs, tensors, baselines and comparisons fit together: each variant's output is compared
with the script's own reference. Times mean nothing here.
"""

from __future__ import annotations

import csv
import sys

import pytest

import etproto.executors.cuda
import etproto.executors.driver
from etproto.executors.driver import DeviceFacts
from experiments import (
    common,
    first_use,
    gemm,
    gemm_chain,
    granularity,
    mlp,
    rebind,
    runtime_overhead,
    skinny_gemm,
    splitk,
    variants,
)
from experiments.baselines import cublas, launches
from experiments.common import Case
from tests.experiments import stand_ins


@pytest.fixture(autouse=True)
def used(monkeypatch):
    """Put the stand-ins in place; gives the set of forms that the baselines used."""
    torch = stand_ins.torch()
    for name, module in (("cupy", stand_ins.cupy()), ("torch", torch)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "experiments.baselines.gated", stand_ins.gated())
    facts = DeviceFacts("stand-in", (9, 0), stand_ins.PROCESSORS, 232448, 13000)
    monkeypatch.setattr(etproto.executors.driver, "device_facts", lambda: facts)
    monkeypatch.setattr(etproto.executors.driver, "stream_handle", stand_ins.stream_handle)
    monkeypatch.setattr(etproto.executors.cuda, "load", stand_ins.Loaded)
    monkeypatch.setattr(etproto.executors.cuda, "resident_limit", lambda kinds, worker: (stand_ins.PROCESSORS, ""))
    monkeypatch.setattr(launches, "_kernel", lambda body: stand_ins.CountingKernel(body, launches._count))
    monkeypatch.setattr(variants, "MOST_SETS", 2)
    monkeypatch.setattr(splitk, "SETS", 2)
    monkeypatch.setattr(granularity, "SETS", 2)
    monkeypatch.setattr(common, "LEAST_CALLS", 2)
    monkeypatch.setattr(common, "LEAST_US", 0)
    cublas._zeros.cache_clear()
    yield torch.used
    cublas._zeros.cache_clear()


def rows_of(script, tmp_path) -> dict[str, list[str]]:
    """Run a script, all of whose variants must be right; the variants of each case."""
    out = tmp_path / "x.csv"
    assert script.main(["--out", str(out), "--repeats", "1"]) == 0
    found: dict[str, list[str]] = {}
    with out.open(newline="") as file:
        for row in csv.DictReader(file):
            assert row["checked"] == "True" and float(row["time_us"]) > 0
            found.setdefault(row["case"], []).append(row["variant"])
    return found


def test_gemm(tmp_path, monkeypatch, used):
    monkeypatch.setattr(gemm, "CASES", [gemm._case(130, 96, 64)])
    (found,) = rows_of(gemm, tmp_path).values()
    assert found[:2] == ["etproto.static", "etproto.dynamic"]
    assert used == {"mm-cublas", "mm-cublaslt", "addmm"}


def test_skinny_gemm(tmp_path, monkeypatch, used):
    monkeypatch.setattr(skinny_gemm, "CASES", [skinny_gemm._case(batch, 72, 64) for batch in (1, 16)])
    one, many = rows_of(skinny_gemm, tmp_path).values()
    assert "etproto.vector-static" in one and "etproto.vector-static" not in many
    assert "cublas-mv.graph" in one and "cublas-mv.graph" not in many
    assert used == {"mm-cublas", "mm-cublaslt", "addmm", "mv"}


def test_gemm_chain(tmp_path, monkeypatch):
    shapes = {"square": (((64, 64),), 3), "layer": (((96, 64), (64, 96)), 2)}
    monkeypatch.setattr(gemm_chain, "SHAPES", shapes)
    cases = [gemm_chain._case("square", 1), gemm_chain._case("layer", 1), gemm_chain._case("layer", 16)]
    monkeypatch.setattr(gemm_chain, "CASES", cases)
    for found in rows_of(gemm_chain, tmp_path).values():
        assert {"etproto.static", "etproto.dynamic-early", "launches.graph", "cublas.graph", "floor"} <= set(found)


@pytest.fixture
def small_block(monkeypatch):
    monkeypatch.setattr(mlp, "HIDDEN", 64)
    monkeypatch.setattr(mlp, "INTERMEDIATE", 128)


def test_mlp(tmp_path, monkeypatch, small_block):
    monkeypatch.setattr(mlp, "CASES", [mlp._case(tokens) for tokens in (3, 140)])
    few, many = rows_of(mlp, tmp_path).values()
    assert {"etproto.vector-static", "etproto.tiles-static", "launches.vector", "launches.tiles"} <= set(few)
    assert "etproto.vector-static" not in many and "cublaslt.graph" in many


def test_splitk(tmp_path, monkeypatch):
    monkeypatch.setattr(splitk, "CASES", [splitk._case(3)])
    (found,) = rows_of(splitk, tmp_path).values()
    assert {"launches.portable-3", "etproto.mixed-early-hopper-3", "torch.graph"} <= set(found)


def test_granularity(tmp_path, monkeypatch, small_block):
    cases = [Case({"program": "splitk", "n": 4}), Case({"program": "mlp", "tokens": 20})]
    monkeypatch.setattr(granularity, "CASES", cases)
    for found in rows_of(granularity, tmp_path).values():
        assert len(found) == len(granularity.SCHEDULES) * len(granularity.GRANULARITIES)


def test_runtime_overhead(tmp_path, monkeypatch):
    """Slopes of host times may be anything, so the clock is made to count what is run."""
    monkeypatch.setattr(runtime_overhead, "LENGTHS", {"hop": (4, 9), "layer": (2, 5), "empty": (5, 20)})
    monkeypatch.setattr(runtime_overhead, "NODES", (2, 5))
    cases = [Case({"what": "hop", "workers": 2}), Case({"what": "layer", "width": 4, "workers": 4})]
    monkeypatch.setattr(runtime_overhead, "CASES", [*cases, Case({"what": "empty", "workers": 2})])

    def growing(timings, repeats):
        growing.time += 1000.0
        return dict.fromkeys(timings, (growing.time, 0.0))

    growing.time = 0.0
    monkeypatch.setattr(variants, "interleaved_times", growing)
    hop, layer, empty = rows_of(runtime_overhead, tmp_path).values()
    assert hop == layer and len(empty) == 2 * 3
    assert "graph.counting-kernels" in hop and "stream.empty-kernels" in hop


def test_rebind(tmp_path, monkeypatch):
    monkeypatch.setattr(rebind, "CASES", [Case({"from": 2, "to": 5, "worker": "portable"})])
    monkeypatch.setattr(rebind, "compile_afresh", lambda scheduled, worker: None)
    (found,) = rows_of(rebind, tmp_path).values()
    assert found == [
        "etproto.rebind",
        "etproto.rebind-prepared",
        "etproto.load",
        "etproto.recompile",
        "launches.recapture",
        "launches.captured",
    ]


@pytest.mark.parametrize("name", first_use.VALUES)
def test_first_use(name):
    result = first_use.first_use(name, "portable")
    assert result["error"] <= result["tolerance"] < 0.1 and result["seconds"] == 0


def test_wrong_outputs_are_noticed(tmp_path, monkeypatch):
    """A runtime that computes nothing gets no time; the baselines still do."""
    monkeypatch.setattr(splitk, "CASES", [splitk._case(3)])
    monkeypatch.setattr(stand_ins.Loaded, "run", lambda self: None)
    out = tmp_path / "x.csv"
    assert splitk.main(["--out", str(out), "--repeats", "1"]) == 1
    with out.open(newline="") as file:
        timed = [row["variant"] for row in csv.DictReader(file) if row["time_us"]]
    assert timed == ["torch.graph", "floor"]


def test_a_launch_that_fails_is_told(tmp_path, monkeypatch):
    def run(self):
        raise RuntimeError("unspecified launch failure")

    monkeypatch.setattr(splitk, "CASES", [splitk._case(3)])
    monkeypatch.setattr(stand_ins.Loaded, "run", run)
    out = tmp_path / "x.csv"
    assert splitk.main(["--out", str(out), "--repeats", "1"]) == 1
    with out.open(newline="") as file:
        faults = {row["fault"] for row in csv.DictReader(file) if row["variant"].startswith("etproto")}
    assert faults == {"RuntimeError: unspecified launch failure"}
