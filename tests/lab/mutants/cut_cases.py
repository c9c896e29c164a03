"""The lab's cases on what is said of a cut: whose target it is, what the log is worth, whether there
was a cut and what it met. The drive kept everything, or nearly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from durability import limits
from durability.formats.case import RESET, DriveState, HeldUp, PastVerdict, PowerOff, TargetFailure
from durability.formats.facts import Facts
from durability.formats.plan import MAIN, Plan
from durability.formats.record import superblock
from durability_client.verify.target_reader import CHUNK_BYTES
from durability_lab.simulated_rig.virtual_time import MS
from tests.core.evidence.memory_target import (
    LAST_NS,
    Disk,
    after_power_loss,
    apart,
    make_case,
    make_statistics,
)
from tests.lab.mutants.drive_cases import (
    ACKED,
    case_of,
    fall_back,
    idle_slot,
    idle_slots,
    kept,
    server_of,
    wait,
)
from tests.lab.mutants.lab_case import (
    at_risk,
    bound,
    disk_of,
    judged,
    lab_case,
    loss_window,
    plan_of,
    simulated,
    warnings,
)
from tests.lab.mutants.synced_files import Files
from tests.sample_facts import drive, facts, file_system


def past(verdict: str, **changes: Any) -> PastVerdict:
    """An earlier verdict on a cut of class power with records at risk."""
    fields: dict[str, Any] = {"run": "1", "cut_class": "power", "at_risk_ms1000": 5, "wall": "", **changes}
    return PastVerdict(verdict=verdict, **fields)


def failed(drive: DriveState, *, after_ms: int = 0) -> TargetFailure:
    """An I/O error so long after the last acknowledgement, and what was seen of the drive then."""
    return TargetFailure(at_ns=LAST_NS + after_ms * MS, drive=drive, text="")


# -- identity and the state of the log -----------------------------------------------------------------------


@lab_case("exit 5: another target")
def another_drive_in_its_place() -> str:
    """After the reboot another disk is mounted there, which holds nothing of the run."""
    plan = plan_of()
    files = Files(facts(uuid="another", drives=(drive(serial="S2"),), boot="boot-2", uptime_s=30))
    return judged(files, make_case(plan, (ACKED,)))


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


@lab_case("inconclusive: superseded")
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
    return judged(disk, case, now=now, attested="pulled the plug")


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


def _gone_from(directory: str) -> str:
    """The answer where the target is gone from `directory` of the root file system, after another boot."""
    place: dict[str, Any] = {"path": f"{directory}/target", "file_system": file_system(mount_point="/")}
    now = dataclasses.replace(after_power_loss(), **place)
    return judged(Files(now), make_case(plan_of(), (ACKED,), armed=facts(**place)))


@lab_case("inconclusive: emptied-at-boot; 66 truncated")
def target_in_a_directory_that_was_emptied() -> str:
    """The machine empties /tmp when it starts, and the target was there."""
    return _gone_from("/tmp")


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
def snapshot_of_an_earlier_moment_on_the_same_drive() -> str:
    """A file system on a snapshot of the volume is mounted, taken before the last 20 operations."""
    volume: dict[str, Any] = {"offset_bytes": None, "volume": "LVM-b"}
    now = facts(boot="boot-2", uptime_s=30, drives=(drive(unsafe_shutdowns=4),), **volume)
    case = make_case(plan_of(), (ACKED,), armed=facts(offset_bytes=None, volume="LVM-a"))
    return judged(disk_of(plan_of(), ACKED - 20), case, now=now)


MIRROR = (drive(), drive(name="sdb", serial="S2"))


def _on_half_of_a_mirror(of: int) -> str:
    """The answer on a file system on a mirror, of which one drive did not survive the cut; the target holds
    what was written by operation `of`."""
    volume: dict[str, Any] = {"offset_bytes": None, "volume": "md-a"}
    now = facts(boot="boot-2", uptime_s=30, drives=MIRROR[:1], **volume)
    case = make_case(plan_of(), (ACKED,), armed=facts(drives=MIRROR, **volume))
    return judged(disk_of(plan_of(), of), case, now=now, require_cut="os")


@lab_case("inconclusive: drive-missing; 20 lost")
def mirror_of_the_half_that_had_dropped_out() -> str:
    """One drive dropped out before the last 20 operations. After the cut only that drive is found."""
    return _on_half_of_a_mirror(ACKED - 20)


@lab_case("inconclusive: drive-missing")
def mirror_of_which_one_drive_is_gone() -> str:
    """One drive is gone after the cut, and the other one kept everything."""
    return _on_half_of_a_mirror(ACKED)


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


@lab_case("loss: earlier-loss")
def second_pass_over_a_drive_that_healed() -> str:
    """The first pass found a loss; now everything is there."""
    disk, case = kept(verdicts=(past("loss"),))
    return judged(disk, case)


@lab_case("inconclusive: earlier-unstable")
def second_pass_after_a_flip() -> str:
    """Nothing is wrong now; the first pass read a slot wrong and then right."""
    disk, case = kept(verdicts=(past("inconclusive", reasons=("unstable",)),))
    return judged(disk, case)


@lab_case("inconclusive: tainted")
def tainted_run() -> str:
    """The client broke the protocol at some time; what was accepted of its claims is there."""
    disk, case = kept(tainted="the reported frontier of writer 0 fell from 9 to 3")
    return judged(disk, case)


@lab_case("inconclusive: scan-unfinished")
def drive_that_goes_away_while_it_is_read() -> str:
    """The drive leaves the bus when the first writer's slots have been read."""
    plan = plan_of(writers=2)
    files = Files.of(disk_of(plan, ACKED, ACKED), after_power_loss())
    second = plan.extent(1)
    files.gone = (MAIN, range(second.offset_bytes, second.end_bytes))
    return judged(files, make_case(plan, (ACKED, ACKED)))


