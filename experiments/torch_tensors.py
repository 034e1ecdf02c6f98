"""PyTorch tensors for etproto programs and for baselines alike, so that both work on the same memory.

PyTorch is imported when a function is called: the scripts' arguments can be read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["bits", "largest_error", "on_stream", "output_check", "poisoned", "product_tolerance", "random_normal"]


def random_normal(shape: Sequence[int], seed: int, scale: float = 1.0) -> Any:
    """bfloat16 numbers on the GPU, normally distributed, drawn from `seed` alone."""
    import torch

    generator = torch.Generator(device="cuda").manual_seed(seed)
    values = torch.randn(tuple(shape), generator=generator, device="cuda", dtype=torch.bfloat16)
    return values.mul_(scale) if scale != 1.0 else values


def poisoned(shape: Sequence[int]) -> Any:
    """bfloat16 NaN on the GPU."""
    import torch

    return torch.full(tuple(shape), float("nan"), device="cuda", dtype=torch.bfloat16)


def bits(tensor: Any) -> Any:
    """The same memory as int16, which etproto takes for bfloat16."""
    import torch

    return tensor.view(torch.int16)


@contextmanager
def on_stream(stream: Any) -> Iterator[None]:
    """PyTorch's (and Triton's) launches go to a CuPy stream."""
    import torch

    with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)):
        yield


def largest_error(found: Any, expected: Any) -> float:
    """Largest absolute error relative to the largest expected magnitude; infinity where it is not finite."""
    import torch

    error = (found.to(expected.dtype) - expected).abs().max()
    scale = expected.abs().max()
    return float(error / scale) if bool(torch.isfinite(error)) else float("inf")


def product_tolerance(depth: int) -> float:
    """For a product of `depth` terms: a unit of bfloat16 at the largest result, and a unit of float32 a term."""
    return 2.0**-8 + depth * 2.0**-24


def output_check(
    outputs: Sequence[Any], expected: Sequence[Any], others: Sequence[Any] = ()
) -> tuple[Callable[[], None], Callable[[], float]]:
    """Functions that fill outputs (and intermediates, `others`) with NaN, and that give the largest error."""

    def poison() -> None:
        for tensor in (*outputs, *others):
            tensor.fill_(float("nan"))

    def error() -> float:
        return max(largest_error(found, right) for found, right in zip(outputs, expected, strict=True))

    return poison, error
