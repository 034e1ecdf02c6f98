from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etproto.errors import EtprotoError, FileFormatError
from etproto.trace import SPAN_POP, SPAN_TASK, SPAN_WAIT, Trace

BIG = 2**31 + 5


def rich_trace(tasks) -> Trace:
    return Trace(
        span=[SPAN_WAIT, SPAN_TASK, SPAN_POP],
        task=[BIG, BIG, -1],
        kind=[-1, 0, -1],
        grid=[-1, 1, -1],
        coordinate=[[0, 0, 0, 0], [2, -1, 0, 7], [0, 0, 0, 0]],
        rank=[0, 1, 0],
        worker=[1, 299, 0],
        role=[0, 2, 3],
        epoch=[0, 70_000, 1],
        sm=[-1, 131, 0],
        event=[2**40, -1, -1],
        ready=[-1, 0.1, -1],
        start=[0.0, 0.1 + 0.2, 1e10 + 1 / 3],
        end=[0.3, 1e10, 1.5e10],
        executor="cuda",
        schedule="dynamic",
        policy="fifo",
        workers=300,
        kind_name=("gemm",),
        grid_name=("a", "b"),
        grid_ndim=(1, 2),
        makespan_ns=1.6e10,
        dropped=3,
        clock_residual_ns=12.25,
        status="watchdog",
        counters={"queue length": ([0, 1 / 3, 2e10], [0, 5, 2**52 + 1]), "empty": ([], [])},
        extra={"max_rel_error": None, "gpu": "é", "nested": {"a": [1, 2.5]}},
        tasks=tasks,
    )


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_saved_trace_comes_back_equal(tmp_path, suffix, diamond, tasks_of, same):
    for tasks in (None, diamond, tasks_of([], [], [])):
        trace = rich_trace(tasks)
        trace.save(tmp_path / f"run{suffix}")
        same(Trace.load(tmp_path / f"run{suffix}"), trace)


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_empty_trace_comes_back_equal(tmp_path, suffix, same):
    trace = Trace(span=[], worker=[], start=[], end=[], workers=4, makespan_ns=0)
    trace.save(tmp_path / f"run{suffix}")
    same(Trace.load(tmp_path / f"run{suffix}"), trace)
    assert "0 records, 4 workers" in str(trace)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_round_trip_of_any_spans(tmp_path_factory, same, data):
    time = st.floats(-1, 2**53, allow_nan=False)
    number = data.draw(st.integers(0, 12))

    def column(values):
        return data.draw(st.lists(values, min_size=number, max_size=number))

    trace = Trace(
        span=column(st.integers(0, 3)),
        task=column(st.integers(-1, 2**62)),
        event=column(st.integers(-1, 2**62)),
        role=column(st.integers(0, 3)),
        rank=column(st.integers(0, 7)),
        worker=column(st.integers(0, 299)),
        sm=column(st.integers(-1, 200)),
        epoch=column(st.integers(0, 2**31 - 1)),
        start=column(time),
        end=column(time),
        ready=column(time),
        workers=300,
        makespan_ns=data.draw(st.floats(0, 2**53)),
    )
    folder = tmp_path_factory.mktemp("trip")
    for suffix in (".npz", ".json"):
        trace.save(folder / f"run{suffix}")
        same(Trace.load(folder / f"run{suffix}"), trace)


def test_large_ids_and_300_workers_do_not_alias(tmp_path, tasks_of, run_of):
    ids = [7, 2**31 + 7, 2**32 + 7, 2**40 + 7]
    tasks = tasks_of([[]] * 4, [[]] * 4, [], ids=ids)
    trace = run_of(tasks, [0, 43, 255, 299], [0, 0, 0, 0], [5e9, 6e9, 10e9, 10e9 + 1])
    trace.save(tmp_path / "run.json")
    again = Trace.load(tmp_path / "run.json")
    assert again.task.tolist() == ids
    assert again.worker.tolist() == [0, 43, 255, 299]
    assert again.end.tolist() == [5e9, 6e9, 10e9, 10e9 + 1]


