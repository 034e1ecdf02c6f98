"""Declared regions against what references really touch, for every task of every bundled program."""

from __future__ import annotations

import numpy as np
import pytest

from etproto.models import MODELS

CASES = {
    "splitk": {"n": 2},
    "cholesky": {"tiles": 3, "tile": 4},
    "gemm": {"M": 11, "N": 7, "K": 9, "splits": 3, "tile_m": 4, "tile_n": 4, "tile_k": 2},
    "bucket_sum": {"rows": 30, "buckets": 5, "width": 3, "chunk": 4, "block": 8},
}


def poison(array):
    """A value that no right result can come from, and that no index can be."""
    return np.nan if array.dtype.kind == "f" else -(10**6)


def regions(function, mode, kind, coordinate, operands):
    """Declared regions, or the whole of the operands that the kind uses that way."""
    if function is not None:
        return function(*coordinate, *operands)
    return {o.name: (slice(None),) * o.ndim for o in kind.operands if o.mode in mode}


@pytest.mark.parametrize("name", CASES)
def test_regions_cover_what_is_touched(tasks_in_order, name):
    model = MODELS[name]
    target = model.build(**CASES[name])
    tensors = model.make_tensors(target, np.random.default_rng(0))
    tasks = 0
    for kind, coordinate, operands in tasks_in_order(model, target, tensors):
        where = f"{kind.name}{coordinate}"
        names = [operand.name for operand in kind.operands]
        reads = regions(kind.reads, ("in", "inout"), kind, coordinate, operands)
        writes = regions(kind.writes, ("out", "inout"), kind, coordinate, operands)
        assert set(reads) | set(writes) <= set(names), where
        # Operands of their own, poisoned wherever the task does not say that it reads.
        narrow = []
        for operand, array in zip(kind.operands, operands, strict=True):
            given = np.full_like(array, poison(array))
            if operand.name in reads:
                given[reads[operand.name]] = array[reads[operand.name]]
            narrow.append(given)
        before = [array.copy() for array in narrow]
        kind.reference(*coordinate, *narrow)
        # Inputs that share a tensor with an output (Cholesky) must be as they were when the task starts.
        kind.reference(*coordinate, *operands)
        for operand, was, now, real in zip(kind.operands, before, narrow, operands, strict=True):
            outside = np.ones(was.shape, bool)
            if operand.name in writes:
                region = writes[operand.name]
                outside[region] = False
                assert len(region) == was.ndim, where
                np.testing.assert_array_equal(now[region], real[region], err_msg=f"{where} {operand.name}")
                if operand.mode == "out":
                    assert not (now[region] == poison(now)).any() and not np.isnan(now[region]).any(), where
            np.testing.assert_array_equal(now[outside], was[outside], err_msg=f"{where} {operand.name}")
        tasks += 1
    assert tasks > 5


@pytest.mark.parametrize("name", CASES)
def test_costs(tasks_in_order, name):
    model = MODELS[name]
    target = model.build(**CASES[name])
    tensors = model.make_tensors(target, np.random.default_rng(0))
    for kind, coordinate, operands in tasks_in_order(model, target, tensors):
        cost = kind.cost(*coordinate, *operands) if callable(kind.cost) else kind.cost
        assert 0 < cost < 100
        kind.reference(*coordinate, *operands)
