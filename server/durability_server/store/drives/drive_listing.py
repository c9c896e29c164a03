"""The drives of stored runs: their cuts, and what their verdicts say.

A run counts for all drives below its target together, because a mirror hides the losses of one drive. A drive
is identified by its own serial and its model. A drive without one is identified by model and serial on its
machine; it has no bound, because several drives may look the same. Verdicts are only counted here, as in a
series. Clients are counted apart, because each client names its drives itself: one drive of two clients is
listed twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    delete,
    func,
    insert,
    or_,
    select,
    true,
    update,
)

from durability.errors import FormatError
from durability.evidence.drive_identity import enumerations
from durability.evidence.strength import strength_of_drive, unverified
from durability.formats.case import PastVerdict, SessionEnd
from durability.formats.documents import from_value
from durability.formats.facts import Facts
from durability.formats.packing import Value, pack, unpack
from durability.formats.plan import Plan
from durability_server.store import tables
from durability_server.store.client_store import client_names
from durability_server.store.run_rows import (
    contains,
    in_turn,
    key_columns,
    standing_verdicts,
    that_fit,
)
from durability_server.store.target_keys import (
    RunDrive,
    identity_of,
    machine_of_path,
    run_drives,
    series_key,
    target_keys,
)

# The end of a run's session as it counts, from its stored end, the address of its holder, and the holder.
Seen: TypeAlias = Callable[[str, str | None, str], SessionEnd]

_DRIVES = tables.run_drives.c
_RUNS = tables.runs.c


def add_drives(db: Connection, run: str, facts: Facts) -> tuple[RunDrive, ...]:
    """Stores the drives of a run in place of those known before, and returns them."""
    drives = run_drives(facts)
    rows = [
        {"run": run, "number": number, "identity": one.identity, "model": one.model, "serial": one.serial}
        for number, one in enumerate(drives)
    ]
    db.execute(delete(tables.run_drives).where(_DRIVES.run == run))
    db.execute(insert(tables.run_drives), rows)
    return drives


def list_drives(db: Connection, run: str, armed: Value) -> None:
    """Stores the drives of a run with the facts `armed` at arming. The run now counts for these drives."""
    facts = from_value(Facts, armed)
    drives = add_drives(db, run, facts)
    of_run = {
        # All disks in a dock may have the same serial, so their models distinguish them.
        "drive_set": identity_of(" ".join(f"{one.identity} {one.model}" for one in drives)),
        "enumerations": " ".join(enumerations(facts)),
    }
    db.execute(update(tables.runs).where(_RUNS.run == run).values(**of_run))


def derive_from_facts_of_all_runs(db: Connection) -> None:
    """Derives drives, target identities and series of all runs in a store of an earlier release, one run's
    facts at a time. A run that was never armed has no facts. If its drives were identified by their machine,
    their key is removed, so its file system or path identifies its target."""
    armed_runs = select(_RUNS.run).where(_RUNS.armed.is_not(None))
    for run in db.execute(armed_runs).scalars().all():
        row = db.execute(select(_RUNS.armed, _RUNS.plan).where(_RUNS.run == run)).one()
        with suppress(FormatError):  # facts of a release that this one cannot read
            armed = unpack(row.armed)
            facts = from_value(Facts, armed)
            list_drives(db, run, armed)
            derived = {
                "series": series_key(Plan.decode(row.plan), facts),
                **key_columns(target_keys(facts)),
            }
            db.execute(update(tables.runs).where(_RUNS.run == run).values(**derived))
    unarmed = select(_RUNS.run, _RUNS.drive_key, _RUNS.path_key).where(_RUNS.armed.is_(None))
    for run, drive_key, path_key in db.execute(unarmed).all():
        if f"{machine_of_path(path_key)}:" in drive_key:
            db.execute(update(tables.runs).where(_RUNS.run == run).values(drive_key=""))


def on_host(host: str) -> ColumnElement[bool]:
    """Whether the name of a run's machine contains `host`; "" matches any."""
    return contains(_RUNS.host, host)


def on_drive(drive: str) -> ColumnElement[bool]:
    """Whether a run is on a drive with `drive` in its model or serial. "" matches any run, also without a
    drive."""
    if not drive:
        return true()
    return (
        select(_DRIVES.run).where(_DRIVES.run == _RUNS.run, _is_named(drive)).correlate(tables.runs).exists()
    )


def _is_named(drive: str) -> ColumnElement[bool]:
    return or_(contains(_DRIVES.model, drive), contains(_DRIVES.serial, drive))


def _end(row: Row[Any], seen: Seen) -> SessionEnd:
    return seen(row.session_end, row.held_at, row.holder)


