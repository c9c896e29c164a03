"""Servers of one store are killed, stopped and left, and clients go on at the others: nothing that was
granted is lost, nothing is known that was not acknowledged, and the verdict is the right one."""

from __future__ import annotations

import asyncio
import io
import json
import random
import signal
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from operator import lt
from pathlib import Path
from typing import Any

import pytest

from durability import limits
from durability.errors import PeerError, RefusedError, TargetError
from durability.protocol.messages import Invite, Invited
from durability.units import parse_address
from durability_client.link.credential import load_credential
from durability_client.link.endpoint import Endpoint, endpoint
from durability_client.link.server_connection import connect
from durability_client.queries import ChosenRuns, runs
from durability_client.run.planning import RunOptions
from durability_client.run.run_command import run
from durability_client.verify.verify_command import VerifyOptions, verify
from durability_lab.drive.faults import FlushIgnored, Honest
from durability_lab.simulated_rig.simulated_storage import SimulatedStorage
from durability_lab.support.local_server import join_server
from durability_lab.support.postgresql import PostgreSQL
from durability_lab.support.server_fleet import AckingClient, Fleet, FleetServer, case_at, contradiction
from tests.armed_runs import armed_runs
from tests.waiting import standstills

pytestmark = pytest.mark.slow  # starts servers again and again

STEPS = 24
SPREAD = 24  # clients; that all go to the same one of two servers has a chance of 1 in 8 million
KILLS = 8
SIZE_BYTES = 16 << 20
RESUMED_S = 5.0
LEFT_S = limits.LEFT_PEER_NS / 1e9
DEADLINE_S = 120


@pytest.fixture
def fleet(postgresql: PostgreSQL) -> Iterator[Fleet]:
    """Three servers, not started yet; killed at the end."""
    with tempfile.TemporaryDirectory(prefix="durability-fleet-") as directory:
        fleet = Fleet(postgresql.new_database(), Path(directory), count=3)
        yield fleet
        fleet.end()


async def until_all_have_a_server(clients: list[AckingClient]) -> None:
    """Every client has resumed, and was granted all that it has acknowledged until now."""
    async with asyncio.timeout(DEADLINE_S):
        for client in clients:
            acked = client.acked
            while client.link.trouble or client.granted < acked:
                assert not client.link.ended.is_set(), client.link.final
                await asyncio.sleep(0.02)


def alone(where: Endpoint, address: str) -> Endpoint:
    """The server at `address` and no other."""
    return replace(where, addresses=(parse_address(address),))


async def test_any_history_of_servers_keeps_the_evidence(fleet: Fleet) -> None:
    """Servers are killed, stopped in order, made to stand still for up to 4 s, and clients lose connections,
    end their runs and are verified at any server, in an order drawn by chance."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    where = await fleet.start()
    numbers = iter(range(1, 1000))
    clients = [AckingClient(next(numbers), pace_s=0.01, step=7) for _ in range(4)]
    for client in clients:
        await client.begin(where)
    for _ in range(STEPS):
        server, number = chance.choice(fleet.servers), chance.randrange(len(clients))
        client = clients[number]
        step = chance.choice(("kill", "terminate", "stand still", "drop", "look", "end"))
        print(step, server.address, client.plan.run)
        if step in ("kill", "terminate"):
            await asyncio.to_thread(server.end, signal.SIGKILL if step == "kill" else signal.SIGTERM)
            await asyncio.sleep(chance.random() * 2)  # without it, for any time
            await asyncio.to_thread(server.start)
        elif step == "stand still":
            server.stop()
            await asyncio.sleep(chance.random() * 4)  # as long as chance wants it
            server.go_on()
        elif step == "drop":
            client.link.drop()
        elif step == "end":
            clients[number] = AckingClient(next(numbers), pace_s=0.01, step=7)
            await client.vanish()
            case = await ended_case(alone(where, server.address), client)
            assert case.state == "ended"
            assert not contradiction(case, granted=client.granted, acked=client.acked), f"seed {seed}"
            await until_all_have_a_server([one for one in clients if one is not clients[number]])
            await clients[number].begin(where)
        granted = client.granted
        case = await case_at(alone(where, server.address), client.plan.run)
        assert not contradiction(case, granted=granted, acked=client.acked), f"seed {seed}"
    await until_all_have_a_server(clients)
    for client in clients:
        await client.finish()
        for server in fleet.servers:
            case = await case_at(alone(where, server.address), client.plan.run)
            assert (case.state, case.frontiers, case.tainted) == ("stopped", (client.acked,), ""), (
                f"seed {seed}"
            )


async def test_a_server_that_stands_still_is_left(fleet: Fleet) -> None:
    """Clients notice a stopped server although their connections stay open. They resume at another server at
    most 5 s after they have given it up."""
    where = await fleet.start()
    first = fleet.servers[0]
    await heard_of(first, {server.address for server in fleet.servers[1:]})
    client = AckingClient(1, pace_s=0.01)
    await client.begin(alone(where, first.address))  # the others it knows from the server alone
    first.stop()
    begun_s = asyncio.get_running_loop().time()
    async with standstills() as stood_s, asyncio.timeout(DEADLINE_S):
        while not client.link.outages:  # noqa: ASYNC110 - a link has no event for it
            await asyncio.sleep(0.02)
        await until_all_have_a_server([client])
        assert client.link.outages[0].until_s - begun_s - stood_s() < LEFT_S + RESUMED_S
    first.go_on()
    await client.finish()


async def test_runs_of_a_killed_server_are_spread(fleet: Fleet) -> None:
    """All clients know the servers in the same order, and yet do not all continue at the same one."""
    where = await fleet.start()
    first, *others = (server.address for server in fleet.servers)
    await heard_of(fleet.servers[0], set(others))
    clients = [AckingClient(number, pace_s=0.01) for number in range(1, SPREAD + 1)]
    for client in clients:
        await client.begin(alone(where, first))  # the others it knows from the server alone
    await asyncio.to_thread(fleet.servers[0].end)
    async with asyncio.timeout(DEADLINE_S):
        while {client.link.server for client in clients} != set(others):  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0.02)
    await until_all_have_a_server(clients)
    for client in clients:
        await client.finish()


async def test_a_run_without_addresses_survives_its_server(fleet: Fleet) -> None:
    """A run over the socket of the server's own machine has no other server to try. It waits for this one."""
    await fleet.start()
    (server, *_) = fleet.servers
    client = AckingClient(1, pace_s=0.01)
    await client.begin(server.local)
    await asyncio.to_thread(server.end)
    async with asyncio.timeout(DEADLINE_S):
        while not client.link.trouble:  # noqa: ASYNC110 - a link has no event for it
            await asyncio.sleep(0.02)
    await asyncio.to_thread(server.start)
    await until_all_have_a_server([client])
    await client.finish()


