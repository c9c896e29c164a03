"""Finds the server's verdicts on the measured drives, from its campaigns and runs, by serial.

This module only asks the server; it begins and ends no run. These rules apply:

- A run or campaign that the user named must be of the measured drives.
- If several clients have runs on a drive, only runs of clients that the user named count, or of the machines
  that campaigns cut.
- Evidence against a drive counts in addition to the runs and campaigns that the user named.
- A client that the user named decides only on drives on which it has runs.
- A drive is not proven if a client whose runs do not count has a loss on it, or a cut without an outcome.
  This
  does not apply if the user chose the clients whose runs on it count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeVar

from durability import plain_text
from durability.acceptance.cut_search import (
    NO_CAMPAIGNS,
    Search,
    in_campaign,
    in_runs,
    is_of,
    newest_campaigns,
    unread,
)
from durability.acceptance.known_cuts import (
    KnownDrive,
    beside_campaigns,
    known_of_run,
    machines_of,
    proof_beside,
    same_drives,
    unsearchable,
)
from durability.bench.decision.claims import Machine, choose, claim_from_row, named_among
from durability.bench.decision.proof import Proof
from durability.bench.decision.same_stack import unlike
from durability.bench.hashed_serials import marks_of
from durability.bench.result import Result
from durability.errors import FormatError, PeerError, RefusedError, UsageError
from durability.evidence.strength import upper_bound
from durability.formats.case import Case, case_from_value
from durability.formats.facts import Facts
from durability.protocol.messages import CampaignNames, ListCampaigns, ListClaims, Listing, Show, Shown
from durability.units import parse_run
from durability_client.link.campaign_log import fetch_log
from durability_client.link.endpoint import Endpoint
from durability_client.link.questions import Questions

SEARCH_S = 10.0  # longest wait for verdicts that the user did not request
_CHOOSE = "choose with --client NAME"
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundVerdicts:
    """The server's verdicts on the measured drives."""

    proofs: tuple[Proof | None, ...]  # per drive; None without verdicts
    # Sentences about verdicts that were left out: of older or unreadable campaigns, of campaigns that this
    # client may not see, and of clients whose runs do not count.
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searched:
    """Result of a search."""

    known: list[KnownDrive]
    notes: tuple[str, ...]  # sentences about verdicts that were left out
    disputed: tuple[tuple[Facts, str], ...]  # evidence against drives from runs that do not count, as text

    def against(self, result: Result) -> str:
        """Evidence against the drive of `result` from runs that do not count, as text, or ""."""
        mine = (text for facts, text in self.disputed if same_drives(facts, result.facts, named=False))
        return next(mine, "")

    def seen(self, proof: Proof | None) -> Proof | None:
        """`proof`, which proves no drive if this client may not see campaigns: one may know a loss."""
        if proof is None or proof.word != "proven" or NO_CAMPAIGNS not in self.notes:
            return proof
        return replace(proof, unsearched=NO_CAMPAIGNS)


async def named_verdicts(
    endpoint: Endpoint, names: Sequence[str], measured: Sequence[Result], clients: Collection[str] = ()
) -> FoundVerdicts:
    """The verdicts of the runs and campaigns `names` on the drives of `measured`, plus other evidence against
    these drives: losses, and cuts without an outcome, of the newest campaigns and the runs of `clients`.

    Raises UsageError for a run or campaign without cuts or of other drives, and for a client without runs on
    any of the drives. Raises RefusedError, PeerError.
    """
    found: list[KnownDrive] = []
    with closing(Questions(endpoint)) as questions:
        for name in names:
            known = await _named(questions, name)
            if not known:
                raise UsageError(
                    f"--verdict-of {name}: it has no cut with a verdict on a drive;"
                    " `durability runs --all` lists all verdicts"
                )
            if not any(
                same_drives(one.facts, result.facts, named=True) for one in known for result in measured
            ):
                theirs = ", ".join(dict.fromkeys(_drives(one.facts) for one in known))
                ours = ", ".join(dict.fromkeys(_drives(result.facts) for result in measured))
                raise UsageError(
                    f"--verdict-of {name} is of {theirs}; the results are of {ours}: name a run of these,"
                    " or leave it out"
                )
            found += known
        searched = await _searched(questions, measured, clients, found)
    found = _as_campaigns_know(found, searched.known)
    named = {(one.runs, one.is_campaign) for one in found}
    more = [one for one in _against(searched.known) if (one.runs, one.is_campaign) not in named]
    proofs = tuple(searched.seen(_with(result, found, more, searched.against(result))) for result in measured)
    return FoundVerdicts(proofs=proofs, notes=searched.notes)


