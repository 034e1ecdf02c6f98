"""All workers of the cpu executor in one thread, in an order drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from etproto import layout as L
from etproto.executors.host_run import HostRun
from etproto.executors.host_sync import BODY, BOTH, FREE, RELEASE, WAIT, fail
from etproto.executors.host_worker import worker

__all__ = ["run_seeded"]

BURSTS = (1, 1, 1, 3, 20)  # steps that a worker may take before another one is drawn
LONGEST_DELAY = 60  # turns of others for which a worker may be held back between a body and its notifications
END = ("end", None)


def _call_bodies(me: int, what: str, key: Any) -> None:
    if what == BODY:
        key()


def run_seeded(
    run: HostRun, seed: int, observe: Callable[[int, str, Any], None] = _call_bodies
) -> tuple[int, BaseException] | None:
    """Step all workers to their ends, or until one fails or none can go on.

    Parameters
    ----------
    run : HostRun
    seed : int
        The same seed gives the same interleaving.
    observe : callable
        ``observe(worker, what, key)`` is told every step, and is to call the bodies.

    Returns
    -------
    (worker, exception) where `observe` raised, or None
    """
    rng = random.Random(seed)
    steps = [worker(run, me) for me in range(run.workers)]
    able = list(range(run.workers))
    held: dict[int, int] = {}  # worker -> turn in which it may go on to notify
    waiting: dict[tuple[str, int], list[int]] = {}
    turn = 0
    while able or held:
        turn += 1
        due = [me for me, until in held.items() if until <= turn]
        due = due or ([] if able else [min(held, key=held.__getitem__)])
        able += due
        for me in due:
            del held[me]
        me = able.pop(rng.randrange(len(able)))
        for _ in range(rng.choice(BURSTS)):
            what, key = next(steps[me], END)
            if run.status not in (L.STATUS_RUNNING, L.STATUS_FINISHED):
                return None
            try:
                observe(me, what, key)
            except BaseException as fault:
                return me, fault
            if what in (RELEASE, BOTH, FREE):
                able += waiting.pop(key, [])
            if what in (WAIT, BODY, END[0]):
                break
        if what == WAIT and run.status == L.STATUS_RUNNING:
            waiting.setdefault(key, []).append(me)
        elif what == BODY and rng.random() < 0.5:
            held[me] = turn + rng.randrange(LONGEST_DELAY)
        elif what != END[0]:
            able.append(me)
        if run.status == L.STATUS_FINISHED:  # those who wait at the queue may go home
            able += [who for group in waiting.values() for who in group]
            waiting.clear()
    if waiting:
        fail(run, L.STATUS_NO_PROGRESS, -1, -1, -1, run.finished, 0)
    return None
