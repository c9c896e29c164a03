"""Migration of a store of an earlier release: numbered steps, after a copy.

    format 1   a state before release 0.1.0: tokens in files, one server, no campaigns
    format 2   release 0.1.0: clients that join, several servers on one store, campaigns; later drives
    format 3   the release that made the store, so that an older one can name it; kept
               benchmark results; machines that join again after each boot; which runs
               met the same cut; an index of live runs; where the targets of runs are
               that were never armed

All steps and the new format number are one transaction. A server that is killed meanwhile leaves the old
store, and the next server starts again. An SQLite store is copied to a file beside it before the first step
(`store_copy`). PostgreSQL tables are copied to other tables within the transaction (`table_copies`). No
release changes `format` and `server_id` of `meta`: every release reads them to refuse a store by name.

To change the tables, add a step at the end of `STEPS`. A step is SQL that both databases accept. It does not
use `tables`, which later releases change. A new table needs no SQL, because missing tables of `tables` are
created after the last step. So its step is `Migration(4, "its content")`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, insert, inspect, text

import durability
from durability.errors import StoreError
from durability.releases import upgrade_line
from durability_server.store import tables
from durability_server.store.database import Database
from durability_server.store.drives import drive_listing
from durability_server.store.lease_store import living
from durability_server.store.migration import store_copy, table_copies

log = logging.getLogger(__name__)

COPY_PREFIX = "before_format_{}_"  # prefix of copied tables in PostgreSQL


@dataclass(frozen=True, slots=True)
class Migration:
    """Makes a store of format `to` from one of the previous format. `what`: what it adds, for people."""

    to: int
    what: str
    change: Callable[[Connection], None] | None = None  # None if there are only new tables


@dataclass(frozen=True, slots=True)
class FoundStore:
    """A store before any step. `software`: the release that made it, "" if unknown."""

    format: int
    software: str


@dataclass(frozen=True, slots=True)
class Migrated:
    """A migrated store: its formats before and after, and where the copy of the old store is."""

    before: int
    after: int
    copy: str

    def __str__(self) -> str:
        return f"migrated from format {self.before} to {self.after}; {self.copy} is a copy of the old store"


def _run(db: Connection, *statements: str) -> None:
    for statement in statements:
        db.exec_driver_sql(statement)


def _binary(db: Connection) -> str:
    return "BYTEA" if db.dialect.name == "postgresql" else "BLOB"


def _clients_and_servers(db: Connection) -> None:
    """The runs of a store of format 1 become the operator's."""
    _run(
        db,
        "ALTER TABLE runs ADD COLUMN client TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX runs_by_client ON runs (client)",
        "ALTER TABLE runs ADD COLUMN holder TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE runs ADD COLUMN saves BIGINT NOT NULL DEFAULT 0",
        f"ALTER TABLE meta ADD COLUMN key {_binary(db)}",
        f"ALTER TABLE meta ADD COLUMN certificate {_binary(db)}",
    )


def _software_and_drives(db: Connection) -> None:
    """Derives the drives and the series of each run from its facts. The first stores of format 2 had no
    drives."""
    _run(
        db,
        "ALTER TABLE meta ADD COLUMN software TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN drive_set VARCHAR(64) NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN enumerations TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX runs_by_session_end ON runs (session_end)",
    )
    if not inspect(db).has_table("run_drives"):
        _run(
            db,
            "CREATE TABLE run_drives (run VARCHAR(16) NOT NULL REFERENCES runs (run), number INTEGER"
            " NOT NULL, identity VARCHAR(64) NOT NULL, model TEXT NOT NULL, serial TEXT NOT NULL,"
            " PRIMARY KEY (run, number))",
            "CREATE INDEX run_drives_by_identity ON run_drives (identity)",
        )
    drive_listing.derive_from_facts_of_all_runs(db)


STEPS = (
    Migration(2, "clients, several servers", _clients_and_servers),
    Migration(
        3,
        "the release that made the store, drives, cuts, kept results, live machines, signs of life, targets",
        _software_and_drives,
    ),
)
STORE_FORMAT = STEPS[-1].to
_SOFTWARE = f"durability {durability.__version__}"  # stored as the release that made the store
FORMATS = (STEPS[0].to - 1, *(step.to for step in STEPS))  # formats that this release reads


def open_store(database: Database) -> Migrated | None:
    """Creates the store in `database`, or migrates one of an earlier release. Returns the migration. Raises
    StoreError for a store that this release cannot read, and leaves it unchanged."""
    with database.transaction() as db:
        store = found(db)
        if store is not None:
            require_known(database.name, store)
        if store is not None and store.format == STORE_FORMAT:
            _require_whole(db, database.name, store)
        if store is None or store.format == STORE_FORMAT:
            _complete(db, store)
        elif database.is_shared:
            return Migrated(store.format, STORE_FORMAT, _migrate_shared(db, database.name, store))
    if database.file is None:
        return None
    file = database.file.resolve()  # the copy is beside the store itself, not beside a link to it
    if store is not None and store.format < STORE_FORMAT:
        _say_that_it_begins(database.name, store)
        with database.sqlite() as connection:
            store_copy.write(connection, file)
        with database.transaction() as db:  # no other server had the file in between
            _migrate(db, store)
    return _keep_copy(file)


