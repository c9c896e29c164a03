"""The server of a campaign and its operator's commands, each a process: the shared part of rigs B and C.

The machine, the drives and the agent are in each rig's own module. All files lie in one directory, which is
removed with the rig, or with this process. This module reads the campaign's log, as operators do, and does
not judge.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from durability.campaign.campaign_state import CampaignState
from durability.campaign.log_entries import Entry, entry_from_value
from durability.errors import PeerError, SetupError
from durability.protocol.local_address import socket_name
from durability.protocol.messages import (
    Campaign,
    Clients,
    Invite,
    Invited,
    InviteMachines,
    ListClients,
    ShowCampaign,
)
from durability.units import parse_address
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import connect
from durability_client.system.processes import own_command
from durability_lab.support.cleanup import PID_SUFFIX, watched
from durability_lab.support.loads import FileSystemName

_LISTENS = "Listening on "
_SHOWS = "Live page: "
_STOP_S = 120.0  # an agent ends its runs first
_LOOK_S = 0.1
_CODE_S = 86_400 * 7  # longer than any campaign of the lab


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a command: exit code, stdout and stderr."""

    exit_code: int
    out: str
    err: str


class CampaignProcess:
    """A process of the campaign, which can be killed and started again. It ends with the directory.
    `namespace`: the network namespace of the process, "" for that of this process."""

    def __init__(
        self, directory: Path, name: str, environment: dict[str, str], *, namespace: str = ""
    ) -> None:
        self.name = name
        self._within = ("nsenter", f"--net=/run/netns/{namespace}") if namespace else ()
        self.log = directory / f"{name}.log"
        self._directory = directory
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The process id. Raises SetupError before the first start."""
        if self._process is None:
            raise SetupError(f"{self.name} has not been started")
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self, *words: str) -> None:
        """Start `durability WORDS`."""
        command = watched(self._directory, self.name, (*self._within, *own_command(*words)))
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                text=True,
            )

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process is gone."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal, and wait until the process is gone; after 120 s, kill it."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self.wait()

    def wait(self) -> int:
        """Wait for the end of the process; returns its exit code. Raises SetupError if it never started."""
        if self._process is None:
            raise SetupError(f"{self.name} has not been started")
        code = self._process.wait()
        (self._directory / f"{self.name}{PID_SUFFIX}").unlink(missing_ok=True)
        return code


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDrive:
    """A drive of a campaign."""

    name: str  # in the campaign
    model: str
    machine: str  # the machine under test that has the drive
    device: Path  # on that machine


def _here(act: Callable[[], None]) -> None:
    act()


class OperatedCampaign(ABC):
    """A server, and the campaign `name` of the machines with these drives.

    `size`: size of the target on each drive. `store`: URL of the server's store, "" for a file in the
    directory. `listen`: the server's first address. `web`: whether the server has a live page. `within`: runs
    an action in the server's network.
    """

    def __init__(
        self,
        directory: Path,
        *,
        name: str,
        drives: Sequence[ModelDrive],
        size: str,
        store: str = "",
        listen: str = "127.0.0.1:0",
        web: bool = False,
        within: Callable[[Callable[[], None]], None] = _here,
    ) -> None:
        self.directory = directory
        self.name = name
        self.tested = tuple(drives)
        self.machines = tuple(dict.fromkeys(drive.machine for drive in self.tested))
        self.file = directory / f"{name}.toml"
        self.address = listen
        self.page = ""  # the address of the live page
        self.environment = {**os.environ, "XDG_STATE_HOME": str(directory / "state")}
        self.server = CampaignProcess(directory, "server", self.environment)
        self._size = size
        self._store = store
        self._web = web
        self._within = within

    @abstractmethod
    def power(self) -> str:
        """The lines of the campaign file's table [power]."""

    # The processes.

    async def start_server(self) -> None:
        """Start the server, at its earlier address if it had one, and wait until it listens."""
        before = self._where()
        store = ("--store", self._store) if self._store else ()
        web = ("--web", "127.0.0.1:0") if self._web else ()
        words = ("serve", "--listen", self.address, *web, *store)
        await asyncio.to_thread(self._within, lambda: self.server.start(*words))
        while len(where := self._where()) == len(before):
            if not self.server.runs:
                raise SetupError(f"the server ended: {self.server.log.read_text()}")
            await asyncio.sleep(_LOOK_S / 10)
        self.address, self.page = where[-1]

    def credential(self, machine: str) -> Path:
        """The credential of a machine under test, once it has joined."""
        return self.directory / f"credential-{machine}.json"

    async def join(self) -> None:
        """Join the machines under test, once."""
        for machine in self.machines:
            with closing(await connect(self._local, "operate")) as connection:
                invited = await connection.request(Invite(role="client", name=machine), Invited)
            words = (self.address, invited.line.split()[-1], "--credential", str(self.credential(machine)))
            joining = CampaignProcess(self.directory, f"join-{machine}", self.environment)
            await asyncio.to_thread(self._within, partial(joining.start, "join", *words))
            if await asyncio.to_thread(joining.wait):
                raise SetupError(f"join failed: {joining.log.read_text()}")

    async def join_by_stick(self, make: Callable[[str, str], None]) -> None:
        """Call `make` with the server's address and a join code, to write them to the machine's stick."""
        with closing(await connect(self._local, "operate")) as connection:
            (machine,) = self.machines
            asked = InviteMachines(name=machine, machines=1, valid_s=_CODE_S)
            invited = await connection.request(asked, Invited)
        await asyncio.to_thread(make, self.address, invited.line.split()[-1])

    async def until_joined(self) -> None:
        """Wait until the machines have joined."""
        while True:
            with closing(await connect(self._local, "operate")) as connection:
                rows = (await connection.request(ListClients(), Clients)).rows
            if {row["name"] for row in rows if row["state"] == "joined"} >= set(self.machines):
                return
            await asyncio.sleep(_LOOK_S)

    async def durability(self, *words: str) -> Answer:
        """The answer of `durability WORDS` on the server's machine."""
        process = await asyncio.create_subprocess_exec(
            *own_command(*words),
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return Answer(exit_code=process.returncode, out=out.decode(), err=err.decode())

    async def campaign(self, *words: str) -> Answer:
        """The answer of `durability campaign WORDS`."""
        return await self.durability("campaign", *words)

    async def do(self, *words: str) -> Answer:
        """The answer of `durability campaign WORDS`. Raises SetupError if the command fails."""
        answer = await self.campaign(*words)
        if answer.exit_code:
            raise SetupError(f"durability campaign {' '.join(words)}: {answer.err.strip()}")
        return answer

    # The campaign.

    def write_file(
        self,
        *,
        campaign: str,
        file_system: FileSystemName | None = None,
        power: str = "",
        arms: str = "",
    ) -> None:
        """Write the campaign's file.

        `campaign`: lines of the table [campaign]. `file_system`: file system of each drive, None for the raw
        device. `power`: more lines of the table [power]. `arms`: tables as text, "" for the default set.
        """
        machines = ", ".join(f'"{machine}"' for machine in self.machines)
        head = f'[campaign]\nname = "{self.name}"\nmachines = [{machines}]\n{campaign}\n'
        made = f'file_system = "{file_system}"\n' if file_system else ""
        drives = [
            f'[[drive]]\nname = "{drive.name}"\nmachine = "{drive.machine}"\ndevice = "{drive.device}"\n'
            f'{made}size = "{self._size}"\n'
            for drive in self.tested
        ]
        self.file.write_text("\n".join([head, f"[power]\n{self.power()}\n{power}", *drives, arms]))

    async def entries(self, after: int = 0) -> list[Entry]:
        """The entries of the campaign's log after number `after`. Raises PeerError."""
        entries: list[Entry] = []
        with closing(await connect(self._local, "query")) as connection:
            while True:
                ask = ShowCampaign(name=self.name, after=after + len(entries))
                values = (await connection.request(ask, Campaign)).entries
                entries += map(entry_from_value, values)
                if not values:
                    return entries

    async def follow(self) -> AsyncIterator[tuple[list[Entry], CampaignState]]:
        """Yield the new entries and the state whenever the log has grown; wait for a server that is down."""
        state = CampaignState()
        while True:
            entries: list[Entry] = []
            with suppress(PeerError, OSError, SetupError):
                entries = await self.entries(state.number)
            for entry in entries:
                state.apply(entry)
            if entries:
                yield entries, state
            else:
                await asyncio.sleep(_LOOK_S)

    async def until(self, holds: Callable[[CampaignState], bool]) -> CampaignState:
        """Wait until `holds` is true for the state; returns the state."""
        async for _, state in self.follow():
            if holds(state):
                return state
        raise AssertionError("a log is followed for ever")

    @property
    def _local(self) -> Endpoint:
        port = parse_address(self.address)[1]
        return Endpoint(local=self.directory / "state" / "durability" / socket_name(port))

    def _where(self) -> list[tuple[str, str]]:
        """The address and live page ("" without one) that each server so far has printed."""
        lines = self.server.log.read_text().splitlines() if self.server.log.exists() else []
        addresses, pages = (
            [line.removeprefix(said) for line in lines if line.startswith(said)]
            for said in (_LISTENS, _SHOWS)
        )
        return [
            (address.rstrip("."), page)
            for address, page in zip(addresses, pages if self._web else [""] * len(addresses), strict=False)
        ]
