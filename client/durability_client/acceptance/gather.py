"""Gathers the evidence on each drive: results from files and the server, campaigns and runs from the server.

Evidence that the user named is used as it is. Other evidence is looked for on the server, by the drives'
serials, as `compare` does. These rules apply: a named campaign must have evidence; evidence of different
drives is never joined; a loss in another campaign is not hidden if the user names only one; and if campaigns
or stored results of a drive show which client has it, other clients' runs and results do not count.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from durability import plain_text
from durability.acceptance.cut_search import NO_CAMPAIGNS, facts_of_runs, unread
from durability.acceptance.drive_evidence import (
    BenchEvidence,
    CampaignEvidence,
    DriveEvidence,
    campaign_evidence,
    subject_of,
)
from durability.acceptance.known_cuts import (
    KnownDrive,
    beside_campaigns,
    clean_series,
    facts_of_check,
    held_against,
    is_withheld,
    known_of_campaign,
    machine_that_was_cut,
    runs_of,
    same_drives,
    unsearchable,
)
from durability.bench.decision.claims import Machine, is_named, left_out, named_among
from durability.bench.decision.proof import Proof
from durability.bench.hashed_serials import hashed, marks_of
from durability.bench.kept_result import is_result_id
from durability.errors import FormatError, PeerError, RefusedError, UsageError
from durability.formats.facts import Facts
from durability.plain_text import owner_label
from durability.protocol.messages import CampaignNames, ListCampaigns, Listing, ListResults
from durability_client.bench import saved_results
from durability_client.bench.cut_verdicts import looked_up, verdicts_of_runs
from durability_client.bench.kept_results import fetch_over
from durability_client.link.campaign_log import fetch_log
from durability_client.link.endpoint import Endpoint
from durability_client.link.questions import Questions
from durability_client.link.server_connection import Connection, connect

SEARCH_S = 60.0  # longest search for evidence that the user did not name
RESULTS_MAX = 200  # rows of a drive that are searched for the newest suitable result
REPORTED_DRIVES_MAX = 64  # drives in one report

Say = Callable[[str], None]
_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceWanted:
    """The evidence that the user requested."""

    campaigns: tuple[str, ...]  # names; (): search
    results: tuple[str, ...]  # files, or names of stored results on the server; (): search
    drive: str  # a part of a drive's model, or its serial; "": any
    # Clients, by id or name, whose runs and results count in a search. Without them, and for drives on which
    # they have no runs, the drive's campaigns and results decide.
    clients: tuple[str, ...] = ()


@dataclass(slots=True)
class _Drive:
    """The evidence on one drive that was found so far."""

    facts: list[Facts] = field(default_factory=list)
    campaigns: list[CampaignEvidence] = field(default_factory=list)
    # Campaigns that the user did not name and in which the drive failed.
    against: list[CampaignEvidence] = field(default_factory=list)
    runs: set[str] = field(default_factory=set)  # of all its campaigns, also of those not named
    machines: set[Machine] = field(default_factory=set)  # machines that these campaigns cut
    # Proofs of campaigns and single runs, each with the facts of a run.
    proofs: list[tuple[Facts, Proof]] = field(default_factory=list)
    results: list[BenchEvidence] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    to_verify: list[str] = field(default_factory=list)
    disputed: str = ""  # evidence against the drive from clients whose runs do not count
    # `heard`: clients that the user named and that have runs or stored results of the drive.
    heard: frozenset[str] = frozenset()

    @property
    def owners(self) -> frozenset[str]:
        """The ids of the clients that stored its results."""
        return frozenset(one.client for one in self.results if one.client)

    @property
    def measured(self) -> list[Facts]:
        """The facts of the measured stacks."""
        return [one.result.facts for one in self.results]

    @property
    def words(self) -> str:
        """Models and serials of the drive, as text."""
        drives = self.facts[0].drives
        return plain_text.as_line(" + ".join(f"{one.model or one.name} {one.serial}" for one in drives))

    def is_of(self, facts: Facts, *, named: bool) -> bool:
        return any(same_drives(one, facts, named=named) for one in self.facts)

    def evidence(self) -> DriveEvidence:
        rows = [row for one in self.campaigns for row in one.rows]
        results = sorted(self.results, key=lambda one: one.result.created, reverse=True)
        measured = [one.result.facts for one in results]
        facts = [*measured, *(one for one in self.facts if one not in measured)]
        of_results = [one.result for one in results]
        return DriveEvidence(
            subject=subject_of(facts, rows),
            facts=tuple(facts),
            campaigns=tuple(self.campaigns),
            against=tuple(self.against),
            proofs=tuple(held_against(proof, cut, of_results) for cut, proof in self.proofs),
            results=tuple(results),
            left_out=tuple(dict.fromkeys(self.left_out)),
            unfinished=tuple(dict.fromkeys(self.unfinished)),
            to_verify=tuple(self.to_verify),
            disputed=self.disputed,
        )


async def gather(endpoint: Endpoint | None, wanted: EvidenceWanted, say: Say) -> tuple[DriveEvidence, ...]:
    """The evidence on each drive. `say` gets messages about evidence that could not be searched. Raises
    UsageError if no drive is found, or nothing of a client that the user named. Raises SetupError,
    FormatError, and PeerError if evidence was requested by name."""
    drives: list[_Drive] = []
    for measured in await _results_of(endpoint, wanted.results):
        _join(drives, measured, named=True)
    if wanted.campaigns:
        if endpoint is None:
            raise UsageError("--campaign needs a server: type `durability join`, or add --server")
        await _named_campaigns(endpoint, wanted.campaigns, drives)
    if endpoint is not None:
        try:
            async with asyncio.timeout(SEARCH_S):
                await _search(endpoint, wanted, drives, say)
        except (PeerError, TimeoutError) as error:
            if not drives:
                raise PeerError(f"nothing was found on the server: {error or 'it took too long'}") from error
            unfinished = f"the server was not searched to the end: {error or 'it took too long'}"
            for drive in drives:
                drive.unfinished.append(plain_text.as_line(unfinished))
    else:
        say("no server is known, so no campaign and no stored result is looked for")
    chosen = [one for one in drives if one.facts and _is_meant(one, wanted.drive)]
    if not chosen:
        raise UsageError(_nothing(wanted, drives))
    if len(chosen) > REPORTED_DRIVES_MAX:
        raise UsageError(f"{len(chosen)} drives are too many for one report; choose with --drive")
    notes = (note for one in chosen for note in (*one.unfinished, *one.left_out, *one.to_verify))
    for note in dict.fromkeys(notes):
        say(note)
    return tuple(replace(one.evidence(), searched=endpoint is not None) for one in chosen)


def _nothing(wanted: EvidenceWanted, drives: Sequence[_Drive]) -> str:
    if drives:
        return f"--drive {wanted.drive}: the evidence is of other drives, {len(drives)} in all"
    return (
        f"--drive {wanted.drive}: no campaign and no stored result of it is known. Give its whole serial,"
        " as `durability runs` lists it, or name evidence with --campaign and --bench"
    )


def _is_meant(drive: _Drive, text: str) -> bool:
    if not text:
        return True
    wanted = text.strip().lower()
    return any(
        wanted in one.model.lower()
        or wanted == one.serial.lower()
        or hashed(text.strip()) == hashed(one.serial)
        for facts in drive.facts
        for one in facts.drives
    )


# Results of the benchmark.


async def _results_of(endpoint: Endpoint | None, names: Iterable[str]) -> list[BenchEvidence]:
    measured = []
    for name in names:
        path = Path(name)
        if is_result_id(name) and not path.exists():  # noqa: ASYNC240 - a name, before anything else is done
            if endpoint is None:
                raise UsageError(f"--bench {name}: no such file, and no server is known that keeps it")
            with closing(await connect(endpoint, "query")) as connection:
                measured.append(await _kept(connection, name))
        else:
            measured.append(_saved(path))
    return measured


def _saved(path: Path) -> BenchEvidence:
    result = saved_results.load(path)
    return BenchEvidence(name=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest(), result=result)


async def _kept(connection: Connection, name: str) -> BenchEvidence:
    fetched = await fetch_over(connection, name)
    return BenchEvidence(
        name=f"stored result {name} of {_owner(fetched.row)}",
        sha256=hashlib.sha256(fetched.data).hexdigest(),
        result=fetched.result,
        client=_client(fetched.row),
    )


async def _readable(connection: Connection, row: _Row, unfinished: list[str]) -> BenchEvidence | None:
    """The stored result of a row. None if this release cannot read it; then `unfinished` gets a sentence."""
    name = str(row["result"])
    try:
        return await _kept(connection, name)
    except FormatError:
        unfinished.append(f"stored result {name} cannot be read by this release")
        return None


def _client(row: _Row) -> str:
    return str(row.get("client") or "")


def _client_name(row: _Row) -> str:
    return str(row.get("client_name") or "")


def _owner(row: _Row) -> str:
    return owner_label(_client(row), _client_name(row))


def _join(drives: list[_Drive], measured: BenchEvidence, *, named: bool) -> None:
    """Add a result to its drive, or to a new drive. `named`: the user named the result."""
    facts = measured.result.facts
    mine = next((one for one in drives if one.is_of(facts, named=named)), None)
    if mine is None:
        mine = _Drive()
        drives.append(mine)
    if all(one.sha256 != measured.sha256 for one in mine.results):
        mine.facts.append(facts)
        mine.results.append(measured)


# Campaigns and runs.


async def _named_campaigns(endpoint: Endpoint, names: Sequence[str], drives: list[_Drive]) -> None:
    try:
        with closing(Questions(endpoint)) as questions:
            for name in dict.fromkeys(names):
                if not await _add_campaign(questions, name, drives, only_known=False, named=True):
                    raise UsageError(f"--campaign {name}: no run of it has begun on any drive")
    except RefusedError as error:
        if error.code != "forbidden":
            raise
        raise UsageError(
            f"--campaign {', '.join(names)}: this client may not see campaigns. Type this command on the"
            " server's machine, or join as viewer (`durability clients invite --role viewer`)"
        ) from error


async def _add_campaign(
    questions: Questions,
    name: str,
    drives: list[_Drive],
    *,
    only_known: bool,
    named: bool,
    only_against: bool = False,
) -> bool:
    """Add the campaign's evidence to `drives`. Returns whether it has evidence on any of them.

    Drives of the campaign that are not in `drives` are added, unless `only_known`. `named`: the user named
    the campaign, so drives without a unique serial may match. `only_against`: the user named other campaigns,
    so only evidence against a drive is added.
    """
    state = (await fetch_log(questions, name)).state
    if state.settings is None:
        return False

    def is_wanted(facts: Facts) -> bool:
        return not only_known or any(one.is_of(facts, named=named) for one in drives)

    found = False
    for drive in state.plan.drives:
        by_run = await looked_up(questions, facts_of_runs(state, drive.name, is_wanted))
        facts = next(iter(by_run.values()), None) or facts_of_check(state, drive.name)
        if facts is None:
            continue
        mine = next((one for one in drives if one.is_of(facts, named=named)), None)
        if mine is None:
            if only_known:
                continue
            mine = _Drive()
            drives.append(mine)
        known, said = known_of_campaign(state, drive.name, by_run), campaign_evidence(state, drive.name)
        mine.runs |= set(runs_of(state, drive.name))
        mine.machines.add(machine_that_was_cut(state, drive.name))
        if only_against:
            known = [one for one in known if one.proof.losses or one.proof.bound is None]
        else:
            mine.facts += [one.facts for one in known] or [facts]
            mine.campaigns.append(said)
        if only_against and said.speaks_against:
            mine.against.append(said)
        mine.proofs += [(one.facts, one.proof) for one in known]
        found = True
    return found


async def _search(endpoint: Endpoint, wanted: EvidenceWanted, drives: list[_Drive], say: Say) -> None:
    """Search evidence that the user did not name, on the known drives, or on the drive that `wanted.drive`
    describes."""
    unfinished: list[str] = []
    if wanted.drive and not drives:
        # Campaigns first, because they show whose results are of the drive.
        unfinished = await _search_campaigns(endpoint, drives, only_known=False, wanted=wanted.drive)
        unfinished += await _search_results(endpoint, wanted, drives, say)
        if not drives:
            for sentence in unfinished:
                say(sentence)
    elif not drives:
        return
    else:
        unfinished = await _search_campaigns(endpoint, drives, only_known=True, besides=wanted.campaigns)
    for drive in drives:
        drive.unfinished += unfinished
    if not wanted.results:
        for drive in list(drives):
            await _newest_result(endpoint, drive, wanted.clients)
    with closing(Questions(endpoint)) as questions:
        for drive in drives:
            await _search_runs(questions, drive, wanted, say)
    heard = frozenset[str]().union(*(drive.heard for drive in drives))
    if strangers := [one for one in wanted.clients if one not in heard]:
        raise UsageError(
            f"--client {strangers[0]}: no run and no stored result found for these drives is of a client with"
            " this id or name"
        )


async def _search_runs(questions: Questions, drive: _Drive, wanted: EvidenceWanted, say: Say) -> None:
    """Add the evidence of single runs, of the clients that have the drive."""
    named = {one.result.first_loss[1] for one in drive.campaigns if one.result.first_loss is not None}
    facts = (*drive.measured, *drive.facts)[0]
    if why := unsearchable(facts):
        say(f"{drive.words}: {why}; only what --campaign and --bench name counts")
        return
    found = await verdicts_of_runs(
        questions, facts, wanted.clients, named, owners=drive.owners, machines=drive.machines
    )
    told = _worth_telling(drive, found.known, named)
    # A run may show a serial that a result hides. Runs on another firmware are not evidence for this one.
    named_firmware = {_firmware(one) for one in drive.facts}
    drive.facts += [one.facts for one in found.known if _firmware(one.facts) in named_firmware][:1]
    drive.proofs += [(one.facts, one.proof) for one in told]
    drive.left_out += found.left_out
    drive.unfinished += found.unread
    drive.disputed, drive.heard = found.against, drive.heard | found.heard
    for proof in (one.proof for one in told if unread(one.proof.source) not in found.unread):
        if proof.bound is None and not proof.losses:
            drive.to_verify.append(_to_verify(proof))


def _firmware(facts: Facts) -> tuple[str, ...]:
    return tuple(sorted(one.firmware for one in facts.drives))


def _to_verify(proof: Proof) -> str:
    """A sentence with the command that may find the outcome of the proof's run."""
    command = f"`durability verify TARGET --{proof.source}`"
    return f"{proof.source} has no outcome; {command} may tell it, if no later run wrote to its target"


