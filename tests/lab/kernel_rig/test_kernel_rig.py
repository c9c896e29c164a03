"""The product on a real kernel over drives that lose power: honest drives pass, liars are caught.

A part of what `durability lab matrix` does at length; together the loads here show every file system,
workload, sync and number of writers on both kinds of drive.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from durability.errors import EXIT_ENVIRONMENT, EXIT_INCONCLUSIVE
from durability.formats.plan import Plan
from durability_client.target.kernel_storage import KernelStorage
from durability_lab.kernel_rig.block_rig import BlockRig
from durability_lab.kernel_rig.cycle import ATTESTATION, cycle, export, power_on, powered, running, verify
from durability_lab.support.loads import FileSystemName, Load
from durability_lab.support.local_server import local_server
from tests.lab.kernel_rig.under_load import again_after_a_standstill, codes, require_durable
from tests.waiting import wait_for

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.timeout(900)]

MOMENTS = range(200, 800)  # operations; the matrix cuts later
MakePlan = Callable[..., Plan]
EXT4 = Load(file_system="ext4")
LOADS = [
    EXT4,
    Load(file_system="ext4", workload="append", writers=4, sync="dsync", direct=True),
    Load(file_system="xfs", writers=4),
    Load(file_system="xfs", workload="append"),
    Load(file_system="btrfs", workload="append", writers=4),
    Load(file_system="btrfs", sync="dsync", direct=True),
    Load(file_system="ext4", workload="create", group=4),
    Load(file_system="xfs", workload="rename", writers=4),
    Load(file_system="btrfs", workload="unlink"),
    Load(file_system=None, writers=4),
    Load(file_system=None, sync="dsync", direct=True),
]


@pytest.mark.parametrize("file_system", ["ext4", "xfs", "btrfs"])
def test_a_growing_file_does_not_sync_after_a_commit_that_failed(
    file_system: FileSystemName, seed: int, make_plan: MakePlan
) -> None:
    """After a failed commit, syncs of all growing files fail. ext4's own second sync would return 0, and lost
    records would be acknowledged."""
    plan = make_plan(workload="append", pattern="sequential", direct=True)
    with BlockRig("write-through", file_system, seed=seed) as rig, mmap.mmap(-1, plan.record_bytes) as record:
        storage = KernelStorage(rig.target)
        files = [storage.open(plan.extent(writer).suffix, plan=plan, create=True) for writer in range(2)]
        for file in files:
            file.sync()
        storage.sync_directory()
        for file in files:
            file.pwrite(record, 0)
        rig.cut()
        for file in files:
            with pytest.raises(OSError, match=r"Input/output error|Read-only file system"):
                file.sync()
            file.close()


@pytest.mark.parametrize("load", LOADS, ids=str)
@again_after_a_standstill
async def test_honest_drive_is_durable(load: Load, seed: int) -> None:
    """A cut of an honest drive under load: durable, class power, with records at risk."""
    async with local_server() as lab:
        outcome = await cycle(lab, "honest", load, seed=seed, moments=MOMENTS)
    require_durable(outcome.answer)
    assert outcome.as_expected, outcome.answer
    assert outcome.truth is not None
    assert (outcome.truth.broken, outcome.truth.defects) == (0, ())
    assert outcome.answer.document["cut"]["attested"] == ATTESTATION


@pytest.mark.parametrize("load", LOADS, ids=str)
async def test_liar_is_loss(load: Load, seed: int) -> None:
    """A cut of a drive that ignores flush: loss, also where its file system does not mount any more.

    Each finding is one that the drive's log confirms.
    """
    async with local_server() as lab:
        outcome = await cycle(lab, "flush-ignored", load, seed=seed, moments=MOMENTS)
    assert outcome.as_expected, outcome.answer
    assert outcome.truth is not None
    assert outcome.truth.broken > 0
    assert outcome.truth.defects == ()


@pytest.mark.parametrize("drive", ["write-through", "filter-honest"])
@again_after_a_standstill
async def test_other_honest_drives_are_durable(drive: str, seed: int) -> None:
    """A drive without a volatile cache, and one that shares no code with the model, pass as well."""
    async with local_server() as lab:
        outcome = await cycle(lab, drive, EXT4, seed=seed, moments=MOMENTS)
    require_durable(outcome.answer)
    assert outcome.as_expected, outcome.answer


@pytest.mark.parametrize("load", [EXT4, Load(file_system=None)], ids=str)
async def test_drive_that_comes_back_empty_is_loss(load: Load, seed: int) -> None:
    """No superblock, no file system, nothing: the drive's identity alone makes it the run's target."""
    async with local_server() as lab:
        outcome = await cycle(lab, "filter-amnesiac", load, seed=seed)
    assert not outcome.mounted
    assert outcome.as_expected, outcome.answer


@again_after_a_standstill
async def test_cut_that_nobody_attests_is_inconclusive(seed: int) -> None:
    """An honest drive after a real cut, but without the operator's word: not durable, and no loss."""
    async with local_server() as lab, powered(BlockRig("honest", "ext4", seed=seed)) as rig:
        async with running(lab, rig.target, EXT4, acked=500) as client:
            rig.cut()
            await client.end()
        assert await power_on(rig)
        unattested = await verify(lab, rig.target)
        attested = await verify(lab, rig.target, "--attest-cut", ATTESTATION)
    assert unattested.exit_code == EXIT_INCONCLUSIVE, unattested
    require_durable(attested)


