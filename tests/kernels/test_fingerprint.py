"""The key of a cached kernel changes with everything that the kernel depends on, and with nothing else."""

from __future__ import annotations

import importlib.util
import types

import numba
import numpy as np
import pytest

from etproto.kernels import fingerprint as module
from etproto.kernels.fingerprint import compiler_versions, fingerprint
from etproto.kernels.source import kernel_function
from etproto.kernels.tiles.bucket import chunk_sum
from etproto.kernels.tiles.row_sum import final_sum, partial_sum
from etproto.tile_kind import Operand, TileKind

BODY = """
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.memory import load_int32
import helpers
OFFSET = 1
TABLE = (1, 2)

@device_function
def called(x):
    return 2 * x

def closed(factor):
    def inner(x):
        return factor * x
    return inner

scaled = closed(3)

def body(i, out):
    out[i] = called(i) + OFFSET + scaled(i) + TABLE[1] + helpers.SIZE
"""


@pytest.fixture
def key_of(tmp_path, monkeypatch):
    """Key of ``body`` in a file of the given text, imported anew."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def key(text: str, size: int = 7) -> str:
        helpers = types.ModuleType("helpers")
        helpers.SIZE = size
        monkeypatch.setitem(__import__("sys").modules, "helpers", helpers)
        path = tmp_path / "edited.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("edited", path)
        edited = importlib.util.module_from_spec(spec)
        exec(compile(path.read_text(), str(path), "exec"), edited.__dict__)
        kind = TileKind("edited", edited.body, 1, (Operand("out", ndim=1, mode="out"),), portable=edited.body)
        return fingerprint(kernel_function((kind,)), (9, 0))

    return key


def test_the_same_text_has_the_same_key(key_of):
    assert key_of(BODY) == key_of(BODY)


@pytest.mark.parametrize(
    "old, new",
    [
        ("out[i] = called(i)", "out[i] = 1 + called(i)"),
        ("return 2 * x", "return 4 * x"),  # a function that the body calls
        ("OFFSET = 1", "OFFSET = 5"),
        ("TABLE = (1, 2)", "TABLE = (1, 3)"),
        ("closed(3)", "closed(4)"),  # a closure's constant
        ("return factor * x", "return factor + x"),  # the code of a function made by another
        ("called(i) + OFFSET", "called(i) - OFFSET"),
    ],
)
def test_an_edit_changes_the_key(key_of, old, new):
    assert BODY.count(old) == 1
    assert key_of(BODY) != key_of(BODY.replace(old, new))


def test_a_constant_of_another_module_changes_the_key(key_of):
    assert key_of(BODY) != key_of(BODY, size=8)


def test_comments_do_not_change_the_key(key_of):
    assert key_of(BODY) == key_of(BODY + "# the end\n")


def test_layout_constants_are_part_of_the_key(monkeypatch):
    from etproto import layout as L

    before = fingerprint(kernel_function((partial_sum, final_sum)))
    monkeypatch.setattr(L, "STATUS_FINISHED", 17)
    assert fingerprint(kernel_function((partial_sum, final_sum))) != before


def test_kinds_their_order_and_parameters_are_part_of_the_key():
    keys = [
        fingerprint(kernel_function(kinds))
        for kinds in ((partial_sum, final_sum), (final_sum, partial_sum), (chunk_sum(8),), (chunk_sum(16),))
    ]
    assert len(set(keys)) == 4


def test_architecture_and_versions_are_part_of_the_key(monkeypatch):
    kernel = kernel_function((final_sum,))
    assert fingerprint(kernel, (8, 0)) != fingerprint(kernel, (9, 0))
    before = fingerprint(kernel)
    versions = compiler_versions()
    assert {"python", "numba", "numba-cuda", "llvmlite", "numpy"} <= set(versions)
    monkeypatch.setattr(module, "compiler_versions", lambda: {**versions, "numba-cuda": "0.0"})
    assert fingerprint(kernel) != before


def test_ptx_of_an_intrinsic_is_part_of_the_key(monkeypatch):
    from etproto.kernels.ptx.memory import load_acquire_int32

    kernel = kernel_function((final_sum,))
    before = fingerprint(kernel)
    monkeypatch.setattr(load_acquire_int32, "__ptx__", ("ld.volatile", ""))
    assert fingerprint(kernel) != before


def test_arrays_and_scalars_in_closures():
    def made(value):
        return lambda: value

    values = [
        1,
        1.0,
        "1",
        (1,),
        (1, 2),
        (1, 23),
        (12, 3),
        ((1,), 2),
        np.arange(3),
        np.arange(4),
        np.arange(3.0),
    ]
    values += [
        None,
        True,
        np.float32,
        np.float64,
        np.dtype("f4"),
        np.dtype("f8"),
        numba.float32,
        numba.float64,
    ]
    assert len({fingerprint(made(value)) for value in values}) == len(values)
    assert fingerprint(made(np.arange(3))) == fingerprint(made(np.arange(3)))
