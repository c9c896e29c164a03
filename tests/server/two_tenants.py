"""Two clients of one server, of which one says that its drive is the other's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from durability.bench.kept_result import pack_body, summary_of
from durability.bench.result import Result
from durability.formats.documents import to_value
from durability.formats.facts import Facts
from durability.protocol import messages
from durability.protocol.local_address import socket_name
from durability_client.link.endpoint import Endpoint
from tests.server.conftest import Lab, Member, Running

SERIAL = "S4X-0001"  # of the drive that both say they have


def on(lab: Lab, machine: str, serial: str = SERIAL, **changes: Any) -> Facts:
    """The facts of a target on the drive of this serial, in the machine."""
    known = lab.facts(serial=serial, **changes)
    return replace(known, host=replace(known.host, machine_id=machine, hostname=machine))


def verdict_document(verdict: str) -> dict[str, Any]:
    """What `verify` posts."""
    return {
        "verdict": verdict,
        "cut": {"class": "power", "proof": []},
        "at_risk": {"ms1": 1, "ms10": 2, "ms100": 3, "ms1000": 5},
        "reasons": [],
        "findings": {},
    }


@dataclass
class Tenant:
    """A client that joined as `name`."""

    lab: Lab
    running: Running
    name: str
    member: Member

    async def cut(self, run: int, on: Facts, verdict: str) -> None:
        """A run on the target of these facts, which ends, and on which this client gives a verdict."""
        where = self.running.address
        client = await self.lab.connect(where, member=self.member)
        await client.begin(self.lab.plan(run=run), on, force=True)
        await client.acknowledge(3, 4)
        await client.close()
        judge = await self.lab.connect(where, "verify", member=self.member)
        await judge.fetch(run, on, end=True)
        given = messages.GiveVerdict(run=run, document=verdict_document(verdict))
        await judge.ask(given, messages.Stored)
        await judge.close()

    async def keep(self, result: Result) -> str:
        """Keeps a result of the benchmark; what it is called."""
        owner = await self.lab.connect(self.running.address, "verify", member=self.member)
        kept = messages.KeepResult(summary=to_value(summary_of(result)), body=pack_body(result))
        name = (await owner.ask(kept, messages.ResultKept)).result
        await owner.close()
        return name


async def tenant(lab: Lab, running: Running, name: str) -> Tenant:
    """A client that has just joined."""
    line = (await running.server.invite()).line
    member = await lab.join(running.address, line, name=name)
    return Tenant(lab=lab, running=running, name=name, member=member)


def operator_of(lab: Lab, running: Running) -> Endpoint:
    """The server as its operator has it."""
    return Endpoint(local=lab.directory / socket_name(running.address[1]))


def endpoint_of(owner: Tenant) -> Endpoint:
    """The server as this client has it."""
    return Endpoint(
        addresses=(owner.running.address,),
        fingerprint=owner.member.fingerprint,
        client=owner.member.client,
        secret=owner.member.secret,
    )
