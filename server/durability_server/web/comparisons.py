"""Kept results of the benchmark, compared on a page as `durability compare` compares them.

The core compares; what cuts said of a drive comes from the campaigns of this store, and from the runs of the
client that kept the result, else of the only client that has any. A drive is known by the hash of its serial.
Refuses to take emulated drives for one another, whose serials are not theirs alone, and more than
`COMPARED_MAX` results at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from durability.acceptance.evidence import campaign_proof
from durability.bench.catalogue import HEADLINE
from durability.bench.compare import Comparison, Row, compare
from durability.bench.decision.bottom_line import megabytes
from durability.bench.decision.claims import choose, claim_from_row
from durability.bench.decision.proof import Proof, weightiest
from durability.bench.decision.same_stack import unlike
from durability.bench.kept_result import is_result_id, unpack_body
from durability.bench.result import Result
from durability.bench.serials import hashed, marks_of
from durability.campaign.campaign_state import CampaignState
from durability.campaign.results import results
from durability.errors import FormatError, RefusedError, UsageError
from durability.formats.documents import from_value
from durability.formats.facts import Facts
from durability.units import duration, parse_run
from durability_server.store.store import Store
from durability_server.web.campaign_watch import CampaignWatch, WatchedCampaign

COMPARED_MAX = 4
LISTED_MAX = 200
_UNKNOWN = "no cut of it is known"
_CLASSES = {"proven": "yes", "too few cuts": "open", "lost data": "no"}


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
    """What the page shows; `cells`: for each cell its name, the rates, and the ratios in words; `notes`:
    whose runs were left out."""

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
    known = _cuts(watch.read())
    proofs: list[Proof | None] = []
    notes: dict[str, None] = {}
    for (row, _), (label, result) in zip(kept, found, strict=True):
        of_runs, note = _of_runs(store, row, label, result)
        proofs.append(_proof_of(store, result, known, of_runs))
        notes |= {note: None} if note else {}
    compared = compare(found, tuple(proofs))
    deciding = _deciding(compared.rows)
    return ComparisonView(
        compared=compared,
        columns=tuple(_column(compared, deciding, number) for number in range(len(compared.labels))),
        cells=tuple(map(_cell, compared.rows)),
        notes=tuple(notes),
    )


def _of_runs(store: Store, row: Mapping[str, Any], label: str, result: Result) -> tuple[list[Proof], str]:
    """The losses of runs on the drives of a kept result, and a sentence if another client's were left out."""
    marks = marks_of(result.facts)
    if not marks:
        return [], ""
    claims = [claim_from_row(one) for one in store.claims(tuple(marks), client=None)]
    choice = choose(claims, [row["client"]] if row["client"] else (), label)
    proofs = [
        Proof(
            cuts=one.cuts,
            losses=one.losses,
            bound=one.bound,
            cut_class=one.cut_class,
            source=f"the runs of {one.label}",
            lost_in="",
        )
        for one in choice.taken
        if one.losses
    ]
    return proofs, choice.note


def _label(row: Mapping[str, Any], kept: Sequence[tuple[Mapping[str, Any], bytes]]) -> str:
    """The drive's model; with the name of the result where others have the same."""
    models = [_model(other) for other, _ in kept]
    model = _model(row)
    return f"{model} {row['result']}" if models.count(model) > 1 else model


def _model(row: Mapping[str, Any]) -> str:
    return " + ".join(str(drive.get("model") or "unnamed") for drive in row["drives"]) or str(row["target"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """What a campaign said of a drive of its."""

    state: CampaignState
    drive: str
    proof: Proof


def _cuts(campaigns: Iterable[WatchedCampaign]) -> Mapping[str, list[_Cut]]:
    """By hash of the serial: what campaigns said of a drive."""
    known: dict[str, list[_Cut]] = {}
    for campaign in campaigns:
        state = campaign.state
        for result in results(state) if state.settings is not None else ():
            condition, proof = state.conditions.get(result.drive), campaign_proof(state, result)
            if condition is None or not condition.serial or condition.emulated or proof is None:
                continue
            one = _Cut(state=state, drive=result.drive, proof=proof)
            known.setdefault(hashed(condition.serial), []).append(one)
    return known


def _proof_of(
    store: Store, result: Result, known: Mapping[str, list[_Cut]], of_runs: list[Proof]
) -> Proof | None:
    """Of a target on one drive; several are not proven by one of them."""
    drives = result.facts.drives
    if len(drives) != 1 or not drives[0].serial or drives[0].emulated:
        return None
    proofs = [
        replace(one.proof, but=_unlike(store, one, result)) for one in known.get(hashed(drives[0].serial), ())
    ]
    return weightiest([*proofs, *of_runs])


def _unlike(store: Store, cut: _Cut, result: Result) -> str:
    """In what the stack that was cut differs from the measured one, as `compare` says it."""
    for past in cut.state.cycles:
        mine = past.of(cut.drive)
        if mine is None or not mine.run:
            continue
        with suppress(RefusedError, UsageError, FormatError):  # the server has that run no more
            armed = store.load(parse_run(mine.run)).armed
            if armed is not None:
                return unlike(from_value(Facts, armed), result.facts)
    return "on a file system that is no longer known"


def _deciding(rows: Sequence[Row]) -> Row | None:
    """The row of one committing writer, else of the first cell that commits; None without any."""
    named = [row for row in rows if row.engine == "durability" and row.cell.name == HEADLINE.name]
    others = [row for row in rows if row.basis == "rate" and row.cell.sync != "none"]
    return next(iter((*named, *others)), None)


def _column(compared: Comparison, row: Row | None, number: int) -> Column:
    proof = compared.proofs[number] if compared.proofs else None
    rate, beside = "\u2013", []
    if row is not None:
        summary = row.summaries[number]
        rate = f"{summary.rate.median:,.0f} commits/s" if summary.rate is not None else rate
        moved, p99 = summary.bytes_per_s, summary.commit.p99
        beside += [megabytes(moved.median)] if moved is not None else []
        beside += [f"p99 {duration(p99)}"] if p99 is not None else []
        ratio = row.against[number - 1].ratio if number else None
        beside += [f"ratio {ratio.value:.3g}"] if ratio is not None else []
    return Column(
        label=compared.labels[number],
        rate=rate,
        beside=", ".join(beside),
        word="open" if proof is None else _CLASSES[proof.word],
        cuts=_UNKNOWN if proof is None else proof.text,
    )


def _cell(row: Row) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    rates = tuple(f"{one.rate.median:,.0f}/s" if one.rate is not None else "\u2013" for one in row.summaries)
    name = row.cell.name if row.engine == "durability" else f"{row.cell.name} ({row.engine})"
    return name, rates, tuple(one.text for one in row.against)
