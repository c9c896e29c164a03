"""Results of a campaign so far: for each drive the counts, the bound and the rate, and each arm (rule 16).

Drives are never pooled. All arms that cut under load share one bound; other arms are counted separately. A
cut of unknown outcome, for a cause that may lie in the drive, voids the bound. Instead, a bound is given that
counts each such cut as a loss. No cycle is dropped: cycles without a result are listed with their cause. The
log does not say whether a drive's write cache was on, so cuts of all stacks count together here;
`acceptance.known_cuts` counts them separately.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from durability.campaign.campaign_state import CampaignState, PastCycle
from durability.campaign.cycles import arm_of
from durability.campaign.definition.settings import CutMoment
from durability.campaign.log_entries import Cause, DriveCycle
from durability.evidence.strength import CONFIDENCE, interval, upper_bound
from durability.units import counted, percent_at_least, percent_at_most

# Causes that the campaign's log shows and that cannot depend on the drive.
INDEPENDENT: frozenset[Cause] = frozenset({"switch", "not-a-cut", "operator", "agent", "not-armed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Counts and bounds of the cuts of one kind."""

    cuts: int  # cuts with a known outcome, losses included
    losses: int
    unknown: int  # cuts of unknown outcome, for a cause that may lie in the drive
    # The largest probability of a loss per cut that the cuts do not exclude, one-sided 95 %. None without
    # cuts, or with cuts of unknown outcome.
    bound: float | None
    bound_if_lost: float | None  # the bound if each unknown cut were a loss, None without unknown cuts
    # The two-sided 95 % interval of the rate of losses, whatever the outcomes of the unknown cuts are. None
    # without a loss.
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """The result of one arm for one drive."""

    arm: str
    moment: CutMoment  # when the arm cuts the power
    tally: Tally
    kept: int  # cycles of an arm with a question of its own after which all data were in place
    left_out: int  # cycles without a result

    @property
    def clean(self) -> int:
        """Number of cuts with a durable verdict."""
        return self.tally.cuts - self.tally.losses - self.kept


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveResult:
    """The result of one drive."""

    drive: str
    machine: str
    tally: Tally  # all cuts under load
    kept: int  # cycles with the word "kept", in all arms
    arms: tuple[ArmResult, ...]
    first_loss: tuple[int, str] | None  # cycle and run of the first loss in any arm
    first_loss_under_load: int | None  # cycle of the first loss in `tally`
    left_out: tuple[tuple[int, Cause, str], ...]  # cycles without a result: number, cause and text
    left: str  # why the drive no longer takes part, "" if it does

    @property
    def cuts(self) -> int:
        """Number of cuts with a known outcome, in all arms."""
        return sum(arm.tally.cuts for arm in self.arms)

    @property
    def losses(self) -> int:
        """Number of losses, in all arms."""
        return sum(arm.tally.losses for arm in self.arms)

    @property
    def lost_elsewhere(self) -> tuple[ArmResult, ...]:
        """The arms with a loss that do not cut under load. They are counted separately."""
        return tuple(arm for arm in self.arms if arm.moment != "load" and arm.tally.losses)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSoFar:
    """A loss in the present cycle. `results` counts it once the cycle has ended."""

    cycle: int
    drive: str
    run: str
    final: bool  # whether no later verify withdraws it, see `Judged.is_final_loss`


def losses_so_far(state: CampaignState) -> tuple[LossSoFar, ...]:
    """The losses in the present cycle. It may last for days after them, if another machine does not boot."""
    cycle = state.cycle
    if cycle is None:
        return ()
    return tuple(
        LossSoFar(cycle=cycle.began.cycle, drive=drive, run=judged.run, final=judged.is_final_loss)
        for drive, judged in cycle.judged.items()
        if judged.verdict == "loss"
    )


def results(state: CampaignState) -> tuple[DriveResult, ...]:
    """The result of each drive of the campaign, in the order of the campaign file."""
    past = [one for one in state.cycles if one.began.cycle]
    return tuple(_drive_result(state, past, drive.name, drive.machine) for drive in state.plan.drives)


def result_of_cycles(state: CampaignState, drive: str, cycles: Collection[int]) -> DriveResult:
    """The result of one drive from these cycles alone."""
    past = [one for one in state.cycles if one.began.cycle in cycles]
    return _drive_result(state, past, drive, state.machine_of(drive))


