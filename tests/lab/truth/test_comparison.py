"""The comparison with the truth notices whatever a tester may do wrong, and excuses only what it must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from durability.evidence.judgement import Judgement
from durability.evidence.outcome import EXAMPLES_MAX, example
from durability.evidence.scan_report import ScanReport
from durability.formats.plan import MAIN, Plan
from durability_lab.drive.drive_log import LABEL_BYTES, Broken, Kind
from durability_lab.truth.comparison import Claims, LogAlone, Truth, compare
from durability_lab.truth.reference_judge import SUPERBLOCK, Place, ReferenceJudge, Wrong
from tests.core.evidence.memory_target import SECTOR, Disk, small
from tests.lab.truth.disk_storage import reference_on, scanned

MakePlan = Callable[..., Plan]
ACKED = 100
LOST: Place = (0, 3)
GARBAGE = b"\xa5" * SECTOR


@dataclass
class Cut:
    """A target after a cut: 100 operations on 64 slots were acknowledged, and the server knows of `acked`.

    `broken`: the promises that the drive has not kept. What is not told to be broken is as it was promised.
    """

    disk: Disk
    broken: list[Broken]
    acked: int = ACKED

    def lose(self, slot: int, *, seq: int = 0) -> None:
        """The drive kept an older version of a slot."""
        self.put(slot, self.disk.record(0, slot, seq), "older")

    def put(self, slot: int, data: bytes, kind: Kind) -> None:
        """The drive has something else in a slot, from its first sector on."""
        promised = self.disk.get(0, slot)
        offset = self.disk.versions.place(0, slot)[1]
        self.disk.put(0, slot, data)
        for start in range(0, len(data), SECTOR):
            self.break_promise(promised[start : start + LABEL_BYTES], kind, offset + start)

    def break_promise(self, label: bytes, kind: Kind = "garbage", offset: int = 0) -> None:
        """The drive has not kept what had that label, wherever that was."""
        self.broken.append(Broken(offset=offset, kind=kind, promised=label, found=b""))

    def scan(self) -> tuple[list[Judgement], ScanReport]:
        return scanned(self.disk, [self.acked])

    def reference(self) -> ReferenceJudge:
        return reference_on(self.disk, [self.acked])

    def claims(self) -> Claims:
        return Claims.of_scan(*self.scan())

    def unread(self, claims: Claims) -> Truth:
        """The truth where nobody but the tester can read the target."""
        log = LogAlone(plan=self.disk.plan, acked=(self.acked,))
        return compare(claims, log, self.disk.plan, self.broken, promised=999)

    def truth(self, claims: Claims | None = None) -> Truth:
        return compare(claims or self.claims(), self.reference(), self.disk.plan, self.broken, promised=999)


def written(plan: Plan) -> Cut:
    """A drive that has kept everything, at first."""
    disk = Disk(plan)
    disk.write_to(0, ACKED)
    return Cut(disk, [])


@pytest.fixture
def cut(make_plan: MakePlan) -> Cut:
    """The same, of a device."""
    return written(small(make_plan, target_kind="device"))


NOTHING = Claims(counts=Counter(), places={}, finished=True)


def without(claims: Claims, place: Place) -> Claims:
    """Claims of a tester that overlooks a place."""
    kept = {other: wrong for other, wrong in claims.places.items() if other != place}
    return replace(claims, places=kept, counts=Counter(wrong.finding for wrong in kept.values()))


def with_one(claims: Claims, place: Place, wrong: Wrong) -> Claims:
    """Claims of a tester that says this of a place."""
    places = {**claims.places, place: wrong}
    return replace(claims, places=places, counts=Counter(one.finding for one in places.values()))


def test_what_is_found_and_true_agrees(cut: Cut) -> None:
    """Whole versions, sectors and superblocks are held against the promises for them."""
    cut.lose(LOST[1])
    cut.put(7, GARBAGE, "garbage")
    cut.disk.files[MAIN][:1] = b"!"
    cut.break_promise(bytes(Disk(cut.disk.plan).files[MAIN][:LABEL_BYTES]))
    truth = cut.truth()
    assert truth.defects == ()
    assert truth.agreed == {"lost": 1, "corrupt": 2}
    assert (truth.promised, truth.broken, truth.damaged) == (999, 4, 3)
    assert not truth.false and not truth.missed and not truth.unclaimed


def test_overlooked_loss_is_a_defect(cut: Cut) -> None:
    """A promise is broken within the tester's knowledge: it has no excuse."""
    cut.lose(LOST[1])
    truth = cut.truth(without(cut.claims(), LOST))
    assert truth.missed == {"lost": 1}
    assert any("nothing is claimed" in defect for defect in truth.defects)


def test_invented_loss_is_a_defect(cut: Cut) -> None:
    """The slot holds what it must."""
    invented = Wrong(finding="lost", expected=3, found=0)
    truth = cut.truth(with_one(cut.claims(), LOST, invented))
    assert truth.false == {"lost": 1}
    assert truth.defects


