"""The store: every run's evidence in a database. A server killed at any instant starts again with the same
evidence.

The store keeps one frontier row per writer, updated in place, never a row per record. All calls block and run
in the store's threads. Each call is one transaction: it is durable when it returns, and undone if it raises
StoreError. The store refuses a database of another format version, and a change of a run that another server
has taken since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    update,
)

from durability import limits
from durability.errors import RefusedError, StoreError
from durability.evidence.strength import unverified
from durability.formats.case import Look, PastVerdict, SessionEnd
from durability.formats.documents import to_value
from durability.formats.packing import Value, pack, unpack
from durability.units import format_run, parse_run
from durability_server.store import evidence_rows, live_rows, look_rows, tables
from durability_server.store.campaign_store import CampaignStore, power_offs_of
from durability_server.store.client_store import ClientStore, client_names
from durability_server.store.database import Database, Mode
from durability_server.store.drives import drive_claims, drive_listing, newest_run
from durability_server.store.lease_store import LeaseStore
from durability_server.store.live_rows import RunNow
from durability_server.store.machine_store import MachineStore
from durability_server.store.migration.migrations import STORE_FORMAT, Migrated, open_store
from durability_server.store.records import (
    KeptLook,
    MovedError,
    Registration,
    Relations,
    RunHead,
    RunSnapshot,
    StoredRun,
    Unsaved,
    state_of,
)
from durability_server.store.result_store import NewResult, ResultStore
from durability_server.store.run_rows import (
    PARTS,
    changing_columns,
    data_of,
    elsewhere,
    has_run,
    in_turn,
    key_columns,
    known_row,
    listed,
    newest_on,
    newest_over,
    of_client,
    require_run,
    runs_on,
    runs_with,
    save_parts,
    standing_verdicts,
    stored_runs,
    that_fit,
    unknown_run,
    verdicts_of,
)
from durability_server.store.target_keys import TargetKeys, place_of
from durability_server.store.unverified_runs import unverified_run

VERDICTS_MAX = 256  # verdicts per run
LOSSES_BEYOND_MAX = 16  # losses per run beyond those, so that verdicts without a loss cannot keep out a loss
ATTEMPTS_MAX = 16  # never armed later runs whose plans are returned
RUNS_OF_CLIENT_MAX = 10_000  # runs per client; the operator's own runs are not limited
KEPT_BYTES_MAX = 64 << 20  # disk space for runs under way; with less free, new data are refused
KEPT_SHARE = 20  # the reserve is at most one part in this many of the disk
SHOWN_BYTES_MAX = 8 << 20  # verdict documents in one answer


class _UndoneError(Exception):
    """Undoes a transaction."""


class Store:
    """The store in the database of `url`. Call `open` or `open_to_read` first."""

    def __init__(self, url: str, *, mode: Mode = "alone") -> None:
        self._database = Database(url, mode=mode)
        self.name = self._database.name
        self.server_id = ""
        self.clients = ClientStore(self._database)
        self.machines = MachineStore(self._database)
        self.leases = LeaseStore(self._database)
        self.campaigns = CampaignStore(self._database, self.leases, require_room=self._require_room)
        self.results = ResultStore(self._database)
        columns = tables.runs.c
        self._heads = runs_with(
            *(columns[n] for n in ("run", "client", "host", "secret", "finish", "session_end", "holder")),
            columns.armed.is_not(None).label("is_armed"),
            self._held_at(),
        )
        self._runs = runs_with(tables.runs, self._held_at(), *map(data_of, PARTS))
        self._marked = False  # whether runs that an earlier server left live are stored as `server-down`

    def open(self) -> Migrated | None:
        """Creates the tables, or migrates those of an earlier release. Returns the migration. Raises
        StoreError for a store that this release cannot read."""
        migrated = open_store(self._database)
        with self._database.reading() as db:
            self.server_id = db.execute(select(tables.meta.c.server_id)).scalar_one()
        return migrated

    @property
    def is_readable(self) -> bool:
        """Whether other processes can read the open store at the same time."""
        return self._database.is_readable

    def open_to_read(self) -> None:
        """Checks the tables that a running server has created, for another process beside it. Only methods
        that read may be called then. Raises StoreError."""
        with self._database.reading() as db:
            row = db.execute(select(tables.meta.c.format, tables.meta.c.server_id)).first()
        if row is None or row.format != STORE_FORMAT:
            found = "no format" if row is None else f"format {row.format}"
            raise StoreError(f"{self.name}: {found} is not {STORE_FORMAT}: is a server running on it?")
        self.server_id = row.server_id
        self._marked = True  # the running server has marked them

    def known_identity(self) -> tuple[bytes, bytes]:
        """Key and certificate (PEM) that the server has created. Raises StoreError."""
        with self._database.reading() as db:
            kept = db.execute(select(tables.meta.c.key, tables.meta.c.certificate)).first()
        if kept is None or kept.key is None:
            raise StoreError(f"{self.name}: there is no certificate yet")
        return bytes(kept.key), bytes(kept.certificate)

    def mark_left_live(self) -> str | None:
        """Marks live runs of servers that have ended as `server-down`.

        Returns None, or the reason if the store cannot be written, for example because the disk is full. Then
        the stored runs can still be read, those runs read as `server-down`, and the next successful `save`
        marks them."""
        try:
            self.save(())
        except StoreError as error:
            return str(error)
        return None

    def identity(self, make: Callable[[], tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
        """Key and certificate (PEM) of the server. `make` creates them if the store has none."""
        with self._database.transaction() as db:
            kept = db.execute(select(tables.meta.c.key, tables.meta.c.certificate)).one()
            if kept.key is not None:
                return bytes(kept.key), bytes(kept.certificate)
            key, certificate = make()
            db.execute(update(tables.meta).values(key=key, certificate=certificate))
            return key, certificate

    def close(self) -> None:
        """Releases the database."""
        self._database.close()

    # Runs.

    def register(self, new: Registration, *, force: bool) -> int:
        """Adds a run. Returns its size in bytes. Raises RefusedError "run-exists", "quota",
        "store-unavailable", and "unverified-run" if the target still holds an unverified run."""
        self._require_room()
        with self._database.transaction() as db:
            _require_runs_left(db, new.client)
            if has_run(db, new.run):
                raise RefusedError("run-exists", f"run {format_run(new.run)} was registered before")
            unverified = None if force else unverified_run(db, new)
            if unverified is not None:
                raise RefusedError("unverified-run", f"{new.path} {unverified}")
            number = db.execute(select(func.coalesce(func.max(tables.runs.c.number), 0) + 1)).scalar_one()
            db.execute(
                insert(tables.runs).values(
                    run=format_run(new.run),
                    number=number,
                    client=new.client,
                    label=new.label,
                    plan=new.plan,
                    secret=new.secret,
                    path=new.path,
                    host=new.host,
                    registered_wall=new.wall,
                    finish="",
                    session_end="never",
                    **key_columns(new.keys),
                )
            )
            writers = range(new.writers)
            rows = [{"run": format_run(new.run), "writer": writer, "acked": 0} for writer in writers]
            db.execute(insert(tables.frontiers), rows)
            place = pack(to_value(place_of(new.facts)))
            db.execute(insert(tables.registrations), {"run": format_run(new.run), "data": place})
            drive_listing.add_drives(db, format_run(new.run), new.facts)
        return _bytes_of(new) + len(place)

    def arm(self, stored: StoredRun) -> int:
        """Marks the run as armed, with the facts, identities and series of `stored`. Returns the size of the
        facts in bytes. Raises MovedError if another server has taken the run, and RefusedError
        "store-unavailable" if the disk has too little room left."""
        self._require_room()
        snapshot = stored.snapshot
        taken = update(tables.runs).where(tables.runs.c.run == bindparam("key"), _IS_MINE)
        taken = taken.values(holder=self.leases.me, epoch=snapshot.epoch, saves=snapshot.save)
        with self._database.transaction(alone=False) as db:
            if not db.execute(taken, self._mine(replace(snapshot, last_save=0))).rowcount:
                raise MovedError(snapshot.run)
            return _save_arming(db, stored)

    def save(self, changed: Sequence[RunSnapshot]) -> dict[int, Unsaved]:
        """Makes the state of these runs durable, together. Returns the runs that were not saved, with the
        reason."""
        unsaved: dict[int, Unsaved] = {}
        with self._database.transaction(alone=False) as db:
            if changed:  # first: they are this server's runs, so marking cannot concern them
                unsaved = self._save(db, changed)
            if not self._marked:
                self._mark_left_live(db)
        self._marked = True
        return unsaved

    def try_again(self, run: int) -> None:
        """Saves the stored state of a run again and undoes that. Raises the error that prevents saving."""
        stored = self.load(run).snapshot
        with suppress(_UndoneError), self._database.transaction(alone=False) as db:
            self._save(db, (stored,))
            raise _UndoneError

    def _mark_left_live(self, db: Connection) -> None:
        """Marks live runs of servers that have ended. The first write is unconditional, so that a store that
        cannot be written is noticed at once."""
        db.execute(update(tables.meta).values(server_id=tables.meta.c.server_id))
        columns = tables.runs.c
        left = and_(columns.session_end == "live", ~self.leases.held_at(columns.holder).exists())
        # This is not a save. If the holder is alive after all, `saves` must still show it what the store
        # lacks.
        mark = update(tables.runs).values(session_end="server-down")
        db.execute(mark.where(left, columns.holder != self.leases.me))

    def _save(self, db: Connection, changed: Sequence[RunSnapshot]) -> dict[int, Unsaved]:
        by_key = {format_run(snapshot.run): snapshot for snapshot in changed}
        rows = [self._mine(by_key[key]) | changing_columns(by_key[key]) for key in sorted(by_key)]
        saved = db.execute(_UPDATE_RUN, rows)
        unsaved = {} if saved.rowcount == len(rows) else self._unsaved(db, by_key)
        kept = {key: snapshot for key, snapshot in by_key.items() if snapshot.run not in unsaved}
        save_parts(db, kept)
        for snapshot in kept.values():
            if snapshot.whole is not None and snapshot.whole.armed is not None:
                _save_arming(db, snapshot.whole)
        return unsaved

    def _unsaved(self, db: Connection, by_key: Mapping[str, RunSnapshot]) -> dict[int, Unsaved]:
        """Which of these runs `_UPDATE_RUN` did not change, and why."""
        columns = tables.runs.c
        wanted = select(columns.run, columns.epoch, columns.holder, columns.saves)
        rows = {row.run: row for row in db.execute(wanted.where(columns.run.in_(by_key)))}
        unsaved: dict[int, Unsaved] = {}
        for key, snapshot in by_key.items():
            row = rows.get(key)
            is_mine = row is not None and (row.epoch, row.holder) == (snapshot.epoch, self.leases.me)
            if row is None:
                unsaved[snapshot.run] = "gone"
            elif is_mine and row.saves == snapshot.save:
                pass  # the run is saved
            elif is_mine or (
                snapshot.last_save and (row.epoch, row.saves) == (snapshot.follows, snapshot.saves)
            ):
                unsaved[snapshot.run] = "behind"
            elif (row.epoch, row.holder) == (snapshot.epoch, "") and row.saves >= snapshot.last_save:
                unsaved[snapshot.run] = "moved"  # another server has freed it, and not yet saved it
            elif snapshot.last_save and row.epoch <= snapshot.epoch:
                unsaved[snapshot.run] = "gone"
            else:
                unsaved[snapshot.run] = "moved"
        return unsaved

    def _mine(self, snapshot: RunSnapshot) -> dict[str, Any]:
        """Parameters of `_IS_MINE` and `_UPDATE_RUN`. Once this server has saved a run, a row as it was
        loaded shows that the store has gone back. Only a whole snapshot may change such a row."""
        last_save = 0 if snapshot.whole is not None else snapshot.last_save
        return {
            "key": format_run(snapshot.run),
            "at_holder": self.leases.me,
            "at_epoch": snapshot.epoch,
            "at_follows": -1 if last_save else snapshot.follows,
            "at_saves": snapshot.saves,
            "at_last_save": last_save,
            "saves": snapshot.save,
        }

    def _seen(self, session_end: str, held_at: str | None, holder: str) -> SessionEnd:
        """The end of a session as stored. "live" counts only if a live server holds the run."""
        here = self._marked if not self.leases.is_shared else holder == self.leases.me
        if session_end == "live" and held_at is None and not here:
            return "server-down"
        return cast(SessionEnd, session_end)

    def load(self, run: int) -> StoredRun:
        """A run as it was last saved. Raises RefusedError "run-unknown"."""
        found = self.load_several((run,))
        if run not in found:
            raise unknown_run(run)
        return found[run]

    def load_several(self, runs: Collection[int]) -> dict[int, StoredRun]:
        """These runs as they were last saved, without those that are unknown."""
        found: dict[int, StoredRun] = {}
        with self._database.reading() as db:
            rows = db.execute(self._runs, {"keys": [format_run(run) for run in runs]}).all()
            for row, stored in stored_runs(db, rows):
                end = self._seen(stored.snapshot.session_end, row.held_at, row.holder)
                snapshot = replace(stored.snapshot, session_end=end)
                found[snapshot.run] = replace(stored, snapshot=snapshot, held_at=row.held_at or "")
        return found

    def heads(self, runs: Collection[int]) -> dict[int, RunHead | Exception]:
        """The heads of these runs as they were last saved, RefusedError "run-unknown" for an unknown one."""
        heads: dict[int, RunHead | Exception] = {run: unknown_run(run) for run in runs}
        with self._database.reading() as db:
            for row in db.execute(self._heads, {"keys": [format_run(run) for run in runs]}):
                run = parse_run(row.run)
                heads[run] = RunHead(
                    run=run,
                    client=row.client,
                    host=row.host,
                    secret=bytes(row.secret),
                    state=state_of(row.finish, armed=row.is_armed),
                    session_end=self._seen(row.session_end, row.held_at, row.holder),
                )
        return heads

    def newest_on_target(self, keys: TargetKeys, *, client: str | None) -> int:
        """The newest armed run of `client` on a target; with None, of the only client that has one. Raises
        RefusedError "run-unknown" if there is none, and "run-ambiguous" if several clients have one."""
        with self._database.reading() as db:
            return newest_run.on_target(db, keys, client=client)

    # For verify.

    def relations(self, stored: StoredRun, found: TargetKeys | None = None) -> Relations:
        """What the rest of the store says about a run. `found`: the identities of the target as it is now,
        maybe at another path. Later runs on that target count too, even if they were never armed."""
        runs = tables.runs.c
        me = format_run(stored.snapshot.run)
        own_runs = of_client(stored.client)  # other clients' reports on their targets do not affect this run
        others = (runs.series == stored.series, runs.series != "", runs.run != me, own_runs)
        with self._database.reading() as db:
            after, armed = runs.number > stored.number, runs.armed.is_not(None)
            later = newest_on(db, stored.keys, after, armed, own_runs)
            if later is None and found is not None:
                later = newest_on(db, found, after, armed, own_runs)
            if later is None:
                later = newest_over(db, stored, after, armed, own_runs)
            attempts: list[bytes] = []
            targets = (stored.keys, found) if found is not None else (stored.keys,)
            if later is None:  # a never armed run may have written; on another target no judge can check that
                later = newest_over(db, stored, after, not_(armed), own_runs, elsewhere(targets))
            if later is None:
                begun = runs_on(db, targets, after, own_runs, limit=ATTEMPTS_MAX + 1)
                later = next(iter(begun), None)
                if len(begun) <= ATTEMPTS_MAX:
                    attempts = [known_row(db, parse_run(row.run), runs.plan).plan for row in begun]
            before = runs.number < stored.number
            earlier = [row.run for row in runs_on(db, (stored.keys,), before, own_runs)]
            own = verdicts_of(db, me)
            ends: Select[Any] = select(
                runs.run, runs.session_end, runs.receipt_wall, runs.holder, self._held_at()
            )
            rows = db.execute(ends.where(*others).order_by(runs.number)).all()
            given = standing_verdicts(db, select(runs.run).where(*others))
            offs, looks = power_offs_of(db, me), look_rows.looks_of(db, me)
        standing = (
            given.get(row.run)
            or unverified(row.run, self._seen(row.session_end, row.held_at, row.holder), row.receipt_wall)
            for row in rows
        )
        return Relations(
            superseded_by=later.run if later is not None else "",
            verdicts=tuple(own),
            series=tuple(verdict for verdict in standing if verdict is not None),
            predecessors=tuple(reversed(earlier)),
            power_offs=offs,
            attempts=tuple(attempts),
            looks=looks,
        )

    def looks_to_keep(self, look: Look) -> list[KeptLook]:
        """What a `verify` found, for each run that should keep it. Raises RefusedError for an unknown run."""
        with self._database.reading() as db:
            return look_rows.to_be_kept(db, look)

    def keep_looks(self, looks: Sequence[KeptLook]) -> int:
        """Keeps these looks if there is room. Returns their size in bytes. Raises RefusedError
        "store-unavailable" if the disk has too little room left."""
        self._require_room()
        with self._database.transaction() as db:
            return look_rows.keep(db, looks)

    def add_verdict(self, past: PastVerdict, document: Value) -> int:
        """Adds a verdict to the earlier ones. Returns its size in bytes. Raises RefusedError for an unknown
        run or too many verdicts, and "store-unavailable" if the disk has too little room left."""
        self._require_room()
        packed = pack(document)
        reasons = " ".join(past.reasons)
        with self._database.transaction() as db:
            require_run(db, parse_run(past.run))
            mine = tables.verdicts.c.run == past.run
            count = db.execute(select(func.count(tables.verdicts.c.number)).where(mine)).scalar_one()
            if count >= VERDICTS_MAX + (LOSSES_BEYOND_MAX if past.verdict == "loss" else 0):
                raise RefusedError("bad-request", f"run {past.run} has {count} verdicts, the maximum")
            db.execute(
                insert(tables.verdicts).values(
                    run=past.run,
                    number=count + 1,
                    verdict=past.verdict,
                    cut_class=past.cut_class,
                    at_risk_ms1000=past.at_risk_ms1000,
                    wall=past.wall,
                    reasons=reasons,
                    document=packed,
                )
            )
        return evidence_rows.ROW_BYTES + len(packed) + len(reasons)

    def runs_named(self, name: str) -> int:
        """How many runs the client with this name has."""
        columns = tables.clients.c
        with self._database.reading() as db:
            known = select(columns.id).where(columns.name == name, columns.revoked == "")
            client = db.execute(known).scalar()
            return 0 if client is None else _runs_of(db, client)

    def bytes_of(self, client: str) -> int:
        """Size of all data that the client has stored, in bytes. This may take long."""
        with self._database.reading() as db:
            return evidence_rows.bytes_of(db, client)

    def other_evidence(self, run: int, name: str, data: bytes) -> int | None:
        """How many pieces of evidence the run has under `name`, `name.2` and so on, if all of them have other
        data. None if one has the same data. This may take long."""
        with self._database.reading() as db:
            return evidence_rows.others_named(db, format_run(run), name, data)

    def add_evidence(self, run: int, name: str, data: bytes, *, others: int = 0) -> int:
        """Keeps `data` as `name`, or as `name.2` and so on if that name has other data. Returns the size in
        bytes. `others` is the result of `other_evidence`, which saves time if there are many pieces. Raises
        RefusedError as `add_verdict` does."""
        self._require_room()
        with self._database.transaction() as db:
            require_run(db, run)
            evidence_rows.add_piece(db, format_run(run), name, data, others=others)
        return evidence_rows.ROW_BYTES + len(data)

    def keep_result(self, new: NewResult) -> str:
        """Keeps a benchmark result and returns its name. Raises RefusedError "quota" or
        "store-unavailable"."""
        self._require_room()
        return self.results.add(new)

    def _require_room(self) -> None:
        free_bytes, total_bytes = self._database.room()
        kept_bytes = min(KEPT_BYTES_MAX, total_bytes // KEPT_SHARE)
        if free_bytes < kept_bytes:
            raise RefusedError(
                "store-unavailable",
                f"the server's disk has {free_bytes >> 20} MiB left; the last {kept_bytes >> 20} are kept for"
                " runs that go on: make room there",
            )

    # Queries.

    def drive_listing(
        self,
        limit: int,
        *,
        client: str | None,
        drive: str = "",
        host: str = "",
        of_each: int = limits.LISTING_ROWS_MAX,
    ) -> tuple[dict[str, Value], ...]:
        """The `limit` drives with the newest runs of `client`, None for all clients. One flat map for each
        client and drive, at most `of_each` for one client. If the limit excludes some, each client gets its
        share."""
        chosen = (of_client(client), drive_listing.on_host(host))
        with self._database.listing() as db:
            return drive_listing.drives(
                db,
                (limit, of_each),
                drive,
                *chosen,
                held_at=self._held_at(),
                seen=self._seen,
            )

    def claims(self, drives: Sequence[str], *, client: str | None) -> tuple[dict[str, Value], ...]:
        """What each client's runs say about a target made of exactly the drives with these marks. One map for
        each client; `client` None for all clients."""
        with self._database.listing() as db:
            marks = frozenset(drives)
            return drive_claims.claims(db, marks, of_client(client), held_at=self._held_at(), seen=self._seen)

    def _held_at(self) -> ColumnElement[Any]:
        """The address of another server that holds a run, as a column for queries of `runs`."""
        return self.leases.held_at(tables.runs.c.holder).scalar_subquery().label("held_at")

    def listing(
        self, limit: int, *, client: str | None, drive: str = "", host: str = ""
    ) -> tuple[dict[str, Value], ...]:
        """The newest `limit` runs of `client`, None for all clients. One flat map each, newest first. If the
        limit or the size of an answer excludes some, each client gets its share. `drive` is part of a drive's
        model or serial; `host` is part of the machine's name."""
        columns = tables.runs.c
        newest = select(
            *(columns[name] for name in (*_LISTED, "number")),
            columns.armed.is_not(None).label("is_armed"),  # not the facts, which can be long
            self._held_at(),
        )
        newest = newest.where(of_client(client), drive_listing.on_host(host), drive_listing.on_drive(drive))
        newest = newest.order_by(*in_turn(columns.client, columns.number)).limit(limit)
        wanted = newest.with_only_columns(columns.run)
        frontiers = tables.frontiers.c
        acked = select(frontiers.run, func.sum(frontiers.acked)).group_by(frontiers.run)
        with self._database.listing() as db:
            with closing(db.execute(newest)) as found:
                rows = that_fit(found, lambda row: sum(len(str(text).encode()) for text in row))
            rows.sort(key=lambda row: -row.number)
            totals = db.execute(acked.where(frontiers.run.in_(wanted)))
            acked_of = {run: int(total) for run, total in totals}
            given = standing_verdicts(db, wanted)
            names = client_names(db)
        return tuple(
            listed(
                row,
                self._seen(row.session_end, row.held_at, row.holder),
                acked_of[row.run],
                given.get(row.run),
                client_name=names.get(row.client, ""),
            )
            for row in rows
        )

    def live_runs(self, limit: int) -> tuple[RunNow, ...]:
        """The newest `limit` runs whose clients are connected."""
        return self._now(limit, self._is_live())

    def client_names(self) -> dict[str, str]:
        """The name for people of each client that ever joined, by id."""
        with self._database.reading() as db:
            return client_names(db)

    def live_by_client(self) -> dict[tuple[str, str], int]:
        """How many runs have connected clients, by client and host name."""
        columns = tables.runs.c
        of_each = select(columns.client, columns.host, func.count()).where(self._is_live())
        with self._database.reading() as db:
            rows = db.execute(of_each.group_by(columns.client, columns.host)).all()
        return {(client, host): int(count) for client, host, count in rows}

    def _is_live(self) -> ColumnElement[bool]:
        """Whether a run is live, as a condition for queries that agrees with `_seen`."""
        holder = tables.runs.c.holder
        here = holder == self.leases.me if self.leases.is_shared else literal(self._marked)
        return and_(live_rows.is_live(), or_(here, self.leases.held_at(holder).exists()))

    def runs_now(self, runs: Sequence[int]) -> tuple[RunNow, ...]:
        """The stored ones among these runs, newest first, as they were last saved."""
        return self._now(len(runs), live_rows.named(runs))

    def _now(self, limit: int, chosen: ColumnElement[bool]) -> tuple[RunNow, ...]:
        with self._database.reading() as db:
            rows = live_rows.rows_now(db, limit, chosen, held_at=self._held_at())
        return tuple(
            replace(run, session_end=self._seen(row.session_end, row.held_at, row.holder))
            for row, run in rows
        )

    def documents(self, run: int) -> tuple[tuple[Value, ...], tuple[dict[str, Value], ...]]:
        """The newest verdict documents that fit an answer, oldest first, and names and sizes of the
        evidence."""
        key = format_run(run)
        bodies = select(tables.verdicts.c.document).where(tables.verdicts.c.run == key)
        names = select(tables.evidence.c.name, tables.evidence.c.bytes).where(tables.evidence.c.run == key)
        with self._database.reading() as db:
            kept: list[Value] = []
            room = SHOWN_BYTES_MAX
            for (body,) in db.execute(bodies.order_by(tables.verdicts.c.number.desc())):
                room -= len(body)
                if room < 0:
                    break
                kept.insert(0, unpack(body))
            pieces = db.execute(names.order_by(tables.evidence.c.name)).all()
        return tuple(kept), tuple({"name": piece.name, "bytes": piece.bytes} for piece in pieces)