def _with(
    result: Result, named: Sequence[KnownDrive], more: Sequence[KnownDrive], disputed: str
) -> Proof | None:
    """The proof of the `named` verdicts for `result`. Unless they already show lost data, evidence of `more`
    and `disputed` is added."""
    proof = proof_beside(result, named, named=True)
    if proof is not None and proof.word == "lost data":
        return proof
    return proof_beside(result, [*named, *more], named=True, disputed=disputed)


def _as_campaigns_know(named: Sequence[KnownDrive], known: Sequence[KnownDrive]) -> list[KnownDrive]:
    """`named`, without cuts that have no outcome and that a campaign left out for a known reason.

    These cuts stay in a series with a loss, or without any cut that has an outcome, since nothing else is
    known then. A run that was named itself also stays.
    """
    told = _told_by_campaigns(known)
    found = []
    for one in named:
        left = tuple(run for run in one.unanswered if run not in told or run in one.runs)
        fewer, proof = len(one.unanswered) - len(left), one.proof
        if not fewer or proof.losses or not (left or proof.cuts):
            found.append(one)
            continue
        bound = None if left else upper_bound(0, proof.cuts)
        proof = replace(proof, unknown=proof.unknown - fewer, bound=bound)
        found.append(replace(one, proof=proof, unanswered=left))
    return found


def _told_by_campaigns(known: Sequence[KnownDrive]) -> frozenset[str]:
    """The runs of the campaigns among `known`."""
    return frozenset[str]().union(*(one.runs for one in known if one.is_campaign))


def _against(known: Sequence[KnownDrive]) -> list[KnownDrive]:
    """The part of `known` that is evidence against a drive: losses, and cuts without an outcome, except those
    that a campaign left out for a known reason."""
    campaigns = [one for one in known if one.is_campaign]
    runs = (one for one in known if not one.is_campaign)
    every = [*campaigns, *beside_campaigns(runs, _told_by_campaigns(campaigns))]
    return [one for one in every if one.proof.losses or one.proof.bound is None]


async def found_verdicts(
    endpoint: Endpoint, measured: Sequence[Result], clients: Collection[str] = ()
) -> FoundVerdicts:
    """The verdicts of the server's newest campaigns, and of the runs of `clients`, on the drives of
    `measured`.

    If none of `clients` has runs on a drive, runs of the machines that the campaigns cut count, or those of
    the only client with runs. Raises UsageError for a client without runs on any of the drives. Raises
    PeerError, also if the search takes too long, because an incomplete search may have missed a loss.
    """
    try:
        async with asyncio.timeout(SEARCH_S):
            with closing(Questions(endpoint)) as questions:
                searched = await _searched(questions, measured, clients)
    except TimeoutError as error:
        raise PeerError(f"the server at {endpoint} did not answer within {SEARCH_S:.0f} s") from error
    proofs = tuple(
        searched.seen(proof_beside(result, searched.known, named=False, disputed=searched.against(result)))
        for result in measured
    )
    return FoundVerdicts(proofs=proofs, notes=searched.notes)


async def _searched(
    questions: Questions,
    measured: Sequence[Result],
    clients: Collection[str],
    named: Sequence[KnownDrive] = (),
) -> _Searched:
    """The verdicts of the newest campaigns and of the runs of `clients`. If these clients have no runs on a
    drive, runs of the machines that these campaigns and the `named` ones cut are used."""
    known: list[KnownDrive] = []
    notes = dict.fromkeys(await _look_at_campaigns(questions, measured, known))
    disputed, heard = [], frozenset[str]()
    for facts in _distinct(measured):
        machines = machines_of([*named, *known], facts)
        of_runs = await verdicts_of_runs(questions, facts, clients, machines=machines)
        known += of_runs.known
        notes |= dict.fromkeys((*of_runs.left_out, *of_runs.unread))
        heard |= of_runs.heard
        if of_runs.against:
            disputed.append((facts, of_runs.against))
    if strangers := [one for one in clients if one not in heard]:
        raise UsageError(
            f"--client {strangers[0]}: no run found on these drives is of a client with this id or name"
        )
    return _Searched(known=known, notes=tuple(notes), disputed=tuple(disputed))


def _distinct(measured: Sequence[Result]) -> list[Facts]:
    """The facts of each measured drive, once per stack. The stack matters for unreadable runs, and for which
    loss is sufficient."""
    found: list[Facts] = []
    for one in measured:
        if not any(_are_alike(known, one.facts) for known in found):
            found.append(one.facts)
    return found


def _are_alike(one: Facts, other: Facts) -> bool:
    """Whether both facts are of the same drive in the same stack."""
    return same_drives(one, other, named=False) and not unlike(one, other) and not unlike(other, one)


