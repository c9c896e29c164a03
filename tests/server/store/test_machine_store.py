"""The codes for machines without a disk, as the store keeps them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from durability.errors import RefusedError
from durability_server.store.client_store import Client
from durability_server.store.machine_store import MachineCode

if TYPE_CHECKING:
    from tests.server.store.conftest import StoreFixture

WALL = "1970-01-01T00:00:00Z"


def test_a_code_whose_time_is_over_can_still_be_revoked_with_its_machines(
    store_fixture: StoreFixture,
) -> None:
    """An expired code joins no further machine. The machines that joined by it stay known until it is
    revoked."""
    machines, clients = store_fixture.store.machines, store_fixture.store.clients
    code = MachineCode(hash=bytes(32), name="", machines=2, expires=10)
    machines.invite(code, wall=WALL, now=1)
    (listed,) = machines.listing(now=1)
    mine = Client(id="c1", name="m1", role="client", hash=b"h")
    machines.join(code.hash, "m1", mine, wall=WALL, now=1)
    with pytest.raises(RefusedError, match="time of this code"):
        machines.find(code.hash, now=10)
    assert clients.revoked() == ()
    assert machines.revoke(str(listed["client"]), wall=WALL) == {"c1": "m1"}
    assert clients.revoked() == ("c1",)
    assert machines.revoke(str(listed["client"]), wall=WALL) is None


def test_a_code_is_not_good_before_it_was_made(store_fixture: StoreFixture) -> None:
    """A code for machines is refused if the server's clock was put back before its creation, so it lasts no
    longer. A small clock difference between servers is allowed."""
    machines, made, valid_s = store_fixture.store.machines, 1_000_000, 30 * 86_400
    code = MachineCode(hash=bytes(32), name="", machines=2, expires=made + valid_s)
    wall = datetime.fromtimestamp(made, UTC).isoformat()
    machines.invite(code, wall=wall, now=made)
    mine = Client(id="c1", name="m1", role="client", hash=b"h")
    assert machines.join(code.hash, "m1", mine, wall=wall, now=made - 300) == (mine, False)
    other = Client(id="c2", name="m2", role="client", hash=b"g")
    with pytest.raises(RefusedError, match="clock, which was put back") as refused:
        machines.join(code.hash, "m2", other, wall=wall, now=made - 86_400)
    assert refused.value.code == "code-expired"
    with pytest.raises(RefusedError, match="time of this code") as refused:
        machines.find(code.hash, now=made + valid_s)
    assert refused.value.code == "code-expired"
    for machine, client in (("m1", mine), ("m2", other)):
        with pytest.raises(RefusedError, match="time of this code"):
            machines.join(code.hash, machine, client, wall=wall, now=made + valid_s)
    assert machines.join(code.hash, "m1", mine, wall=wall, now=made + valid_s - 1) == (mine, True)


def test_a_machine_that_has_joined_joins_again_while_the_servers_clock_is_behind(
    store_fixture: StoreFixture,
) -> None:
    """A server that keeps no time over a boot has an early one until the network tells it. One that was
    revoked meanwhile does not join."""
    machines, clients = store_fixture.store.machines, store_fixture.store.clients
    made, valid_s = 1_000_000, 30 * 86_400
    code = MachineCode(hash=bytes(32), name="", machines=1, expires=made + valid_s)
    wall = datetime.fromtimestamp(made, UTC).isoformat()
    machines.invite(code, wall=wall, now=made)
    machines.join(code.hash, "m1", Client(id="c1", name="m1", role="client", hash=b"h"), wall=wall, now=made)
    booted = Client(id="c2", name="m1", role="client", hash=b"g")
    for now in (made - 3600, 0):
        assert machines.find(code.hash, now=now) == code
        kept, again = machines.join(code.hash, "m1", booted, wall=wall, now=now)
        assert (kept.id, again, clients.find("c1")) == ("c1", True, kept)
    clients.revoke("c1", wall=wall, now=0)
    with pytest.raises(RefusedError) as refused:
        machines.join(code.hash, "m1", booted, wall=wall, now=0)
    assert refused.value.code == "machine-revoked"
