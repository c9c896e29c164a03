"""What the server knows of the drives that were measured: verdicts of its campaigns and runs, by serial.

Asks only; begins nothing and ends no run. Refuses a named run or campaign of other drives, and runs of a
client that nobody named where several have runs on the drive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from durability import plain_text
from durability.acceptance.known_cuts import (
    SEARCHED_CAMPAIGNS_MAX,
    KnownDrive,
    facts_of_series,
    is_withheld,
    known_of_campaign,
    known_of_run,
    older_campaigns,
    proof_beside,
    runs_of,
    same_drives,
    unsearchable,
)
from durability.bench.decision.claims import Claim, choose, claim_from_row
from durability.bench.decision.proof import Proof
from durability.bench.hashed_serials import marks_of
from durability.bench.result import Result
from durability.campaign.campaign_state import CampaignState
from durability.errors import FormatError, PeerError, RefusedError, UsageError
from durability.formats.case import Case, case_from_value
from durability.formats.facts import Facts
from durability.protocol.messages import CampaignNames, ListCampaigns, ListClaims, Listing, Show, Shown
from durability.units import parse_run
from durability_client.link.campaign_log import FetchedLog, read_log
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import Connection, connect

SEARCH_S = 10.0  # a comparison waits no longer for what nobody asked for


async def named_verdicts(
    endpoint: Endpoint, names: Sequence[str], measured: Sequence[Result]
) -> tuple[Proof | None, ...]:
    """What the runs and campaigns `names` say of the drives of `measured`, None where they say nothing.

    Raises UsageError for a run or campaign without cuts, or of none of these drives; RefusedError, PeerError.
    """
    found: list[KnownDrive] = []
    with closing(await connect(endpoint, "query")) as connection:
        for name in names:
            known = await _named(connection, name)
            if not known:
                raise UsageError(f"--verdict-of {name}: it has no cut with a verdict on a drive")
            if not any(
                same_drives(one.facts, result.facts, named=True) for one in known for result in measured
            ):
                theirs = ", ".join(dict.fromkeys(_drives(one.facts) for one in known))
                ours = ", ".join(dict.fromkeys(_drives(result.facts) for result in measured))
                raise UsageError(f"--verdict-of {name} is of {theirs}; the results are of {ours}")
            found += known
    return tuple(proof_beside(result, found, named=True) for result in measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundVerdicts:
    """What the server knows of each drive, None for nothing. `notes`: what was left out, a sentence each:
    campaigns that are older or cannot be read, and of a drive that several clients have runs on, whose."""

    proofs: tuple[Proof | None, ...]
    notes: tuple[str, ...]


async def found_verdicts(
    endpoint: Endpoint, measured: Sequence[Result], clients: Collection[str] = ()
) -> FoundVerdicts:
    """What the newest campaigns of the server, and the runs of `clients`, say of the drives of `measured`;
    without `clients` those of the only client that has any. Raises PeerError, also where that takes too long:
    a search that was broken off may have missed a loss."""
    known: list[KnownDrive] = []
    notes: dict[str, None] = {}
    try:
        async with asyncio.timeout(SEARCH_S):
            # A refusal ends its connection. Clients are not shown campaigns, and have runs of their own.
            with closing(await connect(endpoint, "query")) as connection, suppress(RefusedError):
                notes |= dict.fromkeys(await _look_at_campaigns(connection, measured, known))
            with closing(await connect(endpoint, "query")) as connection:
                for facts in _distinct(measured):
                    of_runs, note = await verdicts_of_runs(connection, facts, clients)
                    known += of_runs
                    notes |= {note: None} if note else {}
    except TimeoutError as error:
        raise PeerError(f"the server at {endpoint} did not answer within {SEARCH_S:.0f} s") from error
    proofs = tuple(proof_beside(result, known, named=False) for result in measured)
    return FoundVerdicts(proofs=proofs, notes=tuple(notes))


def _distinct(measured: Sequence[Result]) -> list[Facts]:
    """The facts of each drive once."""
    found: list[Facts] = []
    for one in measured:
        if not any(same_drives(known, one.facts, named=False) for known in found):
            found.append(one.facts)
    return found


async def _named(connection: Connection, name: str) -> list[KnownDrive]:
    try:
        run = parse_run(name)
    except UsageError:
        return await _of_campaign(connection, name)
    known = await _of_run(connection, run)
    return [] if known is None else [known]


async def _look_at_campaigns(
    connection: Connection, measured: Sequence[Result], known: list[KnownDrive]
) -> tuple[str, ...]:
    """Add what the newest campaigns say of the drives of `measured`. A sentence for each that cannot be read,
    and one if there are older ones."""

    def is_measured(facts: Facts) -> bool:
        return any(same_drives(facts, one.facts, named=False) for one in measured)

    names = (await connection.request(ListCampaigns(), CampaignNames)).names
    unread: list[str] = []
    for name in names[-SEARCHED_CAMPAIGNS_MAX:]:
        try:
            known += await _of_campaign(connection, name, is_measured)
        except FormatError:  # of a later release: others can be read
            unread.append(f"campaign {name} cannot be read by this release, and what it says does not count")
    return (*unread, *older_campaigns(len(names)))


async def verdicts_of_runs(
    connection: Connection, facts: Facts, clients: Collection[str], told: Collection[str] = ()
) -> tuple[list[KnownDrive], str]:
    """A loss on the drives of `facts`, since one is enough if its stack sent flushes, and of each series and
    class of cuts the newest run that lost nothing or has no outcome; of `clients`, or of the only client that
    has runs on them. And a sentence if another client's were left out, else "". `told`: runs whose losses are
    known already. Nothing of drives that are `unsearchable`."""
    if unsearchable(facts):
        return [], ""
    marks = tuple(sorted(marks_of(facts)))
    rows = (await connection.request(ListClaims(drives=marks), Listing)).rows
    choice = choose([claim_from_row(row) for row in rows], clients, plain_text.as_line(_drives(facts)))
    known: list[KnownDrive] = []
    for claim in choice.taken:
        known += await _of_claim(connection, claim, facts, told)
    return known, f"{choice.note}; choose with --client NAME" if choice.note else ""


async def _of_claim(
    connection: Connection, claim: Claim, facts: Facts, told: Collection[str]
) -> list[KnownDrive]:
    known: list[KnownDrive] = []
    for name in claim.named_runs:
        is_loss = name in claim.loss_runs
        if is_loss and (name in told or any(not is_withheld(one.facts, [facts]) for one in known)):
            continue
        one = await _of_run(connection, parse_run(name))
        if one is not None and same_drives(one.facts, facts, named=False):
            known.append(one)
    return known


async def _of_campaign(
    connection: Connection, name: str, is_wanted: Callable[[Facts], bool] = lambda _: True
) -> list[KnownDrive]:
    """Each drive of a campaign that is wanted, and of which its cuts said something, in each of its
    stacks."""
    log = FetchedLog(name=name)
    await read_log(connection, log)
    if log.state.settings is None:
        return []
    known: list[KnownDrive] = []
    for drive in log.state.plan.drives:
        facts = await facts_of_runs(connection, log.state, drive.name, is_wanted)
        known += known_of_campaign(log.state, drive.name, facts)
    return known


async def facts_of_runs(
    connection: Connection, state: CampaignState, drive: str, is_wanted: Callable[[Facts], bool]
) -> dict[str, Facts]:
    """The facts of a drive's runs in a campaign, by run, the first one's first; one run of each series is
    asked for. None if the first one's are not wanted."""
    facts: dict[str, Facts] = {}
    for run in runs_of(state, drive):
        if run not in facts:
            facts |= facts_of_series(await _case(connection, parse_run(run)))
        if facts and not is_wanted(next(iter(facts.values()))):
            return {}
    return facts


async def _of_run(connection: Connection, run: int) -> KnownDrive | None:
    return known_of_run(await _case(connection, run))


async def _case(connection: Connection, run: int) -> Case:
    return case_from_value((await connection.request(Show(run=run), Shown)).document["case"])


def _drives(facts: Facts) -> str:
    return (
        " + ".join(f"{drive.model or drive.name} {drive.serial}".strip() for drive in facts.drives)
        or "no drive"
    )
