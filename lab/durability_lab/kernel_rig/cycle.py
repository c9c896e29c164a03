"""Whole cycles on a block rig: run, cut under load, power on, verify.

Server, client and verify are the product's own; client and verify run as commands. The cut comes after a
number of acknowledged operations that a seed draws, never after a time. What the drive loses also depends on
the kernel's scheduling, so no two cycles are exactly alike.

A cycle returns the answer of `verify`. `CycleResult.as_expected` compares it with the expected verdict for
the drive.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from durability.errors import EXIT_LOSS, EXIT_OK, SetupError
from durability.evidence.judgement import Judgement
from durability.formats.case import Case
from durability.formats.plan import Plan
from durability.units import format_run, parse_run
from durability_client import queries
from durability_client.system.processes import own_command
from durability_client.target.kernel_storage import KernelStorage
from durability_client.verify.case_source import ServerCaseSource
from durability_client.verify.scan.scan_base import ScanJob, ScanListener
from durability_client.verify.scan.scan_child import scan_here
from durability_client.verify.scan.target_reader import block_bytes_of
from durability_lab.drive.drive_check import DriveCheck
from durability_lab.kernel_rig.block_rig import BlockRig, MountError
from durability_lab.support.loads import Load, run_options
from durability_lab.support.local_server import LocalServer
from durability_lab.truth.comparison import Claims, LogAlone, Truth, compare
from durability_lab.truth.expected_verdict import UNREAD, is_honest
from durability_lab.truth.reference_judge import ReferenceJudge

ATTESTATION = "the lab killed the drive's process with SIGKILL and attached the drive anew"
CUT_AFTER = range(600, 3000)  # operations; even a slow file system completes them in seconds
NAMES_CUT_AFTER = range(200, 1000)  # fewer, because each operation on names takes two or three syncs
# Target size for all writers, except for workloads on names. A run overwrites it more than once, or appends
# beyond it.
TARGET_MIB = 8
_TIMEOUT_S = 120.0
_VERIFY_TIMEOUT_S = 300.0  # `verify` waits two minutes for a drive that hangs


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """The answer of a command."""

    exit_code: int
    document: dict[str, Any]  # the JSON document, {} if there is none
    said: str  # stderr

    def __repr__(self) -> str:
        """A text for failed tests, short enough that pytest does not cut it."""
        codes = [reason["code"] for reason in self.document.get("reasons", ())]
        return f"<exit {self.exit_code}, {self.document.get('verdict')}, {codes}, said {self.said!r}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleResult:
    """The result of one cycle."""

    drive: str
    load: Load
    cut_after: int  # the cut came after this number of acknowledged operations
    mounted: bool  # the file system could be mounted after the cut; False on a raw device
    answer: CommandAnswer  # of `verify`
    # The answer compared with the drive's promises; None for nbdkit's own filters, or without an answer.
    truth: Truth | None

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is expected. Honest drives: durable, class power, with records at risk. Other
        drives: loss."""
        document = self.answer.document
        if is_honest(self.drive):
            return (
                self.answer.exit_code == EXIT_OK
                and document["verdict"] == "durable"
                and document["cut"]["class"] == "power"
                and document["at_risk"]["ms1000"] > 0
            )
        return self.answer.exit_code == EXIT_LOSS and document["verdict"] == "loss"


class StartedRun:
    """A `durability run` that has been started. `run`: id of the run, as `--run` takes it, once it is armed.
    `said`: task with the output, done once the command has ended."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.run = ""
        self.said = asyncio.create_task(process.communicate())

    async def end(self) -> CommandAnswer:
        """Wait for the end of the command; returns exit code and stderr."""
        async with asyncio.timeout(_TIMEOUT_S):
            _, said = await asyncio.shield(self.said)
        assert self.process.returncode is not None
        return CommandAnswer(exit_code=self.process.returncode, document={}, said=_text(said))


@asynccontextmanager
async def powered(rig: BlockRig) -> AsyncIterator[BlockRig]:
    """The rig for the duration of a block. Set-up and removal run in threads, so the server can work on."""
    await asyncio.to_thread(rig.open)
    try:
        yield rig
    finally:
        await asyncio.to_thread(rig.close)


@asynccontextmanager
async def running(lab: LocalServer, target: Path, load: Load, *, acked: int) -> AsyncIterator[StartedRun]:
    """A client on `target` with `acked` acknowledged operations; killed at the end of the block if it still
    runs. Raises SetupError if it ends before that."""
    client = StartedRun(await _start(lab, "run", str(target), *run_options(load, mib=TARGET_MIB)))
    try:
        if not await lab.until_acked(target, acked, client.said):
            raise SetupError(f"the client ended too early: {(await client.end()).said}")
        run = lab.live_run(target)
        assert run is not None
        client.run = format_run(run.id)
        yield client
    finally:
        if client.process.returncode is None:
            client.process.kill()
        await client.end()


async def verify(lab: LocalServer, target: Path, *options: str) -> CommandAnswer:
    """The answer of `durability verify --json` for `target`."""
    process = await _start(lab, "verify", str(target), "--json", *options)
    try:
        async with asyncio.timeout(_VERIFY_TIMEOUT_S):
            document, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return CommandAnswer(
        exit_code=process.returncode, document=json.loads(document) if document else {}, said=_text(said)
    )


async def export(lab: LocalServer, run: str, path: Path) -> None:
    """Save the server's present case of `run` in the file `path`, as `durability export` does."""
    known = lab.endpoint
    await queries.export(known, parse_run(run), output=path, out=sys.stdout)


