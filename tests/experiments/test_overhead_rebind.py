"""The two scripts that do more than time variants: slopes between two lengths, and times on the host."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import etproto.kernels.compile
from etproto.executors import driver
from etproto.lowering import lower
from etproto.models.splitk import program
from etproto.schedule import schedule
from experiments import first_use, rebind, runtime_overhead
from experiments.common import Case
from experiments.variants import Measured


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_slopes(tmp_path, fake_variant):
    """A launch costs 20 us, a layer 0.8 us, a kernel 1.6 us."""

    def build(case, place, options):
        length = runtime_overhead.LENGTHS[case.values["what"]][place]
        kernels = runtime_overhead.NODES[place]
        return {
            "etproto.static-hopper": lambda: fake_variant(units=length),
            "etproto.dynamic-hopper": lambda: fake_variant(units=length),
            "graph.empty-kernels": lambda: fake_variant(units=kernels),
        }

    def timer(variants, repeats):
        cost = {"etproto.static-hopper": (20, 0.8), "graph.empty-kernels": (5, 1.6)}
        found = {"etproto.dynamic-hopper": Measured(None, None, None, "broken")}
        for name, (fixed, each) in cost.items():
            found[name] = Measured(fixed + each * variants[name].facts["units"], 0.4, 0.0)
        return found

    out = tmp_path / "x.csv"
    assert runtime_overhead.main(["--out", str(out), "--cases", "layer"], build=build, timer=timer) == 1
    rows = {row["variant"]: row for row in read(out)}
    ours = rows["etproto.static-hopper"]
    assert (ours["time_us"], ours["time_us_iqr"], ours["ratio_to_baseline"]) == ("0.8", "0.001", "2.0")
    assert (ours["short_units"], ours["short_us"], ours["long_us"]) == ("200", "180.0", "820.0")
    assert float(ours["launch_us"]) == 20.0
    assert int(ours["tasks_per_s"]) == pytest.approx(132 / 0.8e-6)
    assert rows["etproto.dynamic-hopper"]["time_us"] == "" and rows["etproto.dynamic-hopper"]["fault"] == "broken"
    assert rows["graph.empty-kernels"]["short_units"] == "100"


def test_inputs_that_could_not_be_made_at_one_length(tmp_path, fake_variant, fake_timer):
    def build(case, place, options):
        if place == 1:
            raise MemoryError("too long")
        return {"etproto.static-hopper": lambda: fake_variant(units=100)}

    out = tmp_path / "x.csv"
    assert runtime_overhead.main(["--out", str(out), "--quick"], build=build, timer=fake_timer({})) == 1
    assert {row["variant"]: (row["time_us"], row["fault"]) for row in read(out)} == {
        "etproto.static-hopper": ("", "measured at one length only"),
        "inputs": ("", "MemoryError: too long"),
    }


class Clock:
    """Stands still but for what actions add."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def setting(clock: Clock, costs: dict[str, float], ran: list, wrong: str = "") -> rebind.Setting:
    """Actions that take as long as they are said to, and note what they run; results are the actions' names."""
    results: dict[int, str] = {}

    def action(name):
        if name == "etproto.broken":
            raise RuntimeError("cannot be built")

        def run(n):
            results[n] = name
            ran.append((name, n))
            clock.now += costs[name] * 1e-6 * (1 if n == 512 else 100)

        return rebind.Action(run, slow=name == "etproto.recompile")

    return rebind.Setting(
        {name: lambda name=name: action(name) for name in costs},
        lambda n: results.pop(n, None),
        lambda n: float("inf") if results.get(n, "") in ("", wrong) else 0.25,
        0.5,
    )


def test_time_actions():
    clock = Clock()
    costs = {"etproto.rebind": 60.0, "etproto.recompile": 3e6, "launches.recapture": 90.0, "etproto.broken": 1.0}
    ran: list = []
    found = rebind.time_actions(setting(clock, costs, ran), (64, 512), 5, clock)
    assert found["etproto.rebind"].time_us == pytest.approx(60) and found["etproto.rebind"].error == 0.25
    assert found["etproto.recompile"].time_us == pytest.approx(3e6)
    assert found["etproto.broken"].time_us is None and "cannot be built" in found["etproto.broken"].fault
    count = {name: sum(one == (name, 512) for one in ran) for name in costs}
    assert count["etproto.rebind"] == 1 + 5 and count["etproto.recompile"] == 1 + rebind.FEW_REPEATS


