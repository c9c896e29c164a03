"""Commits that fail under somebody else's sync, on a drive that refuses writes for a moment and then takes
them again: nothing of a client shows it but what the client asks after its own sync."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
from collections.abc import Callable

import pytest

from durability.formats.plan import Plan
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.target_files import TargetFiles
from durability_lab.kernel_rig.block_rig import BlockRig
from durability_lab.support.loads import FileSystemName

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.timeout(900)]

MakePlan = Callable[..., Plan]


@pytest.mark.parametrize("file_system", ["ext4", "xfs", "btrfs"])
@pytest.mark.parametrize(
    ("workload", "method"), [("overwrite", "fsync"), ("append", "fsync"), ("append", "fdatasync")]
)
def test_no_sync_is_believed_behind_a_commit_that_failed_under_somebody_else(
    file_system: FileSystemName, workload: str, method: str, seed: int, make_plan: MakePlan
) -> None:
    """A record is written, the commit fails that another file's sync began, and the drive works again: the
    record's own sync finds nothing to do but its data, and is not acknowledged."""
    pattern = "sequential" if workload == "append" else "random"
    plan = make_plan(workload=workload, pattern=pattern, sync=method, direct=True)
    drive = BlockRig("write-through", file_system, seed=seed, disturbed=True)
    with drive as rig, mmap.mmap(-1, plan.record_bytes) as record:
        storage = KernelStorage(rig.target)
        files = TargetFiles(storage, plan)
        files.create()
        other = os.open(rig.mount_point / "other", os.O_RDWR | os.O_CREAT)
        os.fsync(other)
        file, extent = files.open_writer(0), plan.extent(0)
        file.pwrite(record, extent.offset_of(extent.first_slot))
        file.sync()
        file.pwrite(record, extent.offset_of(extent.first_slot + 1))
        with rig.failing():
            os.fchmod(other, 0o640)  # no data, whose error would come before the commit's
            with pytest.raises(OSError, match=r"Input/output error|Read-only file system"):
                os.fsync(other)
        with pytest.raises(OSError, match=r"Input/output error|Read-only file system") as caught:
            file.sync()
        assert caught.value.errno in (errno.EIO, errno.EROFS)
        file.close()
        os.close(other)


@pytest.mark.parametrize("method", ["fdatasync", "dsync"])
def test_no_sync_of_journalled_data_is_believed_behind_a_commit_that_failed(
    method: str, seed: int, make_plan: MakePlan
) -> None:
    """With `data=journal` a record itself is in the commit that fails under another file's sync. The record's
    own sync may then find nothing to do, also by a method that waits for no commit elsewhere."""
    plan = make_plan(sync=method)
    drive = BlockRig("write-through", "ext4", seed=seed, disturbed=True)
    with drive as rig, mmap.mmap(-1, plan.record_bytes) as record:
        subprocess.run(("umount", rig.mount_point), check=True)
        subprocess.run(("mount", "-o", "data=journal", rig.loop, rig.mount_point), check=True)
        files = TargetFiles(KernelStorage(rig.target), plan)
        files.create()
        other = os.open(rig.mount_point / "other", os.O_RDWR | os.O_CREAT)
        os.fsync(other)
        file, extent = files.open_writer(0), plan.extent(0)
        file.pwrite(record, extent.offset_of(extent.first_slot))
        file.sync()
        unsynced = os.open(rig.target, os.O_RDWR)  # or O_DSYNC would sync the record with its write
        os.pwrite(unsynced, record, extent.offset_of(extent.first_slot + 1))
        with rig.failing():
            os.fchmod(other, 0o640)
            with pytest.raises(OSError, match=r"Input/output error|Read-only file system"):
                os.fsync(other)
        with pytest.raises(OSError, match=r"Input/output error|Read-only file system") as caught:
            file.sync()
        assert caught.value.errno in (errno.EIO, errno.EROFS)
        file.close()
        os.close(unsynced)
        os.close(other)
