"""The page: a verdict that a person understands from its first line, at 80 columns, without colour."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durability.evidence.outcome import Outcome
from durability.evidence.verdict import REASONS
from durability.formats.case import PastVerdict
from durability.formats.facts import TargetWarning
from durability.formats.plan import Plan
from durability_client.verify import verdict_text as page
from tests.client.verify.outcomes import judged, partly_set_aside
from tests.core.evidence.memory_target import after_power_loss, make_statistics
from tests.encryption import PRESENT, kernel_says
from tests.sample_facts import drive, facts, file_system

MakePlan = Callable[..., Plan]
HEADINGS = ["Why", "What was checked", "What this does not prove", "What to do next"]


def printed(outcome: Outcome) -> str:
    out = io.StringIO()
    page.write(outcome, out)
    return out.getvalue()


def words(text: str) -> str:
    """The text without its line breaks."""
    return re.sub(r"\s+", " ", text)


def section(text: str, heading: str) -> str:
    """The lines under a heading."""
    return text.partition(f"\n{heading}\n")[2].partition("\n\n")[0]


def test_durable_names_its_class_first_and_its_limits_after(make_plan: MakePlan) -> None:
    """One line says what is shown; the page goes on with why, what was checked, and what is not proved."""
    text = printed(judged(make_plan))

    first, *headings, last = [line for line in text.splitlines() if line and line[0] != " "]
    assert (first, headings) == ("DURABLE across power loss", HEADINGS)
    assert last == "verdict: durable across power loss; series: 1 cut, none lost data"
    assert "unsafe-shutdown counter of every drive rose" in words(section(text, "Why"))
    assert "100 operations of 1 writer" in text
    assert "1 clean cut proves little: up to 95 % of cuts could still lose data" in words(
        section(text, HEADINGS[2])
    )
    assert "at most 26 % of cuts lose data after 10 clean cuts, 9.6 % after 30, 5.0 % after 59" in words(
        section(text, HEADINGS[3])
    )


def past(verdict: str, run: str = "0" * 16) -> PastVerdict:
    """A verdict on another cut of the series, or on this one."""
    return PastVerdict(
        run=run, verdict=verdict, cut_class="power", at_risk_ms1000=1, wall="", enumerations=(run,)
    )


@pytest.mark.parametrize(
    ("others", "state", "says"),
    [
        (["durable"], "2 cuts, none lost data", "2 clean cuts prove little: up to 78 % of cuts"),
        (
            ["durable"] * 58,
            "59 cuts, none lost data",
            "59 clean cuts: at most 5.0 % of cuts lose data, with 95 % confidence",
        ),
        (
            ["durable", "loss"],
            "1 of 3 cuts lost data",
            "1 of 3 cuts lost data: at most 87 % of cuts lose data, with 95 % confidence",
        ),
        (
            ["unverified"],
            "1 cut, none lost data, 1 run may hide a loss",
            "how rare a loss is: 1 cut, none lost data, 1 run may hide a loss",
        ),
    ],
)
def test_the_series_stands_in_the_last_line(
    make_plan: MakePlan, others: list[str], state: str, says: str
) -> None:
    """The last line has the result of the series; the reasons against a bound are in the section above."""
    series = tuple(past(verdict, f"{number:016x}") for number, verdict in enumerate(others))

    text = printed(judged(make_plan, case={"series": series}))

    assert words(text).endswith(f" verdict: durable across power loss; series: {state} ")
    assert says in words(section(text, HEADINGS[2]))


def test_a_drive_without_a_serial_has_no_series(make_plan: MakePlan) -> None:
    """No number of cuts would bound anything, so none is named, and none is missing."""
    armed = facts(drives=(drive(serial=""),))
    now = facts(boot="boot-2", uptime_s=30, drives=(drive(serial=""),))
    outcome = judged(make_plan, now=now, case={"armed": armed})
    text = printed(outcome)

    assert text.splitlines()[-1].endswith("series: none, since a drive reports no serial of its own")
    assert "do not add up to a series" in words(section(text, HEADINGS[2]))
    assert "% of cuts" not in text
    assert "give a virtual disk a serial of its own" in words(section(text, HEADINGS[3]))
    assert outcome.document()["strength"] == {"cuts": 1, "losses": 0, "bound": None}


def test_a_target_without_known_drives_has_no_series(make_plan: MakePlan) -> None:
    """A target without known drives, as on ZFS or NFS, has no series. The text does not mention serials of
    adapters."""
    armed = facts(drives=())
    now = facts(boot="boot-2", uptime_s=30, drives=())
    text = printed(judged(make_plan, now=now, case={"armed": armed}))

    assert text.splitlines()[-1].endswith("series: none, since no drive is known below the target")
    said = "cuts of a target without known drives do not add up to a series"
    assert said in words(section(text, "What this does not prove"))
    assert "no drive is known that a serial identifies" in words(section(text, "What to do next"))
    assert "adapter" not in text

    asked = judged(make_plan, now=now, case={"armed": armed}, min_cuts=3)
    (reason,) = asked.verdict.reasons
    assert reason.text.endswith("1 of 3; a target without known drives has no series")
    assert "adapter" not in printed(asked)


def test_the_last_line_of_other_verdicts(make_plan: MakePlan) -> None:
    """Loss and inconclusive stand there as well, with what is known of the series."""
    loss = printed(judged(make_plan, findings={"lost": 1})).splitlines()[-1]
    stopped = printed(judged(make_plan, now=facts(uptime_s=5000), case={"session_end": "stop"}))
    alone = judged(make_plan, findings={"lost": 1})

    assert loss == "verdict: loss; series: 1 of 1 cut lost data"
    assert stopped.splitlines()[-1] == "verdict: inconclusive; series: no verified cut"
    assert page.last_line(replace(alone, case=None)).endswith("series: unknown without the server's log")


def test_lesser_class_stands_in_the_first_line(make_plan: MakePlan) -> None:
    """The first line names the weaker class: only loss of the operating system was shown, not power loss
    (rule 11)."""
    text = printed(judged(make_plan, now=facts(boot="boot-2", uptime_s=30)))

    assert text.splitlines()[0] == "DURABLE across loss of the operating system; power loss not shown"
    assert "survive a loss of the drive's power" in words(section(text, HEADINGS[2]))


def test_names_are_called_names(make_plan: MakePlan) -> None:
    """A verdict on names speaks of names, and of what makes them durable; its classes say what is wrong."""
    workload = {"workload": "unlink", "group": 4}
    durable = printed(judged(make_plan, plan=workload))
    loss = printed(judged(make_plan, plan=workload, findings={"resurrected": 2, "absent": 1, "torn": 1}))

    assert "every name is present or absent as acknowledged, or newer" in words(durable)
    assert "unlink random, files of 1,024 bytes, fdatasync, then fsync of the directory, 4 per sync" in words(
        durable
    )
    assert "read 64 names in" in words(durable)
    assert "8 names may hold operations that were never acknowledged" in words(durable)
    assert "slot" not in section(durable, "What was checked")
    assert loss.splitlines()[0] == "LOSS: 4 acknowledged operations are lost"
    lost = words(section(loss, "What was lost"))
    assert "resurrected 2 names: a removed name is back" in lost
    assert "absent 1 name: the name is gone" in lost
    assert "torn 1 name: present, but empty, short, or only partly right" in lost


def test_loss_says_what_when_and_where(make_plan: MakePlan) -> None:
    """A loss is one line, then classes, operations, the window before the cut, and examples."""
    outcome = judged(
        make_plan,
        findings={"torn": 1, "lost": 3},
        oldest_lost=(98,),
        newest_lost=(100,),
        order_violations=2,
        unstable=1,
    )
    text = printed(outcome)

    assert text.splitlines()[0] == "LOSS: 4 acknowledged operations are lost"
    lost = words(section(text, "What was lost"))
    assert lost.index("lost 3 slots") < lost.index("torn 1 slot:")
    assert "the lost operations lie in seq 98 to seq 100" in lost
    assert "the oldest of them was acknowledged 1.5 to 54.0 ms and 3 operations before the cut" in lost
    assert "writer 0 slot 7 (TARGET offset 72704)" in lost
    assert f"`durability export {outcome.plan.run:016x} -o FILE`" in section(text, HEADINGS[3])


def test_the_number_of_lost_operations_is_said_once(make_plan: MakePlan) -> None:
    """With one class of findings, only the first line has the number of lost operations. Prefill and
    superblock losses are listed apart."""
    one_class = printed(judged(make_plan, findings={"lost": 37}, oldest_lost=(9,), newest_lost=(99,)))
    before = {("prefill", "truncated"): 25, ("superblock", "truncated"): 2}
    apart = printed(judged(make_plan, findings={"truncated": 64}, apart=before))

    assert one_class.count("37") == 1
    assert apart.splitlines()[0] == "LOSS: 37 acknowledged operations are lost"
    assert apart.count("37") == 1
    lost = words(section(apart, "What was lost"))
    assert "truncated 64 places: the file or device ends before this place" in lost
    assert "prefill 25 of these held no operation yet, only what `run` had prepared" in lost
    assert "superblock 2 of these are copies of the superblock" in lost


@pytest.mark.parametrize(
    ("kind", "count", "said"),
    [
        ("prefill", 3, "the prefill of 3 slots"),
        ("superblock", 1, "1 superblock copy"),
        ("file", 2, "the removal of 2 files"),
        ("earlier name", 1, "the removal of 1 earlier name"),
    ],
)
def test_a_loss_without_lost_operations_says_so(
    make_plan: MakePlan, kind: str, count: int, said: str
) -> None:
    """If only prefill or superblocks are lost, the first line says that no acknowledged operation is lost."""
    outcome = judged(make_plan, findings={"corrupt": count}, apart={(kind, "corrupt"): count})

    assert printed(outcome).splitlines()[0] == f"LOSS: no acknowledged operation is lost, but {said}"


def test_what_is_set_aside_hides_no_lost_operation(make_plan: MakePlan) -> None:
    """The drive went away after the prefill of 20 slots could not be read: the 10 operations that are lost
    are still lost, and of the slots that are set aside nothing is said to be lost."""
    aside = {("prefill", "unreadable"): 20}
    some = judged(make_plan, findings={"lost": 10, "unreadable": 20}, apart=aside, finished=False)
    none = judged(
        make_plan,
        findings={"corrupt": 1, "unreadable": 20},
        apart={**aside, ("superblock", "corrupt"): 1},
        finished=False,
    )

    assert printed(some).splitlines()[0] == "LOSS: 10 acknowledged operations are lost"
    assert printed(none).splitlines()[0] == "LOSS: no acknowledged operation is lost, but 1 superblock copy"
    assert none.document()["lost"] == {"operations": 0, "prefill": 0}


def test_a_superblock_counts_though_slots_of_its_class_are_set_aside(make_plan: MakePlan) -> None:
    """An older log may explain three damaged slots; the page says how many of four findings that leaves."""
    outcome = partly_set_aside(make_plan)

    text = printed(outcome)
    assert text.splitlines()[0] == "LOSS: no acknowledged operation is lost, but 1 superblock copy"
    assert "4 places: " in text and "3 set aside, since the scan did not finish" in words(text)
    assert outcome.document()["lost"] == {"operations": 0, "prefill": 0}


def test_many_writers_do_not_fill_the_page(make_plan: MakePlan) -> None:
    """The ranges of the first writers are listed, the others counted."""
    outcome = judged(
        make_plan,
        plan={"writers": 9},
        findings={"lost": 9},
        oldest_lost=(1,) * 9,
        newest_lost=(1,) * 4 + (7,) * 5,
    )

    lost = words(section(printed(outcome), "What was lost"))
    assert "writer 3 the lost operation is seq 1 others 5 more writers lost operations" in lost


def test_findings_that_do_not_count_are_not_called_lost(make_plan: MakePlan) -> None:
    """Where the run explains what is wrong, the page says so instead of accusing the drive."""
    text = printed(judged(make_plan, findings={"lost": 3}, case={"superseded_by": "00ff"}))

    assert text.splitlines()[0] == "INCONCLUSIVE: a later run wrote to this target"
    assert "`durability verify /mnt/target --run 00ff`" in words(section(text, HEADINGS[-1]))
    assert "lost 3 slots" in words(section(text, "Other observations"))
    assert "What was lost" not in text


def test_inconclusive_says_what_to_do(make_plan: MakePlan) -> None:
    """An inconclusive verdict names the remedy, and its first reason is only in the first line."""
    text = printed(judged(make_plan, now=facts(uptime_s=5000), case={"session_end": "stop"}))

    assert (
        text.splitlines()[0] == "INCONCLUSIVE: the run was stopped cleanly, not by a cut (and 1 more reason)"
    )
    assert "cut the power while the run writes" in words(section(text, HEADINGS[3]))
    assert text.count("stopped cleanly") == 1


def test_a_weaker_cut_comes_with_the_option_to_type(make_plan: MakePlan) -> None:
    """Who can do with less is told what to type."""
    outcome = judged(make_plan, now=facts(boot="boot-2", uptime_s=30), require_cut="power")
    text = printed(outcome)

    assert text.splitlines()[0] == ("INCONCLUSIVE: the cut shown is of a weaker class than required")
    assert "or ask for less: `--require-cut os`" in words(section(text, HEADINGS[3]))


def test_earlier_loss_stands_in_the_first_line(make_plan: MakePlan) -> None:
    """A target that looks right now is still one that lost data."""
    text = printed(judged(make_plan, case={"verdicts": (past("loss"),)}))

    assert text.splitlines()[0] == f"LOSS: {REASONS['earlier-loss']}"


def test_damage_in_flight_is_set_against_the_drives_promise(make_plan: MakePlan) -> None:
    """Damage is not loss, but one within AWUPF breaks what the drive says of itself (rule 7)."""
    promising = facts(boot="boot-2", uptime_s=30, drives=(drive(atomic_write_bytes=4096),))
    text = words(section(printed(judged(make_plan, now=promising, in_flight_damaged=2)), HEADINGS[1]))

    assert (
        "2 of them are damaged, which is not a loss, although the drive claims to write 4,096 bytes" in text
    )


@pytest.mark.parametrize(
    ("workload", "damaged", "says"),
    [
        ("overwrite", 0, "every slot holds acknowledged data, or newer data -"),
        ("overwrite", 1, "or newer data, except 1 slot in flight, which is damaged -"),
        ("unlink", 2, "as acknowledged, or newer, except 2 names in flight, which are damaged -"),
    ],
)
def test_what_is_damaged_in_flight_is_excepted(
    make_plan: MakePlan, workload: str, damaged: int, says: str
) -> None:
    """The text mentions operations in flight that were damaged. The damage is legal, but their places hold
    neither acknowledged nor newer data."""
    text = printed(judged(make_plan, plan={"workload": workload}, in_flight_damaged=damaged))

    assert text.startswith("DURABLE")
    assert says in words(section(text, "Why"))


@pytest.mark.parametrize("workload", ["append", "create", "unlink"])
def test_a_file_that_is_short_in_flight_breaks_no_promise(make_plan: MakePlan, workload: str) -> None:
    """Damaged files in flight are not a loss and do not contradict the drive's AWUPF: the file may be
    empty."""
    promising = facts(boot="boot-2", uptime_s=30, drives=(drive(atomic_write_bytes=4096),))
    outcome = judged(make_plan, now=promising, plan={"workload": workload}, in_flight_damaged=2)

    text = words(section(printed(outcome), HEADINGS[1]))
    assert "2 of them are damaged, which is not a loss" in text
    assert "AWUPF" not in text


@pytest.mark.parametrize(
    ("lost", "words_of_it"), [(0, "this proves nothing"), (3, "a volatile cache below the kernel lost them")]
)
def test_control_arm_is_explained(make_plan: MakePlan, lost: int, words_of_it: str) -> None:
    """The control arm's loss shows a cache; its survival shows nothing (rule 15)."""
    outcome = judged(make_plan, plan={"control_slots": 16}, case={"control": 10}, control_lost=lost)

    text = words(section(printed(outcome), HEADINGS[1]))
    assert f"control arm {lost} of 10 writes that were never synced are lost" in text
    assert words_of_it in text


