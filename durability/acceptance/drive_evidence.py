"""Evidence on one drive: campaigns, cuts of single runs, and results of the benchmark.

Other modules gather the evidence. Each part has the name under which a reader finds it again. `criteria`
judges the evidence; this module does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import TypeVar

from durability import plain_text
from durability.acceptance.cycle_under_way import number_under_way, with_cycle_under_way
from durability.bench.decision.proof import Proof, losses_in
from durability.bench.hashed_serials import HASHED, hashed
from durability.bench.result import Result
from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycle_outcome import OF_THE_DRIVE
from durability.campaign.cycles import arm_of
from durability.campaign.definition.settings import CutMoment
from durability.campaign.health import HealthRow, health_rows, health_warnings
from durability.campaign.log_entries import Cause, OutcomeWord
from durability.campaign.results import INDEPENDENT, DriveResult, results
from durability.campaign.tasks import Trouble
from durability.evidence.cut import CUT_CLASSES, CutClass, at_least
from durability.formats.facts import Drive, Facts
from durability.units import counted

T = TypeVar("T")
_WHY_CHARACTERS_MAX = 200  # longest reason for a broken-off result in a sentence; the JSON has all of it
_AND = " + "  # joins the names of several drives

# Troubles that keep a cycle from beginning but say nothing about the drive.
_NOT_OF_THE_DRIVE: frozenset[Trouble] = frozenset({"in-use", "system-disk", "not-begun"})

# Health warnings of a campaign that other campaigns cannot refute.
_WARNINGS_AGAINST = frozenset({"smaller", "backup-failed", "media-errors"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The drive, or the drives below one target. Names of several drives are joined by " + "."""

    model: str  # model, serial and firmware as the drives report them
    serial: str
    firmware: str
    size_bytes: int
    machine: str  # where the drive was tested, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchEvidence:
    """A result of the benchmark."""

    name: str  # name of its file, or its name on the server
    sha256: str  # SHA-256 of the file
    result: Result
    client: str = ""  # id of the client that stored it, "" for the operator or a file

    @property
    def broken_off(self) -> str:
        """Why the result is incomplete, as a sentence without a full stop. "" if it is complete."""
        if self.result.complete:
            return ""
        why = shorten(plain_text.as_line(self.result.stopped), _WHY_CHARACTERS_MAX, placeholder="…")
        return f"{self.name} was broken off before its end: {why or 'the reason is unknown'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleWord:
    """The outcome of one cycle for the drive."""

    cycle: int
    arm: str
    moment: CutMoment  # when the arm cuts the power
    word: OutcomeWord
    cause: Cause | None
    cut: bool  # the drive lost its power
    back: bool  # the agent reported the drive after the cut, and did not fail
    trouble: str  # how the drive was not in the expected state, in words, "" for no trouble
    under_way: bool = False  # the cycle has not ended, so this is its outcome so far

    @property
    def was_seen(self) -> bool:
        """Whether the drive was there after its cut. Either a verify has read it, or the agent reported it
        and the cycle had no verdict for a reason that does not depend on the drive."""
        if self.word != "nothing" or self.cause == "inconclusive":
            return self.cut
        return self.cut and self.back and self.cause in INDEPENDENT


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignEvidence:
    """The evidence of a campaign on the drive."""

    name: str
    state: str  # "running", "paused" or "ended", with the reason
    began: str  # wall time of the check
    ended: str  # wall time at which the last cycle ended, "" without a cycle
    cut_class: CutClass
    planned: int  # cuts that the campaign file asks for
    result: DriveResult
    cycles: tuple[CycleWord, ...]  # oldest first
    rows: tuple[HealthRow, ...]  # oldest first
    checked_after: tuple[int, ...] = (0,)  # for each row of a check, the number of the last cycle before it

    @property
    def speaks_against(self) -> bool:
        """Whether the campaign saw the drive fail, or did not see it after a cut."""
        unseen = any(one.cut and not one.was_seen and not one.under_way for one in self.cycles)
        warned = any(one.code in _WARNINGS_AGAINST for one in health_warnings(self.rows))
        return unseen or warned or any(one.trouble for one in self.cycles)

    @property
    def placed_rows(self) -> list[tuple[int, HealthRow]]:
        """Each row with the number of its cycle. The row of a check has the number of the last cycle before
        the check: a campaign is checked again if it goes on after a long pause."""
        checks = iter(self.checked_after)
        return [(row.cycle or next(checks, 0), row) for row in self.rows]

    @property
    def cuts(self) -> tuple[CycleWord, ...]:
        """The cycles in which the drive lost its power."""
        return tuple(one for one in self.cycles if one.cut)

    def after_cuts(self, figure: Callable[[HealthRow], T | None]) -> dict[int, T]:
        """By cycle, a figure that was read after the cut of that cycle. Cycles in which the agent did not
        report the drive after the cut are left out: their figures are from before the cut."""
        read = {one.cycle for one in self.cuts if one.back}
        return {
            row.cycle: value for row in self.rows if row.cycle in read and (value := figure(row)) is not None
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveEvidence:
    """All evidence on one drive."""

    subject: Subject
    facts: tuple[Facts, ...]  # facts of each run and result, newest first
    campaigns: tuple[CampaignEvidence, ...]
    proofs: tuple[Proof, ...]  # proofs of its campaigns and single runs
    results: tuple[BenchEvidence, ...]
    # Campaigns that the user did not name and that saw the drive fail. They count only against the drive.
    against: tuple[CampaignEvidence, ...] = ()
    left_out: tuple[str, ...] = ()  # claims of other clients that do not count, in sentences
    unfinished: tuple[str, ...] = ()  # evidence that was not searched completely and may hold a loss
    to_verify: tuple[str, ...] = ()  # single runs without an outcome and how to get it, in sentences
    disputed: str = ""  # claims against the drive by clients whose runs do not count, in words, "" for none
    searched: bool = True  # whether a server was asked for cuts of the drive

    @property
    def proofs_apart(self) -> dict[str, list[Proof]]:
        """By source, the proofs of single runs, and of campaigns of which only the proof counts."""
        whole = {f"campaign {one.name}" for one in (*self.campaigns, *self.against)}
        apart: dict[str, list[Proof]] = {}
        for proof in self.proofs:
            if proof.source not in whole:
                apart.setdefault(proof.source, []).append(proof)
        return apart

    def unanswered(self, weakest: CutClass) -> tuple[str, str] | None:
        """The first series, of class `weakest` or stronger, with cuts of unknown outcome: these cuts in
        words, and their source. None if all outcomes are known. Such cuts void the bound (rule 16), unless
        their loss would say nothing about the measured stack."""
        for proof in self.proofs:
            is_open = proof.bound is None and not proof.losses and not proof.withheld
            if is_open and is_of_class(proof, weakest):
                return f"{counted(proof.unknown, 'cut')} of {proof.source} with unknown outcome", proof.source
        return None

    def bounding(self, weakest: CutClass) -> Proof | None:
        """The longest series without a loss, of class `weakest` or stronger, in the measured stack. It gives
        the best bound on losses. None if there is no such series, if any cut lost data, or if a cut has no
        outcome."""
        if any(one.word == "lost data" for one in self.proofs) or self.unanswered(weakest) is not None:
            return None
        clean = [
            one
            for one in self.proofs
            if not one.losses and not one.but and one.bound is not None and is_of_class(one, weakest)
        ]
        return max(clean, key=lambda one: one.cuts, default=None)


def is_of_class(proof: Proof, weakest: CutClass) -> bool:
    """Whether the cuts of a proof were of the class `weakest` or of a stronger one."""
    return any(proof.cut_class == known and at_least(known, weakest) for known in CUT_CLASSES)


def is_name_of_each(joined: str) -> bool:
    """Whether each of the drives has a name. `joined`: the names, joined by " + "."""
    return all(joined.split(_AND))


def campaign_evidence(state: CampaignState, drive: str) -> CampaignEvidence:
    """The evidence of a campaign on its drive with this name."""
    under_way = number_under_way(state)
    state = with_cycle_under_way(state)
    result = next(one for one in results(state) if one.drive == drive)
    past = [one for one in state.cycles if one.began.cycle]
    rows = health_rows(state, drive)
    cycles = []
    checked_after, last = [], 0
    for one in state.cycles:
        last = max(last, one.began.cycle)
        if not one.began.cycle and drive in one.statuses:
            checked_after.append(last)
    for one in past:
        mine = one.of(drive)
        if mine is None:
            continue
        status = one.statuses.get(drive)
        trouble = status.trouble if status is not None and status.state == "failed" else ""
        arm = arm_of(state.plan, one.began.cycle)
        of_the_drive = mine.cause == "drive" and trouble not in _NOT_OF_THE_DRIVE
        troubled = of_the_drive or trouble in OF_THE_DRIVE - _NOT_OF_THE_DRIVE
        reported = status.text if status is not None else ""
        # If a drive is missing, the agent's text says more than the text that its machine is not back.
        said = mine.text or reported if of_the_drive else reported or mine.text
        cycles.append(
            CycleWord(
                cycle=one.began.cycle,
                arm=arm.name,
                moment=arm.moment,
                word=mine.word,
                cause=mine.cause,
                cut=drive in one.cut and mine.cause != "not-a-cut",
                back=drive in one.back,
                trouble=(said or "it was not in the expected state") if troubled else "",
                under_way=one.began.cycle == under_way,
            )
        )
    return CampaignEvidence(
        name=state.plan.name,
        state=f"{state.state}: {state.reason}" if state.reason else state.state,
        began=state.checked_at,
        ended=past[-1].wall if past else "",
        cut_class=state.plan.cut_class,
        planned=state.plan.cuts,
        result=result,
        cycles=tuple(cycles),
        rows=rows,
        checked_after=tuple(checked_after),
    )


def campaign_proof(name: str, cut_class: CutClass, drive: DriveResult) -> Proof | None:
    """The proof of a campaign on a drive, None if the campaign has no cut under load and no loss. `name`:
    name of the campaign. After a loss, the counts are of the arms that lost: the others do not weaken it."""
    under_load, elsewhere = drive.tally, drive.lost_elsewhere
    if not under_load.cuts and not under_load.unknown and not elsewhere:
        return None
    # Arms that do not cut under load count only if they lost data.
    tallies = [under_load] if under_load.losses or not elsewhere else []
    words = [f"{losses_in(one.losses, one.cuts)} under load" for one in tallies]
    for arm in elsewhere:
        tallies.append(arm.tally)
        words.append(f"{losses_in(arm.tally.losses, arm.tally.cuts)} of arm {arm.arm} ({arm.moment})")
    source = f"campaign {name}"
    return Proof(
        cuts=sum(one.cuts for one in tallies),
        losses=sum(one.losses for one in tallies),
        bound=tallies[0].bound if len(tallies) == 1 else None,  # arms of several questions share no bound
        cut_class=cut_class,
        source=source,
        lost_in=f"cycle {drive.first_loss[0]} of {source}" if drive.first_loss is not None else "",
        unknown=sum(one.unknown for one in tallies),
        lost_by_arm=" and ".join(words) if elsewhere else "",
    )


def subject_of(facts: Sequence[Facts], rows: Sequence[HealthRow]) -> Subject:
    """The drive that the facts (newest first) and the rows of campaigns describe. A serial that is shown is
    preferred to a hashed one. Several drives are in the order of the newest facts."""
    newest = facts[0]
    known = [(row.serial, row.firmware) for row in reversed(rows)]
    known = [_in_order_of(newest.drives, *one) for one in known]
    serials = [serial for serial, _ in known if serial]
    firmwares = [firmware for _, firmware in known if is_name_of_each(firmware)]
    for one in facts:
        serial = _AND.join(drive.serial for drive in one.drives)
        firmware = _AND.join(filter(None, (drive.firmware for drive in one.drives)))
        serial, firmware = _in_order_of(newest.drives, serial, firmware)
        serials.append(serial)
        firmwares.append(firmware)
    shown = next((serial for serial in serials if serial and HASHED not in serial), "")
    host = newest.host
    inside = "" if host.virtualisation in ("none", "") else f", a guest of {host.virtualisation}"
    return Subject(
        model=_AND.join(drive.model or drive.name for drive in newest.drives) or "no drive is named",
        serial=shown or next(filter(None, serials), ""),
        firmware=next(filter(None, firmwares), ""),
        size_bytes=sum(drive.size_bytes for drive in newest.drives) or newest.size_bytes,
        machine=f"{host.hostname or 'unnamed'} (Linux {host.release}{inside})",
    )


def _in_order_of(drives: Sequence[Drive], serial: str, firmware: str) -> tuple[str, str]:
    """Serials and firmwares of several drives, sorted in the order of `drives`: the kernel may have found
    them in another order. They stay as they are if the serials do not identify the drives."""
    serials, firmwares = serial.split(_AND), firmware.split(_AND)
    places = {hashed(one): place for place, one in enumerate(serials)}
    order = [place for drive in drives if (place := places.get(hashed(drive.serial))) is not None]
    if not len(drives) == len(serials) == len(set(order)):
        return serial, firmware
    if len(firmwares) == len(serials):
        firmware = _AND.join(firmwares[place] for place in order)
    return _AND.join(serials[place] for place in order), firmware
