"""What the tests of plain tile kinds share: data of any type, a run on every executor, and a kernel of bodies."""

from __future__ import annotations

import numpy as np

from etproto.executors import cpu, cudasim
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.ptx.views import array_view
from etproto.kernels.source import device_dtype
from etproto.kernels.tiles.brain_float import from_float32
from etproto.lowering import lower
from etproto.schedule import schedule

__all__ = ["bodies", "decoded", "encoded", "run_everywhere"]


def encoded(values, dtype):
    """Values as an array of `dtype` on the host."""
    values = np.asarray(values, np.float32)
    return from_float32(values) if dtype == "bfloat16" else values.astype(dtype)


def decoded(array):
    """Values of such an array in float64; bfloat16 is known by its bits."""
    values = (array.astype(np.uint32) << 16).view(np.float32) if array.dtype == np.uint16 else array
    return values.astype(np.float64)


def run_everywhere(program, tensors, threads=(4, 3), **symbols):
    """Results of the cpu executor under its race check, and of the simulator, the same bits for each number of
    threads.
    """
    scheduled = schedule(lower(program.bind(**symbols)), "static", workers=2)
    copies = [{name: array.copy() for name, array in tensors.items()} for _ in range(1 + len(threads))]
    cpu.run(scheduled, copies[0], seed=1, race_check=True)
    for copy, number in zip(copies[1:], threads, strict=True):
        cudasim.run(scheduled, copy, threads=number)
        assert all(copy[name].tobytes() == copies[1][name].tobytes() for name in copy), f"{number} threads differ"
    return copies[:2]


def bodies(kinds):
    """A kernel that calls the body of each kind, with arrays as the worker makes them."""
    names, lines = {}, ["def kernel(address):"]
    for number, kind in enumerate(kinds):
        names[f"body_{number}"] = device_function(kind.portable)
        arguments = ["address"] * kind.coordinates
        for operand in kind.operands:
            dtype = device_dtype(operand.dtype)
            names[f"view_{dtype}_{operand.ndim}"] = array_view(dtype, operand.ndim)
            arguments.append(f"view_{dtype}_{operand.ndim}({', '.join(['address'] * (1 + operand.ndim))})")
        lines.append(f"    body_{number}({', '.join(arguments)})")
    exec("\n".join(lines), names)  # the lines above, nothing from outside
    return names["kernel"]
