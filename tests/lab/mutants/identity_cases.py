"""The lab's cases on whose target it is: another drive, a later run, a copy, half of a mirror, a log that is
missing."""

from __future__ import annotations

import dataclasses
from typing import Any

from durability.formats.facts import Drive, Facts
from durability.formats.plan import MAIN
from durability_client.verify.scan.scan_process import StalledError
from tests.core.evidence.memory_target import (
    Disk,
    after_power_loss,
    make_case,
)
from tests.lab.mutants.drive_cases import (
    ACKED,
    fall_back,
    kept,
)
from tests.lab.mutants.lab_case import (
    disk_of,
    judged,
    lab_case,
    past,
    plan_of,
)
from tests.lab.mutants.synced_files import Files
from tests.sample_facts import drive, facts, file_system


def after_a_boot(found: Facts) -> Facts:
    """`found`, after the machine has started again."""
    host = dataclasses.replace(found.host, boot_id="boot-2", uptime_ns=30 * 10**9)
    return dataclasses.replace(found, host=host)


@lab_case("exit 5: another target")
def another_drive_in_its_place() -> str:
    """After the reboot another disk is mounted there, which holds nothing of the run."""
    plan = plan_of()
    files = Files(facts(uuid="another", drives=(drive(serial="S2"),), boot="boot-2", uptime_s=30))
    return judged(files, make_case(plan, (ACKED,)))


def _in_a_dock(model: str, **changes: Any) -> Facts:
    """A device that is a disk in a dock, which gives its own serial to whatever disk is in it."""
    disk = drive(serial="DOCK", model=model, **changes)
    return facts(kind="device", file_system=None, path="/dev/sdb", offset_bytes=0, drives=(disk,))


@lab_case("exit 5: another target")
def another_disk_in_the_dock() -> str:
    """After the cut another disk is in the dock, a smaller one, and nothing of the run is on it."""
    plan = plan_of(target_kind="device")
    now = after_a_boot(_in_a_dock("Other", size_bytes=1 << 39))
    return judged(Files(now), make_case(plan, (ACKED,), armed=_in_a_dock("Disk")))


@lab_case("inconclusive: drive-changed, cut-class")
def clone_in_the_dock_that_lost_power_more_often() -> str:
    """The machine was reset. Then the disk in the dock was cloned, and the clone is there, which has counted
    more power losses."""
    disk, case = kept(armed=_in_a_dock("Disk"))
    return judged(disk, case, now=after_a_boot(_in_a_dock("Other", unsafe_shutdowns=80)))


@lab_case("exit 5: another target")
def another_drive_without_a_serial() -> str:
    """Drives that tell no serial: another is there, with a copy of the file system from before the run."""
    plan = plan_of()
    unknown = (drive(serial=""),)
    now = facts(drives=unknown, boot="boot-2", uptime_s=30)
    return judged(Files(now), make_case(plan, (ACKED,), armed=facts(drives=unknown)))


@lab_case("exit 5: another target")
def another_volume_of_the_same_drives() -> str:
    """After the reboot device mapper has given the volume's name to another volume of the drive."""
    plan = plan_of()
    place: dict[str, Any] = {"kind": "device", "path": "/dev/dm-0", "file_system": None, "offset_bytes": None}
    now = facts(**place, volume="LVM-b", boot="boot-2", uptime_s=30)
    return judged(Files(now), make_case(plan, (ACKED,), armed=facts(**place, volume="LVM-a")))


@lab_case("exit 5: not to be judged")
def log_that_was_not_replayed() -> str:
    """The last 20 operations are in the file system's log, which the mount did not replay."""
    plan = plan_of()
    found = facts().file_system
    assert found is not None
    mounted = dataclasses.replace(found, type="xfs", options="ro,norecovery")
    now = dataclasses.replace(after_power_loss(), file_system=mounted)
    return judged(disk_of(plan, ACKED - 20), make_case(plan, (ACKED,)), now=now)


@lab_case("inconclusive: superseded; 66 lost")
def target_that_was_used_again() -> str:
    """A later run, of which the server knows nothing, was made on the target."""
    plan = plan_of()
    later = Disk(dataclasses.replace(plan, run=77))
    return judged(later, make_case(plan, (ACKED,)))