def _worth_telling(drive: _Drive, runs: Sequence[KnownDrive], named: set[str]) -> list[KnownDrive]:
    """The single runs that the report needs: the first loss that no campaign reports, and the runs that
    criteria use.

    A loss that convicts is preferred. If the drive has a campaign, which has its own clean cuts, criteria use
    only cuts with unknown outcome of runs outside the campaign.
    """
    losses = [one for one in runs if one.proof.losses and not one.runs & named]
    losses.sort(key=lambda one: is_withheld(one.facts, drive.measured))
    if any(one.losses and not is_withheld(cut, drive.measured) for cut, one in drive.proofs):
        return []
    if drive.campaigns:
        runs = [one for one in runs if one.proof.bound is None]
    series = clean_series(beside_campaigns(runs, drive.runs), [one.result for one in drive.results])
    return [*losses[:1], *series]


async def _search_campaigns(
    endpoint: Endpoint,
    drives: list[_Drive],
    *,
    only_known: bool,
    wanted: str = "",
    besides: Collection[str] = (),
) -> list[str]:
    """Add the evidence of campaigns on `drives`, or with `wanted` the campaigns' drives that match.

    `besides`: campaigns that the user named; of other campaigns only evidence against the drives is added.
    Returns sentences about campaigns that could not be read, which may be about any of the drives.
    """
    found: list[_Drive] = drives if only_known else []
    unfinished: list[str] = []
    try:
        with closing(Questions(endpoint)) as questions:
            names = (await questions.request(ListCampaigns(), CampaignNames)).names
            # All campaigns: in an old one, the drive may have vanished or lost data.
            for name in (one for one in names if one not in besides):
                try:
                    await _add_campaign(
                        questions,
                        name,
                        found,
                        only_known=only_known,
                        named=False,
                        only_against=bool(besides),
                    )
                except FormatError:  # others can be read
                    unfinished.append(unread(f"campaign {name}"))
    except RefusedError as error:
        if error.code != "forbidden":
            raise
        unfinished.append(NO_CAMPAIGNS)
    if only_known:
        return unfinished
    for one in filter(lambda each: _is_meant(each, wanted), found):
        mine = next((drive for drive in drives if drive.is_of(one.facts[0], named=False)), None)
        if mine is None:
            drives.append(one)
        else:
            mine.facts += one.facts
            mine.campaigns += one.campaigns
            mine.runs |= one.runs
            mine.machines |= one.machines
            mine.proofs += one.proofs
    return unfinished


