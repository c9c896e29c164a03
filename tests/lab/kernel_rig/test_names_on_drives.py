"""Names on a real kernel over drives that lose power: honest stacks keep their promises, liars are caught.

What `create`, `rename` and `unlink` rely on is the fsync of a directory, which each file system does in its
own way. Together the loads show each of them on each file system, by one writer and by several, by one
operation to a sync of the directory and by several, and with files that sync every write; a liar gets half
of them, on which each workload and file system comes up.
"""

from __future__ import annotations

import pytest

from durability_client.target.kernel_storage import KernelStorage
from durability_lab.kernel_rig.block_rig import BlockRig
from durability_lab.kernel_rig.cycle import cycle
from durability_lab.support.loads import FileSystemName, Load
from durability_lab.support.local_server import local_server
from tests.lab.kernel_rig.under_load import again_after_a_standstill, require_durable

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.timeout(900)]

LOADS = [
    Load(file_system="ext4", workload="create"),
    Load(file_system="ext4", workload="rename", writers=4),
    Load(file_system="ext4", workload="unlink", writers=2, group=8),
    Load(file_system="xfs", workload="create", writers=2, group=8),
    Load(file_system="xfs", workload="rename"),
    Load(file_system="xfs", workload="unlink", writers=4),
    Load(file_system="btrfs", workload="create", writers=4),
    Load(file_system="btrfs", workload="rename", sync="dsync", direct=True),
    Load(file_system="btrfs", workload="unlink"),
]
MOMENTS = range(100, 400)  # operations; the matrix cuts later
# btrfs fails with an I/O error where it does not find what its tree points to; where no file
# system mounts, the target is gone.
LOST = {"absent", "stale", "resurrected", "torn", "misdirected", "unreadable", "truncated"}


@pytest.mark.parametrize("load", LOADS, ids=str)
@again_after_a_standstill
async def test_names_on_an_honest_drive_are_durable(load: Load, seed: int) -> None:
    """A cut of an honest drive while names are made, replaced or removed: durable, with records at risk."""
    async with local_server() as lab:
        outcome = await cycle(lab, "honest", load, seed=seed, moments=MOMENTS)
    require_durable(outcome.answer)
    assert outcome.as_expected, outcome.answer


@pytest.mark.parametrize("file_system", ["ext4", "xfs", "btrfs"])
def test_a_directory_does_not_sync_after_a_commit_that_failed(file_system: FileSystemName, seed: int) -> None:
    """After a failed commit, every directory sync fails. The kernel's own second fsync would return 0, and
    lost removals would be acknowledged."""
    with BlockRig("write-through", file_system, seed=seed) as rig:
        storage = KernelStorage(rig.target)
        for slot in range(4):
            storage.path_of(f".0.{slot}").touch()
        first, second = storage.open_directory(), storage.open_directory()
        first.sync()
        storage.unlink(".0.0")
        storage.unlink(".0.1")
        rig.cut()
        for directory in (first, second, second):
            with pytest.raises(OSError, match=r"Input/output error|Read-only file system"):
                directory.sync()
        first.close()
        second.close()


@pytest.mark.parametrize("load", LOADS[::2], ids=str)
async def test_names_on_a_drive_that_ignores_flush_are_lost(load: Load, seed: int) -> None:
    """A cut of a liar: loss, of names, of what they stand for, or of the whole file system."""
    async with local_server() as lab:
        outcome = await cycle(lab, "flush-ignored", load, seed=seed, moments=MOMENTS)
    assert outcome.as_expected, outcome.answer
    found = {name for name, count in outcome.answer.document["findings"].items() if count}
    assert found & LOST, outcome
