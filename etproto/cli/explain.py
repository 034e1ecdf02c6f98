"""The text of `explain`: a target as it was written, as it was lowered, and the kernel made for it."""

from __future__ import annotations

from etproto import layout as L
from etproto.cli.target import Target
from etproto.errors import ExecutorUnavailable
from etproto.kernels.source import fits_shared_tables, kernel_source
from etproto.kernels.source_hopper import hopper_source
from etproto.lowering import Lowered
from etproto.program import Instance
from etproto.schedule import schedule

__all__ = ["explain_target"]


def explain_target(target: Target) -> str:
    """Program listing, task grids, event tensors, sizes, kernel source.

    Raises
    ------
    GraphError
        The graph has a cycle or another fault.
    """
    lowered = target.lower()
    written = str(target.work)
    if isinstance(target.work, Instance):
        written = f"{target.work.program}\n\nbound: {written}"
    try:
        fits = fits_shared_tables(schedule(lowered, workers=1))
        source = kernel_source(lowered.kinds, shared_tables=fits).rstrip()
    except ExecutorUnavailable as error:
        source = f"none: {error}"
    parts = {
        "task grids": _grids(lowered),
        "event tensors": _events(lowered),
        "arrays": _arrays(lowered),
        "kernel": [source],
    }
    if any(kind.roles for kind in lowered.kinds):
        parts["choice of bodies in the hopper worker"] = [hopper_source(lowered.kinds).rstrip()]
    return "\n\n".join([written, *("\n".join([f"{title}:", *lines]) for title, lines in parts.items())])


def _grids(lowered: Lowered) -> list[str]:
    words = lowered.resolved_words()
    lines = []
    for grid, name in enumerate(lowered.grid_name):
        record = words[L.HEADER_GRIDS] + grid * L.GRID_WORDS
        source = "table" if words[record + L.GRID_SOURCE] == L.SOURCE_TABLE else "formula"
        if source == "table":
            kinds = ", ".join(kind.name for kind in lowered.kinds) or "no tasks"
        else:
            kinds = lowered.kinds[words[record + L.GRID_KIND]].name
        dimensions = int(words[record + L.GRID_DIMENSIONS])
        extents = [str(word) for word in words[record + L.GRID_EXTENT : record + L.GRID_EXTENT + dimensions]]
        if words[record + L.GRID_COUNT_BUFFER] >= 0:
            buffer = lowered.buffers[words[record + L.GRID_COUNT_BUFFER]].name
            if words[record + L.GRID_RAGGED]:
                extents[1] = f"rows of {buffer}"
            else:
                extents[0] = f"{buffer}[{words[record + L.GRID_COUNT_INDEX]}]"
        bound = f"at most {lowered.grid_bound[grid]:,} tasks from id {lowered.grid_first[grid]:,}"
        waits, notifies = (words[record + field] for field in (L.GRID_WAIT_COUNT, L.GRID_NOTIFY_COUNT))
        lines.append(
            f"  {name}: {source}, {kinds}, extents ({', '.join(extents)}), {bound},"
            f" wait maps {waits}, notify maps {notifies}"
        )
    return lines


def _events(lowered: Lowered) -> list[str]:
    words = lowered.resolved_words()
    names = ["graph"] if lowered.instance is None else [event.name for event in lowered.instance.program.events]
    lines = []
    for event in range(words[L.HEADER_EVENT_COUNT]):
        record = words[L.HEADER_EVENTS] + event * L.EVENT_WORDS
        dimensions = int(words[record + L.EVENT_DIMENSIONS])
        shape = ", ".join(str(word) for word in words[record + L.EVENT_EXTENT : record + L.EVENT_EXTENT + dimensions])
        scope = "sys" if words[record + L.EVENT_SCOPE] == L.SCOPE_SYSTEM else "gpu"
        lines.append(
            f"  {names[event]}: shape ({shape}), {words[record + L.EVENT_CELLS]:,} events,"
            f" {_need(lowered, record)}, scope {scope}, triggers {words[record + L.EVENT_TRIGGER_COUNT]}"
        )
    return lines or ["  none"]


def _need(lowered: Lowered, record: int) -> str:
    words = lowered.resolved_words()
    form, need = words[record + L.EVENT_NEED_FORM], words[record + L.EVENT_NEED]
    if form == L.NEED_SCALAR:
        return f"need {need}"
    buffer = lowered.buffers[need]
    if form == L.NEED_RUNTIME:
        return f"need {buffer.name}[...], counted in the launch"
    used = buffer.contents[: words[record + L.EVENT_CELLS]]
    return f"need {used.min(initial=0 if not len(used) else used[0])} to {used.max(initial=0)}, a table"


def _arrays(lowered: Lowered) -> list[str]:
    tables = [buffer.contents for buffer in lowered.buffers if buffer.contents is not None]
    return [
        f"  words: {len(lowered.words):,} int64, {lowered.words.nbytes:,} bytes",
        f"  scalars: {len(lowered.scalars):,} int64, {lowered.scalars.nbytes:,} bytes, stored by a binding",
        f"  tables: {len(tables)}, {sum(table.nbytes for table in tables):,} bytes",
        f"  event counters: {lowered.cells:,} int32 at the bounds; task ids: {lowered.tasks:,}",
    ]
