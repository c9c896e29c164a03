"""`durability agent live`: what the live image runs from its start to the power cut.

It learns how to join (kernel's command line, a stick, a console), joins, has systemd start the agent, and
shows on the consoles what happens. All that it writes lies in memory. Refuses to work on any other system,
because it gives the machine a number of its own.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import socket
from collections import deque
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from durability.campaign.definition.settings import DRIVES_MAX
from durability.errors import DurabilityError, SetupError, UsageError
from durability.protocol.messages import List, Listing
from durability_client.join_command import join
from durability_client.link.credential import credential_path, load_credential
from durability_client.link.endpoint import endpoint
from durability_client.link.server_connection import connect
from durability_client.live import stick, this_machine
from durability_client.live.consoles import Console, names, open_console
from durability_client.live.join_request import JoinRequest, from_console, from_kernel
from durability_client.live.screen import VERDICT_COLUMNS, View
from durability_client.live.this_machine import ThisMachine
from durability_client.system.programs import find_tool, output_of, run_tool

AGENT = "durability-agent.service"
_MARK = Path("/etc/durability-live")  # only the live image has it
_MACHINE_ID = Path("/etc/machine-id")
_COMMAND_LINE = Path("/proc/cmdline")
NETWORK = Path("/run/systemd/network/10-durability-join.network")
_LOOK_S = 1.0
_JOIN_S = 5.0  # between two attempts
_JOIN_MAX_S = 60.0  # of one
_CARDS_S = 60.0  # until a network card is there
_SAID_MAX = 200
_HOST_NAME_MAX = 63
_VERDICTS = 5
_ROWS = DRIVES_MAX + _VERDICTS  # in a cycle each drive's newest run has no verdict yet
_ASK_S = 10.0


class Live:
    """The state of one boot."""

    def __init__(self, machine: ThisMachine, kernel: JoinRequest) -> None:
        self._machine = machine
        self._kernel = kernel
        self._typed: asyncio.Queue[str] = asyncio.Queue()
        self._consoles: list[Console] = []
        self._said: deque[str] = deque(maxlen=_SAID_MAX)
        self._said_count = 0
        self._joined = ""
        self._trouble = ""
        self._unread: list[str] = []  # why the files on sticks say nothing
        self._network: JoinRequest | None = None
        self._verdicts: list[dict[str, str]] = []

    def note(self, trouble: str) -> None:
        """Show this until something else happens."""
        self._trouble = trouble

    async def run(self) -> None:
        """Until the power is cut."""
        for name in names():
            if (console := open_console(name, self._typed.put_nowait)) is not None:
                self._consoles.append(console)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._show())
            group.create_task(self._join())
            group.create_task(self._listen())
            group.create_task(self._ask())

    # Joining.

    async def _join(self) -> None:
        credential = None
        while credential is None:
            try:
                credential = load_credential(credential_path())
                if credential is None and (request := await self._join_request()) is not None:
                    self._trouble = f"joining {request.server} ..."
                    async with asyncio.timeout(_JOIN_MAX_S):
                        await self._try(request)
            except TimeoutError:
                self._trouble = f"the server has not answered for {_JOIN_MAX_S:.0f} s"
            except (DurabilityError, OSError, ValueError) as error:
                self._trouble = str(error)
                await asyncio.sleep(_LOOK_S)
        self._trouble = ""
        self._unread = []
        for console in self._consoles:
            console.asks = False
        self._joined = f"{', '.join(credential.servers)}, as {credential.name}"
        with suppress(OSError):
            socket.sethostname(re.sub(r"[^A-Za-z0-9-]+", "-", credential.name)[:_HOST_NAME_MAX])
        await asyncio.to_thread(run_tool, "systemctl", "start", "--no-block", AGENT)

    async def _join_request(self) -> JoinRequest | None:
        """How to join, by the console's line if somebody types one; None if nobody has said so yet."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_JOIN_S if self._trouble or self._unread else _LOOK_S):
                line = await self._typed.get()
                typed = from_console(line)
                return replace(self._kernel, server=typed.server, code=typed.code)
        if self._kernel.server:
            return self._kernel
        return await self._from_sticks()

    async def _from_sticks(self) -> JoinRequest | None:
        """What the first file says that names a server; one that cannot be read hides no other."""
        unread: list[str] = []
        found = None
        for device in await asyncio.to_thread(stick.find):
            try:
                request = await asyncio.to_thread(stick.read, device)
                await asyncio.to_thread(self._set_network, request)
            except (DurabilityError, OSError, ValueError) as error:
                unread.append(str(error))
                continue
            if request.server:
                found = request
                break
        self._unread = unread
        return found

    async def _try(self, request: JoinRequest) -> None:
        await join(
            request.server,
            request.code,
            name=request.name or self._kernel.name or self._machine.name,
            credential=None,
            force=False,
            out=io.StringIO(),
            machine=self._machine.key,
        )

    def _set_network(self, request: JoinRequest) -> None:
        """The address that the file names, once."""
        if not request.address or request == self._network:
            return
        NETWORK.parent.mkdir(parents=True, exist_ok=True)
        NETWORK.write_text(network_file(request), "utf-8")
        NETWORK.chmod(0o644)
        run_tool("networkctl", "reload")
        self._network = request

    # What happens.

    async def _listen(self) -> None:
        """Keep the agent's words."""
        # Its own words, not those of systemd about it; of all numbers that this machine had in this boot.
        whose = f"_SYSTEMD_UNIT={AGENT}"
        command = ("journalctl", whose, "--merge", "--follow", "--lines=50", "--output=cat", "--quiet")
        program = find_tool(command[0])
        if program is None:
            return
        while True:
            with suppress(OSError):
                await self._follow(program, *command[1:])
            await asyncio.sleep(_LOOK_S)

    async def _follow(self, *command: str) -> None:
        """Keep what a program prints until it ends. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # longer than any that the agent says: its beginning is left out
                continue
            if not line:
                break
            self._said.append(line.decode("utf-8", "replace").strip())
            self._said_count += 1
        await process.wait()

    async def _ask(self) -> None:
        """Keep the verdicts on this machine's runs, asked for whenever the agent has said something."""
        asked = -1
        while True:
            await asyncio.sleep(_ASK_S)
            if self._joined and asked != self._said_count:
                said = self._said_count
                with suppress(DurabilityError, OSError, TimeoutError):
                    async with asyncio.timeout(_JOIN_MAX_S):
                        self._verdicts = await self._newest_verdicts()
                    asked = said

    async def _newest_verdicts(self) -> list[dict[str, str]]:
        with closing(await connect(endpoint(None, None), "query")) as connection:
            newest = List(limit=_ROWS, by="run", drive="", host="")
            listing = await connection.request(newest, Listing)
        return [_row(row) for row in listing.rows if row.get("verdict")][:_VERDICTS]

    async def _show(self) -> None:
        while True:
            with suppress(DurabilityError, OSError, ValueError):  # such as a drive that just went away
                view = await asyncio.to_thread(self._view)
                for console in self._consoles:
                    console.show(view, self._said_count)
            await asyncio.sleep(_LOOK_S)

    def _view(self) -> View:
        return View(
            machine=self._machine,
            drives=this_machine.drives(),
            network=", ".join(addresses(output_of("ip", "-brief", "address"))),
            joined=self._joined,
            troubles=[*filter(None, (self._trouble,)), *self._unread],
            said=tuple(self._said),
            verdicts=tuple(self._verdicts),
        )