def test_an_unfinished_scan_does_not_speak_of_what_it_did_not_read(make_plan: MakePlan) -> None:
    """Nothing is said to be there, or to be lost, where the drive may have gone away first."""
    control: dict[str, Any] = {"plan": {"control_slots": 16}, "case": {"control": 10}, "finished": False}
    unread = section(printed(judged(make_plan, checked=0, in_flight=0, **control)), HEADINGS[1])
    failed = section(printed(judged(make_plan, control_lost=3, **control)), HEADINGS[1])

    for text in (unread, failed):
        assert "10 writes that were never synced: unknown, the scan did not finish" in words(text)
    assert "in flight unknown, the scan did not come so far" in words(unread)
    assert "in flight 8 slots may hold operations" in words(failed)


def test_without_a_log_nobody_knows_what_was_at_risk(make_plan: MakePlan) -> None:
    """Then no number of records is given, and the reason says why."""
    text = printed(judged(make_plan, logged=False))

    assert "at risk" not in section(text, HEADINGS[1])
    assert "without a log it is unknown when records were acknowledged" in words(section(text, "Why"))


@pytest.mark.parametrize(
    ("kind", "options", "blames"),
    [
        (None, "", "a volatile cache"),
        ("ext4", "rw,relatime", "a volatile cache"),
        ("xfs", "rw", "a volatile cache"),
        ("ext4", "rw,data=journal", "ext4 may not have passed them to the drive"),
        ("btrfs", "rw", "btrfs may not have passed them to the drive"),
        ("f2fs", "rw,mode=lfs", "f2fs may not have passed them to the drive"),
        ("zfs", "rw", "zfs may not have passed them to the drive"),
    ],
)
def test_a_file_system_that_holds_writes_back_blames_no_cache(
    make_plan: MakePlan, kind: str | None, options: str, blames: str
) -> None:
    """A write that only copy-on-write or the page cache kept from the drive was lost by no cache of it."""
    armed = facts()
    assert armed.file_system is not None
    held = None if kind is None else replace(armed.file_system, type=kind, options=options)
    case = {"control": 10, "armed": replace(armed, file_system=held)}
    outcome = judged(make_plan, plan={"control_slots": 16}, case=case, control_lost=3)

    text = words(section(printed(outcome), HEADINGS[1]))
    assert f"3 of 10 writes that were never synced are lost: {blames}" in text


