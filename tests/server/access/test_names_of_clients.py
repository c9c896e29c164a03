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


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
async def test_no_client_has_no_name_or_the_operators(lab: Lab, sqlite_url: str, name: str) -> None:
    """No client gets an empty name or the operator's name, by joining, by an invitation or by renaming. An
    empty name in a join becomes "client"."""
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


@pytest.mark.slow
async def test_the_name_of_an_invitation_is_kept(lab: Lab, store_url: str) -> None:
    """A campaign finds its machines by their names, so no other client gets one that was given away: neither
    one that calls itself so meanwhile, nor the invited one another name in silence."""
    running = await lab.start(store_url)
    operator = await lab.connect(running.address, "operate", local=True)
    line = (await operator.ask(messages.Invite(role="client", name="b"), messages.Invited)).line
    one = messages.InviteMachines(name="rack", machines=1, valid_s=3600)
    code = (await operator.ask(one, messages.Invited)).line
    for name in ("b", "rack"):
        await lab.join(running.address, (await running.server.invite()).line, name=name)
    await lab.join(running.address, line, name="its-host-name")
    await lab.join(running.address, code, name="its-host-name", machine="m1")
    assert sorted(map(str, await _names(operator))) == ["b", "b-2", "rack", "rack", "rack-2", "test"]


@pytest.mark.slow
@pytest.mark.parametrize("machines", [0, 1])
async def test_no_invitation_is_for_a_name_that_is_taken(lab: Lab, store_url: str, machines: int) -> None:
    """An invitation for a taken name is refused with the remedy. A join is refused too if the name was taken
    since, and the code stays valid. `machines` 0: a code for one client."""
    asked = (
        messages.InviteMachines(name="b", machines=1, valid_s=3600)
        if machines
        else messages.Invite(role="client", name="b")
    )
    running = await lab.start(store_url)
    tenant = await lab.join(running.address, (await running.server.invite()).line, name="b")
    operator = await lab.connect(running.address, "operate", local=True)
    with pytest.raises(RefusedError, match=f"clients revoke {tenant.client}") as refused:
        await operator.ask(asked, messages.Invited)
    assert refused.value.code == "name-taken"
    operator = await lab.connect(running.address, "operate", local=True)
    await operator.ask(messages.Rename(client="b", name="c"), messages.Stored)
    line = (await operator.ask(asked, messages.Invited)).line
    await operator.ask(messages.Rename(client="c", name="b"), messages.Stored)
    with pytest.raises(RefusedError, match=f"rename {tenant.client} NAME") as refused:
        await lab.join(running.address, line, machine="m1" if machines else "")
    assert refused.value.code == "name-taken"
    await operator.ask(messages.Revoke(client="b"), messages.Revoked)
    mine = await lab.join(running.address, line, machine="m1" if machines else "")
    rows = (await operator.ask(messages.ListClients(), messages.Clients)).rows
    assert [row["client"] for row in rows if (row["name"], row["state"]) == ("b", "joined")] == [mine.client]


async def test_several_machines_of_one_name_get_numbers(lab: Lab, store_url: str) -> None:
    """So their code may be given though the name is taken."""
    running = await lab.start(store_url)
    await lab.join(running.address, (await running.server.invite()).line, name="rack")
    operator = await lab.connect(running.address, "operate", local=True)
    asked = messages.InviteMachines(name="rack", machines=2, valid_s=3600)
    line = (await operator.ask(asked, messages.Invited)).line
    for machine in ("m1", "m2"):
        await lab.join(running.address, line, machine=machine)
    assert (await _names(operator))[:4] == ["test", "rack", "rack-2", "rack-3"]


async def test_a_code_that_is_used_up_promises_no_name(lab: Lab, store_url: str) -> None:
    """A machine that was revoked is invited again under its name, or comes with that name of its own: it gets
    exactly that, though the first code has not expired."""
    running = await lab.start(store_url)
    operator = await lab.connect(running.address, "operate", local=True)
    one = messages.InviteMachines(name="rack-3", machines=1, valid_s=3600)
    for machine in ("m1", "m2"):
        line = (await operator.ask(one, messages.Invited)).line
        await lab.join(running.address, line, machine=machine)
        await operator.ask(messages.Revoke(client="rack-3"), messages.Revoked)
    await lab.join(running.address, (await running.server.invite()).line, name="rack-3")
    assert set(await _names(operator)) == {"test", "rack-3"}


@pytest.mark.parametrize("machines", [0, 1, 2])
async def test_an_invited_machine_gets_exactly_its_name(lab: Lab, store_url: str, machines: int) -> None:
    """An invited machine gets the invited name, even if another open code has the same name. The second
    machine to join is refused. `machines`: of the other code, 0 for a code for one client."""
    again = messages.Invite(role="client", name="b")
    other = messages.InviteMachines(name="b", machines=machines, valid_s=3600) if machines else again
    running = await lab.start(store_url)
    operator = await lab.connect(running.address, "operate", local=True)
    lost = (await operator.ask(other, messages.Invited)).line
    line = (await operator.ask(again, messages.Invited)).line
    await lab.join(running.address, line, name="its-host-name")
    rows = (await operator.ask(messages.ListClients(), messages.Clients)).rows
    assert [row["name"] for row in rows if row["state"] == "joined"] == ["test", "b"]
    if machines < 2:
        with pytest.raises(RefusedError) as refused:
            await lab.join(running.address, lost, machine="m1" if machines else "")
        assert refused.value.code == "name-taken"
