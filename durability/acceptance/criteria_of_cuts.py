"""Kinds of criteria about cuts: losses, and the state and reports of the drive after the cuts.

A value read before a cut is not evidence of the effect of the cut, so each criterion needs a value read after
the last cut. A missing value never passes: a drive that does not report its spare blocks has not shown them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TypeVar

from durability.acceptance.drive_evidence import (
    CampaignEvidence,
    CycleWord,
    DriveEvidence,
    is_name_of_each,
    is_of_class,
)
from durability.acceptance.kinds import (
    Finding,
    Limit,
    compare_with_limit,
    kind,
    value_text,
    worse_finding,
    worst_value,
)
from durability.acceptance.profile import Criterion, DecisionWord
from durability.bench.decision.proof import of_other_stacks
from durability.campaign.health import HealthRow, health_warnings, known_values
from durability.campaign.tasks import in_one_order
from durability.units import counted, format_size, percent_at_most

T = TypeVar("T")

_NO_CAMPAIGN = "no campaign of this drive is known"
_NO_CUT = "no campaign has cut its power"
_NAMED_MAX = 4  # campaigns named beside a figure


# Cuts.


@kind(
    "clean-cuts",
    "cuts without a loss",
    Limit(sense="at least", unit="cuts", low=1, high=100_000, whole=True),
    counts_cuts=True,
)
def _clean_cuts(evidence: DriveEvidence, criterion: Criterion) -> Finding:
    lost = next((one for one in evidence.proofs if one.word == "lost data"), None)
    if lost is not None:
        other = f" ({lost.but})" if lost.but else ""
        return Finding(
            word="refuse",
            figure=f"{lost.losses_text}, first in {lost.lost_in or lost.source}{other}",
            source=lost.source,
        )
    best = evidence.bounding(criterion.cut_class)
    if best is None:
        return _unbounded(evidence, criterion)
    assert best.bound is not None and criterion.limit is not None
    if evidence.disputed:  # the disputed claim may be about this drive
        figure = f"{counted(best.cuts, 'cut')} without a loss, but {evidence.disputed}"
        return Finding(word="not shown", figure=figure, source=best.source)
    bound = percent_at_most(best.bound)
    figure = f"{counted(best.cuts, 'cut')} without a loss: at most {bound} of cuts may lose"
    apart = of_other_stacks(best, evidence.proofs)
    figure += f" data (95 % confidence){f', not counting {apart}' if apart else ''}"
    word: DecisionWord = "pass" if best.cuts >= criterion.limit else "not shown"
    return Finding(word=word, figure=figure, source=best.source)


def _unbounded(evidence: DriveEvidence, criterion: Criterion) -> Finding:
    """The finding if cuts without a loss give no bound, with the reason."""
    if not evidence.proofs:
        return Finding(word="not shown", figure=_no_cut(evidence))
    counting = [one for one in evidence.proofs if is_of_class(one, criterion.cut_class)]
    void = evidence.unanswered(criterion.cut_class)
    if void is not None:
        most = max((one.cuts for one in counting if not one.losses), default=0)
        clean = f"{counted(most, 'cut')} without a loss, but " if most else ""
        return Finding(word="not shown", figure=f"{clean}{void[0]}, so nothing is bounded", source=void[1])
    best = max(counting or evidence.proofs, key=lambda one: (one.losses > 0, one.cuts))
    figure = f"{counted(best.cuts, 'cut')} of class {best.cut_class} only, without a loss"
    if best.but:
        figure = f"{best.text}: cut it as you measured it"
    return Finding(word="not shown", figure=figure, source=best.source)


@kind("counted-cuts", "cuts seen by the drive's own counter of unsafe shutdowns")
def _counted_cuts(evidence: DriveEvidence, _: Criterion) -> Finding:
    found, counting = None, [(one, each) for one in evidence.campaigns for each in one.cuts if _counts(each)]
    for campaign in evidence.campaigns:
        if any(_is_unsafe(each) for one, each in counting if one is campaign):
            found = worse_finding(found, _counter_of(campaign))
    if found is not None:
        return found
    if not counting:
        return Finding(word="not shown", figure="no counted cut of a campaign is known")
    cuts = f"all {counted(len(counting), 'counted cut')}"
    figure = f"{cuts} came after a clean shutdown, which a drive need not count"
    return Finding(word="not shown", figure=figure, source=_names(counting))


def _counts(cut: CycleWord) -> bool:
    """Whether the cut has an outcome."""
    return cut.word != "nothing"


def _is_unsafe(cut: CycleWord) -> bool:
    """Whether an honest drive counts the cut as an unsafe shutdown. A clean shutdown announces the loss of
    power to the drive."""
    return cut.moment != "shutdown"


def _counter_of(campaign: CampaignEvidence) -> Finding:
    """Whether the counter of unsafe shutdowns rose at each counted cut. Each cut is checked for itself, since
    the counter may rise twice at one cut."""
    source, read = f"campaign {campaign.name}", campaign.after_cuts(lambda row: row.unsafe_shutdowns)
    cuts = [one.cycle for one in campaign.cuts if _is_unsafe(one)]
    shut_down = [one.cycle for one in campaign.cuts if not _is_unsafe(one)]
    every = {one.cycle for one in campaign.cuts}
    # Counter values by cycle. The value of a check has the number of the last cycle before the check.
    values = {
        place: row.unsafe_shutdowns
        for place, row in campaign.placed_rows
        if row.unsafe_shutdowns is not None and (row.cycle not in every or row.cycle in read)
    }
    counting = [one.cycle for one in campaign.cuts if _is_unsafe(one) and _counts(one)]
    of_all = counted(len(counting), "cut")
    if left_out := sum(not _is_unsafe(one) and _counts(one) for one in campaign.cuts):
        of_all += f", without {left_out:,} after a clean shutdown"
    before = {cycle: max((at for at in values if at < cycle), default=None) for cycle in counting}
    pairs = [
        (first, cycle)
        for cycle, first in before.items()
        # Some drives count a cut after a clean shutdown too. So values on two sides of such a cut are not
        # compared.
        if cycle in read and first is not None and not any(first < at < cycle for at in shut_down)
    ]
    if unread := len(counting) - len(pairs):
        figure = f"the counter was not read before and after {unread} of {of_all}"
        return Finding(word="not shown", figure=figure, source=source)
    seen = sum(
        read[cycle] - values[first] >= sum(first < at <= cycle for at in cuts) for first, cycle in pairs
    )
    figure = f"the counter rose at {seen:,} of {of_all}"
    if seen == len(counting):
        return Finding(word="pass", figure=figure, source=source)
    if campaign.cut_class != "power":
        kept = f"{figure}, of class {campaign.cut_class}: the drive kept its power"
        return Finding(word="not shown", figure=kept, source=source)
    return Finding(word="not shown" if seen else "refuse", figure=figure, source=source)


# The drive after its cuts.


@kind("always-there", "the drive came back after every cut, ready to be used")
def _always_there(evidence: DriveEvidence, _: Criterion) -> Finding:
    every = (*evidence.campaigns, *evidence.against)
    troubled = [(one, each) for one in every for each in one.cycles if each.trouble]
    if troubled:
        campaign, first = troubled[0]
        where = f"cycle {first.cycle} of campaign {campaign.name}"
        count = "" if len(troubled) == 1 else f"; {len(troubled)} such cycles"
        return Finding(word="refuse", figure=f"{first.trouble} ({where}){count}", source=where)
    cuts = [(one, each) for one in evidence.campaigns for each in one.cuts]
    if not cuts:
        return Finding(word="not shown", figure=_NO_CUT if evidence.campaigns else _no_campaign(evidence))
    known = [*cuts, *((one, each) for one in evidence.against for each in one.cuts)]
    unseen = [(one, each) for one, each in known if not each.was_seen]
    if unseen:
        campaign, first = unseen[0]
        where = f"cycle {first.cycle} of campaign {campaign.name}"
        so_far = ", which is not over" if first.under_way else ""
        figure = (
            f"it was not seen after {len(unseen)} of {counted(len(known), 'cut')}, first in {where}{so_far}"
        )
        return Finding(word="not shown", figure=figure, source=where)
    return Finding(
        word="pass", figure=f"there after each of {counted(len(cuts), 'cut')}", source=_names(cuts)
    )


@kind("capacity-kept", "the drive's capacity stayed as it was")
def _capacity_kept(evidence: DriveEvidence, _: Criterion) -> Finding:
    shrank = _warned(evidence, "smaller")
    if shrank is not None:
        return shrank
    measured = [
        (size, one.name)
        for one in evidence.results
        # A size of 0 means that the size of the drive is unknown.
        if len(one.result.facts.drives) == 1 and (size := one.result.facts.drives[0].size_bytes)
    ]
    # If a device lies on several drives, a campaign only knows the size of the device.
    single = all(len(one.drives) == 1 for one in evidence.facts)
    said = [
        (int(size), f"campaign {one.name}")
        for one in evidence.campaigns
        for _, size in known_values(one.rows, lambda row: row.size_bytes or None)
    ]
    sizes = dict(reversed([*said, *(measured if single else ())]))  # each size with its first source
    if len(sizes) > 1:
        each = ", ".join(f"{_exact(size, sizes)} in {where}" for size, where in reversed(sizes.items()))
        return Finding(word="refuse", figure=f"its capacity is {each}", source="all evidence")
    unsaid = _unsaid(evidence, lambda row: row.size_bytes or None)
    if unsaid is not None:
        return unsaid
    (size,) = sizes
    return Finding(
        word="pass",
        figure=f"{format_size(size)} {_after(evidence, lambda row: row.size_bytes or None)}",
        source=_names((one, 0) for one in evidence.campaigns if one.cuts),
    )


def _exact(size: int, of: Iterable[int]) -> str:
    """The size as text, in bytes if another size has the same short text."""
    alike = sum(format_size(one) == format_size(size) for one in of) > 1
    return f"{size:,} bytes" if alike else format_size(size)


@kind("firmware-kept", "all evidence is of one firmware")
def _firmware_kept(evidence: DriveEvidence, _: Criterion) -> Finding:
    changed = _warned(evidence, "firmware")
    if changed is not None:
        return changed
    facts = [" + ".join(drive.firmware for drive in one.drives) for one in evidence.facts]
    rows = [row.firmware for one in evidence.campaigns for row in one.rows]
    known = list(dict.fromkeys(map(in_one_order, filter(is_name_of_each, (*facts, *rows)))))
    if not known:
        return Finding(word="not shown", figure="the drive names no firmware")
    if len(known) > 1:
        return Finding(
            word="refuse", figure=f"evidence is of firmware {', '.join(known)}", source="all evidence"
        )
    only = f"only {known[0]}"
    if not all(map(is_name_of_each, facts)):
        return Finding(
            word="not shown", figure=f"{only}, but some evidence names none", source="all evidence"
        )
    if any(one.cuts for one in evidence.campaigns):
        unsaid = _unsaid(evidence, _named_firmware, silence="the drive named no firmware")
        if unsaid is not None:
            return unsaid
    return Finding(word="pass", figure=only, source="all evidence")


def _named_firmware(row: HealthRow) -> str | None:
    return row.firmware if is_name_of_each(row.firmware) else None


@kind(
    "ready-within",
    "longest time until the drive was ready",
    Limit(sense="at most", unit="s", low=0.001, high=86_400),
)
def _ready_within(evidence: DriveEvidence, criterion: Criterion) -> Finding:
    return _of_rows(evidence, criterion, lambda row: row.ready_s, "s")


@kind(
    "repairs",
    "cycles after which the file system had to be repaired",
    Limit(sense="at most", unit="cycles", high=100_000, whole=True),
)
def _repairs(evidence: DriveEvidence, criterion: Criterion) -> Finding:
    known = [(one, sum(row.repaired for row in one.rows)) for one in evidence.campaigns]
    campaign, worst = max(known, key=lambda pair: pair[1], default=(None, 0))
    source = "" if campaign is None else f"campaign {campaign.name}"
    found = compare_with_limit(criterion, worst, counted(worst, "cycle"), source)
    return worse_finding(
        found, _unsaid(evidence, _needed_repair, silence="the agent mounted no file system") or found
    )


def _needed_repair(row: HealthRow) -> bool | None:
    """Whether the file system was repaired. None if the agent mounted no file system, so that a repair could
    not be seen."""
    return row.repaired if row.repaired or row.mount_s is not None else None


# What the drive reports about itself.


@kind("protection-works", "the drive's own word on its power-loss protection")
def _protection_works(evidence: DriveEvidence, _: Criterion) -> Finding:
    broken = _warned(evidence, "backup-failed")
    if broken is not None:
        return broken
    for campaign in evidence.campaigns:
        for row in campaign.rows:
            if row.capacitor_percent == 0:
                where = _place(campaign, row.cycle)
                return Finding(
                    word="refuse", figure="the drive says that it has no working capacitors", source=where
                )
    unsaid = _unsaid(evidence, lambda row: row.backup_failed)
    if unsaid is not None:
        return unsaid
    said = _after(evidence, lambda row: row.backup_failed)
    return Finding(
        word="pass",
        figure=f"the drive reports no failure of it {said}",
        source=_names((one, 0) for one in evidence.campaigns if one.cuts),
    )


@kind(
    "capacitors",
    "health of the capacitors (OCP log page C0h)",
    Limit(sense="at least", unit="%", high=100),
)
def _capacitors(evidence: DriveEvidence, criterion: Criterion) -> Finding:
    return _of_rows(evidence, criterion, lambda row: row.capacitor_percent, "%")


@kind(
    "media-errors",
    "media errors that were added since the first check",
    Limit(sense="at most", unit="errors", whole=True),
)
def _media_errors(evidence: DriveEvidence, criterion: Criterion) -> Finding:
    known = [
        (int(value), _place(one, cycle))
        for one in sorted((*evidence.campaigns, *evidence.against), key=lambda one: one.began)
        for cycle, value in known_values(one.rows, lambda row: row.media_errors)
    ]
    if not known:
        silent = (
            "no campaign could read the drive's media errors"
            if evidence.campaigns
            else _no_campaign(evidence)
        )
        return Finding(word="not shown", figure=silent)
    # Each rise counts: the counter falls when sectors are rewritten, and errors after that are new ones.
    rises = [
        (after - before, place) for (before, _), (after, place) in itertools.pairwise(known) if after > before
    ]
    added, (last, where) = sum(rise for rise, _ in rises), known[-1]
    figure = f"{added:,} added, last value {last:,}"
    found = compare_with_limit(criterion, added, figure, rises[0][1] if rises else where)
    unsaid = _unsaid(evidence, lambda row: row.media_errors) or _first_unsaid(evidence)
    return found if unsaid is None else worse_finding(found, unsaid)


def _first_unsaid(evidence: DriveEvidence) -> Finding | None:
    """The finding if media errors were not read before the first cut. None if they were read."""
    first = min((one for one in evidence.campaigns if one.cuts), key=lambda one: one.began)
    before = first.cuts[0].cycle
    if any(place < before and row.media_errors is not None for place, row in first.placed_rows):
        return None
    source = f"campaign {first.name}"
    return Finding(
        word="not shown", figure=f"they were not read before the first cut of {source}", source=source
    )


@kind("spare", "spare blocks left, as the drive reports", Limit(sense="at least", unit="%", high=100))
def _spare(evidence: DriveEvidence, criterion: Criterion) -> Finding:
    return _of_rows(evidence, criterion, lambda row: row.spare_percent, "%")


@kind("used", "endurance used, as the drive reports", Limit(sense="at most", unit="%", high=255))
def _used(evidence: DriveEvidence, criterion: Criterion) -> Finding:
    return _of_rows(evidence, criterion, lambda row: row.used_percent, "%")


# Helpers of these kinds.


def _no_campaign(evidence: DriveEvidence) -> str:
    return _NO_CAMPAIGN if not evidence.unfinished else f"{_NO_CAMPAIGN}, but {evidence.unfinished[0]}"


def _no_cut(evidence: DriveEvidence) -> str:
    known = "no cut of this drive is known"
    return known if not evidence.unfinished else f"{known}, but {evidence.unfinished[0]}"


def _of_rows(
    evidence: DriveEvidence,
    criterion: Criterion,
    figure: Callable[[HealthRow], float | None],
    unit: str,
) -> Finding:
    """The worst figure over all cycles of all campaigns."""
    values = [
        (float(value), _place(one, cycle))
        for one in evidence.campaigns
        for cycle, value in known_values(one.rows, figure)
    ]
    if not values:
        silent = (
            "the drive reported no value in any campaign" if evidence.campaigns else _no_campaign(evidence)
        )
        return Finding(word="not shown", figure=silent)
    value, where = worst_value(criterion, values)
    found = compare_with_limit(criterion, value, f"{value_text(criterion, value)} {unit}", where)
    return worse_finding(found, _unsaid(evidence, figure) or found)


def _unsaid(
    evidence: DriveEvidence,
    figure: Callable[[HealthRow], T | None],
    *,
    silence: str = "the drive reported no value",
) -> Finding | None:
    """The finding if a campaign has no such figure after its last cut, or if there was no cut. None if
    nothing is missing. `silence`: says in words that the figure is missing."""
    cutting = [one for one in evidence.campaigns if one.cuts]
    if not cutting:
        return Finding(word="not shown", figure=_NO_CUT if evidence.campaigns else _no_campaign(evidence))
    for campaign in cutting:
        last = campaign.cuts[-1].cycle
        if last not in campaign.after_cuts(figure):
            where = _place(campaign, last)
            ever = bool(known_values(campaign.rows, figure))
            told = f"{silence} after the last cut, {where}" if ever else silence
            return Finding(word="not shown", figure=told, source=where)
    return None


def _after(evidence: DriveEvidence, figure: Callable[[HealthRow], T | None]) -> str:
    """The number of cuts after which the figure was read, in words."""
    read = sum(len(one.after_cuts(figure)) for one in evidence.campaigns)
    every = sum(len(one.cuts) for one in evidence.campaigns)
    return f"after every cut ({every:,})" if read == every else f"after {read:,} of {counted(every, 'cut')}"


def _place(campaign: CampaignEvidence, cycle: int) -> str:
    return f"cycle {cycle} of campaign {campaign.name}" if cycle else f"check of campaign {campaign.name}"


def _warned(evidence: DriveEvidence, code: str) -> Finding | None:
    """The refusal for a health warning with this code in a campaign. None without such a warning. Campaigns
    in `against` do not count for firmware, since the firmware may have been replaced between campaigns."""
    for campaign in (*evidence.campaigns, *(evidence.against if code != "firmware" else ())):
        for warning in health_warnings(campaign.rows):
            if warning.code == code:
                where = f"cycle {warning.cycle} of campaign {campaign.name}"
                return Finding(word="refuse", figure=warning.text, source=where)
    return None


def _names(campaigns: Iterable[tuple[CampaignEvidence, object]]) -> str:
    """The names of the campaigns. Only the first are named if there are many: all are in the evidence."""
    names = list(dict.fromkeys(f"campaign {one.name}" for one, _ in campaigns))
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
