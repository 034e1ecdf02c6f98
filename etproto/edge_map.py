"""Edge maps: task coordinate -> event coordinates, in the four forms of the paper.

===============  ==============================  ========================================================
form             written                         meaning
===============  ==============================  ========================================================
projection       ``"ij->i"``                     one cell; a letter only on the right is a whole axis
affine           ``"ij->(i//2, j+1)"``           one cell; ``"i->i-1:i+2"`` a range, clipped as in Python
run-time gather  ``"i->topk[i,:]"``              the cells named by elements of an int32 tensor
run-time range   ``"e->indptr[e]:indptr[e+1]"``  the cells from one element to another
===============  ==============================  ========================================================

A single index must lie inside its event tensor; a range is clipped to it, as Python clips slices.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from etproto.errors import ProgramError
from etproto.expressions import Constant, Coordinate, Expression, Operation, Read, Symbol, as_expression, parse

__all__ = ["Point", "Range", "Gather", "EdgeMap", "Index", "parse_edge_map", "as_index", "run_time_tensors"]

MAX_DIMENSIONS = 4


@dataclass(frozen=True)
class Point:
    """One event coordinate."""

    value: Expression

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Range:
    """Event coordinates low <= x < high, clipped to the event tensor."""

    low: Expression
    high: Expression

    def __str__(self) -> str:
        return f"{self.low}:{self.high}"


@dataclass(frozen=True)
class Gather:
    """Event coordinates ``tensor.flat[low:high]``; `text` is how the user wrote it."""

    tensor: str
    low: Expression
    high: Expression
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class EdgeMap:
    """A parsed edge map: names of the task coordinates, and one of Point, Range, Gather for each event
    dimension.
    """

    coordinates: tuple[str, ...]
    dimensions: tuple[Point | Range | Gather, ...]
    text: str

    def expressions(self) -> list[Expression]:
        """Every expression in the map."""
        found: list[Expression] = []
        for dimension in self.dimensions:
            found += [dimension.value] if isinstance(dimension, Point) else [dimension.low, dimension.high]
        return found

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Index:
    """``((sum of coefficient * coordinate) + constant) // divisor % modulus``, then an element of `buffer` if
    there is one.

    Coefficients and the rest are expressions of symbols alone; `modulus` None means none, `buffer` None means
    no load.
    """

    coefficients: tuple[Expression, ...]
    constant: Expression
    divisor: Expression = Constant(1)
    modulus: Expression | None = None
    buffer: str | None = None


def run_time_tensors(expressions: Iterable[Expression]) -> set[str]:
    """Names of the int32 tensors that the expressions read."""
    return {leaf.tensor for expression in expressions for leaf in expression.leaves() if isinstance(leaf, Read)}


def parse_edge_map(
    text: str,
    event_shape: tuple[Expression, ...],
    task_dimensions: int,
    symbols: Mapping[str, Symbol],
    tensor_shapes: Mapping[str, tuple[Expression, ...]],
) -> EdgeMap:
    """Parse an edge map such as ``"ij->i"``, ``"i,j->(i//2, j+1)"``, ``"i->topk[i,:]"`` or
    ``"e->indptr[e]:indptr[e+1]"``.

    Parameters
    ----------
    text : str
        The map. Left of the arrow: one name a task dimension, as letters or separated by commas.
    event_shape : tuple of Expression
        Extents of the event tensor.
    task_dimensions : int
        Dimensions of the task grid.
    symbols, tensor_shapes : mapping
        Names that may appear on the right: symbols, and int32 tensors with their shapes.

    Raises
    ------
    ProgramError
        With the map, and what was expected.

    Examples
    --------
    >>> edge_map = parse_edge_map("ij->(i//2, :)", (Symbol("n"), Constant(4)), 2, {}, {})
    >>> [str(dimension) for dimension in edge_map.dimensions]
    ['i // 2', '0:4']
    """
    left, arrow, right = text.partition("->")
    left, right = left.strip(), right.strip()
    if not arrow:
        raise ProgramError(f"edge map {text!r}: expected 'coordinates -> event coordinates'")
    names = [name.strip() for name in left.split(",")] if "," in left else list(left.replace(" ", ""))
    if len(names) != task_dimensions or len(set(names)) != len(names) or not all(n.isidentifier() for n in names):
        raise ProgramError(
            f"edge map {text!r}: expected {task_dimensions} different coordinate names left of the arrow, got {left!r}"
        )
    known: dict[str, Expression | str] = {**symbols, **{name: name for name in tensor_shapes}}
    known.update({name: Coordinate(name) for name in names})
    if right.replace(" ", "").isalpha() and right not in known and _is_projection(right, names, known):
        parts = [letter if letter in names else ":" for letter in right.replace(" ", "")]
        right = ", ".join(parts)
    if right.startswith("(") and right.endswith(")") and right.find(")") == len(right) - 1:
        right = right[1:-1]  # a tuple in parentheses cannot hold ':' in Python's grammar
    try:
        tree = ast.parse(f"_[{right}]" if right else "()", mode="eval").body
    except SyntaxError as error:
        raise ProgramError(f"edge map {text!r}: {right!r} is not a list of event coordinates ({error.msg})") from None
    index = tree.slice if isinstance(tree, ast.Subscript) else tree
    nodes = index.elts if isinstance(index, ast.Tuple) else [index]
    if len(nodes) != len(event_shape):
        raise ProgramError(
            f"edge map {text!r}: the event tensor has {len(event_shape)} dimensions, the map names {len(nodes)}"
        )
    dimensions = tuple(
        _dimension(node, extent, known, tensor_shapes, text) for node, extent in zip(nodes, event_shape, strict=True)
    )
    return EdgeMap(tuple(names), dimensions, text)


def _is_projection(right: str, names: list[str], known: Mapping[str, Expression | str]) -> bool:
    letters = right.replace(" ", "")
    return len(set(letters)) == len(letters) and all(letter in names or letter not in known for letter in letters)


def _dimension(
    node: ast.AST,
    extent: Expression,
    known: Mapping[str, Expression | str],
    tensor_shapes: Mapping[str, tuple[Expression, ...]],
    text: str,
) -> Point | Range | Gather:
    if isinstance(node, ast.Slice):
        if node.step is not None:
            raise ProgramError(f"edge map {text!r}: a range has no step")
        low = parse(node.lower, known, text) if node.lower else Constant(0)
        high = parse(node.upper, known, text) if node.upper else extent
        return Range(low, high)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in tensor_shapes:
        elements = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if any(isinstance(element, ast.Slice) for element in elements):
            return _gather(node.value.id, elements, known, tensor_shapes[node.value.id], ast.unparse(node), text)
    return Point(parse(node, known, text))


def _gather(
    tensor: str,
    elements: list[ast.AST],
    known: Mapping[str, Expression | str],
    shape: tuple[Expression, ...],
    written: str,
    text: str,
) -> Gather:
    if len(elements) != len(shape):
        raise ProgramError(f"edge map {text!r}: {tensor} has {len(shape)} dimensions, {written} names {len(elements)}")
    if not isinstance(elements[-1], ast.Slice) or any(isinstance(e, ast.Slice) for e in elements[:-1]):
        raise ProgramError(
            f"edge map {text!r}: in {written} only the last index may be a slice, so that it is contiguous"
        )
    row: Expression = Constant(0)
    for element, extent in zip(elements[:-1], shape[:-1], strict=True):
        row = row * extent + parse(element, known, text)
    last = elements[-1]
    low = parse(last.lower, known, text) if last.lower else Constant(0)
    high = parse(last.upper, known, text) if last.upper else shape[-1]
    base = row * shape[-1]
    return Gather(tensor, base + low, base + high, written)


def as_index(
    expression: Expression, coordinates: tuple[str, ...], tensor_shapes: Mapping[str, tuple[Expression, ...]]
) -> Index:
    """Bring an expression into the one form that the device evaluates.

    Raises
    ------
    ProgramError
        When it is not ``(affine in the coordinates) // divisor % modulus``, nor one element of a tensor at
        such an index.
    """
    buffer = None
    if isinstance(expression, Read):
        buffer, shape = expression.tensor, tensor_shapes[expression.tensor]
        if len(expression.indices) != len(shape):
            raise ProgramError(f"{expression}: {buffer} has {len(shape)} dimensions")
        flat: Expression = Constant(0)
        for index, extent in zip(expression.indices, shape, strict=True):
            flat = flat * extent + index
        expression = flat
    inner, divisor, modulus = expression, as_expression(1), None
    affine = _affine(inner, coordinates)
    if affine is None and isinstance(inner, Operation) and inner.operator == "%":
        inner, modulus = inner.left, inner.right
        affine = _affine(inner, coordinates)
    if affine is None and isinstance(inner, Operation) and inner.operator == "//":
        inner, divisor = inner.left, inner.right
        affine = _affine(inner, coordinates)
    for part in (divisor, modulus):
        if part is not None and any(isinstance(leaf, (Coordinate, Read)) for leaf in part.leaves()):
            affine = None
    if affine is None:
        raise ProgramError(
            f"{expression}: expected (affine in {', '.join(coordinates) or 'no coordinate'}) // divisor % modulus,"
            " or one element of an"
            f" int32 tensor at such an index"
        )
    return Index(affine[0], affine[1], divisor, modulus, buffer)


def _affine(expression: Expression, coordinates: tuple[str, ...]) -> tuple[tuple[Expression, ...], Expression] | None:
    """Coefficients and constant of an expression that is affine in the coordinates, else None."""
    zero = Constant(0)
    leaves = expression.leaves()
    if any(isinstance(leaf, Read) for leaf in leaves):
        return None
    if not any(isinstance(leaf, Coordinate) for leaf in leaves):
        return (zero,) * len(coordinates), expression
    if isinstance(expression, Coordinate):
        return tuple(Constant(int(name == expression.name)) for name in coordinates), zero
    if not isinstance(expression, Operation) or expression.operator not in ("+", "-", "*"):
        return None
    left, right = _affine(expression.left, coordinates), _affine(expression.right, coordinates)
    if left is None or right is None:
        return None
    if expression.operator == "+":
        return tuple(a + b for a, b in zip(left[0], right[0], strict=True)), left[1] + right[1]
    if expression.operator == "-":
        return tuple(a - b for a, b in zip(left[0], right[0], strict=True)), left[1] - right[1]
    if any(isinstance(leaf, Coordinate) for leaf in expression.left.leaves()):
        left, right = right, left
    if any(coefficient != zero for coefficient in left[0]):
        return None
    return tuple(left[1] * coefficient for coefficient in right[0]), left[1] * right[1]
