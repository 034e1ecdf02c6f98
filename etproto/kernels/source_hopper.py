"""The hopper worker's kernel for one set of tile kinds.

The kernel is an ordinary function; what differs from program to program is which body a task's kind calls in
each role. Those three functions are generated as plain Python that can be read and stepped through.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from etproto import layout as L
from etproto.errors import ExecutorUnavailable
from etproto.kernels import worker_hopper
from etproto.kernels.groups import CONSUMER_THREADS, CONSUMERS, consumer_barrier, rebound
from etproto.kernels.kernel_hopper import hopper_kernel
from etproto.kernels.ptx.bulk import proxy_fence
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.views import array_view
from etproto.kernels.roles import STAGING_BUFFERS, wait_unstaged
from etproto.kernels.source import TABLE_WORDS, device_dtype
from etproto.kernels.worker_hopper_loader import load_stages, load_stages_ahead
from etproto.scheduled import Scheduled
from etproto.tile_kind import TileKind

__all__ = ["Geometry", "HOPPER_THREADS", "fits_shared_tables", "geometry", "hopper_function", "hopper_source"]

HOPPER_THREADS = CONSUMER_THREADS + 32 * worker_hopper.PRODUCER_WARPS
SHARED_LIMIT = 227 * 1024  # bytes that a block of sm_90 may have
STATIC_LIMIT = 48 * 1024
MOST_STAGES = 32
_ALIGNMENT = 1024  # of a tile that is swizzled over 128 bytes
_WORKER_WORDS = L.LAUNCH_COUNT + worker_hopper.DESCRIPTOR_ARRAY_WORDS + 3 * worker_hopper.SCRATCH_WORDS


@dataclass(frozen=True)
class Geometry:
    """How a block's dynamic shared memory is divided: stages, staging buffers, mbarriers.

    Parameters
    ----------
    stages, stage_bytes, staging_bytes : int
    dynamic_bytes : int
        What the launch asks for.
    """

    stages: int
    stage_bytes: int
    staging_bytes: int
    dynamic_bytes: int


def _static_bytes(kinds: Sequence[TileKind], shared_tables: bool) -> int:
    words = _WORKER_WORDS + (TABLE_WORDS if shared_tables else 0)
    return 8 * words + sum(kind.shared_bytes for kind in kinds)


def geometry(kinds: Sequence[TileKind], *, shared_tables: bool = True) -> Geometry:
    """Divide shared memory for `kinds`: as many stages as fit, each as large as the largest that a kind asks for.

    Raises
    ------
    ExecutorUnavailable
        Fewer than two stages fit.
    """
    stage_bytes = max((kind.stage_bytes for kind in kinds), default=0)
    staging_bytes = max((kind.staging_bytes for kind in kinds), default=0)
    staging_bytes += staging_bytes % (STAGING_BUFFERS * 1024)  # each buffer begins at a multiple of 1024
    barriers = 8 * (4 * worker_hopper.DESCRIPTORS + 2 * MOST_STAGES + 2 * STAGING_BUFFERS)
    room = SHARED_LIMIT - _static_bytes(kinds, shared_tables) - 1024 - _ALIGNMENT - barriers - staging_bytes
    stages = min(room // stage_bytes, MOST_STAGES) if stage_bytes else 0
    if stage_bytes and stages < 2:
        raise ExecutorUnavailable(
            f"tile kinds {', '.join(kind.name for kind in kinds)}: two stages of {stage_bytes} bytes need"
            f" {2 * stage_bytes} bytes of shared memory, {max(room, 0)} are left on a device of {SHARED_LIMIT}"
        )
    dynamic = _ALIGNMENT + stages * stage_bytes + staging_bytes + barriers
    return Geometry(stages, stage_bytes, staging_bytes, dynamic)


def fits_shared_tables(scheduled: Scheduled) -> bool:
    """Whether the records of a schedule go into the worker's shared memory."""
    lowered = scheduled.lowered
    words = len(lowered.words) + len(lowered.buffers) + scheduled.entries.size
    return words <= TABLE_WORDS and _static_bytes(lowered.kinds, True) <= STATIC_LIMIT


_PARAMETERS = "launch, words, pointers, descriptors, at, ring"

_COMPUTE = '''\
def compute_task({parameters}, stage, phase, turn):
    """Consumer threads: the body of one task."""
'''

_LOAD = '''\
def load_task({parameters}, block, barrier, parity, stage, phase):
    """Loader thread: the copies of one task."""
    going = True
'''

_STORE = '''\
def store_task({parameters}, turn):
    """Store thread: the bulk stores of one task."""
'''


