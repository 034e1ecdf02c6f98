"""The timing model's engine: a discrete-event simulation of workers, events and queues, without values.

What a worker does with one task is a chain of spans without gaps::

    pop_start --pop--> pop_end --early pushes--> wait_start --wait--> start --body--> end --pushes--> free
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numba
import numpy as np

from etproto.errors import ScheduleError
from etproto.executors.worker_items import WorkerItems, require_complete
from etproto.schedulers.arcs import event_waiters
from etproto.tasks import TaskArrays

__all__ = ["ModelRun", "describe_blocked", "simulate"]


@dataclass(frozen=True)
class ModelRun:
    """Times of one simulated run, each array by row, in the unit of the costs; NaN for what never happened.

    Parameters
    ----------
    worker : int64[n]
        The worker that took the task; -1 when none did.
    ready : float64[n]
        When all events that the task waits for were seen satisfied.
    pop_start, pop_end : float64[n]
        Between these the worker took the task from its queue: idle in the queue, then `pop_cost`. Equal for a
        listed task.
    wait_start : float64[n]
        When the worker began to wait for events, after pushes that it owed early.
    start, end : float64[n]
        The task's body.
    free : float64[n]
        When the worker had pushed the tasks that this one made ready, and went on.
    blocked : int64[k, 3]
        Empty when every task ran. Else one row (worker, row, event) for each worker that would have waited
        for ever, with the first of the task's events that was not satisfied; (worker, ~q, -1) for one that
        waited at queue q.
    """

    worker: np.ndarray
    ready: np.ndarray
    pop_start: np.ndarray
    pop_end: np.ndarray
    wait_start: np.ndarray
    start: np.ndarray
    end: np.ndarray
    free: np.ndarray
    blocked: np.ndarray

    @property
    def finished(self) -> bool:
        """Whether every task ran."""
        return not np.isnan(self.end).any()

    @property
    def makespan(self) -> float:
        """End of the last task that ran; 0 when none did."""
        return float(np.nanmax(self.end, initial=0.0))


def describe_blocked(run: ModelRun, tasks: TaskArrays, limit: int = 8) -> str:
    """Who waits for what in a run that did not finish, for up to `limit` workers; empty when it finished."""
    if run.finished:
        return ""
    ended = np.repeat(~np.isnan(run.end), np.diff(tasks.notify_ptr))
    seen = np.bincount(tasks.notify_event[ended], minlength=tasks.events)
    left = int(np.isnan(run.end).sum())
    lines = [f"{left} of {tasks.count} tasks never ran"]
    for worker, row, event in run.blocked[:limit].tolist():
        if row < 0:
            lines.append(f"worker {worker} waits at queue {~row}")
        else:
            need = tasks.event_need[event]
            lines.append(f"worker {worker}: {tasks.name(row)} waits for event {event}, {seen[event]}/{need} notified")
    if len(run.blocked) > limit:
        lines.append(f"and {len(run.blocked) - limit} more workers")
    return "\n".join(lines)


def simulate(
    tasks: TaskArrays,
    items: WorkerItems,
    *,
    event_latency: float = 0.0,
    pop_cost: float = 0.0,
    push_cost: float = 0.0,
    early_push: bool | np.ndarray = False,
    priority: np.ndarray | None = None,
    seed: int | None = None,
) -> ModelRun:
    """Run `tasks` on workers that go through `items`.

    A queue is a ticket queue: a worker that comes to it claims the next ticket and waits for the task that
    will be handed to it, or goes on when as many tickets have been claimed as the queue has tasks. Tasks
    without unsatisfied events are in their queues at time 0. Any other is pushed once, by the worker whose
    notification satisfied the last of its events; that worker makes its pushes one after another, `push_cost`
    each, before it goes on.

    Parameters
    ----------
    tasks : TaskArrays
    items : WorkerItems
    event_latency : float
        From the notification that satisfies an event to the moment at which a waiting task can start.
    pop_cost : float
        From the moment at which a worker and a task are both there to the moment at which the worker has the
        task. Pops by different workers do not delay each other.
    push_cost : float
        Time that the pushing worker spends on one push; the task can be handed out after it.
    early_push : bool or bool[events]
        For these events a push need not await the notifiers' ends: it is enough that as many of them as the
        event needs have been dispatched, that is, are in a worker's hands. The worker that takes the task
        waits for the ends.
    priority : float64[n], optional
        Makes every queue a priority queue: larger first, ties by lower row. By default queues are first in,
        first out, rows pushed at the same time in ascending order.
    seed : int, optional
        Break the ties (simultaneous ends, pushes and tickets) in a random order in place of ascending rows
        and workers.

    Returns
    -------
    ModelRun
        A run in which nothing can go on ends there and says who waits for what; raising is up to the caller.
        The time is O((n + pushes) log n + arcs): a second for a million tasks.

    Raises
    ------
    ScheduleError
        If an argument has the wrong shape or range, a row is in no list and no drained queue, or in more than
        one.

    Examples
    --------
    A task that notifies two others, on two workers which take them from one queue:

    >>> import numpy as np
    >>> from etproto.executors.worker_items import dynamic_items
    >>> tasks = TaskArrays(
    ...     task=np.arange(3),
    ...     kind=np.zeros(3, np.int32),
    ...     grid=np.zeros(3, np.int32),
    ...     coordinate=np.zeros((3, 4), np.int32),
    ...     cost=np.array([1.0, 2.0, 3.0]),
    ...     priority=np.zeros(3),
    ...     wait_ptr=np.array([0, 0, 1, 2]),
    ...     wait_event=np.array([0, 0], np.int32),
    ...     notify_ptr=np.array([0, 1, 1, 1]),
    ...     notify_event=np.array([0], np.int32),
    ...     event_need=np.array([1], np.int32),
    ...     grid_name=("t",),
    ...     kind_name=("task",),
    ...     grid_ndim=(1,),
    ... )
    >>> run = simulate(tasks, dynamic_items(3, workers=2), event_latency=0.5)
    >>> run.worker.tolist(), run.start.tolist(), run.makespan
    ([0, 1, 0], [0.0, 1.5, 1.5], 4.5)
    """
    for name, value in (("event_latency", event_latency), ("pop_cost", pop_cost), ("push_cost", push_cost)):
        if not 0 <= value < np.inf:
            raise ScheduleError(f"{name}: expected a finite number >= 0, got {value!r}")
    cost = np.asarray(tasks.cost, np.float64)
    if cost.shape != (tasks.count,) or not (np.isfinite(cost) & (cost >= 0)).all():
        raise ScheduleError(f"cost: expected {tasks.count} finite numbers >= 0, got {tasks.cost!r}")
    if priority is None:
        key = np.empty(0)
    else:
        key = -np.asarray(priority, np.float64)
        if key.shape != (tasks.count,) or np.isnan(key).any():
            raise ScheduleError(f"priority: expected {tasks.count} numbers, got {priority!r}")
    early = np.asarray(early_push, np.bool_)
    if early.shape not in ((), (tasks.events,)):
        raise ScheduleError(f"early_push: expected a bool or {tasks.events} of them, got shape {early.shape}")
    require_complete(tasks, items)
    if seed is None:
        row_tie, worker_tie = np.arange(tasks.count), np.arange(items.workers)
    else:
        rng = np.random.default_rng(seed)
        row_tie, worker_tie = rng.permutation(tasks.count), rng.permutation(items.workers)
    worker, ready, pop_start, pop_end, wait_start, start, end, free, completed, queue_of_worker = _engine(
        cost,
        tasks.wait_ptr,
        tasks.wait_event,
        tasks.notify_ptr,
        tasks.notify_event,
        tasks.event_need,
        *event_waiters(tasks),
        np.asarray(items.item_ptr, np.int64),
        np.asarray(items.item, np.int64),
        np.asarray(items.row_queue, np.int64),
        np.bincount(items.row_queue[items.row_queue >= 0], minlength=items.queues),
        np.broadcast_to(early, tasks.events).copy(),
        key,
        row_tie,
        worker_tie,
        float(event_latency),
        float(pop_cost),
        float(push_cost),
    )
    blocked = _blocked(tasks, worker, wait_start, end, completed, queue_of_worker)
    return ModelRun(worker, ready, pop_start, pop_end, wait_start, start, end, free, blocked)


def _blocked(
    tasks: TaskArrays,
    worker: np.ndarray,
    wait_start: np.ndarray,
    end: np.ndarray,
    completed: np.ndarray,
    queue_of_worker: np.ndarray,
) -> np.ndarray:
    """The rows of `ModelRun.blocked`: workers that hold a task or a ticket when nothing happens any more."""
    found = []
    for row in np.flatnonzero(~np.isnan(wait_start) & np.isnan(end)):
        events = tasks.wait_event[tasks.wait_ptr[row] : tasks.wait_ptr[row + 1]]
        found.append((worker[row], row, events[np.argmax(completed[events] < tasks.event_need[events])]))
    found += [(w, ~queue_of_worker[w], -1) for w in np.flatnonzero(queue_of_worker >= 0)]
    return np.array(sorted(found), np.int64).reshape(-1, 3)


# What can happen, in the order in which simultaneous happenings are looked at: first everything that ends, so
# that all that becomes ready at one time competes for the workers that are free at that time.
_END, _TAKE, _PUSH, _FREE = 0, 1, 2, 3


@numba.njit(cache=True)
def _engine(
    cost,
    wait_ptr,
    wait_event,
    notify_ptr,
    notify_event,
    event_need,
    waiter_ptr,
    waiter_row,
    item_ptr,
    item,
    row_queue,
    tickets,  # of each queue, not yet claimed; counted down
    early,
    key,
    row_tie,
    worker_tie,
    event_latency,
    pop_cost,
    push_cost,
):
    count, events, workers, queues = len(cost), len(event_need), len(item_ptr) - 1, len(tickets)
    worker = np.full(count, -1, np.int64)
    ready = np.zeros(count)
    pop_start, pop_end = np.full(count, np.nan), np.full(count, np.nan)
    wait_start = np.full(count, np.nan)
    start, end, free = np.full(count, np.nan), np.full(count, np.nan), np.full(count, np.nan)

    completed = np.zeros(events, np.int64)  # notifications by tasks that ended
    dispatched = np.zeros(events, np.int64)  # and by tasks that are in a worker's hands
    unsatisfied = np.zeros(count, np.int64)  # events that keep a task from starting
    unpushable = np.zeros(count, np.int64)  # events that keep it out of its queue
    position = item_ptr[:-1].copy()
    queue_of_worker = np.full(workers, -1, np.int64)  # where it holds a ticket and no task
    # Heaps: (since, tie, worker) of those at each queue, (key or time pushed, tie, row) of what is in it, and
    # (time, what, tie, row or worker) of all that is to happen.
    at_queue = [[(0.0, 0, 0) for _ in range(0)] for _ in range(queues)]
    queued = [[(0.0, 0, 0) for _ in range(0)] for _ in range(queues)]
    agenda = [(0.0, _FREE, worker_tie[w], w) for w in range(workers)]
    for row in range(count):
        for event in wait_event[wait_ptr[row] : wait_ptr[row + 1]]:
            unsatisfied[row] += event_need[event] > 0
        unpushable[row] = unsatisfied[row]
        if unpushable[row] == 0 and row_queue[row] >= 0:
            agenda.append((0.0, _PUSH, row_tie[row], row))
    heapify(agenda)

    now = 0.0
    while True:
        if len(agenda) == 0 or agenda[0][0] > now:
            # Nothing more happens at this time: hand out one task, then look again (it may end at once).
            handed = False
            for queue in range(queues):
                if len(queued[queue]) > 0 and len(at_queue[queue]) > 0:
                    _, _, row = heappop(queued[queue])
                    since, _, w = heappop(at_queue[queue])
                    worker[row], pop_start[row], queue_of_worker[w] = w, since, -1
                    heappush(agenda, (now + pop_cost, _TAKE, row_tie[row], row))
                    handed = True
                    break
            if handed:
                continue
            if len(agenda) == 0:
                break
        now, what, _, which = heappop(agenda)
        if what == _FREE:
            while position[which] < item_ptr[which + 1]:
                entry = item[position[which]]
                if entry >= 0:
                    position[which] += 1
                    worker[entry], pop_start[entry] = which, now
                    heappush(agenda, (now, _TAKE, row_tie[entry], entry))
                    break
                if tickets[~entry] > 0:
                    tickets[~entry] -= 1
                    queue_of_worker[which] = ~entry
                    heappush(at_queue[~entry], (now, worker_tie[which], which))
                    break
                position[which] += 1
        elif what == _PUSH:
            queue = row_queue[which]
            heappush(queued[queue], (key[which] if len(key) > 0 else now, row_tie[which], which))
        elif what == _TAKE:
            pop_end[which] = now
            pushes = 0
            for event in notify_event[notify_ptr[which] : notify_ptr[which + 1]]:
                dispatched[event] += 1
                if early[event] and dispatched[event] == event_need[event]:
                    for waiter in waiter_row[waiter_ptr[event] : waiter_ptr[event + 1]]:
                        unpushable[waiter] -= 1
                        if unpushable[waiter] == 0 and row_queue[waiter] >= 0:
                            pushes += 1
                            heappush(agenda, (now + pushes * push_cost, _PUSH, row_tie[waiter], waiter))
            wait_start[which] = now + pushes * push_cost
            if unsatisfied[which] == 0:
                _start(which, agenda, row_tie, cost, ready, wait_start, start, end)
        else:
            pushes = 0
            for event in notify_event[notify_ptr[which] : notify_ptr[which + 1]]:
                completed[event] += 1
                if completed[event] == event_need[event]:
                    for waiter in waiter_row[waiter_ptr[event] : waiter_ptr[event + 1]]:
                        ready[waiter] = max(ready[waiter], now + event_latency)
                        unsatisfied[waiter] -= 1
                        if unsatisfied[waiter] == 0 and not np.isnan(wait_start[waiter]):
                            _start(waiter, agenda, row_tie, cost, ready, wait_start, start, end)
                        if not early[event]:
                            unpushable[waiter] -= 1
                            if unpushable[waiter] == 0 and row_queue[waiter] >= 0:
                                pushes += 1
                                heappush(agenda, (now + pushes * push_cost, _PUSH, row_tie[waiter], waiter))
            free[which] = now + pushes * push_cost
            heappush(agenda, (free[which], _FREE, worker_tie[worker[which]], worker[which]))

    for row in range(count):
        if unsatisfied[row] > 0:
            ready[row] = np.nan
    return worker, ready, pop_start, pop_end, wait_start, start, end, free, completed, queue_of_worker


@numba.njit(cache=True)
def _start(row, agenda, row_tie, cost, ready, wait_start, start, end):
    start[row] = max(wait_start[row], ready[row])
    end[row] = start[row] + cost[row]
    heappush(agenda, (end[row], _END, row_tie[row], row))
