"""Programs whose tasks do next to nothing: what they take is what the runtime takes.

`layers` is a chain of layers: every task of a layer waits for all tasks of the layer before it. With one task a layer
it is a chain of hops: dealt out in turn, two workers alternate, each reading 16 bytes that the other has written.
`independent` is any number of tasks without events.

The slots of the first layer are random; each task adds one to a slot of the layer before and writes it into its own
place, so that every slot of every layer shows whether a task ran before one that it waits for.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from etproto.expressions import Symbol
from etproto.kernels.tiles.message import WORDS, empty, message
from etproto.models.model import Model, Tensors, poisoned_tensors, require_at_least
from etproto.program import EventTensor, Instance, Program, TaskGrid, Tensor

__all__ = ["EMPTY_MODEL", "MODEL", "independent", "layers", "make_tensors", "reference"]

HIGHEST = 1 << 20  # of a first slot: no sum overflows


def layers(width: int = 1, bound: int = 16384) -> Program:
    """The program for any ``1 <= depth <= bound`` layers of `width` tasks.

    The first layer is a grid of its own. So each other task waits for exactly one event, which makes the whole
    next layer ready at once.

    Parameters
    ----------
    width : int
        Tasks of a layer, and the need of every event.
    bound : int
        Most layers.

    Raises
    ------
    ProgramError
        A size below 1.

    Examples
    --------
    >>> print(layers(132, 1000))
    program layers(depth <= 1000)
      S: int32[depth + 1, 132, 4]
      E = EventTensor(shape=(depth,), need=132)
      start = call_device(message, task_grid=(1, 132),
          in_edges={}, out_edges={E: "li->l"},
          first=0, x=S, y=S)
      layer = call_device(message, task_grid=(depth - 1, 132),
          in_edges={E: "li->l"}, out_edges={E: "li->l+1"},
          first=1, x=S, y=S)
    """
    require_at_least("layers", 1, width=width, bound=bound)
    depth = Symbol("depth", bound=bound, minimum=1)
    slots = Tensor("S", (depth + 1, width, WORDS), "int32")
    done = EventTensor("E", (depth,), need=width)
    return Program(
        "layers",
        (
            TaskGrid("start", message, (1, width), {"first": 0, "x": slots, "y": slots}, notifies={done: "li->l"}),
            TaskGrid(
                "layer",
                message,
                (depth - 1, width),
                {"first": 1, "x": slots, "y": slots},
                waits={done: "li->l"},
                notifies={done: "li->l+1"},
            ),
        ),
    )


def independent(bound: int = 1 << 17) -> Program:
    """The program of ``0 <= n <= bound`` tasks that do nothing and wait for nothing.

    Raises
    ------
    ProgramError
        A bound below 1.
    """
    require_at_least("independent", 1, bound=bound)
    return Program("independent", (TaskGrid("tasks", empty, (Symbol("n", bound=bound),)),))


def make_tensors(instance: Instance, rng: np.random.Generator) -> Tensors:
    """Random slots before the first layer, -1 in all others."""
    tensors = poisoned_tensors(instance)
    for slots in tensors.values():
        slots[0] = rng.integers(0, HIGHEST, slots.shape[1:])
    return tensors


def reference(tensors: Mapping[str, np.ndarray]) -> Tensors:
    """After l layers slot i holds what slot i + l held (cyclically), plus l."""
    first = tensors["S"][0].astype(np.int64)
    shift = np.arange(len(tensors["S"]))[:, None]
    place = (np.arange(first.shape[0]) + shift) % first.shape[0]
    return {"S": first[place] + shift[..., None]}


MODEL = Model(
    name="layers",
    description="layers of tasks that do next to nothing, each waiting for all of the layer before",
    builder=lambda depth, width: layers(width, max(depth, 1024)).bind(depth=depth),
    make_tensors=make_tensors,
    reference=reference,
    tolerance=lambda tensors: 0.0,
    symbols={"depth": 8},
    parameters={"width": 4},
)

EMPTY_MODEL = Model(
    name="independent",
    description="independent tasks that do nothing",
    builder=lambda n: independent(max(n, 1024)).bind(n=n),
    make_tensors=lambda instance, rng: {},
    reference=lambda tensors: {},  # nothing to compare: executors count the tasks that have run
    tolerance=lambda tensors: 0.0,
    symbols={"n": 16},
)