def test_wrong_results_are_not_timed():
    clock = Clock()
    costs = {"etproto.rebind": 60.0, "etproto.load": 70.0}
    found = rebind.time_actions(setting(clock, costs, [], wrong="etproto.load"), (64, 512), 5, clock)
    assert found["etproto.load"].time_us is None and found["etproto.rebind"].time_us == pytest.approx(60)


def test_compiling_afresh_takes_the_whole_way(monkeypatch):
    """From bodies that are new functions to Numba, so that nothing it has compiled before serves, to a kernel."""
    compiled, loaded = [], []

    def compile_ptx(function, capability, threads=None):
        compiled.append((function, capability, threads))
        return ".visible .entry worker(.param .u64 launch)"

    facts = driver.DeviceFacts("stand-in", (9, 0), 132, 232448, 13000)
    monkeypatch.setattr(driver, "device_facts", lambda: facts)
    monkeypatch.setattr(etproto.kernels.compile, "compile_ptx", compile_ptx)
    monkeypatch.setattr(driver, "link", lambda ptx: f"code of {ptx}")
    monkeypatch.setattr(driver, "load_kernel", lambda *what: loaded.append(what))
    scheduled = schedule(lower(program().bind(n=4)), "static", workers=2)
    for worker in ("portable", "hopper"):
        rebind.compile_afresh(scheduled, worker)
    assert [what[1:] for what in compiled] == [((9, 0), None), ((9, 0, "a"), 384)]
    assert compiled[0][0] is not compiled[1][0]
    assert [what[:2] for what in loaded] == [("code of .visible .entry worker(.param .u64 launch)", "worker")] * 2
    kind = scheduled.lowered.kinds[0]
    new = rebind._with_new_body(kind)
    assert new.portable is not kind.portable and new.portable.__code__ is kind.portable.__code__


def test_rebind_writes_its_file(tmp_path):
    out = tmp_path / "x.csv"
    seen = []

    def timer(built, sizes, repeats):
        seen.append((built, sizes, repeats))
        return {"etproto.rebind": Measured(50.0, 1.0, 0.0), "launches.recapture": Measured(200.0, 1.0, 0.0)}

    def fresh(case, repeats):
        return {"etproto.first-use": Measured(5e6, 1.0, 0.0), "etproto.cached": Measured(2e5, 1.0, 0.0)}

    arguments = ["--out", str(out), "--repeats", "4"]
    assert rebind.main(arguments, build=lambda case, options: "built", timer=timer, fresh=fresh) == 0
    rows = read(out)
    assert seen[0] == ("built", (64, 512), 4)
    assert {row["ratio_to_baseline"] for row in rows if row["variant"] == "etproto.rebind"} == {"4.0"}
    assert {row["case"] for row in rows if row["variant"] == "etproto.cached"} == {
        "kernel=mlp;worker=hopper",
        "kernel=splitk;worker=hopper",
        "kernel=splitk;worker=portable",
    }


def test_fresh_processes(monkeypatch):
    """The first process of a round has an empty home, the second what the first has left."""
    homes = []

    def child(command, env, **options):
        home = Path(env["HOME"])
        cached = (home / "cache").exists()
        (home / "cache").touch()
        homes.append((home, cached))
        answer = {"seconds": 0.2 if cached else 5.0, "error": 0.0, "tolerance": 0.1}
        return SimpleNamespace(returncode=0, stdout=f"noise\n{json.dumps(answer)}\n", stderr="")

    monkeypatch.setattr(first_use.subprocess, "run", child)
    case = Case({"kernel": "splitk", "worker": "portable"})
    found = first_use.fresh_processes(case, 2)
    assert found["etproto.first-use"].time_us == 5e6 and found["etproto.cached"].time_us == 2e5
    assert [cached for _, cached in homes] == [False, True] * 2
    assert homes[0][0] == homes[1][0] != homes[2][0]


def test_a_process_that_fails(monkeypatch):
    ended = SimpleNamespace(returncode=1, stdout="", stderr="no GPU\n")
    monkeypatch.setattr(first_use.subprocess, "run", lambda *args, **options: ended)
    found = first_use.fresh_processes(Case({"kernel": "splitk", "worker": "portable"}), 2)
    assert {one.fault for one in found.values()} == {"no GPU"}
    assert all(one.time_us is None for one in found.values())
