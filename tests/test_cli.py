"""The command line: what it prints, what it checks, and the exit status."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from etproto.cli import main
from etproto.cli import progress as progress_module
from etproto.cli.commands import time_text
from etproto.cli.measure import Report, measure
from etproto.cli.target import load_target, parse_settings
from etproto.demo import deadlock
from etproto.graph import TaskGraph
from etproto.models import MODELS
from etproto.schedule import schedule
from etproto.trace import Trace, verify

KEYS = [
    *("target", "executor", "schedule", "policy", "workers", "tasks", "events"),
    *("makespan", "lower_bound", "time_unit", "max_rel_error", "checked", "compile_s"),
]
SMALL = {"splitk": "n=20", "cholesky": "tiles=4", "gemm": "M=70", "bucket_sum": "rows=150"}


@pytest.fixture
def etproto(capsys: pytest.CaptureFixture[str]):
    """Run a command in this process: (status, stdout, stderr)."""

    def command(*arguments: object) -> tuple[int, str, str]:
        status = main([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    return command


@pytest.fixture
def graph_file(tmp_path: Path):
    def write(edges: str, name: str = "graph.dot") -> Path:
        path = tmp_path / name
        path.write_text(f"digraph {{ {edges} }}")
        return path

    return write


def report(out: str) -> dict:
    """The one object that --json prints."""
    assert len(out.splitlines()) == 1
    return json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


# -- run ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["cpu", "model"])
@pytest.mark.parametrize(
    ("program", "kind"),
    [
        (program, kind)
        for program in SMALL
        for kind in ("static", "device-static", "dynamic", "mixed", "auto")
        if kind != "device-static" or program == "bucket_sum"
    ],
)
def test_run_is_checked(etproto, program: str, kind: str, executor: str) -> None:
    arguments = (
        "--set",
        SMALL[program],
        "--executor",
        executor,
        "--schedule",
        kind,
        "--workers",
        2,
        "--json",
    )
    status, out, err = etproto("run", program, *arguments)
    assert (status, err) == (0, "")
    got = report(out)
    assert list(got) == KEYS == [field.name for field in fields(Report)]
    assert got["checked"] is True
    assert got["target"], got["executor"] == (program, executor)
    assert got["workers"] == 2
    assert got["makespan"] >= got["lower_bound"] * (1 - 1e-9) > 0
    assert (got["max_rel_error"] is None) == (executor == "model")


@pytest.mark.parametrize("executor", ["cpu", "model"])
def test_run_counts(etproto, executor: str) -> None:
    status, out, _ = etproto("run", "splitk", "--set", "n=1000", "--executor", executor, "--json")
    got = report(out)
    assert (status, got["tasks"], got["events"], got["checked"]) == (0, 5000, 1000, True)
    status, out, _ = etproto("run", "cholesky", "--set", "tiles=8", "--executor", executor, "--json")
    assert (status, report(out)["tasks"]) == (0, 8 * 9 * 10 // 6)


def test_run_for_people_says_checked(etproto) -> None:
    status, out, err = etproto("run", "cholesky", "--set", "tiles=8", "--schedule", "dynamic", "--executor", "cpu")
    assert (status, err) == (0, "")
    assert "checked: true" in out
    assert re.search(r"makespan [\d.]+ [um]?s; lower bound", out)


def test_run_a_graph_of_costs(etproto, shared_data: Path) -> None:
    file = shared_data / "dagbench" / "gpt2_tensor_sh12_decode.json"
    status, out, _ = etproto("run", file, "--executor", "model", "--workers", 4, "--json")
    got = report(out)
    assert (status, got["checked"], got["max_rel_error"]) == (0, True, None)
    assert got["tasks"] == len(json.loads(file.read_text())["task_graph"]["tasks"])


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_time_scale(etproto, graph_file, kind: str) -> None:
    file = graph_file("a [cost=20000]; b [cost=20000]; a -> b")  # 40 ms
    status, out, _ = etproto("run", file, "--executor", "cpu", "--schedule", kind, "--time-scale", 0.5, "--json")
    got = report(out)
    assert (status, got["checked"], got["time_unit"]) == (0, True, "ns")
    assert 20e6 <= got["lower_bound"] <= got["makespan"] < 1e9


def test_tasks_too_long_name_the_option(etproto, graph_file) -> None:
    status, _, err = etproto("run", graph_file("a [cost=10000000]"), "--executor", "cpu")
    assert status == 2
    assert "--time-scale" in err


def test_a_missing_output_is_never_timed(etproto, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs are poisoned, so an executor that computes nothing is found out."""

    def idle(scheduled, tensors, **options):
        nothing: list[int] = []
        return Trace(span=nothing, worker=nothing, start=nothing, end=nothing, workers=1, makespan_ns=1.0)

    monkeypatch.setattr("etproto.cli.measure.find_executor", lambda name: idle)
    status, out, err = etproto("run", "splitk", "--set", "n=2", "--executor", "cpu", "--json")
    got = report(out)
    assert status == 1
    assert (got["checked"], got["makespan"], got["max_rel_error"]) == (False, None, None)
    assert "differs from the reference" in err
    status, out, _ = etproto("run", "splitk", "--set", "n=2", "--executor", "cpu")
    assert status == 1
    assert "checked: false" in out
    assert "makespan" not in out


