"""The bundled programs: `MODELS` maps each one's name to its `Model`."""

from __future__ import annotations

from etproto.models import bucket_sum, chain, cholesky, gemm, matmul, mlp, overhead, skinny, splitk
from etproto.models.model import Model

__all__ = ["MODELS", "Model"]

_MODELS = (
    splitk.MODEL,
    cholesky.MODEL,
    gemm.MODEL,
    bucket_sum.MODEL,
    matmul.MODEL,
    skinny.MODEL,
    chain.MODEL,
    mlp.MODEL,
    overhead.MODEL,
)
MODELS: dict[str, Model] = {model.name: model for model in _MODELS}
