"""`WorkerOrder`: what a policy answers, an ordered list of tasks for each worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from etproto.tasks import TaskArrays

__all__ = ["Policy", "WorkerOrder", "worker_order"]


@dataclass(frozen=True)
class WorkerOrder:
    """An ordered task list for each worker, with the planned times where the policy plans any.

    Parameters
    ----------
    worker_ptr : int64[workers + 1]
        Worker w runs ``worker_row[worker_ptr[w]:worker_ptr[w + 1]]`` in order.
    worker_row : int64[n]
        Rows of `TaskArrays`, each once.
    start, finish : float64[n] or None
        Planned times of each *row*, in the unit of the costs; None from a policy that looks at no costs.
    """

    worker_ptr: np.ndarray
    worker_row: np.ndarray
    start: np.ndarray | None = None
    finish: np.ndarray | None = None

    @property
    def workers(self) -> int:
        """Number of workers, with those that run nothing."""
        return len(self.worker_ptr) - 1

    @property
    def makespan(self) -> float | None:
        """Planned time at which the last task ends; None where nothing was planned."""
        return None if self.finish is None else float(self.finish.max(initial=0.0))

    @property
    def worker(self) -> np.ndarray:
        """The worker of each row, int64[n]."""
        worker = np.empty(len(self.worker_row), np.int64)
        worker[self.worker_row] = np.repeat(np.arange(self.workers), np.diff(self.worker_ptr))
        return worker

    def rows(self, worker: int) -> np.ndarray:
        """The list of one worker, a view."""
        return self.worker_row[self.worker_ptr[worker] : self.worker_ptr[worker + 1]]

    def __str__(self) -> str:
        length = np.diff(self.worker_ptr)
        planned = "" if self.makespan is None else f", planned makespan {self.makespan:g}"
        return (
            f"{len(self.worker_row)} tasks on {self.workers} workers, "
            f"{length.min()} to {length.max()} a worker{planned}"
        )


Policy = Callable[[TaskArrays, int], WorkerOrder]


def worker_order(
    worker: np.ndarray,
    workers: int,
    *,
    sequence: np.ndarray | None = None,
    start: np.ndarray | None = None,
    finish: np.ndarray | None = None,
) -> WorkerOrder:
    """Lists from the worker of each row.

    Parameters
    ----------
    worker : int64[n]
        Worker of each row.
    workers : int
        Number of workers.
    sequence : int64[n], optional
        All rows in the order in which any one worker is to run its own; ascending rows by default.
    start, finish : float64[n], optional
        Planned times of each row.

    Examples
    --------
    >>> import numpy as np
    >>> order = worker_order(np.array([0, 1, 0]), 2, sequence=np.array([2, 1, 0]))
    >>> order.rows(0).tolist(), order.rows(1).tolist()
    ([2, 0], [1])
    >>> print(order)
    3 tasks on 2 workers, 1 to 2 a worker
    """
    worker_ptr = np.zeros(workers + 1, np.int64)
    np.cumsum(np.bincount(worker, minlength=workers), out=worker_ptr[1:])
    if sequence is None:
        sequence = np.arange(len(worker))
    worker_row = sequence[np.argsort(worker[sequence], kind="stable")].astype(np.int64, copy=False)
    return WorkerOrder(worker_ptr, worker_row, start, finish)
