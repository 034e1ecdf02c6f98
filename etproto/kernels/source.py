"""Source of the persistent kernel for one set of tile kinds: plain Python that can be read, stepped through
and compiled.

The kernel depends on the kinds alone. Everything else about a program is data, so one kernel serves every
size, schedule and graph made of the same kinds.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable, Sequence
from typing import Any

from numba import cuda, int64

from etproto import layout as L
from etproto.errors import ExecutorUnavailable
from etproto.kernels import sync, worker_portable
from etproto.kernels.decode import grid_of_task, map_coordinate, task_coordinate
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.timer import clock64
from etproto.kernels.ptx.views import array_view
from etproto.scheduled import Scheduled
from etproto.tile_kind import TileKind

__all__ = ["TABLE_WORDS", "fits_shared_tables", "kernel_function", "kernel_source"]

#: Records, pointers and entries of a program up to this many words are read from shared memory (8 KB).
TABLE_WORDS = 1024

STATIC_SHARED_BYTES = 48 * 1024  # what CUDA lets a kernel declare

_HEAD = '''\
def worker(launch_address):
    """Persistent worker for the tile kinds {kinds}."""
    given = view_int64_1(launch_address, L.LAUNCH_COUNT)
    launch = cuda.shared.array({launch_words}, int64)  # in shared memory: an acquire empties the first-level cache
    shared = cuda.shared.array({shared_words}, int64)
    for field in range(cuda.threadIdx.x, L.LAUNCH_COUNT, cuda.blockDim.x):
        launch[field] = given[field]
    for stage in range(3):
        shared[sync.SHARED_FAILED + stage] = 0
    cuda.syncthreads()
{tables}    me = cuda.blockIdx.x + 0 * launch[0]
    workers = cuda.gridDim.x + 0 * launch[0]
    leader = cuda.threadIdx.x == 0
    if leader:
        portable.start_worker(launch, me)
    lists = view_int64_1(launch[L.LAUNCH_WORKER_POINTER], workers + 1)
    position = lists[me]
    last_position = lists[me + 1]
    finished = 0 * me
    step = 0 * me
    offset = 0 * me
    turn = 0
    starting = me == 0 and launch[L.LAUNCH_QUEUE_COUNT] > 0  # worker 0 first pushes what needs no notification
    running = True
    while running:
        task = 0 * me - 1
        if not starting:
            if leader:
                task, position, step, offset = portable.next_task(
                    launch, words, pointers, entries, workers, me, last_position, position, step, offset
                )
                shared[sync.SHARED_TASK + turn] = task
            cuda.syncthreads()
            task = shared[sync.SHARED_TASK + turn]
            turn = 1 - turn
        if task < 0 and not starting:
            running = False
        else:
            number = max(task, 0)
            grid = grid_of_task(words, number)
            x = 0 * me
            y = 0 * me
            z = 0 * me
            w = 0 * me
            start = 0 * me
            end = 0 * me
            state = portable.RUN + 0 * me
            last = sync.COMPLETED + 0 * me
            phase = sync.COMPLETED - launch[L.LAUNCH_EARLY]  # DISPATCHED first when tasks are pushed early
            if starting:
                phase = sync.START + 0 * me
                last = sync.START + 0 * me
            while phase <= last and state == portable.RUN:
                if phase == sync.DISPATCHED:
                    x, y, z, w = map_coordinate(words, pointers, grid, number - words[grid + L.GRID_FIRST])
                if phase == sync.COMPLETED:
                    state, x, y, z, w = portable.begin_task(
                        launch, words, pointers, shared, workers, me, grid, task
                    )
                    if state == portable.RUN:
                        kind = portable.task_kind(words, pointers, grid, task)
                        operand = portable.task_operands(words, grid, kind)
                        c0, c1, c2, c3 = task_coordinate(words, pointers, grid, task - words[grid + L.GRID_FIRST])
                        start = clock64()
'''

_GLOBAL_TABLES = """\
    words = table_view(launch[L.LAUNCH_WORDS], launch[L.LAUNCH_WORD_COUNT])
    pointers = table_view(launch[L.LAUNCH_POINTERS], launch[L.LAUNCH_POINTER_COUNT])
    entries = table_view(launch[L.LAUNCH_ENTRIES], launch[L.LAUNCH_ENTRY_COUNT] * L.ENTRY_WORDS)
"""

_SHARED_TABLES = """\
    tables = cuda.shared.array({table_words}, int64)
    pointers_at = launch[L.LAUNCH_WORD_COUNT]
    entries_at = pointers_at + launch[L.LAUNCH_POINTER_COUNT]
    portable.copy_table(tables, 0, launch[L.LAUNCH_WORDS], pointers_at)
    portable.copy_table(tables, pointers_at, launch[L.LAUNCH_POINTERS], launch[L.LAUNCH_POINTER_COUNT])
    portable.copy_table(tables, entries_at, launch[L.LAUNCH_ENTRIES], launch[L.LAUNCH_ENTRY_COUNT] * L.ENTRY_WORDS)
    words = tables
    pointers = tables[pointers_at:]
    entries = tables[entries_at:]
    cuda.syncthreads()