_LISTED = (
    *("run", "client", "label", "finish", "session_end", "path", "host"),
    *("registered_wall", "receipt_wall", "tainted", "holder"),
)
# A run belongs to this server if it has taken the run, or if no server has changed the run since it was
# loaded here. The number of the last save shows whether the database still has what this server made durable.
_IS_MINE = or_(
    and_(tables.runs.c.epoch == bindparam("at_follows"), tables.runs.c.saves == bindparam("at_saves")),
    and_(
        tables.runs.c.epoch == bindparam("at_epoch"),
        tables.runs.c.holder == bindparam("at_holder"),
        tables.runs.c.saves >= bindparam("at_last_save"),
    ),
)
_UPDATE_RUN = (
    update(tables.runs)
    .where(tables.runs.c.run == bindparam("key"), _IS_MINE)
    .values(holder=bindparam("at_holder"))
)


def _bytes_of(new: Registration) -> int:
    """Size of a run's registration in bytes, without the stored part of its facts."""
    texts = (new.label, new.path, new.host, new.keys.drive, new.keys.file_system, new.keys.path)
    return evidence_rows.ROW_BYTES + len(new.plan) + sum(map(len, texts))


def _save_arming(db: Connection, stored: StoredRun) -> int:
    """Stores what is stored once, when a run is armed. Returns the size of its facts in bytes."""
    facts, key = pack(stored.armed), format_run(stored.snapshot.run)
    armed = {"armed": facts, "series": stored.series, **key_columns(stored.keys)}
    db.execute(update(tables.runs).where(tables.runs.c.run == key).values(armed))
    db.execute(delete(tables.registrations).where(tables.registrations.c.run == key))
    drive_listing.list_drives(db, key, stored.armed)
    return len(facts)


def _runs_of(db: Connection, client: str) -> int:
    return int(db.execute(select(func.count()).where(tables.runs.c.client == client)).scalar_one())


def _require_runs_left(db: Connection, client: str) -> None:
    if not client:
        return
    count = _runs_of(db, client)
    if count >= RUNS_OF_CLIENT_MAX:
        raise RefusedError("quota", f"this client has {count} runs, the maximum of one client")
