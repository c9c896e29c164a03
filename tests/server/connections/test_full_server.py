"""Who gets in where as many are connected as may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from durability.campaign.definition.settings import DRIVES_MAX
from durability.errors import RefusedError
from durability.protocol import messages
from durability.protocol.join_code import parse_join_code
from durability_server.connections import connection_manager
from durability_server.connections.connection_manager import OF_ONE_CLIENT_MAX, OF_ONE_CODE_MAX
from tests.server.conftest import Member

if TYPE_CHECKING:
    from tests.server.conftest import Lab

pytestmark = pytest.mark.usefixtures("no_silence")


def _holder(line: str) -> Member:
    """Who has the code of this line, and has not joined."""
    code = parse_join_code(line.rsplit(maxsplit=1)[-1])
    return Member(fingerprint=code.fingerprint, client="", secret=code.secret)


async def test_a_join_code_has_few_connections(lab: Lab, sqlite_url: str) -> None:
    """One code on many connections takes few places; another code, and a client that joins by the first one
    after one of them has gone, get in."""
    running = await lab.start(sqlite_url)
    line = (await running.server.invite()).line
    open_ = [await lab.connect(running.address, "join", member=_holder(line)) for _ in range(OF_ONE_CODE_MAX)]
    more = await lab.connect(running.address, "join", member=_holder(line))
    error = await more.ended()
    assert isinstance(error, RefusedError)
    assert (error.code, "maximum of one join code" in str(error)) == ("busy", True)
    await lab.join(running.address, (await running.server.invite()).line)
    await open_[0].ask(messages.Join(name="mine"), messages.Joined)


@pytest.mark.slow
async def test_a_campaigns_machine_has_places_for_all_its_drives(lab: Lab, sqlite_url: str) -> None:
    """Its agent, a run on each drive, and a command beside them are connected. One more than a client may
    have is refused, and the others go on."""
    running = await lab.start(sqlite_url)
    purposes = ("agent", *("run",) * DRIVES_MAX, "query")
    mine = [await lab.connect(running.address, purpose) for purpose in purposes]
    assert (await mine[-1].ask(messages.List(limit=1), messages.Listing)).rows == ()
    mine += [await lab.connect(running.address, "query") for _ in range(OF_ONE_CLIENT_MAX - len(mine))]
    error = await (await lab.connect(running.address, "query")).ended()
    assert isinstance(error, RefusedError)
    assert (error.code, "maximum of one client" in str(error)) == ("busy", True)
    assert not any(client.reading.done() for client in mine)


async def test_a_full_server_has_places_for_its_operator(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all places are taken, another client is refused, and the operator on the server's own machine
    gets in."""
    monkeypatch.setattr(connection_manager, "AUTHENTICATED_MAX", 3)
    running = await lab.start(sqlite_url)
    for _ in range(3):
        await lab.connect(running.address, "query")
    error = await (await lab.connect(running.address, "query")).ended()
    assert isinstance(error, RefusedError)
    assert error.code == "busy"
    operator = await lab.connect(running.address, "operate", local=True)
    assert (await operator.ask(messages.ListClients(), messages.Clients)).rows
