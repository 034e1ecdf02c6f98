"""Traces: what every executor returns, with their summary, independent re-check and Chrome/Perfetto form."""

from __future__ import annotations

from etproto.trace.chrome import check_chrome, from_chrome, to_chrome
from etproto.trace.records import (
    ROLE_COMPUTE,
    ROLE_LOAD,
    ROLE_NAMES,
    ROLE_SCHEDULER,
    ROLE_STORE,
    SPAN_NAMES,
    SPAN_POP,
    SPAN_PUSH,
    SPAN_TASK,
    SPAN_WAIT,
    Trace,
)
from etproto.trace.summary import Summary, critical_path, summarize
from etproto.trace.verify import verify

__all__ = [
    "ROLE_COMPUTE",
    "ROLE_LOAD",
    "ROLE_NAMES",
    "ROLE_SCHEDULER",
    "ROLE_STORE",
    "SPAN_NAMES",
    "SPAN_POP",
    "SPAN_PUSH",
    "SPAN_TASK",
    "SPAN_WAIT",
    "Summary",
    "Trace",
    "check_chrome",
    "critical_path",
    "from_chrome",
    "summarize",
    "to_chrome",
    "verify",
]
