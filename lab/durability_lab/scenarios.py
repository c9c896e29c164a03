"""Whole cycles on a block rig: serve, run, cut under load, power on, verify; and the matrix of them.

Server, client and verify are the product's own, client and verify as the commands that people type. The cut
comes after a number of acknowledged operations that a seed draws, never after a time, so that a cycle can be
asked for again; what the drive loses at that moment is the kernel's scheduling as well, and no two cycles are
alike.

Refuses to judge: a cycle returns what `verify` said, and `Outcome.as_expected` holds it against what the
drive is.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from durability.errors import EXIT_LOSS, EXIT_OK, SetupError
from durability.plan import SyncMethod, Workload
from durability_lab.blockdev import BlockRig, DriveName, FileSystemName, MountError
from durability_lab.loopback import Loopback

ATTESTATION = "the lab killed the drive's process with SIGKILL and attached the drive anew"
_LYING: tuple[DriveName, ...] = ("liar", "filter-amnesiac")
_COMMAND = (sys.executable, "-c", "from durability.cli import main; main()")
_TIMEOUT_S = 120.0
_POLL_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the client does on the rig: `file_system` None is the raw device."""

    file_system: FileSystemName | None
    workload: Workload = "overwrite"
    writers: int = 1
    sync: SyncMethod = "fdatasync"
    direct: bool = False

    def __str__(self) -> str:
        sync = f"{self.sync}+direct" if self.direct else self.sync
        return f"{self.file_system or 'raw'} {self.workload} x{self.writers} {sync}"

    def arguments(self) -> list[str]:
        """The options of `durability run`."""
        options = ["--size", "32MiB", "--workload", self.workload, "--writers", str(self.writers)]
        options += ["--sync", self.sync]
        options += ["--direct"] if self.direct else []
        options += ["--destroy-data"] if self.file_system is None else []
        return options


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One cycle: a cut after `cut_after` acknowledged operations, and `verify`, which ended with `exit_code`.

    `document` is verify's JSON document, empty where it wrote none; `said` is what it told people.
    """

    drive: DriveName
    load: Load
    cut_after: int
    mounted: bool
    exit_code: int
    document: dict[str, Any]
    said: str

    @property
    def as_expected(self) -> bool:
        """Honest: durable, at class power, with records at risk. Lying: loss."""
        if self.drive in _LYING:
            return self.exit_code == EXIT_LOSS and self.document.get("verdict") == "loss"
        return (
            self.exit_code == EXIT_OK
            and self.document.get("verdict") == "durable"
            and self.document["cut"]["class"] == "power"
            and self.document["at_risk"]["ms1000"] > 0
        )


async def cycle(lab: Loopback, drive: DriveName, load: Load, *, seed: int, cut_after: int) -> Outcome:
    """One cycle on a rig of its own. Raises SetupError where the run does not get as far as the cut."""
    with BlockRig(drive, load.file_system, seed=seed) as rig:
        await run_until_cut(lab, rig, load, cut_after=cut_after)
        return await power_on_and_verify(lab, rig, load, cut_after=cut_after)


async def run_until_cut(lab: Loopback, rig: BlockRig, load: Load, *, cut_after: int) -> None:
    """Run the client, cut the drive under it, and wait for its end."""
    client = await _start(lab, "run", str(rig.target), *load.arguments())
    said = asyncio.create_task(client.communicate())
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            while lab.acked(rig.target) < cut_after:
                if said.done():
                    raise SetupError(f"the client ended before the cut: {_text(said.result()[1])}")
                await asyncio.sleep(_POLL_S)
            await asyncio.to_thread(rig.cut)
            await said
    finally:
        if client.returncode is None:
            client.kill()
            await said


async def power_on_and_verify(lab: Loopback, rig: BlockRig, load: Load, *, cut_after: int) -> Outcome:
    """Give the power back and let `durability verify` judge, with `--device` where nothing can be mounted."""
    rig.power_on()
    mounted = rig.file_system is not None
    if mounted:
        try:
            rig.mount()
        except MountError:
            mounted = False
    unmountable = ["--device", str(rig.device)] if rig.file_system and not mounted else []
    judge = await _start(lab, "verify", str(rig.target), "--attest-cut", ATTESTATION, "--json", *unmountable)
    async with asyncio.timeout(_TIMEOUT_S):
        answer, said = await judge.communicate()
    assert judge.returncode is not None
    return Outcome(
        drive=rig.drive,
        load=load,
        cut_after=cut_after,
        mounted=mounted,
        exit_code=judge.returncode,
        document=json.loads(answer) if answer else {},
        said=_text(said),
    )


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


def loads() -> Iterator[Load]:
    """Every load of the matrix: each file system and the raw device, with each workload, writers and sync."""
    file_systems: tuple[FileSystemName | None, ...] = ("ext4", "xfs", "btrfs", None)
    workloads: tuple[Workload, ...] = ("overwrite", "append")
    for file_system in file_systems:
        for workload in workloads if file_system else workloads[:1]:
            for writers in (1, 4):
                yield Load(file_system=file_system, workload=workload, writers=writers)
                yield Load(
                    file_system=file_system, workload=workload, writers=writers, sync="dsync", direct=True
                )


def _text(said: bytes) -> str:
    return said.decode(errors="replace").strip()
