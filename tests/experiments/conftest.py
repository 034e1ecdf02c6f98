"""Scripts without a GPU: variants that compute nothing, a timer that knows their times, a provenance of its own."""

from __future__ import annotations

import pytest

from experiments import common
from experiments.variants import Measured, Variant


@pytest.fixture(autouse=True)
def _no_device(monkeypatch):
    monkeypatch.setattr(common, "provenance", lambda options: {"commit": options.commit or "c0ffee", "gpu": "none"})


def _variant(**facts) -> Variant:
    return Variant([lambda stream: None], lambda: None, lambda: 0.0, 1.0, facts)


def _timer(times: dict[str, float]):
    def timer(variants, repeats):
        found = {}
        for name in variants:
            value = times.get(name, 10.0)
            found[name] = Measured(value, 0.5, 0.001) if value > 0 else Measured(None, None, 0.7, "relative error 0.7")
        return found

    return timer


@pytest.fixture
def fake_variant():
    """``fake_variant(**facts)``: a variant that does nothing."""
    return _variant


@pytest.fixture
def fake_timer():
    """``fake_timer({variant: us})``: a timer; other variants take 10 us, a time below zero is a wrong output."""
    return _timer