@lab_case("inconclusive: scan-unfinished")
def drive_that_loses_power_while_it_is_read() -> str:
    """An honest drive has power for the superblocks, read three times, and the first writer's slots; from
    then on each read gives an I/O error."""
    plan = plan_of(writers=2)
    files = Files.of(disk_of(plan, ACKED, ACKED), after_power_loss())
    files.power_for = 3 * len(plan.superblock_offsets) + 1
    return judged(files, make_case(plan, (ACKED, ACKED)))


@lab_case("inconclusive: scan-unfinished, nothing-checked")
def drive_that_goes_away_before_it_is_read() -> str:
    """An honest drive drops off its bus once the target is recognised, and its file system with it."""
    disk, case = kept()
    files = Files.of(disk, after_power_loss())
    return judged(files, case, at_end=files.vanish)


@lab_case("inconclusive: scan-unfinished; 1 unreadable")
def bad_sector_before_the_drive_goes_away() -> str:
    """One slot cannot be read, twice, while others can; later the drive leaves the bus."""
    plan = plan_of(writers=2)
    files = Files.of(disk_of(plan, ACKED, ACKED), after_power_loss())
    second = plan.extent(1)
    files.bad.add((MAIN, plan.extent(0).offset_of(idle_slot(plan))))
    files.gone = (MAIN, range(second.offset_bytes, second.end_bytes))
    return judged(files, make_case(plan, (ACKED, ACKED)))


@lab_case("loss: unreadable-only; 1 unreadable")
def bad_sector() -> str:
    """One slot cannot be read, twice, and everything else can."""
    disk, case = kept()
    files = Files.of(disk, after_power_loss())
    files.bad.add((MAIN, disk.plan.extent(0).offset_of(idle_slot(disk.plan))))
    return judged(files, case)


@lab_case("inconclusive: earlier-unstable, loss-withdrawn")
def pass_that_reads_what_was_unreadable_beside_a_flip() -> str:
    """Verify found one slot unreadable and another wrong, then right; the next pass reads everything."""
    disk, case = kept()
    files = Files.of(disk, after_power_loss())
    extent, slot = disk.plan.extent(0), idle_slot(disk.plan)
    other = next(at for at in range(slot + 16, slot + 32) if at in idle_slots(disk.plan))
    files.bad.add((MAIN, extent.offset_of(slot)))
    files.flips[MAIN, extent.offset_of(other) + 100] = 1
    told = judged(files, case, tell=lambda outcome: ",".join(one.code for one in outcome.verdict.reasons))
    earlier = past("loss", reasons=tuple(told.rpartition("; ")[2].split(",")))
    return judged(disk, dataclasses.replace(case, verdicts=(earlier,)))


