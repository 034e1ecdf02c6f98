"""Relations in compressed rows: row i holds ``element[ptr[i]:ptr[i + 1]]``. Everything here is linear and compiled.

Compiled loops trust their input: every element must lie in the range that its function names.
"""

from __future__ import annotations

import numba
import numpy as np

__all__ = ["group", "has_repeats", "hashes", "number_sets", "transpose"]


@numba.njit(cache=True)
def group(key: np.ndarray, value: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Counting sort of values by key: row k holds the values of key k in order of appearance.

    Parameters
    ----------
    key, value : int32[m]
        Keys in 0 .. count - 1.
    count : int
        Number of rows.

    Returns
    -------
    ptr : int64[count + 1]
    element : int32[m]
    """
    ptr = np.zeros(count + 1, np.int64)
    for k in key:
        ptr[k + 1] += 1
    for k in range(count):
        ptr[k + 1] += ptr[k]
    place = ptr[:-1].copy()
    element = np.empty(len(key), np.int32)
    for i in range(len(key)):
        element[place[key[i]]] = value[i]
        place[key[i]] += 1
    return ptr, element


@numba.njit(cache=True)
def transpose(ptr: np.ndarray, element: np.ndarray, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """For each element the places in `rows` of the rows that hold it, ascending.

    Parameters
    ----------
    ptr, element : int64[n + 1], int32[m]
        Elements in 0 .. count - 1.
    rows : int64[r]
        Rows to read, in this order.
    count : int
        Number of elements, the rows of the result.

    Returns
    -------
    ptr : int64[count + 1]
    element : int32[entries of `rows`]
    """
    transposed = np.zeros(count + 1, np.int64)
    for row in rows:
        for k in range(ptr[row], ptr[row + 1]):
            transposed[element[k] + 1] += 1
    for k in range(count):
        transposed[k + 1] += transposed[k]
    next_free = transposed[:-1].copy()
    place = np.empty(transposed[count], np.int32)
    for i in range(len(rows)):
        for k in range(ptr[rows[i]], ptr[rows[i] + 1]):
            place[next_free[element[k]]] = i
            next_free[element[k]] += 1
    return transposed, place


@numba.njit(cache=True)
def has_repeats(ptr: np.ndarray, element: np.ndarray, count: int) -> bool:
    """Whether some row holds an element twice. Elements are in 0 .. count - 1."""
    last_row = np.full(count, -1, np.int64)
    for row in range(len(ptr) - 1):
        for k in range(ptr[row], ptr[row + 1]):
            if last_row[element[k]] == row:
                return True
            last_row[element[k]] = row
    return False


@numba.njit(cache=True)
def hashes(ptr: np.ndarray, element: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each row, uint64: steps of splitmix64 (Steele, Lea and Flood 2014), one an element."""
    hashed = np.zeros(len(ptr) - 1, np.uint64)
    for row in range(len(hashed)):
        x = np.uint64(0)
        for k in range(ptr[row], ptr[row + 1]):
            x += np.uint64(element[k]) + np.uint64(0x9E3779B97F4A7C15)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x ^= x >> np.uint64(31)
        hashed[row] = x
    return hashed


@numba.njit(cache=True)
def number_sets(
    ptr: np.ndarray, element: np.ndarray, rows: np.ndarray, hashed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Number the distinct contents of rows by first appearance; empty rows have none.

    A hash table with linear probing. Rows of one hash are compared element by element, so hashes decide how
    long it takes and never what comes out.

    Parameters
    ----------
    ptr, element : int64[n + 1], int32[m]
    rows : int64[r]
        Rows to number, in this order.
    hashed : uint64[n]
        A hash of each row, from `hashes`.

    Returns
    -------
    number : int32[r]
        Equal where the contents are equal; -1 for an empty row.
    first : int64[numbers]
        The first row of each number.
    """
    slots = 2
    while slots < 2 * len(rows):
        slots *= 2
    table = np.full(slots, -1, np.int32)
    number = np.full(len(rows), -1, np.int32)
    first = np.empty(len(rows), np.int64)
    found = 0
    for i in range(len(rows)):
        row = rows[i]
        start, size = ptr[row], ptr[row + 1] - ptr[row]
        if size == 0:
            continue
        slot = np.int64(hashed[row] & np.uint64(slots - 1))
        while table[slot] >= 0:
            like = first[table[slot]]
            same = hashed[like] == hashed[row] and ptr[like + 1] - ptr[like] == size
            k = 0
            while same and k < size:
                same = element[ptr[like] + k] == element[start + k]
                k += 1
            if same:
                break
            slot = (slot + 1) & (slots - 1)
        if table[slot] < 0:
            table[slot] = found
            first[found] = row
            found += 1
        number[i] = table[slot]
    return number, first[:found].copy()
