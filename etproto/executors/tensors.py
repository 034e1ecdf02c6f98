"""What every executor asks of the arrays that it is given: names, types, shapes, layout, and no copies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from etproto.errors import ProgramError
from etproto.lowering import Lowered
from etproto.tile_kind import storage_dtype

__all__ = ["check_tensors", "tensor_shapes"]


def tensor_shapes(lowered: Lowered) -> dict[str, tuple[int, ...]]:
    """Tensor name -> shape under the binding; buffers are sized for the symbols' bounds."""
    if lowered.instance is None:
        return {buffer.name: buffer.shape for buffer in lowered.buffers if buffer.contents is None}
    return {tensor.name: lowered.instance.shape(tensor) for tensor in lowered.instance.program.tensors}


def check_tensors(lowered: Lowered, tensors: Mapping[str, Any], *, on_device: bool | None = None) -> None:
    """Refuse arrays that a run could not use as they are.

    Parameters
    ----------
    lowered : Lowered
        The program; its tensors are the buffers without contents.
    tensors : mapping
        Tensor name -> array: anything with ``__cuda_array_interface__`` or ``__array_interface__``, or at
        least ``dtype`` and ``shape``. Nothing is copied, and no data is looked at.
    on_device : bool, optional
        True: arrays must lie on a GPU. False: they must be NumPy arrays, not read-only where the program
        writes them. None: either.

    Raises
    ------
    ProgramError
        A tensor without an array, an array without a tensor, or a wrong place, type, shape or layout; the
        text names the tensor, what was expected and what was given.

    Examples
    --------
    >>> from etproto.lowering import lower
    >>> from etproto.models.splitk import program
    >>> shapes = {"A": (64, 128), "B": (2, 4, 32), "C": (3, 32)}
    >>> tensors = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    >>> check_tensors(lower(program().bind(n=2)), tensors)
    Traceback (most recent call last):
    ...
    etproto.errors.ProgramError: splitk(n=2): tensor C: expected shape (2, 32), got (3, 32)
    """
    shapes = tensor_shapes(lowered)
    types = {buffer.name: buffer.dtype for buffer in lowered.buffers if buffer.contents is None}
    missing = [name for name in shapes if name not in tensors]
    if missing:
        raise ProgramError(
            f"{lowered.name}: expected an array for each tensor ({', '.join(shapes)}), got none for"
            f" {', '.join(missing)}"
        )
    extents: dict[str, tuple[int, int, bool]] = {}
    for name, array in tensors.items():
        if name not in shapes:
            known = ", ".join(shapes) or "none"
            raise ProgramError(f"{lowered.name}: there is no tensor {name!r}; tensors are {known}")
        where = f"{lowered.name}: tensor {name}"
        written = lowered.instance is None or bool(lowered.instance.program.writers(name))
        _check_place(where, array, on_device, written)
        dtype, shape, strides = _describe(where, array)
        if dtype != np.dtype(storage_dtype(types[name])) and not _is_half_bits(types[name], dtype):
            raise ProgramError(f"{where}: expected dtype {types[name]}, got {dtype}")
        if shape != shapes[name]:
            raise ProgramError(f"{where}: expected shape {shapes[name]}, got {shape}")
        if not _is_contiguous(shape, strides, dtype.itemsize):
            raise ProgramError(
                f"{where}: expected a C-contiguous array, got strides {strides} of shape {shape}; pass a"
                f" contiguous copy, and take the results from it"
            )
        begin = _address(array)
        if begin is not None:
            extents[name] = (begin, begin + math.prod(shape) * dtype.itemsize, written)
    _check_overlap(lowered.name, extents)


def _is_half_bits(expected: str, dtype: np.dtype) -> bool:
    """Whether an array of another type may stand for a 16-bit float: its bits, or a library's own bfloat16."""
    bits = dtype.itemsize == 2 and dtype.kind in "uiV"
    return bits and (expected == "bfloat16" or (expected == "float16" and dtype.kind != "V"))


def _check_overlap(owner: str, extents: Mapping[str, tuple[int, int, bool]]) -> None:
    """Refuse a written tensor that shares memory with another: dependences are known by tensor."""
    placed = sorted((begin, end, name, written) for name, (begin, end, written) in extents.items() if end > begin)
    reach: tuple[int, str, bool] | None = None
    for begin, end, name, written in placed:
        if reach is not None and begin < reach[0] and (written or reach[2]):
            raise ProgramError(
                f"{owner}: tensors {reach[1]} and {name} share memory, and the program writes one of them"
            )
        if reach is None or end > reach[0]:
            reach = (end, name, written)


def _address(array: Any) -> int | None:
    """Address of an array's first element, where it says so."""
    interface = getattr(array, "__cuda_array_interface__", None) or getattr(array, "__array_interface__", None)
    return None if interface is None else int(interface["data"][0] or 0)  # an empty array may have none


def _check_place(where: str, array: Any, on_device: bool | None, written: bool) -> None:
    kind = f"{type(array).__module__}.{type(array).__qualname__}"
    if on_device and not hasattr(array, "__cuda_array_interface__"):
        raise ProgramError(
            f"{where}: expected an array on the device (CuPy, PyTorch, Numba: with __cuda_array_interface__),"
            f" got {kind}; copy it there first, since results are left where the arrays lie"
        )
    if on_device is False:
        if not isinstance(array, np.ndarray):
            raise ProgramError(f"{where}: expected a NumPy array, got {kind}")
        if written and not array.flags.writeable:
            raise ProgramError(f"{where}: expected an array that can be written, got a read-only one")


def _describe(where: str, array: Any) -> tuple[np.dtype, tuple[int, ...], tuple[int, ...] | None]:
    """(dtype, shape, strides in bytes, or None for a C-contiguous array)."""
    interface = getattr(array, "__cuda_array_interface__", None) or getattr(array, "__array_interface__", None)
    if interface is not None:
        return np.dtype(interface["typestr"]), tuple(interface["shape"]), interface.get("strides")
    try:
        dtype = np.dtype(storage_dtype(str(array.dtype).removeprefix("torch.")))
        shape = tuple(int(extent) for extent in array.shape)
    except (AttributeError, TypeError):
        raise ProgramError(
            f"{where}: expected an array with a dtype and a shape, got {type(array).__qualname__}"
        ) from None
    contiguous = getattr(array, "is_contiguous", None)
    return dtype, shape, None if contiguous is None or contiguous() else ()


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> bool:
    """Whether elements lie row-major without gaps; strides of extents below 2 do not matter."""
    if strides is None or math.prod(shape) == 0:
        return True
    step = itemsize
    expected = []
    for extent in reversed(shape):
        expected.insert(0, step)
        step *= extent
    return len(strides) == len(shape) and all(
        extent == 1 or got == want for extent, got, want in zip(shape, strides, expected, strict=True)
    )
