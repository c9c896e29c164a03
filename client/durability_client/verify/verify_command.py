"""`verify`: compares the target with the server's log after a cut: durable, loss or inconclusive.

The rules of evidence require this order: lock, facts, superblocks, case, identity, end of the run, scan.
`verify` writes nothing to the target. With `--device` the kernel mounts the file system and may replay its
log (see `mount_probe`). A wrong target, a missing mount, a locked drive, files that a campaign removed, a run
that still writes and an unreachable server are errors with exit code 5, never a loss.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bar

from durability import limits, plain_text
from durability.errors import (
    NOT_STORED,
    PERHAPS_NOT_STORED,
    AuthenticationError,
    FormatError,
    PeerError,
    PlanError,
    RefusedError,
    SetupError,
    TargetError,
    UnreadableTargetError,
    UsageError,
    WrongTargetError,
)
from durability.evidence.cut import CutClass
from durability.evidence.identity import hardware_differences, identify, moved, newer_run_here
from durability.evidence.judge import Attestation, Found, judge
from durability.evidence.outcome import Outcome, Requirements
from durability.evidence.scan_report import Example, ScanReport, empty_report
from durability.formats.case import FILES_REMOVED, Case
from durability.formats.facts import Facts
from durability.formats.plan import Plan
from durability.units import format_run, parse_run, verify_device_line
from durability_client.link.endpoint import Endpoint
from durability_client.system import block_devices
from durability_client.system.terminal import fitted, print_json
from durability_client.target import discovery, safety_checks
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.storage import Storage
from durability_client.target.target_warnings import skips_replay
from durability_client.verify import junit, verdict_text
from durability_client.verify.case_source import WAIT_S, CaseSource, ExportCaseSource, ServerCaseSource
from durability_client.verify.scan.canary import presence_of
from durability_client.verify.scan.scan_base import ScanJob, ScanProgress
from durability_client.verify.scan.scan_process import ScanProcess, StalledError
from durability_client.verify.scan.target_reader import block_bytes_of
from durability_client.verify.unmountable import UnmountableStorage

_NOT_ALL_STORED = "the server stored this verdict, but not all of the slots as they were found"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Options from the command line. The log comes from exactly one of `endpoint` and `from_export`."""

    target: Path | None
    endpoint: Endpoint | None = None
    run: int = 0  # 0: the target or the server names the run
    attest_cut: str | None = None
    cut_class: CutClass | None = None
    require_cut: CutClass = "power"
    min_cuts: int = 1
    device: Path | None = None
    from_export: Path | None = None
    junit: Path | None = None
    json: bool = False
    stall_s: float = limits.SCAN_STALL_S_MIN  # reads that return nothing for this long are abandoned