async def cycle(
    lab: LocalServer, drive: str, load: Load, *, seed: int, moments: range | None = None
) -> CycleResult:
    """Run, cut, power on and verify, on a new rig. `seed` draws the drive's chances and the time of the cut,
    one of `moments`, in operations. Raises SetupError if the run ends before the cut."""
    usual = NAMES_CUT_AFTER if load.contract.by_name else CUT_AFTER
    cut_after = random.Random(seed).choice(moments or usual)
    async with powered(BlockRig(drive, load.file_system, seed=seed)) as rig:
        async with running(lab, rig.target, load, acked=cut_after) as client:
            await lab.until_at_risk(rig.target, client.said)
            await asyncio.to_thread(rig.cut)
            await client.end()
        drive_check = await asyncio.to_thread(rig.drive_check)
        mounted = await power_on(rig)
        options = ["--run", client.run, "--attest-cut", ATTESTATION]
        options += [] if mounted or not rig.file_system else ["--device", str(rig.device)]
        answer = await verify(lab, rig.target, *options)
        truth = None
        if drive_check is not None and answer.document:
            readable = (mounted or not rig.file_system) and drive.partition(":")[0] not in UNREAD
            target = KernelStorage(rig.target) if readable else None
            truth = await _truth(await _case(lab, client.run, rig), target, answer, drive_check)
    return CycleResult(
        drive=drive, load=load, cut_after=cut_after, mounted=mounted, answer=answer, truth=truth
    )


async def _case(lab: LocalServer, run: str, rig: BlockRig) -> Case:
    """The server's case of a run."""
    case_source = ServerCaseSource(lab.endpoint)
    case = await case_source.open(parse_run(run), KernelStorage(rig.device).facts())
    assert case is not None, f"the server has lost run {run}"
    return case


async def _truth(
    case: Case, target: KernelStorage | None, answer: CommandAnswer, drive_check: DriveCheck
) -> Truth:
    """Compare the answer of `verify` with the drive log; `target` is None if it cannot be read.

    If it can be read, each place is compared. The product's own scan is repeated here, where it reports every
    place. Its result must equal that of `verify`.
    """
    plan = Plan.decode(bytes.fromhex(case.plan))
    told = Claims.of_document(answer.document)
    if target is not None:
        with suppress(OSError):  # a file system that mounts may still have unreadable directories
            reference = await asyncio.to_thread(
                ReferenceJudge, plan, case.frontiers, target, block_bytes=block_bytes_of(target.facts())
            )
            claims = await asyncio.to_thread(_scan, case, plan, target)
            truth = compare(claims, reference, plan, drive_check.broken, promised=drive_check.promised)
            return replace(truth, defects=(*claims.differences(told), *truth.defects))
    log = LogAlone(plan=plan, acked=case.frontiers)
    return compare(told, log, plan, drive_check.broken, promised=drive_check.promised)


def _scan(case: Case, plan: Plan, target: KernelStorage) -> Claims:
    """The findings of the tester's scan, place by place."""
    findings: list[Judgement] = []
    job = ScanJob(
        plan=plan,
        acked=case.frontiers,
        control_completed=case.control,
        block_bytes=block_bytes_of(target.facts()),
    )
    listener = ScanListener(
        tick=lambda: None, progress=lambda _: None, example=lambda _: None, finding=findings.append
    )
    return Claims.of_scan(findings, scan_here(target, job, listener))


async def power_on(rig: BlockRig) -> bool:
    """Restore the power and mount. Returns whether there is a file system and it could be mounted."""
    await asyncio.to_thread(rig.power_on)
    if rig.file_system is None:
        return False
    try:
        await asyncio.to_thread(rig.mount)
    except MountError:
        return False
    return True


async def _start(lab: LocalServer, command: str, target: str, *options: str) -> asyncio.subprocess.Process:
    common = ("--server", lab.address, "--credential", str(lab.credential))
    return await asyncio.create_subprocess_exec(
        *own_command(command, target, *common, *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def _text(said: bytes) -> str:
    return said.decode(errors="replace").strip()
