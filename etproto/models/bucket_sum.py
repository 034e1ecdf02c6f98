"""Rows summed by bucket, the bucket of a row being known only once the launch has computed it.

`route` computes keys, `plan` turns them into positions and counts, `group` sorts the rows, `chunk_sum` sums
as many chunks as there turn out to be, `combine` adds each bucket's chunks. Row i notifies the event of its
own bucket (a run-time gather), which needs as many notifications as the bucket has rows (a run-time need) and
then triggers the bucket's chunks (a run-time range). Every sum has a fixed order, so results are bitwise
equal whatever the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from etproto.expressions import Symbol, ceil_div
from etproto.kernels.tiles import bucket
from etproto.models.model import Model, Tensors, poisoned_tensors, require_at_least
from etproto.program import EventTensor, Instance, Program, TaskGrid, Tensor

__all__ = ["MODEL", "program"]


def program(buckets: int = 16, width: int = 64, chunk: int = 32, block: int = 64, clip: bool = True) -> Program:
    """The program for any ``0 <= rows <= 4096``.

    Parameters
    ----------
    buckets : int
        Number of buckets; row r belongs to bucket ``floor(X[r, 0])``.
    width : int
        Columns of X, at least 1.
    chunk : int
        Most rows that one task sums.
    block : int
        Rows whose keys one task computes.
    clip : bool
        Rows below bucket 0 or above the last one belong to these. False: they are an error of the run.

    Raises
    ------
    ProgramError
        A size below 1.
    """
    require_at_least("bucket_sum", 1, buckets=buckets, width=width, chunk=chunk, block=block)
    rows = Symbol("rows", bound=4096)
    chunks = rows // chunk + buckets  # never fewer than the sum over buckets of ceil(rows_of / chunk)
    X, Y = Tensor("X", (rows, width)), Tensor("Y", (rows, width))
    key, rank = Tensor("key", (rows,), "int32"), Tensor("rank", (rows,), "int32")
    histogram = Tensor("histogram", (ceil_div(rows, block), buckets), "int32")
    rows_of, chunks_of = (Tensor(name, (buckets,), "int32") for name in ("rows_of", "chunks_of"))
    row_start, chunk_start = (Tensor(name, (buckets + 1,), "int32") for name in ("row_start", "chunk_start"))
    partial, out = Tensor("partial", (chunks, width)), Tensor("out", (buckets, width))
    routed, planned = EventTensor("routed"), EventTensor("planned")
    grouped = EventTensor("grouped", (buckets,), count=rows_of)
    summed = EventTensor("summed", (buckets,), count=chunks_of)
    return Program(
        "bucket_sum",
        (
            TaskGrid(
                "route",
                bucket.route(block, clip),
                (ceil_div(rows, block),),
                {"x": X, "key": key, "rank": rank, "histogram": histogram},
                notifies={routed: "i->"},
            ),
            TaskGrid(
                "plan",
                bucket.plan(chunk),
                (1,),
                {
                    "histogram": histogram,
                    "rows_of": rows_of,
                    "row_start": row_start,
                    "chunks_of": chunks_of,
                    "chunk_start": chunk_start,
                },
                waits={routed: "i->"},
                notifies={planned: "i->"},
            ),
            TaskGrid(
                "group",
                bucket.group(block),
                (rows,),
                {"x": X, "key": key, "rank": rank, "histogram": histogram, "row_start": row_start, "y": Y},
                waits={planned: "i->"},
                notifies={grouped: "i->key[i]"},
            ),
            TaskGrid(
                "chunk_sum",
                bucket.chunk_sum(chunk),
                (buckets, "chunk_start[i]:chunk_start[i+1]"),
                {"y": Y, "row_start": row_start, "chunk_start": chunk_start, "partial": partial},
                waits={planned: "ij->", grouped: "ij->i"},
                notifies={summed: "ij->i"},
                bound=chunks,
            ),
            TaskGrid(
                "combine",
                bucket.combine,
                (buckets,),
                {"partial": partial, "chunk_start": chunk_start, "out": out},
                waits={planned: "i->", summed: "i->i"},
            ),
        ),
    )


def _make_tensors(instance: Instance, rng: np.random.Generator) -> Tensors:
    """Buckets of very different sizes: every fourth one is empty, the first has half of the rows."""
    shapes = {tensor.name: instance.shape(tensor) for tensor in instance.program.tensors}
    buckets = shapes["rows_of"][0]
    weight = np.where(np.arange(buckets) % 4 == 1, 0.0, 1.0)
    weight[0] = weight[1:].sum() or 1.0
    X = rng.standard_normal(shapes["X"], np.float32)
    X[:, 0] = rng.choice(buckets, size=len(X), p=weight / weight.sum()) + rng.random(len(X), np.float32) / 2
    return poisoned_tensors(instance, X=X)


def _reference(tensors: Mapping[str, np.ndarray]) -> Tensors:
    X = tensors["X"].astype(np.float64)
    buckets = len(tensors["rows_of"])
    member = np.clip(np.floor(X[:, 0]), 0, buckets - 1) == np.arange(buckets)[:, None]
    return {"out": member @ X, "rows_of": member.sum(axis=1)}


def _tolerance(tensors: Mapping[str, np.ndarray]) -> float:
    return float(np.finfo(np.float32).eps) * (1 + len(tensors["X"]))


MODEL = Model(
    name="bucket_sum",
    description="rows summed by a bucket computed in the launch, by a run-time number of tasks",
    builder=lambda rows, **parameters: program(**parameters).bind(rows=rows),
    make_tensors=_make_tensors,
    reference=_reference,
    tolerance=_tolerance,
    symbols={"rows": 1000},
    parameters={"buckets": 16, "width": 64, "chunk": 32, "block": 64},
)
