"""Threads of the cpu executor: one a worker, one lock for the protocol, a watchdog in the calling thread."""

from __future__ import annotations

import threading
import time

from etproto import layout as L
from etproto.executors.host_run import HostRun
from etproto.executors.host_sync import BODY, BOTH, FREE, RELEASE, WAIT, fail
from etproto.executors.host_worker import worker

__all__ = ["run_threads"]


def run_threads(run: HostRun, watchdog_s: float) -> tuple[int, BaseException] | None:
    """Run all workers to their ends, or until one fails.

    A body that never returns cannot be stopped: its thread is left alone, and the run ends without it.

    Returns
    -------
    (worker, exception) of the first body that raised, or None
    """
    threads = _Threads(run)
    for me in range(run.workers):
        threading.Thread(target=threads.work, args=(me,), name=f"worker {me}", daemon=True).start()
    with threads.lock:
        try:
            threads.watch(watchdog_s)
        finally:  # also when the user interrupts
            threads.stopped = True
            threads.wake_all()
        deadline = time.monotonic() + watchdog_s
        while threads.running:
            stuck = all(run.states[me][L.STATE_PHASE] == L.PHASE_BODY for me in threads.running)
            if stuck and (run.status == L.STATUS_NO_PROGRESS or time.monotonic() > deadline):
                break
            threads.changed.wait(timeout=0.05)
    return threads.error


class _Threads:
    """What the threads share; everything is touched under `lock` only."""

    def __init__(self, run: HostRun) -> None:
        self.run = run
        self.lock = threading.Lock()
        # For the watchdog: a worker has ended, or the run.
        self.changed = threading.Condition(self.lock)
        self.stopped = False
        self.error: tuple[int, BaseException] | None = None
        self.running = set(range(run.workers))
        self._blocked: set[int] = set()
        self._waiting: dict[object, list[int]] = {}
        self._awake = [threading.Condition(self.lock) for _ in range(run.workers)]

    def work(self, me: int) -> None:
        """One thread: step worker `me`."""
        with self.lock:
            try:
                self._go_through(me)
            except BaseException as fault:
                self.error = self.error or (me, fault)
                self.stopped = True
                self.wake_all()
            self.running.discard(me)
            self._look_at_status()
            self._require_someone_able()
            self.changed.notify()

    def _go_through(self, me: int) -> None:
        for what, key in worker(self.run, me):
            self._look_at_status()
            if self.stopped:
                break
            if what == BODY:
                self.lock.release()
                try:
                    key()
                finally:
                    self.lock.acquire()
            elif what in (RELEASE, BOTH, FREE):
                self._wake(self._waiting.pop(key, []))
            elif what == WAIT and self.run.status == L.STATUS_RUNNING:
                self._waiting.setdefault(key, []).append(me)
                self._blocked.add(me)
                self._require_someone_able()
                while me in self._blocked:
                    self._awake[me].wait()

    def watch(self, watchdog_s: float) -> None:
        """The calling thread: until all workers have ended, one failed, or nothing finishes any more."""
        finished, since = -1, time.monotonic()
        while self.running and not self.stopped:
            if self.run.finished != finished:
                finished, since = self.run.finished, time.monotonic()
            left = since + watchdog_s - time.monotonic()
            if left <= 0:
                self._no_progress(int(watchdog_s * 1e9))
            else:
                self.changed.wait(timeout=left)

    def wake_all(self) -> None:
        """Let all workers that wait look at the status."""
        for group in self._waiting.values():
            self._wake(group)
        self._waiting.clear()

    def _wake(self, workers: list[int]) -> None:
        for me in workers:
            self._blocked.discard(me)
            self._awake[me].notify()

    def _look_at_status(self) -> None:
        """The run has ended: those who wait at the queue go home, and after an error everybody does."""
        if self.run.status != L.STATUS_RUNNING:
            self.stopped = self.stopped or self.run.status != L.STATUS_FINISHED
            self.wake_all()
            self.changed.notify()

    def _require_someone_able(self) -> None:
        if self.running and len(self._blocked) == len(self.running):
            self._no_progress(0)

    def _no_progress(self, waited_ns: int) -> None:
        fail(self.run, L.STATUS_NO_PROGRESS, -1, -1, -1, self.run.finished, waited_ns)
        self._look_at_status()