def test_a_wrong_output_is_found(etproto, monkeypatch: pytest.MonkeyPatch) -> None:
    right = MODELS["splitk"]
    wrong = replace(right, reference=lambda tensors: {"C": 1.01 * right.reference(tensors)["C"]})
    monkeypatch.setitem(MODELS, "splitk", wrong)
    status, out, _ = etproto("run", "splitk", "--set", "n=2", "--executor", "cpu", "--json")
    got = report(out)
    assert (status, got["checked"], got["makespan"]) == (1, False, None)
    assert 0.001 < got["max_rel_error"] < 0.1


def test_a_run_without_values_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etproto.cli.measure.verify", lambda trace: ["a fault"])
    target = load_target("splitk", {"n": 2})
    measured = measure(target, schedule(target.lower(), "static", workers=2), "model")
    assert not measured.report.checked
    assert measured.report.makespan is None
    assert measured.faults == ("a fault",)


def test_repeat_and_trace(etproto, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    status, out, _ = etproto("run", "splitk", "--set", "n=3", "--executor", "cpu", "--repeat", 3, "--trace", file)
    assert status == 0
    assert "median of 3" in out
    assert verify(Trace.load(file)) == []
    status, out, _ = etproto("trace", file, "--chrome", tmp_path / "again.json")
    assert status == 0
    assert "lower bound" in out
    assert "partial_sum" in out
    assert Trace.load(tmp_path / "again.json").count == Trace.load(file).count


# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", "COMMAND"),
        ("fly", "invalid choice: 'fly'"),
        ("run", "TARGET"),
        ("run splitkk", "did you mean splitk?"),
        (
            "run missing.dot",
            "expected a bundled program (splitk, cholesky, gemm, bucket_sum, matmul, skinny, chain, mlp, layers) or a",
        ),
        ("run splitk --set n", "--set: expected NAME=VALUE"),
        ("run splitk --set n=1.5", "with an integer, got 'n=1.5'"),
        ("run splitk --set n=1 --set n=2", "n is set twice"),
        ("run splitk --set m=1", "no symbol or parameter 'm'"),
        ("run splitk --set n=200000", "at most its bound 131072"),
        ("run splitk --executor abacus", "invalid choice: 'abacus'"),
        ("run splitk --schedule lazy", "invalid choice: 'lazy'"),
        ("run splitk --policy best", "invalid choice: 'best'"),
        ("run splitk --workers 0", "at least 1, got '0'"),
        ("run splitk --time-scale nan", "finite number of at least 0"),
        ("run splitk --early-push --schedule static", "pushes nothing"),
        ("run bucket_sum --policy critical_path --executor cpu", "are computed in it"),
        ("run splitk --trace trace.txt", "ends in .json or .npz"),
        ("trace missing.npz", "missing.npz"),
    ],
)
def test_misuse(etproto, arguments: str, text: str) -> None:
    status, out, err = etproto(*arguments.split())
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
    assert text in err


def test_a_graph_file_takes_no_settings(etproto, graph_file) -> None:
    status, _, err = etproto("run", graph_file("a -> b"), "--set", "n=1")
    assert status == 2
    assert "no symbols" in err


@pytest.mark.parametrize("command", ["run", "check", "explain"])
def test_a_cycle_is_named(etproto, graph_file, command: str) -> None:
    status, _, err = etproto(command, graph_file("start -> a -> b -> c -> a"))
    assert status == 1
    assert "cycle of 3 tasks: a -> b -> c -> a" in err
    assert len(err.splitlines()) == 1


