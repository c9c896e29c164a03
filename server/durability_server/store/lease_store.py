"""Which servers are alive on the store, and which of them holds which run.

A server's row is its lease. It ends `LEASE_MS` after its renewal, on the database's clock. A run belongs to
the server that its row names as holder, as long as that server's lease lasts. The lease only says when
another server may take a run without asking. The run's epoch (`store`), which needs no clock, keeps two
servers from granting credit for the same run. If the holder has no session with the database any more,
another server may take a run even earlier, but only for the run's client, which resumes it.

A server that wants a run of another one adds it to `wants`, and repeats that until it has the run or gives
up. The holder reads `wants` whenever it renews its lease. All calls block and run in the store's thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    extract,
    false,
    func,
    insert,
    select,
    type_coerce,
    update,
)

from durability.units import format_run, parse_run
from durability_server.store import tables
from durability_server.store.database import Database

LEASE_MS = 2000  # life of a lease after its renewal
WANT_MS = 1000  # life of a row in `wants` after its renewal
_FORGOTTEN_MS = 600_000  # time after its end until the row of a killed server is removed

# Why a server wants a run: to go on with it, or to end it, which is only possible if the run is not live.
Purpose: TypeAlias = Literal["resume", "end"]


def _ms(time: ColumnElement[Any]) -> ColumnElement[int]:
    return type_coerce(func.floor(extract("epoch", time) * 1000), BigInteger)


_NOW = _ms(func.now())  # when the transaction began
_THIS_MOMENT = _ms(func.clock_timestamp())


def _lasts(expires: ColumnElement[int]) -> ColumnElement[bool]:
    """Whether the time `expires` is in the future. A time later than any lease can end does not count. It was
    set before the database's clock was put back, and a live server sets it anew. The upper limit uses the
    present time, because the transaction may have begun long before it reads a row."""
    return and_(expires > _NOW, expires <= _THIS_MOMENT + LEASE_MS)


def living(db: Connection) -> tuple[str, ...]:
    """The addresses of all live servers on the store."""
    servers = tables.servers.c
    found = db.execute(select(servers.address).where(_lasts(servers.expires)).order_by(servers.id)).scalars()
    return tuple(address or "without an address" for address in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRun:
    """A run that this server holds and another server wants, with its epoch in the store."""

    run: int
    epoch: int
    purpose: Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """What a server learns from renewing its lease."""

    others: tuple[str, ...]  # addresses of the other live servers
    wanted: tuple[WantedRun, ...]  # this server's runs that others want
    revoked: int  # number of clients that were ever revoked


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The answers to a server's wants."""

    free: tuple[int, ...]  # runs that are free now
    kept: tuple[int, ...]  # runs that their holder keeps


