"""A machine under test with switched power: QEMU and its drives, started and killed by a program.

    a BMC -> `chassis` (see `host/chassis`) -> nbdkit: its drives, QEMU: the guest -> `durability agent`

All files lie in one directory: the media, which survive a cut; the command lines; the console of all boots.
One SIGKILL to the process group of QEMU and nbdkit is the cut. The guest's root is its own memory and this
machine's files, read-only, so it does not run from its drives. The guest has joined a server and starts the
agent.

The machine does not switch its own power; only the BMC, `plug_in`, `unplug` and `close` do.
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

# "": none. "lies": the BMC does nothing but reports success. "dead": the machine has power and does not boot.
MachineTrouble: TypeAlias = Literal["", "lies", "dead"]
_Drives: TypeAlias = Sequence[tuple[GuestDrive, Path]]  # each drive with its socket
_CHASSIS = Path(__file__).with_name("host") / "chassis"
_PROCESS_ID = f"echo $$ >machine{PID_SUFFIX}"
_WAIT = "until [ -e {ready} ]; do kill -0 $! || exit 1; sleep 0.02; done"


class SwitchedMachine:
    """A machine with `drives`, at first without power and system. Its files lie in `directory`."""

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
        """Make the machine boot `image`. `credential`: that of a joined machine, one line."""
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
        """Make the machine boot the live image, with a stick that has the join code."""
        console = self._directory / "console"

        def start(drives: _Drives) -> list[str]:
            return live_command(image, stick=stick, console=console, drives=drives)

        (self._directory / "machine").write_text(self._starts(start))

    def plug_in(self) -> None:
        """Switch the power on, as by hand. Call this in the machine's network. Raises SetupError."""
        self._switch("1")

    def unplug(self) -> None:
        """Cut the power, if there is any, and end the trouble. Raises SetupError."""
        self.trouble("")
        self._switch("0")

    def close(self) -> None:
        """Cut the power permanently, even if a killed BMC is just switching the machine on."""
        for program in ("machine", "dead"):
            (self._directory / program).unlink(missing_ok=True)
        self.unplug()

    def trouble(self, what: MachineTrouble) -> None:
        """Set what is broken from now on; "" ends the trouble."""
        (self._directory / "trouble").write_text(f"{what}\n")

    @property
    def boots(self) -> int:
        """How often the machine was switched on."""
        return int((self._directory / "boots").read_text())

    @property
    def console(self) -> str:
        """All output of the guest, its agent and its programs, in all boots."""
        said = (self._directory / name for name in ("machine.log", "console"))
        return "".join(path.read_text(errors="replace") for path in said)

    def _media(self, number: int) -> Path:
        return self._directory / f"media-{number}"

    def _starts(self, start: Callable[[_Drives], list[str]]) -> str:
        """The script that starts the drives and then runs QEMU with the command that `start` returns."""
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
