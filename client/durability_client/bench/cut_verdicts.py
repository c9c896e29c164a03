"""What the server knows of the drives that were measured: verdicts of its campaigns and runs, by serial.

Asks only; begins nothing and ends no run. A drive is the same if its serial is: results hide serials as
hashes, so the server's are hashed to be compared. Without a serial a drive is only taken for the
same if the operator named the run or the campaign, and machine, name and size agree. Refuses a named run or
campaign of other drives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial

from durability import limits
from durability.acceptance.evidence import campaign_proof
from durability.bench.decision.proof import Proof, weightiest
from durability.bench.result import Result
from durability.bench.serials import hashed
from durability.campaign.campaign_state import CampaignState
from durability.campaign.results import results
from durability.errors import FormatError, PeerError, RefusedError, UsageError
from durability.evidence.cut import CUT_CLASSES
from durability.evidence.strength import strength
from durability.evidence.strength import weightiest as standing
from durability.formats.case import Case, case_from_value
from durability.formats.facts import Drive, Facts
from durability.protocol.messages import Campaigns, List, ListCampaigns, Listing, Show, Shown
from durability.units import parse_run
from durability_client.link.campaign_log import CampaignLog, read_log
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import Connection, connect

DURABLE_RUNS_MAX, CAMPAIGNS_MAX = 50, 50  # that are looked through, the newest, if none is named
SEARCH_S = 10.0  # a comparison waits no longer for what nobody asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A drive that was cut: `facts` of a run on it, and what its cuts said."""

    facts: Facts
    proof: Proof


async def named_verdicts(
    endpoint: Endpoint, names: Sequence[str], measured: Sequence[Result]
) -> tuple[Proof | None, ...]:
    """What the runs and campaigns `names` say of the drives of `measured`, None where they say nothing.

    Raises UsageError for a run or campaign without cuts, or of none of these drives; RefusedError, PeerError.
    """
    found: list[Known] = []
    with closing(await connect(endpoint, "query")) as connection:
        for name in names:
            known = await _named(connection, name)
            if not known:
                raise UsageError(f"--verdict-of {name}: it has no cut with a verdict on a drive")
            if not any(_is_same(one.facts, result, named=True) for one in known for result in measured):
                theirs = ", ".join(dict.fromkeys(_drives(one.facts) for one in known))
                ours = ", ".join(dict.fromkeys(_drives(result.facts) for result in measured))
                raise UsageError(f"--verdict-of {name} is of {theirs}; the results are of {ours}")
            found += known
    return tuple(_proof_of(result, found, named=True) for result in measured)


async def found_verdicts(endpoint: Endpoint, measured: Sequence[Result]) -> tuple[Proof | None, ...]:
    """What the newest campaigns and runs of the server say of the drives of `measured`. Raises PeerError,
    also where that takes too long: a search that was broken off may have missed a loss."""
    known: list[Known] = []
    try:
        async with asyncio.timeout(SEARCH_S):
            for look in (_look_at_campaigns, partial(look_at_runs, serials=_serials(measured))):
                # A refusal ends its connection. Clients are not shown campaigns, and have runs of their own.
                with closing(await connect(endpoint, "query")) as connection, suppress(RefusedError):
                    await look(connection, known)
    except TimeoutError as error:
        raise PeerError(f"the server at {endpoint} did not answer within {SEARCH_S:.0f} s") from error
    return tuple(_proof_of(result, known, named=False) for result in measured)


async def _named(connection: Connection, name: str) -> list[Known]:
    try:
        run = parse_run(name)
    except UsageError:
        return await _of_campaign(connection, name)
    known = await _of_run(connection, run)
    return [] if known is None else [known]


async def _look_at_campaigns(connection: Connection, known: list[Known]) -> None:
    names = (await connection.request(ListCampaigns(), Campaigns)).names
    for name in names[-CAMPAIGNS_MAX:]:
        with suppress(FormatError):  # of a later release: others can be read
            known += await _of_campaign(connection, name)


def _serials(measured: Sequence[Result]) -> frozenset[str]:
    """The hashes of the serials of all measured drives."""
    return frozenset(hashed(drive.serial) for one in measured for drive in one.facts.drives if drive.serial)


