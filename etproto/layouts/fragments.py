"""Fragments: which elements of a matrix each thread of a tensor-core instruction holds, as layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from etproto.errors import ProgramError
from etproto.layouts.algebra import Layout

__all__ = ["AccumulatorFragment", "MmaFragment"]


@dataclass(frozen=True)
class AccumulatorFragment:
    """Which elements of a 64 x n accumulator each thread of a warpgroup holds (PTX ISA, "Register Fragments and
    Shared Memory Matrix Layouts" of wgmma, matrix D).

    ``fragment(thread, element)``, for threads 0 to 127 and elements 0 to n / 2 - 1, is (row, column).

    Parameters
    ----------
    n : int
        Columns: a multiple of 8 from 8 to 256.

    Examples
    --------
    >>> AccumulatorFragment(16)(37, 6)
    (25, 10)
    """

    n: int

    def __post_init__(self) -> None:
        if self.n % 8 or not 8 <= self.n <= 256:
            raise ProgramError(f"accumulator fragment: n must be a multiple of 8 from 8 to 256, got {self.n!r}")

    @property
    def layout(self) -> Layout:
        """(thread, element) -> position in the row-major 64 x n matrix.

        A thread is (warp, row of eight, pair of columns); an element is (group of eight columns, upper or
        lower half of the warp's 16 rows, one of the pair).
        """
        return Layout(((4, 8, 4), (self.n // 8, 2, 2)), ((16 * self.n, self.n, 2), (8, 8 * self.n, 1)))

    def __call__(self, thread: Any, element: Any) -> tuple[Any, Any]:
        """(row, column); arrays broadcast."""
        return divmod(self.layout(thread, element), self.n)


@dataclass(frozen=True)
class MmaFragment:
    """Which elements of an operand of ``mma.m16n8k16`` (16-bit operands, 32-bit accumulator) each lane holds (PTX
    ISA, "Matrix Fragments for mma.m16n8k16 with floating point type").

    ``fragment(lane, element)`` is (row, column) of A (16 x 16), of B (16 of k x 8 of n) or of C and D (16 x 8);
    operands of 16 bits are two elements a register.

    Parameters
    ----------
    operand : {"a", "b", "c"}

    Examples
    --------
    >>> MmaFragment("a")(5, 6), MmaFragment("b")(5, 2), MmaFragment("c")(5, 2)
    ((9, 10), (10, 1), (9, 2))
    """

    operand: str

    def __post_init__(self) -> None:
        if self.operand not in ("a", "b", "c"):
            raise ProgramError(f"mma fragment: operand must be a, b or c, got {self.operand!r}")

    @property
    def layout(self) -> Layout:
        """(lane, element) -> position in the row-major matrix; a lane is (group of four, place in it)."""
        if self.operand == "a":
            return Layout(((8, 4), (2, 2, 2)), ((16, 2), (8, 128, 1)))
        if self.operand == "b":
            return Layout(((8, 4), (2, 2)), ((1, 16), (64, 8)))
        return Layout(((8, 4), (2, 2)), ((8, 2), (64, 1)))

    def __call__(self, lane: Any, element: Any) -> tuple[Any, Any]:
        """(row, column); arrays broadcast."""
        return divmod(self.layout(lane, element), 16 if self.operand == "a" else 8)

    def matrix_row(self, lane: Any) -> tuple[Any, Any]:
        """Where the 8 elements begin whose address a lane gives to ``ldmatrix.x4`` (``stmatrix.x4`` for C), so
        that its four registers are one A, two neighbouring B or two neighbouring C.

        (row, column) of the 16 x 16 block. For A and C, 8 elements of a row; for B, 8 of k of one column n,
        B being kept with k contiguous.

        Examples
        --------
        >>> MmaFragment("a").matrix_row(17), MmaFragment("b").matrix_row(17)
        ((1, 8), (0, 9))
        """
        if self.operand == "b":
            return divmod(Layout(((2, 2, 8),), ((8, 128, 1),))(lane), 16)
        return divmod(Layout(((2, 16),), ((8, 16),))(lane), 16)