@lab_case("durable: loss-withdrawn; 1 cuts, below 0.950")
def series_of_which_a_loss_is_withdrawn() -> str:
    """A loss by an I/O error alone is withdrawn by this pass; no other cut was made."""
    earlier = past("loss", reasons=("findings", "unreadable-only"))
    disk, case = kept(verdicts=(earlier,))
    return judged(disk, case, tell=bound)


@lab_case("durable: loss-withdrawn")
def pass_that_reads_what_was_unreadable() -> str:
    """An earlier pass found unreadable slots and nothing else; now all of them read well and are right."""
    disk, case = kept(verdicts=(past("loss", reasons=("findings", "unreadable-only")),))
    return judged(disk, case)


@lab_case("loss: earlier-loss, unreadable-only")
def unfinished_pass_after_unreadable_slots() -> str:
    """An earlier pass found unreadable slots and nothing else; now the drive leaves the bus meanwhile."""
    plan = plan_of(writers=2)
    files = Files.of(disk_of(plan, ACKED, ACKED), after_power_loss())
    second = plan.extent(1)
    files.gone = (MAIN, range(second.offset_bytes, second.end_bytes))
    earlier = past("loss", reasons=("findings", "unreadable-only"))
    return judged(files, make_case(plan, (ACKED, ACKED), verdicts=(earlier,)))


@lab_case("inconclusive: no-server-log, cut-not-shown, nothing-at-risk")
def target_without_a_log() -> str:
    """The server has lost the run; everything on the drive is in order."""
    return judged(kept()[0], None)


def _begun_over(content: Callable[[Plan, int], bytes]) -> str:
    """The answer without a log, where a later run was cut in its first sync: of its superblocks only the
    second one, `content`, is on the drive."""
    disk, _ = kept()
    offset = disk.plan.superblock_offsets[1]
    later = dataclasses.replace(disk.plan, run=77)
    disk.files[MAIN][offset : offset + limits.SUPERBLOCK_BYTES] = content(later, offset)
    return judged(disk, None, tell=lambda outcome: f"later run {outcome.identity.superseded_by or 'unknown'}")


@lab_case(
    "inconclusive: no-server-log, superseded, cut-not-shown, nothing-at-risk; 1 lost; "
    "later run 000000000000004d"
)
def later_run_that_nobody_knows_of_and_that_was_cut_as_it_began() -> str:
    """The server has lost two runs; an honest drive was cut in the first sync of the second."""
    return _begun_over(superblock)


@lab_case(
    "inconclusive: no-server-log, superseded, cut-not-shown, nothing-at-risk; 1 corrupt; later run unknown"
)
def later_run_that_nobody_knows_of_and_that_was_cut_in_a_write() -> str:
    """The same, and the drive was writing that superblock: it is garbage."""
    return _begun_over(lambda plan, _: bytes([plan.run]) * limits.SUPERBLOCK_BYTES)


@lab_case("loss; 1 lost, 1 out of order")
def loss_that_the_target_proves_alone() -> str:
    """The server has lost the run; the drive holds 200 and, of 150 in another slot, the one before."""
    disk, _ = kept()
    fall_back(disk, ACKED - 50)
    return judged(disk, None)


@lab_case("loss; 1 lost, 1 out of order")
def log_with_a_hole_that_nobody_heard_of() -> str:
    """The server has lost the run; the last record that is read in one piece is zeros, and there are more
    behind it."""
    plan = plan_of(workload="append", slots=1024, record_bytes=4096, block_bytes=4096)
    disk = disk_of(plan, 600)
    disk.put(0, CHUNK_BYTES // plan.record_bytes - 1, bytes(plan.record_bytes))
    return judged(disk, None)


# -- the cut -------------------------------------------------------------------------------------------------


@lab_case("inconclusive: cut-not-shown")
def client_that_was_killed() -> str:
    """The client was killed; nobody cut anything, and nobody says so."""
    disk, case = kept()
    return judged(disk, case, now=facts(uptime_s=2000))


@lab_case("inconclusive: cut-class")
def machine_that_was_reset() -> str:
    """The operating system died; the drive kept its power."""
    disk, case = kept()
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30))


@lab_case("inconclusive: attestation-contradicted, cut-not-shown")
def client_that_was_killed_and_a_cut_attested() -> str:
    """The client was killed, and the operator says that the plug was pulled."""
    disk, case = kept()
    return judged(disk, case, now=facts(uptime_s=2000), attested="pulled the plug")


