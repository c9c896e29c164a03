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
    """It joins no machine any more, but those that joined by it are known until then."""
    machines, clients = store_fixture.store.machines, store_fixture.store.clients
    code = MachineCode(hash=bytes(32), name="", machines=2, expires=10)
    machines.invite(code, wall=WALL, now=1)
    (listed,) = machines.listing(now=1)
    mine = Client(id="c1", name="m1", role="client", hash=b"h")
    machines.join(code.hash, "m1", mine, wall=WALL, now=1)
    with pytest.raises(RefusedError, match="time of this code"):
        machines.find(code.hash, now=10)
    assert clients.revoked() == ()
    assert machines.revoke(str(listed["client"]), wall=WALL) == ("c1",)
    assert clients.revoked() == ("c1",)
    assert machines.revoke(str(listed["client"]), wall=WALL) is None


def test_a_code_is_not_good_before_it_was_made(store_fixture: StoreFixture) -> None:
    """Whatever time it was given: that the server's clock was put back makes it last no longer. Clocks of
    several servers may differ a little."""
    machines, made, valid_s = store_fixture.store.machines, 1_000_000, 30 * 86_400
    code = MachineCode(hash=bytes(32), name="", machines=2, expires=made + valid_s)
    wall = datetime.fromtimestamp(made, UTC).isoformat()
    machines.invite(code, wall=wall, now=made)
    mine = Client(id="c1", name="m1", role="client", hash=b"h")
    assert machines.join(code.hash, "m1", mine, wall=wall, now=made - 300) == (mine, False)
    for now, why in ((made - 86_400, "clock, which was put back"), (made + valid_s, "time of this code")):
        with pytest.raises(RefusedError, match=why) as refused:
            machines.find(code.hash, now=now)
        assert refused.value.code == "code-expired"
        with pytest.raises(RefusedError, match=why):
            machines.join(code.hash, "m1", mine, wall=wall, now=now)
    assert machines.join(code.hash, "m1", mine, wall=wall, now=made + valid_s - 1) == (mine, True)
