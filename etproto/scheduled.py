"""`Scheduled`: a lowered instance together with who runs which task, in what order. Every executor takes one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from etproto.lowering import Lowered

__all__ = ["ENTRY_STRIDE", "ENTRY_DRAIN", "ENTRY_STRIDE_BOUND", "PATTERN_ROUND_ROBIN", "PATTERN_ZIGZAG", "Scheduled"]

# An element of `worker_task` is a task id when >= 0; a negative element x names row ~x of `entries`.
ENTRY_STRIDE = 0  # (ENTRY_STRIDE, grid, pattern, 0): this worker's share of a grid, by formula
ENTRY_DRAIN = 1  # (ENTRY_DRAIN, queue, 0, 0): pop tasks of a queue until it has handed all of them out
ENTRY_STRIDE_BOUND = 2  # as ENTRY_STRIDE, but over the grid's bound: tasks that do not exist in this run are skipped

PATTERN_ROUND_ROBIN = 0  # position p of worker w is task p * W + (w - s) mod W, s = tasks of the entries before
PATTERN_ZIGZAG = 1  # as above, but odd p count the workers backwards


@dataclass(frozen=True)
class Scheduled:
    """A schedule for `lowered` on `workers` workers.

    Parameters
    ----------
    lowered : Lowered
        The instance's arrays.
    schedule : {"static", "device-static", "dynamic", "mixed"}
        How tasks reach workers.
    policy : str
        Name of the policy that made the order.
    workers : int
        Number of persistent thread blocks.
    worker_ptr : int64[workers + 1]
        Worker w runs ``worker_task[worker_ptr[w]:worker_ptr[w + 1]]`` in order.
    worker_task : int32[...]
        A task id, or ``~row`` of `entries`.
    entries : int64[k, 4]
        Shares of grids by formula and queue drains; see the constants of this module.
    grid_queue : int32[grids]
        Queue that feeds each grid; -1 for a statically scheduled grid.
    queue_grid : int32[queues]
        The one grid a queue feeds (its drain ends when the grid's run-time count has been handed out), or -1
        when it feeds several grids and ends when no created task is unfinished.
    queue_capacity : int64[queues]
        Slots of each queue.
    initial_queue : int64[r, 3]
        Rows (queue, grid, k): the first k tasks of a grid (all of them if k is -1) wait for nothing and are
        queued before the launch.
        Rows (-1, event tensor, 0): cells of it need no notification, so what they trigger is pushed at the start.
        Rows (-2, grid, 0): some of the grid's tasks may wait for no cell (a range clipped to nothing); these are
        pushed at the start.
    early_push : bool
        Push a task when its producers have been dispatched rather than completed, where that is safe.
    """

    lowered: Lowered
    schedule: str
    policy: str
    workers: int
    worker_ptr: np.ndarray
    worker_task: np.ndarray
    entries: np.ndarray
    grid_queue: np.ndarray
    queue_grid: np.ndarray
    queue_capacity: np.ndarray
    initial_queue: np.ndarray
    early_push: bool = False
