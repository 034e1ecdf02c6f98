from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etproto.errors import FileFormatError
from etproto.trace import (
    ROLE_LOAD,
    SPAN_TASK,
    SPAN_WAIT,
    Trace,
    check_chrome,
    from_chrome,
    summarize,
    to_chrome,
    verify,
)


def slices(chrome):
    return [event for event in chrome["traceEvents"] if event["ph"] == "X"]


def test_lanes_names_and_microseconds():
    trace = Trace(
        span=[SPAN_WAIT, SPAN_TASK, SPAN_TASK],
        worker=[2, 2, 2],
        role=[0, 0, ROLE_LOAD],
        rank=[1, 1, 1],
        start=[0, 1500, 100],
        end=[1500, 4000, 900],
        event=[7, -1, -1],
        kind=[-1, 0, 0],
        grid=[-1, 0, -1],
        coordinate=[[0] * 4, [3, 4, 0, 0], [0] * 4],
        kind_name=("gemm",),
        grid_name=("up",),
        grid_ndim=(2,),
        workers=3,
        makespan_ns=4000,
    )
    chrome = to_chrome(trace)
    rows = [(e["name"], e["cat"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in slices(chrome)]
    assert rows == [
        ("wait event 7", "wait", 1, 8, 0.0, 1.5),
        ("up[3, 4]", "task", 1, 8, 1.5, 2.5),
        ("gemm", "task", 1, 9, 0.1, 0.8),
    ]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in chrome["traceEvents"] if e["name"] == "thread_name"}
    assert names[1, 8] == "worker 2 compute" and names[1, 9] == "worker 2 load"
    assert names[0, 0] == "worker 0 compute", "a worker that ran nothing has its lane"
    assert len(names) == 7
    assert check_chrome(chrome) == []


def test_viewer_that_truncates_sees_every_nanosecond():
    start = np.arange(20_000.0)  # 1.001 * 1000 is not the only one below its integer
    trace = Trace(
        span=np.zeros(20_000, int),
        worker=np.zeros(20_000, int),
        start=start,
        end=start + 1,
        workers=1,
        makespan_ns=start[-1] + 1,
    )
    assert [int(e["ts"] * 1000) for e in slices(to_chrome(trace))] == start.astype(int).tolist()


def test_overlap_through_skew_is_clamped_and_counted(same):
    trace = Trace(span=[0, 0, 0], worker=[0] * 3, start=[0, 95, 190], end=[100, 200, 180], workers=1, makespan_ns=200)
    chrome = to_chrome(trace)
    assert [(e["ts"], e["dur"]) for e in slices(chrome)] == [(0, 0.1), (0.1, 0.1), (0.2, 0)]
    assert chrome["otherData"]["clamped"] == 2
    assert check_chrome(chrome) == []
    same(from_chrome(chrome), trace)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3), st.floats(0, 1e10), st.floats(-5, 1e9)),
        max_size=30,
    )
)
def test_any_lanes_are_drawn_without_overlap(rows):
    span, worker, role, start, length = (np.array(x) for x in zip(*rows, strict=True)) if rows else [[]] * 5
    end = np.add(start, length)
    trace = Trace(span=span, worker=worker, role=role, start=start, end=end, workers=3, makespan_ns=2e10)
    chrome = to_chrome(trace)
    assert check_chrome(chrome) == []
    assert len(slices(chrome)) == len(rows)


def test_flows_join_notifier_and_waiter(diamond_run):
    chrome = to_chrome(diamond_run)
    name_at = {}
    for e in slices(chrome):
        name_at.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"], e["name"]))

    def bound(event):
        return next(n for a, b, n in name_at[event["tid"]] if a <= event["ts"] < b)

    begin = {e["id"]: bound(e) for e in chrome["traceEvents"] if e["ph"] == "s"}
    finish = {e["id"]: bound(e) for e in chrome["traceEvents"] if e["ph"] == "f"}
    arcs = sorted((begin[i], finish[i]) for i in begin)
    assert arcs == [
        ("gemm[0]", "gemm[1]"),
        ("gemm[0]", "gemm[2]"),
        ("gemm[1]", "gemm[3]"),
        ("gemm[2]", "gemm[3]"),
    ]
    assert all(e["bp"] == "e" for e in chrome["traceEvents"] if e["ph"] == "f")
    assert chrome["otherData"]["flows"] == {"drawn": 4, "of": 4, "rule": "every notifier"}
    assert check_chrome(chrome) == []


def test_flows_are_capped_with_a_stated_count(diamond_run):
    chrome = to_chrome(diamond_run, max_flows=3)
    assert chrome["otherData"]["flows"] == {
        "drawn": 3,
        "of": 4,
        "rule": "the notifier that satisfied the wait",
    }
    ends = [e for e in chrome["traceEvents"] if e["ph"] == "s" and e["name"] == "event 1"]
    assert len(ends) == 1 and ends[0]["tid"] == 0, "gemm[1] on worker 0 notified event 1 last"
    assert to_chrome(diamond_run, max_flows=1)["otherData"]["flows"]["drawn"] == 1


def test_flow_against_the_clock_never_points_back(tasks_of, run_of):
    tasks = tasks_of([[], [0], [0]], [[0], [], []], [1])
    chrome = to_chrome(run_of(tasks, [0, 1, 2], [10, 15, 5], [20, 30, 30]), tasks)
    assert check_chrome(chrome) == []
    assert chrome["otherData"]["flows"] == {"drawn": 1, "of": 2, "rule": "every notifier"}


def test_dependences_travel_with_the_trace(diamond_run):
    again = from_chrome(json.loads(json.dumps(to_chrome(diamond_run))))
    assert verify(again) == [] and summarize(again).critical_path == 50


