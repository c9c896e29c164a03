"""Codes for machines that keep nothing on a disk: who joins by one, how often, and when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from durability.errors import AuthenticationError, RefusedError
from durability.protocol import messages

if TYPE_CHECKING:
    from tests.server.conftest import Client, Lab, Running


async def invited(lab: Lab, running: Running, *, machines: int = 1, name: str = "") -> str:
    """The line of a new code."""
    operator = await lab.connect(running.address, "operate", local=True)
    asked = messages.InviteMachines(name=name, machines=machines, valid_s=3600)
    return (await operator.ask(asked, messages.Invited)).line


async def rows(operator: Client) -> list[tuple[object, object]]:
    """Name and state of each client and code but the first client, which is the test's own."""
    listed = await operator.ask(messages.ListClients(), messages.Clients)
    return [(row["name"], row["state"]) for row in listed.rows[1:]]


@pytest.mark.slow
async def test_a_machine_is_the_same_client_after_every_boot(lab: Lab, store_url: str) -> None:
    """It gets another secret each time, the earlier one ends, and its runs stay its own."""
    running = await lab.start(store_url)
    line = await invited(lab, running, name="rack")
    first = await lab.join(running.address, line, machine="m1")
    plan = lab.plan()
    client = await lab.connect(running.address, member=first)
    await client.begin(plan, lab.facts())
    await client.close()

    second = await lab.join(running.address, line, machine="m1")
    assert second.client == first.client and second.secret != first.secret
    with pytest.raises(AuthenticationError):
        await lab.connect(running.address, member=first)
    await lab.exported(running.address, plan.run, lambda case: case.session_end != "live")
    verifier = await lab.connect(running.address, "verify", member=second)
    asked = messages.Fetch(run=plan.run, facts={}, end=True)
    assert (await verifier.ask(asked, messages.CaseFile)).case
    operator = await lab.connect(running.address, "operate", local=True)
    assert await rows(operator) == [("rack", "joined"), ("rack", "code, 1 of 1 machines")]


async def test_a_code_joins_no_more_machines_than_it_is_for(lab: Lab, store_url: str) -> None:
    """Each machine is another client with a name of its own; one too many is refused."""
    running = await lab.start(store_url)
    line = await invited(lab, running, machines=2)
    one, two = [await lab.join(running.address, line, machine=name) for name in ("m1", "m2")]
    assert one.client != two.client
    with pytest.raises(RefusedError, match=r"2 machines have joined with this code"):
        await lab.join(running.address, line, machine="m3")
    assert (await lab.join(running.address, line, machine="m2")).client == two.client


async def test_the_row_of_a_code_has_its_numbers(lab: Lab, store_url: str) -> None:
    """Scripts need not take them out of the sentence: how many machines have joined, and how many may."""
    running = await lab.start(store_url)
    await lab.join(running.address, await invited(lab, running, machines=3), machine="m1")
    operator = await lab.connect(running.address, "operate", local=True)
    listed = (await operator.ask(messages.ListClients(), messages.Clients)).rows
    codes = [(row["state"], row["joined"], row["machines"]) for row in listed if "machines" in row]
    assert codes == [("code, 1 of 3 machines", 1, 3)]


async def test_a_renamed_machine_keeps_its_name(lab: Lab, store_url: str) -> None:
    """A machine keeps the operator's name when it joins again under its own name."""
    running = await lab.start(store_url)
    line = await invited(lab, running)
    machine = await lab.join(running.address, line, machine="m1", name="live-1")
    operator = await lab.connect(running.address, "operate", local=True)
    await operator.ask(messages.Rename(client=machine.client, name="shelf-3"), messages.Stored)
    await lab.join(running.address, line, machine="m1", name="live-1")
    assert ("shelf-3", "joined") in await rows(operator)


@pytest.mark.slow
async def test_a_revoked_machine_does_not_come_back(lab: Lab, store_url: str) -> None:
    """Its code stays good for the others."""
    running = await lab.start(store_url)
    line = await invited(lab, running, machines=3)
    lost = await lab.join(running.address, line, machine="m1")
    operator = await lab.connect(running.address, "operate", local=True)
    await operator.ask(messages.Revoke(client=lost.client), messages.Revoked)
    with pytest.raises(RefusedError, match="was revoked at"):
        await lab.join(running.address, line, machine="m1")
    await lab.join(running.address, line, machine="m2")


@pytest.mark.slow
async def test_a_revoked_code_ends_with_its_machines(lab: Lab, store_url: str) -> None:
    """A revoked code cannot join, and the machines that joined with it are refused. Machines of other codes
    are not affected."""
    running = await lab.start(store_url)
    line, other = await invited(lab, running, machines=2), await invited(lab, running)
    machines = [await lab.join(running.address, line, machine=name) for name in ("m1", "m2")]
    stays = await lab.join(running.address, other, machine="m1")
    operator = await lab.connect(running.address, "operate", local=True)
    listed = (await operator.ask(messages.ListClients(), messages.Clients)).rows
    (code,) = (row["client"] for row in listed if row["state"] == "code, 2 of 2 machines")
    await operator.ask(messages.Revoke(client=str(code)), messages.Revoked)
    with pytest.raises(RefusedError, match="code for machines was revoked"):
        await lab.join(running.address, line, machine="m1")
    for machine in machines:
        with pytest.raises(AuthenticationError):
            await lab.connect(running.address, member=machine)
    await lab.connect(running.address, "query", member=stays)


@pytest.mark.slow
async def test_each_kind_of_code_has_its_own_machines(lab: Lab, store_url: str) -> None:
    """A code for one join refuses a machine without a disk, which could not join again, and stays valid. A
    code for machines refuses other machines."""
    running = await lab.start(store_url)
    once = (await running.server.invite()).line
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"joins once; for .*`durability clients invite --machines N`"):
            await lab.join(running.address, once, machine="m1")
    await lab.join(running.address, once)
    with pytest.raises(RefusedError, match="machines that run the live image"):
        await lab.join(running.address, await invited(lab, running))