def test_defaults_mean_not_known():
    trace = Trace(span=[SPAN_TASK], worker=[0], start=[0], end=[1], workers=1, makespan_ns=1)
    assert (trace.task[0], trace.kind[0], trace.ready[0], trace.sm[0], trace.event[0]) == (-1, -1, -1, -1, -1)
    assert trace.label(0) == "task" and trace.kept == "1 records"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"start": [0, 1]}, r"column start has shape \(2,\), expected \(1,\)"),
        ({"worker": [1]}, "worker of row 0 is 1, expected 0 <= worker < 1"),
        ({"worker": [2**31]}, "column worker of row 0 is 2147483648, expected a finite int32"),
        ({"epoch": [0.5]}, "column epoch of row 0 is 0.5"),
        ({"end": [np.nan]}, "column end of row 0 is nan"),
        ({"span": [4]}, "span of row 0 is 4"),
        ({"role": [4]}, "role of row 0 is 4"),
        ({"kind": [0]}, "kind of row 0 is 0, expected -1 <= kind < 0"),
        ({"coordinate": [[0, 0]]}, r"coordinate has shape \(1, 2\), expected \(1, 4\)"),
        ({"makespan_ns": float("nan")}, "makespan_ns is nan"),
        ({"grid_name": ("a",)}, "0 grid_ndim for 1 grid names"),
        ({"counters": {"q": ([0], [1, 2])}}, r"counter 'q' has \(1,\) times and \(2,\) values"),
    ],
)
def test_wrong_columns_are_named(change, text):
    right = {"span": [0], "worker": [0], "start": [0], "end": [1], "workers": 1, "makespan_ns": 1}
    with pytest.raises(EtprotoError, match=text):
        Trace(**{**right, **change})


def test_facts_that_json_cannot_hold_are_refused(tmp_path):
    right = {"span": [0], "worker": [0], "start": [0], "end": [1], "workers": 1, "makespan_ns": 1}
    for value in (float("nan"), {1, 2}):
        for name in ("run.json", "run.npz"):
            with pytest.raises(EtprotoError, match="cannot be written as JSON"):
                Trace(**right, extra={"x": value}).save(tmp_path / name)
    Trace(**right, extra={"x": np.float32(0.5)}).save(tmp_path / "run.json")
    assert Trace.load(tmp_path / "run.json").extra == {"x": 0.5}


def test_bad_files_say_what_was_expected(tmp_path):
    def bad(name, content):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FileFormatError) as error:
            Trace.load(tmp_path / name)
        assert str(tmp_path / name) in str(error.value)
        return str(error.value)

    assert "bad.json:2: expected Chrome trace JSON" in bad("bad.json", b'{"a":\n nonsense}')
    assert "expected Chrome trace JSON in UTF-8" in bad("bad.json", b"\xff\xfe\x00")
    assert '"traceEvents"' in bad("bad.json", b"{}")
    assert "at least one complete event" in bad("bad.json", b'{"traceEvents": []}')
    assert "expected the fields of an etproto-trace-1 file" in bad(
        "bad.json", b'{"traceEvents": [], "otherData": {"format": "etproto-trace-1"}}'
    )
    for content in (b"", b"nonsense", b"PK\x03\x04 torn"):
        assert "expected the columns of an etproto trace" in bad("bad.npz", content)
    assert "ending in .npz or .json" in bad("bad.txt", b"")
    with zipfile.ZipFile(tmp_path / "other.npz", "w"):
        pass
    assert "expected the columns" in bad("other.npz", (tmp_path / "other.npz").read_bytes())
    with pytest.raises(FileFormatError, match=r"ending in \.npz or \.json"):
        rich_trace(None).save(tmp_path / "run.txt")


def test_json_file_is_strict_json(tmp_path, diamond_run):
    diamond_run.save(tmp_path / "run.json")

    def refuse(text):
        raise AssertionError(text)

    assert json.loads((tmp_path / "run.json").read_text(), parse_constant=refuse)["otherData"]["workers"] == 2
