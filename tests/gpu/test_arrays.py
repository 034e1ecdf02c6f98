"""Arrays of Numba, CuPy and PyTorch are used where they lie, and launches can be captured in CUDA graphs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from etproto.errors import EtprotoError
from etproto.executors import cuda
from etproto.schedule import schedule

pytestmark = pytest.mark.gpu

PROGRAMS = {
    "splitk": ({"n": 70}, "static", False),
    "cholesky": ({"tiles": 8, "tile": 16}, "dynamic", False),
    "gemm": ({"M": 130, "N": 70, "K": 33, "splits": 3}, "mixed", False),
    "bucket_sum": ({"rows": 300, "buckets": 9, "width": 20, "chunk": 8, "block": 16}, "dynamic", True),
}


@dataclass(frozen=True)
class Library:
    """What the tests need of an array library."""

    device: Callable[[np.ndarray], Any]
    host: Callable[[Any], np.ndarray]
    pointer: Callable[[Any], int]
    fill: Callable[[Any, np.ndarray], None]
    capture: Callable[[cuda.Loaded], Callable[[], None]]


def _cupy() -> Library:
    cupy = pytest.importorskip("cupy")

    def capture(loaded: cuda.Loaded) -> Callable[[], None]:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            loaded.launch(stream=stream)
            graph = stream.end_capture()

        def replay() -> None:
            cupy.cuda.get_current_stream().synchronize()
            graph.launch(stream)
            loaded.finish(stream)

        return replay

    return Library(cupy.asarray, cupy.asnumpy, lambda a: a.data.ptr, lambda a, value: a.set(value), capture)


def _torch() -> Library:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch about its own dependencies
        torch = pytest.importorskip("torch")
        torch.cuda.init()

    def capture(loaded: cuda.Loaded) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loaded.launch(stream=torch.cuda.current_stream())

        def replay() -> None:
            graph.replay()
            loaded.finish(torch.cuda.current_stream())

        return replay

    return Library(
        lambda array: torch.from_numpy(array.copy()).cuda(),
        lambda a: a.cpu().numpy(),
        lambda a: a.data_ptr(),
        lambda a, value: a.copy_(torch.from_numpy(value)),
        capture,
    )


LIBRARIES = {"cupy": _cupy, "torch": _torch}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_copy(case, library, name):
    """Same pointers after the run, and the results are in the very arrays that were given."""
    given = LIBRARIES[library]()
    values, kind, early = PROGRAMS[name]
    program = case(name, **values)
    arrays = {tensor: given.device(array) for tensor, array in program.inputs.items()}
    pointers = {tensor: given.pointer(array) for tensor, array in arrays.items()}
    loaded = cuda.load(schedule(program.lowered, kind, workers=20, early_push=early))
    loaded.launch(arrays)
    loaded.finish()
    assert loaded.addresses[: len(pointers)].tolist() == list(pointers.values())
    assert {tensor: given.pointer(array) for tensor, array in arrays.items()} == pointers
    program.check({tensor: given.host(array) for tensor, array in arrays.items()})


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_captured_launch_is_replayed_three_times(case, library, name):
    """Other inputs before each replay, outputs poisoned: right each time."""
    given = LIBRARIES[library]()
    values, kind, early = PROGRAMS[name]
    first = case(name, **values)
    arrays = {tensor: given.device(array) for tensor, array in first.inputs.items()}
    loaded = cuda.load(schedule(first.lowered, kind, workers=20, early_push=early))
    loaded.launch(arrays)  # what is captured afterwards has been loaded and run once
    loaded.finish()
    replay = given.capture(loaded)
    for seed in (1, 2, 3):
        program = case(name, seed, **values)
        for tensor, array in program.inputs.items():
            given.fill(arrays[tensor], array)
        replay()
        program.check({tensor: given.host(array) for tensor, array in arrays.items()})


def test_a_mixture_of_libraries(case):
    cupy, torch = _cupy(), _torch()
    values, kind, _ = PROGRAMS["gemm"]
    program = case("gemm", **values)
    given = {"A": torch, "B": cupy, "P": torch, "C": cupy}
    arrays = {tensor: given[tensor].device(array) for tensor, array in program.inputs.items()}
    cuda.run(schedule(program.lowered, kind, workers=20), arrays)
    program.check({tensor: given[tensor].host(array) for tensor, array in arrays.items()})


def test_host_arrays_are_refused(case):
    """They would have to be copied behind the user's back."""
    program = case("splitk", n=70)
    with pytest.raises(EtprotoError, match=r"\bA\b.*device"):
        cuda.run(schedule(program.lowered, "static", workers=2), dict(program.inputs))


def test_another_array_is_taken_without_loading_again(case):
    """Addresses are arguments of the run: other arrays of the same program need no compilation."""
    given = _cupy()
    program, other = case("splitk", n=70), case("splitk", 1, n=70)
    loaded = cuda.load(schedule(program.lowered, "static", workers=20))
    for one in (program, other, program):
        arrays = {tensor: given.device(array) for tensor, array in one.inputs.items()}
        loaded.launch(arrays)
        loaded.finish()
        one.check({tensor: given.host(array) for tensor, array in arrays.items()})