"""

_TAIL = """\
                        end = portable.end_body(launch, me, task)
                if state == portable.RUN:
                    sync.notify_edges(
                        launch, words, pointers, shared, me, grid, task, words[grid + L.GRID_EPOCH], phase, x, y, z, w
                    )
                phase += 1
            if state == portable.STOP:
                running = False
            elif state == portable.RUN and leader:
                finished += 0 if starting else 1
                portable.end_task(launch, words, pointers, me, grid, task, finished, start, end)
            elif state == portable.SKIP and leader:
                portable.leave_task(launch)
            starting = False
    if leader:
        portable.end_worker(launch, me)
"""


def device_dtype(dtype: str) -> str:
    """Element type of the arrays that bodies see on the device: 16-bit floats are bits there."""
    return "uint16" if dtype in ("float16", "bfloat16") else dtype


def kernel_source(kinds: Sequence[TileKind], *, shared_tables: bool = True) -> str:
    """Python source of the worker kernel for `kinds`, kind numbers being positions in it.

    Raises
    ------
    ExecutorUnavailable
        A kind has no portable body.

    Examples
    --------
    >>> from etproto.models.splitk import program
    >>> kinds = [grid.kind for grid in program().parsed]
    >>> "# partial_sum(" in kernel_source(kinds)
    True
    """
    names = ", ".join(kind.name for kind in kinds)
    tables = _SHARED_TABLES.format(table_words=TABLE_WORDS) if shared_tables else _GLOBAL_TABLES
    lines = [_HEAD.format(kinds=names, launch_words=L.LAUNCH_COUNT, shared_words=sync.SHARED_WORDS, tables=tables)]
    indent = " " * 24
    for number, kind in enumerate(kinds):
        if kind.portable is None:
            raise ExecutorUnavailable(
                f"tile kind {kind.name} has no portable body, so it cannot run on a GPU or in the simulator; use"
                " the cpu executor"
            )
        lines.append(f"{indent}{'if' if number == 0 else 'elif'} kind == {number}:  # {kind}\n")
        lines.append(f"{indent}    body_{number}(\n")
        for coordinate in range(kind.coordinates):
            lines.append(f"{indent}        c{coordinate},\n")
        if kind.argument:
            lines.append(f"{indent}        portable.task_argument(words, pointers, grid, task),\n")
        for position, operand in enumerate(kind.operands):
            at = f"operand + {position * L.OPERAND_WORDS}"
            value = f"words[{at}]"
            if operand.ndim:
                extents = ", ".join(f"words[{at} + {1 + d}]" for d in range(operand.ndim))
                value = f"view_{device_dtype(operand.dtype)}_{operand.ndim}(pointers[{value}], {extents})"
            lines.append(f"{indent}        {value},  # {operand.name}\n")
        lines.append(f"{indent}    )\n")
    return "".join(lines) + _TAIL


def fits_shared_tables(scheduled: Scheduled) -> bool:
    """Whether the records of a schedule go into the worker's shared memory, beside what its tile kinds ask
    for.
    """
    lowered = scheduled.lowered
    words = len(lowered.words) + len(lowered.buffers) + scheduled.entries.size
    static = 8 * (TABLE_WORDS + L.LAUNCH_COUNT + sync.SHARED_WORDS) + sum(kind.shared_bytes for kind in lowered.kinds)
    return words <= TABLE_WORDS and static <= STATIC_SHARED_BYTES


def kernel_function(kinds: Sequence[TileKind], *, shared_tables: bool = True) -> Callable[[int], None]:
    """The worker kernel as a Python function whose source `inspect`, tracebacks and line information can
    find.
    """
    source = kernel_source(kinds, shared_tables=shared_tables)
    filename = f"<etproto worker {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    names: dict[str, Any] = {
        "cuda": cuda,
        "int64": int64,
        "L": L,
        "sync": sync,
        "portable": worker_portable,
        "grid_of_task": grid_of_task,
        "map_coordinate": map_coordinate,
        "task_coordinate": task_coordinate,
        "clock64": clock64,
        "view_int64_1": array_view("int64", 1),
        "table_view": array_view("int64", 1, unbounded=True),
    }
    for number, kind in enumerate(kinds):
        names[f"body_{number}"] = device_function(kind.portable)
        for operand in kind.operands:
            if operand.ndim:
                dtype = device_dtype(operand.dtype)
                names[f"view_{dtype}_{operand.ndim}"] = array_view(dtype, operand.ndim)
    exec(compile(source, filename, "exec"), names)  # the source above, nothing from outside
    return names["worker"]