def test_a_bad_file(etproto, graph_file) -> None:
    status, _, err = etproto("check", graph_file("a -> "))
    assert status == 1
    assert re.search(r"graph\.dot:1: expected", err)


def test_an_executor_that_is_not_available(etproto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etproto.executors.driver.why_no_gpu", lambda: "the GPU is on holiday")
    status, out, err = etproto("run", "splitk", "--set", "n=1", "--executor", "cuda")
    assert (status, out) == (3, "")
    assert "the GPU is on holiday" in err


def test_auto_falls_back_to_the_cpu(etproto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etproto.cli.measure.why_no_gpu", lambda: "the GPU is on holiday")
    assert report(etproto("run", "splitk", "--set", "n=1", "--json")[1])["executor"] == "cpu"


def test_traceback_on_request(etproto) -> None:
    _, _, err = etproto("--traceback", "run", "splitk", "--set", "m=1")
    assert "Traceback" in err
    assert "Traceback" not in etproto("run", "splitk", "--set", "m=1")[2]


def test_duplicate_edges_are_one_line_of_warning(etproto, graph_file) -> None:
    status, _, err = etproto("check", graph_file("a -> b; a -> b"))
    assert status == 0
    assert re.fullmatch(r"warning: .*merged 1 duplicate edge, first a -> b\n", err)


# -- check, explain, list, trace ----------------------------------------------------------------------


def test_check_counts(etproto, graph_file) -> None:
    status, out, err = etproto("check", graph_file("a -> c; b -> c; a -> d; b -> d"), "--workers", 2)
    assert (status, err) == (0, "")
    # c and d have the same predecessors, so they share one event.
    assert out == "4 tasks, 4 edges, 1 events, critical path 2 us, bound 2 us with 2 workers\nok\n"


def test_check_counts_a_cyclic_graph(etproto, graph_file) -> None:
    status, out, _ = etproto("check", graph_file("a -> b; b -> a; b -> c"))
    assert status == 1
    first, fault = out.splitlines()
    assert first.startswith("3 tasks, 3 edges, events unknown, critical path unknown")
    assert fault == "cycle of 2 tasks: a -> b -> a"


def test_check_knows_the_tasks_of_a_data_dependent_program(etproto) -> None:
    status, out, _ = etproto("check", "bucket_sum", "--set", "rows=100", "--set", "buckets=4")
    assert status == 0
    assert re.match(r"\d+ tasks, \d+ edges, \d+ events, critical path", out)
    assert "not checked one by one" not in out


def test_explain_shows_program_events_and_kernel(etproto) -> None:
    status, out, _ = etproto("explain", "splitk", "--set", "n=7")
    assert status == 0
    assert 'out_edges={E: "ij->i"}' in out
    assert "E: shape (7), 7 events, need 4" in out
    assert re.search(r"words: \d+ int64, [\d,]+ bytes", out)
    assert "scalars: " in out
    assert 'def worker(launch_address):\n    """Persistent worker for the tile kinds partial_sum, final_sum.' in out


def test_explain_shows_run_time_needs_and_extents(etproto) -> None:
    out = etproto("explain", "bucket_sum")[1]
    assert "need rows_of[...], counted in the launch" in out
    assert "extents (16, rows of chunk_start)" in out


def test_explain_a_graph_without_needs(etproto, graph_file) -> None:
    status, out, _ = etproto("explain", graph_file("a; b"))
    assert status == 0
    assert "0 events" in out


def test_list_names_every_program(etproto) -> None:
    status, out, _ = etproto("list")
    assert status == 0
    for model in MODELS.values():
        assert f"{model.name}: {model.description}" in out
        for name, value in {**model.symbols, **model.parameters}.items():
            assert f"{name}={value}" in out


def test_module_can_be_run() -> None:
    child = subprocess.run(
        [sys.executable, "-m", "etproto", "list"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "splitk: " in child.stdout
    assert child.stderr == ""


def test_parse_settings_keeps_order_and_sign() -> None:
    assert list(parse_settings(["b=-2", "a=1_000"]).items()) == [("b", -2), ("a", 1000)]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(999.0, "ns", "999 ns"), (2.5e9, "ns", "2.5 s"), (1e4, "us", "10,000 us"), (0.25, "unit", "0.25 unit")],
)
def test_time_text(value: float, unit: str, text: str) -> None:
    assert time_text(value, unit) == text


# -- demo and progress --------------------------------------------------------------------------------


def test_demo(etproto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etproto.demo.why_no_gpu", lambda: "the GPU is on holiday")
    start = time.perf_counter()
    status, out, err = etproto("demo", "--trace", tmp_path / "trace.json")
    assert (status, err) == (0, "")
    assert time.perf_counter() - start < 60
    assert "13 runs, all right" in out  # four programs on three schedules, and device-static for bucket_sum
    assert "the GPU is on holiday" in out
    assert "the static order deadlocks, cycle of 4 tasks: a1 -> a2" in out
    assert "ui.perfetto.dev" in out
    trace = Trace.load(tmp_path / "trace.json")
    assert verify(trace) == []
    assert trace.schedule == "dynamic"


def test_the_refused_program_would_deadlock() -> None:
    """Both first tasks wait for a task that stands second in the other list."""
    scheduled = deadlock()
    names = scheduled.lowered.task_arrays.task_name
    lists = [[names[row] for row in half] for half in np.split(scheduled.worker_task, 2)]
    assert lists == [["a2", "b1"], ["b2", "a1"]]
    order = nx.DiGraph([("a1", "a2"), ("b1", "b2"), *lists])
    assert not nx.is_directed_acyclic_graph(order)
    for chosen in lists:  # though each list by itself breaks no dependence
        assert nx.is_directed_acyclic_graph(nx.DiGraph([("a1", "a2"), ("b1", "b2"), tuple(chosen)]))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "patience", "shown"),
    [(_Terminal, 0.01, True), (_Terminal, 5, False), (io.StringIO, 0.01, False)],
)
def test_progress(monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], patience: float, shown: bool) -> None:
    monkeypatch.setattr(progress_module, "PATIENCE_S", patience)
    monkeypatch.setattr(sys, "stderr", stream())
    with progress_module.progress("thinking"):
        time.sleep(0.1)
    text = sys.stderr.getvalue()
    assert ("thinking ... " in text) == shown
    assert not shown or text.endswith("\x1b[K"), "the line is taken away again"


