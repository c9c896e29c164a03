"""Names of clients tell people who is who."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from durability.errors import RefusedError
from durability.protocol import messages

if TYPE_CHECKING:
    from tests.server.conftest import Client, Lab

WRONG = ["", " ", "\u00a0", "the operator", " The  Operator", "the operator on this machine"]


async def _names(operator: Client) -> list[object]:
    return [row["name"] for row in (await operator.ask(messages.ListClients(), messages.Clients)).rows]


@pytest.mark.parametrize("name", WRONG)
async def test_no_client_has_no_name_or_the_operators(lab: Lab, sqlite_url: str, name: str) -> None:
    """Neither by joining (where an empty one becomes "client"), nor by an invitation or a new name; what was
    asked changes nothing."""
    running = await lab.start(sqlite_url)
    line = (await running.server.invite()).line
    if name.strip():
        with pytest.raises(RefusedError) as refused:
            await lab.join(running.address, line, name=name)
        assert refused.value.code == "bad-request"
    else:
        await lab.join(running.address, line, name=name)
        line = (await running.server.invite()).line
    asked: list[messages.Message] = [messages.Rename(client="test", name=name)]
    if name:  # "" leaves the name to the client
        asked.append(messages.Invite(role="client", name=name))
        asked.append(messages.InviteMachines(name=name, machines=2, valid_s=60))
    for message in asked:
        operator = await lab.connect(running.address, "operate", local=True)
        with pytest.raises(RefusedError) as refused:
            await operator.ask(message, messages.Stored)
        assert refused.value.code == "bad-request"
    await lab.join(running.address, line, name="other")
    operator = await lab.connect(running.address, "operate", local=True)
    joined = [] if name.strip() else ["client"]
    assert await _names(operator) == ["test", *joined, "other"]


async def test_spaces_make_no_other_name(lab: Lab, sqlite_url: str) -> None:
    """People do not see them, so they are no part of it."""
    running = await lab.start(sqlite_url)
    for name in ("shelf 1", " shelf  1"):
        await lab.join(running.address, (await running.server.invite()).line, name=name)
    operator = await lab.connect(running.address, "operate", local=True)
    assert await _names(operator) == ["test", "shelf 1", "shelf 1-2"]
    with pytest.raises(RefusedError) as refused:
        await operator.ask(messages.Rename(client="test", name="shelf 1 "), messages.Stored)
    assert refused.value.code == "name-taken"
