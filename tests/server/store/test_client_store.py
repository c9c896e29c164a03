"""The clients that the store knows, and how many it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from durability.errors import RefusedError
from durability_server.store import client_store
from durability_server.store.client_store import Client, Invitation

if TYPE_CHECKING:
    from tests.server.store.conftest import StoreFixture

WALL = "2026-01-01T00:00:00Z"


def _join(fixture: StoreFixture, number: int) -> None:
    clients = fixture.store.clients
    hash_ = number.to_bytes(32)
    clients.invite(Invitation(hash=hash_, role="client", name="", expires=10), wall=WALL, now=1)
    client = Client(id=f"c{number}", name=f"m{number}", role="client", hash=b"h")
    clients.join(hash_, client, wall=WALL, now=1)


def test_a_client_that_was_revoked_makes_room(
    store_fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store takes as many clients as are known at a time; and not endlessly many."""
    monkeypatch.setattr(client_store, "CLIENTS_MAX", 2)
    monkeypatch.setattr(client_store, "JOINS_MAX", 3)
    _join(store_fixture, 1)
    _join(store_fixture, 2)
    with pytest.raises(RefusedError, match="revoke") as refused:
        _join(store_fixture, 3)
    assert refused.value.code == "too-many"
    store_fixture.store.clients.revoke("m1", wall=WALL, now=1)
    _join(store_fixture, 4)
    store_fixture.store.clients.revoke("m2", wall=WALL, now=1)
    with pytest.raises(RefusedError, match="have joined"):
        _join(store_fixture, 5)


def test_the_newest_clients_that_were_revoked_are_listed(
    store_fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All those that are known are, whenever they joined."""
    monkeypatch.setattr(client_store, "REVOKED_LISTED_MAX", 1)
    for number in (1, 2, 3):
        _join(store_fixture, number)
    clients = store_fixture.store.clients
    clients.revoke("m3", wall="2026-01-02T00:00:00Z", now=1)
    clients.revoke("m2", wall="2026-01-03T00:00:00Z", now=1)
    assert [(row["name"], row["state"]) for row in clients.listing(now=1)] == [
        ("m1", "joined"),
        ("m2", "revoked"),
    ]
