"""What each client's runs say about one target, found by the marks of its drives.

Benchmark results hide serials as hashes, so the drives of the store are hashed for the comparison. Clients
are counted apart. All runs on the drives are counted: a row limit must not hide a loss, nor a series behind
many runs of another one. Only the named runs are limited.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, select

from durability import limits
from durability.bench.hashed_serials import mark, marks_of
from durability.errors import FormatError
from durability.evidence.drive_identity import serial_of_machine
from durability.evidence.strength import strength_of_drive
from durability.formats.case import PROVABLE_CUT_CLASSES, PastVerdict
from durability.formats.documents import from_value
from durability.formats.facts import Facts
from durability.formats.packing import Value, unpack
from durability_server.store import tables
from durability_server.store.client_store import client_names
from durability_server.store.drives.drive_listing import Seen, said, standing_of
from durability_server.store.run_rows import standing_verdicts
from durability_server.store.target_keys import identity_of, machine_of_path, run_drives

RUNS_NAMED_MAX = 50  # named runs of one client with the same outcome
_Kind: TypeAlias = tuple[str, str]  # series and cut class
_READ_MAX = 20  # drives of one client whose facts are read because their serials do not fit the listing

_DRIVES = tables.run_drives.c
_RUNS = tables.runs.c
_BOTH = tables.run_drives.join(tables.runs, and_(_DRIVES.run == _RUNS.run, _RUNS.armed.is_not(None)))


def claims(
    db: Connection,
    marks: frozenset[str],
    chosen: ColumnElement[bool],
    *,
    held_at: ColumnElement[Any],
    seen: Seen,
) -> tuple[dict[str, Value], ...]:
    """One row for each client with chosen armed runs on a target made of exactly the drives with these marks.
    The client with the newest run is first. `held_at` and `seen` are as in `drive_listing.drives`."""
    mark_of = {identity: one for identity, one in _marks(db, chosen) if one in marks}
    if not mark_of:
        return ()
    touching = select(_DRIVES.run).select_from(_BOTH).where(chosen, _DRIVES.identity.in_(mark_of))
    below: defaultdict[str, set[str]] = defaultdict(set)
    for run, identity in db.execute(select(_DRIVES.run, _DRIVES.identity).where(_DRIVES.run.in_(touching))):
        below[run].add(mark_of.get(identity, ""))
    of_run = (_RUNS.run, _RUNS.client, _RUNS.series, _RUNS.session_end, _RUNS.receipt_wall, _RUNS.holder)
    rows: Select[Any] = select(*of_run, held_at)
    newest_first = rows.where(_RUNS.run.in_(touching)).order_by(_RUNS.number.desc())
    runs: defaultdict[str, list[Row[Any]]] = defaultdict(list)
    for row in db.execute(newest_first):
        if below[row.run] == marks:
            runs[row.client].append(row)
    given = standing_verdicts(db, touching)
    names = client_names(db)
    return tuple(
        {"client": client, "client_name": names.get(client, ""), **_claim(mine, given, seen)}
        for client, mine in runs.items()
    )


def _claim(runs: list[Row[Any]], given: Mapping[str, PastVerdict], seen: Seen) -> dict[str, Value]:
    """What the runs of one client say. `runs` has the newest first."""
    standing = standing_of(runs, given, seen)
    # A run without a series counts as a series of its own.
    series_of = {row.run: row.series or row.run for row in runs}
    lost: dict[_Kind, str] = {}
    kept: dict[_Kind, str] = {}
    left: dict[_Kind, str] = {}
    for one in standing:
        kind, alone = (series_of[one.run], one.cut_class), strength_of_drive((one,))
        if alone.losses:
            lost.setdefault(kind, one.run)
        elif alone.cuts and one.cut_class in PROVABLE_CUT_CLASSES:
            kept.setdefault(kind, one.run)
        elif alone.left_out:
            left.setdefault(kind, one.run)
    # A run without an outcome may have met a power cut. It is left out if its series has durable power cuts.
    told = {*kept, *((series, "none") for series, cut_class in kept if cut_class == "power")}
    return {
        "runs": len(runs),
        **said(standing[::-1]),
        "loss_runs": _named(lost),
        "durable_runs": _named(kept),
        "unanswered_runs": _named({kind: run for kind, run in left.items() if kind not in told}),
    }


def _named(runs: Mapping[_Kind, str]) -> list[Value]:
    """As many runs as may be named: those of the strongest cut class first, then the newest first."""
    rank: dict[str, int] = {cut_class: number for number, cut_class in enumerate(PROVABLE_CUT_CLASSES)}
    found = sorted(runs.items(), key=lambda one: rank.get(one[0][1], len(rank)))
    return [run for _, run in found[:RUNS_NAMED_MAX]]


def _marks(db: Connection, chosen: ColumnElement[bool]) -> Iterator[tuple[str, str]]:
    """The identity and mark of each drive with a serial of its own."""
    keys = (_RUNS.client, _DRIVES.identity, _DRIVES.serial, _DRIVES.model)
    paths, newest = func.min(_RUNS.path_key).label("path_key"), func.max(_RUNS.number).label("newest")
    drives = select(*keys, paths, newest).select_from(_BOTH).where(chosen, _DRIVES.serial != "")
    left: Counter[str] = Counter()
    for row in db.execute(drives.group_by(*keys).order_by(newest.desc())).all():
        machine = machine_of_path(row.path_key)
        if row.identity == identity_of(row.serial):
            yield row.identity, mark(row.serial, "")
        elif row.identity == identity_of(serial_of_machine(machine, row.model, row.serial)):
            yield row.identity, mark(row.serial, machine)
        elif _is_cut(row.serial, row.model) and left[row.client] < _READ_MAX:
            left[row.client] += 1
            yield from _marks_by_facts(db, row.newest, row.identity)


def _is_cut(*names: str) -> bool:
    """Whether one of a drive's names may have been cut for listings."""
    return any(len(name) >= limits.DRIVE_NAME_MAX for name in names)


def _marks_by_facts(db: Connection, number: int, identity: str) -> Iterator[tuple[str, str]]:
    """The mark of a drive whose serial or model was cut for listings, from the facts of a run."""
    armed = db.execute(select(_RUNS.armed).where(_RUNS.number == number)).scalar_one()
    with suppress(FormatError):  # facts of a release that this one cannot read
        facts = from_value(Facts, unpack(armed))
        for drive in facts.drives:
            alone = replace(facts, drives=(drive,))
            if run_drives(alone)[0].identity == identity:
                yield from ((identity, one) for one in marks_of(alone))