@pytest.mark.parametrize("layer", ["dm-0 (dm integrity)", "bcache0 (bcache)"])
def test_a_layer_with_a_journal_blames_no_cache(make_plan: MakePlan, layer: str) -> None:
    """It may have had in memory what was never synced, or its new place."""
    armed = facts(file_system=None, layers=("dm-1 (dm crypt)", layer, "sda (drive)"))
    case = {"control": 10, "armed": armed}
    outcome = judged(make_plan, plan={"control_slots": 16}, case=case, control_lost=3)

    text = words(section(printed(outcome), HEADINGS[1]))
    assert f"{layer} may not have passed them to the drive" in text


@pytest.mark.parametrize("on", [file_system(), None])
def test_a_loop_device_blames_no_cache(make_plan: MakePlan, on: Any) -> None:
    """Its backing file's page cache may have had what was never synced."""
    loop = drive(name="loop3", serial="loop:/var/lib/img", model="", unsafe_shutdowns=None)
    armed = facts(drives=(loop,), file_system=on)
    now = facts(boot="boot-2", uptime_s=30, drives=(loop,), file_system=on)
    case = {"control": 10, "armed": armed}
    outcome = judged(make_plan, plan={"control_slots": 16}, case=case, now=now, control_lost=3)

    text = words(section(printed(outcome), HEADINGS[1]))
    assert "the page cache of the backing file of loop3 may not have passed them to the drive" in text
    assert "a volatile cache" not in text


