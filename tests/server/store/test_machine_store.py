"""The codes for machines without a disk, as the store keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from durability.errors import RefusedError
from durability_server.store.client_store import Client
from durability_server.store.machine_store import MachineCode

if TYPE_CHECKING:
    from tests.server.store.conftest import StoreFixture

WALL = "2026-01-01T00:00:00Z"


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
