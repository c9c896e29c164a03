"""Several servers on one store for tests and benchmarks, and clients that acknowledge without a drive.

The servers are `durability serve` processes, which can be killed and stopped. A client is the product's own
link to a server, with a counter in place of a writer, which stays within its credit. The client knows its
acknowledgements and its grants, so both can be compared with the store. No command of the lab uses this
module.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from durability.errors import SetupError
from durability.formats.case import Case, case_from_value
from durability.formats.documents import to_value
from durability.formats.facts import Facts, Host
from durability.formats.packing import Value
from durability.formats.plan import Plan
from durability.protocol.auth import APPLICATION
from durability.protocol.local_address import socket_name
from durability.protocol.messages import CaseFile, Export, Fetch, Invite, Invited, Stop
from durability.units import parse_address
from durability_client.link.endpoint import Endpoint, endpoint
from durability_client.link.run_link import RunLink
from durability_client.link.server_connection import connect
from durability_client.system.processes import own_command
from durability_lab.support.local_server import join_server

_DEADLINE_S = 60.0
_CREDIT = 1000


class FleetServer:
    """One server on the store `store_url`, always on the same port. Its local socket is in `directory`."""

    def __init__(self, store_url: str, directory: Path) -> None:
        self._store_url = store_url
        self._directory = directory
        self.address = "127.0.0.1:0"
        self.process: subprocess.Popen[str] | None = None
        self.is_stopped = False

    @property
    def answers(self) -> bool:
        """Whether the server runs and is not stopped."""
        return self.process is not None and not self.is_stopped

    @property
    def local(self) -> Endpoint:
        """The server's local endpoint, for its operator."""
        _, port = parse_address(self.address)
        return Endpoint(local=self._directory / APPLICATION / socket_name(port))

    def start(self) -> None:
        """Start the server; returns when it listens. Raises SetupError if it ends before."""
        command = own_command("serve", "--listen", self.address, "--store", self._store_url)
        environment = {**os.environ, "XDG_STATE_HOME": str(self._directory)}
        log_file = self._directory / "server.log"
        with log_file.open("a") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        found = re.fullmatch(r"Listening on (\S+)\.\n", self.process.stdout.readline())
        if not found:
            raise SetupError(f"`durability serve` ended before it listened: {log_file.read_text()}")
        self.address = found[1]

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the server with a signal, and wait until it is gone."""
        if self.process is not None:
            self.go_on()
            with self.process as process:
                process.send_signal(number)
            self.process = None

    def stop(self) -> None:
        """Send SIGSTOP: the server keeps its connections and does nothing."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)
            self.is_stopped = True

    def go_on(self) -> None:
        """Let a stopped server go on."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
        self.is_stopped = False


class Fleet:
    """`count` servers on one store. Their files lie in `directory`, whose path must be short."""

    def __init__(self, store_url: str, directory: Path, *, count: int) -> None:
        self._directory = directory
        self.servers = [FleetServer(store_url, directory / str(number)) for number in range(count)]
        for number in range(count):
            (directory / str(number)).mkdir()

    async def start(self) -> Endpoint:
        """Start all servers in parallel, and join one of them. The endpoint has the addresses of all."""
        await asyncio.gather(*(asyncio.to_thread(server.start) for server in self.servers))
        return await self.join("lab")

    async def join(self, name: str) -> Endpoint:
        """Add a client, which joins one server. Its endpoint has the addresses of all."""
        first, credential = self.servers[0], self._directory / f"{name}.json"
        with closing(await connect(first.local, "operate")) as operator:
            invited = await operator.request(Invite(role="operator", name=""), Invited)
        await join_server(invited, first.address, credential, name=name)
        addresses = tuple(parse_address(server.address) for server in self.servers)
        return replace(endpoint(None, credential), addresses=addresses)

    def end(self) -> None:
        """Kill all running servers."""
        for server in self.servers:
            server.end()


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which a client had no server, in seconds of the event loop's clock."""

    since_s: float
    until_s: float