def _say_that_it_begins(name: str, store: FoundStore) -> None:
    """Logs the beginning, because a migration may take minutes, in which the server does not answer."""
    log.warning("%s: the store is copied and migrated from format %d to %d", name, store.format, STORE_FORMAT)


def _complete(db: Connection, store: FoundStore | None) -> None:
    tables.metadata.create_all(db, checkfirst=store is not None)
    if store is None:
        values = {"format": STORE_FORMAT, "server_id": secrets.token_hex(8), "software": _SOFTWARE}
        db.execute(insert(tables.meta).values(values))


def _keep_copy(file: Path) -> Migrated | None:
    """Renames the copy of a durable migration, also if a killed server could not do that."""
    if not store_copy.copying(file).exists():
        return None
    before = store_copy.format_of(store_copy.copying(file))
    if before is None or before >= STORE_FORMAT:
        store_copy.remove(file)
        return None
    name = _copy_name(file, before)
    store_copy.keep(file, name)
    return Migrated(before, STORE_FORMAT, str(name))


def found(db: Connection) -> FoundStore | None:
    """The store before any step, None if there is none."""
    inspector = inspect(db)
    if not inspector.has_table("meta"):
        return None
    names = {column["name"] for column in inspector.get_columns("meta")}
    software = "software" if "software" in names else "''"
    row = db.execute(text(f"SELECT format, {software} FROM meta")).first()
    return None if row is None else FoundStore(int(row[0]), str(row[1]))


def require_known(name: str, store: FoundStore) -> None:
    """Raises StoreError for a store that this release cannot read. Nothing has been changed then."""
    if store.format in FORMATS:
        return
    here = f"durability {durability.__version__} reads {FORMATS[0]} to {STORE_FORMAT}"
    made_by = f", made by {store.software}" if store.software else ""
    problem = f"{name}: the store has format {store.format}{made_by}, and {here}"
    if store.format < FORMATS[0]:
        raise StoreError(f"{problem}: use the release that made it")
    version = store.software.removeprefix("durability ") or "VERSION"
    raise StoreError(
        f"{problem}. Nothing was changed. Upgrade this machine to the release that made it,"
        f" as you installed this one (wheel: {upgrade_line(version)}); or stop the server and put the copy"
        " that the migration made, STORE.format-N, in the store's place"
    )


def _require_whole(db: Connection, name: str, store: FoundStore) -> None:
    """Raises StoreError for a store of this format that lacks a column. Only builds before the release of a
    format make such stores. Nothing has been changed then."""
    present = inspect(db).get_multi_columns()
    for table in tables.metadata.sorted_tables:
        columns = {column["name"] for column in present.get((None, table.name), ())}
        lacking = [column.name for column in table.columns if column.name not in columns]
        if columns and lacking:
            raise StoreError(
                f"{name}: the store has format {store.format}, but lacks {table.name}.{lacking[0]}: a build"
                f" before the release of this format made it ({store.software}). Nothing was changed. Use"
                " that build, or start with another store"
            )


def _migrate(db: Connection, store: FoundStore) -> None:
    """Runs every step that `store` lacks in the transaction of `db`, and stores the new format."""
    for step in STEPS:
        if step.to > store.format and step.change is not None:
            step.change(db)
    tables.metadata.create_all(db)
    db.execute(
        text("UPDATE meta SET format = :format, software = :software"),
        {"format": STORE_FORMAT, "software": _SOFTWARE},
    )


def _migrate_shared(db: Connection, name: str, store: FoundStore) -> str:
    """Migrates a database of several servers while no other server may use it. Copies the old tables, and
    prevents servers of the old release from saving any more. Returns a description of the copies. Raises
    StoreError."""
    inspector = inspect(db)
    present = inspector.get_table_names()
    if "servers" in present and (others := living(db)):
        raise StoreError(
            f"{name}: servers of the release before run on this store ({', '.join(others)}). Stop them, then"
            " start this one: it migrates the store"
        )
    prefix = COPY_PREFIX.format(STORE_FORMAT)
    mine = [table for table in tables.metadata.tables if table in present]
    taken = [table for table in present if table.startswith(prefix)]
    if taken:
        raise StoreError(
            f"{name}: the tables {prefix}… keep what an earlier migration found. Move them to another schema"
            f" or drop them, then start the server again: DROP TABLE {', '.join(sorted(taken))}"
        )
    _say_that_it_begins(name, store)
    _run(db, "SET LOCAL statement_timeout = 0")
    table_copies.write(db, mine, prefix)
    _migrate(db, store)
    _run(db, "UPDATE runs SET epoch = epoch + 1, holder = ''")
    return f"the tables {prefix}… of the same database"


def _copy_name(file: Path, store_format: int) -> Path:
    """The first free name beside `file` for a copy with this format."""
    number, place = 1, file.with_name(f"{file.name}.format-{store_format}")
    while place.exists():
        number += 1
        place = file.with_name(f"{file.name}.format-{store_format}.{number}")
    return place
