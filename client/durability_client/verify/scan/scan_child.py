"""The process that reads a target for `verify`. It answers requests on a pipe until its parent closes it.

The module imports little, because the process starts again for each verdict. `scan_process` is the parent,
and explains why another process reads the target.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import TypeAlias, cast

from durability.errors import DurabilityError, TargetError
from durability.evidence.scan_report import Example, ScanReport
from durability.formats.plan import Plan
from durability.formats.workloads.workload import Layout
from durability_client.target.storage import Storage
from durability_client.verify.scan.canary import DriveWentAwayError
from durability_client.verify.scan.device_places import PlacesRead, read_places
from durability_client.verify.scan.name_scan import NameScan
from durability_client.verify.scan.scan_base import ScanBase, ScanJob, ScanListener, ScanProgress
from durability_client.verify.scan.slot_scan import LogScan, SlotScan
from durability_client.verify.scan.target_reader import read_superblocks

SCANS: Mapping[Layout, Callable[[Storage, ScanJob, ScanListener], ScanBase]] = {
    "region": SlotScan,
    "log": LogScan,
    "names": NameScan,
}
_REPORT_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class SuperblocksWanted:
    """Request to read the target's superblocks. `known`: see `read_superblocks`."""

    known: Plan | None


@dataclass(frozen=True, slots=True)
class SuperblocksRead:
    """The plans in the superblocks."""

    plans: tuple[Plan | None, ...]


@dataclass(frozen=True, slots=True)
class PlacesWanted:
    """Request to read places all over the device, see `read_places`."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A read returned."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The request failed. `text` describes the error for people."""

    text: str


Request: TypeAlias = "SuperblocksWanted | PlacesWanted | ScanJob"
Reply: TypeAlias = "SuperblocksRead | PlacesRead | Tick | Failed | ScanProgress | Example | ScanReport"


class _Reporter:
    """The child's end of the pipe, for any thread.

    Ticks and progress are sent only at intervals. Progress that adds a class of findings is sent at once: the
    drive may hang at the next read, and then the parent judges the last report.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        # Each kind has its own interval. With a common one, ticks would come first and block all progress.
        self._next_s: dict[type[Reply], float] = {Tick: 0.0, ScanProgress: 0.0}
        self._found: frozenset[str] = frozenset()  # classes in the last report that was sent

    def send(self, reply: Reply) -> None:
        with self._lock:
            now_s, kind = time.monotonic(), type(reply)
            found = _classes(reply.report) if isinstance(reply, ScanProgress) else self._found
            if now_s < self._next_s.get(kind, now_s) and found == self._found:
                return
            self._connection.send(reply)
            self._found = found
            if kind in self._next_s:
                self._next_s[kind] = now_s + _REPORT_INTERVAL_S


def _classes(report: ScanReport) -> frozenset[str]:
    """The classes found so far that a verdict may depend on."""
    beside = {"unstable": report.unstable, "above ceiling": report.above_ceiling}
    return frozenset(name for name, count in (*report.findings.items(), *beside.items()) if count)


def scan_into(storage: Storage, job: ScanJob, send: Callable[[Reply], None]) -> ScanReport:
    """Scan with `scan_here`. Ticks, progress and examples go to `send`; the report is returned."""
    return scan_here(storage, job, ScanListener(tick=lambda: send(Tick()), progress=send, example=send))


def scan_here(storage: Storage, job: ScanJob, listener: ScanListener) -> ScanReport:
    """Scan in the caller's thread. Every error becomes the report's `failure`, because a scan that crashed
    proves nothing."""
    scan = SCANS[job.plan.contract.layout](storage, job, listener)
    try:
        if job.before is not None:
            scan.require_target()
        return scan.run()
    except OSError as error:
        failure = f"{storage.path} cannot be read further: {error.strerror or error}"
    except (DriveWentAwayError, TargetError) as error:
        failure = str(error)
    except Exception as error:
        failure = f"the scan failed, a defect of this tool: {type(error).__name__}: {error}"
    return replace(scan.so_far, failure=failure)


def _read_superblocks(storage: Storage, known: Plan | None) -> Reply:
    try:
        return SuperblocksRead(read_superblocks(storage, known))
    except (OSError, DurabilityError) as error:
        return Failed(str(error))


def main() -> None:
    """The child: answer requests until the parent closes its end."""
    connection = Connection(int(sys.argv[1]))
    reporter = _Reporter(connection)
    try:
        storage = cast(Storage, connection.recv())
        while True:
            request = cast(Request, connection.recv())
            if isinstance(request, SuperblocksWanted):
                reporter.send(_read_superblocks(storage, request.known))
            elif isinstance(request, PlacesWanted):
                reporter.send(read_places(storage, lambda: reporter.send(Tick())))
            else:
                reporter.send(scan_into(storage, request, reporter.send))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)  # the parent has ended: do not wait for threads that still read
