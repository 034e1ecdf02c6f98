"""Integer expressions over symbols, coordinates and run-time values: what extents, shapes and edge maps are
made of.

An expression is parsed from Python syntax (``"(n + 63) // 64"``) or built from `Symbol` objects with ordinary
operators. Run-time values are elements of int32 tensors, written ``indptr[e]``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from etproto.errors import ProgramError

__all__ = ["Expression", "Constant", "Symbol", "Coordinate", "Read", "Operation", "ceil_div", "as_expression", "parse"]


class Expression:
    """Base of expressions: supports ``+ - * // %`` with integers and other expressions."""

    def __add__(self, other: Any) -> Expression:
        return _operation("+", self, other)

    def __radd__(self, other: Any) -> Expression:
        return _operation("+", other, self)

    def __sub__(self, other: Any) -> Expression:
        return _operation("-", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _operation("-", other, self)

    def __mul__(self, other: Any) -> Expression:
        return _operation("*", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _operation("*", other, self)

    def __floordiv__(self, other: Any) -> Expression:
        return _operation("//", self, other)

    def __rfloordiv__(self, other: Any) -> Expression:
        return _operation("//", other, self)

    def __mod__(self, other: Any) -> Expression:
        return _operation("%", self, other)

    def __rmod__(self, other: Any) -> Expression:
        return _operation("%", other, self)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Value under `values`: name -> int or array for symbols and coordinates, name -> array for tensors
        read.
        """
        raise ProgramError(f"expression {self!r} of type {type(self).__name__} cannot be evaluated")

    def leaves(self) -> list[Expression]:
        """Symbols, coordinates and reads in the expression, from left to right."""
        return []


@dataclass(frozen=True)
class Constant(Expression):
    """An integer."""

    value: int

    def evaluate(self, values: Mapping[str, Any]) -> int:
        """The integer itself."""
        return self.value

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Symbol(Expression):
    """An integer known when a program is bound, such as a batch size.

    Parameters
    ----------
    name : str
        A Python identifier.
    bound : int or None
        Largest value it may take. Device arrays are sized for the bound, so any value up to it runs without
        compiling or allocating again. None: the value of the first ``bind`` is the bound.
    minimum : int
        Smallest value it may take.

    Examples
    --------
    >>> n = Symbol("n", bound=4096)
    >>> str((n + 63) // 64), ((n + 63) // 64).evaluate({"n": 100})
    ('(n + 63) // 64', 2)
    """

    name: str
    bound: int | None = None
    minimum: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ProgramError(f"a symbol's name must be a Python identifier, got {self.name!r}")
        if self.bound is not None and self.bound < self.minimum:
            raise ProgramError(f"symbol {self.name}: the bound must be at least {self.minimum}, got {self.bound!r}")

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The value bound to the symbol."""
        if self.name not in values:
            raise ProgramError(f"symbol {self.name} has no value; bind it, e.g. bind({self.name}=...)")
        return values[self.name]

    def leaves(self) -> list[Expression]:
        """The symbol itself."""
        return [self]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Coordinate(Expression):
    """A coordinate of a task or of an event."""

    name: str

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The coordinate's value."""
        return values[self.name]

    def leaves(self) -> list[Expression]:
        """The coordinate itself."""
        return [self]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Read(Expression):
    """An element of an int32 tensor, read when the program runs."""

    tensor: str
    indices: tuple[Expression, ...]

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The element (or elements, for array coordinates) as int64."""
        if self.tensor not in values:
            raise ProgramError(f"{self}: the run-time value {self.tensor} is not known here")
        array = np.asarray(values[self.tensor])
        return array[tuple(index.evaluate(values) for index in self.indices)].astype(np.int64)

    def leaves(self) -> list[Expression]:
        """The read, and what its indices are made of."""
        return [self] + [leaf for index in self.indices for leaf in index.leaves()]

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.indices))}]"


_OPERATORS: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "+": (1, lambda a, b: a + b),
    "-": (1, lambda a, b: a - b),
    "*": (2, lambda a, b: a * b),
    "//": (2, lambda a, b: a // b),
    "%": (2, lambda a, b: a % b),
    "min": (9, np.minimum),
    "max": (9, np.maximum),
}


@dataclass(frozen=True)
class Operation(Expression):
    """``left operator right``, or ``min``/``max`` of the two."""

    operator: str
    left: Expression
    right: Expression

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The operator applied to both sides' values."""
        result = _OPERATORS[self.operator][1](self.left.evaluate(values), self.right.evaluate(values))
        return int(result) if isinstance(result, np.generic) and np.ndim(result) == 0 else result

    def leaves(self) -> list[Expression]:
        """Leaves of both sides."""
        return self.left.leaves() + self.right.leaves()

    def __str__(self) -> str:
        if self.operator in ("min", "max"):
            return f"{self.operator}({self.left}, {self.right})"
        rank = _OPERATORS[self.operator][0]
        left, right = str(self.left), str(self.right)
        if isinstance(self.left, Operation) and _OPERATORS[self.left.operator][0] < rank:
            left = f"({left})"
        if isinstance(self.right, Operation) and _OPERATORS[self.right.operator][0] <= rank:
            right = f"({right})"
        return f"{left} {self.operator} {right}"


def _operation(operator: str, left: Any, right: Any) -> Expression:
    left, right = as_expression(left), as_expression(right)
    if operator in ("//", "%") and isinstance(right, Constant) and right.value <= 0:
        raise ProgramError(f"{left} {operator} {right}: the divisor must be positive")
    if isinstance(left, Constant) and isinstance(right, Constant):
        return Constant(int(_OPERATORS[operator][1](left.value, right.value)))
    if operator in ("+", "-") and right == Constant(0):
        return left
    if operator == "+" and left == Constant(0):
        return right
    if operator in ("*", "//") and right == Constant(1):
        return left
    if operator == "*" and left == Constant(1):
        return right
    if operator == "*" and Constant(0) in (left, right):
        return Constant(0)
    return Operation(operator, left, right)


def ceil_div(numerator: Any, denominator: Any) -> Expression:
    """Smallest integer not below ``numerator / denominator``.

    Examples
    --------
    >>> ceil_div(Symbol("n"), 64).evaluate({"n": 65})
    2
    """
    return (as_expression(numerator) + (as_expression(denominator) - 1)) // denominator


def as_expression(value: Any) -> Expression:
    """An `Expression` for an int, a NumPy integer or an expression; anything else is refused."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return Constant(int(value))
    raise ProgramError(f"expected an integer or an expression, got {value!r} of type {type(value).__name__}")


_AST_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}


def parse(node: ast.AST, names: Mapping[str, Expression | str], text: str) -> Expression:
    """Turn a Python syntax tree into an expression.

    Parameters
    ----------
    node : ast.AST
        Tree of one expression.
    names : mapping
        Name -> expression (symbols, coordinates), or name -> its own name for an int32 tensor that may be
        subscripted.
    text : str
        What the user wrote, for messages.

    Raises
    ------
    ProgramError
        An unknown name, or an operation that is none of ``+ - * // %``, ``min``, ``max``, ``ceil_div``.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return Constant(node.value)
    if isinstance(node, ast.Name) and isinstance(names.get(node.id), Expression):
        return names[node.id]  # type: ignore[return-value]  # the isinstance test above is on a mapping's element
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _operation("-", 0, parse(node.operand, names, text))
    if isinstance(node, ast.BinOp) and type(node.op) in _AST_OPERATORS:
        return _operation(_AST_OPERATORS[type(node.op)], parse(node.left, names, text), parse(node.right, names, text))
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and names.get(node.value.id) == node.value.id
    ):
        elements = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return Read(node.value.id, tuple(parse(element, names, text) for element in elements))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2 and not node.keywords:
        left, right = (parse(argument, names, text) for argument in node.args)
        if node.func.id == "ceil_div":
            return ceil_div(left, right)
        if node.func.id in ("min", "max"):
            return Operation(node.func.id, left, right)
    known = ", ".join(sorted(names)) or "none"
    raise ProgramError(
        f"in {text!r}: cannot read {ast.unparse(node)!r}; expected integers, the names {known}, + - * // %, min,"
        " max, ceil_div,"
        f" and elements of int32 tensors"
    )
