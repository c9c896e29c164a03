"""The clients that the store knows, and how many it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import insert, update

from durability import limits
from durability.errors import RefusedError
from durability.protocol import messages
from durability_server.access.caller import OPERATOR
from durability_server.access.client_requests import ClientRequests
from durability_server.store import client_store, tables
from durability_server.store.client_store import CODE_S, Client, Invitation
from durability_server.store.store_thread import StoreThread
from tests.server.store.test_gone_back import listening

if TYPE_CHECKING:
    from tests.server.store.conftest import StoreFixture

WALL = "2026-01-01T00:00:00Z"


def _join(fixture: StoreFixture, number: int, name: str = "") -> Client:
    clients = fixture.store.clients
    hash_ = number.to_bytes(32)
    clients.invite(Invitation(hash=hash_, role="client", name="", expires=10), wall=WALL, now=1)
    client = Client(id=f"c{number}", name=name or f"m{number}", role="client", hash=b"h")
    return clients.join(hash_, client, wall=WALL, now=1)


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


def test_a_list_has_room_for_all_that_are_known(store_fixture: StoreFixture) -> None:
    """And for all codes; of those that were revoked for the newest that fit."""
    clients = store_fixture.store.clients
    for number in (1, 2, 3):
        _join(store_fixture, number)
    clients.revoke("m1", wall="2026-01-02T00:00:00Z", now=1)
    clients.revoke("m2", wall="2026-01-03T00:00:00Z", now=1)
    clients.invite(Invitation(hash=bytes(32), role="client", name="b", expires=10), wall=WALL, now=1)
    listed = [[row["name"] for row in clients.listing(now=1, rows_max=count)] for count in (1, 2, 3, 4)]
    assert listed == [["m3", "b"], ["m3", "b"], ["m2", "m3", "b"], ["m1", "m2", "m3", "b"]]


async def test_a_full_server_can_list_its_clients(store_fixture: StoreFixture) -> None:
    """With all clients, codes and codes for machines that it takes, in one message; and a store of a release
    that took more clients can be listed as well."""
    store = store_fixture.store
    codes = [
        {"hash": number.to_bytes(32), "name": "", "expires": 1 << 40, "created": WALL}
        for number in range(client_store.INVITATIONS_MAX)
    ]
    names = [f"c{number}" for number in range(limits.LISTING_ROWS_MAX + 1)]
    rows = [{"id": name, "name": name, "role": "client", "hash": b"h", "joined": WALL} for name in names]
    known = rows[: client_store.CLIENTS_MAX]
    gone = [row | {"revoked": WALL} for row in rows[client_store.CLIENTS_MAX :]]
    with store._database.transaction() as db:
        db.execute(insert(tables.invitations), [code | {"role": "client"} for code in codes])
        db.execute(insert(tables.machine_codes), [code | {"machines": 1} for code in codes])
        db.execute(insert(tables.clients), known)
        db.execute(insert(tables.clients), gone)
    thread = StoreThread()
    requests = ClientRequests(store, thread, fingerprint=bytes(32), on_revoked=lambda _: None)
    listed = await requests.answer(OPERATOR, messages.ListClients())
    assert isinstance(listed, messages.Clients)
    assert messages.decode(messages.encode(listed)) == listed
    states = [str(row["state"]).partition(",")[0] for row in listed.rows]
    assert {state: states.count(state) for state in states} == {
        "joined": len(known),
        "invited": len(codes),
        "code": len(codes),
    }
    with store._database.transaction() as db:
        db.execute(update(tables.clients).values(revoked=""))
    listed = await requests.answer(OPERATOR, messages.ListClients())
    assert messages.decode(messages.encode(listed)) == listed
    await thread.close(lambda: None)


def test_a_name_that_many_have_costs_no_more_than_one_that_few_have(store_fixture: StoreFixture) -> None:
    """Machines of one image have one host name, and no commit can wait until each number has been asked
    for."""
    counts: list[int] = []

    def count(*_: object) -> None:
        counts[-1] += 1

    with listening(count):
        for number in range(1, 40):
            counts.append(0)
            kept = _join(store_fixture, number, "debian")
            assert kept.name == ("debian" if number == 1 else f"debian-{number}")
    assert len(set(counts)) == 1


def test_a_code_lasts_no_longer_if_the_servers_clock_is_put_back(store_fixture: StoreFixture) -> None:
    """It is not good before it was made. Clocks of several servers may differ a little."""
    clients, made = store_fixture.store.clients, 1_000_000
    hash_ = bytes(32)
    invitation = Invitation(hash=hash_, role="client", name="", expires=made + CODE_S)
    clients.invite(invitation, wall=WALL, now=made)
    for now in (made - 300, made, made + CODE_S - 1):
        assert clients.invitation(hash_, now=now) == invitation
    for now, why in ((made - 86_400, "clock, which was put back"), (made + CODE_S, "older than an hour")):
        with pytest.raises(RefusedError, match=why) as refused:
            clients.invitation(hash_, now=now)
        assert refused.value.code == "code-expired"
        with pytest.raises(RefusedError, match=why):
            clients.join(hash_, Client(id="c1", name="m1", role="client", hash=b"h"), wall=WALL, now=now)
