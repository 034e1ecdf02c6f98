"""What the GPU tests share: bundled programs with their data and reference, and arrays on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from etproto.executors import cpu
from etproto.kernels.tiles import brain_float
from etproto.lowering import Lowered, lower
from etproto.lowering_graph import lower_graph
from etproto.models import MODELS, Model
from etproto.schedule import schedule


@dataclass(frozen=True)
class Case:
    """A bundled program, lowered, with inputs, the reference and what the cpu executor computes."""

    model: Model
    lowered: Lowered
    inputs: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]
    cpu: Mapping[str, np.ndarray]
    tolerance: float

    def check(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Compare results with the reference and with the cpu executor."""
        assert self.model.compare(tensors, self.expected) <= self.tolerance
        types = {buffer.name: buffer.dtype for buffer in self.lowered.buffers}
        cpu_result = {
            name: brain_float.to_float32(self.cpu[name]) if types[name] == "bfloat16" else self.cpu[name]
            for name in self.expected
        }
        assert self.model.compare(tensors, cpu_result) <= self.tolerance


@cache
def _lowered(name: str, values: tuple[tuple[str, int], ...]) -> tuple[Any, Lowered]:
    model = MODELS[name]
    target = model.build(**dict(values))
    lowered = lower(target) if model.kinds is None else lower_graph(target, model.kinds(target))
    return target, lowered


@cache
def _case(name: str, values: tuple[tuple[str, int], ...], seed: int) -> Case:
    model = MODELS[name]
    target, lowered = _lowered(name, values)
    tensors = model.make_tensors(target, np.random.default_rng(seed))
    expected, tolerance = model.reference(tensors), model.tolerance(tensors)
    result = {tensor: array.copy() for tensor, array in tensors.items()}
    cpu.run(schedule(lowered, "auto", workers=2), result, trace=False)
    assert model.compare(result, expected) <= tolerance
    return Case(model, lowered, tensors, expected, result, tolerance)


@pytest.fixture(scope="session")
def case() -> Callable[..., Case]:
    """``case(name, seed=0, **values)``; programs are built and lowered once."""
    return lambda name, seed=0, **values: _case(name, tuple(sorted(values.items())), seed)


@pytest.fixture(scope="session")
def to_device() -> Callable[[Mapping[str, np.ndarray]], dict[str, Any]]:
    """Copies of NumPy arrays on the GPU, as Numba device arrays."""
    from numba import cuda

    return lambda tensors: {name: cuda.to_device(array) for name, array in tensors.items()}


@pytest.fixture(scope="session")
def to_host() -> Callable[[Mapping[str, Any]], dict[str, np.ndarray]]:
    """NumPy copies of Numba device arrays."""
    return lambda tensors: {name: array.copy_to_host() for name, array in tensors.items()}


@pytest.fixture(scope="session")
def set_field() -> Callable[..., None]:
    """``set_field(loaded, SEED=3)``: change fields of the launch block between two launches."""
    from etproto import layout as L

    def change(loaded: Any, **fields: int) -> None:
        block = loaded.block.copy_to_host()
        for name, value in fields.items():
            block[getattr(L, f"LAUNCH_{name}")] = value
        loaded.block.copy_to_device(block)

    return change
