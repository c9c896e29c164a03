"""`durability agent live`: the program that the live image runs from its start to the power cut.

It gets settings from a console, the kernel's command line, or sticks. Then it joins the server, makes systemd
start the agent, and shows the state on the consoles. It writes only to memory.

It refuses to run on any other system, because it changes the machine id. It does not join if nothing
identifies the machine. A stick cannot make it join another server than the kernel's command line names, or
may name if that has a mistake.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import socket
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from durability.campaign.definition.settings import DRIVES_MAX
from durability.errors import DurabilityError, RefusedError, SetupError, TargetError
from durability.protocol.join_code import parse_join_code
from durability.protocol.messages import List, Listing
from durability_client.join_command import join
from durability_client.link.credential import Credential, credential_path, load_credential
from durability_client.link.endpoint import endpoint
from durability_client.link.server_connection import connect
from durability_client.live import stick, this_machine
from durability_client.live.consoles import Console, names, open_console
from durability_client.live.join_request import JoinRequest, from_console, from_kernel, without_codes
from durability_client.live.screen import VERDICT_COLUMNS, View
from durability_client.live.this_machine import ThisMachine
from durability_client.system.block_devices import SYS
from durability_client.system.programs import find_tool, output_of, run_tool

AGENT = "durability-agent.service"
_MARK = Path("/etc/durability-live")  # only the live image has it
_MACHINE_ID = Path("/etc/machine-id")
_COMMAND_LINE = Path("/proc/cmdline")
NETWORK = Path("/run/systemd/network/10-durability-join.network")
_LOOK_S = 1.0
_JOIN_S = 5.0  # interval between attempts to join
_JOIN_MAX_S = 60.0  # longest attempt
_CARDS_S = 60.0  # longest wait for the network cards
_SETTLED_S = 5.0  # the cards are complete if no new one appears for this time
_SAID_MAX = 200
_HOST_NAME_MAX = 63
_VERDICTS = 5
_ROWS = DRIVES_MAX + _VERDICTS  # during a cycle, the newest run of each drive has no verdict yet
_ASK_S = 10.0
# Refusals after which another code may succeed. "bad-request": the code is one for a client that joins once.
_OVER = frozenset({"code-expired", "code-used", "code-unknown", "machine-revoked", "bad-request"})
_NO_KEY = (
    "nothing tells this machine from others: set `machine = TEXT` on a stick, or `durability.machine=TEXT` on"
    " the kernel's command line"
)


class Live:
    """The state of one boot. `machine` has no key until the key is known from `sys`."""

    def __init__(self, machine: ThisMachine, kernel: JoinRequest, *, sys: Path = SYS) -> None:
        self._machine = machine
        self._kernel = kernel
        self._sys = sys
        self._has_waited = False  # whether the wait for network cards is over
        self._typed: asyncio.Queue[str] = asyncio.Queue()
        self._request: JoinRequest | None = None  # last typed request, unless its code was refused
        self._consoles: dict[str, Console] = {}
        self._said: deque[str] = deque(maxlen=_SAID_MAX)
        self._said_count = 0
        self._joined = ""
        self._trouble = ""
        self._unread: list[str] = []  # errors of files on sticks
        self._over: set[str] = set()  # codes that the server refused
        self._network = ""  # last configuration for systemd-networkd
        self._verdicts: list[dict[str, str]] = []

    async def run(self) -> None:
        """Run until the power is cut."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._show())
            group.create_task(self._join())
            group.create_task(self._listen())
            group.create_task(self._ask())

    # Joining.

    async def _join(self) -> None:
        while (credential := await self._attempt()) is None:
            pass
        self._trouble = ""
        self._unread = []
        for console in self._consoles.values():
            console.asks = False
        self._joined = f"{', '.join(credential.servers)}, as {credential.name}"
        with suppress(OSError):
            socket.sethostname(re.sub(r"[^A-Za-z0-9-]+", "-", credential.name)[:_HOST_NAME_MAX])
        while why := await asyncio.to_thread(_start_agent):
            self._trouble = why
            await asyncio.sleep(_LOOK_S)
        self._trouble = ""

    async def _attempt(self) -> Credential | None:
        """Join, if there are settings for it. Returns the credential once it exists. Records why it does not
        exist yet."""
        try:
            if (credential := load_credential(credential_path())) is not None:
                return credential
            if (request := await self._join_request()) is not None:
                self._trouble = f"joining {request.server} ..."
                async with asyncio.timeout(_JOIN_MAX_S):
                    await self._try(request)
        except TimeoutError:
            self._trouble = f"the server has not answered for {_JOIN_MAX_S:.0f} s"
        except (DurabilityError, OSError, ValueError) as error:
            self._trouble = str(error)
            await asyncio.sleep(_LOOK_S)
        return None

    async def _join_request(self) -> JoinRequest | None:
        """The settings to join: those typed last at a console, else those of the kernel's line or a stick;
        None if there are none yet. A missing name or machine is taken from the kernel's line, or else from a
        stick."""
        await self._identify()
        pause_s = _JOIN_S if self._trouble or self._unread else _LOOK_S
        said = [self._kernel, *await self._sticks()]
        if machine := next((one.machine for one in said if one.machine), ""):
            self._machine = this_machine.this_machine(given_key=machine, sys=self._sys)
        untried = self._untried(said)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                line = await self._typed.get()
                self._request = None
                self._request = from_console(line)
        request = self._request or untried
        if request is None or request.name:
            return request
        return replace(request, name=next((one.name for one in said if one.name), ""))

    async def _identify(self) -> None:
        """Find the key of this machine, if it is unknown. A card may appear even after the wait."""
        if self._machine.key or (self._has_waited and not this_machine.cards(sys=self._sys)):
            return
        self._trouble = "waiting for network cards"
        self._machine = await identified(self._kernel.machine, sys=self._sys)
        self._has_waited = True
        self._trouble = ""
        _write_id(self._machine)

    def _untried(self, said: Sequence[JoinRequest]) -> JoinRequest | None:
        """The first settings with a server whose code was not refused. After the last, starts again with the
        first. If the kernel's line names a server, only codes of that server count. If the line has a
        mistake, none count."""
        if self._kernel.mistake:
            return None
        naming = [one for one in said if one.server]
        if self._kernel.server:
            own = parse_join_code(self._kernel.code).fingerprint
            naming = [one for one in naming if parse_join_code(one.code).fingerprint == own]
        untried = [one for one in naming if one.code not in self._over]
        if not untried:
            self._over.clear()
        return next(iter(untried or naming), None)

    async def _sticks(self) -> list[JoinRequest]:
        """The settings of all sticks. An unreadable file does not hide the others. The first address in a
        file becomes this machine's address."""
        unread: list[str] = []
        found: list[JoinRequest] = []
        for device in await asyncio.to_thread(stick.find):
            try:
                request = await asyncio.to_thread(stick.read, device)
                found.append(request)
                if request.address and not any(one.address for one in found[:-1]):
                    await asyncio.to_thread(self._set_network, request)
            except (DurabilityError, OSError, ValueError) as error:
                unread.append(str(error))
        self._unread = unread
        return found

    async def _try(self, request: JoinRequest) -> None:
        """Join. Raises the errors of `join`, and SetupError."""
        if not self._machine.key:
            raise SetupError(_NO_KEY)
        _write_id(self._machine)
        try:
            await join(
                request.server,
                request.code,
                name=request.name or self._machine.name,
                credential=None,
                force=False,
                out=io.StringIO(),
                machine=self._machine.key,
            )
        except RefusedError as error:
            if error.code in _OVER:
                self._over.add(request.code)
                if self._request is not None and self._request.code == request.code:
                    self._request = None
            raise

    def _set_network(self, request: JoinRequest) -> None:
        """Configure the address in systemd-networkd, unless that was done already. Raises TargetError and
        OSError."""
        text = network_file(request)
        if text == self._network:
            return
        NETWORK.parent.mkdir(parents=True, exist_ok=True)
        NETWORK.write_text(text, "utf-8")
        NETWORK.chmod(0o644)
        done = run_tool("networkctl", "reload")
        if done.returncode:
            raise TargetError(f"networkctl reload: {done.stderr.strip() or done.returncode}")
        self._network = text

    # State for the consoles.

    async def _listen(self) -> None:
        """Collect the agent's messages."""
        # The agent's own messages, not systemd's about it, under all machine ids of this boot.
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
        """Collect the output of a program until it ends. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # the line is too long; its beginning is dropped
                continue
            if not line:
                break
            self._said.append(line.decode("utf-8", "replace").strip())
            self._said_count += 1
        await process.wait()

    async def _ask(self) -> None:
        """Fetch the verdicts on this machine's runs after each new message of the agent."""
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
            _require_descriptors()
            with suppress(DurabilityError, OSError, ValueError):  # for example, a drive just went away
                view = await asyncio.to_thread(self._view)
                for console in self._open():
                    console.show(view, self._said_count)
            await asyncio.sleep(_LOOK_S)

    def _open(self) -> Sequence[Console]:
        """The consoles. Tries to open those that did not exist before or have hung up."""
        for name in names():
            if name in self._consoles and self._consoles[name].is_open:
                continue
            if (console := open_console(name, self._typed.put_nowait)) is not None:
                console.asks = not self._joined
                self._consoles[name] = console
        return tuple(self._consoles.values())

    def _view(self) -> View:
        mistake = "" if self._joined else self._kernel.mistake
        if mistake:
            mistake = f"the kernel's command line has a mistake, so only a line typed here joins: {mistake}"
        # No codes on consoles: screens may be photographed, and console servers store a serial line's output.
        troubles = map(without_codes, (*filter(None, (self._trouble, mistake)), *self._unread))
        return View(
            machine=self._machine,
            drives=this_machine.drives(),
            network=", ".join(addresses(output_of("ip", "-brief", "address"))),
            joined=self._joined,
            troubles=[*troubles],
            said=tuple(self._said),
            verdicts=tuple(self._verdicts),
        )