@lab_case("inconclusive: attestation-contradicted, cut-class")
def reset_and_a_cut_attested() -> str:
    """The machine was reset, no drive counted a power loss, and somebody says that the plug was pulled."""
    disk, case = kept()
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30), attested="pulled the plug")


@lab_case("inconclusive: cut-not-shown")
def restart_after_an_error() -> str:
    """One write failed; somebody restarts the machine in order, and attests nothing."""
    disk, case = kept(session_end="target-error", target_error=failed("dead"))
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30), require_cut="os")


@lab_case("inconclusive: cut-class")
def mirror_of_which_one_drive_was_cut() -> str:
    """Of two drives only one counted a power loss; the machine was started anew."""
    pair = (drive(), drive(name="sdb", serial="S2"))
    cut_one = (drive(unsafe_shutdowns=4), drive(name="sdb", serial="S2"))
    disk, case = kept(armed=facts(drives=pair))
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30, drives=cut_one))


@lab_case("inconclusive: cut-class")
def guest_with_a_counter_of_its_own() -> str:
    """The counter of a virtual machine's drive rose when the guest was started anew."""
    disk, case = kept(armed=facts(virtualisation="kvm", drives=(drive(emulated=True),)))
    now = facts(
        boot="boot-2", uptime_s=30, virtualisation="kvm", drives=(drive(emulated=True, unsafe_shutdowns=4),)
    )
    return judged(disk, case, now=now)


@lab_case("inconclusive: cut-class")
def other_enclosure_whose_serial_is_zeros_too() -> str:
    """The machine was reset, and another USB disk of the model has counted more power losses. It has the name
    of the first one, and the target was copied to it."""
    disk, case = kept(armed=facts(drives=(drive(serial="000000000000"),)))
    other = (drive(serial="000000000000", unsafe_shutdowns=9),)
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30, drives=other))


@lab_case("inconclusive: cut-class")
def guest_that_was_forced_off() -> str:
    """A guest was forced off while its host ran on; the operator attests that."""
    emulated = (drive(emulated=True, unsafe_shutdowns=None),)
    disk, case = kept(armed=facts(virtualisation="kvm", drives=emulated))
    now = facts(boot="boot-2", uptime_s=30, virtualisation="kvm", drives=emulated)
    return judged(disk, case, now=now, attested="forced the guest off")


@lab_case("inconclusive: cut-not-shown")
def machine_that_was_up_all_the_time() -> str:
    """Another boot id, but an uptime that began before the last frame came: no operating system died."""
    disk, case = kept()
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=500))


@lab_case("inconclusive: session-closed")
def connection_that_was_closed() -> str:
    """The server got a FIN; the cut came some time later."""
    disk, case = kept(session_end="fin")
    return judged(disk, case)


@lab_case("inconclusive: session-closed")
def connection_that_was_closed_after_silence() -> str:
    """More than a second of silence, then a FIN: the client's machine was alive, and cut some time later."""
    plan = plan_of()
    agenda, server = server_of(plan)
    server.acknowledge((5,), 0)
    wait(agenda, 1500)
    server.watch()
    assert server.run.session_end == "silence"
    server.run.detached(agenda.now_ns, "fin", "the client's system closed the connection")
    return judged(disk_of(plan, 5), case_of(agenda, server))


def _reset_after_silence(*, uptime_s: int) -> str:
    """The answer where the connection of a silent client was reset five seconds after its last frame, and the
    power cut two minutes later at most; `uptime_s`: of the machine at verify."""
    plan = plan_of()
    agenda, server = server_of(plan)
    server.acknowledge((5,), 0)
    wait(agenda, 1500)
    server.watch()
    wait(agenda, 3500)
    server.run.detached(agenda.now_ns, "rst", f"{RESET}: by peer")
    now = facts(boot="boot-2", uptime_s=uptime_s, drives=(drive(unsafe_shutdowns=4),))
    return judged(disk_of(plan, 5), case_of(agenda, server), now=now)


@lab_case("inconclusive: session-closed")
def connection_that_was_reset_before_the_machine_started_again() -> str:
    """The network was away and the client was killed meanwhile; its kernel says that there is no client. A
    minute later the machine's power is cut."""
    return _reset_after_silence(uptime_s=30)