class LeaseStore:
    """The leases in `database` for one server, whose id is `me`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.is_shared = database.is_shared
        self.me = database.me

    def held_at(self, holder: ColumnElement[str]) -> Select[Any]:
        """Selects the address of the server `holder`, if that is another server and alive."""
        servers = tables.servers.c
        if not self.is_shared:
            return select(servers.address).where(false())
        return select(servers.address).where(
            servers.id == holder, servers.id != self.me, _lasts(servers.expires)
        )

    def begin(self, address: str, boot_id: str) -> Renewal:
        """Takes the lease. The lease of an earlier server with this address in this boot is removed."""
        servers, wants = tables.servers.c, tables.wants.c
        before_me = and_(servers.address == address, servers.boot_id == boot_id)
        with self._database.transaction() as db:
            db.execute(delete(tables.servers).where(before_me))
            db.execute(delete(tables.servers).where(servers.expires < _NOW - _FORGOTTEN_MS))
            db.execute(delete(tables.wants).where(wants.expires < _NOW - _FORGOTTEN_MS))
        return self.renew(address, boot_id)

    def renew(self, address: str, boot_id: str) -> Renewal:
        """Renews the lease for `LEASE_MS` from now."""
        servers, wants, runs = tables.servers.c, tables.wants.c, tables.runs.c
        mine = {"address": address, "boot_id": boot_id, "expires": _NOW + LEASE_MS}
        with self._database.transaction(alone=False) as db:
            renewed = db.execute(update(tables.servers).where(servers.id == self.me).values(mine))
            if not renewed.rowcount:
                db.execute(insert(tables.servers).values(id=self.me, **mine))
            live = select(servers.address).where(servers.id != self.me, _lasts(servers.expires))
            others = db.execute(live.where(servers.address != "").order_by(servers.id)).scalars().all()
            wanted = db.execute(
                select(runs.run, runs.epoch, wants.purpose)
                .join_from(tables.wants, tables.runs, wants.run == runs.run)
                .where(runs.holder == self.me, wants.server != self.me, _lasts(wants.expires))
            ).all()
            revoked = select(func.count()).where(tables.clients.c.revoked != "")
            return Renewal(
                others=tuple(dict.fromkeys(others)),
                wanted=tuple(
                    WantedRun(run=parse_run(row.run), epoch=row.epoch, purpose=cast(Purpose, row.purpose))
                    for row in wanted
                ),
                revoked=db.execute(revoked).scalar_one(),
            )

    def end(self) -> None:
        """Ends the lease, so that every run of this server is free."""
        with self._database.transaction(alone=False) as db:
            db.execute(delete(tables.servers).where(tables.servers.c.id == self.me))

    def give_free(self, runs: Mapping[int, int]) -> None:
        """Releases these runs, unless this server has taken one again after the given epoch."""
        columns = tables.runs.c
        statement = update(tables.runs).values(holder="")
        mine = and_(columns.run == bindparam("key"), columns.epoch == bindparam("at"))
        with self._database.transaction(alone=False) as db:
            db.execute(
                statement.where(mine, columns.holder == self.me),
                [{"key": format_run(run), "at": runs[run]} for run in sorted(runs)],
            )

    def keep(self, runs: Collection[int]) -> None:
        """Keeps these runs, although another server wants them."""
        with self._database.transaction(alone=False) as db:
            db.execute(delete(tables.wants).where(tables.wants.c.run.in_(map(format_run, runs))))

    def want(self, new: Mapping[int, Purpose], waiting: Mapping[int, Purpose]) -> Answers:
        """Asks for the runs of `new`, and asks again for `waiting`. Runs of both may be free already."""
        runs, wants = tables.runs.c, tables.wants.c
        purposes = {format_run(run): purpose for run, purpose in (*new.items(), *waiting.items())}
        until = _NOW + WANT_MS
        with self._database.transaction(alone=False) as db:
            if resumed := [run for run, purpose in purposes.items() if purpose == "resume"]:
                self._free_without_session(db, resumed)
            held = select(runs.run).where(runs.run.in_(purposes), self.held_at(runs.holder).exists())
            still = set(db.execute(held).scalars())
            asked_again = [format_run(run) for run in waiting if format_run(run) in still]
            mine = and_(wants.run.in_(asked_again), wants.server == self.me)
            asked = update(tables.wants).where(mine).values(expires=until).returning(wants.run)
            kept = set(asked_again) - set(db.execute(asked).scalars())
            first = [format_run(run) for run in new if format_run(run) in still]
            free = purposes.keys() - still
            db.execute(delete(tables.wants).where(wants.run.in_({*first, *free})))
            if first:
                rows = [{"run": key, "server": self.me, "purpose": purposes[key]} for key in sorted(first)]
                db.execute(insert(tables.wants).values(expires=until), rows)
        return Answers(free=tuple(map(parse_run, free)), kept=tuple(map(parse_run, kept)))

    def _free_without_session(self, db: Connection, resumed: Collection[str]) -> None:
        """Frees those of these runs whose holder has no session. The holder may live and be without one for a
        moment, so only a run to be resumed is freed: its client has left the holder. The holder cannot save
        it any more, because the row does not name it."""
        runs = tables.runs.c
        held = select(runs.run, runs.holder).where(runs.run.in_(resumed), self.held_at(runs.holder).exists())
        holders = {row.run: row.holder for row in db.execute(held)}
        writers = self._database.writers(db) if holders else set()
        left = sorted(run for run, holder in holders.items() if holder not in writers)
        if left:
            free = update(tables.runs).where(runs.run == bindparam("key"), runs.holder == bindparam("from"))
            db.execute(free.values(holder=""), [{"key": run, "from": holders[run]} for run in left])
