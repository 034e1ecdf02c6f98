"""Compressed rows against plain Python lists."""

from __future__ import annotations

import numpy as np
import pytest

from etproto.graph import compressed


def random_rows(seed: int) -> tuple[list[list[int]], np.ndarray, np.ndarray, int]:
    """Rows of few distinct elements, some empty, some equal; their compressed form; the number of elements."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 6))
    rows = [random.integers(0, count, random.integers(0, 4)).tolist() for _ in range(random.integers(0, 40))]
    ptr = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return rows, ptr, np.array(sum(rows, []), np.int32), count


def as_lists(ptr: np.ndarray, element: np.ndarray) -> list[list[int]]:
    assert ptr.dtype == np.int64 and element.dtype == np.int32
    return [element[a:b].tolist() for a, b in zip(ptr[:-1], ptr[1:], strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_group_keeps_the_order_of_appearance(seed):
    random = np.random.default_rng(seed)
    key, value = random.integers(0, 7, (2, 30), dtype=np.int32)
    expected = [[v for k, v in zip(key.tolist(), value.tolist(), strict=True) if k == row] for row in range(9)]
    assert as_lists(*compressed.group(key, value, 9)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_transpose_lists_the_places_of_the_rows_read(seed):
    rows, ptr, element, count = random_rows(seed)
    read = np.random.default_rng(seed).permutation(len(rows))[: 2 * len(rows) // 3]
    expected = [[i for i, r in enumerate(read.tolist()) for e in rows[r] if e == x] for x in range(count)]
    assert as_lists(*compressed.transpose(ptr, element, read, count)) == expected


@pytest.mark.parametrize("seed", range(40))
def test_repeats_are_within_one_row(seed):
    rows, ptr, element, count = random_rows(seed)
    rows, ptr = rows[: seed // 4], ptr[: seed // 4 + 1]
    assert compressed.has_repeats(ptr, element, count) == any(len(set(row)) < len(row) for row in rows)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("good", [True, False])
def test_sets_are_numbered_by_first_appearance_under_any_hash(seed, good):
    rows, ptr, element, _ = random_rows(seed)
    order = np.random.default_rng(seed).permutation(len(rows))
    hashed = compressed.hashes(ptr, element) if good else np.zeros(len(rows), np.uint64)
    number, first = compressed.number_sets(ptr, element, order, hashed)
    seen: dict[tuple[int, ...], int] = {}
    for place, row in enumerate(order.tolist()):
        content = tuple(rows[row])
        if content and content not in seen:
            assert first[len(seen)] == row
            seen[content] = len(seen)
        assert number[place] == (seen[content] if content else -1)
    assert len(first) == len(seen)


def test_hashes_depend_on_order_and_length():
    rows = [[], [0], [0, 0], [1], [0, 1], [1, 0], [2**31 - 1]]
    ptr = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    hashed = compressed.hashes(ptr, np.array(sum(rows, []), np.int32))
    assert hashed.dtype == np.uint64 and len(set(hashed.tolist())) == len(rows)
