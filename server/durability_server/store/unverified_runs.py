"""Which run's evidence would be lost if another run began on a target.

This is asked at registration, in the transaction of the thread that saves. So it reads few rows and little of
each. It does not judge verdicts: any verdict or a stop is enough.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, or_, select

from durability.errors import FormatError
from durability.formats.documents import from_value
from durability.formats.facts import Facts
from durability.formats.packing import unpack
from durability_server.store import tables
from durability_server.store.records import Registration
from durability_server.store.run_rows import newest_on, of_client
from durability_server.store.target_keys import (
    FileSystemPlace,
    by_own_serial,
    file_system_place,
    may_share_drives,
)

# Limits of checking the newest runs on other file systems at one place: number of runs and bytes of their
# facts. Such a run may be on other drives to which an adapter gives the same serial. A run beyond the limits
# counts as on this drive.
_LOOKED_AT_MAX = 64
_FACTS_BYTES_MAX = 1 << 17
_RUNS = tables.runs.c


def unverified_run(db: Connection, new: Registration) -> str | None:
    """Why evidence of the client would be lost if another run began on the target, as a sentence; None if
    not. The newest run armed there counts, unless it was stopped or verified: it has overwritten those before
    it. That run may be on another file system that was at this place. A drive that lost that file system
    looks the same."""
    armed = (_RUNS.armed.is_not(None), of_client(new.client))
    here = newest_on(db, new.keys, *armed)
    place = file_system_place(new.keys) if new.facts.offset_bytes is not None else None
    other = _newest_on_another(db, new, place, *armed) if place is not None else None
    if place is None or other is None or (here is not None and here.number > other.number):
        return _held(db, here)
    # A newer run that was never armed was admitted, by force or before the other file system was made.
    on_this = select(func.max(_RUNS.number)).where(_begins(place.this), of_client(new.client))
    newest_on_this = db.execute(on_this).scalar_one()
    if newest_on_this is not None and newest_on_this > other.number:
        return _held(db, here)  # a client has registered a run on this file system since
    if newest_on_this is not None:
        return (
            f"is on a file system that another one had replaced, that of run {other.run} of"
            f" {other.registered_wall}: if nobody put this one back, the drive has lost that one, so leave it"
            " as it is. Else add --force"
        )
    if _is_settled(db, other.run):
        return None
    return (
        f"is on another file system than {_named(other)}, and both have one place of the drive: if nobody"
        " made this one since, or gave it another UUID, the drive has lost that run, so leave it as it is."
        " Else add --force"
    )


def _held(db: Connection, run: Row[Any] | None) -> str | None:
    if run is None or _is_settled(db, run.run):
        return None
    return f"holds {_named(run)}: verify it first, or add --force to lose its evidence"


def _named(run: Row[Any]) -> str:
    return f"run {run.run} of {run.registered_wall}, which was armed and neither stopped nor verified"


def _newest_on_another(
    db: Connection, new: Registration, place: FileSystemPlace, *where: Any
) -> Row[Any] | None:
    """The newest run that matches `where` on another file system at the same place of the same drives."""
    others = (_begins(place.any), ~_begins(place.this), ~_begins(place.nameless))
    of_each = select(func.max(_RUNS.number)).where(*others, *where).group_by(_RUNS.drive_key)
    newest: Select[Any] = (
        select(_RUNS.run, _RUNS.number, _RUNS.registered_wall, func.length(_RUNS.armed).label("bytes"))
        .where(_RUNS.number.in_(of_each))
        .order_by(_RUNS.number.desc())
        .limit(_LOOKED_AT_MAX + 1)
    )
    drives = by_own_serial(new.facts)
    room = _FACTS_BYTES_MAX
    for looked_at, row in enumerate(db.execute(newest).all()):
        room -= row.bytes
        if room < 0 or looked_at == _LOOKED_AT_MAX:
            return row
        armed = db.execute(select(_RUNS.armed).where(_RUNS.number == row.number)).scalar_one()
        with suppress(FormatError):  # facts of a release that this one cannot read
            if may_share_drives(from_value(Facts, unpack(armed)), drives):
                return row
    return None


def _begins(prefix: str) -> ColumnElement[bool]:
    return func.substr(_RUNS.drive_key, 1, len(prefix)) == prefix


def _is_settled(db: Connection, run: str) -> bool:
    """Whether a run was stopped or verified."""
    verified = select(tables.verdicts.c.run).where(tables.verdicts.c.run == _RUNS.run).exists()
    settled = select(_RUNS.run).where(_RUNS.run == run, or_(_RUNS.session_end == "stop", verified))
    return db.execute(settled).first() is not None
