"""Whole cycles on a block rig: run, cut under load, power on, verify; and the matrix of them.

Server, client and verify are the product's own, client and verify as the commands that people type. The cut
comes after a number of acknowledged operations that a seed draws, never after a time; what the drive loses at
that moment is the kernel's scheduling as well, so no two cycles are quite alike.

Refuses to judge: a cycle returns what `verify` said, and `Outcome.as_expected` holds that against what the
drive is.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from durability.errors import EXIT_LOSS, EXIT_OK, SetupError
from durability.plan import SyncMethod, Workload
from durability.units import format_run
from durability_lab.blockdev import BlockRig, DriveName, FileSystemName, MountError
from durability_lab.loopback import Loopback

ATTESTATION = "the lab killed the drive's process with SIGKILL and attached the drive anew"
CUT_AFTER = range(600, 3000)  # operations; even a slow file system gets there in seconds
_COMMAND = (sys.executable, "-c", "from durability.cli import main; main()")
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the client does on the rig; `file_system` None is the raw device."""

    file_system: FileSystemName | None
    workload: Workload = "overwrite"
    writers: int = 1
    sync: SyncMethod = "fdatasync"
    direct: bool = False

    def __str__(self) -> str:
        sync = f"{self.sync}+direct" if self.direct else self.sync
        return f"{self.file_system or 'raw'} {self.workload} x{self.writers} {sync}"

    def options(self) -> list[str]:
        """The options of `durability run`."""
        options = ["--size", "32MiB", "--workload", self.workload, "--writers", str(self.writers)]
        options += ["--sync", self.sync]
        options += ["--direct"] if self.direct else []
        options += ["--destroy-data"] if self.file_system is None else []
        return options


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command answered: its exit code, its JSON document ({} if none), and what it told people."""

    exit_code: int
    document: dict[str, Any]
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One cycle: a cut after `cut_after` acknowledged operations, and what `verify` answered.

    `mounted`: the file system could be mounted after the cut; on the raw device there is none to mount.
    """

    drive: DriveName
    load: Load
    cut_after: int
    mounted: bool
    answer: Answer

    @property
    def as_expected(self) -> bool:
        """Honest drives: durable, at class power, with records at risk. The others: loss."""
        document = self.answer.document
        if is_honest(self.drive):
            return (
                self.answer.exit_code == EXIT_OK
                and document["verdict"] == "durable"
                and document["cut"]["class"] == "power"
                and document["at_risk"]["ms1000"] > 0
            )
        return self.answer.exit_code == EXIT_LOSS and document["verdict"] == "loss"


def is_honest(drive: DriveName) -> bool:
    """Whether the drive keeps what it said it has kept."""
    return drive in ("honest", "write-through", "filter-honest")


class Client:
    """A `durability run` that has been started. `run` is the run's id, as `--run` takes it, once it is armed;
    `said` is its output, once it has ended."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.run = ""
        self.said = asyncio.create_task(process.communicate())

    async def end(self) -> Answer:
        """Its end, and what it said."""
        async with asyncio.timeout(_TIMEOUT_S):
            _, said = await asyncio.shield(self.said)
        assert self.process.returncode is not None
        return Answer(exit_code=self.process.returncode, document={}, said=_text(said))


@asynccontextmanager
async def powered(rig: BlockRig) -> AsyncIterator[BlockRig]:
    """The rig for the time of a block, set up and taken down without keeping the server from its clients."""
    await asyncio.to_thread(rig.open)
    try:
        yield rig
    finally:
        await asyncio.to_thread(rig.close)


@asynccontextmanager
async def running(lab: Loopback, target: Path, load: Load, *, acked: int) -> AsyncIterator[Client]:
    """A client on `target` that has had `acked` operations acknowledged; killed at the end if it still runs.

    Raises SetupError where it ends before.
    """
    client = Client(await _start(lab, "run", str(target), *load.options()))
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


async def verify(lab: Loopback, target: Path, *options: str) -> Answer:
    """What `durability verify --json` says of `target`."""
    process = await _start(lab, "verify", str(target), "--json", *options)
    async with asyncio.timeout(_TIMEOUT_S):
        document, said = await process.communicate()
    assert process.returncode is not None
    return Answer(
        exit_code=process.returncode, document=json.loads(document) if document else {}, said=_text(said)
    )


async def cycle(lab: Loopback, drive: DriveName, load: Load, *, seed: int) -> Outcome:
    """Run, cut, power on, verify, on a new rig; `seed` draws the moment of the cut and the drive's chances.

    Raises SetupError where the run does not get as far as the cut.
    """
    cut_after = random.Random(seed).choice(CUT_AFTER)
    async with powered(BlockRig(drive, load.file_system, seed=seed)) as rig:
        async with running(lab, rig.target, load, acked=cut_after) as client:
            await asyncio.to_thread(rig.cut)
            await client.end()
        mounted = await power_on(rig)
        options = ["--run", client.run, "--attest-cut", ATTESTATION]
        options += [] if mounted or not rig.file_system else ["--device", str(rig.device)]
        answer = await verify(lab, rig.target, *options)
    return Outcome(drive=drive, load=load, cut_after=cut_after, mounted=mounted, answer=answer)


async def power_on(rig: BlockRig) -> bool:
    """Give the power back and mount; whether there is a file system that could be mounted."""
    await asyncio.to_thread(rig.power_on)
    if rig.file_system is None:
        return False
    try:
        await asyncio.to_thread(rig.mount)
    except MountError:
        return False
    return True


def loads() -> Iterator[Load]:
    """Every load of the matrix: each file system and the raw device, with each workload, writers and sync."""
    file_systems: tuple[FileSystemName | None, ...] = ("ext4", "xfs", "btrfs", None)
    workloads: tuple[Workload, ...] = ("overwrite", "append")
    for file_system in file_systems:
        for workload in workloads if file_system else workloads[:1]:
            for writers in (1, 4):
                load = Load(file_system=file_system, workload=workload, writers=writers)
                yield load
                yield replace(load, sync="dsync", direct=True)


def matrix() -> Iterator[tuple[DriveName, Load]]:
    """Every cell: the model's honest drive and its liar under all loads, the others under the simplest."""
    everything = tuple(loads())
    simple = tuple(load for load in everything if load == Load(file_system=load.file_system))
    plan: tuple[tuple[DriveName, tuple[Load, ...]], ...] = (
        ("honest", everything),
        ("write-through", simple),
        ("filter-honest", simple),
        ("liar", everything),
        ("filter-amnesiac", simple),
    )
    for drive, its_loads in plan:
        for load in its_loads:
            yield drive, load


async def _start(lab: Loopback, command: str, target: str, *options: str) -> asyncio.subprocess.Process:
    common = ("--server", lab.address, "--token-file", str(lab.token_file))
    return await asyncio.create_subprocess_exec(
        *_COMMAND,
        command,
        target,
        *common,
        *options,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def _text(said: bytes) -> str:
    return said.decode(errors="replace").strip()
