"""Drives of the kernel rig behind one switch, which cuts and restores the power of all at command.

Each drive has a stable path, like a real drive's path by serial. The kernel's name of its loop device may
change with every cut. A drive can be kept from coming back. `off` and `on` change nothing if the state is
already as asked.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from durability.errors import SetupError
from durability_lab.kernel_rig import drive_switch
from durability_lab.kernel_rig.block_rig import BlockRig

DRIVE_SECTOR_BYTES = 4096  # file systems rely on sectors of this size


class SwitchedDrive:
    """A drive with the stable path `path`. `returns`: whether it comes back when the power is on again.
    `make_rig`: the class of its parts below the path."""

    def __init__(
        self, model: str, path: Path, *, seed: int, size_bytes: int, make_rig: type[BlockRig] = BlockRig
    ) -> None:
        self.model = model
        self.path = path
        self.rig = make_rig(model, None, seed=seed, size_bytes=size_bytes)
        self.rig.sector_bytes = DRIVE_SECTOR_BYTES
        self.has_power = False
        self.returns = True

    def open(self) -> None:
        """Power the drive on for the first time. Raises SetupError."""
        self.rig.open()
        self._there()

    def close(self) -> None:
        """Remove the drive and its path."""
        self.path.unlink(missing_ok=True)
        self.rig.close()

    def switch_on(self) -> None:
        """Restore the drive's power, if it has none and `returns` is set. Raises SetupError."""
        if not self.has_power and self.returns:
            self.rig.power_on()
            self._there()

    def switch_off(self) -> None:
        """Cut the drive's power, and remove its path; the content of its cache is gone."""
        if self.has_power:
            self.rig.cut()
            self.path.unlink(missing_ok=True)
            self.has_power = False

    def _there(self) -> None:
        new = self.path.with_name(f"{self.path.name}.new")
        new.unlink(missing_ok=True)
        new.symlink_to(self.rig.device)
        new.replace(self.path)
        self.has_power = True


class SwitchedDrives:
    """All drives behind one switch, which listens at the socket `path`."""

    def __init__(self, drives: Sequence[SwitchedDrive], path: Path) -> None:
        self.drives = tuple(drives)
        self.cuts = 0  # how often the switch cut the power
        self.is_welded = False  # if set, the switch reports the state that was asked for, but cuts nothing
        # While this is not set, the switch waits with every request. If the asking process has ended by then,
        # the request is dropped.
        self.answers = asyncio.Event()
        self.answers.set()
        # By number of the cut, from 1: called once, when that cut is requested and before it is made.
        self.at_cut: dict[int, Callable[[], None]] = {}
        self._path = path
        self._is_on = True
        self._one_at_a_time = asyncio.Lock()

    def command(self, operation: str) -> str:
        """The command line that asks the switch, for a campaign file."""
        return shlex.join([sys.executable, "-I", "-S", drive_switch.__file__, str(self._path), operation])

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """For the duration of the block, the drives exist and the switch listens. Raises SetupError."""
        async with AsyncExitStack() as stack:
            for drive in self.drives:
                await asyncio.to_thread(drive.open)
                stack.push_async_callback(asyncio.to_thread, drive.close)
            stack.push_async_callback(self._one_at_a_time.acquire)  # the present request ends first
            server = await asyncio.start_unix_server(self._serve, self._path)
            stack.callback(server.close)
            yield

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        operation = (await reader.readline()).decode().strip()
        if operation == "off" and self._is_on and (happen := self.at_cut.pop(self.cuts + 1, None)):
            happen()
        await self.answers.wait()
        if reader.at_eof():  # the asking process has given up
            writer.close()
            return
        async with self._one_at_a_time:
            try:
                answer = await asyncio.to_thread(self._obey, operation)
            except SetupError as error:
                answer = str(error).partition("\n")[0]
        with suppress(OSError):  # the asking process was killed
            writer.write(f"{answer}\n".encode())
            await writer.drain()
        writer.close()

    def _obey(self, operation: str) -> str:
        if operation == "status":
            return drive_switch.ON if self._is_on else drive_switch.OFF
        if operation == "off":
            if not self.is_welded:
                for drive in self.drives:
                    drive.switch_off()
                self.cuts += self._is_on
            self._is_on = False
        elif operation == "on":
            for drive in self.drives:
                drive.switch_on()
            self._is_on = True
        else:
            raise SetupError(f"{operation!r} is not one of on, off and status")
        return drive_switch.DONE
