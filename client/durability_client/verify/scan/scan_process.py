"""Reads the target in a child process, which can be abandoned.

After a cut, a drive may never answer a read again, and a process that waits for the drive cannot be killed.
So a child reads the target and reports its reads. If no report arrives before the deadline, the child is
abandoned, and its reports count as an unfinished scan. Neither abandoned reads nor a crashed child ever count
as lost data.

A storage in this process, such as a simulated drive, is read in a thread instead, because it cannot hang.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Pipe
from typing import IO, TypeAlias, cast

from durability.errors import DurabilityError, TargetError
from durability.evidence.scan_report import Example, ScanReport, empty_report
from durability.formats.plan import Plan
from durability_client.system.processes import main_of
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.storage import Storage
from durability_client.verify.scan import scan_child
from durability_client.verify.scan.device_places import PlacesRead, read_places
from durability_client.verify.scan.scan_base import ScanJob, ScanProgress
from durability_client.verify.scan.scan_child import (
    Failed,
    PlacesWanted,
    Reply,
    Request,
    SuperblocksRead,
    SuperblocksWanted,
    scan_into,
)
from durability_client.verify.scan.target_reader import read_superblocks

_POLL_S = 0.5  # an interrupted caller stops waiting after at most this time
_GRACE_S = 2.0  # a killed process that has not ended after this time waits for its drive

OnProgress: TypeAlias = Callable[[ScanProgress], None]
OnExample: TypeAlias = Callable[[Example], None]


class StalledError(DurabilityError):
    """No read of the target returned before the deadline."""


class ScanProcess:
    """Reads one target for `verify`. A context manager; at its end the child has ended or is abandoned."""

    def __init__(self, storage: Storage, *, stall_s: float) -> None:
        self._storage = storage
        self._stall_s = stall_s
        self._child: _Child | None = None

    def __enter__(self) -> ScanProcess:
        if isinstance(self._storage, KernelStorage):
            self._child = _Child(self._storage, stall_s=self._stall_s)
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.end()

    async def superblocks(self, known: Plan | None) -> tuple[Plan | None, ...]:
        """The plans in the target's superblocks, see `read_superblocks`.

        Raises StalledError, and TargetError if the target cannot be read.
        """
        if self._child is None:
            return await asyncio.to_thread(read_superblocks, self._storage, known)
        reply = await self._child.ask(SuperblocksWanted(known), lambda _: None)
        if isinstance(reply, Failed):
            raise TargetError(reply.text)
        return cast(SuperblocksRead, reply).plans

    async def places(self) -> PlacesRead:
        """Read places all over the device, see `read_places`. Raises StalledError."""
        if self._child is None:
            return await asyncio.to_thread(read_places, self._storage, lambda: None)
        reply = await self._child.ask(PlacesWanted(), lambda _: None)
        if isinstance(reply, Failed):
            raise StalledError(reply.text)
        return cast(PlacesRead, reply)

    async def scan(self, job: ScanJob, *, on_progress: OnProgress, on_example: OnExample) -> ScanReport:
        """Scan the target. If an error stops the scan, the report covers only a part and has a `failure`."""
        latest = empty_report(job.plan)

        def listen(reply: Reply) -> None:
            nonlocal latest
            if isinstance(reply, ScanProgress):
                latest = reply.report
                on_progress(reply)
            elif isinstance(reply, Example):
                on_example(reply)

        try:
            if self._child is None:
                reply: Reply = await asyncio.to_thread(scan_into, self._storage, job, listen)
            else:
                reply = await self._child.ask(job, listen)
        except StalledError as error:
            return replace(latest, failure=str(error))
        if isinstance(reply, Failed):
            return replace(latest, failure=reply.text)
        return cast(ScanReport, reply)


def _file_in_memory() -> IO[bytes]:
    """A new file without a directory, because the system's directories may be full, or read-only after a
    cut. Only Linux supports this; elsewhere the file is a temporary file."""
    create = getattr(os, "memfd_create", None)
    return os.fdopen(create("durability-verify"), "w+b") if create else tempfile.TemporaryFile()


class _Child:
    """The parent's handle of the child process."""

    def __init__(self, storage: KernelStorage, *, stall_s: float) -> None:
        self._stall_s = stall_s
        self._stalled = ""  # why the child is abandoned, or ""
        self._ending = threading.Event()
        self._said = _file_in_memory()  # closed by `end`
        self._connection, theirs = Pipe()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = main_of(scan_child.__name__, str(theirs.fileno()))
        # An abandoned child must not keep the caller's streams open: their readers would wait for the child.
        with theirs:
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                env=environment,
                process_group=0,  # Ctrl-C must reach only the parent, which ends the child
            )
        self._connection.send(storage)

    async def ask(self, request: Request, listen: Callable[[Reply], None]) -> Reply:
        """Send `request` and wait for its answer. `listen` gets earlier replies, in another thread.

        Raises StalledError. Then each later request raises it, too, because a late answer to this request
        could be mistaken for the answer to the later one.
        """
        if self._stalled:
            raise StalledError(self._stalled)
        try:
            return await asyncio.to_thread(self._converse, request, listen)
        except StalledError as error:
            self._stalled = str(error)
            raise
        except asyncio.CancelledError:
            self._ending.set()
            raise

    def _converse(self, request: Request, listen: Callable[[Reply], None]) -> Reply:
        try:
            self._connection.send(request)
            while True:
                self._wait()
                reply = cast(Reply, self._connection.recv())
                if isinstance(reply, SuperblocksRead | PlacesRead | Failed | ScanReport):
                    return reply
                listen(reply)
        except (EOFError, OSError, pickle.UnpicklingError):
            return Failed(f"the process that reads the target ended unexpectedly{self._fate()}")

    def _wait(self) -> None:
        """Wait for data on the pipe. Raises StalledError at the deadline, or if the caller was cancelled."""
        deadline_s = time.monotonic() + self._stall_s
        while not self._connection.poll(_POLL_S):
            if self._ending.is_set() or time.monotonic() > deadline_s:
                raise StalledError(
                    f"reads of the target returned nothing for {self._stall_s:.0f} s and were abandoned"
                )

    def _fate(self) -> str:
        try:
            status = self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            return ""
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").split("\n")
        return f" with status {status}" + next((f": {line}" for line in reversed(lines) if line), "")

    def end(self) -> None:
        """Kill the child. If it waits for its drive, it is abandoned."""
        self._process.kill()
        self._fate()
        self._connection.close()
        self._said.close()
