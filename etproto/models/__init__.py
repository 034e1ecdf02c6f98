"""The bundled programs: `MODELS` maps each one's name to its `Model`."""

from __future__ import annotations

from etproto.models import bucket_sum, cholesky, gemm, splitk
from etproto.models.model import Model

__all__ = ["MODELS", "Model"]

_MODELS = (splitk.MODEL, cholesky.MODEL, gemm.MODEL, bucket_sum.MODEL)
MODELS: dict[str, Model] = {model.name: model for model in _MODELS}