def standing_of(runs: Sequence[Row[Any]], given: Mapping[str, PastVerdict], seen: Seen) -> list[PastVerdict]:
    """The verdict that counts for each of these runs, or "unverified" after a possible cut."""
    each = [given.get(row.run) or unverified(row.run, _end(row, seen), row.receipt_wall) for row in runs]
    return [one for one in each if one is not None]


def drives(
    db: Connection,
    limits: tuple[int, int],
    drive: str,
    *chosen: ColumnElement[bool],
    held_at: ColumnElement[Any],
    seen: Seen,
) -> tuple[dict[str, Value], ...]:
    """The drives with the newest of the chosen runs, with the results of all chosen runs of one client on
    each. The drives of one target are listed as one. `limits`: maximum for all clients, and for each. If the
    first or the size of an answer excludes some, each client gets its share. `drive`: part of a drive's model
    or serial. `held_at`: where another server holds a run. `seen`: how its session ended."""
    limit, of_one = limits
    chosen = (*chosen, on_drive(drive), _RUNS.drive_set != "")
    newest = func.max(_RUNS.number).label("newest")
    each = select(_RUNS.client, _RUNS.drive_set, newest).where(*chosen)
    of_each = each.group_by(_RUNS.client, _RUNS.drive_set).subquery().c
    place, newest_first = in_turn(of_each.client, of_each.newest)
    placed = select(of_each.client, of_each.drive_set, of_each.newest, place.label("place"))
    ranked = placed.order_by(place, newest_first).limit(limit).subquery().c
    wanted = select(ranked.client, ranked.drive_set, ranked.newest, ranked.place)
    wanted = wanted.where(ranked.place <= of_one)
    found = sorted(db.execute(wanted).all(), key=lambda row: (row.place, -row.newest))
    listed = wanted.subquery()
    is_listed = and_(listed.c.client == _RUNS.client, listed.c.drive_set == _RUNS.drive_set)
    these = tables.runs.join(listed, is_listed)
    rows: Select[Any] = select(*_OF_RUN, held_at).select_from(these)
    runs: defaultdict[tuple[str, str], list[Row[Any]]] = defaultdict(list)
    for row in db.execute(rows.where(*chosen).order_by(_RUNS.number)):
        runs[row.client, row.drive_set].append(row)
    given = standing_verdicts(db, select(_RUNS.run).select_from(these).where(*chosen))
    named = _names(db, select(_RUNS.run).where(_RUNS.number.in_(select(listed.c.newest))))
    names = client_names(db)
    each_drive = (
        (row.newest, named[mine[-1].run] | _drive(mine, given, names, seen))
        for row, mine in ((row, runs[row.client, row.drive_set]) for row in found)
    )
    kept = that_fit(each_drive, lambda one: len(pack(one[1])))
    return tuple(drive for _, drive in sorted(kept, key=lambda one: -one[0]))


_OF_RUN = (
    *(_RUNS.run, _RUNS.client, _RUNS.host, _RUNS.session_end, _RUNS.receipt_wall),
    *(_RUNS.registered_wall, _RUNS.holder, _RUNS.drive_set, _RUNS.series),
)


def _names(db: Connection, runs: Select[Any]) -> dict[str, dict[str, Value]]:
    """The models and serials of the drives of each of these runs."""
    drives: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in db.execute(select(_DRIVES.run, _DRIVES.serial, _DRIVES.model).where(_DRIVES.run.in_(runs))):
        drives[row.run].append((row.serial, row.model))
    named: dict[str, dict[str, Value]] = {}
    for run, mine in drives.items():
        serials, models = zip(*sorted(mine), strict=True)
        named[run] = {"model": _together(models), "serial": _together(serials)}
    return named


def _together(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else " + ".join(name or "?" for name in names)


def said(standing: Sequence[PastVerdict]) -> dict[str, Value]:
    """What the verdicts that count say about a drive, counted as in a series."""
    strength = strength_of_drive(standing)
    return {
        "cut_class": strength.cut_class,
        "cuts": strength.cuts,
        "losses": strength.losses,
        "bound": strength.bound,
        "left_out": strength.left_out,
    }


def _drive(
    runs: list[Row[Any]], given: Mapping[str, PastVerdict], names: Mapping[str, str], seen: Seen
) -> dict[str, Value]:
    """A drive in listings, without its names. `runs`: those of one client on it, oldest first."""
    standing = standing_of(runs, given, seen)
    newest = runs[-1]
    told = said(standing)
    if not all(row.series for row in runs):  # several drives may look the same without their own serial
        told["bound"] = None
    return {
        "host": newest.host,
        "runs": len(runs),
        **told,
        "verdict": standing[-1].verdict if standing else "",
        "run": newest.run,
        "registered": newest.registered_wall,
        "client": newest.client,
        "client_name": names.get(newest.client, ""),
    }