@lab_case("inconclusive: superseded; 1 lost")
def run_over_which_a_later_one_wrote_elsewhere() -> str:
    """The server knows a later run on a target that overlaps; its superblocks do not lie on this one."""
    disk, case = kept(superseded_by=f"{77:016x}")
    fall_back(disk, ACKED)
    return judged(disk, case)


@lab_case("loss: earlier-loss, superseded; 66 lost")
def run_that_lost_before_a_later_one() -> str:
    """An earlier pass found a loss; then a later run was made on the target."""
    plan = plan_of()
    later = Disk(dataclasses.replace(plan, run=77))
    lost = past("loss", reasons=("findings",))
    return judged(later, make_case(plan, (ACKED,), verdicts=(lost,)))


def _used_twice(older: Facts, **changes: Any) -> str:
    """The answer on a target that holds what an earlier run left, after a second run of which every write is
    gone. `older`: the target of the earlier run; `changes` of the second run's case."""
    disk, first = kept(armed=older)
    plan = dataclasses.replace(disk.plan, run=77)
    fields = {"predecessors": (first.run,), **changes}
    second = make_case(plan, (ACKED,), **fields)
    first = dataclasses.replace(first, superseded_by=second.run)
    now = dataclasses.replace(after_power_loss(), drives=older.drives) if older.drives != (drive(),) else None
    return judged(disk, first, newest=second, now=now, attested="pulled the plug")


@lab_case("loss; 66 lost")
def second_run_that_is_gone() -> str:
    """The drive lost all of a second run; the superblock of the first, and its data, are there again."""
    return _used_twice(facts())


@lab_case("inconclusive: superseded")
def second_run_that_was_never_armed() -> str:
    """A second run was registered and never armed; the target is as the first run left it."""
    return _used_twice(facts(), armed=None)


def _attempted(disk: Disk) -> str:
    """The answer on `disk`, on which a second run like the first was registered and never armed."""
    attempt = dataclasses.replace(disk.plan, run=77)
    later = {"superseded_by": f"{attempt.run:016x}", "attempts": (attempt.encode().hex(),)}
    return judged(disk, make_case(disk.plan, (ACKED,), **later))


@lab_case("loss; 20 lost")
def second_run_that_never_wrote() -> str:
    """The drive lost the last 20 operations; then a second run was registered, and its client was gone."""
    return _attempted(disk_of(plan_of(), ACKED - 20))


@lab_case("inconclusive: superseded; 1 corrupt")
def second_run_that_was_cut_in_its_first_write() -> str:
    """A second run was cut as it wrote its superblocks: a sector of a copy of the first run's is damaged."""
    disk = disk_of(plan_of(), ACKED)
    disk.files[MAIN][:512] = b"\xa5" * 512
    return _attempted(disk)


@lab_case("inconclusive: superseded, copied")
def file_of_another_run_in_the_targets_place() -> str:
    """A file that an earlier run wrote elsewhere was given the name of the second run's target."""
    return _used_twice(facts(path="/mnt/other", path_in_file_system="other"), predecessors=())


@lab_case("inconclusive: superseded")
def second_run_on_a_drive_without_a_serial() -> str:
    """The drive tells no serial, so nothing shows that the second run was made on it."""
    nameless = facts(drives=(drive(serial=""),))
    return _used_twice(nameless, armed=nameless)


