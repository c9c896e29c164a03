"""Kept results of the benchmark, compared on a page as `durability compare` compares them.

The core compares; what cuts said of a drive comes from the newest campaigns of this store, and from the
runs of the client that kept the result, else of the only client that has any. Refuses more than
`COMPARED_MAX` results at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from durability.acceptance.known_cuts import (
    SEARCHED_CAMPAIGNS_MAX,
    KnownDrive,
    facts_of_series,
    known_of_campaign,
    known_of_run,
    older_campaigns,
    proof_beside,
    runs_of,
    same_drives,
    unsearchable,
)
from durability.bench import figures
from durability.bench.compare import Comparison, Row, compare, deciding_row
from durability.bench.decision.claims import choose, claim_from_row
from durability.bench.decision.proof import PROOF_CLASSES, Proof
from durability.bench.hashed_serials import marks_of
from durability.bench.kept_result import is_result_id, unpack_body
from durability.bench.result import Result
from durability.campaign.campaign_state import CampaignState
from durability.errors import FormatError, RefusedError, UsageError
from durability.formats.case import Case
from durability.formats.facts import Facts
from durability.units import parse_run
from durability_server import clock
from durability_server.runs.run import Run
from durability_server.store.store import Store
from durability_server.web.campaign_watch import CampaignWatch, WatchedCampaign

COMPARED_MAX = 4
LISTED_MAX = 200
_UNKNOWN = "no cut of it is known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A result in the cell that decides. `word`: the style of what cuts said, `cuts`."""

    label: str
    rate: str
    beside: str
    word: str
    cuts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonView:
    """What the page shows; `cells`: for each cell its name, what is compared with the MB/s, and the ratios in
    words; `notes`: whose runs were left out, and which drives have none that can be found."""

    compared: Comparison
    columns: tuple[Column, ...]
    cells: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]
    notes: tuple[str, ...]


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """The results that are named, each once. Raises UsageError."""
    wanted = tuple(dict.fromkeys(names))
    if not 2 <= len(wanted) <= COMPARED_MAX or not all(map(is_result_id, wanted)):
        raise UsageError(f"tick two to {COMPARED_MAX} results to compare them")
    return wanted


def kept_results(store: Store) -> tuple[Mapping[str, Any], ...]:
    """The rows of `durability results`, newest first. Raises StoreError."""
    return store.results.listing(LISTED_MAX, client=None)


def comparison_view(store: Store, watch: CampaignWatch, names: Sequence[str]) -> ComparisonView:
    """The results of these names, the others against the first. Raises RefusedError, FormatError and
    StoreError."""
    kept = [store.results.find(name, client=None) for name in names]
    found = [(_label(row, kept), unpack_body(body)[1]) for row, body in kept]
    campaigns = watch.read()
    known = _known_of_campaigns(store, campaigns, [result for _, result in found])
    proofs: list[Proof | None] = []
    notes = dict.fromkeys(older_campaigns(len(campaigns)))
    for (row, _), (label, result) in zip(kept, found, strict=True):
        of_runs, note = _known_of_runs(store, row, label, result)
        proofs.append(proof_beside(result, [*known, *of_runs], named=False))
        notes |= {note: None} if note else {}
    compared = compare(found, tuple(proofs))
    deciding = deciding_row(compared.rows)
    return ComparisonView(
        compared=compared,
        columns=tuple(_column(compared, deciding, number) for number in range(len(compared.labels))),
        cells=tuple(map(_cell, compared.rows)),
        notes=tuple(notes),
    )


def _known_of_runs(
    store: Store, row: Mapping[str, Any], label: str, result: Result
) -> tuple[list[KnownDrive], str]:
    """What runs on the drives of a kept result say, and a sentence if another client's were left out, or if
    none can be found."""
    if why := unsearchable(result.facts):
        return [], f"{label}: {why}"
    claims = [claim_from_row(one) for one in store.claims(tuple(marks_of(result.facts)), client=None)]
    choice = choose(claims, [row["client"]] if row["client"] else (), label)
    named = [run for one in choice.taken for run in one.named_runs]
    return [one for one in (_known_of_run(store, run) for run in named) if one is not None], choice.note


def _known_of_run(store: Store, name: str) -> KnownDrive | None:
    case = _case(store, name)
    return None if case is None else known_of_run(case)


def _case(store: Store, name: str) -> Case | None:
    with suppress(RefusedError, UsageError, FormatError):  # the store has that run no more
        stored = store.load(parse_run(name))
        return Run(stored, boot_id="").case(now_ns=clock.now_ns(), relations=store.relations(stored))
    return None


def _label(row: Mapping[str, Any], kept: Sequence[tuple[Mapping[str, Any], bytes]]) -> str:
    """The drive's model; with the name of the result where others have the same."""
    models = [_model(other) for other, _ in kept]
    model = _model(row)
    return f"{model} {row['result']}" if models.count(model) > 1 else model


def _model(row: Mapping[str, Any]) -> str:
    return " + ".join(str(drive.get("model") or "unnamed") for drive in row["drives"]) or str(row["target"])


def _known_of_campaigns(
    store: Store, campaigns: Sequence[WatchedCampaign], measured: Sequence[Result]
) -> list[KnownDrive]:
    """What the newest campaigns said of the drives of `measured`."""
    known: list[KnownDrive] = []
    for campaign in campaigns[-SEARCHED_CAMPAIGNS_MAX:]:
        state = campaign.state
        for drive in state.plan.drives if state.settings is not None else ():
            facts = _facts_of_runs(store, state, drive.name, measured)
            known += known_of_campaign(state, drive.name, facts)
    return known


def _facts_of_runs(
    store: Store, state: CampaignState, drive: str, measured: Sequence[Result]
) -> dict[str, Facts]:
    """The facts of a drive's runs in a campaign, by run; none if no result is of that drive."""
    facts: dict[str, Facts] = {}
    for run in runs_of(state, drive):
        case = None if run in facts else _case(store, run)
        facts |= {} if case is None else facts_of_series(case)
        first = next(iter(facts.values()), None)
        if first and not any(same_drives(first, one.facts, named=False) for one in measured):
            return {}
    return facts


def _column(compared: Comparison, row: Row | None, number: int) -> Column:
    proof = compared.proofs[number] if compared.proofs else None
    rate, moved, p99, times = figures.decided(row, number)
    against = f", ratio {times}" if number else ""
    return Column(
        label=compared.labels[number],
        rate=f"{rate} commits/s",
        beside=f"{moved} MB/s, p99 {p99}{against}",
        word="open" if proof is None else PROOF_CLASSES[proof.word],
        cuts=_UNKNOWN if proof is None else proof.text,
    )


def _cell(row: Row) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    per_second = "/s" if row.basis == "rate" else ""
    shown = tuple(
        f"{figures.compared(row, number)[0]}{per_second}, {figures.megabytes(one)} MB/s"
        for number, one in enumerate(row.summaries)
    )
    return figures.name_of(row.summaries[0]), shown, tuple(one.text for one in row.against)
