"""Rig C: two machines and the plug, all on one machine.

A guest boots, makes a file system on its drive and starts the client; the server runs outside, beyond a
network that falls silent with the guest. After a number of acknowledged operations, drawn by a seed, its
power is cut. The guest boots again and verifies by itself: another boot id of the same machine proves the
cut, so no attestation is needed. The class that this shows is `os`; a virtual machine's drive has no counter
that would show more.

Refuses to judge: a cut returns what `verify` said, and `VmCut.as_expected` compares that with what the drive
is.
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
NAMES_CUT_AFTER = range(150, 500)  # each takes two syncs or three
TARGET_MIB = 16  # of all writers, except of names: credit for seconds, should the server be held up
_POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What all cuts share: the network, the server in it, and what guests start from."""

    network: GuestNetwork
    lab: LocalServer
    image: Image


@dataclass(frozen=True, slots=True, kw_only=True)
class VmCut:
    """One cut after `cut_after` acknowledged operations, and what the guest's own `verify` said of it.

    `plan` and `acked` are the run's, as the server has them; `session_end` is how the server saw the client
    go; `drive_check` says which promises the drive kept. `mounted`: the file system could be mounted after
    the cut; on the raw device there is none to mount. `document` is that of `verify --json`. `seconds`: how
    long each step took. `console`: what the guest's kernel and programs said in both boots.
    """

    drive: str
    load: Load
    seed: int
    cut_after: int
    plan: Plan
    acked: tuple[int, ...]
    session_end: str
    drive_check: DriveCheck
    mounted: bool
    exit_code: int
    document: dict[str, Any]
    seconds: dict[str, float]
    console: str

    @property
    def expected(self) -> VerdictWord:
        """The expected verdict for the drive."""
        return expected_of(self.drive)

    @property
    def broken_records(self) -> int:
        """Sectors whose promise the drive broke, of records that must be there after all."""
        return sum(self._must_be_there(one) for one in self.drive_check.broken if one.promised)

    @property
    def as_expected(self) -> bool:
        """Whether it got that verdict, or could not: a liar that this time broke no promise of a record."""
        return not self.shortcomings

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """What is not as expected, in sentences: the wrong verdict, or the right one for want of anything.

        Durable only with class `os`, proof, no attestation, silence and records at risk; a loss only of a
        drive that broke a promise.
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
        """Whether the promised record is the newest acknowledged of its slot, and nothing excuses it."""
        label = Label.of(one.promised)
        place = label.place(self.plan)
        if place is None or not 0 <= place[0] < self.plan.writers:
            return False
        return LogAlone(plan=self.plan, acked=self.acked).excuse(place, label, one.kind) is None


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """The place of any number of cuts, one at a time. Raises SetupError for what this machine lacks."""
    problem = await asyncio.to_thread(guest_machine.missing)
    if problem:
        raise SetupError(f"cannot set up the virtual machine: {problem}")
    with watched_directory("durability-guest-") as directory, GuestNetwork() as network:
        await asyncio.to_thread(compile_bytecode)
        image = await asyncio.to_thread(make_image, directory)
        async with local_server(network.listener(), within=network.call) as lab:
            yield Site(network=network, lab=lab, image=image)


def bus_of(load: Load) -> Bus:
    """What the guest's drive is attached to: NVMe, but SATA where anything hangs on FUA (see
    `guest_programs`).

    On a file system that is its journal, which carries what is not an overwrite, and each write that is to be
    durable by itself: it is sent with FUA and no flush. On a raw device Linux sends a flush after such a
    write, with FUA or without.
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
    """Boot, run, pull the plug, boot, verify: on a new machine with a new drive, a model's spec.

    `seed` draws the moment of the cut and the drive's chances; `tell` gets what happens; what the guest
    says is appended to `log`. Raises UsageError for a load that no guest can have, and SetupError where it
    does not get as far as a verdict.
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
    """The first boot, up to the moment at which the server has `cut_after` acknowledgements."""
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
    """Wait until the server knows that the session is over."""
    async with asyncio.timeout(DEADLINE_S):
        while run.session_end == "live":  # noqa: ASYNC110 - an event would cost every receipt something
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
    """Tells what has been done, and keeps how long it took."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.seconds: dict[str, float] = {}
        self._tell = tell
        self._since = time.monotonic()

    def done(self, name: str, text: str) -> None:
        """The step `name` is over."""
        now = time.monotonic()
        self.seconds[name] = now - self._since
        self._since = now
        self._tell(f"{self.seconds[name]:6.1f} s  {text}")
