"""The lab's cases on what `verify` can read, in one pass or several, and on targets without a log."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from durability import limits
from durability.formats.case import Case
from durability.formats.plan import MAIN, Plan
from durability.formats.record import superblock
from durability_client.verify.scan.read_chunks import pieces_within
from durability_client.verify.scan.target_reader import CHUNK_BYTES
from tests.core.evidence.memory_target import (
    SECTOR,
    Disk,
    after_power_loss,
    make_case,
)
from tests.lab.mutants.drive_cases import (
    ACKED,
    GARBAGE,
    fall_back,
    idle_slot,
    idle_slots,
    kept,
)
from tests.lab.mutants.lab_case import (
    bound,
    disk_of,
    judged,
    lab_case,
    past,
    plan_of,
)
from tests.lab.mutants.synced_files import Files


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


def _restored_store(damage: Callable[[Disk, int], None]) -> str:
    """The answer on a target that is read in two chunks, with a log that is older by its credit and one
    operation: only that one shows it, in the second chunk, before which the drive leaves the bus. `damage`
    gets the disk and the first operation that was not done, whose slot is in the first chunk."""
    plan = plan_of(slots=1024, record_bytes=4096, block_bytes=4096)
    extent = plan.extent(0)
    second = list(pieces_within(extent, extent.slots))[1]
    disk = Disk(plan)
    newest = next(
        seq
        for seq in range(plan.credit + 2, plan.slots)
        if disk.slot_of(0, seq + 1) < second.first_slot < disk.slot_of(0, seq)
    )
    disk.write_to(0, newest)
    damage(disk, newest + 1)
    files = Files.of(disk, after_power_loss())
    files.gone = (MAIN, range(second.offset, second.offset + 1))
    return judged(files, make_case(plan, (newest - plan.credit - 1,)))


@lab_case("inconclusive: scan-unfinished; 1 corrupt")
def write_in_flight_that_an_old_log_does_not_know() -> str:
    """An honest drive tore the write in flight. The server's store is a backup's, and the drive leaves the
    bus before it has shown an operation that the store does not allow."""
    return _restored_store(lambda disk, seq: disk.put(0, disk.slot_of(0, seq), GARBAGE))


@lab_case("loss; 1 corrupt")
def superblock_that_no_old_log_explains() -> str:
    """A copy of the superblock is garbage, which no write of the run does. Then the drive leaves the bus."""
    return _restored_store(lambda disk, _: disk.files[MAIN].__setitem__(slice(SECTOR), GARBAGE))


def _log(acked: int, done: int = ACKED) -> tuple[Files, Case]:
    """The files of a log after so many records, 64 in each, and a case of which so many were acknowledged."""
    plan = plan_of(workload="append")
    return Files.of(disk_of(plan, done), after_power_loss()), make_case(plan, (acked,))


@lab_case("loss: unreadable-only; 64 unreadable")
def inode_that_cannot_be_read() -> str:
    """One file of a log does not open, because of a bad sector in the file system's own data."""
    files, case = _log(ACKED)
    files.hidden.add(".0.2")
    return judged(files, case)


@lab_case("loss: unreadable-only; 2 unreadable")
def inode_of_the_target_that_cannot_be_read() -> str:
    """The file with the superblocks does not open. All records are in other files, and in order."""
    files, case = _log(ACKED)
    files.hidden.add(MAIN)
    return judged(files, case)


@lab_case("loss; 1 lost")
def directory_that_cannot_be_listed() -> str:
    """A record of a log is zeros, and the directory cannot be listed."""
    plan = plan_of(workload="append")
    disk = disk_of(plan, ACKED)
    disk.put(0, ACKED - 20, bytes(plan.record_bytes))
    files = Files.of(disk, after_power_loss())
    files.listed = False
    return judged(files, make_case(plan, (ACKED,)))


@lab_case("inconclusive: scan-unfinished, nothing-checked")
def old_log_of_a_directory_that_cannot_be_listed() -> str:
    """The server's store is a backup's; the writer has removed the files that the store knows of since."""
    files, case = _log(100)
    files.listed = False
    return judged(files, case)


@lab_case("inconclusive: log-behind; 100 truncated")
def old_log_whose_newer_files_begin_with_bad_sectors() -> str:
    """The server's store is a backup's. What shows it are the first records of two files, and no sector of
    these can be read."""
    files, case = _log(100, 256)
    for suffix in (".0.2", ".0.3"):
        files.bad.update({(suffix, 0), (suffix, SECTOR)})
    return judged(files, case)


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


@lab_case("loss: earlier-loss, unreadable-only, scan-unfinished")
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


def _smaller_run_over(*, logged: bool, torn: bool = False, lost: int = 0, **changes: Any) -> str:
    """The answer where a smaller run has its second superblock among the records, and nothing else on the
    drive. `logged`: there is a log, with `changes` of the case; it knows no later run. `torn`: the drive was
    writing the first one, which is garbage; `lost`: the slots elsewhere whose newest record it lost."""
    plan = plan_of(slots=256)
    disk = disk_of(plan, ACKED)
    smaller = dataclasses.replace(plan, run=77, slots=64)
    offset = smaller.superblock_offsets[1]
    disk.files[MAIN][offset : offset + limits.SUPERBLOCK_BYTES] = superblock(smaller, offset)
    if torn:
        disk.files[MAIN][:SECTOR] = bytes([smaller.run]) * SECTOR
    for slot in range(plan.slots - lost, plan.slots):
        disk.put(0, slot, bytes(plan.record_bytes))
    return judged(disk, make_case(plan, (ACKED,), **changes) if logged else None)


@lab_case("inconclusive: no-server-log, superseded, cut-not-shown, nothing-at-risk; 64 lost")
def smaller_run_that_nobody_knows_of_and_that_was_cut_as_it_began() -> str:
    """The server has lost two runs; an honest drive was cut in the first sync of the second."""
    return _smaller_run_over(logged=False)


@lab_case("inconclusive: superseded; 64 lost")
def smaller_run_that_an_older_log_lacks_and_that_was_cut_as_it_began() -> str:
    """The same, and the server knows the first run, from a backup."""
    return _smaller_run_over(logged=True)


@lab_case("inconclusive: superseded; 64 lost, 1 corrupt")
def smaller_run_that_an_older_log_lacks_and_that_was_cut_in_a_write() -> str:
    """The same, and the drive was writing the other superblock."""
    return _smaller_run_over(logged=True, torn=True)


@lab_case("loss; 64 lost, 1 corrupt")
def smaller_run_that_an_older_log_lacks_and_a_drive_that_lost_more() -> str:
    """A record elsewhere is lost, too; no run that was cut in its first sync has overwritten that."""
    return _smaller_run_over(logged=True, lost=1)


@lab_case("loss; 64 lost")
def smaller_run_that_was_made_before() -> str:
    """The log has the smaller run as an earlier one: the drive has lost what overwrote it."""
    return _smaller_run_over(logged=True, predecessors=(f"{77:016x}",))


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