async def live() -> None:
    """Run the live image's program. Raises SetupError."""
    if not _MARK.exists() or os.geteuid() != 0:  # noqa: ASYNC240 - in memory
        raise SetupError(
            "`durability agent live` is the live image's own program; here type `durability agent`"
        )
    kernel = from_kernel(_COMMAND_LINE.read_text(errors="replace"))  # noqa: ASYNC240 - in memory
    machine = replace(this_machine.this_machine(), key="", id="")  # show the consoles before the key is known
    try:
        await Live(machine, kernel).run()
    except ExceptionGroup as failed:
        if (found := failed.subgroup(OSError)) is None:
            raise
        raise SetupError(f"`durability agent live` must be started again: {found.exceptions[0]}") from failed


def _require_descriptors() -> None:
    """Raises OSError if this process has no free descriptor. Code that needs one may hide that error and
    retry in vain for ever. After this error, systemd starts this program again."""
    os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def _start_agent() -> str:
    """Make systemd start the agent. Returns the reason if that failed, else ""."""
    try:
        done = run_tool("systemctl", "start", "--no-block", AGENT)
    except TargetError as error:
        return str(error)
    why = done.stderr.strip() or done.returncode
    return f"systemctl start {AGENT}: {why}" if done.returncode else ""


async def identified(given_key: str, *, sys: Path = SYS) -> ThisMachine:
    """Identify this machine. If only its network cards identify it, wait for all of them, at most a minute.

    The lowest address must not depend on which driver is first, and there is no event for the last card.
    """
    end_s = time.monotonic() + _CARDS_S
    if not given_key and this_machine.is_known_by_cards(sys=sys):
        await asyncio.to_thread(output_of, "udevadm", "settle")  # has the deadline of all programs
        seen, since_s = this_machine.cards(sys=sys), time.monotonic()
        while (now_s := time.monotonic()) < end_s:
            if (found := this_machine.cards(sys=sys)) != seen:
                seen, since_s = found, now_s
            if now_s - since_s >= _SETTLED_S and any(not card.on_usb for card in seen):
                break
            await asyncio.sleep(_LOOK_S)
    return this_machine.this_machine(given_key=given_key, sys=sys)


def _write_id(machine: ThisMachine) -> None:
    if machine.id:  # otherwise the id of this boot stays
        _MACHINE_ID.write_text(f"{machine.id}\n", "ascii")


def network_file(request: JoinRequest) -> str:
    """The configuration file for systemd-networkd."""
    lines = ["[Match]", "Type=ether", "Kind=!*"]
    lines += [f"MACAddress={request.card}"] if request.card else []
    lines += ["", "[Network]", f"Address={request.address}"]
    lines += [f"Gateway={request.gateway}"] if request.gateway else []
    lines += [f"DNS={request.dns}"] if request.dns else []
    return "\n".join(lines) + "\n"


def addresses(text: str) -> list[str]:
    """Network cards with addresses, from the output of `ip -brief address`."""
    found = []
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        words = [word for word in rest.split()[1:] if "/" in word and not word.startswith("fe80:")]
        if name != "lo" and words:
            found.append(f"{name} {' '.join(words)}")
    return found


def _row(row: Any) -> dict[str, str]:
    return {name: str(row.get(name, "")) for name in VERDICT_COLUMNS}
