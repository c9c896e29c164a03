"""Connections to the store's database, set up so that committed data survive a power cut.

The database is SQLite with a write-ahead log and synchronous=FULL, or PostgreSQL with synchronous_commit=on.
One connection writes. Each thread that reads has its own connection, so that reads do not delay commits.
Several servers may share a PostgreSQL database; an advisory lock protects what only one of them may do at a
time, and another one shows them which of them still have a session. An SQLite file belongs to one process,
unless that process lets others read it. A PostgreSQL server with fsync=off is refused. So are a file system
on which SQLite cannot have its log, and an SQLite file that another server has open. Only one thread may use
`transaction`; any thread may use `reading`.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import select
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from string import ascii_letters
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from durability.errors import RefusedError, StoreError, UsageError
from durability_server.store import database_tls
from durability_server.store.private_store import MADE, make_private

# Who else may open an SQLite file: no process, or processes that only read. A "reader" is such a process.
Mode: TypeAlias = Literal["alone", "with readers", "reader"]

LISTING_S_MAX = 5.0  # longest time of a listing
_LOCK_WAIT_S = 2.0  # longest wait for a server that is ending to release the file
_HELD: set[Path] = set()  # SQLite files that servers of this process have open
_READING = "durability_reading"  # an execution option of a connection
_ADVISORY_LOCK = 0x6475_7261_6269  # any number, the same for all servers: "durabi"
# The names of the shared advisory locks in this database: those of `Database.me`.
_WRITERS = text(
    "SELECT lpad(to_hex(classid::bigint), 8, '0') || lpad(to_hex(objid::bigint), 8, '0') FROM pg_locks"
    " WHERE locktype = 'advisory' AND mode = 'ShareLock' AND objsubid = 1 AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_LOCK_NOT_AVAILABLE = "55P03"  # PostgreSQL's SQLSTATE for an exceeded lock_timeout
_QUERY_CANCELED = "57014"  # PostgreSQL's SQLSTATE for an exceeded statement_timeout
_LOOK_AFTER = 10_000  # SQLite instructions between checks of the time, a millisecond or less
_IN_USE = "another server has it open; stop that one first"
_LOCKED = "another server keeps it locked"
_LOOK_AGAIN_S = 1.0  # interval of checking that SQLite's files are at their places
# If a server stops within a transaction, PostgreSQL ends that transaction before the waits of other servers
# for its locks time out. If the network fails, a call fails after about ten seconds, even if only the answer
# is missing.
_POSTGRESQL_OPTIONS = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "options": "-c synchronous_commit=on -c statement_timeout=30s -c client_encoding=utf8"
    " -c default_transaction_isolation=read\\ committed"
    " -c lock_timeout=10s -c idle_in_transaction_session_timeout=4s",
}

log = logging.getLogger(__name__)


class UnfitError(StoreError):
    """The database works, but rejects the data."""


class Database:
    """A database, `sqlite:///FILE` or `postgresql://USER@HOST/NAME`. The first transaction opens it.

    `me` is this object's name among those that share the database: 16 hex digits, never used before.
    """

    def __init__(self, url: str, *, mode: Mode = "alone") -> None:
        """For PostgreSQL `mode` only makes a reader read-only. For SQLite "with readers" becomes "alone" if
        the disk has no room for the shared files: see `is_readable`. Raises UsageError for any other URL."""
        self._mode = mode
        self.me = secrets.token_hex(8)
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):
            raise UsageError(
                f"{_shown(url)!r} is not a database URL: use sqlite:///FILE or postgresql://…"
            ) from None
        self._url = parsed
        self.name = _name(parsed)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        self.is_shared = not self.is_sqlite  # other servers may use it at the same time
        self._engine = _sqlite_engine(parsed, mode) if self.is_sqlite else _postgresql_engine(parsed)
        self.file = Path(parsed.database or "") if self.is_sqlite else None
        self._hold: ExitStack | None = None  # the hold on the SQLite file
        self._files: dict[Path, tuple[int, int]] = {}  # files that SQLite has open, with device and inode
        self._look_s = 0.0  # time of the next check that they are at their places
        self._connection: Connection | None = None
        self._readers: dict[int, Connection] = {}  # by thread id

    @contextmanager
    def transaction(self, *, alone: bool = True) -> Iterator[Connection]:
        """A transaction that is durable when the block ends, and undone if the block raises. `alone`: no
        other server has such a transaction at the same time, so that what was read stays true until the end.
        Raises StoreError for all database errors, and if SQLite's files are not at their places. The next
        transaction connects again if necessary."""
        if self._mode == "reader":
            raise StoreError(f"{self.name}: it was opened to be read only")
        try:
            connection = self._writing()
            with connection.begin():
                if alone and self.is_shared:
                    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
                yield connection
                self._require_in_place()
        except (SQLAlchemyError, sqlite3.Error) as error:
            kind = UnfitError if isinstance(error, DataError | IntegrityError) else StoreError
            raise kind(f"{self.name}: {_reason(error)}") from error
        finally:
            if self._connection is not None and not self._usable(self._connection):
                _close(self._connection)
                self._connection = None
                if self.file is not None:
                    self._files.pop(_log_of(self.file), None)  # the last connection may remove it

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads. It sees all earlier commits, and none made while it lasts. Raises
        StoreError."""
        thread = threading.get_ident()
        try:
            reader = self._kept(self._readers.pop(thread, None))
            if reader is None:
                reader = self._engine.connect().execution_options(**{_READING: True})
                if self.is_sqlite and self._mode == "reader":
                    reader.exec_driver_sql("PRAGMA query_only = ON")
                    reader.rollback()
                if self.is_shared:  # so that no run is read partly old and partly new
                    reader = reader.execution_options(
                        isolation_level="REPEATABLE READ", postgresql_readonly=self._mode == "reader"
                    )
            self._readers[thread] = reader
            with reader.begin():
                yield reader
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise StoreError(f"{self.name}: {_reason(error)}") from error
        finally:
            reader = self._readers.get(thread)
            if reader is not None and not self._usable(reader):
                _close(self._readers.pop(thread))

    @contextmanager
    def listing(self) -> Iterator[Connection]:
        """Like `reading`, for a query of the whole store, which delays others. Also raises RefusedError
        "busy" if it takes longer than `LISTING_S_MAX`. A process that only reads has no such limit."""
        with self.reading() as db:
            if self._mode == "reader":
                yield db
                return
            try:
                with self._bounded(db):
                    yield db
            except (SQLAlchemyError, sqlite3.Error) as error:
                if not _took_too_long(error):
                    raise
                raise RefusedError(
                    "busy",
                    f"this listing takes the server longer than {LISTING_S_MAX:g} s: choose fewer, with"
                    " --limit, --drive or --host",
                ) from error

    @contextmanager
    def _bounded(self, db: Connection) -> Iterator[None]:
        if self.is_shared:
            db.exec_driver_sql(f"SET LOCAL statement_timeout = {int(LISTING_S_MAX * 1000)}")
            yield
            return
        driver: Any = db.connection.dbapi_connection
        until_s = time.monotonic() + LISTING_S_MAX
        driver.set_progress_handler(lambda: time.monotonic() > until_s, _LOOK_AFTER)
        try:
            yield
        finally:
            driver.set_progress_handler(None, 0)

    @contextmanager
    def sqlite(self) -> Iterator[sqlite3.Connection]:
        """SQLite's own connection to the file, outside a transaction. No other server has the file meanwhile.
        Raises StoreError."""
        try:
            yield cast(sqlite3.Connection, self._writing().connection.dbapi_connection)
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise StoreError(f"{self.name}: {_reason(error)}") from error

    def writers(self, db: Connection) -> set[str]:
        """Names of those that have a session with PostgreSQL for writing. PostgreSQL soon notices the end of
        a process, but not that a machine has lost its power or its network."""
        return set(db.execute(_WRITERS).scalars())

    @property
    def is_readable(self) -> bool:
        """Whether other processes can read the open database at the same time. For an SQLite file only in the
        mode "with readers", and with room on its disk."""
        return self.is_shared or self._mode != "alone"

    def room(self) -> tuple[int, int]:
        """Free and total bytes of the file system with the SQLite file. 0 and 0 for PostgreSQL, where they
        are unknown. Raises StoreError if the directory is gone."""
        if self.file is None:
            return 0, 0
        try:
            room = os.statvfs(self.file.parent)
        except OSError as error:
            raise _not_in_place(self.file, f"{self.file.parent}: {error.strerror}") from error
        return room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize

    def close(self) -> None:
        """Releases the database for another server. No thread may read it any more."""
        for connection in (self._connection, *self._readers.values()):
            _close(connection)
        self._connection = None
        self._readers.clear()
        self._engine.dispose()
        if self._hold is not None:
            self._hold.close()
            self._hold = None
        self._files.clear()
        self._look_s = 0.0

    def _require_in_place(self) -> None:
        """Raises StoreError if the files that SQLite writes are not the files at their places. SQLite would
        continue with removed files without an error. An open file keeps its inode number, so another number
        is another file. Checks seldom, because file systems may answer slowly."""
        now_s = time.monotonic()
        if self.file is None or now_s < self._look_s:
            return
        self._require_same(self.file, _not_in_place)
        self._require_same(_log_of(self.file), _log_not_in_place)  # exists since the transaction began
        self._look_s = now_s + _LOOK_AGAIN_S

    def _require_same(self, file: Path, problem: Callable[[Path, str], StoreError]) -> None:
        try:
            status = file.stat()
        except OSError as error:
            raise problem(file, f"{file}: {error.strerror}") from error
        found = status.st_dev, status.st_ino
        if self._files.setdefault(file, found) != found:
            raise problem(file, f"{file}: another file lies there now")

    def _writing(self) -> Connection:
        self._connection = self._kept(self._connection)
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _kept(self, connection: Connection | None) -> Connection | None:
        """The connection, None if PostgreSQL has closed it since its last use, as in a restart."""
        if connection is None or self.is_sqlite:
            return connection
        driver: Any = connection.connection.dbapi_connection
        said = select.poll()
        said.register(driver.fileno(), select.POLLIN)
        if not said.poll(0):
            return connection
        connection.invalidate()
        _close(connection)
        return None

    def _usable(self, connection: Connection) -> bool:
        return not (connection.closed or connection.invalidated or connection.in_transaction())

    def _connect(self) -> Connection:
        if self.file is not None and self._hold is None:
            hold = ExitStack()
            hold.enter_context(_held(self.file))
            if self._mode == "with readers":
                hold.enter_context(_locked(self.file))
            self._hold = hold
        try:
            return self._prepared()
        except (SQLAlchemyError, sqlite3.Error) as error:
            if self._mode != "with readers" or not _lacks_room(error):
                raise
        self._mode = "alone"  # needs no file beside the store
        self._engine = _sqlite_engine_of(self._url, self._mode)
        return self._prepared()

    def _prepared(self) -> Connection:
        if self.file in self._files:  # before connecting, because SQLite creates a missing file
            self._require_same(self.file, _not_in_place)
        connection = self._engine.connect()
        try:
            if self.file is not None:
                self._require_same(self.file, _not_in_place)
            if self.is_sqlite:
                _prepare_sqlite(connection, self.name)
            else:
                _prepare_postgresql(connection, self.name)
                # Shared, because PostgreSQL may still have the session of an earlier connection.
                lock = int.from_bytes(bytes.fromhex(self.me), signed=True)
                connection.exec_driver_sql(f"SELECT pg_advisory_lock_shared({lock})")
        except BaseException:
            connection.close()
            raise
        connection.rollback()
        return connection


