"""How a store that an earlier release made becomes one of this release: numbered steps, after a copy.

    format 1   a state before release 0.1.0: tokens in files, one server, no campaigns
    format 2   release 0.1.0: clients that join, several servers on one store, campaigns; later its drives
    format 3   the release that made the store, so that an older one can name it; kept
               results of the benchmark; machines that join again after each boot; which
               runs met one cut; which are live, by an index; where those lie that were never
               armed

All steps, and the new number, are one transaction. A server that is killed meanwhile leaves the store as it
was, and the next one starts anew. With SQLite the store is copied to a file beside it before the first step
(`store_copy`), with PostgreSQL to tables of their own within the transaction (`table_copies`). No release
changes `format` and `server_id` of `meta`: any release reads them to refuse a store by name.

To change what the store has, add a step at the end of `STEPS`. A step is SQL that both databases take. It
does not use `tables`, which later releases change. A new table needs no SQL: what is missing of `tables` is
made after the last step. So its step is `Migration(4, "what it keeps")`.
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

COPY_PREFIX = "before_format_{}_"  # of tables in PostgreSQL that keep what was there before


@dataclass(frozen=True, slots=True)
class Migration:
    """Makes a store of format `to` from one of the format before. `what`: what it adds, for people."""

    to: int
    what: str
    change: Callable[[Connection], None] | None = None  # None: only new tables


@dataclass(frozen=True, slots=True)
class FoundStore:
    """A store as it is before any step. `software`: the release that made it, if the store says so."""

    format: int
    software: str


@dataclass(frozen=True, slots=True)
class Migrated:
    """A store that got another format, and where it is kept as it was."""

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
    """The runs of a store of format 1 are the operator's."""
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
    """What is kept of a run's drives, and its series, come from the facts of the run; the first stores of
    format 2 had nothing of the drives."""
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
_SOFTWARE = f"durability {durability.__version__}"  # what a store says of the release that made it
FORMATS = (STEPS[0].to - 1, *(step.to for step in STEPS))  # that this release reads


def open_store(database: Database) -> Migrated | None:
    """Make the store in `database` one of this release: a new one, or one that an earlier release made.
    Returns what was migrated. Raises StoreError for a store that this release cannot read, and leaves it."""
    with database.transaction() as db:
        store = found(db)
        if store is not None:
            require_known(database.name, store)
        if store is None or store.format == STORE_FORMAT:
            _complete(db, store)
        elif database.is_shared:
            return Migrated(store.format, STORE_FORMAT, _migrate_shared(db, database.name, store))
    if database.file is None:
        return None
    file = database.file.resolve()  # a link's copy lies, and needs its room, where the store does
    if store is not None and store.format < STORE_FORMAT:
        _say_that_it_begins(database.name, store)
        with database.sqlite() as connection:
            store_copy.write(connection, file)
        with database.transaction() as db:  # the file is this server's since it was opened
            _migrate(db, store)
    return _keep_copy(file)


def _say_that_it_begins(name: str, store: FoundStore) -> None:
    """It may take minutes, in which the server answers nobody."""
    log.warning("%s: the store is copied and migrated from format %d to %d", name, store.format, STORE_FORMAT)


def _complete(db: Connection, store: FoundStore | None) -> None:
    tables.metadata.create_all(db, checkfirst=store is not None)
    if store is None:
        values = {"format": STORE_FORMAT, "server_id": secrets.token_hex(8), "software": _SOFTWARE}
        db.execute(insert(tables.meta).values(values))


def _keep_copy(file: Path) -> Migrated | None:
    """Give the copy of a migration that is durable its name, also that of a server killed before it could."""
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
    """What the store is; None where there is none."""
    inspector = inspect(db)
    if not inspector.has_table("meta"):
        return None
    names = {column["name"] for column in inspector.get_columns("meta")}
    software = "software" if "software" in names else "''"
    row = db.execute(text(f"SELECT format, {software} FROM meta")).first()
    return None if row is None else FoundStore(int(row[0]), str(row[1]))


def require_known(name: str, store: FoundStore) -> None:
    """Raises StoreError for a store that this release cannot read; nothing of it has been changed."""
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


def _migrate(db: Connection, store: FoundStore) -> None:
    """Take every step that `store` lacks, within the transaction of `db`, and note the new format."""
    for step in STEPS:
        if step.to > store.format and step.change is not None:
            step.change(db)
    tables.metadata.create_all(db)
    db.execute(
        text("UPDATE meta SET format = :format, software = :software"),
        {"format": STORE_FORMAT, "software": _SOFTWARE},
    )


def _migrate_shared(db: Connection, name: str, store: FoundStore) -> str:
    """Migrate the database of several servers, which nobody else may use now. Keep what was there, and let no
    server of the release before save any more. Returns what the copies are called. Raises
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
    """The first free name beside `file` for a copy of it with this format."""
    number, place = 1, file.with_name(f"{file.name}.format-{store_format}")
    while place.exists():
        number += 1
        place = file.with_name(f"{file.name}.format-{store_format}.{number}")
    return place
