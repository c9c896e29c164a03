"""The processes of a history on a real kernel: commands of the machine under test, and the server.

A "boot" of the machine does not restart this machine. Commands started after it see another boot id and a
later start of the boot clock. Each runs in a mount namespace, which still receives mounts from outside, and
in a time namespace. No process survives the directory of its history, see `cleanup`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from durability.errors import EXIT_INTERNAL, DurabilityError, SetupError
from durability.protocol.auth import APPLICATION
from durability.protocol.local_address import socket_name
from durability.protocol.messages import Invite, Invited
from durability_client.link.credential import load_credential, save_credential
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import connect
from durability_client.system.processes import own_command
from durability_lab.histories.store_copies import put_back
from durability_lab.kernel_rig.block_rig import without_loop_mounts
from durability_lab.support.cleanup import PID_SUFFIX, watched
from durability_lab.support.local_server import join_server

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_BOOTED = (
    *("unshare", "--mount", "--propagation", "slave", "--time", "--boottime"),
    *("{offset_s}", "sh", "-c", f'mount --bind "$0" {_BOOT_ID} && exec "$@"', "{boot_id}"),
)
_UP_FOR_S = 10**6
_DEADLINE_S = 120.0
_ASK_S = 10.0
_POLL_S = 0.01


class DefectError(AssertionError):
    """A command ended with the exit code for defects."""


class _Boots:
    """The boots of one machine. `before`: the words before a command that put it into the newest boot."""

    def __init__(self, directory: Path, name: str, *, seed: int) -> None:
        self.count = 1
        self.before: tuple[str, ...] = ()
        self._directory = directory
        self._name = name
        self._draw = Random(f"{seed} {name}")

    def add(self, *, up_s: int, mounted: Path | None = None) -> None:
        """Add a boot that began `up_s` seconds ago. Of the loop devices' mounts, it keeps only `mounted`."""
        self.count += 1
        boot_id = self._directory / f"{self._name}-{self.count}"
        boot_id.write_text(f"{uuid.UUID(int=self._draw.getrandbits(128), version=4)}\n")
        # Rounded towards a longer uptime.
        offset_s = up_s - int(time.clock_gettime(time.CLOCK_BOOTTIME))
        booted = (word.format(offset_s=offset_s, boot_id=boot_id) for word in _BOOTED)
        self.before = (*booted, *without_loop_mounts(but=mounted))


class KernelMachine:
    """The machine under test."""

    def __init__(self, directory: Path, *, seed: int) -> None:
        self._directory = directory
        self._boots = _Boots(directory, "boot", seed=seed)
        self._begun = 0

    @property
    def boots(self) -> int:
        """Number of boots."""
        return self._boots.count

    @property
    def before(self) -> tuple[str, ...]:
        """The words before a command that put it into the newest boot."""
        return self._boots.before

    def start_anew(self, mounted: Path) -> None:
        """Boot the machine now, with the drive's file system at `mounted`."""
        self._boots.add(up_s=0, mounted=mounted)

    async def begin(self, *words: str) -> BegunCommand:
        """Start a `durability` command on the machine."""
        self._begun += 1
        name = f"command-{self._begun}"
        words = watched(self._directory, name, (*self._boots.before, *own_command(*words)))
        return BegunCommand(
            await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            ),
            self._directory / f"{name}{PID_SUFFIX}",
        )


