"""Rig C: two machines and a power cut, all on one machine.

A guest boots, makes a file system on its drive and starts the client. The server runs outside, beyond a
network that falls silent with the guest. The guest's power is cut after a number of acknowledged operations,
which a seed draws. The guest boots again and verifies by itself: another boot id of the same machine proves
the cut, so no attestation is needed. This proves class `os`; a virtual machine's drive has no counter that
would prove more.

A cut returns the answer of `verify`. `VmCut.as_expected` compares it with the expected verdict for the drive.
"""

from __future__ import annotations

import asyncio
import json
import random
import shlex
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from durability.errors import SetupError, UsageError
from durability.evidence.verdict import EXIT_CODES, VerdictWord
from durability.formats.plan import WRITE_THROUGH_METHODS, Plan
from durability_client.system import output_files
from durability_lab.drive.drive_check import DriveCheck
from durability_lab.drive.drive_log import Broken
from durability_lab.support.cleanup import watched_directory
from durability_lab.support.loads import Load, run_options
from durability_lab.support.local_server import LocalServer, local_server
from durability_lab.truth.comparison import LogAlone
from durability_lab.truth.expected_verdict import expected_of
from durability_lab.truth.reference_judge import Label
from durability_lab.vm_rig import guest_machine
from durability_lab.vm_rig.guest_machine import (
    DEADLINE_S,
    GuestMachine,
    Image,
    compile_bytecode,
    make_image,
)
from durability_lab.vm_rig.guest_programs import DRIVES, Bus
from durability_lab.vm_rig.network import GuestNetwork
from durability_server.runs.run import Run

CUT_AFTER = range(300, 1500)  # operations
NAMES_CUT_AFTER = range(150, 500)  # fewer, because each operation on names takes two or three syncs
TARGET_MIB = 16  # for all writers, except for workloads on names; gives credit for seconds of server delay
_POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The parts that all cuts share: the network, the server in it, and the guests' image."""

    network: GuestNetwork
    lab: LocalServer
    image: Image


@dataclass(frozen=True, slots=True, kw_only=True)
class VmCut:
    """One cut, and the answer of the guest's own `verify`."""

    drive: str
    load: Load
    seed: int
    cut_after: int  # the cut came after this number of acknowledged operations
    plan: Plan  # of the run, as the server has it
    acked: tuple[int, ...]  # frontiers of the run, as the server has them
    session_end: str  # how the session ended for the server
    drive_check: DriveCheck  # the drive's promises, kept and broken
    mounted: bool  # the file system could be mounted after the cut; False on a raw device
    exit_code: int  # of `verify --json`
    document: dict[str, Any]  # of `verify --json`
    seconds: dict[str, float]  # duration of each step
    console: str  # output of the guest's kernel and programs in both boots

    @property
    def expected(self) -> VerdictWord:
        """The expected verdict for the drive."""
        return expected_of(self.drive)

    @property
    def broken_records(self) -> int:
        """Number of sectors with a broken promise for a record that must be on the target."""
        return sum(self._must_be_there(one) for one in self.drive_check.broken if one.promised)

    @property
    def as_expected(self) -> bool:
        """Whether the cut has no shortcomings. A lying drive may be durable if this cut broke no promise of a
        record."""
        return not self.shortcomings

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """The unexpected facts about the cut, as sentences.

        Durable is expected only with class `os`, proof, no attestation, silence, records at risk, and no
        broken promise for a record. Loss is expected only if the drive broke a promise. Any other verdict
        must be the expected one for the drive.
        """
        verdict, document = self.document["verdict"], self.document
        if verdict != "durable":
            faults = {
                f"{verdict}, expected {self.expected}": verdict != self.expected,
                "loss, and no promise is broken": verdict == "loss" and not self.drive_check.broken,
            }
        else:
            cut, at_risk = document["cut"], document["at_risk"]
            faults = {
                f"durable, and {self.broken_records} sectors of records are broken": self.broken_records > 0,
                f"durable with a cut of class {cut['class']}": cut["class"] != "os",
                "durable without proof of the cut": not cut["proof"],
                "durable by attestation": cut["attested"] is not None,
                f"durable, and the session ended with {self.session_end}": self.session_end != "silence",
                "durable with nothing at risk": at_risk["ms1000"] == 0,
            }
        faults[f"{verdict} with exit code {self.exit_code}"] = self.exit_code != EXIT_CODES[verdict]
        return tuple(sentence for sentence, so in faults.items() if so)

    def _must_be_there(self, one: Broken) -> bool:
        """Whether the promised record is the newest acknowledged one of its slot, and its loss has no
        excuse."""
        label = Label.of(one.promised)
        place = label.place(self.plan)
        if place is None or not 0 <= place[0] < self.plan.writers:
            return False
        return LogAlone(plan=self.plan, acked=self.acked).excuse(place, label, one.kind) is None


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """A site for any number of cuts, one at a time. Raises SetupError if this machine lacks a requirement."""
    problem = await asyncio.to_thread(guest_machine.missing)
    if problem:
        raise SetupError(f"cannot set up the virtual machine: {problem}")
    with watched_directory("durability-guest-") as directory, GuestNetwork() as network:
        await asyncio.to_thread(compile_bytecode)
        image = await asyncio.to_thread(make_image, directory)
        async with local_server(network.listener(), within=network.call) as lab:
            yield Site(network=network, lab=lab, image=image)


