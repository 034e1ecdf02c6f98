"""`TileKind`: what one kind of task computes, on every executor.

A tile kind holds its NumPy reference and its device bodies side by side. Both take the same arguments: the
task's coordinates, then the kind's operands, so that reading one explains the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from etproto.errors import ProgramError
from etproto.tensor_maps import TensorMap

__all__ = ["Operand", "TileKind", "DTYPES", "ROLES", "storage_dtype"]

DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint16", "uint8")

ROLES = ("stages", "ahead", "load", "compute", "store")
_MODES = ("in", "out", "inout", "accumulate")


def storage_dtype(dtype: str) -> str:
    """Name of the NumPy type that holds elements of `dtype` on the host: bfloat16 travels as its bits.

    Examples
    --------
    >>> storage_dtype("bfloat16"), storage_dtype("float16")
    ('uint16', 'float16')
    """
    return "uint16" if dtype == "bfloat16" else dtype


@dataclass(frozen=True)
class Operand:
    """One argument of a tile kind.

    Parameters
    ----------
    name : str
        Name under which a task grid binds a tensor (or an integer, for a scalar operand) to it.
    dtype : str
        Element type of the tensor; one of `DTYPES`. Bodies see float16 and bfloat16 on the device, and
        bfloat16 in NumPy, as uint16 bits.
    ndim : int
        Dimensions of the tensor, 1 to 4; 0 for an integer scalar.
    mode : {"in", "out", "inout", "accumulate"}
        What a task does with it. ``accumulate`` means commutative atomic updates, which need no order among
        themselves.
    """

    name: str
    dtype: str = "float32"
    ndim: int = 2
    mode: str = "in"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ProgramError(f"operand {self.name}: dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")
        if self.mode not in _MODES:
            raise ProgramError(f"operand {self.name}: mode must be one of {', '.join(_MODES)}, got {self.mode!r}")
        if not 0 <= self.ndim <= 4:
            raise ProgramError(f"operand {self.name}: ndim must be 0 (an integer) to 4, got {self.ndim!r}")

    @property
    def writes(self) -> bool:
        """Whether a task may change the tensor."""
        return self.mode != "in"


@dataclass(frozen=True, eq=False)
class TileKind:
    """One kind of tile task.

    Parameters
    ----------
    name : str
        A Python identifier; how graphs, traces and the generated kernel call it.
    reference : callable
        ``reference(*coordinates, *operands)`` on NumPy arrays; the definition of the kind, and its body on
        the cpu executor.
    coordinates : int
        How many coordinates a task has, 0 to 4.
    operands : tuple of Operand
    portable : callable or None
        The SIMT body, with the same arguments: a plain Python function that Numba compiles for the device,
        run by every thread of a block. It must not return before a barrier, and needs no barrier at its end.
    roles : mapping
        Warp-specialised bodies by role, for the hopper worker; see `etproto.kernels.roles`. A kind without
        them runs its portable body there, by the consumer warps.
    tensor_maps : tuple of TensorMap
        What the roles' bulk copies need to know of operands; bodies of roles get the addresses of these maps
        after the operands.
    stage_bytes : int
        Bytes of a stage of the shared-memory ring that the roles fill; a multiple of 1024.
    staging_bytes : int
        Shared memory between the compute role and the store role.
    reads, writes : callable or None
        ``reads(*coordinates, *operands) -> {operand name: region}``, a region being a tuple of slices, one a
        dimension; arrays are given for their shapes only, unless `data_dependent`. None: the whole of every
        operand it reads or writes.
    cost : callable or float
        ``cost(*coordinates, *operands) -> float`` in microseconds, or a constant.
    shared_bytes : int
        Shared memory of the portable body beyond the worker's own.
    argument : bool
        Whether bodies take the table row's int32 argument after the coordinates.
    data_dependent : bool
        Whether `reads` and `writes` look at values; then only the cpu executor's race check calls them.
    """

    name: str
    reference: Callable[..., Any]
    coordinates: int = 2
    operands: tuple[Operand, ...] = ()
    portable: Callable[..., Any] | None = None
    roles: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    tensor_maps: tuple[TensorMap, ...] = ()
    stage_bytes: int = 0
    staging_bytes: int = 0
    reads: Callable[..., dict[str, tuple[slice, ...]]] | None = None
    writes: Callable[..., dict[str, tuple[slice, ...]]] | None = None
    cost: Callable[..., float] | float = 1.0
    shared_bytes: int = 0
    argument: bool = False
    data_dependent: bool = False

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ProgramError(f"a tile kind's name must be a Python identifier, got {self.name!r}")
        if not 0 <= self.coordinates <= 4:
            raise ProgramError(f"tile kind {self.name}: coordinates must be 0 to 4, got {self.coordinates!r}")
        names = [operand.name for operand in self.operands]
        for name in names:
            if names.count(name) > 1:
                raise ProgramError(f"tile kind {self.name}: operand {name!r} is declared {names.count(name)} times")

        unknown = sorted(set(self.roles) - set(ROLES))
        if unknown:
            raise ProgramError(f"tile kind {self.name}: roles are {', '.join(ROLES)}, got {', '.join(unknown)}")
        for number in (self.stage_bytes, self.staging_bytes):
            if number < 0 or number % 1024:
                raise ProgramError(
                    f"tile kind {self.name}: stage_bytes and staging_bytes must be multiples of 1024, got {number}"
                )
        ranks = {operand.name: operand.ndim for operand in self.operands}
        for one in self.tensor_maps:
            if ranks.get(one.operand) != len(one.box):
                raise ProgramError(
                    f"tile kind {self.name}: a tensor map of {one.operand} has a box of {len(one.box)} dimensions,"
                    f" the operand {ranks.get(one.operand, 'does not exist')}"
                )

    def __str__(self) -> str:
        coordinates = ["i", "j", "k", "l"][: self.coordinates]
        operands = [
            f"{operand.name}: {operand.mode} {operand.dtype}[{', '.join(':' * operand.ndim)}]"
            if operand.ndim
            else f"{operand.name}: int"
            for operand in self.operands
        ]
        return f"{self.name}({', '.join(coordinates + operands)})"