async def live() -> None:
    """Serve this boot. Raises SetupError."""
    if not _MARK.exists() or os.geteuid() != 0:  # noqa: ASYNC240 - in memory
        raise SetupError(
            "`durability agent live` is the live image's own program; here type `durability agent`"
        )
    trouble = ""
    try:
        kernel = from_kernel(_COMMAND_LINE.read_text())  # noqa: ASYNC240 - in memory
    except UsageError as error:
        kernel, trouble = JoinRequest(), f"the kernel's command line: {error}"
    waited_s = 0.0
    while not (kernel.machine or this_machine.has_key()) and waited_s < _CARDS_S:
        await asyncio.sleep(_LOOK_S)  # for drivers of cards; there is no event to wait for
        waited_s += _LOOK_S
    machine = this_machine.this_machine(given_key=kernel.machine)
    _MACHINE_ID.write_text(f"{machine.id}\n", "ascii")  # noqa: ASYNC240 - in memory
    one = Live(machine, kernel)
    one.note(trouble)
    await one.run()


def network_file(request: JoinRequest) -> str:
    """What systemd-networkd is told."""
    lines = ["[Match]", "Type=ether", "Kind=!*"]
    lines += [f"MACAddress={request.card}"] if request.card else []
    lines += ["", "[Network]", f"Address={request.address}"]
    lines += [f"Gateway={request.gateway}"] if request.gateway else []
    lines += [f"DNS={request.dns}"] if request.dns else []
    return "\n".join(lines) + "\n"


def addresses(text: str) -> list[str]:
    """Cards that are up, with their addresses, from what `ip -brief address` prints."""
    found = []
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        words = [word for word in rest.split()[1:] if "/" in word and not word.startswith("fe80:")]
        if name != "lo" and words:
            found.append(f"{name} {' '.join(words)}")
    return found


def _row(row: Any) -> dict[str, str]:
    return {name: str(row.get(name, "")) for name in VERDICT_COLUMNS}