def test_an_encrypted_directory_blames_no_cache(make_plan: MakePlan, tmp_path: Path) -> None:
    """ext4 writes through the page cache in an encrypted directory, even if direct I/O was requested. The
    text blames ext4 and not the drive's cache."""
    now = replace(after_power_loss(), path=str(tmp_path / "target"))
    lost: dict[str, Any] = {"plan": {"control_slots": 16}, "case": {"control": 10}, "control_lost": 3}
    with kernel_says(PRESENT):
        text = words(section(printed(judged(make_plan, now=now, **lost)), HEADINGS[1]))
    assert "lost: ext4 may not have passed them to the drive" in text


@pytest.mark.parametrize("reason", [{"superseded_by": "00ff"}, {"tainted": "claimed too much"}])
def test_no_cache_is_blamed_for_what_something_else_explains(
    make_plan: MakePlan, reason: dict[str, Any]
) -> None:
    """Where a reason explains findings, it may explain what the control arm lacks as well."""
    case = {"control": 10, **reason}
    outcome = judged(make_plan, plan={"control_slots": 16}, case=case, control_lost=3)

    text = words(section(printed(outcome), HEADINGS[1]))
    assert "3 of 10 writes that were never synced are lost: this proves nothing" in text
    assert "volatile cache" not in text


