"""Collections of cyclic garbage: what is left out of them, and that nothing stays for ever."""

from __future__ import annotations

import gc
import weakref

import pytest

from durability_server import short_collections
from durability_server.short_collections import ShortCollections
from tests.waiting import until


class _Knot:
    """An object that only a collection frees."""

    def __init__(self) -> None:
        self.me = self


async def test_a_long_collection_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has survived a long collection is left out of the next one; after a short one nothing is."""
    collections = ShortCollections()
    collections.begin()
    try:
        monkeypatch.setattr(short_collections, "LONG_NS", 1 << 62)
        knots = [_Knot() for _ in range(1000)]
        before = gc.get_freeze_count()
        gc.collect()
        assert gc.get_freeze_count() <= before
        monkeypatch.setattr(short_collections, "LONG_NS", -1)
        gc.collect()
        assert gc.get_freeze_count() >= before + len(knots)
    finally:
        collections.end()
    assert gc.get_freeze_count() == 0


async def test_cycles_that_were_left_out_are_freed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay until all objects are scanned again."""
    monkeypatch.setattr(short_collections, "ALL_AGAIN_S", 0.01)
    monkeypatch.setattr(short_collections, "LONG_NS", -1)
    collections = ShortCollections()
    collections.begin()
    try:
        knot = _Knot()
        gc.collect()
        is_there = weakref.ref(knot)
        del knot
        await until(lambda: is_there() is None)
    finally:
        collections.end()


async def test_after_the_end_python_collects_as_before() -> None:
    """No callback is left, also if the server ended before `begin`."""
    callbacks = list(gc.callbacks)
    never_begun = ShortCollections()
    never_begun.end()
    collections = ShortCollections()
    collections.begin()
    assert len(gc.callbacks) == len(callbacks) + 1
    collections.end()
    collections.end()
    assert gc.callbacks == callbacks
