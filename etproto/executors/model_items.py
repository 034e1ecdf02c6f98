"""From a `Scheduled` to what the timing model's engine runs: rows of tasks in place of ids and formulas."""

from __future__ import annotations

from functools import cache

import numpy as np

from etproto import layout as L
from etproto.executors.worker_items import WorkerItems
from etproto.scheduled import ENTRY_DRAIN, ENTRY_STRIDE_BOUND, PATTERN_ZIGZAG, Scheduled
from etproto.tasks import TaskArrays
from etproto.trace.records import rows_of

__all__ = ["early_events", "scheduled_items"]


def scheduled_items(scheduled: Scheduled, tasks: TaskArrays) -> WorkerItems:
    """What each worker goes through; tasks of a list that do not exist in this run are left out."""
    workers, lowered = scheduled.workers, scheduled.lowered

    @cache  # workers mostly have equal lists
    def shares(row: int, before: int) -> tuple[list[np.ndarray], int]:
        """Rows of each worker's share of a grid, and the number of tasks that were dealt out."""
        form, grid, pattern = scheduled.entries[row, :3].tolist()
        count = int(lowered.grid_bound[grid])
        if form != ENTRY_STRIDE_BOUND:
            count = int((tasks.grid == grid).sum())
        turn, lane = np.divmod(np.arange(count), workers)
        if pattern == PATTERN_ZIGZAG:
            lane = np.where(turn % 2 == 1, workers - 1 - lane, lane)
        worker = (lane + before) % workers
        ids = lowered.grid_first[grid] + np.argsort(worker, kind="stable")
        places = np.cumsum(np.bincount(worker, minlength=workers))[:-1]
        return [rows[rows >= 0] for rows in np.split(rows_of(tasks, ids), places)], count

    all_listed = np.asarray(scheduled.worker_task, np.int64)
    all_rows = rows_of(tasks, all_listed)
    lists = []
    for worker in range(workers):
        mine = slice(scheduled.worker_ptr[worker], scheduled.worker_ptr[worker + 1])
        listed, rows = all_listed[mine], all_rows[mine]
        pieces, before = [], 0
        for piece in np.split(np.arange(len(listed)), np.flatnonzero(listed < 0)):
            if len(piece) and listed[piece[0]] < 0:
                row, piece = int(~listed[piece[0]]), piece[1:]
                if scheduled.entries[row, 0] == ENTRY_DRAIN:
                    pieces.append(~scheduled.entries[row, 1:2])
                else:
                    share, count = shares(row, before)
                    pieces.append(share[worker])
                    before += count
            pieces.append(rows[piece][rows[piece] >= 0])
        lists.append(np.concatenate(pieces))
    item_ptr = np.zeros(workers + 1, np.int64)
    np.cumsum([len(items) for items in lists], out=item_ptr[1:])
    row_queue = np.asarray(scheduled.grid_queue, np.int64)[tasks.grid]
    return WorkerItems(item_ptr, np.concatenate(lists).astype(np.int64), row_queue)


def early_events(scheduled: Scheduled) -> np.ndarray:
    """bool[cells]: events whose tasks are pushed when their notifiers have been dispatched."""
    words, cells = scheduled.lowered.resolved_words(), scheduled.lowered.cells
    records = words[L.HEADER_EVENTS] + np.arange(words[L.HEADER_EVENT_COUNT]) * L.EVENT_WORDS
    sizes = np.diff(words[records + L.EVENT_BASE], append=cells)
    return np.repeat(words[records + L.EVENT_EARLY] == 1, sizes) & scheduled.early_push
