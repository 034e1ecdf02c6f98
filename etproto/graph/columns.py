"""Columns of a task graph: read-only, of the right length, refused rather than rounded, cut or wrapped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from etproto.errors import GraphError

__all__ = ["array", "items", "read_only"]

_INT32 = np.iinfo(np.int32)


def read_only(values: np.ndarray) -> np.ndarray:
    """The array itself, no longer writeable."""
    values.setflags(write=False)
    return values


def array(what: str, values: Any, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """A read-only copy of `values`; -1 in `shape` is any length, and then one dimension may stand for two."""
    try:
        given = np.asarray(values)
    except ValueError as error:
        raise GraphError(f"{what}: expected an array of shape {shape}, got a ragged one") from error
    integer = dtype is np.int32
    if given.size and given.dtype.kind not in ("iub" if integer else "iubf"):
        raise GraphError(f"{what}: expected {'whole ' if integer else ''}numbers, got {given.dtype}")
    if -1 in shape and given.ndim == 1:
        given = given[:, None]
    if given.ndim != len(shape) or any(want not in (-1, got) for want, got in zip(shape, given.shape, strict=True)):
        raise GraphError(f"{what}: expected shape {shape}, got {given.shape}")
    if integer and given.size and not (_INT32.min <= int(given.min()) and int(given.max()) <= _INT32.max):
        raise GraphError(f"{what}: expected 32-bit integers, got {given.min()} to {given.max()}")
    return read_only(given.astype(dtype))


def items(what: str, values: Iterable, count: int) -> tuple:
    """The `count` values, one a task."""
    values = tuple(values)
    if len(values) != count:
        raise GraphError(f"{what}: expected {count}, one a task, got {len(values)}")
    return values
