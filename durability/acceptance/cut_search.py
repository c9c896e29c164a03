"""Search for cuts of the drives that were measured, the same for a command and for a page.

A command asks the server and a page asks the store, so a search is a generator. It yields the run whose case
it needs next and is sent the case, or None if the run does not exist. The caller throws FormatError into the
generator if the case cannot be read. A search reports each run that cannot be read.
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

SEARCHED_CAMPAIGNS_MAX = 50  # newest campaigns that a comparison searches if the user names none
# Said if the server shows this client no campaigns: one of them may know a loss.
NO_CAMPAIGNS = "this client may not see campaigns, so none was searched"


def newest_campaigns(campaigns: Sequence[_Campaign]) -> tuple[Sequence[_Campaign], tuple[str, ...]]:
    """The newest campaigns, which a comparison searches, and a sentence if older ones are left out.
    `campaigns`: in the order in which they began."""
    searched = campaigns[-SEARCHED_CAMPAIGNS_MAX:]
    if len(searched) == len(campaigns):
        return searched, ()
    return searched, (f"only the newest {len(searched)} of {len(campaigns)} campaigns were looked at",)


def unread(what: str) -> str:
    """The sentence that a campaign or run cannot be read. Such a campaign or run may have a loss."""
    return f"{what} cannot be read, and what it says does not count"


def is_of(measured: Iterable[Result]) -> Callable[[Facts], bool]:
    """A function that tells whether facts are of the same drives as any of these results, by serial."""
    return lambda facts: any(same_drives(facts, one.facts, named=False) for one in measured)


def in_campaign(state: CampaignState, is_wanted: Callable[[Facts], bool]) -> Search[list[KnownDrive]]:
    """Evidence on each wanted drive of a campaign, one item for each stack that was cut. Raises FormatError
    if a run cannot be read: that run may have a loss, and the other runs would prove too much."""
    known: list[KnownDrive] = []
    for drive in state.plan.drives if state.settings is not None else ():
        facts = yield from facts_of_runs(state, drive.name, is_wanted)
        known += known_of_campaign(state, drive.name, facts)
    return known


def facts_of_runs(
    state: CampaignState, drive: str, is_wanted: Callable[[Facts], bool]
) -> Search[dict[str, Facts]]:
    """Facts of a drive's runs in a campaign, by run, oldest first. Asks for one run of each series. Empty if
    the facts of the first run are not wanted."""
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
    """Evidence on the drives of `facts` from the runs that `claims` name, and a sentence for each run that
    cannot be read. Reads no further loss of a claim once one loss counts: a loss counts if its stack sent
    flushes. An unreadable run that may hide a loss counts as a cut of unknown outcome. Then evidence without
    a loss does not count, in any stack. `told`: runs whose losses are already known."""
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
                # Even a series whose newest run lost nothing may contain cuts of unknown outcome.
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