def test_loss_without_a_broken_promise_is_a_defect(cut: Cut) -> None:
    """Both judges call the slot lost; the drive never promised it, so the lab itself is wrong somewhere."""
    cut.lose(LOST[1])
    cut.broken.clear()
    truth = cut.truth()
    assert truth.false == {"lost": 1}
    assert "no promise is broken" in truth.defects[0]


@pytest.mark.parametrize(
    "tell",
    [
        lambda wrong: replace(wrong, finding="torn"),
        lambda wrong: replace(wrong, expected=wrong.expected - 1),
        lambda wrong: replace(wrong, found=1),
    ],
    ids=["class", "expected", "found"],
)
def test_class_and_operations_must_agree(cut: Cut, tell: Callable[[Wrong], Wrong]) -> None:
    """A loss that is called by another name, or dated otherwise, is not the loss that it is."""
    cut.lose(LOST[1])
    claims = cut.claims()
    truth = cut.truth(with_one(claims, LOST, tell(claims.places[LOST])))
    assert truth.defects
    assert truth.false and truth.missed


def test_frontiers_must_agree(cut: Cut) -> None:
    """A tester that hears more, or less, than the disk testifies is wrong even if that shows nowhere yet."""
    assert cut.truth(replace(cut.claims(), proven=(ACKED - 1,))).defects


def test_document_of_verify_must_be_what_a_scan_finds(cut: Cut) -> None:
    """The examples and the count in the document of `verify` must equal those of a scan."""
    for slot in range(EXAMPLES_MAX + 8):
        cut.lose(slot)
    findings, report = cut.scan()
    claims = Claims.of_scan(findings, report)
    document = {
        "findings": report.findings,
        "reasons": [{"code": "findings"}],
        "examples": [example(one) for one in findings[:EXAMPLES_MAX]],
    }
    assert claims.differences(Claims.of_document(document)) == ()

    miscounted = Claims.of_document({**document, "findings": {"lost": len(findings) - 1}})
    assert "23 lost, a scan of all 24 lost" in claims.differences(miscounted)[0]
    other = {**example(findings[0]), "class": "torn"}
    assert "says torn" in claims.differences(Claims.of_document({**document, "examples": [other]}))[0]


def test_claim_whose_place_is_not_named_is_compared_by_its_number(cut: Cut) -> None:
    """Unnamed claims beyond the end of a file are compared by their number. The right number is not a defect,
    and these claims do not count as agreed."""
    cut.lose(LOST[1])
    cut.lose(9)
    counted = replace(without(cut.claims(), LOST), counts=Counter({"lost": 2}))
    truth = cut.truth(counted)
    assert (truth.agreed, truth.unjudged, truth.missed) == ({"lost": 1}, {"lost": 1}, {})
    assert truth.defects == ()
    miscounted = cut.truth(replace(counted, counts=Counter({"lost": 3})))
    assert miscounted.defects and miscounted.missed == {"lost": 1}


def test_claim_in_another_place_does_not_count_for_the_one_overlooked(cut: Cut) -> None:
    """A claim in a wrong place is false, and the right place is missed, even if the number of findings is
    right."""
    cut.lose(LOST[1])
    moved = with_one(without(cut.claims(), LOST), (0, 9), Wrong(finding="lost", expected=9, found=0))
    truth = cut.truth(moved)
    assert (truth.agreed, truth.false, truth.missed) == ({}, {"lost": 1}, {"lost": 1})


def test_promise_of_which_nobody_heard_is_excused(cut: Cut) -> None:
    """The last two operations are gone; the server heard of neither, and nothing was issued after them."""
    for seq in (ACKED - 1, ACKED):
        cut.lose(cut.disk.slot_of(0, seq), seq=cut.disk.newest(0, cut.disk.slot_of(0, seq), seq - 1))
    cut.acked = ACKED - 2
    truth = cut.truth()
    assert (truth.unclaimed, truth.defects) == ({"unheard": 2}, ())


def test_promise_of_which_the_disk_tells_is_not_excused(cut: Cut) -> None:
    """The operation after the lost one is on the disk. So the lost one was acknowledged, although the server
    never heard so."""
    slot = cut.disk.slot_of(0, ACKED - 1)
    cut.lose(slot, seq=cut.disk.newest(0, slot, ACKED - 2))
    cut.acked = ACKED - 2
    truth = cut.truth(without(cut.claims(), (0, slot)))
    assert truth.missed == {"lost": 1}


def test_damage_to_a_slot_in_flight_is_excused(cut: Cut) -> None:
    """The server cannot know that no write was under way there."""
    cut.put(cut.disk.slot_of(0, ACKED + 1), GARBAGE, "garbage")
    truth = cut.truth()
    assert (truth.unclaimed, truth.defects) == ({"in flight": 1}, ())