def test_graphs_that_are_saved_can_be_run(etproto, tmp_path: Path) -> None:
    TaskGraph.from_arrays([0, 1], [1, 2], 3, cost=[1, 2, 3]).save(tmp_path / "chain.npz")
    status, out, _ = etproto("run", tmp_path / "chain.npz", "--executor", "model", "--workers", 2, "--json")
    got = report(out)
    assert (status, got["lower_bound"], got["makespan"], got["time_unit"]) == (0, 6.0, 6.0, "us")


# -- on a GPU -----------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["static", "dynamic", "mixed"])
@pytest.mark.parametrize("program", SMALL)
def test_run_on_the_gpu_is_the_default(etproto, program: str, kind: str) -> None:
    status, out, err = etproto("run", program, "--set", SMALL[program], "--schedule", kind, "--json")
    assert (status, err) == (0, "")
    got = report(out)
    assert (got["executor"], got["checked"], got["time_unit"]) == ("cuda", True, "ns")
    assert got["max_rel_error"] >= 0
    assert got["compile_s"] > 0
    assert got["workers"] >= 2


@pytest.mark.gpu
def test_no_rows_on_the_gpu(etproto) -> None:
    status, out, _ = etproto("run", "splitk", "--set", "n=0", "--executor", "cuda", "--json")
    assert (status, report(out)["tasks"]) == (0, 0)


@pytest.mark.gpu
def test_a_graph_of_costs_on_the_gpu(etproto, graph_file) -> None:
    file = graph_file("a [cost=500]; b [cost=500]; a -> b")
    status, out, _ = etproto("run", file, "--executor", "cuda", "--workers", 2, "--json")
    got = report(out)
    assert (status, got["checked"], got["max_rel_error"]) == (0, True, None)
    assert 0.99e6 <= got["makespan"] < 1e9


@pytest.mark.gpu
def test_more_workers_than_the_gpu_holds(etproto) -> None:
    status, out, err = etproto("run", "splitk", "--set", "n=1", "--executor", "cuda", "--workers", 1_000_000)
    assert (status, out) == (2, "")
    assert "1000000 workers asked for" in err