def test_no_cache_is_blamed_for_what_lay_beyond_the_end_of_a_smaller_device(make_plan: MakePlan) -> None:
    """The control arm lies at the end, which a drive that shrank has not."""
    now = replace(after_power_loss(), drives=(drive(size_bytes=1 << 30),))
    outcome = judged(make_plan, plan={"control_slots": 16}, case={"control": 10}, now=now, control_lost=3)

    text = words(section(printed(outcome), HEADINGS[1]))
    assert "3 of 10 writes that were never synced are lost: this proves nothing" in text


def test_a_file_system_that_does_not_mount_is_named(make_plan: MakePlan) -> None:
    """Then its files are gone, and no cache is blamed for what was in them."""
    now = after_power_loss()
    assert now.file_system is not None
    now = replace(now, file_system=replace(now.file_system, mount_point=""))
    gone: dict[str, Any] = {"plan": {"control_slots": 16}, "case": {"control": 10}, "control_lost": 10}

    text = words(section(printed(judged(make_plan, now=now, findings={"truncated": 3}, **gone)), HEADINGS[1]))

    assert ", which does not mount" in text
    assert "10 of 10 writes that were never synced are lost: their file system does not mount" in text


def test_masking_and_mirrors_and_warnings_are_named(make_plan: MakePlan) -> None:
    """The report names what can hide an ignored flush: several writers, unread copies of a mirror, and the
    target's warnings."""
    now = replace(after_power_loss(), warnings=(TargetWarning(code="loop", text="this is a loop device"),))
    second = drive(name="sdb", serial="S2")
    armed = facts(drives=(drive(), second))
    mirror = ("md0 (md raid1)", "sda (drive)", "sdb (drive)")
    now = replace(now, drives=(*now.drives, replace(second, unsafe_shutdowns=4)), layers=mirror)
    outcome = judged(make_plan, now=now, plan={"writers": 2}, case={"armed": armed})
    page = printed(outcome)

    for phrase in ("several writers flush for each other", "further copies that the stack may keep"):
        assert phrase in words(section(page, HEADINGS[2]))
    assert "this is a loop device" in words(section(page, "Warnings"))


