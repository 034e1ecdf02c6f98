"""Every schedule of the bundled programs is legal, whatever the number of workers; a damaged one is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etproto.check import check
from etproto.lowering import lower
from etproto.models import bucket_sum, gemm, splitk
from etproto.schedule import schedule

PROGRAMS = {
    "splitk": lambda: splitk.program().bind(n=9),
    "gemm": lambda: gemm.MODEL.builder(**gemm.MODEL.symbols),
    "bucket_sum": lambda: bucket_sum.program(buckets=5).bind(rows=70),
}


@pytest.mark.parametrize("kind", ["static", "device-static", "dynamic", "mixed"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_bundled_schedules_are_legal(name, kind):
    lowered = lower(PROGRAMS[name]())
    for workers in (1, 2, 7):
        result = check(schedule(lowered, kind, workers=workers))
        assert result.ok, str(result)


@pytest.mark.parametrize("name", PROGRAMS)
def test_reversed_lists_are_refused(name):
    good = schedule(lower(PROGRAMS[name]()), "static", workers=2)
    bad = replace(good, worker_task=good.worker_task[::-1].copy())
    assert "the static order deadlocks" in check(bad).errors[0]
