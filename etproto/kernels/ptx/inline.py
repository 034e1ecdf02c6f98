"""How the other files of this folder make intrinsics: one line of PTX, its constraints, and a plain Python
twin.

Every intrinsic is a plain Python function. Called from Python (by the cpu executor, or under Numba's CUDA
simulator, where a kernel is Python too) it does what its twin says; called from a kernel compiled for a GPU
it is its PTX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import config

__all__ = ["SIMULATED", "device_function", "intrinsic_with_twin"]

SIMULATED = bool(config.ENABLE_CUDASIM)


def device_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a plain Python function callable from kernels; from Python it stays itself."""
    if SIMULATED:
        return function
    from numba.cuda.extending import register_jitable

    return register_jitable(function)


def intrinsic_with_twin(
    ptx: str, constraints: str, result: str | None, arguments: tuple[str, ...]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a Python twin so that kernels run `ptx` in its place.

    Parameters
    ----------
    ptx : str
        Inline assembly; ``$0`` is the result if there is one, then the arguments.
    constraints : str
        LLVM constraints. With ``~{memory}`` and the side effect that is always set, the compiler neither
        hoists the instruction out of a loop nor moves memory accesses over it (``cuda.ldcg`` lacks both, and
        is hoisted out of polling loops).
    result : str or None
        ``"int32"``, ``"int64"``, ``"uint32"``, ``"float32"`` or None.
    arguments : tuple of str
        Types of the arguments, by the same names.
    """

    def decorate(twin: Callable[..., Any]) -> Callable[..., Any]:
        twin.__ptx__ = (ptx, constraints)  # type: ignore[attr-defined]  # part of the key under which cubins are cached
        if SIMULATED:
            return twin
        from llvmlite import ir
        from numba.cuda import types
        from numba.cuda.extending import intrinsic, overload

        llvm = {
            "int32": ir.IntType(32),
            "uint32": ir.IntType(32),
            "int64": ir.IntType(64),
            "float32": ir.FloatType(),
        }
        argument_types = [getattr(types, name) for name in arguments]
        signature = (types.void if result is None else getattr(types, result))(*argument_types)
        function_type = ir.FunctionType(
            ir.VoidType() if result is None else llvm[result], [llvm[name] for name in arguments]
        )

        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            value = builder.call(ir.InlineAsm(function_type, ptx, constraints, side_effect=True), list(values))
            return context.get_dummy_value() if result is None else value

        # Numba reads the number of parameters from the function itself, so each arity needs its own
        # definition.
        definitions = {
            0: lambda typing_context: (signature, generate),
            1: lambda typing_context, a: (signature, generate),
            2: lambda typing_context, a, b: (signature, generate),
            3: lambda typing_context, a, b, c: (signature, generate),
            4: lambda typing_context, a, b, c, d: (signature, generate),
        }
        emit = intrinsic(definitions[len(arguments)])
        # The overload must have the twin's parameter names.
        names = twin.__code__.co_varnames[: twin.__code__.co_argcount]
        source = f"lambda {', '.join(names)}: lambda {', '.join(names)}: emit({', '.join(names)})"
        overload(twin)(eval(source, {"emit": emit}))  # the source holds parameter names only
        return twin

    return decorate
