"""How faults name tasks and events."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from etproto.tasks import TaskArrays

__all__ = ["SHOWN", "EventName", "event_text", "some", "some_tasks"]

SHOWN = 8  # names in a list, and faults of one sort

EventName = Callable[[int], str]


def some(texts: Iterable[str], count: int | None = None) -> str:
    """The first few of `count` texts (default: all that there are), and how many more.

    Examples
    --------
    >>> some(map(str, range(20)), 20)
    '0, 1, 2, 3, 4, 5, 6, 7 and 12 more'
    """
    if count is None:
        texts = list(texts)
        count = len(texts)
    shown = [text for text, _ in zip(texts, range(SHOWN), strict=False)]
    return ", ".join(shown) + (f" and {count - len(shown)} more" if count > len(shown) else "")


def some_tasks(tasks: TaskArrays, rows: np.ndarray) -> str:
    """Names of the first few of `rows`, and how many more."""
    return some((tasks.name(int(row)) for row in rows[:SHOWN]), len(rows))


def event_text(event: int, name: EventName | None) -> str:
    """``event E[3]``, or the number of an event that has no name."""
    return f"event {event if name is None else name(event)}"
