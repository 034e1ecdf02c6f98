"""Traces as Chrome trace JSON, which Perfetto and chrome://tracing open, and back.

One process a rank, one thread a (worker, role) lane. What is drawn has overlaps of a lane clamped;
the recorded times stand beside it in each slice's ``args``, and everything else a `Trace` knows in
``otherData``, so that nothing is lost on the way back.

Format: the "Trace Event Format" document of the Chromium project.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from etproto.errors import FileFormatError
from etproto.tasks import TaskArrays
from etproto.trace.files import META, meta_of, tasks_from_json, tasks_to_json
from etproto.trace.records import (
    ROLE_COMPUTE,
    ROLE_NAMES,
    SPAN_NAMES,
    SPAN_TASK,
    Trace,
    clamp_lanes,
    rows_of,
)

__all__ = ["FORMAT", "MAX_FLOWS", "check_chrome", "from_chrome", "to_chrome"]

FORMAT = "etproto-trace-1"
MAX_FLOWS = 20_000  # arrows beyond this make the viewers slow and the picture black
PHASES = frozenset("BEXiICbnestfPNODMVvRc(),")
ARGS = ("task", "kind", "grid", "epoch", "sm", "event")  # integer columns kept as they are in a slice's args
TIME_ARGS = {"ready_ns": "ready", "start_ns": "start", "end_ns": "end"}


def to_chrome(trace: Trace, tasks: TaskArrays | None = None, max_flows: int = MAX_FLOWS) -> dict[str, Any]:
    """The trace as a Chrome trace object, ready for `json.dump`.

    Parameters
    ----------
    trace : Trace
        A run. A time unit of an abstract trace is drawn as a nanosecond.
    tasks : TaskArrays or None
        Draws an arrow from each notifying task to each task that waits for its event; None takes the tasks
        that the trace carries, if any.
    max_flows : int
        Most arrows drawn. Where there are more, only the notifier that satisfied each wait has one, and of
        those the first `max_flows`; ``otherData["flows"]`` says how many of how many were drawn, by which
        rule.

    Returns
    -------
    dict
        ``traceEvents`` (metadata, slices in the order of the trace's rows, arrows, counters) and
        ``otherData`` (every field of the trace, and ``clamped``: how many slices were moved because they
        overlapped an earlier one of their lane).

    Examples
    --------
    >>> trace = Trace(span=[0], worker=[0], start=[0], end=[1500], kind=[0], workers=1, kind_name=("gemm",),
    ...               makespan_ns=1500)
    >>> [(e["name"], e["ts"], e["dur"]) for e in to_chrome(trace)["traceEvents"] if e["ph"] == "X"]
    [('gemm', 0.0, 1.5)]
    """
    tasks = trace.tasks if tasks is None else tasks
    start, end, clamped = clamp_lanes(trace)
    ts, dur = _microseconds(start), _microseconds(end - start)
    tid = trace.worker.astype(np.int64) * len(ROLE_NAMES) + trace.role
    events = _metadata(trace, tid)
    columns = {name: getattr(trace, name).tolist() for name in (*ARGS, "coordinate")}
    columns |= {key: getattr(trace, name).tolist() for key, name in TIME_ARGS.items()}
    args = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for i, (span, pid, lane, begin, length) in enumerate(
        zip(trace.span.tolist(), trace.rank.tolist(), tid.tolist(), ts.tolist(), dur.tolist(), strict=True)
    ):
        slice_ = {"ph": "X", "name": trace.label(i), "cat": SPAN_NAMES[span], "pid": pid, "tid": lane}
        events.append({**slice_, "ts": begin, "dur": length, "args": args[i]})
    flows = {"drawn": 0, "of": 0, "rule": "none"}
    if tasks is not None:
        arrows, flows = _flows(trace, tasks, ts, dur, tid, max_flows)
        events += arrows
    for name, (time, value) in trace.counters.items():
        for at, amount in zip(_microseconds(time).tolist(), value.tolist(), strict=True):
            events.append({"ph": "C", "name": name, "pid": 0, "ts": at, "args": {"value": amount}})
    other = {
        "format": FORMAT,
        **meta_of(trace),
        "counters": {name: [time.tolist(), value.tolist()] for name, (time, value) in trace.counters.items()},
        "tasks": tasks_to_json(trace.tasks),
        "kept": trace.kept,
        "clamped": clamped,
        "flows": flows,
    }
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}


def _microseconds(ns: np.ndarray) -> np.ndarray:
    """`ns` / 1000, one bit up where a viewer that truncates 1000 times it would lose a nanosecond."""
    us = ns / 1000
    return np.where(np.floor(us * 1000) < np.floor(ns), np.nextafter(us, np.inf), us)


def _metadata(trace: Trace, tid: np.ndarray) -> list[dict[str, Any]]:
    """Names and order of processes and threads; every worker has its compute lane, even if it ran nothing."""
    stride = len(ROLE_NAMES)
    compute = range(ROLE_COMPUTE, trace.workers * stride, stride)
    lanes = {(rank, lane) for rank in range(trace.ranks) for lane in compute}
    lanes |= set(zip(trace.rank.tolist(), tid.tolist(), strict=True))
    what = " ".join(filter(None, (trace.executor, trace.schedule, trace.policy)))
    events = []
    for rank in range(trace.ranks):
        process = {"ph": "M", "pid": rank, "tid": 0}
        events.append({**process, "name": "process_name", "args": {"name": f"rank {rank} {what}".rstrip()}})
        events.append({**process, "name": "process_sort_index", "args": {"sort_index": rank}})
    for rank, lane in sorted(lanes):
        thread = {"ph": "M", "pid": rank, "tid": lane}
        name = f"worker {lane // stride} {ROLE_NAMES[lane % stride]}"
        events.append({**thread, "name": "thread_name", "args": {"name": name}})
        events.append({**thread, "name": "thread_sort_index", "args": {"sort_index": lane}})
    return events


def _flows(
    trace: Trace, tasks: TaskArrays, ts: np.ndarray, dur: np.ndarray, tid: np.ndarray, max_flows: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Arrows from the end of a notifying task to the beginning of a waiting one, within each epoch."""
    notifier = np.repeat(np.arange(tasks.count), np.diff(tasks.notify_ptr))
    waiter = np.repeat(np.arange(tasks.count), np.diff(tasks.wait_ptr))
    body = np.flatnonzero((trace.span == SPAN_TASK) & (trace.role == ROLE_COMPUTE))
    row = rows_of(tasks, trace.task[body])
    body, row = body[row >= 0], row[row >= 0]
    epochs = np.unique(trace.epoch[body])
    notifications = np.bincount(tasks.notify_event, minlength=tasks.events)
    total = int(notifications[tasks.wait_event].sum()) * len(epochs)
    rule = "every notifier" if total <= max_flows else "the notifier that satisfied the wait"
    events: list[dict[str, Any]] = []
    drawn = 0
    for epoch in epochs.tolist():
        slice_of = np.full(tasks.count, -1, np.int64)
        now = trace.epoch[body] == epoch
        slice_of[row[now]] = body[now]
        finish = np.where(slice_of >= 0, (ts + dur)[slice_of], np.inf)
        order = np.lexsort((finish[notifier], tasks.notify_event))  # notifiers of an event side by side
        first = np.cumsum(notifications) - notifications
        if total <= max_flows:
            count = notifications[tasks.wait_event]
            position = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            source = notifier[order[np.repeat(first[tasks.wait_event], count) + position]]
            target, event = np.repeat(waiter, count), np.repeat(tasks.wait_event, count)
        else:
            met = (tasks.event_need > 0) & (notifications >= tasks.event_need)
            some = np.flatnonzero(met[tasks.wait_event])
            target, event = waiter[some], tasks.wait_event[some]
            source = notifier[order[first[event] + tasks.event_need[event] - 1]]
        source, target = slice_of[source], slice_of[target]
        # An arrow begins just inside its slice, for at its very end the slice is already closed, and never
        # points back in time.
        begin = np.minimum(ts[source] + 0.999 * dur[source], ts[target])
        possible = np.flatnonzero((source >= 0) & (target >= 0) & (begin >= ts[source]))[: max_flows - drawn]
        for i in possible.tolist():
            a, b = int(source[i]), int(target[i])
            arrow = {"name": f"event {event[i]}", "cat": "event", "id": drawn}
            tail = {"pid": int(trace.rank[a]), "tid": int(tid[a]), "ts": float(begin[i])}
            head = {"pid": int(trace.rank[b]), "tid": int(tid[b]), "ts": float(ts[b])}
            events += [{"ph": "s", **arrow, **tail}, {"ph": "f", "bp": "e", **arrow, **head}]
            drawn += 1
    return events, {"drawn": drawn, "of": total, "rule": rule}


def from_chrome(obj: Any, source: str = "trace") -> Trace:
    """A trace from a Chrome trace object: ours without loss, of others the complete ("X") events.

    Parameters
    ----------
    obj : dict or list
        The parsed JSON: an object with ``traceEvents``, or the bare list of events.
    source : str
        Name for error texts.

    Returns
    -------
    Trace
        For a foreign file: a rank for each pid and a worker for each tid in order of appearance, a kind for
        each name, times from the first slice on, the number of events of other phases in
        ``extra["ignored_events"]``; tasks, grids and events -1.

    Raises
    ------
    FileFormatError
        If there is no complete event, or one lacks a field or has a wrong one.
    """
    events = obj.get("traceEvents") if isinstance(obj, dict) else obj
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise FileFormatError(
            f'{source}:1: expected a Chrome trace: an object with "traceEvents", or a list of such events'
        )
    other = obj.get("otherData") if isinstance(obj, dict) else None
    slices = [(i, event) for i, event in enumerate(events) if event.get("ph") == "X"]
    if isinstance(other, dict) and other.get("format") == FORMAT:
        return _ours([event for _, event in slices], other, source)
    return _foreign(events, slices, source)


def _ours(slices: list[dict[str, Any]], other: dict[str, Any], source: str) -> Trace:
    try:
        columns = {name: [event["args"][name] for event in slices] for name in (*ARGS, "coordinate")}
        columns |= {name: [event["args"][key] for event in slices] for key, name in TIME_ARGS.items()}
        lanes = np.array([event["tid"] for event in slices], np.int64)
        return Trace(
            **columns,
            span=[SPAN_NAMES.index(event["cat"]) for event in slices],
            rank=[event["pid"] for event in slices],
            worker=lanes // len(ROLE_NAMES),
            role=lanes % len(ROLE_NAMES),
            **{name: other[name] for name in META},
            counters={name: tuple(pair) for name, pair in other["counters"].items()},
            tasks=tasks_from_json(other["tasks"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{source}:1: expected the fields of an {FORMAT} file: {error!r}") from None


def _foreign(events: list[dict[str, Any]], slices: list[tuple[int, dict[str, Any]]], source: str) -> Trace:
    if not slices:
        raise FileFormatError(f'{source}:1: expected at least one complete event ("ph": "X"), got {len(events)} events')
    for i, event in slices:
        for name in ("ts", "dur"):
            value = event.get(name)
            if not _number(value) or (name == "dur" and value < 0):
                raise FileFormatError(f"{source}:1: traceEvents[{i}] has {name} {value!r}, expected microseconds")
    ranks: dict[str, int] = {}
    workers: dict[str, dict[str, int]] = defaultdict(dict)
    kinds: dict[str, int] = {}
    rank, worker, kind = [], [], []
    for _, event in slices:
        pid, tid = str(event.get("pid", 0)), str(event.get("tid", 0))
        rank.append(ranks.setdefault(pid, len(ranks)))
        worker.append(workers[pid].setdefault(tid, len(workers[pid])))
        kind.append(kinds.setdefault(str(event.get("name", "unnamed")), len(kinds)))
    start = np.array([event["ts"] for _, event in slices], np.float64) * 1000
    end = start + np.array([event["dur"] for _, event in slices], np.float64) * 1000
    origin = start.min()
    counters: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    ignored: dict[str, int] = defaultdict(int)
    for event in events:
        phase, args = event.get("ph"), event.get("args")
        if phase == "C" and isinstance(args, dict) and _number(event.get("ts")):
            for key, value in args.items():
                if _number(value):
                    name = str(event.get("name", "counter"))
                    times, values = counters[name if len(args) == 1 else f"{name}.{key}"]
                    times.append(event["ts"] * 1000 - origin)
                    values.append(value)
        elif phase not in ("X", "M"):
            ignored[str(phase)] += 1
    return Trace(
        span=np.full(len(slices), SPAN_TASK),
        worker=worker,
        rank=rank,
        kind=kind,
        coordinate=np.full((len(slices), 4), -1),
        start=start - origin,
        end=end - origin,
        workers=max(len(tids) for tids in workers.values()),
        kind_name=tuple(kinds),
        makespan_ns=float(end.max() - origin),
        counters=dict(counters),
        extra={"ignored_events": dict(ignored)} if ignored else {},
    )


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and bool(np.isfinite(value))


def check_chrome(obj: Any) -> list[str]:
    """Faults of a Chrome trace object that viewers would draw wrongly or drop in silence; empty when sound.

    Checked: known phases, the fields each needs, durations >= 0, slices of a (pid, tid) lane that do not
    overlap, and arrows ("s" to "f") that have both ends, go forward in time and touch a slice at each end.

    Examples
    --------
    >>> check_chrome([{"ph": "X", "name": "a", "pid": 0, "tid": 0, "ts": 0, "dur": 2},
    ...               {"ph": "X", "name": "b", "pid": 0, "tid": 0, "ts": 1, "dur": 2}])
    ['traceEvents[1] b of lane 0/0 begins at 1 us, before a ends at 2 us']
    """
    events = obj.get("traceEvents") if isinstance(obj, dict) else obj
    if not isinstance(events, list):
        return ['no list of events under "traceEvents"']
    faults: list[str] = []
    slices: dict[tuple[str, str], list[tuple[float, float, int, str]]] = defaultdict(list)
    arrows: dict[tuple[str, str], dict[str, tuple[int, dict[str, Any]]]] = defaultdict(dict)
    needed = {
        "X": ("name", "pid", "tid", "ts", "dur"),
        "C": ("name", "pid", "ts", "args"),
        "M": ("name", "pid", "args"),
    }
    flow = ("name", "cat", "id", "pid", "tid", "ts")
    for i, event in enumerate(events):
        phase = event.get("ph") if isinstance(event, dict) else None
        if not isinstance(phase, str) or phase not in PHASES:
            faults.append(f"traceEvents[{i}] has unknown phase {phase!r}")
            continue
        fields = flow if phase in "stf" else needed.get(phase, ("pid", "ts"))
        missing = [name for name in fields if name not in event]
        bad = [name for name in ("ts", "dur") if name in event and not _number(event[name])]
        if missing or bad:
            faults += [f"traceEvents[{i}] ({phase}) lacks {name}" for name in missing]
            faults += [f"traceEvents[{i}] ({phase}) has {name} {event[name]!r}, expected a number" for name in bad]
            continue
        lane = (str(event["pid"]), str(event.get("tid", 0)))
        if phase == "X" and event["dur"] < 0:
            faults.append(f"traceEvents[{i}] {event['name']} has negative duration {event['dur']:g} us")
        elif phase == "X":
            slices[lane].append((event["ts"], event["ts"] + event["dur"], i, str(event["name"])))
        elif phase in "sf":
            arrows[str(event["cat"]), str(event["id"])][phase] = (i, event)

    for lane, rows in slices.items():
        rows.sort()
        longest = rows[0]
        for row in rows[1:]:
            if row[0] < longest[1] - _rounding(longest[1]):
                where = f"traceEvents[{row[2]}] {row[3]} of lane {lane[0]}/{lane[1]}"
                faults.append(f"{where} begins at {row[0]:.15g} us, before {longest[3]} ends at {longest[1]:.15g} us")
            longest = max(longest, row, key=lambda r: r[1])
    return faults + _check_arrows(arrows, slices)


def _check_arrows(
    arrows: dict[tuple[str, str], dict[str, tuple[int, dict[str, Any]]]],
    slices: dict[tuple[str, str], list[tuple[float, float, int, str]]],
) -> list[str]:
    faults = []
    begins = {lane: np.array([row[0] for row in rows]) for lane, rows in slices.items()}
    latest = {lane: np.maximum.accumulate([row[1] for row in rows]) for lane, rows in slices.items()}
    for (_, name), ends in arrows.items():
        for phase in "sf":
            if phase not in ends:
                faults.append(f"flow {name} has no {'beginning (s)' if phase == 's' else 'end (f)'}")
                continue
            i, event = ends[phase]
            lane, ts = (str(event["pid"]), str(event["tid"])), event["ts"]
            place = -1
            if lane in begins:
                place = int(np.searchsorted(begins[lane], ts + _rounding(ts), side="right")) - 1
            if place < 0 or latest[lane][place] < ts - _rounding(ts):
                faults.append(f"traceEvents[{i}] ({phase}) of flow {name} touches no slice of lane {lane[0]}/{lane[1]}")
        if len(ends) == 2 and ends["f"][1]["ts"] < ends["s"][1]["ts"]:
            faults.append(f"flow {name} ends before it begins")
    return faults


def _rounding(us: float) -> float:
    """What a sum of two microsecond numbers may be off by."""
    return 1e-6 + 1e-12 * abs(us)
