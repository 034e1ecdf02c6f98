"""Every script: its arguments without CUDA packages, its cases, and the CSV that it writes."""

from __future__ import annotations

import csv
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from etproto.models.chain import CHAINS
from experiments import gemm, gemm_chain, granularity, mlp, runtime_overhead, skinny_gemm, splitk

ROOT = Path(__file__).resolve().parents[2]
TIMED = ("gemm", "skinny_gemm", "gemm_chain", "mlp", "splitk", "granularity")
ALL = (*TIMED, "rebind", "runtime_overhead")
FIRST = ["experiment", "case", "variant", "time_us", "time_us_iqr", "rel_error", "checked", "ratio_to_baseline"]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_help_needs_neither_torch_nor_cupy_nor_triton():
    code = f"""
import importlib, sys
for name in ("torch", "cupy", "triton"):
    sys.modules[name] = None
for name in {ALL}:
    try:
        importlib.import_module("experiments." + name).main(["--help"])
    except SystemExit as ended:
        print(name, ended.code, file=sys.stderr)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.stderr.split() == [word for name in ALL for word in (name, "0")]
    for option in ("--out", "--repeats", "--seed", "--commit", "--quick", "--cases", "--limit-s"):
        assert ended.stdout.count(f"{option} ") >= len(ALL)


@pytest.mark.parametrize("name", TIMED)
def test_script_writes_a_tidy_file(name, tmp_path, fake_variant, fake_timer, capsys):
    script = import_module(f"experiments.{name}")
    slow = (
        "launches.graph" if name == "splitk" else "etproto.static-barrier" if name == "granularity" else "cublas.graph"
    )
    built = []

    def build(case, options):
        built.append(case)
        assert options.seed == 7 and options.repeats == 3
        return {"etproto.static": lambda: fake_variant(workers=132), slow: fake_variant}

    out = tmp_path / "x.csv"
    arguments = ["--out", str(out), "--seed", "7", "--repeats", "3", "--commit", "abc"]
    times = {"etproto.static": 8.0, slow: 10.0}
    assert script.main(arguments, build=build, timer=fake_timer(times)) == 0
    rows = read(out)
    assert built == list(script.CASES)
    assert list(rows[0])[: len(FIRST)] == FIRST and rows[0]["commit"] == "abc"
    ours = [row for row in rows if row["variant"] == "etproto.static"]
    assert [row["case"] for row in ours] == [str(case) for case in script.CASES]
    assert {(row["time_us"], row["ratio_to_baseline"], row["workers"], row["checked"]) for row in ours} == {
        ("8.0", "1.25", "132", "True")
    }
    assert {row["experiment"] for row in rows} == {name}
    assert "etproto.static" in capsys.readouterr().out


@pytest.mark.parametrize("name", ALL)
def test_cases_are_distinct(name):
    cases = [str(case) for case in import_module(f"experiments.{name}").CASES]
    assert len(set(cases)) == len(cases) > 0


def test_cases_are_those_that_were_asked_for():
    cubes = {(n, n, n) for n in (1024, 2048, 4096, 8192, 16384)}
    others = {
        (8192, 6144, 4096),
        (8192, 4096, 4096),
        (8192, 28672, 4096),
        (8192, 4096, 14336),
        (512, 152064, 4096),
    }
    assert set(gemm.SHAPES) == cubes | others
    assert {tuple(case.values.values()) for case in skinny_gemm.CASES} == {
        (batch, N, K)
        for batch in (1, 8, 16, 32, 64, 128)
        for N, K in ((4096, 4096), (14336, 4096), (4096, 14336), (152064, 4096))
    }
    assert gemm_chain.SHAPES == CHAINS
    assert {tuple(case.values.values()) for case in gemm_chain.CASES} == {(c, b) for c in CHAINS for b in (1, 16, 64)}
    assert sorted(mlp.TOKENS) == [2**power for power in range(14)]
    assert sorted(splitk.BLOCKS) == [1, 8, 64, 512, 4096]
    assert {case.values["program"] for case in granularity.CASES} == {"splitk", "mlp"}
    assert {case.values["what"] for case in runtime_overhead.CASES} == {"hop", "layer", "empty"}


def test_floors():
    """Of the issue: 67.1 us for the block's weights, and the chains' at the read ceiling."""
    assert mlp.CASES[0].floor_us == pytest.approx(67.1, abs=0.05)
    floors = {case.values["chain"]: case.floor_us for case in gemm_chain.CASES if case.values["batch"] == 1}
    assert {name: round(value) for name, value in floors.items()} == {
        "2048": 119,
        "4096": 239,
        "llama1b": 567,
        "8b": 1007,
    }
    assert gemm.CASES[1].floor_us == pytest.approx(2 * 8192**3 / 780e6)


def test_gemm_candidates(capsys):
    assert gemm._candidates("256:16,128:8") == [(256, 16), (128, 8)]
    with pytest.raises(SystemExit):
        gemm.main(["--candidates", "256"])
    assert "tile_n:group" in capsys.readouterr().err
