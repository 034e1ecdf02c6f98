"""The tasks of one instance as plain arrays: what policies, the checker and the timing model work on.

This is the *expanded* view: one row a task, waits and notifications in CSR form over flat event numbers.
Graphs are born in this form; a symbolic program reaches it through `etproto.expand.expand`, which needs the
run-time values of the run it describes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["TaskArrays"]


@dataclass(frozen=True)
class TaskArrays:
    """Tasks, events and the arcs between them, in an order where every notifier of a task's wait events comes
    before the task.

    Parameters
    ----------
    task : int64[n]
        Identifier of each task in the device's numbering. Equal to ``arange(n)`` unless a grid's extent is
        read at run time: then ids of tasks that do not exist in this run are left out.
    kind, grid : int32[n]
        Index of the tile kind and of the task grid.
    coordinate : int32[n, 4]
        Task coordinate, unused dimensions 0.
    cost : float64[n]
        Work of the task in the instance's time unit.
    priority : float64[n]
        Larger runs first where a policy has a choice.
    wait_ptr, wait_event : int64[n + 1], int32[w]
        Row i waits for events ``wait_event[wait_ptr[i]:wait_ptr[i + 1]]``.
    notify_ptr, notify_event : int64[n + 1], int32[m]
        Row i notifies ``notify_event[notify_ptr[i]:notify_ptr[i + 1]]``, once for each time it is listed.
    event_need : int32[e]
        Notifications that satisfy each event; an event that needs 0 is satisfied from the start.
    grid_name, kind_name : tuple of str
        Names behind `grid` and `kind`.
    task_name : tuple of str or None
        Names for messages and traces; None means ``grid_name[coordinate]``.
    """

    task: np.ndarray
    kind: np.ndarray
    grid: np.ndarray
    coordinate: np.ndarray
    cost: np.ndarray
    priority: np.ndarray
    wait_ptr: np.ndarray
    wait_event: np.ndarray
    notify_ptr: np.ndarray
    notify_event: np.ndarray
    event_need: np.ndarray
    grid_name: tuple[str, ...]
    kind_name: tuple[str, ...]
    grid_ndim: tuple[int, ...]
    task_name: tuple[str, ...] | None = None

    @property
    def count(self) -> int:
        """Number of tasks."""
        return len(self.task)

    @property
    def events(self) -> int:
        """Number of events."""
        return len(self.event_need)

    def name(self, row: int) -> str:
        """Readable name of the task in `row`, such as ``gemm[2, 1, 0]``."""
        if self.task_name is not None:
            return self.task_name[row]
        grid = int(self.grid[row])
        coordinate = ", ".join(str(int(x)) for x in self.coordinate[row, : self.grid_ndim[grid]])
        return f"{self.grid_name[grid]}[{coordinate}]"
