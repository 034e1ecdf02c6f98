"""Products by cuBLAS and cublasLt through PyTorch, captured in CUDA graphs with outputs allocated beforehand.

``torch.nn.functional.linear`` and ``torch.matmul`` of two matrices come to the same call as ``torch.mm``; only that
one writes into a given output. PyTorch gives cuBLAS the workspace of 32 MB that NVIDIA advises for Hopper, which
split-K algorithms need. Which form is fastest differs from shape to shape, so all are timed and the fastest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from experiments.torch_tensors import on_stream
from experiments.variants import Variant

__all__ = ["Product", "gated_calls", "product_calls", "product_forms", "product_variants"]

#: x (M, K), w (N, K), out (M, N): out = x w^T.
Product = tuple[Any, Any, Any]
Form = Callable[[Any, Any, Any], None]


@contextmanager
def blas_library(name: str) -> Iterator[None]:
    """PyTorch prefers ``cublas`` or ``cublaslt`` inside."""
    import torch

    before = torch.backends.cuda.preferred_blas_library()
    torch.backends.cuda.preferred_blas_library(name)
    try:
        yield
    finally:
        torch.backends.cuda.preferred_blas_library(before)


@cache
def _zeros(columns: int) -> Any:
    import torch

    return torch.zeros(columns, device="cuda", dtype=torch.bfloat16)


def product_forms(rows: int) -> Mapping[str, Form]:
    """Ways to ask for ``out = x w^T`` with `rows` rows of x, by the name of their variant."""

    def plain(library: str) -> Form:
        def form(x: Any, w: Any, out: Any) -> None:
            import torch

            with blas_library(library):
                torch.mm(x, w.t(), out=out)

        return form

    def biased(x: Any, w: Any, out: Any) -> None:
        """A bias of zeros: this goes through cublasLt with an epilogue, which chooses among other algorithms."""
        import torch

        torch.addmm(_zeros(w.shape[0]), x, w.t(), out=out)

    def vector(x: Any, w: Any, out: Any) -> None:
        import torch

        torch.mv(w, x[0], out=out[0])

    forms = {"cublas.graph": plain("cublas"), "cublaslt.graph": plain("cublaslt"), "cublaslt-bias.graph": biased}
    return {**forms, "cublas-mv.graph": vector} if rows == 1 else forms


def product_calls(form: Form, chains: Sequence[Sequence[Product]]) -> list[Callable[[Any], None]]:
    """One call a chain: its products one after the other, in a form."""

    def call(stream: Any, chain: Sequence[Product]) -> None:
        with on_stream(stream):
            for x, w, out in chain:
                form(x, w, out)

    return [lambda stream, chain=chain: call(stream, chain) for chain in chains]


def product_variants(
    chains: Sequence[Sequence[Product]],
    poison: Callable[[], None],
    error: Callable[[], float],
    tolerance: float,
) -> dict[str, Callable[[], Variant]]:
    """Every form of chains of products as builders of variants."""
    forms = product_forms(chains[0][0][0].shape[0])
    return {
        name: lambda form=form: Variant(product_calls(form, chains), poison, error, tolerance)
        for name, form in forms.items()
    }


def gated_calls(
    form: Form, sets: Sequence[Mapping[str, Any]], activate: Callable[[Any, Any], None]
) -> list[Callable[[Any], None]]:
    """One call a set: X W_up^T into G, `activate` from G into H, H W_down^T into Y."""

    def call(stream: Any, one: Mapping[str, Any]) -> None:
        with on_stream(stream):
            form(one["X"], one["W_up"], one["G"])
            activate(one["G"], one["H"])
            form(one["H"], one["W_down"], one["Y"])

    return [lambda stream, one=one: call(stream, one) for one in sets]