async def test_commands_remember_the_servers(fleet: Fleet, tmp_path: Path) -> None:
    """`join` leaves the addresses of all servers that live; a later command adds those that are new, and goes
    on working when the joined one is gone."""
    first, second, third = fleet.servers
    await asyncio.to_thread(first.start)
    await asyncio.to_thread(second.start)
    await heard_of(first, {second.address})
    path = tmp_path / "credential.json"
    with closing(await connect(first.local, "operate")) as operator:
        invited = await operator.request(Invite(role="client", name=""), Invited)
    await join_server(invited, first.address, path)
    assert remembered(path) == {first.address, second.address}
    await asyncio.to_thread(third.start)
    await heard_of(first, {second.address, third.address})
    await runs(endpoint(None, path), ChosenRuns(limit=1), each=True, json=False, out=io.StringIO())
    assert remembered(path) == {server.address for server in fleet.servers}
    first.end()
    second.end()
    await runs(endpoint(None, path), ChosenRuns(limit=1), each=True, json=False, out=io.StringIO())
    assert remembered(path) == {server.address for server in fleet.servers}


async def heard_of(server: FleetServer, others: set[str]) -> None:
    """The server knows these others."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with closing(await connect(server.local, "query")) as connection:
                if set(connection.session.welcome.servers) == others:
                    return


def remembered(path: Path) -> set[str]:
    """The servers of a credential."""
    credential = load_credential(path)
    assert credential is not None
    return set(credential.servers)


async def ended_case(where: Endpoint, client: AckingClient) -> Any:
    """The run as verify gets it, from one server, once its holder does not keep it."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await case_at(where, client.plan.run, end=True)
            except RefusedError as error:
                assert error.code in ("run-live", "moved"), error
            except PeerError:
                pass  # a server that was just started, or stands still


async def until_acknowledged_anew(where: Endpoint, run_id: int) -> None:
    """Each writer of the run has acknowledged more than it has now."""
    async with asyncio.timeout(DEADLINE_S):
        before = (await case_at(where, run_id)).frontiers
        while not all(map(lt, before, (await case_at(where, run_id)).frontiers)):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)


async def test_servers_that_are_killed_cost_no_verdict(fleet: Fleet) -> None:
    """Servers are killed or stopped in turn under two runs. After a cut the honest drive gets durable and the
    liar gets loss, whichever server verifies them."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    drives = [
        SimulatedStorage(model, seed=seed, size_bytes=SIZE_BYTES, sync_s=0.001)
        for model in (FlushIgnored(), Honest())
    ]
    where = await fleet.start()
    options = RunOptions(endpoint=where, size_bytes=SIZE_BYTES, writers=2, destroy_data=True)
    out = [io.StringIO() for _ in drives]
    clients = [
        asyncio.create_task(run(options, drive, told)) for drive, told in zip(drives, out, strict=True)
    ]
    armed = await armed_runs(where, clients)
    for _ in range(KILLS):
        await asyncio.sleep(chance.random())
        for client in clients:
            assert not client.done(), client.result()
        server = chance.choice(fleet.servers)
        if chance.random() < 0.5:
            await asyncio.to_thread(server.end)
            await asyncio.to_thread(server.start)
        else:
            server.stop()
            await asyncio.sleep(chance.random() * 4)
            server.go_on()
    for run_id in armed:  # so that records at risk were acknowledged to a server
        await until_acknowledged_anew(where, run_id)
    for drive, client in zip(drives, clients, strict=True):
        drive.cut()
        with pytest.raises(TargetError):
            await client
    for drive, expected in zip(drives, ("loss", "durable"), strict=True):
        drive.power_on()
        server = chance.choice(fleet.servers)
        answer = io.StringIO()
        asked = VerifyOptions(
            target=None,
            endpoint=alone(where, server.address),
            attest_cut="the drive was cut",
            json=True,
        )
        await verify(asked, storage=drive, out=answer)
        document = json.loads(answer.getvalue())
        assert document["verdict"] == expected, document
        assert document["at_risk"]["ms1000"] > 0, document