@lab_case("durable")
def connection_that_the_next_boot_reset() -> str:
    """The power was cut, and the machine started again at once: it does not know the connection."""
    return _reset_after_silence(uptime_s=121)


@lab_case("inconclusive: nothing-at-risk")
def process_that_was_frozen_before_the_cut() -> str:
    """The client was frozen; its kernel acknowledged heartbeats for ten seconds, then the power was cut."""
    plan = plan_of()
    agenda, server = server_of(plan)
    server.acknowledge((5,), 0)
    wait(agenda, 1500)
    server.watch()
    for _ in range(10):
        wait(agenda, 850)
        server.run.kernel_alive(agenda.now_ns)
    return judged(disk_of(plan, 5), case_of(agenda, server))


@lab_case("inconclusive: nothing-at-risk")
def switch_with_another_clock() -> str:
    """The server that switched the power is not the one that the client spoke to: nobody knows how long
    after the last frame it did."""
    off = PowerOff(
        asked_ns=LAST_NS,
        confirmed_ns=LAST_NS + MS,
        boot_id="another server's",
        subject="machine",
        cut_class="power",
        text="campaign: b7 switched off and confirmed it",
    )
    disk, case = kept(power_offs=(off,))
    return judged(disk, case)


@lab_case("inconclusive: nothing-at-risk")
def network_that_failed_before_the_power() -> str:
    """The only writer had used up its credit, so nobody knows how long it had been waiting."""
    disk, case = kept()
    disk.write(0, *range(ACKED + 1, ACKED + disk.plan.credit + 1))
    return judged(disk, case)


@lab_case("inconclusive: nothing-at-risk")
def network_that_failed_with_a_grant_under_way() -> str:
    """The last grant may not have arrived, and the writer has done all that the one before it allowed."""
    disk, case = kept(credits=((ACKED - 8,), (ACKED,)))
    assert disk.plan.credit == 8
    return judged(disk, case)


@lab_case("inconclusive: nothing-at-risk")
def network_that_came_back_before_the_cut() -> str:
    """It brought the last acknowledgements, which may be as old as the time for which it was away."""
    held_up = HeldUp(from_ns=LAST_NS - 5000 * MS, until_ns=LAST_NS, frontiers=(ACKED,))
    disk, case = kept(held_up=(held_up,))
    return judged(disk, case)


@lab_case("inconclusive: nothing-at-risk")
def removals_that_used_up_the_credit() -> str:
    """The only writer had used up its credit with removals, of which only absent names are left."""
    plan = plan_of(workload="unlink", pattern="sequential")
    disk = disk_of(plan, 140 + plan.credit)
    return judged(disk, make_case(plan, (140,)))


@lab_case("durable; at risk 2, 11, 48, 48")
def end_of_a_pass() -> str:
    """The next pass had begun to cover what the last operations wrote, so that not all of it would show."""
    plan = plan_of(slots=64, credit=16)
    return judged(disk_of(plan, 192), make_case(plan, (192,)), tell=at_risk)


@lab_case("durable; at risk 2, 11, 56, 56")
def client_that_reports_the_targets_error() -> str:
    """The drive alone lost its power; the client said so, and its heartbeats came for five seconds more."""
    last_ns = LAST_NS + 5000 * MS
    disk, case = kept(session_end="target-error", last_receipt_ns=last_ns, target_error=failed("dead"))
    return judged(disk, case, tell=at_risk)


@lab_case("durable; at risk 0, 2, 56, 56")
def machine_that_died_while_it_looked_at_its_drive() -> str:
    """The drive lost its power; 10 ms later, when the client had reported the error, so did the machine."""
    plan = plan_of(slots=64, credit=8)
    agenda, server = server_of(plan)
    for frontier in range(1, ACKED + 1):
        server.acknowledge((frontier,), 0)
        server.run.saved(server.run.snapshot(timeline=False), agenda.now_ns)
        sent_ns = agenda.now_ns
        wait(agenda, 1)
        server.answered(sent_ns)
    wait(agenda, 8)
    server.target_failed("errno 5 at seq 201 of writer 0")
    wait(agenda, 2000)
    server.watch()
    return judged(disk_of(plan, ACKED), case_of(agenda, server), attested="pulled the plug", tell=at_risk)


@lab_case("inconclusive: nothing-at-risk")
def drive_that_answers_after_its_error() -> str:
    """One write failed; the drive answered reads after it, and lost its power some time later."""
    disk, case = kept(session_end="target-error", target_error=failed("answered"))
    return judged(disk, case)