@lab_case("loss: device-smaller")
def drive_that_lost_the_half_without_the_target() -> str:
    """The drive comes back with half of its capacity; all that was written is in the half that is left."""
    disk, case = kept()
    half = drive(diskseq=1, unsafe_shutdowns=4, size_bytes=drive().size_bytes // 2)
    return judged(disk, case, now=dataclasses.replace(after_power_loss(), drives=(half,)))


@lab_case("inconclusive: smaller-or-copy")
def drive_without_a_serial_that_lost_the_half_without_the_target() -> str:
    """A guest's disk comes back with half of its capacity, or is another one with a copy of the file."""
    disk, case = kept(armed=facts(drives=(drive(serial=""),)))
    half = drive(serial="", diskseq=1, size_bytes=drive().size_bytes // 2)
    now = dataclasses.replace(after_power_loss(), drives=(half,))
    return judged(disk, case, now=now, attested="pulled the plug")


@lab_case("durable")
def drive_that_does_not_tell_its_size() -> str:
    """The size of the drive cannot be read after the cut."""
    disk, case = kept()
    unknown = drive(diskseq=1, unsafe_shutdowns=4, size_bytes=0)
    return judged(disk, case, now=dataclasses.replace(after_power_loss(), drives=(unknown,)))


@lab_case("inconclusive: drive-changed, attestation-contradicted, cut-not-shown")
def copy_on_a_smaller_device() -> str:
    """The target is a copy on another, smaller device."""
    armed = facts(kind="device", file_system=None, path="/dev/sda")
    disk, case = kept(armed=armed)
    small = facts(kind="device", file_system=None, path="/dev/sdb", size_bytes=1 << 20)
    other = dataclasses.replace(small, drives=(drive(serial="S2", size_bytes=1 << 20),))
    return judged(disk, case, now=other, attested="pulled the plug")


@lab_case("inconclusive: smaller-or-copy")
def copy_on_a_smaller_device_of_drives_without_a_serial() -> str:
    """The target was copied from a guest's disk to a smaller one, after a cut; neither tells a serial."""
    disks = [
        drive(serial="", name=name, size_bytes=size) for name, size in (("vdb", 2 << 30), ("vdc", 1 << 30))
    ]
    armed = facts(kind="device", file_system=None, path="/dev/vdb", size_bytes=2 << 30, drives=(disks[0],))
    disk, case = kept(armed=armed)
    now = facts(kind="device", file_system=None, boot="boot-2", uptime_s=30, drives=(disks[1],))
    return judged(disk, case, now=now, attested="pulled the plug")


@lab_case("inconclusive: attestation-contradicted, cut-not-shown")
def image_on_another_guest_without_a_serial() -> str:
    """An image of a guest's disk is found on another guest, where the disk has the same name and size."""
    disk, case = kept(armed=facts(drives=(drive(serial="", diskseq=3),)))
    now = facts(boot="boot-9", uptime_s=9999, machine="other", drives=(drive(serial="", diskseq=7),))
    return judged(disk, case, now=now, attested="pulled the plug")


@lab_case("inconclusive: attestation-contradicted, cut-not-shown")
def container_in_which_nothing_was_cut() -> str:
    """The client was killed in one container, and the target is verified in another one of the same boot."""
    plain = (drive(unsafe_shutdowns=None),)
    disk, case = kept(armed=facts(drives=plain))
    now = facts(machine="container", uptime_s=9999, drives=plain)
    return judged(disk, case, now=now, attested="pulled the plug")


@lab_case("inconclusive: drive-changed, attestation-contradicted, cut-not-shown")
def image_on_another_guest_whose_disk_has_the_same_serial() -> str:
    """An image of a guest's disk is found on a clone of the guest, whose disk was given the same serial."""
    disk, case = kept(armed=facts(drives=(drive(serial="disk-1", emulated=True),)))
    clone = (drive(serial="disk-1", emulated=True),)
    now = facts(boot="boot-9", uptime_s=9999, machine="clone", drives=clone)
    return judged(disk, case, now=now, attested="forced the guest off", require_cut="vm")


@lab_case("exit 5: another target")
def another_disk_that_the_hypervisor_gave_the_same_number() -> str:
    """Another disk is at the place of the guest's first one, and gets its number; nothing of the run is on
    it."""
    plan, numbered = plan_of(), (drive(serial="QM00001", emulated=True),)
    now = facts(drives=numbered, boot="boot-2", uptime_s=30)
    return judged(Files(now), make_case(plan, (ACKED,), armed=facts(drives=numbered)))


@lab_case("inconclusive: drive-changed; 20 lost")
def copy_of_an_earlier_moment() -> str:
    """The target is a copy on another drive, made before the last 20 operations."""
    plan = plan_of()
    copy = facts(drives=(drive(serial="S2"),), boot="boot-2", uptime_s=30)
    return judged(disk_of(plan, ACKED - 20), make_case(plan, (ACKED,)), now=copy, attested="pulled the plug")


class _HangingFiles(Files):
    """Files of which no read returns, until that is given up."""

    def exists(self, suffix: str) -> bool:
        raise StalledError("reads of the target returned nothing")


def _gone_from(directory: str, **changes: Any) -> str:
    """The answer where the target is gone from `directory` of the root file system, after another boot;
    `changes` of the plan."""
    place: dict[str, Any] = {"path": f"{directory}/target", "file_system": file_system(mount_point="/")}
    now = dataclasses.replace(after_power_loss(), **place)
    return judged(Files(now), make_case(plan_of(**changes), (ACKED,), armed=facts(**place)))


@lab_case("inconclusive: emptied-at-boot; 66 truncated")
def target_in_a_directory_that_was_emptied() -> str:
    """The machine empties /tmp when it starts, and the target was there."""
    return _gone_from("/tmp")


@lab_case("inconclusive: emptied-at-boot; 2 truncated, 8 absent")
def names_in_a_directory_that_was_emptied() -> str:
    """The machine empties /tmp when it starts, and names that `unlink` had made were there. A removal in
    flight may be behind some that are absent."""
    return _gone_from("/tmp", workload="unlink")


@lab_case("inconclusive: scan-unfinished, nothing-checked")
def target_of_which_reads_hang_in_a_directory_that_is_emptied() -> str:
    """The machine empties /tmp when it starts. The target is still there, and no read of it returns."""
    place: dict[str, Any] = {"path": "/tmp/target", "file_system": file_system(mount_point="/")}
    files = _HangingFiles.of(disk_of(plan_of(), ACKED), dataclasses.replace(after_power_loss(), **place))
    return judged(files, make_case(plan_of(), (ACKED,), armed=facts(**place)))


@lab_case("loss; 66 truncated")
def target_that_is_gone() -> str:
    """The target is gone from a directory that nobody empties."""
    return _gone_from("/data")


@lab_case("inconclusive: copied; 20 lost")
def file_that_was_copied_before_the_last_writes() -> str:
    """The target is gone, and has the name of a copy that was made before the last 20 operations."""
    now = facts(boot="boot-2", uptime_s=30, drives=(drive(unsafe_shutdowns=4),), file_id="13.1")
    case = make_case(plan_of(), (ACKED,), armed=facts(file_id="12.1"))
    return judged(disk_of(plan_of(), ACKED - 20), case, now=now)


@lab_case("inconclusive: copied; 20 lost")
def copy_under_another_name_where_files_have_no_number() -> str:
    """On a file system whose files have no lasting number, the target was copied before the last 20
    operations, and the copy is verified."""
    now = facts(boot="boot-2", uptime_s=30, drives=(drive(unsafe_shutdowns=4),), path_in_file_system="copy")
    return judged(disk_of(plan_of(), ACKED - 20), make_case(plan_of(), (ACKED,)), now=now)


@lab_case("inconclusive: no-server-log, copied, cut-not-shown, nothing-at-risk; 1 lost, 1 out of order")
def copy_that_was_made_while_the_run_wrote() -> str:
    """A backup copied the target to another drive while the run wrote, so parts of it are of different
    moments. The server does not know the run."""
    disk, _ = kept()
    fall_back(disk, ACKED - 50)
    backup = facts(uuid="another", drives=(drive(serial="S2"),), boot="boot-2", uptime_s=30)
    return judged(disk, None, now=backup)


@lab_case("inconclusive: copied; 20 lost")
def snapshot_of_an_earlier_moment_on_the_same_drive() -> str:
    """A file system on a snapshot of the volume is mounted, taken before the last 20 operations."""
    volume: dict[str, Any] = {"offset_bytes": None, "volume": "LVM-b"}
    now = facts(boot="boot-2", uptime_s=30, drives=(drive(unsafe_shutdowns=4),), **volume)
    case = make_case(plan_of(), (ACKED,), armed=facts(offset_bytes=None, volume="LVM-a"))
    return judged(disk_of(plan_of(), ACKED - 20), case, now=now)


MIRROR = (drive(), drive(name="sdb", serial="S2"))
ON_A_MIRROR: dict[str, Any] = {"offset_bytes": None, "volume": "md-a"}


def _on_half_of_a_mirror(of: int, mirror: tuple[Drive, ...] = MIRROR) -> str:
    """The answer on a file system on a mirror, of which one drive did not survive the cut; the target holds
    what was written by operation `of`."""
    now = facts(boot="boot-2", uptime_s=30, drives=mirror[:1], **ON_A_MIRROR)
    case = make_case(plan_of(), (ACKED,), armed=facts(drives=mirror, **ON_A_MIRROR))
    return judged(disk_of(plan_of(), of), case, now=now, require_cut="os")


@lab_case("inconclusive: drive-missing; 20 lost")
def mirror_of_the_half_that_had_dropped_out() -> str:
    """One drive dropped out before the last 20 operations. After the cut only that drive is found."""
    return _on_half_of_a_mirror(ACKED - 20)


@lab_case("inconclusive: drive-missing")
def mirror_of_which_one_drive_is_gone() -> str:
    """One drive is gone after the cut, and the other one kept everything."""
    return _on_half_of_a_mirror(ACKED)


@lab_case("inconclusive: drive-missing; 20 lost")
def half_of_a_mirror_in_a_dock() -> str:
    """One drive dropped out before the last 20 operations, and only that is found after the cut. Both have
    the serial of the dock, each has its world-wide name."""
    mirror = (drive(serial="DOCK", wwid="naa.1"), drive(name="sdb", serial="DOCK", wwid="naa.2"))
    return _on_half_of_a_mirror(ACKED - 20, mirror)


@lab_case("inconclusive: drive-missing; 20 lost")
def half_of_a_mirror_of_drives_without_a_serial() -> str:
    """The same with two disks of a guest, which tell no serial."""
    return _on_half_of_a_mirror(ACKED - 20, (drive(name="vda", serial=""), drive(name="vdb", serial="")))


@lab_case("loss: device-smaller")
def smaller_disk_of_two_in_a_dock() -> str:
    """The smaller disk of a mirror comes back smaller still; the larger one has the same serial."""
    disk, case = kept(armed=_two_in_a_dock(1 << 40))
    return judged(disk, case, now=after_a_boot(_two_in_a_dock(1 << 39)), attested="pulled the plug")


def _two_in_a_dock(size_bytes: int) -> Facts:
    """The target on a mirror of a disk of this size and a larger one."""
    one = drive(serial="DOCK", model="A", size_bytes=size_bytes, unsafe_shutdowns=None)
    other = drive(name="sdb", serial="DOCK", model="B", size_bytes=2 << 40, unsafe_shutdowns=None)
    return facts(drives=(one, other), **ON_A_MIRROR)


LOGGED = (drive(), drive(name="sdb", serial="LOG"))


@lab_case("loss; 20 lost")
def log_drive_that_only_verify_finds() -> str:
    """`run`, in a container, did not find the external log of the file system. The last 20 operations are
    lost."""
    now = facts(boot="boot-2", uptime_s=30, drives=LOGGED)
    return judged(disk_of(plan_of(), ACKED - 20), make_case(plan_of(), (ACKED,)), now=now)


@lab_case("inconclusive: drive-missing; 20 lost")
def log_drive_that_is_gone() -> str:
    """The external log did not survive the cut. The file system was mounted without one, and lacks the last
    20 operations."""
    now = facts(boot="boot-2", uptime_s=30, drives=LOGGED[:1])
    case = make_case(plan_of(), (ACKED,), armed=facts(drives=LOGGED))
    return judged(disk_of(plan_of(), ACKED - 20), case, now=now, require_cut="os")


@lab_case("inconclusive: drive-missing; 20 lost")
def log_drive_without_a_serial_that_is_gone() -> str:
    """The same with a log on a drive that tells no serial."""
    now = facts(boot="boot-2", uptime_s=30, drives=LOGGED[:1])
    case = make_case(plan_of(), (ACKED,), armed=facts(drives=(drive(), drive(name="vdb", serial=""))))
    return judged(disk_of(plan_of(), ACKED - 20), case, now=now, require_cut="os")


@lab_case("inconclusive: smaller-or-copy")
def log_on_a_smaller_drive_without_a_serial() -> str:
    """The drive with the external log tells no serial. After the cut the log is on a smaller drive: another
    one, on which it was made anew, or the same."""
    before, after = (drive(name="vdb", serial="", size_bytes=size) for size in (100 << 30, 10 << 30))
    disk, case = kept(armed=facts(drives=(drive(), before)))
    now = after_a_boot(facts(drives=(drive(unsafe_shutdowns=4), after)))
    return judged(disk, case, now=now, attested="pulled the plug")


@lab_case("loss; 66 truncated")
def file_system_with_a_log_that_is_wiped() -> str:
    """The file system does not mount, and so does not name the drive of its external log."""
    now = facts(boot="boot-2", uptime_s=30, drives=LOGGED[:1], file_system=file_system(mount_point=""))
    return judged(Files(now), make_case(plan_of(), (ACKED,), armed=facts(drives=LOGGED)))


@lab_case("loss; 20 lost")
def drive_of_which_one_path_is_up() -> str:
    """After the cut only one of two paths to the drive is up, and the last 20 operations are lost."""
    paths = (drive(), drive(name="sdb"))
    volume: dict[str, Any] = {"offset_bytes": None, "volume": "mpath-a"}
    now = facts(boot="boot-2", uptime_s=30, drives=paths[:1], **volume)
    case = make_case(plan_of(), (ACKED,), armed=facts(drives=paths, **volume))
    return judged(disk_of(plan_of(), ACKED - 20), case, now=now)


# -- names of earlier runs -----------------------------------------------------------------------------------


def _beside(
    workload: str,
    *suffixes: str,
    known: bool = True,
    armed: Facts | None = None,
    now: Facts | None = None,
    acked: int = ACKED,
    **changes: Any,
) -> str:
    """The answer on an intact target of `workload`, beside which names of an earlier run of `rename` with
    `changes` are there again. `known`: the server knows that run to be an earlier one, else another."""
    plan = plan_of(workload=workload, pattern="sequential")
    earlier = disk_of(plan_of(**{"workload": "rename", "slots": 128, "run": 7, **changes}), 0)
    disk = disk_of(plan, acked)
    disk.files.update({suffix: earlier.files[suffix] for suffix in suffixes})
    predecessors = (f"{earlier.plan.run if known else 8:016x}",)
    fields = {"predecessors": predecessors, **({} if armed is None else {"armed": armed})}
    return judged(disk, make_case(plan, (acked,), **fields), now=now)


def _mounted_alone(found: Facts) -> Facts:
    """The same file at the path of a mount of this file alone."""
    assert found.file_system is not None
    alone = dataclasses.replace(found.file_system, mount_point="/data/t")
    return dataclasses.replace(found, path="/data/t", file_system=alone)


@lab_case("loss; 1 resurrected")
def earlier_name_beside_a_region() -> str:
    """A name of an earlier run is there again, beside a file that is overwritten in place."""
    return _beside("overwrite", ".0.1")


@lab_case("loss; 1 resurrected")
def earlier_file_beside_a_log() -> str:
    """A file of an earlier run with the name of a later file of this log is there again."""
    return _beside("append", ".0.100")


@lab_case("inconclusive: log-behind")
def earlier_file_in_the_place_of_the_next_one() -> str:
    """The same, with the name of the first file that the log has no room for."""
    return _beside("append", ".0.3", acked=150)


@lab_case("loss; 64 resurrected")
def names_of_another_writer_that_are_back() -> str:
    """An earlier run had two writers, this one has one; all names of the second one are there again."""
    names = (f".1.{number}" for number in range(64))
    return _beside("rename", *names, writers=2, slots=64)


@lab_case("loss; 1 resurrected")
def name_of_an_earlier_tag_that_is_back() -> str:
    """The earlier run carried another tag, because the drive has shown another serial since."""
    return _beside("unlink", ".0.100", target=77)


@lab_case("loss; 1 resurrected")
def created_name_of_an_earlier_tag_that_is_back() -> str:
    """The same for a name that `create` may make much later."""
    return _beside("create", ".0.400", target=77, slots=512)


@lab_case("loss; 1 resurrected")
def earlier_control_arm_that_is_back() -> str:
    """The file of an earlier run's control arm is there again; this run has none."""
    return _beside("overwrite", ".control", control_slots=4)


@lab_case("durable")
def name_of_an_unknown_run() -> str:
    """A name of a run that the server does not know is there: nothing shows that it is an earlier one."""
    return _beside("overwrite", ".0.1", known=False)


@lab_case("durable")
def name_of_an_earlier_run_beside_a_renamed_target() -> str:
    """The target was renamed since, and stands beside what an earlier run left there."""
    file_system = dataclasses.replace(after_power_loss(), file_id="7")
    moved = dataclasses.replace(file_system, path="/mnt/other", path_in_file_system="other")
    return _beside("overwrite", ".0.1", now=moved)


@lab_case("durable")
def name_of_an_earlier_run_beside_a_target_that_was_mounted_alone() -> str:
    """The file was armed at a mount of it alone, in another directory than that of the earlier run."""
    return _beside("overwrite", ".0.1", armed=_mounted_alone(facts()))


@lab_case("durable")
def name_of_an_earlier_run_beside_a_mount_of_the_target() -> str:
    """The file is mounted alone now, in another directory than that in which it was armed."""
    return _beside("overwrite", ".0.1", now=_mounted_alone(after_power_loss()))


@lab_case("durable")
def name_of_an_earlier_run_beside_a_target_of_an_unknown_place() -> str:
    """The system tells no path within the file system, neither at arming nor now."""
    now = dataclasses.replace(after_power_loss(), path_in_file_system="")
    return _beside("overwrite", ".0.1", armed=facts(path_in_file_system=""), now=now)


def _left_behind(workload: str, *, now: Facts) -> str:
    """The answer on a target of `workload` without the files that belong to it."""
    plan = plan_of(workload=workload)
    disk = disk_of(plan, ACKED)
    disk.files = {MAIN: disk.files[MAIN]}
    return judged(disk, make_case(plan, (ACKED,), armed=facts(file_id="7")), now=now)


def _moved(**changes: Any) -> Facts:
    """The target after a power loss, at another path."""
    place = {"path": "/mnt/d/t", "path_in_file_system": "d/t", "file_id": "7", **changes}
    return dataclasses.replace(after_power_loss(), **place)


@lab_case("inconclusive: copied; 63 absent")
def created_names_that_were_left_behind() -> str:
    """The target was moved to another directory after the cut, without the names that `create` had made."""
    return _left_behind("create", now=_moved())


@lab_case("inconclusive: copied; 72 truncated")
def files_of_a_log_that_were_left_behind() -> str:
    """The same, without the files of a log."""
    return _left_behind("append", now=_moved())


@lab_case("inconclusive: copied; 63 absent")
def created_names_that_are_not_beside_a_mount_of_the_target() -> str:
    """The target alone is mounted elsewhere, as in a container, and verified there."""
    return _left_behind("create", now=_mounted_alone(dataclasses.replace(after_power_loss(), file_id="7")))


@lab_case("durable")
def created_names_that_were_moved_along() -> str:
    """The target was moved to another directory after the cut, with all names that `create` had made."""
    plan = plan_of(workload="create")
    case = make_case(plan, (ACKED,), armed=facts(file_id="7"))
    return judged(disk_of(plan, ACKED), case, now=_moved())


@lab_case("inconclusive: superseded, copied")
def older_copy_as_another_file_in_the_targets_place() -> str:
    """A second run was made over the first, in the same file. Then someone put a copy of what the first had
    left in its place: the file system has it as a file that was neither run's."""
    older = facts(file_id="7")
    disk, first = kept(armed=older)
    plan = dataclasses.replace(disk.plan, run=77)
    second = make_case(plan, (ACKED,), armed=older, predecessors=(first.run,))
    first = dataclasses.replace(first, superseded_by=second.run)
    now = dataclasses.replace(after_power_loss(), file_id="9")
    return judged(disk, first, newest=second, now=now, attested="pulled the plug")


@lab_case("durable")
def drive_that_this_release_takes_for_emulated() -> str:
    """The drive alone lost its power, and the release that verifies says of it that a hypervisor emulates it;
    the one that made the run did not."""
    armed = facts(drives=(drive(emulated=False, unsafe_shutdowns=None),))
    now = facts(drives=(drive(emulated=True, unsafe_shutdowns=None, diskseq=10),))
    disk, case = kept(armed=armed)
    return judged(disk, case, now=now, attested="pulled the drive")


@lab_case("inconclusive: copied")
def removed_names_that_were_looked_for_elsewhere() -> str:
    """All that `unlink` removed is back in the target's old directory; the target was moved to another one,
    where no name is."""
    plan = plan_of(workload="unlink")
    disk = disk_of(plan, 0)
    disk.files = {MAIN: disk.files[MAIN]}
    return judged(disk, make_case(plan, (64,), armed=facts(file_id="7")), now=_moved())


@lab_case("loss; 1 absent")
def created_name_that_is_gone_among_those_moved_along() -> str:
    """The target was moved with its names, of which the drive had lost one."""
    plan = plan_of(workload="create")
    disk = disk_of(plan, ACKED)
    disk.remove(0, disk.slot_of(0, ACKED))
    return judged(disk, make_case(plan, (ACKED,), armed=facts(file_id="7")), now=_moved())


def _put_back(*, known: bool) -> str:
    """The answer on the file of a run, which was moved away and back. A second run was made in between on a
    new file at its path. `known`: `verify` is told to judge the second run."""
    disk, first = kept(armed=facts(file_id="7"))
    plan = dataclasses.replace(disk.plan, run=77)
    second = make_case(plan, (ACKED,), armed=facts(file_id="9"), predecessors=(first.run,))
    first = dataclasses.replace(first, superseded_by=second.run)
    now = dataclasses.replace(after_power_loss(), file_id="7")
    case, newest = (second, None) if known else (first, second)
    return judged(disk, case, newest=newest, now=now, attested="pulled the plug")


@lab_case("inconclusive: superseded")
def file_of_an_earlier_run_that_was_put_back() -> str:
    """A run's file was moved away, a second run made a new one, and somebody put the first one back. A drive
    that is back at a time before the move shows the same."""
    return _put_back(known=False)


@lab_case("inconclusive: copied; 66 lost")
def file_of_an_earlier_run_judged_as_that_of_the_later_one() -> str:
    """The same, and `verify` is told to judge the second run."""
    return _put_back(known=True)


@lab_case("inconclusive: not-armed, superseded, attestation-contradicted, cut-not-shown, nothing-at-risk")
def file_of_a_run_that_was_never_armed_and_was_put_back() -> str:
    """The same with a first run that was registered and never armed."""
    first_plan = plan_of()
    plan = dataclasses.replace(first_plan, run=77)
    first = make_case(first_plan, (0,), armed=None, superseded_by=f"{plan.run:016x}")
    second = make_case(plan, (ACKED,), armed=facts(file_id="9"), predecessors=(first.run,))
    now = dataclasses.replace(after_power_loss(), file_id="7")
    return judged(Disk(first_plan), first, newest=second, now=now, attested="pulled the plug")


@lab_case("inconclusive: cut-class")
def guest_that_only_this_release_knows_by_its_drive() -> str:
    """A guest was forced off. The release that made the run did not know its drive for a hypervisor's."""
    armed = facts(drives=(drive(emulated=False, unsafe_shutdowns=None),))
    now = facts(boot="boot-2", uptime_s=30, drives=(drive(emulated=True, unsafe_shutdowns=None, diskseq=1),))
    disk, case = kept(armed=armed)
    return judged(disk, case, now=now, attested="forced off")


@lab_case("loss; 4 truncated")
def log_that_is_short_and_was_moved_along() -> str:
    """The target was moved with the files of its log, of which the newest had lost its end."""
    plan = plan_of(workload="append")
    disk = disk_of(plan, ACKED)
    del disk.files[".0.3"][-4 * plan.record_bytes :]
    return judged(disk, make_case(plan, (ACKED,), armed=facts(file_id="7")), now=_moved())
