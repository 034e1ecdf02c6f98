"""What experiments share, without a GPU."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest

from experiments.common import Case, arguments, run_cases, summary, write_csv
from experiments.variants import Measured, host_check, measure_case, quickest, row_of, run_variants

CASES = [Case({"n": n}, flops=780e6 * n, moved_bytes=4.5e6) for n in (1, 2, 30)]


def options(tmp_path, *more):
    return arguments("text", ["--out", str(tmp_path / "x.csv"), *more], "x")


def row(case, variant="etproto.a", time_us=5.0, ratio=2.0, checked=True):
    return {
        "experiment": "x",
        "case": case,
        "variant": variant,
        "time_us": time_us,
        "time_us_iqr": 0.1,
        "rel_error": 0.0,
        "checked": checked,
        "ratio_to_baseline": ratio,
    }


def test_case():
    assert str(Case({"M": 4, "kind": "a"})) == "M=4;kind=a"
    assert [case.floor_us for case in CASES] == [1.0, 2.0, 30.0]
    assert Case({}, moved_bytes=9e6).floor_us == 2.0


def test_defaults(tmp_path):
    found = options(tmp_path)
    assert (found.repeats, found.seed, found.quick, found.cases, found.limit_s) == (25, 0, False, "", math.inf)
    assert options(tmp_path, "--quick").repeats == 5
    assert options(tmp_path, "--quick", "--repeats", "2").repeats == 2


def test_rows_of_a_case(fake_variant, fake_timer):
    def broken():
        raise RuntimeError("does not\n  compile")

    builders = {
        "etproto.a": lambda: fake_variant(workers=7),
        "etproto.b": broken,
        "etproto.c": fake_variant,
        "cublas.graph": fake_variant,
        "cublaslt.graph": fake_variant,
    }
    times = {"etproto.a": 4.0, "etproto.c": -1.0, "cublas.graph": 8.0, "cublaslt.graph": 6.0}
    rows = measure_case("x", CASES[1], lambda: builders, 3, timer=fake_timer(times), baseline=("cublas",))
    assert [one["variant"] for one in rows] == [*builders, "floor"]
    by_name = {one["variant"]: one for one in rows}
    assert by_name["etproto.a"]["ratio_to_baseline"] == 1.5, "the fastest of the baselines counts"
    assert by_name["cublas.graph"]["ratio_to_baseline"] == 0.75
    assert by_name["etproto.a"]["workers"] == 7 and by_name["etproto.a"]["tflops"] == 390.0
    assert by_name["etproto.a"]["tb_per_s"] == 1.125
    assert by_name["floor"]["time_us"] == 2.0 and by_name["floor"]["ratio_to_baseline"] == 3.0
    for name, fault in (("etproto.b", "RuntimeError: does not compile"), ("etproto.c", "relative error 0.7")):
        assert by_name[name]["time_us"] is None and by_name[name]["checked"] is False
        assert by_name[name]["fault"] == fault and by_name[name]["ratio_to_baseline"] is None


def test_inputs_that_do_not_fit(fake_timer):
    def build():
        raise MemoryError("too large")

    (one,) = measure_case("x", CASES[0], build, 3, timer=fake_timer({}))
    assert (one["variant"], one["checked"], one["fault"]) == ("inputs", False, "MemoryError: too large")


def test_cases_are_chosen_and_written_one_by_one(tmp_path, capsys):
    found = options(tmp_path, "--cases", "n=3,n=1")
    sizes = []

    def measure(case):
        sizes.append(found.out.exists())
        return [row(str(case))]

    assert run_cases(CASES, measure, found) == 0
    assert sizes == [False, True], "what was measured is written before the next case starts"
    with found.out.open(newline="") as file:
        assert [one["case"] for one in csv.DictReader(file)] == ["n=1", "n=30"]


def test_time_limit(tmp_path, capsys):
    ticks = iter([0.0, 1.0, 11.0])
    found = options(tmp_path, "--limit-s", "10")
    assert run_cases(CASES, lambda case: [row(str(case))], found, clock=lambda: next(ticks)) == 0
    assert "time limit of 10 s: not measured: n=2, n=30" in capsys.readouterr().out
    assert len(found.out.read_text().splitlines()) == 2


def test_a_failure_is_told_in_the_exit_status(tmp_path, capsys):
    failed = row("n=1", time_us=None, ratio=None, checked=False) | {"fault": "no"}
    assert run_cases(CASES[:1], lambda case: [failed], options(tmp_path)) == 1
    assert "FAILED n=1 etproto.a: no" in capsys.readouterr().out
    assert run_cases(CASES, lambda case: [], options(tmp_path, "--cases", "n=4")) == 1


def test_a_time_without_a_check_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="n=1 etproto.a: a time without a checked output is not written"):
        write_csv([row("n=1", checked=False)], options(tmp_path))


def test_columns_are_those_of_all_rows(tmp_path):
    found = options(tmp_path)
    write_csv([row("n=1"), row("n=2") | {"workers": 3}], found)
    with found.out.open(newline="") as file:
        assert [one["workers"] for one in csv.DictReader(file)] == ["", "3"]


def test_summary():
    rows = [
        row("n=1", ratio=2.0),
        row("n=2", ratio=0.5),
        row("n=1", "etproto.b", ratio=1.0),
        row("n=2", "cublas.g", ratio=1.0),
    ]
    lines = {line.split("  ")[0]: line.split() for line in summary(rows).splitlines()}
    assert lines["etproto.a"][-4:] == ["2", "1.000", "0.500", "n=2"]
    assert lines["best of etproto"][-4:] == ["2", "1.000", "0.500", "n=2"]
    assert lines["etproto.b"][-4:] == ["1", "1.000", "1.000", "n=1"]


def test_quick_cases(tmp_path, fake_variant, fake_timer):
    seen = []

    def build(case, found):
        seen.append(str(case))
        return {"etproto.a": fake_variant}

    argv = ["--out", str(tmp_path / "x.csv"), "--quick"]
    assert run_variants("x", "text", CASES, CASES[:1], build, (), argv, fake_timer({})) == 0
    assert seen == ["n=1"]


def test_quickest(fake_variant):
    class Timing:
        """Times come from the calls, which are numbers here."""

        def __init__(self, calls):
            self.times = iter(calls)

        def replay(self):
            return next(self.times)

    def variant(*times):
        from dataclasses import replace

        return lambda: replace(fake_variant(), calls=times)

    def broken():
        raise RuntimeError("no")

    builders = {"a": variant(9.0, 3.0, 9.0), "b": variant(4.0, 4.0, 4.0), "c": broken}
    assert quickest(builders, Timing) == ("a", "a=3.0us b=4.0us c=failed")
    with pytest.raises(RuntimeError, match="c: RuntimeError: no"):
        quickest({"c": broken}, Timing)


def test_host_check():
    class Array:
        """As much of a CuPy array as is used."""

        def __init__(self, array):
            self.array = np.array(array)

        def set(self, array):
            self.array[...] = array

        def get(self):
            return self.array

    class Model:
        """Compares by the largest difference."""

        @staticmethod
        def compare(found, expected):
            return max(float(np.abs(found[name] - expected[name]).max()) for name in expected)

    host = [{"A": np.ones(2), "C": np.full(2, np.nan)} for _ in range(2)]
    expected = [{"C": np.full(2, value)} for value in (1.0, 2.0)]
    sets = [{name: Array(array) for name, array in tensors.items()} for tensors in host]
    poison, error = host_check(Model, host, expected, sets)
    for tensors in sets:
        tensors["C"].set(1.5)
    assert error() == 0.5
    poison()
    assert np.isnan(sets[1]["C"].get()).all()
    assert host_check(Model, host, [{}, {}], sets)[1]() == 0.0


def test_row_digits():
    assert row_of("x", CASES[0], "a", Measured(0.123456, 0.01, 0.0), {}, digits=5)["time_us"] == 0.12346