def hopper_source(kinds: Sequence[TileKind]) -> str:
    """Python source of the three functions that choose the bodies of a task by its kind.

    Raises
    ------
    ExecutorUnavailable
        A kind has neither roles nor a portable body.
    """
    names = ["kind = descriptors[at + L.DESCRIPTOR_KIND]", "operand = descriptors[at + L.DESCRIPTOR_OPERANDS]"]
    names += [f"c{i} = descriptors[at + L.DESCRIPTOR_COORDINATE + {i}]" for i in range(4)]
    head = "".join(f"    {name}\n" for name in names)
    parts = {"compute": "", "load": "", "store": ""}
    for number, kind in enumerate(kinds):
        test = f"    if kind == {number}:  # {kind}\n"
        given = "".join(f"            {argument},\n" for argument in _arguments(kind))
        if "compute" in kind.roles:
            maps = "".join(f"            {address},\n" for address in _map_addresses(kind))
            before, kept, after = _around_compute(kind, kinds)
            parts["compute"] += f"{test}{before}        stage, phase, {kept} = compute_{number}(\n            ring,\n"
            parts["compute"] += f"            stage,\n            phase,\n            turn,\n{given}{maps}        )\n"
            parts["compute"] += after
            if "store" in kind.roles:
                parts["store"] += f"{test}        turn = store_{number}(\n            ring,\n            turn,\n"
                parts["store"] += f"{given}{maps}        )\n"
            if "stages" in kind.roles:
                ahead = f"ahead_{number}"
                function, late = (
                    ("load_stages", f"load_{number}, ") if "load" in kind.roles else ("load_stages_ahead", "")
                )
                parts["load"] += (
                    f"{test}        stage, phase, going = {function}(\n            descriptors, ring, block,"
                )
                parts["load"] += f" barrier, parity, at, stage, phase, stages_{number}, {ahead}, {late}(\n"
                parts["load"] += f"{given}{maps}        ))\n".replace("            ", "                ")
        elif kind.portable is not None:
            parts["compute"] += f"{test}        body_{number}(\n{given}        )\n"
            parts["compute"] += "        proxy_fence()\n        consumer_barrier()\n"
        else:
            raise ExecutorUnavailable(
                f"tile kind {kind.name} has neither roles nor a portable body, so it cannot run on a GPU or in the"
                " simulator; use the cpu executor"
            )
    endings = {"compute": "stage, phase, turn", "load": "stage, phase, going", "store": "turn"}
    heads = {"compute": _COMPUTE, "load": _LOAD, "store": _STORE}
    return "\n\n".join(
        heads[role].format(parameters=_PARAMETERS) + head + body + f"    return {endings[role]}\n"
        for role, body in parts.items()
    )


def _around_compute(kind: TileKind, kinds: Sequence[TileKind]) -> tuple[str, str, str]:
    """(source before the compute role, name that takes its turn, source after it).

    Staging memory is one for all kinds. Those with a store role count turns together with the store thread, so that
    other kinds must leave the count alone; and where several kinds use that memory, none may find another's
    stores or slower warps still reading there.
    """
    stores = any("store" in other.roles for other in kinds)
    if "store" in kind.roles:
        return "", "turn", ""
    before, after = "", "        proxy_fence()\n"
    if kind.staging_bytes and stores:
        before = "".join(f"        wait_unstaged(ring, {buffer}, turn)\n" for buffer in range(STAGING_BUFFERS))
    if kind.staging_bytes and (stores or sum(other.staging_bytes > 0 for other in kinds) > 1):
        after += "        consumer_barrier()\n"
    return before, "_turn" if stores else "turn", after


def _arguments(kind: TileKind) -> list[str]:
    """Source of the arguments of a kind's bodies, read from the records: coordinates, then operands."""
    arguments = [f"c{i}" for i in range(kind.coordinates)]
    if kind.argument:
        arguments.append("descriptors[at + L.DESCRIPTOR_ARGUMENT]")
    for position, operand in enumerate(kind.operands):
        word = f"operand + {position * L.OPERAND_WORDS}"
        value = f"words[{word}]"
        if operand.ndim:
            extents = ", ".join(f"words[{word} + {1 + d}]" for d in range(operand.ndim))
            value = f"view_{device_dtype(operand.dtype)}_{operand.ndim}(pointers[{value}], {extents})"
        arguments.append(value)
    return arguments


def _map_addresses(kind: TileKind) -> list[str]:
    """Source of the addresses of a kind's tensor maps, in the order of `TileKind.tensor_maps`."""
    positions = {operand.name: position for position, operand in enumerate(kind.operands)}
    addresses = []
    for number, one in enumerate(kind.tensor_maps):
        word = f"operand + {positions[one.operand] * L.OPERAND_WORDS + L.OPERAND_MAP}"
        earlier = sum(other.operand == one.operand for other in kind.tensor_maps[:number])
        addresses.append(f"launch[L.LAUNCH_TENSOR_MAPS] + {L.TENSOR_MAP_BYTES} * (words[{word}] + {earlier})")
    return addresses


@cache
def hopper_function(
    kinds: tuple[TileKind, ...], *, shared_tables: bool = True, traced: bool = False
) -> Callable[[int], None]:
    """The hopper worker's kernel for `kinds`, kind numbers being positions in it; see `kernel_function`."""
    source = hopper_source(kinds)
    filename = f"<etproto hopper worker {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    names: dict[str, Any] = {
        "L": L,
        "consumer_barrier": consumer_barrier,
        "proxy_fence": proxy_fence,
        "wait_unstaged": wait_unstaged,
        "load_stages": load_stages,
        "load_stages_ahead": load_stages_ahead,
    }
    for number, kind in enumerate(kinds):
        for role, body in kind.roles.items():
            names[f"{role}_{number}"] = device_function(body)
        if not kind.roles and kind.portable is not None:
            names[f"body_{number}"] = rebound(device_function(kind.portable), CONSUMERS)
        for operand in kind.operands:
            if operand.ndim:
                dtype = device_dtype(operand.dtype)
                names[f"view_{dtype}_{operand.ndim}"] = array_view(dtype, operand.ndim)
    exec(compile(source, filename, "exec"), names)  # the source above, nothing from outside
    dispatch = [device_function(names[f"{role}_task"]) for role in ("compute", "load", "store")]
    where = geometry(kinds, shared_tables=shared_tables)
    return hopper_kernel(
        *dispatch,
        stages=where.stages,
        stage_bytes=where.stage_bytes,
        staging_bytes=where.staging_bytes,
        alignment=_ALIGNMENT,
        shared_tables=shared_tables,
        traced=traced,
        stores=any("store" in kind.roles for kind in kinds),
    )