@pytest.mark.parametrize(
    ("kind", "wwids", "file_system_type", "said"),
    [
        ("md raid1", ("", ""), "ext4", True),
        ("dm lvm", ("a", "b"), "ext4", True),  # it may be a mirror
        ("drive", ("a", "b"), "btrfs", True),
        ("drive", ("a", "b"), "ext4", False),  # one of them holds its log
        ("md raid0", ("a", "b"), "xfs", False),
        ("dm mpath", ("a", "a"), "xfs", False),
        ("dm lvm", ("a", "a"), "xfs", False),
    ],
)
def test_unread_copies_are_named_where_there_may_be_some(
    make_plan: MakePlan, kind: str, wwids: tuple[str, str], file_system_type: str, said: bool
) -> None:
    """Two drives below a target do not make a mirror, nor do two paths to one drive."""
    first, second = (drive(name=name, wwid=wwid) for name, wwid in zip(("sda", "sdb"), wwids, strict=True))
    now = replace(
        after_power_loss(),
        drives=(first, second),
        layers=(f"top ({kind})", "sda (drive)", "sdb (drive)"),
        file_system=file_system(type=file_system_type),
    )
    text = printed(judged(make_plan, now=now, case={"armed": facts(drives=(first, second))}))

    assert ("one copy was read" in words(section(text, HEADINGS[2]))) == said