async def verify(
    options: VerifyOptions,
    *,
    storage: Storage | None = None,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """Judge the target and print the verdict. Returns the exit code.

    `storage` replaces the target of the options, for example by a simulated drive. `out` and `err` default to
    stdout and stderr. Raises SetupError, UsageError and FormatError if no verdict is possible.
    """
    out, err = out or sys.stdout, err or sys.stderr
    case_source = _case_source(options, on_wait=partial(_say_wait, err))
    target = storage if storage is not None else await asyncio.to_thread(_storage, options)
    if isinstance(target, UnmountableStorage):
        print(fitted(target.why, err, indent=2), file=err)
    with suppress(UnreadableTargetError):  # the scan judges a target that cannot be opened
        target.lock()
    try:
        with _bar(err) as on_progress:
            outcome = await examine(options, target, case_source, on_progress)
    finally:
        target.unlock()
    document = outcome.document()
    if outcome.case is not None:
        try:
            unkept = await case_source.close(outcome.plan.run, document, outcome.examples)
        except PeerError as error:
            unkept = ""
            print(plain_text.as_line(f"warning: {_why_not_stored(error)}"), file=err)
        if unkept:
            print(plain_text.as_line(f"warning: {_NOT_ALL_STORED}: {unkept}"), file=err)
    if options.json:
        print_json(document, out)
    else:
        verdict_text.write(outcome, out)
    if options.junit is not None:
        try:
            junit.write(outcome, options.junit)
        except SetupError as error:  # the verdict and its exit code stay the same
            print(plain_text.as_line(f"warning: {error}"), file=err)
    return outcome.verdict.exit_code


async def examine(
    options: VerifyOptions,
    storage: Storage,
    case_source: CaseSource,
    on_progress: Callable[[ScanProgress], None],
) -> Outcome:
    """Examine a locked target and judge it. Raises the same errors as `verify`."""
    started_s = time.monotonic()
    attestation = Attestation(text=options.attest_cut, cut_class=options.cut_class)
    with ScanProcess(storage, stall_s=options.stall_s) as scan_process:
        before = await asyncio.to_thread(presence_of, storage)
        asked_ns = discovery.uptime_ns()
        facts = await asyncio.to_thread(storage.facts)
        found, stalled = await _found(facts, scan_process, None)
        run = options.run or (0 if options.from_export else found.run)
        _require_replay(facts, run)
        case = await case_source.open(run, found.facts)
        if not options.run and case is not None and case.superseded_by:
            case, stalled = await _newest_here(case, found, case_source, scan_process)
        if case is not None:
            _require_files(case)
        plan = _plan(case, found, run)
        if isinstance(storage, UnmountableStorage) and case is not None:
            found, stalled = Found(facts=storage.facts_as_target_of(case, facts), superblocks=()), ""
        elif not stalled:  # the plan gives the place of the second superblock
            found, stalled = await _found(facts, scan_process, plan)
        if case is not None:  # the run is ended only after its target has been recognised
            _require_target_of(case, found, storage.path)
            found = replace(found, facts=_as_of(found.facts, later_ns=discovery.uptime_ns() - asked_ns))
            case = await case_source.end(plan.run, found, attestation)
        job = ScanJob(
            plan=plan,
            acked=case.frontiers if case is not None else None,
            control_completed=_control_beside(case, found.facts) if case is not None else 0,
            block_bytes=block_bytes_of(found.facts),
            before=before,
            earlier=_earlier_runs(case, found.facts) if case is not None else (),
        )
        examples: list[Example] = []
        if stalled:
            report = empty_report(plan, failure=stalled)
        else:
            report = await scan_process.scan(job, on_progress=on_progress, on_example=examples.append)
        if isinstance(storage, UnmountableStorage):
            report = await _as_the_device_shows(storage, report, plan, options.stall_s)
            if not report.finished:
                examples.clear()
    return judge(
        plan=plan,
        case=case,
        found=found,
        report=report,
        examples=examples,
        attestation=attestation,
        requirements=Requirements(cut=options.require_cut, min_cuts=options.min_cuts),
        duration_s=time.monotonic() - started_s,
    )


def _as_of(facts: Facts, *, later_ns: int) -> Facts:
    """`facts` with an uptime that is `later_ns` longer, measured by the clock of uptimes.

    The judge subtracts the uptime from the time of the case to find when this system started. Between facts
    and case, a drive may have been slow or the machine suspended.
    """
    return replace(facts, host=replace(facts.host, uptime_ns=facts.host.uptime_ns + later_ns))


async def _as_the_device_shows(
    storage: UnmountableStorage, report: ScanReport, plan: Plan, stall_s: float
) -> ScanReport:
    """Check `report`, from a scan that found no file, against reads of the device itself."""
    with ScanProcess(storage.device, stall_s=stall_s) as scan_process:
        try:
            return storage.as_shown(report, plan, await scan_process.places())
        except StalledError as error:
            return empty_report(plan, failure=str(error))


async def _newest_here(
    case: Case, found: Found, case_source: CaseSource, scan_process: ScanProcess
) -> tuple[Case, str]:
    """Find the case of the newest armed run on the target.

    The drive may have lost this run, so that only the superblock of an older run is left, that of `case`.
    Returns the newest run's case, or `case` if the newer run is not shown to be on this target (rule 9). Also
    returns the reason why the newer run's superblocks could not be read, or "".
    """
    try:
        newest = await case_source.open(0, found.facts)
    except RefusedError as error:
        if error.code == "run-unknown":
            return case, ""
        if error.code != "run-ambiguous":
            raise
        # Several clients have runs that match: the targets of other clients say nothing about this run.
        newest = await case_source.open(parse_run(case.superseded_by), found.facts)
    if newest is None:
        return case, ""
    superblocks, stalled = found.superblocks, ""
    with suppress(FormatError, PlanError):  # a later release's plan: places of the superblocks are unknown
        plan = Plan.decode(bytes.fromhex(newest.plan))
        # The newer run's second superblock may be at another place, and be the only trace of that run.
        at_its_places, stalled = await _found(found.facts, scan_process, plan)
        superblocks = (*superblocks, *at_its_places.superblocks)
    return (newest if newer_run_here(case, newest, found.facts, superblocks) else case), stalled


def _require_replay(facts: Facts, run: int) -> None:
    """Raises TargetError for a mount that skips the replay of the log, since an honest drive then seems to
    have lost data. `run` 0: the run is unknown."""
    option = skips_replay(facts.file_system) if facts.file_system is not None else ""
    if facts.file_system is None or not option:
        return
    did, how = (
        ("may not have replayed", "mount it read-write; a ZFS pool must be imported read-write")
        if option == "ro"
        else (
            "did not replay",
            f"mount it without that option (umount {facts.file_system.mount_point}; mount -o ro"
            f" {facts.file_system.source} {facts.file_system.mount_point})",
        )
    )
    raise TargetError(
        f"{facts.path} is on {facts.file_system.type} mounted with {option}: synced data may be in the log,"
        f" which this mount {did}, so no verdict is possible. Unmount it and {how}. If it does not"
        " mount then:"
        f" {verify_device_line(facts.file_system.source, format_run(run) if run else 'RUN')}"
        f"{'' if run else ' (`durability runs --all` lists the runs)'}"
    )


def _say_wait(err: TextIO, why: str) -> None:
    text = f"waiting up to {WAIT_S:.0f} s for the server, which has not confirmed the verdict: {why}"
    print(plain_text.as_line(text), file=err, flush=True)


def _why_not_stored(error: PeerError) -> str:
    match error:
        case RefusedError():
            return f"{NOT_STORED} ({error.code}): {error}"
        case AuthenticationError():
            return f"{NOT_STORED}: {error}"
    return f"{PERHAPS_NOT_STORED}: {error}; then type this `verify` again"


def _case_source(options: VerifyOptions, *, on_wait: Callable[[str], None]) -> CaseSource:
    if options.device is not None and not options.run and options.from_export is None:
        raise UsageError(
            f"--device needs --run: {verify_device_line(str(options.device))}"
            " (`durability runs --all` lists the runs and their targets)"
        )
    if options.cut_class is not None and not options.attest_cut:
        raise UsageError("--cut-class needs --attest-cut TEXT")
    if options.from_export is not None:
        return ExportCaseSource(options.from_export)
    assert options.endpoint is not None
    return ServerCaseSource(options.endpoint, on_wait)


def _storage(options: VerifyOptions) -> Storage:
    if options.device is not None:
        safety_checks.check_unlocked(options.device, "device", then="verify")
        return UnmountableStorage.on(options.device)
    assert options.target is not None
    storage = KernelStorage(options.target)
    safety_checks.check_subject(storage.path)
    safety_checks.check_unlocked(storage.path, storage.kind, then="verify")
    return storage


async def _found(facts: Facts, scan_process: ScanProcess, plan: Plan | None) -> tuple[Found, str]:
    """The target as found, and the reason if reads of the superblocks stalled, else ""."""
    try:
        return Found(facts=facts, superblocks=await scan_process.superblocks(plan)), ""
    except StalledError as error:
        return Found(facts=facts, superblocks=()), str(error)


def _control_beside(case: Case, now: Facts) -> int:
    """Completed writes of the control arm; 0 if the target has moved, perhaps without its other files."""
    return 0 if case.armed is not None and moved(case.armed, now) else case.control


def _earlier_runs(case: Case, now: Facts) -> frozenset[int]:
    """The runs whose names beside the target were removed before the run of `case` was armed.

    Empty if the target may be in another directory now than at arming: names in that directory may never have
    been removed.
    """
    if case.armed is None or case.armed.kind != "file" or moved(case.armed, now):
        return frozenset()
    return frozenset(map(parse_run, case.predecessors))


def _plan(case: Case | None, found: Found, run: int) -> Plan:
    """The plan of the run to judge, from the server, or from a superblock if the server has none. Raises
    FormatError for an incomplete case, and SetupError if no plan is found."""
    if case is not None:
        plan = Plan.decode(bytes.fromhex(case.plan))
        if not len(case.frontiers) == len(case.grants) == plan.writers:
            raise FormatError(
                f"what is known of run {case.run} is not whole: it has frontiers of {len(case.frontiers)} and"
                f" grants of {len(case.grants)} writers, expected {plan.writers}"
            )
        return plan
    for known in found.superblocks:
        if known is not None and known.run == run:
            return known
    raise SetupError(
        f"the server does not know run {format_run(run)}, and the target does not hold its plan:"
        " `durability runs --all` lists the runs of the server"
    )


def _require_files(case: Case) -> None:
    """Raises TargetError if the files of the run were removed on purpose. The server itself refuses such a
    run, but an export does not."""
    removed = next((event.text for event in case.events if event.kind == FILES_REMOVED), "")
    if removed:
        raise TargetError(removed)


def _require_target_of(case: Case, found: Found, path: Path) -> None:
    """Raises WrongTargetError if the target is not recognised as that of the run of `case`."""
    identity = identify(case, found.facts, found.superblocks)
    if identity.by is None:
        if other := _other_file_system(case, found.facts):
            raise WrongTargetError(
                f"{path} is on the drive of run {case.run}, but on another file system: {other}. Someone made"
                " it after the run, or the drive has lost all that was written since it held this one. verify"
                " cannot tell, so no verdict was made. If nobody made it, leave the drive as it is: it is the"
                " evidence"
            )
        why = "; ".join(identity.reasons)
        raise WrongTargetError(
            f"{path} is not the target of run {case.run}, or cannot be recognised: {why}."
            f" Attach the right drive and mount its file system.{_if_it_does_not_mount(case)} No verdict was"
            " made"
        )


def _other_file_system(case: Case, now: Facts) -> str:
    """Both UUIDs as text, if drives and place match the run but another file system is mounted there; else
    ""."""
    armed = case.armed
    if armed is None or armed.file_system is None or now.file_system is None or not now.file_system.uuid:
        return ""
    as_then = replace(now.file_system, uuid=armed.file_system.uuid)
    if hardware_differences(armed, replace(now, file_system=as_then)):
        return ""
    return f"{now.file_system.uuid}, and the run was on {armed.file_system.uuid}"


def _if_it_does_not_mount(case: Case) -> str:
    """A sentence with the command for a damaged file system; "" if the target was not on a file system."""
    armed = case.armed
    if armed is None or armed.file_system is None:
        return ""
    known = [drive.serial for drive in armed.main_drives]
    device = None
    if len(known) == 1 and known[0] and armed.offset_bytes is not None:
        device = block_devices.device_at(known[0], armed.offset_bytes)
    if device is not None:
        return f" If it no longer mounts: {verify_device_line(str(device), case.run)}."
    source = armed.file_system.source
    return (
        f" If it no longer mounts: {verify_device_line(source, case.run)}"
        f" ({source} is its name at arming and may be another device now)."
    )


@contextmanager
def _bar(err: TextIO) -> Iterator[Callable[[ScanProgress], None]]:
    """Show a progress bar of the bytes read, on a terminal only. Any thread may call the yielded function."""
    if not err.isatty():
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(file=err), transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def show(progress: ScanProgress) -> None:
            bar.update(
                task, description=progress.phase, completed=progress.done, total=progress.total or None
            )

        yield show
