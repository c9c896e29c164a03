"""A machine under test whose power others switch: QEMU and its drives, started and killed by a program.

    a BMC -> `chassis` (see `host/chassis`) -> nbdkit: its drives, QEMU: the guest -> `durability agent`

All of it lies in one directory: the media, which outlive a cut; the command lines; the console of all boots.
One SIGKILL to the process group of QEMU and nbdkit is the cut. The guest's root is its own memory and this
machine's files, read-only, so it runs from none of its drives; it has joined a server, and starts the agent.

Refuses to switch by itself, but for the hands that plug it in and out.
"""

from __future__ import annotations

import shlex
import subprocess
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from durability.errors import SetupError
from durability_lab.support.cleanup import PID_SUFFIX
from durability_lab.vm_rig import initramfs
from durability_lab.vm_rig.guest_machine import SIZE_BYTES, Image, python_settings
from durability_lab.vm_rig.guest_programs import GuestDrive, drive_command, machine_command
from durability_lab.vm_rig.live_machine import LiveImage, live_command
from durability_lab.vm_rig.network import GUEST

# nothing · the BMC does nothing, and says that it did · it has power and does not start
MachineTrouble: TypeAlias = Literal["", "lies", "dead"]
_Drives: TypeAlias = Sequence[tuple[GuestDrive, Path]]  # each with its socket
_CHASSIS = Path(__file__).with_name("host") / "chassis"
_PROCESS_ID = f"echo $$ >machine{PID_SUFFIX}"
_WAIT = "until [ -e {ready} ]; do kill -0 $! || exit 1; sleep 0.02; done"


class SwitchedMachine:
    """A machine with `drives`, at first without power and without a system. Its files lie in `directory`."""

    def __init__(self, directory: Path, drives: Sequence[GuestDrive]) -> None:
        self.chassis = directory / "chassis"
        self._directory = directory
        self._drives = tuple(drives)
        for number in range(len(self._drives)):
            with self._media(number).open("wb") as file:
                file.truncate(SIZE_BYTES)
        (directory / "dead").write_text(f"{_PROCESS_ID}\nexec sleep infinity\n")
        (directory / "boots").write_text("0\n")
        (directory / "claimed").write_text("power:0\n")
        for empty in ("system", "power", "console", "machine.log"):
            (directory / empty).touch()
        words = shlex.join(("sh", str(_CHASSIS), str(directory)))
        self.chassis.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        self.chassis.chmod(0o755)
        self.trouble("")

    def install(self, image: Image, *, credential: str) -> None:
        """Have it boot `image`, with the credential of a machine that joined, one line."""
        settings = {
            "agent": "yes",
            "credential": credential,
            **python_settings(),
            "guest_address": GUEST,
            "machine_id": uuid.uuid4().hex,
            "drives": str(len(self._drives)),
        }
        (self._directory / "initramfs").write_bytes(image.initramfs + initramfs.settings(settings))
        start = partial(
            machine_command, image.kernel, self._directory / "initramfs", self._directory / "console"
        )
        (self._directory / "machine").write_text(self._starts(start))

    def insert(self, image: LiveImage, *, stick: Path) -> None:
        """Have it boot the live image, with a stick that says how to join."""
        console = self._directory / "console"

        def start(drives: _Drives) -> list[str]:
            return live_command(image, stick=stick, console=console, drives=drives)

        (self._directory / "machine").write_text(self._starts(start))

    def plug_in(self) -> None:
        """Give it power, as somebody's hand does; call it where its network is. Raises SetupError."""
        self._switch("1")

    def unplug(self) -> None:
        """Take its power; it may have none. Raises SetupError."""
        self.trouble("")
        self._switch("0")

    def close(self) -> None:
        """Take its power for good, also where a BMC that was killed is just switching it on."""
        for program in ("machine", "dead"):
            (self._directory / program).unlink(missing_ok=True)
        self.unplug()

    def trouble(self, what: MachineTrouble) -> None:
        """From now on this is broken; "" mends it."""
        (self._directory / "trouble").write_text(f"{what}\n")

    @property
    def boots(self) -> int:
        """How often it was switched on."""
        return int((self._directory / "boots").read_text())

    @property
    def console(self) -> str:
        """All that the guest, its agent and its programs said, in all boots."""
        said = (self._directory / name for name in ("machine.log", "console"))
        return "".join(path.read_text(errors="replace") for path in said)

    def _media(self, number: int) -> Path:
        return self._directory / f"media-{number}"

    def _starts(self, start: Callable[[_Drives], list[str]]) -> str:
        """The script that starts the drives and becomes QEMU: `start` of them is its command."""
        lines, drives = [_PROCESS_ID, "cuts=$(($(cat boots) - 1))"], []
        for number, drive in enumerate(self._drives):
            socket = self._directory / f"{number}.sock"
            ready = self._directory / f"drive-{number}{PID_SUFFIX}"
            command = drive_command(
                drive,
                media=self._media(number),
                drive_log=self._directory / f"log-{number}",
                socket=socket,
                ready=ready,
            )
            lines.append(f"rm -f {shlex.quote(str(socket))} {shlex.quote(str(ready))}")
            lines.append(f'{shlex.join(command)} "cuts=$cuts" 8>&- &')
            lines.append(_WAIT.format(ready=shlex.quote(str(ready))))
            drives.append((drive, socket))
        return "\n".join((*lines, f"exec {shlex.join(start(drives))}", ""))

    def _switch(self, to: str) -> None:
        command = (self.chassis, "set", "power", to)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SetupError(f"the machine cannot be switched: {done.stderr.strip()}")
