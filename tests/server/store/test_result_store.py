"""Kept results in the store: added once, never replaced, listed without their bodies, found by a serial."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine

from durability.bench.hashed_serials import hashed
from durability.bench.kept_result import KeptDrive, KeptSummary, digest_of
from durability.errors import RefusedError
from durability.formats.documents import to_value
from durability.formats.packing import pack
from durability_server.store import result_store, run_rows, tables
from durability_server.store.result_store import NewResult
from durability_server.store.store import Store

if TYPE_CHECKING:
    from tests.server.store.conftest import StoreFixture

SUMMARY = KeptSummary(
    created="2026-01-02T03:04:05+00:00",
    software="durability 1",
    mode="quick",
    profile="",
    complete=True,
    host="shelf-3",
    machine=hashed("machine"),
    target="/srv",
    drives=(KeptDrive(model="Model One", serial=hashed("S1"), identity=hashed("S1"), size_bytes=1 << 40),),
    rate=1000.0,
    p99_ns=2_000_000,
    honesty="not shown",
)


def new(text: str, *, client: str = "c1", **changes: Any) -> NewResult:
    """A result whose file is `text`."""
    body = zlib.compress(text.encode())
    summary = replace(SUMMARY, **changes)
    return NewResult(
        client=client, wall="2026-01-03T00:00:00Z", summary=summary, body=body, digest=digest_of(body)
    )


def test_a_result_is_kept_once_and_comes_back(store_fixture: StoreFixture) -> None:
    """The same file of the same client is one result; another client's copy of it is another one."""
    store = store_fixture.store
    first = store.keep_result(new("one"))
    assert store.keep_result(new("one", host="other")) == first, "what is kept is not replaced"
    second = store.keep_result(new("one", client="c2"))
    assert second != first
    rows = store.results.listing(10, client=None)
    assert [row["result"] for row in rows] == [second, first]
    assert all("body" not in row for row in rows) and rows[1]["host"] == "shelf-3"
    row, body = store.results.find(first, client=None)
    assert (row, zlib.decompress(body)) == (rows[1], b"one")
    assert row["sha256"] == digest_of(body).sha256 and row["file_bytes"] == 3


def test_each_client_sees_its_own(store_fixture: StoreFixture) -> None:
    """A client cannot tell another client's result from one that does not exist."""
    store = store_fixture.store
    mine = store.keep_result(new("one"))
    theirs = store.keep_result(new("two", client="c2"))
    assert [row["result"] for row in store.results.listing(10, client="c1")] == [mine]
    for result in (theirs, "no-such"):
        with pytest.raises(RefusedError, match="has no result") as refused:
            store.results.find(result, client="c1")
        assert refused.value.code == "result-unknown"


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ({"identity": hashed("S1")}, ["one", "both"]),
        ({"drive": "model two"}, ["both", "two"]),
        ({"drive": "S2-shown"}, ["both", "two"]),
        ({"drive": "nothing", "identity": hashed("S2-shown")}, ["both", "two"]),
        ({"drive": "nothing"}, []),
        ({"host": "SHELF"}, ["one", "both"]),
        ({}, ["one", "both", "two"]),
    ],
)
def test_results_are_found_by_drive_and_machine(
    store_fixture: StoreFixture, chosen: dict[str, str], found: list[str]
) -> None:
    """A serial finds a drive by its hash, whether the result hides it or not; a part of a name does too."""
    first = SUMMARY.drives[0]
    second = KeptDrive(model="Model Two", serial="S2-shown", identity=hashed("S2-shown"), size_bytes=1)
    store = store_fixture.store
    names = {
        store.keep_result(new("two", drives=(second,), host="b9")): "two",
        store.keep_result(new("both", drives=(first, second))): "both",
        store.keep_result(new("one")): "one",
    }
    rows = store.results.listing(10, client=None, **chosen)
    assert [names[str(row["result"])] for row in rows] == found


def test_a_client_has_a_quota(store_fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may store a limited number of results and bytes. Other clients and the operator are not
    affected."""
    monkeypatch.setattr(result_store, "RESULTS_OF_CLIENT_MAX", 2)
    store = store_fixture.store
    for text in ("one", "two"):
        store.keep_result(new(text))
    with pytest.raises(RefusedError, match="stored 2 results") as refused:
        store.keep_result(new("three"))
    assert refused.value.code == "quota"
    store.keep_result(new("one"))  # it is there already
    for client in ("c2", "", "", ""):
        store.keep_result(new("three", client=client))
    monkeypatch.setattr(result_store, "RESULT_BYTES_OF_CLIENT_MAX", 10)
    with pytest.raises(RefusedError, match="the maximum of one client"):
        store.keep_result(new("four" * 10, client="c3"))


def test_a_list_stops_where_an_answer_would_be_too_long(
    store_fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest are listed, as many as fit."""
    store = store_fixture.store
    for text in ("one", "two", "three"):
        last = store.keep_result(new(text))
    monkeypatch.setattr(run_rows, "LISTED_BYTES_MAX", len(pack(to_value(SUMMARY))) * 3 // 2)
    assert [row["result"] for row in store.results.listing(10, client=None)] == [last]
    store.keep_result(new("four"))  # the list left nothing open


def test_a_store_of_an_earlier_release_gets_the_tables(store_fixture: StoreFixture, store_url: str) -> None:
    """Opening a store that has no results makes it ready for them."""
    store_fixture.store.close()
    engine = create_engine(store_url)
    tables.result_drives.drop(engine)
    tables.results.drop(engine)
    engine.dispose()
    store = Store(store_url)
    store.open()
    kept = store.keep_result(new("one"))
    assert store.results.find(kept, client="c1")[0]["result"] == kept
    store.close()