async def look_at_runs(
    connection: Connection, known: list[Known], serials: frozenset[str] | None = None
) -> None:
    """Every loss that is listed, since one is enough, and the newest durable runs on each drive. `serials`:
    hashes of those of the drives looked for; None for all runs."""
    names = [""] if serials is None else await _listed(connection, serials)
    for name in names:
        rows = (await connection.request(List(limit=limits.LISTING_ROWS_MAX, drive=name), Listing)).rows
        losses = [row for row in rows if row.get("verdict") == "loss"]
        durable = [row for row in rows if row.get("verdict") == "durable"]
        for row in (*losses, *durable[:DURABLE_RUNS_MAX]):
            one = await _of_run(connection, parse_run(str(row["run"])))
            if one is not None:
                known.append(one)


async def _listed(connection: Connection, serials: frozenset[str]) -> list[str]:
    """The serials, as far as listings have them, of the server's drives whose hashes are among `serials`. A
    serial that may be longer than listings have them is one of them, to be looked at."""
    rows = (await connection.request(List(limit=limits.LISTING_ROWS_MAX, by="drive"), Listing)).rows
    names = dict.fromkeys(str(row.get("serial", "")) for row in rows)
    return [
        name for name in names if name and (hashed(name) in serials or len(name) >= limits.DRIVE_NAME_MAX)
    ]


async def _of_campaign(connection: Connection, name: str) -> list[Known]:
    """Each drive of a campaign of which its cuts said something."""
    log = CampaignLog(name=name)
    await read_log(connection, log)
    if log.state.settings is None:
        return []
    known = []
    for drive in results(log.state):
        facts = await facts_of(connection, log.state, drive.drive)
        proof = campaign_proof(log.state, drive)
        if proof is not None and facts is not None:
            known.append(Known(facts=facts, proof=proof))
    return known


async def facts_of(connection: Connection, state: CampaignState, drive: str) -> Facts | None:
    """The facts of the drive's first run in the campaign that the server still has."""
    for past in state.cycles:
        mine = past.of(drive)
        if mine is not None and mine.run:
            case = await _case(connection, parse_run(mine.run))
            if case.armed is not None:
                return case.armed
    return None


async def _of_run(connection: Connection, run: int) -> Known | None:
    case = await _case(connection, run)
    if case.armed is None or (stands := standing(case.verdicts)) is None:
        return None
    if stands.cut_class not in CUT_CLASSES:
        return None
    found = strength(
        case,
        cut_class=stands.cut_class,
        verdict=stands.verdict,
        at_risk_ms1000=stands.at_risk_ms1000,
        reasons=stands.reasons,
    )
    if not found.cuts:
        return None
    source = f"run {case.run}"
    proof = Proof(
        cuts=found.cuts,
        losses=found.losses,
        bound=found.bound,
        cut_class=stands.cut_class,
        source=source,
        lost_in=source if found.losses else "",
    )
    return Known(facts=case.armed, proof=proof)


async def _case(connection: Connection, run: int) -> Case:
    return case_from_value((await connection.request(Show(run=run), Shown)).document["case"])


def _proof_of(result: Result, known: Iterable[Known], *, named: bool) -> Proof | None:
    return weightiest([one.proof for one in known if _is_same(one.facts, result, named=named)])


def _is_same(theirs: Facts, result: Result, *, named: bool) -> bool:
    """Whether a run was on the drives that `result` measured."""
    return same_drives(theirs, result.facts, named=named)


def same_drives(theirs: Facts, ours: Facts, *, named: bool) -> bool:
    """Whether both are of the same drives. `named`: the user said so, which is enough for drives without a
    serial if machine, name, model and size agree."""
    if not ours.drives or len(theirs.drives) != len(ours.drives):
        return False
    if all(drive.serial for drive in (*theirs.drives, *ours.drives)):
        return set(map(_identity, _owned(theirs))) == set(map(_identity, _owned(ours)))
    if any(drive.serial for drive in (*theirs.drives, *ours.drives)) or not named:
        return False
    return hashed(theirs.host.machine_id) == hashed(ours.host.machine_id) and {
        (drive.name, drive.model, drive.size_bytes) for drive in theirs.drives
    } == {(drive.name, drive.model, drive.size_bytes) for drive in ours.drives}


def _owned(facts: Facts) -> list[tuple[Drive, str]]:
    return [(drive, hashed(facts.host.machine_id)) for drive in facts.drives]


def _identity(owned: tuple[Drive, str]) -> tuple[str, str]:
    """The hash of a drive's serial, with the machine's where hypervisors and loop devices give the same
    serial on every machine."""
    drive, machine = owned
    return hashed(drive.serial), machine if drive.emulated or drive.name.startswith("loop") else ""


def _drives(facts: Facts) -> str:
    return (
        " + ".join(f"{drive.model or drive.name} {drive.serial}".strip() for drive in facts.drives)
        or "no drive"
    )