class BegunCommand:
    """A command that was started; its process id is in `pid_file` until it has ended."""

    def __init__(self, process: asyncio.subprocess.Process, pid_file: Path) -> None:
        self._pid_file = pid_file
        self.ended_ns: int | None = None  # time of its end, of CLOCK_MONOTONIC
        self._process = process
        self._ended = asyncio.create_task(self._end())

    @property
    def alive(self) -> bool:
        """Whether the command has not ended."""
        return self._process.returncode is None

    def signal(self, number: int) -> None:
        """Send the command a signal, if it has not ended."""
        if self.alive:
            self._process.send_signal(number)

    async def end(self, timeout_s: float) -> tuple[int, str, str] | None:
        """Wait for the end of the command: exit code, stdout and stderr; None after `timeout_s`. Raises
        DefectError if the exit code is that of a defect."""
        done, _ = await asyncio.wait((self._ended,), timeout=timeout_s)
        return self._ended.result() if done else None

    async def _end(self) -> tuple[int, str, str]:
        out, err = await self._process.communicate()
        self.ended_ns = time.monotonic_ns()
        self._pid_file.unlink(missing_ok=True)
        code = self._process.returncode
        assert code is not None
        if code == EXIT_INTERNAL:
            raise DefectError(err.decode(errors="replace").strip())
        return code, out.decode(errors="replace"), err.decode(errors="replace").strip()


class ServerProcess:
    """`durability serve` on a store in `directory`; always on the same port of loopback."""

    def __init__(self, directory: Path, *, seed: int) -> None:
        self._boots = _Boots(directory, "server-boot", seed=seed)
        self.port = 0
        self.credential = directory / "credential.json"  # the client's credential, written by `join`
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None

    @property
    def runs(self) -> bool:
        """Whether the server was started and not killed."""
        return self._process is not None

    async def start(self) -> None:
        """Start the server, and wait until it listens. Raises SetupError if it ends before."""
        store = f"sqlite:///{self._directory}/store"
        command = (
            *self._boots.before,
            *own_command("serve", "--listen", f"127.0.0.1:{self.port}", "--store", store),
        )
        process = await asyncio.create_subprocess_exec(
            *watched(self._directory, "server", command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "XDG_STATE_HOME": str(self._directory)},
        )
        self._process = process
        assert process.stdout is not None
        async with asyncio.timeout(_DEADLINE_S):
            line = (await process.stdout.readline()).decode()
        found = re.fullmatch(r"Listening on 127\.0\.0\.1:(\d+)\.\n", line)
        if not found:
            raise SetupError("`durability serve` ended before it listened")
        self.port = int(found[1])

    def machine_changes(self, *, moved: bool) -> None:
        """Note that the server's machine has just restarted, or, with `moved`, that the server will start on
        another machine with a long uptime."""
        self._boots.add(up_s=_UP_FOR_S if moved else 0)

    async def join(self, address: str) -> None:
        """Let the client join the server; its credential names the server's address as `address`."""
        with closing(await connect(self._place, "operate")) as connection:
            invited = await connection.request(Invite(role="client", name=""), Invited)
        await join_server(invited, f"127.0.0.1:{self.port}", self.credential)
        joined = load_credential(self.credential)
        assert joined is not None
        save_credential(replace(joined, servers=(address,)), self.credential)

    @property
    def _place(self) -> Endpoint:
        return Endpoint(local=self._directory / APPLICATION / socket_name(self.port))

    async def kill(self) -> None:
        """Kill the server with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()
            (self._directory / f"server{PID_SUFFIX}").unlink(missing_ok=True)

    def copy(self, to: Path) -> None:
        """Copy the store as it is at one time, like a snapshot of its file system."""
        to.mkdir()
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
        try:
            for file in self._directory.glob("store*"):
                shutil.copy(file, to / file.name)
        finally:
            if self._process is not None:
                self._process.send_signal(signal.SIGCONT)

    def restore(self, copy: Path) -> None:
        """Replace the store with a copy. The server must not run."""
        put_back(copy, self._directory)

    async def ask(self, message: Any, answer: Any) -> Any:
        """Ask the server directly, not through the history's network. Raises DurabilityError, or
        TimeoutError after 10 s."""
        if self._process is None:
            raise DurabilityError("no server")
        async with asyncio.timeout(_ASK_S):
            with closing(await connect(self._place, "query")) as connection:
                return await connection.request(message, answer)


async def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until `condition` holds; False if it does not within `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        await asyncio.sleep(_POLL_S)
    return True