async def test_client_that_stopped_cleanly_is_inconclusive(seed: int) -> None:
    """Records that met no cut prove nothing, whatever the operator attests."""
    async with local_server() as lab, powered(BlockRig("honest", "ext4", seed=seed)) as rig:
        async with running(lab, rig.target, EXT4, acked=500) as client:
            client.process.terminate()
            await client.end()
        rig.cut()
        assert await power_on(rig)
        answer = await verify(lab, rig.target, "--attest-cut", ATTESTATION)
    assert answer.exit_code == EXIT_INCONCLUSIVE, answer


@pytest.mark.parametrize("attested", [True, False])
async def test_client_that_was_killed_is_inconclusive(attested: bool, seed: int) -> None:
    """A client that dies alone, on a machine that stays up, met no cut, attested or not."""
    async with local_server() as lab, powered(BlockRig("honest", "ext4", seed=seed)) as rig:
        async with running(lab, rig.target, EXT4, acked=500) as client:
            client.process.kill()
            await client.end()
        answer = await verify(lab, rig.target, *(["--attest-cut", ATTESTATION] if attested else []))
    assert answer.exit_code == EXIT_INCONCLUSIVE, answer


@pytest.mark.parametrize(
    ("load", "reads"),
    [
        (EXT4, 12),
        (Load(file_system=None), 9),
        (Load(file_system="xfs", workload="rename"), 100),
        (Load(file_system="btrfs"), 200),
    ],
    ids=str,
)
@again_after_a_standstill
async def test_cut_while_verify_reads_is_no_loss(load: Load, reads: int, seed: int) -> None:
    """An honest drive loses power again at one of the reads of `verify`. That scan is unfinished, and the
    next pass gives durable."""
    drive = BlockRig("honest", load.file_system, seed=seed, disturbed=True)
    async with local_server() as lab, powered(drive) as rig:
        async with running(lab, rig.target, load, acked=500) as client:
            rig.cut()
            await client.end()
        assert await power_on(rig) is bool(load.file_system)
        options = ("--run", client.run, "--attest-cut", ATTESTATION)
        rig.events.happen(reads=reads)
        interrupted = await verify(lab, rig.target, *options)
        wait_for(lambda: not rig.powered, lambda: interrupted)
        rig.cut()
        await power_on(rig)
        complete = await verify(lab, rig.target, *options)
    assert interrupted.exit_code == EXIT_INCONCLUSIVE, interrupted
    assert "scan-unfinished" in codes(interrupted)
    require_durable(complete)


@pytest.mark.parametrize(
    "load", [Load(file_system="ext4", workload="append"), Load(file_system="xfs", workload="unlink")], ids=str
)
@again_after_a_standstill
async def test_export_taken_during_the_run_is_behind(load: Load, seed: int, tmp_path: Path) -> None:
    """An honest target against the log of long before the cut: several files of `append`, many names."""
    early, late = (500, 7000) if load.workload == "append" else (10, 350)
    async with local_server() as lab, powered(BlockRig("honest", load.file_system, seed=seed)) as rig:
        async with running(lab, rig.target, load, acked=early) as client:
            export_path = tmp_path / client.run
            await export(lab, client.run, export_path)
            assert await lab.until_acked(rig.target, late, client.said)
            rig.cut()
            await client.end()
        assert await power_on(rig)
        options = ("--run", client.run, "--attest-cut", ATTESTATION)
        behind = await verify(lab, rig.target, *options, "--from-export", str(export_path))
        complete = await verify(lab, rig.target, *options)
    assert behind.exit_code == EXIT_INCONCLUSIVE, behind
    assert "log-behind" in codes(behind)
    require_durable(complete)


async def test_wrong_places_are_no_loss(tmp_path: Path, seed: int) -> None:
    """Another file, and the target's path while its file system is not mounted: exit 5, never loss."""
    other = tmp_path / "other"
    other.write_bytes(bytes(1 << 20))
    async with local_server() as lab, powered(BlockRig("flush-ignored", "ext4", seed=seed)) as rig:
        async with running(lab, rig.target, EXT4, acked=500) as client:
            run = client.run
            rig.cut()
            await client.end()
        rig.power_on()
        for place in (other, rig.target):
            answer = await verify(lab, place, "--run", run, "--attest-cut", ATTESTATION)
            assert answer.exit_code == EXIT_ENVIRONMENT, answer


async def test_target_of_a_later_run_is_superseded(seed: int) -> None:
    """After another run on the same target the earlier one cannot be judged, and is no loss."""
    async with local_server() as lab, powered(BlockRig("honest", "ext4", seed=seed)) as rig:
        runs = []
        for _ in range(2):
            async with running(lab, rig.target, EXT4, acked=500) as client:
                runs.append(client.run)
                client.process.terminate()
                await client.end()
        answer = await verify(lab, rig.target, "--run", runs[0], "--attest-cut", ATTESTATION)
    assert answer.exit_code == EXIT_INCONCLUSIVE, answer
    assert "superseded" in codes(answer)


def test_abandoned_reader_lets_go_of_the_streams(seed: int) -> None:
    """Hanging reads of a drive are abandoned, and a reader of the command's output still gets its end."""
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from durability_client.verify.scan.scan_process import ScanProcess\n"
        "from durability_client.target.kernel_storage import KernelStorage\n"
        "with ScanProcess(KernelStorage(Path(sys.argv[1])), stall_s=1.0) as scan_process:\n"
        "    asyncio.run(scan_process.superblocks(None))\n"
    )
    with BlockRig("hanging:share=1", None, seed=seed) as rig:
        rig.cut()
        rig.power_on()
        command = [sys.executable, "-c", script, str(rig.target)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert "returned nothing for 1 s and were abandoned" in done.stderr
