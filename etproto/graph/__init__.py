"""`TaskGraph`: tasks and the edges between them as arrays. See `order` for its algorithms."""

from __future__ import annotations

from etproto.graph.task_graph import SECONDS, TaskGraph

__all__ = ["SECONDS", "TaskGraph"]
