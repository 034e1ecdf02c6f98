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

__all__ = [
    "SIMULATED",
    "compile_as",
    "device_function",
    "element_pointers",
    "intrinsic_with_twin",
    "opaque",
    "store_struct",
    "struct_to_array",
]

SIMULATED = bool(config.ENABLE_CUDASIM)


def device_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a plain Python function callable from kernels; from Python it stays itself."""
    if SIMULATED:
        return function
    from numba.cuda.extending import register_jitable

    return register_jitable(function)


def intrinsic_with_twin(
    ptx: str, constraints: str, result: str | tuple[str, ...] | None, arguments: tuple[str, ...], *, pure: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a Python twin so that kernels run `ptx` in its place.

    Parameters
    ----------
    ptx : str
        Inline assembly; ``$0`` is the result if there is one, then the arguments.
    constraints : str
        LLVM constraints. With ``~{memory}`` and the side effect that is set unless `pure`, the compiler neither
        hoists the instruction out of a loop nor moves memory accesses over it (``cuda.ldcg`` lacks both, and
        is hoisted out of polling loops).
    result : str, tuple of str or None
        ``"int32"``, ``"int64"``, ``"uint32"``, ``"float32"`` or None; several of one type make a tuple.
    arguments : tuple of str
        Types of the arguments, by the same names. Arguments of other integer types are converted.
    pure : bool
        The result depends on the arguments alone: the compiler may move, merge and drop the instruction.
    """

    def decorate(twin: Callable[..., Any]) -> Callable[..., Any]:
        twin.__ptx__ = (ptx, constraints)  # type: ignore[attr-defined]  # part of the key under which cubins are cached
        if SIMULATED:
            return twin
        from llvmlite import ir
        from numba.cuda import types

        llvm = {
            "int32": ir.IntType(32),
            "uint32": ir.IntType(32),
            "int64": ir.IntType(64),
            "float32": ir.FloatType(),
        }
        returned: Any = types.void
        llvm_returned: Any = ir.VoidType()
        if isinstance(result, str):
            returned, llvm_returned = getattr(types, result), llvm[result]
        elif result is not None:
            returned = types.UniTuple(getattr(types, result[0]), len(result))
            llvm_returned = ir.LiteralStructType([llvm[name] for name in result])
        signature = returned(*(getattr(types, name) for name in arguments))
        function_type = ir.FunctionType(llvm_returned, [llvm[name] for name in arguments])

        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            value = builder.call(ir.InlineAsm(function_type, ptx, constraints, side_effect=not pure), list(values))
            if result is None:
                return context.get_dummy_value()
            return value if isinstance(result, str) else struct_to_array(builder, value)

        return compile_as(twin, lambda *_types: (signature, generate))

    return decorate


def compile_as(twin: Callable[..., Any], typing: Callable[..., Any]) -> Callable[..., Any]:
    """Make kernels run LLVM instructions where they call `twin`; from Python it stays itself.

    Parameters
    ----------
    twin : callable
    typing : callable
        ``typing(typing_context, *types) -> (signature, generate)``, as `numba.extending.intrinsic` takes it.
    """
    from numba.cuda import types
    from numba.cuda.typing.templates import infer, infer_global, make_intrinsic_template

    # Numba takes the parameters' names from the function itself. The intrinsic takes the twin's place at once:
    # an overload that calls it would be one more function to compile for each.
    names = ", ".join(("typing_context", *twin.__code__.co_varnames[: twin.__code__.co_argcount]))
    definition = eval(f"lambda {names}: typing({names})", {"typing": typing})  # parameter names only
    template = make_intrinsic_template(twin, definition, twin.__name__)
    infer(template)
    infer_global(twin, types.Function(template))
    return twin


def struct_to_array(builder: Any, struct: Any) -> Any:
    """The LLVM array, in which form Numba holds tuples of one type, of the elements of an LLVM structure, in which
    form inline assembly returns several results.
    """
    from llvmlite import ir

    elements = struct.type.elements
    array = ir.Constant(ir.ArrayType(elements[0], len(elements)), ir.Undefined)
    for number in range(len(elements)):
        array = builder.insert_value(array, builder.extract_value(struct, number), number)
    return array


def element_pointers(context: Any, builder: Any, array_type: Any, array: Any, count: int) -> list[Any]:
    """LLVM pointers to the first `count` elements of an array: a local array that is only ever accessed through
    constant indices is kept in registers.
    """
    from llvmlite import ir

    data = context.make_array(array_type)(context, builder, array).data
    return [builder.gep(data, [ir.Constant(ir.IntType(32), number)]) for number in range(count)]


def store_struct(builder: Any, struct: Any, places: list[Any]) -> None:
    """Store the elements of an LLVM structure to pointers."""
    for number, place in enumerate(places):
        builder.store(builder.extract_value(struct, number), place)


def opaque(builder: Any, value: Any) -> Any:
    """A 64-bit LLVM integer whose origin NVVM does not see, at the cost of a move that ptxas removes."""
    from llvmlite import ir

    word = ir.IntType(64)
    move = ir.InlineAsm(ir.FunctionType(word, [word]), "mov.b64 $0, $1;", "=l,l", side_effect=False)
    return builder.call(move, [value])
