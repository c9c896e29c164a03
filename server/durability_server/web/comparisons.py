"""Kept benchmark results, compared on a page as `durability compare` compares them.

The core compares the results. Cuts of a drive are taken from the newest campaigns of this store and from
runs. The runs are those of the client that kept the result, and of clients whose machine those campaigns cut.
If no client kept the result, runs of the only client that has some are used. More than `COMPARED_MAX` results
are refused. A drive is not called proven if a client whose runs do not count has a loss or a cut without an
outcome.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from durability.acceptance.cut_search import Search, in_campaign, in_runs, is_of, newest_campaigns, unread
from durability.acceptance.known_cuts import KnownDrive, machines_of, proof_beside, unsearchable
from durability.bench import figures
from durability.bench.compare import Comparison, Row, compare
from durability.bench.decision.claims import Machine, choose, claim_from_row
from durability.bench.decision.proof import Proof
from durability.bench.hashed_serials import marks_of
from durability.bench.kept_result import is_result_id, unpack_body
from durability.bench.result import Result
from durability.errors import FormatError, RefusedError, UsageError
from durability.formats.case import Case
from durability.units import parse_run
from durability_server import clock
from durability_server.runs.run import Run
from durability_server.store.store import Store
from durability_server.web.campaign_watch import CampaignWatch, WatchedCampaign

COMPARED_MAX = 4  # results of one comparison
LISTED_MAX = 200  # results of the list
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonView:
    """The content of the page."""

    compared: Comparison
    tiles: tuple[figures.Tile, ...]
    # For each cell its name, the compared values with the MB/s, and the ratios in words.
    cells: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]
    # Whose runs were left out, what cannot be read, and for which drives no cuts can be found.
    notes: tuple[str, ...]


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """The named results, each once. Raises UsageError."""
    wanted = tuple(dict.fromkeys(names))
    if not 2 <= len(wanted) <= COMPARED_MAX or not all(map(is_result_id, wanted)):
        raise UsageError(f"tick two to {COMPARED_MAX} results to compare them")
    return wanted


def kept_results(store: Store) -> tuple[Mapping[str, Any], ...]:
    """The rows of `durability results`, newest first. Raises StoreError."""
    return store.results.listing(LISTED_MAX, client=None)


def comparison_view(store: Store, watch: CampaignWatch, names: Sequence[str]) -> ComparisonView:
    """The named results, each compared with the first. Raises RefusedError, FormatError and StoreError."""
    kept = [store.results.find(name, client=None) for name in names]
    found = [(_label(row, kept), unpack_body(body)[1]) for row, body in kept]
    known, left_out = _known_of_campaigns(store, watch.read(), [result for _, result in found])
    proofs: list[Proof | None] = []
    notes = dict.fromkeys(left_out)
    for (row, _), (label, result) in zip(kept, found, strict=True):
        of_runs = _known_of_runs(store, row, label, result, machines_of(known, result.facts))
        every = [*known, *of_runs.known]
        proofs.append(proof_beside(result, every, named=False, disputed=of_runs.against))
        notes |= dict.fromkeys(of_runs.notes)
    compared = compare(found, tuple(proofs))
    return ComparisonView(
        compared=compared,
        tiles=figures.tiles(compared),
        cells=tuple(map(_cell, compared.rows)),
        notes=tuple(notes),
    )


def _known_of_campaigns(
    store: Store, campaigns: Sequence[WatchedCampaign], measured: Sequence[Result]
) -> tuple[list[KnownDrive], tuple[str, ...]]:
    """What the newest campaigns say about the drives of `measured`. Also a sentence for each campaign that
    cannot be read, and one if there are older campaigns."""
    known: list[KnownDrive] = []
    left_out: list[str] = []
    searched, older = newest_campaigns(campaigns)
    for campaign in searched:
        try:
            if campaign.note:
                raise FormatError(campaign.note)
            known += _looked_up(store, in_campaign(campaign.state, is_of(measured)))
        except FormatError:  # other campaigns may be readable
            left_out.append(unread(f"campaign {campaign.name}"))
    return known, (*left_out, *older)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfRuns:
    """What runs on a drive say."""

    known: list[KnownDrive]
    # Sentences: runs of another client were left out; none can be found; a run cannot be read.
    notes: tuple[str, ...]
    against: str = ""  # what a client that was left out says against the drive, in words, "" for nothing


def _known_of_runs(
    store: Store, row: Mapping[str, Any], label: str, result: Result, machines: Collection[Machine]
) -> _OfRuns:
    """What runs on the drives of a kept result say. `machines`: those that campaigns cut."""
    if why := unsearchable(result.facts):
        return _OfRuns(known=[], notes=(f"{label}: {why}",))
    claims = [claim_from_row(one) for one in store.claims(tuple(marks_of(result.facts)), client=None)]
    choice = choose(claims, [row["client"]] if row["client"] else (), label, machines)
    known, unread_runs = _looked_up(store, in_runs(choice.taken, result.facts))
    notes = (*filter(None, (choice.note,)), *unread_runs)
    return _OfRuns(known=known, notes=notes, against=choice.against)


def _looked_up(store: Store, search: Search[_Found]) -> _Found:
    """The result of a search. Its cases are read from the store. Raises StoreError, and FormatError as the
    search does."""
    try:
        run = next(search)
        while True:
            try:
                case = _case(store, run)
            except FormatError as error:
                run = search.throw(error)
            else:
                run = search.send(case)
    except StopIteration as end:
        found: _Found = end.value
        return found


def _case(store: Store, name: str) -> Case | None:
    try:
        stored = store.load(parse_run(name))
    except (RefusedError, UsageError):  # the store no longer has that run
        return None
    return Run(stored, boot_id="").case(now_ns=clock.now_ns(), relations=store.relations(stored))


def _label(row: Mapping[str, Any], kept: Sequence[tuple[Mapping[str, Any], bytes]]) -> str:
    """The drive's model, with the name of the result if several results have the same model."""
    models = [_model(other) for other, _ in kept]
    model = _model(row)
    return f"{model} {row['result']}" if models.count(model) > 1 else model


def _model(row: Mapping[str, Any]) -> str:
    return " + ".join(str(drive.get("model") or "unnamed") for drive in row["drives"]) or str(row["target"])


def _cell(row: Row) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    per_second = "/s" if row.basis == "rate" else ""
    shown = tuple(
        f"{figures.compared(row, number)[0]}{per_second}, {figures.megabytes(one)} MB/s"
        for number, one in enumerate(row.summaries)
    )
    return figures.name_of(row.summaries[0]), shown, tuple(one.text for one in row.against)
