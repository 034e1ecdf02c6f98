"""What the command line names: a bundled program with its data, or a graph file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from etproto.errors import EtprotoError, GraphError
from etproto.graph import TaskGraph
from etproto.lowering import Lowered, lower
from etproto.lowering_graph import lower_graph
from etproto.models import MODELS, Model
from etproto.models.model import Tensors
from etproto.program import Instance
from etproto.readers import read_graph

__all__ = ["Target", "UsageError", "load_target", "parse_settings"]


class UsageError(EtprotoError):
    """The command was misused: an unknown name, an option out of range, a file that is not there."""


@dataclass(frozen=True)
class Target:
    """A bound program or a task graph; `model` brings data and reference where it is a bundled one."""

    name: str
    work: Instance | TaskGraph
    model: Model | None

    def lower(self, *, time_scale: float = 1.0, timed: bool = True) -> Lowered:
        """The target as arrays.

        Parameters
        ----------
        time_scale : float
            Factor on the time of a graph file's tasks.
        timed : bool
            False when nothing will run them.

        Raises
        ------
        GraphError
            The graph has a cycle or another fault.
        UsageError
            Tasks that would take too long for a dummy body.
        """
        if isinstance(self.work, Instance):
            return lower(self.work)
        kinds = self.model.kinds(self.work) if self.model is not None and self.model.kinds is not None else None
        try:
            return lower_graph(self.work, kinds, time_scale=time_scale, timed=timed)
        except GraphError:
            raise
        except EtprotoError as error:
            raise UsageError(str(error).replace("time_scale=", "--time-scale ")) from error

    def make_tensors(self, seed: int) -> Tensors:
        """Input arrays, outputs poisoned; none for a graph file, whose tasks compute nothing."""
        return {} if self.model is None else self.model.make_tensors(self.work, np.random.default_rng(seed))

    def run_time_tensors(self) -> set[str]:
        """Tensors that the program itself writes and that decide which tasks and edges there are."""
        if not isinstance(self.work, Instance):
            return set()
        program = self.work.program
        reads = {name for grid in program.parsed for name in grid.run_time_reads()}
        return {name for name in reads if program.writers(name)}


def parse_settings(settings: Iterable[str]) -> dict[str, int]:
    """The values of ``--set NAME=VALUE`` options.

    Raises
    ------
    UsageError
        One is not of that form, its value is no integer, or a name is set twice.

    Examples
    --------
    >>> parse_settings(["n=1000", "tile = 16"])
    {'n': 1000, 'tile': 16}
    """
    values: dict[str, int] = {}
    for setting in settings:
        name, equals, value = (part.strip() for part in setting.partition("="))
        try:
            number = int(value)
        except ValueError:
            number = None
        if not (name and equals) or number is None:
            raise UsageError(f"--set: expected NAME=VALUE with an integer, got {setting!r}")
        if name in values:
            raise UsageError(f"--set: {name} is set twice, to {values[name]} and to {number}")
        values[name] = number
    return values


def load_target(name: str, settings: Mapping[str, int]) -> Target:
    """The bundled program called `name`, or the graph in the file of that name.

    Raises
    ------
    UsageError
        There is neither, or a setting does not fit the program.
    FileFormatError
        The file does not hold what its format promises.
    """
    if name in MODELS:
        try:
            return Target(name, MODELS[name].build(**settings), MODELS[name])
        except EtprotoError as error:
            raise UsageError(str(error)) from error
    if not Path(name).is_file():
        near = difflib.get_close_matches(name, MODELS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(
            f"target: expected a bundled program ({', '.join(MODELS)}) or a graph file, got {name!r}{hint}"
        )
    if settings:
        raise UsageError(f"--set: a graph file has no symbols or parameters, got {', '.join(settings)}")
    return Target(name, read_graph(name), None)