async def _search_results(
    endpoint: Endpoint, wanted: EvidenceWanted, drives: list[_Drive], say: Say
) -> list[str]:
    """Add the drives of stored results that are in no campaign. Returns sentences about unreadable
    results."""
    text, unfinished = wanted.drive, list[str]()
    request = ListResults(limit=RESULTS_MAX, drive=text, identity=hashed(text.strip()))
    with closing(await connect(endpoint, "query")) as connection:
        known = {tuple(sorted(hashed(one.serial) for one in drive.facts[0].drives)) for drive in drives}
        found: dict[tuple[str, ...], list[_Row]] = {}
        for row in (await connection.request(request, Listing)).rows:
            if row.get("complete"):
                listed: Any = row.get("drives") or ()
                found.setdefault(tuple(sorted(str(one.get("identity")) for one in listed)), []).append(row)
        for serials, rows in found.items():
            if serials in known:
                continue
            chosen, note = _chosen_results(rows, wanted.clients, text)
            for row in chosen:
                measured = await _readable(connection, row, unfinished)
                if measured is not None:
                    _join(drives, measured, named=False)
                    break
            if note and not chosen:
                say(note)
    return unfinished


def _chosen_results(
    rows: Sequence[_Row], clients: tuple[str, ...], what: str, machines: Collection[Machine] = ()
) -> tuple[list[_Row], str]:
    """The rows of results of one drive that count, and a sentence if some do not.

    With `clients` (ids or names), their results count. Otherwise results of `machines`, which campaigns cut,
    and of the operator count; without machines, results of the only client that has any.
    """
    owners = {_client(row): _owner(row) for row in rows}
    names = {_client(row): _client_name(row) for row in rows}
    if clients:
        mine = {one for one in owners if is_named(one, names[one], clients)}
    elif machines:
        mine = {one for one in owners if not one or any(each.is_of(one, names[one]) for each in machines)}
    else:
        mine = set(owners) if len(owners) == 1 else set()
    others = [label for one, label in owners.items() if one not in mine]
    chosen = [row for row in rows if _client(row) in mine]
    if not others:
        return chosen, ""
    note = left_out(what, "results", [owners[one] for one in owners if one in mine], others)
    return chosen, f"{note}; choose with --client NAME"


async def _newest_result(endpoint: Endpoint, drive: _Drive, clients: tuple[str, ...]) -> None:
    """Add the newest complete stored result of the drive; results of `bench --accept` are preferred.

    If campaigns of the drive are known, the result must be of a machine that they cut, or of the operator.
    Another client's drive with this serial may be a different drive.
    """
    if not marks_of(drive.facts[0]):
        return
    request = ListResults(limit=RESULTS_MAX, identity=hashed(drive.facts[0].drives[0].serial))
    with closing(await connect(endpoint, "query")) as connection:
        listed = [row for row in (await connection.request(request, Listing)).rows if row.get("complete")]
        drive.heard |= named_among(clients, ((_client(row), _client_name(row)) for row in listed))
        rows, note = _chosen_results(listed, clients, drive.words, drive.machines)
        drive.left_out += [note] if note else []
        rows.sort(key=lambda row: row.get("mode") != "accept")  # stable: the newest stays first
        for row in rows:
            measured = await _readable(connection, row, drive.unfinished)
            if measured is None:
                continue
            if any(one.sha256 == measured.sha256 for one in drive.results):
                return
            if drive.is_of(measured.result.facts, named=False):
                drive.facts.append(measured.result.facts)
                drive.results.append(measured)
                return
