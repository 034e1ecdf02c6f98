"""A line on the terminal while something takes longer than a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["progress"]

PATIENCE_S = 1.0  # shorter work shows nothing
_ERASE = "\r\x1b[K"


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show `text` and the seconds on stderr while the block runs; only on a terminal, only after a second."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    start = time.monotonic()

    def show() -> None:
        shown = False
        while not done.wait(PATIENCE_S):
            shown = True
            print(f"{_ERASE}{text} ... {time.monotonic() - start:.0f} s", end="", file=sys.stderr, flush=True)
        if shown:
            print(_ERASE, end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