def test_findings_of_another_run_are_no_loss_of_this_one(make_plan: MakePlan) -> None:
    """The loss is that of an earlier pass; what the later run left is told apart from it, with the reason."""
    later = {"verdicts": (past("loss"),), "superseded_by": "00ff"}
    outcome = judged(make_plan, findings={"lost": 64}, oldest_lost=(1,), newest_lost=(100,), case=later)
    text = printed(outcome)

    assert outcome.verdict.word == "loss"
    assert words(text).startswith("LOSS: an earlier verify of this run found a loss")
    assert "a later run wrote to this target: run 00ff" in words(section(text, "Why"))
    assert "lost 64 slots" in words(section(text, "Other observations"))
    assert "What was lost" not in text
    assert "lost operations" not in text


@pytest.mark.parametrize("columns", ["80", "200", "40"])
def test_page_is_plain_and_fits(make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    """Not on a terminal there is no escape sequence, no trailing blank, and no line beyond the width."""
    monkeypatch.setenv("COLUMNS", columns)
    text = printed(judged(make_plan, findings={"lost": 3}, oldest_lost=(98,), newest_lost=(100,)))

    assert "\x1b" not in text
    lines = text.splitlines()
    assert all(line == line.rstrip() for line in lines)
    # A command is not broken, so that it can be copied.
    assert max(len(line) for line in lines if "`" not in line) <= min(int(columns), 100)


def test_flushes_are_held_against_syncs(make_plan: MakePlan) -> None:
    """Each drive's flushes per sync stand beside what the commits cost."""
    text = words(section(printed(judged(make_plan)), HEADINGS[1]))

    assert "flushes sda: 1 per sync (100 for 100 syncs)" in text
    assert "commits p50 1 ms, max 1 ms rate 10 per second, in 10.0 s" in text  # too few for a p95
    assert "processor 2 x CPU, governor powersave, load 0.50, 40 % busy, 1.2 % taken by the host" in text


def test_drive_that_got_no_flush_was_not_tested_for_it(make_plan: MakePlan) -> None:
    """A pass without one flush is no pass of the flush, and the page says so (rule 17)."""
    silent = make_statistics(operations=(100,), flushes={"sda": 0})

    text = printed(judged(make_plan, case={"statistics": silent}))

    assert "sda: no flush was sent" in words(section(text, HEADINGS[1]))
    assert "that sda honours a flush: no flush was sent" in words(section(text, HEADINGS[2]))


def test_run_without_statistics_claims_nothing(make_plan: MakePlan) -> None:
    """Where no figures arrived, flushes are unknown, not none."""
    text = printed(judged(make_plan, case={"statistics": None}))

    assert "sda: flushes unknown: no statistics of this run arrived" in words(section(text, HEADINGS[1]))
    assert "no flush was sent" not in text


def test_brackets_are_not_markup(make_plan: MakePlan) -> None:
    """A path or label that looks like markup comes out as it is."""
    assert "[bold]bench[/bold]" in printed(judged(make_plan, case={"label": "[bold]bench[/bold]"}))