async def _named(questions: Questions, name: str) -> list[KnownDrive]:
    try:
        run = parse_run(name)
    except UsageError:
        return await _of_campaign(questions, name)
    known = known_of_run(await _case(questions, run))
    return [] if known is None else [known]


async def _look_at_campaigns(
    questions: Questions, measured: Sequence[Result], known: list[KnownDrive]
) -> tuple[str, ...]:
    """Add to `known` the verdicts of the newest campaigns on the drives of `measured`. Adds none if this
    client may not see campaigns. Returns a sentence for each unreadable campaign, and one if there are older
    ones, or if this client may see none."""
    is_measured = is_of(measured)
    left_out: list[str] = []
    try:
        names = (await questions.request(ListCampaigns(), CampaignNames)).names
    except RefusedError as error:
        if error.code != "forbidden":
            raise
        return (NO_CAMPAIGNS,)
    searched, older = newest_campaigns(names)
    for name in searched:
        try:
            state = (await fetch_log(questions, name)).state
            known += await looked_up(questions, in_campaign(state, is_measured))
        except FormatError:  # others can be read
            left_out.append(unread(f"campaign {name}"))
    return (*left_out, *older)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictsOfRuns:
    """Verdicts of single runs on a drive."""

    known: list[KnownDrive]
    left_out: tuple[str, ...]  # a sentence about clients whose runs do not count
    unread: tuple[str, ...]  # a sentence for each unreadable run
    # Evidence against the drive from runs that do not count, as text. "" if none, or if the user chose.
    against: str = ""
    heard: frozenset[str] = frozenset()  # clients that the user named and that have runs on the drive


async def verdicts_of_runs(
    questions: Questions,
    facts: Facts,
    clients: Collection[str],
    told: Collection[str] = (),
    *,
    owners: Collection[str] = (),
    machines: Collection[Machine] = (),
) -> VerdictsOfRuns:
    """The verdicts of single runs on the drives of `facts`. Empty for drives that are `unsearchable`.

    Finds one loss, since one is sufficient if its stack sent flushes. For each series and class of cuts, also
    finds the newest run without a loss or without an outcome. Runs of `clients`, which the user named, count;
    if none of them has runs on the drives, runs of `owners` and `machines` do, see `choose`. `told`: runs
    whose losses are known already.
    """
    if unsearchable(facts):
        return VerdictsOfRuns(known=[], left_out=(), unread=())
    marks = tuple(sorted(marks_of(facts)))
    rows = (await questions.request(ListClaims(drives=marks), Listing)).rows
    claims = [claim_from_row(row) for row in rows]
    # Clients that were named because of another drive must not hide a loss on this one.
    heard = named_among(clients, ((one.client, one.name) for one in claims))
    what = plain_text.as_line(_drives(facts))
    choice = choose(claims, heard or owners, what, () if heard else machines)
    known, unread_runs = await looked_up(questions, in_runs(choice.taken, facts, told))
    return VerdictsOfRuns(
        known=known,
        left_out=(f"{choice.note}; {_CHOOSE}",) if choice.note else (),
        unread=unread_runs,
        against="" if heard else choice.against,
        heard=heard,
    )


async def looked_up(questions: Questions, search: Search[_Found]) -> _Found:
    """Run `search` and return its result. The cases that it requests are fetched from the server, which may
    lack some or be unable to read them. Raises RefusedError, PeerError, and FormatError of the search."""
    try:
        run = next(search)
        while True:
            try:
                case = await _case_if_known(questions, parse_run(run))
            except FormatError as error:
                run = search.throw(error)
            else:
                run = search.send(case)
    except StopIteration as end:
        found: _Found = end.value
        return found


async def _of_campaign(questions: Questions, name: str) -> list[KnownDrive]:
    """The drives of a campaign on which its cuts gave evidence, each once per stack."""
    state = (await fetch_log(questions, name)).state
    return await looked_up(questions, in_campaign(state, lambda _: True))


async def _case_if_known(questions: Questions, run: int) -> Case | None:
    """The case of a run; None if the server does not have the run any more. Raises FormatError if the server
    or this side cannot read it. Raises RefusedError, PeerError."""
    try:
        return await _case(questions, run)
    except RefusedError as error:
        if error.code == "run-unknown":
            return None
        if error.code == "bad-request":  # a row that the server cannot read
            raise FormatError(str(error)) from error
        raise


async def _case(questions: Questions, run: int) -> Case:
    return case_from_value((await questions.request(Show(run=run), Shown)).document["case"])


def _drives(facts: Facts) -> str:
    return (
        " + ".join(f"{drive.model or drive.name} {drive.serial}".strip() for drive in facts.drives)
        or "no drive"
    )