def test_counters_are_drawn_and_come_back():
    trace = Trace(
        span=[],
        worker=[],
        start=[],
        end=[],
        workers=1,
        makespan_ns=9,
        counters={"queue": ([0, 1000], [3, 4])},
    )
    chrome = to_chrome(trace)
    drawn = [(e["name"], e["ts"], e["args"]) for e in chrome["traceEvents"] if e["ph"] == "C"]
    assert drawn == [("queue", 0.0, {"value": 3.0}), ("queue", 1.0, {"value": 4.0})]
    assert from_chrome(chrome).counters["queue"][1].tolist() == [3, 4]


def test_foreign_trace_loads():
    events = [
        {"ph": "M", "name": "process_name", "pid": "GPU", "args": {"name": "x"}},
        {"ph": "X", "name": "conv", "pid": "GPU", "tid": "stream 7", "ts": 1000.5, "dur": 2},
        {"ph": "X", "name": "relu", "pid": "GPU", "tid": 8, "ts": 1001, "dur": 1.5},
        {"ph": "X", "name": "conv", "pid": 3, "tid": 8, "ts": 1003, "dur": 1},
        {"ph": "C", "name": "bytes", "pid": 3, "ts": 1001.5, "args": {"live": 7}},
        {"ph": "B", "name": "open", "pid": 3, "tid": 8, "ts": 1003},
    ]
    for obj in (events, {"traceEvents": events}):
        trace = from_chrome(obj)
        assert trace.kind_name == ("conv", "relu") and trace.kind.tolist() == [0, 1, 0]
        assert (trace.rank.tolist(), trace.worker.tolist(), trace.workers) == ([0, 0, 1], [0, 1, 0], 2)
        assert (trace.start.tolist(), trace.end.tolist()) == ([0, 500, 2500], [2000, 2000, 3500])
        assert set(trace.task) == set(trace.grid) == set(trace.sm) == set(trace.event) == {-1}
        assert trace.counters["bytes"][0].tolist() == [1000] and trace.makespan_ns == 3500
        assert trace.extra == {"ignored_events": {"B": 1}}
        assert summarize(trace).kinds[0][:2] == ("conv", 2)


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (3, '"traceEvents"'),
        ({"traceEvents": {}}, '"traceEvents"'),
        ([1], '"traceEvents"'),
        ([], "at least one complete event"),
        ([{"ph": "X", "ts": "soon", "dur": 1}], r"traceEvents\[0\] has ts 'soon', expected microseconds"),
        ([{"ph": "X", "ts": 1}], r"traceEvents\[0\] has dur None"),
        ([{"ph": "X", "ts": 1, "dur": -1}], r"traceEvents\[0\] has dur -1"),
    ],
)
def test_no_trace_is_refused_by_name(obj, text):
    with pytest.raises(FileFormatError, match=text):
        from_chrome(obj, source="in.json")


def test_damaged_file_of_ours_is_refused(diamond_run):
    for damage in (
        lambda c: c["otherData"].pop("workers"),
        lambda c: slices(c)[0]["args"].pop("task"),
        lambda c: slices(c)[0].update(cat="nonsense"),
        lambda c: c["otherData"].update(workers=1),
        lambda c: c["otherData"]["tasks"].pop("kind"),
    ):
        chrome = json.loads(json.dumps(to_chrome(diamond_run)))
        damage(chrome)
        with pytest.raises(FileFormatError, match="expected the fields of an etproto-trace-1 file"):
            from_chrome(chrome)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda e: e["X"][1].update(ts=0.005), "begins at 0.005 us, before gemm[0] ends at 0.01 us"),
        (lambda e: e["X"][1].update(ph="?"), "unknown phase '?'"),
        (lambda e: e["X"][1].pop("ph"), "unknown phase None"),
        (lambda e: e["X"][1].pop("dur"), "(X) lacks dur"),
        (lambda e: e["X"][1].update(ts="1"), "has ts '1', expected a number"),
        (lambda e: e["X"][1].update(dur=-1), "gemm[1] has negative duration -1 us"),
        (lambda e: e["s"][0].update(ts=99), "(s) of flow 0 touches no slice of lane 0/0"),
        (lambda e: e["f"][0].update(tid=77), "(f) of flow 0 touches no slice of lane 0/77"),
        (lambda e: e["f"][0].update(id="lost"), "flow 0 has no end (f)"),
        (lambda e: e["s"][0].update(id="lost"), "flow 0 has no beginning (s)"),
        (lambda e: e["f"][2].update(tid=0, ts=0.0), "flow 2 ends before it begins"),
    ],
)
def test_checker_finds_each_fault(diamond_run, damage, text):
    chrome = to_chrome(diamond_run)
    by_phase = {}
    for event in chrome["traceEvents"]:
        by_phase.setdefault(event["ph"], []).append(event)
    damage(by_phase)
    faults = check_chrome(chrome)
    assert any(text in fault for fault in faults), faults


def test_checker_remembers_the_longest_slice():
    """The third slice begins inside the first, though after the end of the second."""
    rows = [(0, 10), (1, 1), (5, 1)]
    events = [{"ph": "X", "name": "abc"[i], "pid": 0, "tid": 0, "ts": t, "dur": d} for i, (t, d) in enumerate(rows)]
    faults = check_chrome(events)
    assert len(faults) == 2 and "c of lane 0/0 begins at 5 us, before a ends at 10 us" in faults[1]


def test_checker_of_no_trace():
    assert check_chrome(3) and check_chrome({}) and check_chrome([3])