@lab_case("inconclusive: nothing-at-risk")
def error_after_which_no_drive_was_seen() -> str:
    """One write failed; the client had no permission to read the drive, and its export says so."""
    disk, case = kept(session_end="target-error", target_error=failed("unseen"))
    return judged(disk, case)


@lab_case("inconclusive: nothing-at-risk")
def drive_that_hung_before_it_died() -> str:
    """A drive answered nothing for ten seconds, in which it drained its cache; then it lost its power."""
    disk, case = kept(session_end="target-error", target_error=failed("dead", after_ms=10_000))
    return judged(disk, case)


@lab_case("inconclusive: nothing-at-risk")
def drive_that_lives_on_after_its_error() -> str:
    """One request failed, on a drive that acknowledges 100 ms early; the power goes ten seconds later."""
    return simulated("seed=1 model=early-ack:delay_ms=100.0 error_ms=10000")


@lab_case("inconclusive: nothing-at-risk")
def heartbeats_without_load() -> str:
    """For two seconds before the cut the client had nothing to write, and said that it was alive."""
    disk, case = kept(last_receipt_ns=LAST_NS + 2000 * MS)
    return judged(disk, case)


@lab_case("loss; 1 lost; 114.5 to 167 ms, 116")
def slot_that_fell_back_two_versions() -> str:
    """A slot of operations 21, 85 and 149 holds 21: the oldest that is lost is 85, 115 ms before the last."""
    plan = plan_of(pattern="sequential")
    disk = disk_of(plan, ACKED)
    disk.put(0, 20, disk.record(0, 20, 21))
    return judged(disk, make_case(plan, (ACKED,)), tell=loss_window)


# -- strength and subject ------------------------------------------------------------------------------------


@lab_case("inconclusive: series-incomplete; 29 cuts, no bound")
def series_with_a_cut_that_nobody_verified() -> str:
    """29 cuts without a loss, and one more that was never verified."""
    disk, case = kept(series=apart(*(past("durable"),) * 28, past("unverified")))
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("inconclusive: series-incomplete; 29 cuts, no bound")
def series_with_a_cut_that_may_hide_a_loss() -> str:
    """29 cuts without a loss, and one more of which the scan did not come to its end."""
    unread = past("inconclusive", reasons=("scan-unfinished",))
    disk, case = kept(series=apart(*(past("durable"),) * 28, unread))
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("durable; 29 cuts, below 0.098")
def series_of_which_each_cut_was_asked_for_more() -> str:
    """Each of 28 earlier cuts was durable and asked for 29 of its kind, which there were not yet."""
    asked = past("inconclusive", reasons=("too-few-cuts",))
    disk, case = kept(series=apart(*(asked,) * 28))
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("inconclusive: superseded; 29 cuts, below 0.098")
def run_that_was_durable_before_a_later_one() -> str:
    """A later run was made on the target; before it, this one was durable, as 28 others were."""
    disk, case = kept(superseded_by="00000000000000aa", verdicts=(past("durable"),))
    return judged(disk, dataclasses.replace(case, series=apart(*(past("durable"),) * 28)), tell=bound)


@lab_case("inconclusive: too-few-cuts; 1 cuts, below 0.950")
def series_of_idle_cuts() -> str:
    """28 earlier cuts met no load."""
    disk, case = kept(series=apart(*(past("durable", at_risk_ms1000=0),) * 28))
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("inconclusive: too-few-cuts; 1 cuts, below 0.950")
def series_of_resets() -> str:
    """28 earlier cuts were resets of the operating system, this one is of class power."""
    disk, case = kept(series=apart(*(past("durable", cut_class="os"),) * 28))
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("inconclusive: too-few-cuts; 2 cuts, below 0.776")
def series_of_runs_that_one_cut_ended() -> str:
    """28 earlier runs were made at the same time on 28 files of the drive."""
    beside = past("durable", enumerations=("a",))
    disk, case = kept(series=(beside,) * 28)
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("durable; warnings no-flush")
def file_system_without_barriers() -> str:
    """200 syncs were acknowledged, and not one flush reached the drive."""
    disk, case = kept(statistics=make_statistics(operations=(ACKED,), flushes={"sda": 0}))
    return judged(disk, case, tell=warnings)