def test_promise_for_what_was_covered_is_excused(cut: Cut) -> None:
    """A file system puts the newer version in another place; the older one need not be kept."""
    cut.break_promise(cut.disk.record(0, LOST[1], 0)[:LABEL_BYTES])
    truth = cut.truth()
    assert (truth.unclaimed, truth.defects) == ({"covered": 1}, ())


def test_superblock_has_no_excuse(cut: Cut) -> None:
    """Nothing is ever under way to it."""
    cut.break_promise(bytes(cut.disk.files[MAIN][:LABEL_BYTES]))
    assert cut.truth().missed == {"corrupt": 1}


def test_promises_to_others_are_counted_apart(cut: Cut) -> None:
    """Broken promises of the control arm, which is not acknowledged to the server, and of data without a
    label are counted apart."""
    plan = cut.disk.plan
    control = Disk(replace(plan, control_slots=4)).record(plan.control_writer, 0, 0)
    for label in (control[:LABEL_BYTES], control[SECTOR : SECTOR + LABEL_BYTES], b"", b""):
        cut.break_promise(label)
    truth = cut.truth()
    assert (truth.unclaimed, truth.defects) == ({"control": 1, "no record": 2}, ())
    assert truth.damaged == 0


def test_scan_that_did_not_end_is_an_excuse_for_the_rest(cut: Cut) -> None:
    """If a scan is unfinished, its findings must be true, and missing findings are excused."""
    cut.lose(LOST[1])
    cut.lose(9)
    partial = replace(without(cut.claims(), LOST), finished=False)
    truth = cut.truth(partial)
    assert (truth.agreed, truth.unclaimed, truth.defects) == ({"lost": 1}, {"unread": 1}, ())
    unnamed = replace(partial, counts=partial.counts + Counter({"torn": 2}))
    assert cut.truth(unnamed).unjudged == {"torn": 2}


@pytest.mark.parametrize("kind", ["device", "file"])
def test_file_system_loses_records_through_its_own_metadata(make_plan: MakePlan, kind: str) -> None:
    """On a device nothing stands between a record and its sectors; of a file the promise may be to others."""
    cut = written(small(make_plan, target_kind=kind))
    cut.lose(LOST[1])
    cut.broken.clear()
    cut.break_promise(b"")
    truth = cut.truth()
    assert truth.agreed == ({"lost": 1} if kind == "file" else {})
    assert bool(truth.defects) == (kind == "device")


def test_claims_on_a_target_that_nobody_can_read_are_not_judged(cut: Cut) -> None:
    """Claims on an unreadable target count neither as true nor as false. If the drive kept every promise,
    they are a defect."""
    claims = Claims(counts=Counter({"truncated": 64}), places={}, finished=True)
    truth = cut.unread(claims)
    assert truth.defects == ("claimed 64 truncated, and no promise is broken",)
    cut.break_promise(b"")
    broken = cut.unread(claims)
    assert broken.defects == ()
    for one in (truth, broken):
        assert (one.agreed, one.false, one.missed) == ({}, {}, {})
        assert one.unjudged == {"truncated": 64}


def test_log_alone_excuses_what_the_server_cannot_know(cut: Cut) -> None:
    """Without claims each broken promise has a reason by the log: too new, covered, in flight, the scan."""
    heard, in_flight = ACKED - 2, cut.disk.slot_of(0, ACKED - 1)
    cut.acked = heard
    for slot, seq in ((cut.disk.slot_of(0, ACKED), ACKED), (LOST[1], 0)):
        cut.break_promise(cut.disk.record(0, slot, seq)[:LABEL_BYTES])
    newest = cut.disk.newest(0, in_flight, heard)
    cut.break_promise(cut.disk.record(0, in_flight, newest)[:LABEL_BYTES])
    truth = cut.unread(NOTHING)
    assert truth.defects == ()
    assert truth.unclaimed == {"unheard": 1, "covered": 1, "in flight": 1}
    assert cut.unread(replace(NOTHING, finished=False)).unclaimed == {"unread": 3}


def test_log_alone_does_not_excuse_an_older_version_in_flight(cut: Cut) -> None:
    """A write under way may leave damage, but never what was there before the version acknowledged."""
    slot = cut.disk.slot_of(0, ACKED + 1)
    cut.lose(slot)
    assert len(cut.unread(NOTHING).defects) == 1


@pytest.mark.parametrize("place", [LOST, (SUPERBLOCK, 0)], ids=["record", "superblock"])
def test_silence_over_what_must_be_there_is_a_defect(cut: Cut, place: Place) -> None:
    """The log alone tells that the newest acknowledged record, and each superblock, must be there."""
    if place[0] == SUPERBLOCK:
        cut.break_promise(bytes(cut.disk.files[MAIN][:LABEL_BYTES]))
    else:
        cut.lose(place[1])
    truth = cut.unread(NOTHING)
    assert "and nothing is claimed" in truth.defects[0]
    assert not truth.missed, "only what the reference judge has read is counted"