def bus_of(load: Load) -> Bus:
    """The bus of the guest's drive: NVMe, or SATA if durability depends on FUA (see `guest_programs`).

    A file system sends its journal's commits, and writes that are durable by themselves, with FUA and without
    a flush. The journal is needed for everything but overwrites. On a raw device, Linux sends a flush after a
    durable write, with or without FUA.
    """
    overwrites = not load.contract.needs_file and load.sync not in WRITE_THROUGH_METHODS
    return "nvme" if overwrites or load.file_system is None else "sata"


async def cut(
    site: Site,
    drive: str,
    load: Load,
    *,
    seed: int,
    tell: Callable[[str], None] = lambda _: None,
    log: Path | None = None,
) -> VmCut:
    """Boot, run, cut, boot and verify, on a new machine with a new drive. `drive`: a model's spec.

    `seed` draws the time of the cut and the drive's chances. `tell` is called with each finished step. The
    guest's output is appended to `log`. Raises UsageError if the guest does not support the load, and
    SetupError if there is no verdict.
    """
    if load.file_system not in (None, "ext4"):
        raise UsageError(f"the guest supports ext4 or a raw device, not {load.file_system}")
    settings = {
        "credential": site.lab.credential.read_text(encoding="utf-8").strip(),
        "run_options": shlex.join(run_options(load, mib=TARGET_MIB)),
    }
    with GuestMachine(
        site.image,
        site.network,
        drive=drive,
        bus=bus_of(load),
        file_system=load.file_system is not None,
        seed=seed,
        settings=settings,
    ) as guest:
        try:
            return await _cycle(site.lab, guest, load, _Steps(tell), seed=seed)
        finally:
            if log is not None:
                await asyncio.to_thread(_append, log, guest.console)


async def _cycle(lab: LocalServer, guest: GuestMachine, load: Load, steps: _Steps, *, seed: int) -> VmCut:
    moments = NAMES_CUT_AFTER if load.contract.by_name else CUT_AFTER
    cut_after = random.Random(seed).choice(moments)
    run = await _run_until_cut(lab, guest, load, steps, cut_after)
    guest.unplug()
    steps.done("run", f"{sum(run.frontiers.acked):,} operations are acknowledged; the power is cut")
    drive_check = await asyncio.to_thread(guest.drive_check)
    await _until_noticed(run)
    steps.done("silence", f"the server records the end of the session: {run.session_end}")
    mounted, exit_code, document = await _boot_and_verify(guest, load, steps)
    return VmCut(
        drive=guest.drive,
        load=load,
        seed=seed,
        cut_after=cut_after,
        plan=run.plan,
        acked=run.frontiers.acked,
        session_end=run.session_end,
        drive_check=drive_check,
        mounted=mounted,
        exit_code=exit_code,
        document=document,
        seconds=steps.seconds,
        console=guest.console,
    )


def _append(log: Path, text: str) -> None:
    with output_files.to_append(log, "the guests' log") as file:
        file.write(text.encode())


async def _run_until_cut(
    lab: LocalServer, guest: GuestMachine, load: Load, steps: _Steps, cut_after: int
) -> Run:
    """The first boot, until the server has `cut_after` acknowledgements and records at risk."""
    target = guest_machine.FILE_TARGET if load.file_system else DRIVES[bus_of(load)]
    await guest.boot(setup=True)
    await guest.report("booted")
    steps.done("boot", "a machine with a new drive has booted")
    await guest.report("made")
    steps.done(
        "make", "a file system is created, the client starts" if load.file_system else "the client starts"
    )
    client = asyncio.create_task(guest.report("ended"))
    try:
        while not (run := lab.live_run(target)):
            if client.done():
                raise guest.failure(f"the client ended before the cut, exit code {client.result()[1]}")
            await asyncio.sleep(_POLL_S)
        steps.done("arm", "the run is armed")
        if not (
            await lab.until_acked(target, cut_after, client, timeout_s=DEADLINE_S)
            and await lab.until_at_risk(target, client, timeout_s=DEADLINE_S)
        ):
            raise guest.failure(f"the client ended before the cut, exit code {client.result()[1]}")
        return run
    finally:
        client.cancel()


async def _until_noticed(run: Run) -> None:
    """Wait until the server has recorded the end of the session."""
    async with asyncio.timeout(DEADLINE_S):
        while run.session_end == "live":  # noqa: ASYNC110 - an event would slow down every receipt
            await asyncio.sleep(_POLL_S)


async def _boot_and_verify(
    guest: GuestMachine, load: Load, steps: _Steps
) -> tuple[bool, int, dict[str, Any]]:
    """The second boot: whether the file system was mounted, and exit code and document of `verify`."""
    mounted = False
    await guest.boot(setup=False)
    await guest.report("booted")
    steps.done("boot again", "the power is back, and the machine has booted again")
    if load.file_system:
        mounted = (await guest.report("mounted", "unmountable"))[0] == "mounted"
        steps.done("mount", "its file system is mounted" if mounted else "its file system does not mount")
    code, _, text = (await guest.report("verified"))[1].partition(" ")
    if not text:
        raise guest.failure(f"the guest's verify gave no verdict, exit code {code}")
    steps.done("verify", f"the guest has verified, exit code {code}")
    return mounted, int(code), json.loads(text)


class _Steps:
    """Reports each finished step and records its duration."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.seconds: dict[str, float] = {}
        self._tell = tell
        self._since = time.monotonic()

    def done(self, name: str, text: str) -> None:
        """Report `text`: the step `name` is finished."""
        now = time.monotonic()
        self.seconds[name] = now - self._since
        self._since = now
        self._tell(f"{self.seconds[name]:6.1f} s  {text}")
