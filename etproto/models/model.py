"""`Model`: a bundled program together with its data, an independent reference and a tolerance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from etproto.errors import ProgramError
from etproto.graph import TaskGraph
from etproto.kernels.tiles import brain_float
from etproto.program import Instance
from etproto.tile_kind import TileKind, storage_dtype

__all__ = ["Model", "Tensors", "poisoned_tensors", "relative_error", "require_at_least"]

Tensors = dict[str, np.ndarray]


@dataclass(frozen=True)
class Model:
    """A bundled program.

    Parameters
    ----------
    name, description : str
        Its name on the command line, and one line about it.
    symbols : mapping of str to int
        Symbols of the program and the values they have unless others are given; any value up to a symbol's
        bound runs in the same kernel.
    parameters : mapping of str to int
        Other arguments of `build` and their defaults, such as tile sizes.
    builder : callable
        ``builder(**values) -> Instance | TaskGraph``, called by `build` with every symbol and parameter.
    make_tensors : callable
        ``make_tensors(target, rng) -> {name: array}``: random inputs; outputs and intermediates are poisoned
        (NaN, or -1 for integers), so that one that is never written is noticed.
    reference : callable
        ``reference(tensors) -> {name: array}``: the expected outputs, computed in float64 by other means than
        the tile kinds. Called before a run, since programs may work in place.
    tolerance : callable
        ``tolerance(tensors) -> float``: largest acceptable `compare`, from data type and lengths of the sums.
    kinds : callable or None
        ``kinds(graph) -> {kind name: TileKind}`` for models whose `build` returns a `TaskGraph`.

    Examples
    --------
    >>> from etproto.models import MODELS
    >>> print(MODELS["splitk"].build(n=3))
    splitk(n=3)
    """

    name: str
    description: str
    builder: Callable[..., Instance | TaskGraph]
    make_tensors: Callable[[Instance | TaskGraph, np.random.Generator], Tensors]
    reference: Callable[[Mapping[str, np.ndarray]], Tensors]
    tolerance: Callable[[Mapping[str, np.ndarray]], float]
    symbols: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)
    kinds: Callable[[TaskGraph], dict[str, TileKind]] | None = None

    def build(self, **values: int) -> Instance | TaskGraph:
        """The bound program, or the task graph; symbols and parameters not given have their defaults.

        Raises
        ------
        ProgramError
            An unknown name, or a value that is no integer or out of range.
        """
        known = {**self.symbols, **self.parameters}
        for name, value in values.items():
            if name not in known:
                raise ProgramError(f"model {self.name}: no symbol or parameter {name!r}; it has {', '.join(known)}")
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise ProgramError(f"model {self.name}: {name} must be an integer, got {value!r}")
        return self.builder(**{**known, **{name: int(value) for name, value in values.items()}})

    def compare(self, tensors: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> float:
        """Largest `relative_error` of the tensors named in `expected`."""
        return max(relative_error(tensors[name], value) for name, value in expected.items())


def relative_error(got: np.ndarray, expected: np.ndarray) -> float:
    """Largest absolute error relative to the largest expected magnitude; uint16 against floats are bfloat16 bits.

    A value that is not finite where a finite one is expected gives infinity, and so does any wrong integer.

    Raises
    ------
    ProgramError
        When the shapes differ.

    Examples
    --------
    >>> relative_error(np.array([1.0, 3.0]), np.array([1.0, 4.0]))
    0.25
    >>> relative_error(np.array([1.0, np.nan]), np.array([1.0, 4.0]))
    inf
    """
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        raise ProgramError(f"expected an array of shape {expected.shape} to compare, got {got.shape}")
    if got.size == 0:
        return 0.0
    if expected.dtype.kind == "f" and got.dtype == np.uint16:
        got = brain_float.to_float32(got)
    if expected.dtype.kind in "iu":
        return 0.0 if np.array_equal(got, expected) else np.inf
    error = np.abs(got.astype(np.float64) - expected).max()
    if not np.isfinite(error):
        return np.inf
    scale = np.abs(expected).max()
    return float(error / scale) if scale > 0 else (0.0 if error == 0 else np.inf)


def poisoned_tensors(target: Instance | TaskGraph, **inputs: np.ndarray) -> Tensors:
    """Every tensor of `target`: the `inputs` in its data type, the others full of NaN (integers: of -1)."""
    tensors = target.program.tensors if isinstance(target, Instance) else target.tensors
    values = target.values if isinstance(target, Instance) else {}
    result = {}
    for tensor in tensors:
        shape = tuple(int(extent.evaluate(values)) for extent in tensor.shape)
        if tensor.name in inputs:
            given = np.asarray(inputs[tensor.name])
            if tensor.dtype == "bfloat16" and given.dtype.kind == "f":
                given = brain_float.from_float32(given)
            result[tensor.name] = np.ascontiguousarray(given, dtype=storage_dtype(tensor.dtype)).reshape(shape)
        else:
            poison = np.nan if tensor.dtype.startswith("float") else 0xFFFF if tensor.dtype == "bfloat16" else -1
            result[tensor.name] = np.full(shape, poison, storage_dtype(tensor.dtype))
    return result


def require_at_least(owner: str, least: int, **values: int) -> None:
    """Refuse sizes below `least`.

    Raises
    ------
    ProgramError
        Naming the size, its value and the least one.
    """
    for name, value in values.items():
        if value < least:
            raise ProgramError(f"{owner}: {name} must be at least {least}, got {value}")