def _log_of(file: Path) -> Path:
    """SQLite's write-ahead log. It is beside the file itself, not beside a link to it."""
    return _beside(file, "-wal")


def _beside(file: Path, suffix: str) -> Path:
    file = file.resolve()
    return file.with_name(f"{file.name}{suffix}")


def _not_in_place(file: Path, what: str) -> StoreError:
    # SQLite would apply the log of the moved store to a backup at its place, and damage the backup.
    log = _log_of(file)
    return StoreError(
        f"{what}: the server has the store open that was there, and saves nothing more, since a restart would"
        " not find it. If it was moved, move it back while the server runs. If not, stop the server, move"
        f" {log} elsewhere if it is still there, and put a backup in its place"
    )


def _log_not_in_place(_: Path, what: str) -> StoreError:
    return StoreError(
        f"{what}: the server saves nothing more, since a crash would lose what only the log had that was"
        " there. If it was moved, move it back while the server runs. If not, stop the server, which then"
        " writes that log into the store, and start it again; put no backup there"
    )


def _close(connection: Connection | None) -> None:
    if connection is not None:
        with suppress(SQLAlchemyError):
            connection.close()


def _reason(error: Exception) -> str:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    if getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
        return _IN_USE
    if getattr(cause, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
        return _LOCKED
    why = str(cause).strip()
    return (why.partition("\n")[0] or type(cause).__name__) + database_tls.advice(why)


def _took_too_long(error: Exception) -> bool:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    interrupted = getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT
    return interrupted or getattr(cause, "sqlstate", None) == _QUERY_CANCELED


def _shown(url: str) -> str:
    """The part of an unparsable URL that cannot have a password."""
    return url if not set(url) & {"@", "?"} else f"{url[: len(url) - len(url.lstrip(ascii_letters))]}…"


def _name(url: URL) -> str:
    """The URL for people, without any password in it."""
    hidden = {key: "hidden" for key in url.query if "pass" in key.lower()}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


def _lacks_room(error: Exception) -> bool:
    """Whether SQLite failed to create or write a file. It reports a full disk with several codes."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    number = getattr(cause, "sqlite_errorcode", 0) & 0xFF  # the higher bits describe the operation
    return number in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}


def _sqlite_engine(url: URL, mode: Mode) -> Engine:
    no_file = not url.database or url.database == ":memory:" or url.database.startswith("file:")
    if no_file or url.host or url.username or url.password:
        raise UsageError(f"{_name(url)}: the store must be a file: sqlite:///FILE")
    file = Path(url.database or "")
    if mode == "reader":
        return _sqlite_engine_of(url, mode)
    if not file.exists() and (log := _log_of(file)).exists():  # SQLite would remove the log
        raise StoreError(
            f"{file} does not exist, but its log {log} does: move the store back beside its log; for a new"
            " store, move the log elsewhere"
        )
    try:
        os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, MADE))
        make_private(file, beside=(_log_of(file), _beside(file, "-shm")))
    except OSError as error:
        raise StoreError(f"cannot open the store {file}: {error.strerror}") from error
    return _sqlite_engine_of(url, mode)


# "unix-excl" keeps other processes out, and needs no shared memory file beside the store, for which a full
# disk may have no room.
_OPENED: dict[Mode, str] = {
    "alone": "vfs=unix-excl",
    "with readers": "vfs=unix",
    "reader": "vfs=unix&mode=ro",
}


@cache
def _sqlite_engine_of(url: URL, mode: Mode) -> Engine:
    """One engine for each file and mode, because an engine keeps its compiled statements."""
    file = f"file:{quote(str(Path(url.database or '').absolute()))}?{_OPENED[mode]}"
    connect = partial(sqlite3.connect, file, uri=True, timeout=_LOCK_WAIT_S, check_same_thread=False)
    engine = create_engine(url, poolclass=NullPool, creator=connect)
    event.listen(engine, "connect", _sqlite_connected)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def _sqlite_connected(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # the driver must not begin transactions itself
    connection.create_function("lower", 1, str.lower, deterministic=True)  # SQLite's own only handles ASCII


def _begin_immediate(connection: Connection) -> None:
    reading = connection.get_execution_options().get(_READING, False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


@contextmanager
def _held(file: Path) -> Iterator[None]:
    """Keeps other servers of this process from opening `file`. SQLite keeps out those of other processes.
    Raises StoreError."""
    name = file.resolve()
    if name in _HELD:
        raise StoreError(f"{file}: {_IN_USE}")
    _HELD.add(name)
    try:
        yield
    finally:
        _HELD.discard(name)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Keeps out other servers that let processes read `file`. SQLite keeps out servers in the mode "alone".
    The descriptor stays open as long as SQLite's own, because closing it releases all of SQLite's locks.
    Raises StoreError."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"{file}: {_IN_USE}") from None
        yield
    finally:
        os.close(descriptor)


def _prepare_sqlite(connection: Connection, name: str) -> None:
    driver: Any = connection.connection.dbapi_connection
    mode = driver.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(
            f"{name}: SQLite cannot keep a write-ahead log on this file system; use a local file system"
        )
    driver.execute("PRAGMA synchronous = FULL")
    driver.execute("PRAGMA fullfsync = ON")  # macOS: F_FULLFSYNC; ignored elsewhere
    driver.execute("PRAGMA foreign_keys = ON")


def _postgresql_engine(url: URL) -> Engine:
    if url.get_backend_name() != "postgresql":
        raise UsageError(f"{_name(url)}: only sqlite:///FILE and postgresql://… can hold the store")
    driven = url.set(drivername="postgresql+psycopg")
    try:
        asked = driven.get_dialect()().create_connect_args(driven)[1]
        options = _POSTGRESQL_OPTIONS | database_tls.options(asked)
        return create_engine(driven, poolclass=NullPool, connect_args=options)
    except ImportError as error:
        raise StoreError(
            f"{_name(url)}: the PostgreSQL driver is missing: install psycopg[binary] into this environment"
        ) from error


def _prepare_postgresql(connection: Connection, name: str) -> None:
    for setting in ("fsync", "synchronous_commit"):
        value = connection.exec_driver_sql(f"SHOW {setting}").scalar()
        if value != "on":
            raise StoreError(
                f"{name}: PostgreSQL runs with {setting}={value}: committed data may be lost; set it to on"
            )
