"""How a comparison looks for the cuts of the drives that were measured, the same in a command as on a page.

A command asks the server and a page the store, so a search is a generator: it yields the run whose case it
needs next, and is sent the case, or None if there is no such run; FormatError is thrown into it where that
case cannot be read. Refuses to drop without a sentence what cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from typing import TypeAlias, TypeVar

from durability.acceptance.known_cuts import (
    KnownDrive,
    facts_of_series,
    is_withheld,
    known_of_campaign,
    known_of_run,
    runs_of,
    same_drives,
    unanswered_run,
)
from durability.bench.decision.claims import Claim
from durability.bench.result import Result
from durability.campaign.campaign_state import CampaignState
from durability.errors import FormatError
from durability.formats.case import Case
from durability.formats.facts import Facts

_Campaign = TypeVar("_Campaign")
_Found = TypeVar("_Found")
Search: TypeAlias = Generator[str, Case | None, _Found]

SEARCHED_CAMPAIGNS_MAX = 50  # that a comparison looks through, the newest, if none is named


def newest_campaigns(campaigns: Sequence[_Campaign]) -> tuple[Sequence[_Campaign], tuple[str, ...]]:
    """Of campaigns in the order in which they began those that a comparison looks through, and a sentence if
    there are older ones."""
    searched = campaigns[-SEARCHED_CAMPAIGNS_MAX:]
    if len(searched) == len(campaigns):
        return searched, ()
    return searched, (f"only the newest {len(searched)} of {len(campaigns)} campaigns were looked at",)


def unread(what: str) -> str:
    """The sentence on a campaign or a run that cannot be read: it may have a loss."""
    return f"{what} cannot be read, and what it says does not count"


def is_of(measured: Iterable[Result]) -> Callable[[Facts], bool]:
    """Whether facts are of the drives of any of these results, by their serials."""
    return lambda facts: any(same_drives(facts, one.facts, named=False) for one in measured)


def in_campaign(state: CampaignState, is_wanted: Callable[[Facts], bool]) -> Search[list[KnownDrive]]:
    """Each drive of a campaign that is wanted, and of which its cuts said something, in each of its stacks.
    Raises the FormatError of a run: without its loss the others would prove too much."""
    known: list[KnownDrive] = []
    for drive in state.plan.drives if state.settings is not None else ():
        facts = yield from facts_of_runs(state, drive.name, is_wanted)
        known += known_of_campaign(state, drive.name, facts)
    return known


def facts_of_runs(
    state: CampaignState, drive: str, is_wanted: Callable[[Facts], bool]
) -> Search[dict[str, Facts]]:
    """The facts of a drive's runs in a campaign, by run, the first one's first; one run of each series is
    asked for. None if the first one's are not wanted."""
    facts: dict[str, Facts] = {}
    for run in runs_of(state, drive):
        if run not in facts:
            case = yield run
            facts |= {} if case is None else facts_of_series(case)
        if facts and not is_wanted(next(iter(facts.values()))):
            return {}
    return facts


def in_runs(
    claims: Iterable[Claim], facts: Facts, told: Collection[str] = ()
) -> Search[tuple[list[KnownDrive], tuple[str, ...]]]:
    """What the runs that `claims` name say of the drives of `facts`: one loss, since one is enough if its
    stack sent flushes, and all else. And a sentence for each run that cannot be read. One that may hide a
    loss counts as a cut with unknown outcome, and then what lost nothing does not count, in whatever stack.
    `told`: runs whose losses are known already."""
    known: list[KnownDrive] = []
    unanswered: list[KnownDrive] = []
    notes: list[str] = []
    for claim in claims:
        mine: list[KnownDrive] = []
        for run in claim.named_runs:
            is_enough = run in told or any(not is_withheld(one.facts, [facts]) for one in mine)
            if run in claim.loss_runs and is_enough:
                continue
            try:
                case = yield run
            except FormatError:
                notes.append(unread(f"run {run}"))
                # A series whose newest run lost nothing may have cuts with unknown outcome, too.
                if run not in claim.durable_runs or claim.unknown:
                    unanswered.append(unanswered_run(run, facts))
                continue
            one = None if case is None else known_of_run(case)
            if one is not None and same_drives(one.facts, facts, named=False):
                mine.append(one)
        known += mine
    if unanswered:
        known = [*(one for one in known if one.proof.losses), *unanswered]
    return known, tuple(notes)
