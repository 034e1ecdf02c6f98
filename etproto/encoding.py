"""Putting records into one int64 array, with the words that depend on symbols kept apart as patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from etproto import layout as L
from etproto.expressions import Expression, Symbol

__all__ = ["Encoder"]


class Encoder:
    """Collects the distinct symbolic values of a program as scalars, and assembles its sections.

    A record is a list of words: integers, expressions, or ``(section, number)`` for the place of another
    record.
    """

    def __init__(self, values: Mapping[str, int]) -> None:
        self._values = values
        self._scalars: dict[str, tuple[int, int]] = {}

    def scalars(self) -> np.ndarray:
        """The values of all symbolic words, int64, each distinct expression once."""
        return np.array([value for _, value in self._scalars.values()], np.int64)

    def _scalar(self, expression: Expression) -> int:
        text = str(expression)
        if text not in self._scalars:
            self._scalars[text] = (len(self._scalars), int(expression.evaluate(self._values)))
        return self._scalars[text][0]

    def assemble(
        self,
        *,
        grids: Sequence[list],
        edges: Sequence[list],
        dimensions: Sequence[list],
        events: Sequence[list],
        triggers: Sequence[list],
        operands: Sequence[list],
        table_operands: Sequence[int],
        task_table: int,
        cells: int,
        tasks: int,
        buffers: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The word array and its patches (rows of word, scalar)."""
        sections = {
            "grid": (L.HEADER_GRIDS, L.GRID_WORDS, grids),
            "edge": (L.HEADER_EDGES, L.EDGE_WORDS, edges),
            "dimension": (L.HEADER_DIMENSIONS, L.DIMENSION_WORDS, dimensions),
            "event": (L.HEADER_EVENTS, L.EVENT_WORDS, events),
            "trigger": (L.HEADER_TRIGGERS, L.TRIGGER_WORDS, triggers),
            "operand": (L.HEADER_OPERANDS, L.OPERAND_WORDS, operands),
        }
        start, at = {}, L.HEADER_WORDS
        for name, (_, size, records) in sections.items():
            start[name] = at
            at += size * len(records)
        words = np.zeros(at + len(table_operands), np.int64)
        patches: list[tuple[int, int]] = []
        for name, (header, size, records) in sections.items():
            words[header] = start[name]
            for number, record in enumerate(records):
                for field, value in enumerate(record):
                    word = start[name] + number * size + field
                    if isinstance(value, tuple):
                        words[word] = start[value[0]] + value[1] * sections[value[0]][1]
                    elif isinstance(value, Expression) and any(isinstance(leaf, Symbol) for leaf in value.leaves()):
                        patches.append((word, self._scalar(value)))
                    elif isinstance(value, Expression):
                        words[word] = int(value.evaluate({}))
                    else:
                        words[word] = value
        words[at:] = [start["operand"] + number * L.OPERAND_WORDS for number in table_operands]
        words[L.HEADER_TABLE_OPERANDS] = at
        words[L.HEADER_GRID_COUNT] = len(grids)
        words[L.HEADER_EVENT_COUNT] = len(events)
        words[L.HEADER_TASK_TABLE] = task_table
        words[L.HEADER_CELLS] = cells
        words[L.HEADER_TASKS] = tasks
        words[L.HEADER_RANKS] = 1
        words[L.HEADER_BUFFERS] = buffers
        return words, np.array(patches, np.int32).reshape(-1, 2)
