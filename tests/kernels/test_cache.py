"""Cached binaries: whole or not there, whatever other processes do meanwhile."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from etproto.kernels.cache import cache_folder, load_binary, store_binary

FACTS = {"entry": "worker", "capability": [9, 0]}


def test_round_trip(tmp_path):
    assert load_binary("key", tmp_path) is None
    store_binary("key", b"\x7fELF\0", FACTS, tmp_path / "not yet there")
    assert load_binary("key", tmp_path / "not yet there") == (b"\x7fELF\0", FACTS)
    assert load_binary("another", tmp_path / "not yet there") is None


@pytest.mark.parametrize("half", [".cubin", ".json"])
def test_half_an_entry_is_none(tmp_path, half):
    store_binary("key", b"whole", FACTS, tmp_path)
    (tmp_path / f"key{half}").unlink()
    assert load_binary("key", tmp_path) is None


@pytest.mark.parametrize("text", ["", '{"entry": "wor', "\0"])
def test_broken_facts_are_none(tmp_path, text):
    store_binary("key", b"whole", FACTS, tmp_path)
    (tmp_path / "key.json").write_text(text)
    assert load_binary("key", tmp_path) is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    store_binary("key", b"binary", FACTS, blocked)
    assert load_binary("key", blocked) is None


def test_an_interrupted_write_leaves_the_old_entry(tmp_path, monkeypatch):
    store_binary("key", b"old", FACTS, tmp_path)
    monkeypatch.setattr(os, "replace", lambda *names: (_ for _ in ()).throw(OSError("disk full")))
    store_binary("key", b"new", FACTS, tmp_path)
    assert load_binary("key", tmp_path) == (b"old", FACTS)


def _write(folder, number):
    for _ in range(30):
        store_binary("key", bytes([number]) * 20_000, FACTS, folder)


def test_concurrent_writers_never_show_a_mixture(tmp_path):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(tmp_path, number)) for number in (1, 2, 3)]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        found = load_binary("key", tmp_path)
        if found is not None:
            seen.add(found[0][0])
            assert found[0] == bytes(found[0][:1]) * 20_000 and found[1] == FACTS
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert seen
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key.cubin", "key.json"], "temporary files remain"


def test_the_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "etproto"