class _WatchedLink(RunLink):
    """A link that records the times in which it had no server."""

    _trouble = ""
    _since_s = 0.0

    def __init__(self, **given: Any) -> None:
        self.outages: list[Outage] = []
        super().__init__(**given)

    @property
    def trouble(self) -> str:
        return self._trouble

    @trouble.setter
    def trouble(self, text: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if text and not self._trouble:
            self._since_s = now_s
        elif self._trouble and not text:
            self.outages.append(Outage(self._since_s, now_s))
        self._trouble = text

    @property
    def server(self) -> str:
        """Address of the server to which the link is connected; "" if there is none."""
        return self._connection.live[0] if self._connection is not None else ""

    def drop(self) -> None:
        """Close the connection, as if a router had lost its table."""
        if self._connection is not None:
            self._connection.close()


class AckingClient:
    """The client of one run. `acked`: number of operations that its writer has completed. `granted`: the
    highest frontier that a server has granted, which is durable in the store."""

    def __init__(self, run: int, *, pace_s: float, step: int = 1) -> None:
        self.plan = Plan(
            run=run,
            seed=run,
            target=run,
            target_kind="file",
            workload="overwrite",
            pattern="random",
            record_bytes=4096,
            writers=1,
            slots=4 * _CREDIT,
            group=1,
            credit=_CREDIT,
            sync="fdatasync",
            direct=False,
            block_bytes=4096,
            control_slots=0,
            control_interval_us=0,
        )
        self._pace_s = pace_s
        self._step = step
        self.acked = 0
        self.granted = 0
        self.link = _WatchedLink(on_grants=self._granted, on_notice=lambda _: None)
        self._writing: asyncio.Task[None] | None = None

    def _granted(self, grants: tuple[int, ...]) -> None:
        self.granted = max(self.granted, grants[0])

    async def begin(self, where: Endpoint) -> None:
        """Register and arm the run, then write. Raises PeerError."""
        facts = facts_of(self.plan)
        await self.link.connect(where)
        await self.link.register(
            run=self.plan.run, plan=self.plan.encode(), facts=facts, label="fleet", force=False
        )
        await self.link.arm(facts)
        self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while True:
            self.acked = min(self.acked + self._step, self.granted + self.plan.credit)
            self.link.acknowledge((self.acked,), 0)
            await asyncio.sleep(self._pace_s)

    async def finish(self) -> None:
        """End the run cleanly. Raises PeerError."""
        await self._stop_writing()
        await self.link.finish(Stop(frontiers=(self.acked,), control=0, statistics={}))
        await self.link.close()

    async def vanish(self) -> None:
        """Stop writing, and close the connection without ending the run."""
        await self._stop_writing()
        await self.link.close()

    async def _stop_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            with suppress(asyncio.CancelledError):
                await self._writing


def facts_of(plan: Plan) -> Mapping[str, Value]:
    """Facts of a target that differ from those of every other run."""
    host = Host(
        machine_id=f"machine {plan.run}",
        boot_id="boot",
        uptime_ns=1,
        kernel="",
        virtualisation="none",
        hostname="fleet",
    )
    facts = Facts(
        host=host,
        path="/target",
        path_in_file_system="",
        kind="file",
        size_bytes=plan.main_bytes,
        offset_bytes=None,
        file_system=None,
        layers=(),
        drives=(),
        warnings=(),
    )
    return to_value(facts)


async def case_at(where: Endpoint, run: int, *, end: bool = False) -> Case:
    """The case of a run as a server has it. `end`: ask as `verify` does, which ends the run. Raises
    PeerError."""
    async with asyncio.timeout(_DEADLINE_S):
        with closing(await connect(where, "verify" if end else "query")) as connection:
            question = Fetch(run=run, facts={}, end=True) if end else Export(run=run)
            return case_from_value((await connection.request(question, CaseFile)).case)


def contradiction(case: Case, *, granted: int, acked: int) -> str:
    """A sentence if the case of a run contradicts its client; otherwise "".

    `granted`: the client's grant before the case was requested. `acked`: its acknowledgements after that.
    """
    (frontier,) = case.frontiers
    if case.tainted:
        return f"run {case.run} is tainted: {case.tainted}"
    if frontier > acked:
        return f"run {case.run}: frontier {frontier} above what was acknowledged, {acked}"
    if frontier < granted:
        return f"run {case.run}: frontier {frontier} below what was granted, {granted}"
    return ""
