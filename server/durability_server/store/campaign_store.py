"""The campaigns in the store: an append-only log of entries for each.

An entry has the number after the last one. If two servers add an entry at the same time, only one succeeds,
and the other then reads the missed entry. One server at a time conducts a campaign: the one that claimed it,
as long as it is alive. All calls block and run in the store's threads. Entries are not interpreted here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import Connection, Select, func, insert, or_, select, update

from durability import limits
from durability.errors import RefusedError
from durability.formats.case import PowerOff
from durability.formats.documents import from_value, to_value
from durability.formats.packing import Value, pack, unpack
from durability_server.store import tables
from durability_server.store.database import Database
from durability_server.store.lease_store import LeaseStore

ENTRIES_AT_ONCE = 1000
_MAX = limits.CAMPAIGNS_MAX


class CampaignStore:
    """The campaigns in `database`, for the server with these leases. `require_room` raises RefusedError
    "store-unavailable" if the disk has too little room left for new data."""

    def __init__(self, database: Database, leases: LeaseStore, *, require_room: Callable[[], None]) -> None:
        self._database = database
        self._leases = leases
        self._require_room = require_room

    def has_room(self) -> bool:
        """Whether the disk has room for entries that a campaign under way can do without."""
        try:
            self._require_room()
        except RefusedError:
            return False
        return True

    def names(self) -> tuple[str, ...]:
        """The names of all campaigns, in the order in which they began."""
        columns = tables.campaigns.c
        with self._database.reading() as db:
            return tuple(db.execute(select(columns.name).order_by(columns.number)).scalars())

    def last_entries(self) -> dict[str, int]:
        """The number of the last entry of each campaign, in the order in which the campaigns began."""
        columns, entries = tables.campaigns.c, tables.campaign_entries.c
        last = select(func.max(entries.number)).where(entries.campaign == columns.name).scalar_subquery()
        with self._database.reading() as db:
            rows = db.execute(select(columns.name, last).order_by(columns.number)).all()
        return {name: number or 0 for name, number in rows}

    def newest(self) -> int:
        """The number of the campaign that began last, 0 for none."""
        with self._database.reading() as db:
            return _newest(db)

    def begin(self, name: str, entry: Value, *, number: int, home: str, after: int) -> bool:
        """Adds the entry `number`, with which a campaign begins, or begins again after its check. It becomes
        the newest campaign; the machine `home` reaches its switches. Returns whether the entry was added: not
        if another campaign began since `after` was the newest, or another entry was added first. Raises
        RefusedError "too-many" and "store-unavailable"."""
        self._require_room()
        columns = tables.campaigns.c
        with self._database.transaction() as db:
            if _newest(db) != after or _last_entry(db, name) != number - 1:
                return False
            kept = {"number": after + 1, "home": home, "conductor": ""}
            again = db.execute(update(tables.campaigns).where(columns.name == name).values(kept))
            if not again.rowcount:
                if db.execute(select(func.count()).select_from(tables.campaigns)).scalar_one() >= _MAX:
                    raise RefusedError(
                        "too-many",
                        f"the store has {_MAX} campaigns, its maximum, and keeps them for good: type"
                        " `durability serve --store` with another store",
                    )
                db.execute(insert(tables.campaigns).values(name=name, **kept))
            db.execute(insert(tables.campaign_entries).values(campaign=name, number=number, data=pack(entry)))
        return True

    def adopt(self, name: str, *, home: str) -> None:
        """Makes `home` the machine that reaches the campaign's switches. Raises RefusedError "busy" while
        another live server conducts the campaign."""
        columns = tables.campaigns.c
        with self._database.transaction() as db:
            where = db.execute(self._conductor_of(name)).scalar()
            if where is not None:
                raise RefusedError("busy", f"the running server at {where} runs campaign {name}")
            kept = {"home": home, "conductor": ""}
            db.execute(update(tables.campaigns).where(columns.name == name).values(kept))

    def place(self, name: str) -> tuple[str, str]:
        """The machine whose server conducts the campaign, and the address of another server that conducts it
        now, "" for none."""
        columns = tables.campaigns.c
        with self._database.reading() as db:
            home = db.execute(select(columns.home).where(columns.name == name)).scalar_one()
            return home, db.execute(self._conductor_of(name)).scalar() or ""

    def _conductor_of(self, name: str) -> Select[Any]:
        """Selects the address of the other server that conducts a campaign, if it is alive."""
        columns = tables.campaigns.c
        conductor = select(columns.conductor).where(columns.name == name).scalar_subquery()
        return self._leases.held_at(conductor)

    def claim(self, name: str, *, home: str) -> bool:
        """Claims the campaign for this server on the machine `home`. Returns whether it conducts the
        campaign."""
        columns = tables.campaigns.c
        with self._database.transaction() as db:
            free = or_(
                columns.conductor == self._leases.me, ~self._leases.held_at(columns.conductor).exists()
            )
            claimed = db.execute(
                update(tables.campaigns)
                .where(columns.name == name, columns.home == home, free)
                .values(conductor=self._leases.me)
            )
            return bool(claimed.rowcount)

    def entries(self, name: str, *, after: int) -> tuple[Value, ...]:
        """The entries with a higher number than `after`, in order, at most `ENTRIES_AT_ONCE`."""
        columns = tables.campaign_entries.c
        wanted = select(columns.data).where(columns.campaign == name, columns.number > after)
        with self._database.reading() as db:
            rows = db.execute(wanted.order_by(columns.number).limit(ENTRIES_AT_ONCE)).scalars().all()
        return tuple(unpack(row) for row in rows)  # outside the block: an error would keep SQLite's snapshot

    def append(
        self, name: str, number: int, entry: Value, *, attested: Iterable[tuple[str, PowerOff]] = ()
    ) -> bool:
        """Adds an entry, and the power-offs of runs that it attests, if `number` follows the last entry.
        Returns whether it was added. Raises RefusedError "too-many"."""
        if number > limits.CAMPAIGN_ENTRIES_MAX:
            raise RefusedError("too-many", f"campaign {name} has {number - 1} entries, the maximum")
        with self._database.transaction() as db:
            if _last_entry(db, name) != number - 1:
                return False
            db.execute(insert(tables.campaign_entries).values(campaign=name, number=number, data=pack(entry)))
            for run, off in attested:
                _add_power_off(db, run, off)
        return True

    def begun_by(self, run: str) -> tuple[str, str] | None:
        """The client that registered a run, and the run's label. None for an unknown run."""
        columns = tables.runs.c
        with self._database.reading() as db:
            row = db.execute(select(columns.client, columns.label).where(columns.run == run)).first()
        return None if row is None else (row.client, row.label)

    @property
    def is_shared(self) -> bool:
        """Whether several servers may use the campaigns."""
        return self._leases.is_shared

    def sign(self, name: str, machine: str) -> None:
        """Counts one more sign of life of a campaign's machine, for all servers of the store."""
        columns = tables.campaign_signs.c
        mine = (columns.campaign == name, columns.machine == machine)
        more = update(tables.campaign_signs).where(*mine).values(signs=columns.signs + 1)
        with self._database.transaction(alone=False) as db:
            if db.execute(more).rowcount:
                return
        with self._database.transaction() as db:  # the first sign of all servers
            if not db.execute(more).rowcount:
                db.execute(insert(tables.campaign_signs).values(campaign=name, machine=machine, signs=1))

    def signs(self, name: str) -> dict[str, int]:
        """The number of signs of life, by machine."""
        columns = tables.campaign_signs.c
        wanted = select(columns.machine, columns.signs).where(columns.campaign == name)
        with self._database.reading() as db:
            return {row.machine: row.signs for row in db.execute(wanted)}

    def notified_up_to(self, name: str) -> int:
        """The number of the last entry with sent notifications."""
        columns = tables.campaigns.c
        with self._database.reading() as db:
            return int(db.execute(select(columns.told).where(columns.name == name)).scalar_one())

    def set_notified(self, name: str, number: int) -> None:
        """Stores that notifications were sent up to this entry."""
        columns = tables.campaigns.c
        with self._database.transaction() as db:
            db.execute(update(tables.campaigns).where(columns.name == name).values(told=number))


def _newest(db: Connection) -> int:
    return int(db.execute(select(func.coalesce(func.max(tables.campaigns.c.number), 0))).scalar_one())


def _last_entry(db: Connection, name: str) -> int:
    columns = tables.campaign_entries.c
    last = select(func.coalesce(func.max(columns.number), 0)).where(columns.campaign == name)
    return int(db.execute(last).scalar_one())


def _add_power_off(db: Connection, run: str, off: PowerOff) -> None:
    columns = tables.power_offs.c
    last = select(func.coalesce(func.max(columns.number), 0)).where(columns.run == run)
    number = db.execute(last).scalar_one() + 1
    db.execute(insert(tables.power_offs).values(run=run, number=number, data=pack(to_value(off))))


def power_offs_of(db: Connection, run: str) -> tuple[PowerOff, ...]:
    """What power controllers confirmed for a run, oldest first."""
    columns = tables.power_offs.c
    rows = db.execute(select(columns.data).where(columns.run == run).order_by(columns.number)).scalars().all()
    return tuple(from_value(PowerOff, unpack(row)) for row in rows)