def _drive_result(state: CampaignState, past: list[PastCycle], drive: str, machine: str) -> DriveResult:
    said = [(one.began.cycle, mine) for one in past if (mine := one.of(drive)) is not None]
    by_arm: dict[str, list[DriveCycle]] = {arm.name: [] for arm in state.plan.arms}
    for cycle, mine in said:
        by_arm[arm_of(state.plan, cycle).name].append(mine)
    moments = {arm.name: arm.moment for arm in state.plan.arms}
    under_load = [one for one in said if arm_of(state.plan, one[0]).moment == "load"]
    return DriveResult(
        drive=drive,
        machine=machine,
        tally=tally([mine for _, mine in under_load]),
        kept=sum(mine.word == "kept" for _, mine in said),
        arms=tuple(
            ArmResult(
                arm=arm,
                moment=moments[arm],
                tally=tally(cycles),
                kept=sum(mine.word == "kept" for mine in cycles),
                left_out=sum(mine.word == "nothing" for mine in cycles),
            )
            for arm, cycles in by_arm.items()
        ),
        first_loss=next(((cycle, mine.run) for cycle, mine in said if mine.word == "loss"), None),
        first_loss_under_load=next((cycle for cycle, mine in under_load if mine.word == "loss"), None),
        left_out=tuple(
            (cycle, mine.cause or "no-verdict", mine.text) for cycle, mine in said if mine.word == "nothing"
        ),
        left=state.left.get(drive, ""),
    )


def is_unknown(mine: DriveCycle) -> bool:
    """Whether the outcome of a cut is unknown, for a cause that may lie in the drive: it voids the bound."""
    return mine.word == "nothing" and mine.cut and mine.cause not in INDEPENDENT


def tally(cycles: list[DriveCycle]) -> Tally:
    """The tally of `cycles`, which are of one drive and one question."""
    words = Counter(mine.word for mine in cycles)
    losses, cuts = words["loss"], words["loss"] + words["durable"] + words["kept"]
    unknown = sum(map(is_unknown, cycles))
    low, high = interval(losses, cuts, unknown=unknown) if losses else (None, None)
    return Tally(
        cuts=cuts,
        losses=losses,
        unknown=unknown,
        bound=upper_bound(losses, cuts) if cuts and not unknown else None,
        bound_if_lost=upper_bound(losses + unknown, cuts + unknown) if cuts and unknown else None,
        low=low,
        high=high,
    )


def sentence(result: DriveResult) -> str:
    """The result of a drive in sentences (rule 16)."""
    tally = result.tally
    left = _losses_elsewhere(result)
    left += f" It is no longer tested: {result.left}." if result.left else ""
    sure = f"({100 * CONFIDENCE:.0f} %)"
    if tally.losses:
        assert tally.low is not None and tally.high is not None
        unknown = (
            f", and the outcome of {counted(tally.unknown, 'more cut')} is not known" if tally.unknown else ""
        )
        first = result.first_loss_under_load
        return (
            f"LOSS in {tally.losses} of {counted(tally.cuts, 'cut')}, first in cycle {first}{unknown}:"
            f" {percent_at_least(tally.low)} to {percent_at_most(tally.high)} of cuts lose data {sure}.{left}"
        )
    if not tally.cuts:
        elsewhere = any(arm.tally.cuts for arm in result.arms if arm.moment != "load")
        of_load = f"under load with a verdict; {result.kept} kept"
        return f"no cut {of_load if elsewhere else 'with a verdict yet'}.{left}"
    seen = f"no loss seen in {counted(tally.cuts, 'cut')}"
    if tally.bound is not None:
        return f"{seen}: at most {percent_at_most(tally.bound)} of cuts lose data {sure}.{left}"
    assert tally.bound_if_lost is not None
    return (
        f"{seen}, but the outcome of {counted(tally.unknown, 'cut')} is not known, so there is no bound. If"
        f" each of them lost data: at most {percent_at_most(tally.bound_if_lost)} {sure}.{left}"
    )


def _losses_elsewhere(result: DriveResult) -> str:
    """Sentences on losses in arms that do not cut under load."""
    return "".join(
        f" LOSS in {arm.tally.losses} of {counted(arm.tally.cuts, 'cut')} of arm {arm.arm} ({arm.moment})."
        for arm in result.lost_elsewhere
    )
