"""Stores of earlier releases: migrated once, kept as they were, and whole after a kill at any moment."""

from __future__ import annotations

import hashlib
import lzma
import random
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, create_engine, inspect, text
from sqlalchemy.exc import DatabaseError

import durability
from durability.errors import StoreError
from durability.evidence.drive_identity import enumerations
from durability.formats.documents import from_value
from durability.formats.facts import Facts
from durability.formats.plan import Plan
from durability.units import format_run
from durability_server.store.lease_store import living
from durability_server.store.migration import migrations
from durability_server.store.migration.migrations import STORE_FORMAT
from durability_server.store.store import Store
from durability_server.store.target_keys import series_key, target_keys
from tests.places import DOCS, TESTS
from tests.sample_facts import drive
from tests.server.store.conftest import make_format_2

if TYPE_CHECKING:
    from tests.server.conftest import MountSmall, SmallDisk
    from tests.server.store.conftest import StoreFixture

ARTEFACTS = TESTS / "artefacts"
OF_FORMAT_1 = ARTEFACTS / "store-format-1.sqlite.xz"
KEPT = [OF_FORMAT_1, *sorted(ARTEFACTS.glob("*/store.sqlite.xz"))]


@pytest.fixture(params=KEPT, ids=lambda kept: str(kept.relative_to(ARTEFACTS)))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store that an earlier release left."""
    return unpacked(request.param, tmp_path)


def unpacked(kept: Path, directory: Path) -> Path:
    file = directory / "store.sqlite"
    file.write_bytes(lzma.decompress(kept.read_bytes()))
    return file


def opened(file: Path) -> migrations.Migrated | None:
    """What opening the store migrates; it is closed again."""
    store = Store(f"sqlite:///{file}")
    try:
        return store.open()
    finally:
        store.close()


def rows(file: Path) -> dict[str, list[dict[str, Any]]]:
    """All that a store has, by table."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: [dict(row) for row in database.execute(f"SELECT * FROM {name}")] for name in names}


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def lost(before: dict[str, list[dict[str, Any]]], after: dict[str, list[dict[str, Any]]]) -> list[str]:
    """What a store had that it has no more, but for its format and what is derived of the facts anew."""
    changes = {"meta": {"format"}, "runs": {"series", "drive_key"}, "run_drives": {"identity"}}
    found = []
    for table, all_rows in before.items():
        for row in all_rows:
            kept = {item for item in row.items() if item[0] not in changes.get(table, ())}
            if not any(kept <= now.items() for now in after.get(table, ())):
                found.append(f"{table}: {row}")
    return found


def schema(url: str) -> dict[str, Any]:
    """Tables with their columns, keys and indexes."""
    engine = create_engine(url)
    inspector = inspect(engine)
    found = {
        table: (
            {
                column["name"]: (str(column["type"]), column["nullable"])
                for column in inspector.get_columns(table)
            },
            inspector.get_pk_constraint(table)["constrained_columns"],
            sorted(str(key["constrained_columns"]) for key in inspector.get_foreign_keys(table)),
            {str(index["name"]): index["column_names"] for index in inspector.get_indexes(table)},
        )
        for table in inspector.get_table_names()
    }
    engine.dispose()
    return found


def test_an_old_store_has_all_that_it_had(old: Path) -> None:
    """Each row of each table is there after the migration, which happens once."""
    before = rows(old)
    migrated = opened(old)
    assert migrated is not None
    assert before["runs"] and before["verdicts"]
    assert lost(before, rows(old)) == []
    after = digest(old)
    assert opened(old) is None
    assert digest(old) == after


def test_the_copy_is_the_old_store(old: Path) -> None:
    """The store is kept beside the new one, with its format in its name, for its user's eyes only."""
    before = rows(old)
    migrated = opened(old)
    assert migrated is not None
    copy = Path(migrated.copy)
    left = {file.name for file in old.parent.iterdir() if not file.name.endswith(("-shm", "-wal"))}
    assert left == {"store.sqlite", copy.name}
    assert copy.name == f"store.sqlite.format-{before['meta'][0]['format']}"
    assert rows(copy) == before
    assert copy.stat().st_mode & 0o777 == 0o600


def test_the_copy_of_a_store_behind_a_link_is_beside_the_store(
    old: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """There is its room: the link may be on a small system disk. The log tells of it before it takes long."""
    link = tmp_path / "etc" / "store.sqlite"
    link.parent.mkdir()
    link.symlink_to(old)
    migrated = opened(link)
    assert migrated is not None and Path(migrated.copy).parent == old.parent
    assert [path.name for path in link.parent.iterdir()] == [link.name]
    (told,) = (record.getMessage() for record in caplog.records if record.name.endswith("migrations"))
    assert f"is copied and migrated from format {migrated.before} to {STORE_FORMAT}" in told


def test_a_copy_that_was_restored_is_migrated_beside_the_first(old: Path) -> None:
    """No copy is ever replaced by a second migration."""
    first = opened(old)
    assert first is not None
    old.unlink()
    old.write_bytes(Path(first.copy).read_bytes())
    second = opened(old)
    assert second is not None
    assert second.copy == f"{first.copy}.2" and rows(Path(second.copy)) == rows(Path(first.copy))


def test_a_migrated_store_has_the_tables_of_a_new_one(old: Path, tmp_path: Path) -> None:
    """Columns, keys and indexes are the same whether a release made the store or migrated it."""
    opened(old)
    opened(tmp_path / "new.sqlite")
    assert schema(f"sqlite:///{old}") == schema(f"sqlite:///{tmp_path / 'new.sqlite'}")


def test_runs_of_an_old_store_have_their_cuts_and_series(old: Path) -> None:
    """And their series, both by their facts, so one that began before the upgrade goes on."""
    opened(old)
    store = Store(f"sqlite:///{old}")
    store.open()
    runs = [store.load(int(row["run"], 16)) for row in rows(old)["runs"]]
    given = {past.run: past.enumerations for run in runs for past in store.relations(run).verdicts}
    store.close()
    assert given
    for run in runs:
        if format_run(run.snapshot.run) in given:
            armed = enumerations(from_value(Facts, run.armed))
            assert given[format_run(run.snapshot.run)] == armed
            assert run.series == series_key(Plan.decode(run.plan), from_value(Facts, run.armed))


def test_targets_of_an_old_store_have_the_identities_of_this_release(old: Path) -> None:
    """By the facts of the runs, so later runs supersede those of before."""
    opened(old)
    store = Store(f"sqlite:///{old}")
    store.open()
    runs = [store.load(int(row["run"], 16)) for row in rows(old)["runs"]]
    store.close()
    for run in runs:
        assert run.keys == target_keys(from_value(Facts, run.armed))
    assert {run.keys.drive for run in runs if run.keys.drive}


def test_a_run_of_before_that_was_never_armed_is_known_by_what_releases_share(
    store_fixture: StoreFixture,
) -> None:
    """There are no facts of it. A serial with the machine was written in another way; the file system is
    left, or the path."""
    guests = store_fixture.lab.facts(drives=(drive(serial="disk-1", emulated=True),))
    for run, facts in ((1, store_fixture.lab.facts()), (2, guests)):
        store_fixture.register(run, facts=facts, force=True)
    before = store_fixture.store.load(1).keys
    with store_fixture.store._database.transaction() as db:
        make_format_2(db)
        of_before = {"key": f"drives={guests.host.machine_id}:disk-1 offset=1048576 fs=uuid-1 file=target"}
        db.execute(text("UPDATE runs SET drive_key = :key WHERE number = 2"), of_before)
    store_fixture.store.close()
    store_fixture.store.open()
    assert store_fixture.store.load(1).keys == before
    assert store_fixture.store.load(2).keys == replace(target_keys(guests), drive="")
    store_fixture.register(3, facts=guests, force=True)
    store_fixture.arm(3, facts=guests)
    assert store_fixture.store.relations(store_fixture.store.load(3)).predecessors[-1:] == (f"{2:016x}",)


def test_a_run_that_was_registered_before_the_upgrade_supersedes_once_it_is_armed(
    store_fixture: StoreFixture,
) -> None:
    """Earlier releases stored no facts at registration. So a run registered before the upgrade is known to
    overlap another one only when it is armed."""
    file = store_fixture.lab.facts()
    whole = replace(
        file, kind="device", file_system=None, path="/dev/sda", offset_bytes=0, size_bytes=1 << 40
    )
    store = store_fixture.store
    store_fixture.register(1, facts=file)
    store_fixture.arm(1, facts=file)
    store_fixture.register(2, facts=whole)
    with store._database.transaction() as db:
        make_format_2(db)
    store.close()
    store.open()
    assert store.relations(store.load(1)).superseded_by == ""
    store_fixture.register(3, facts=whole)
    assert store.relations(store.load(1)).superseded_by == f"{3:016x}"
    store_fixture.arm(2, facts=whole)
    assert store.relations(store.load(1)).superseded_by == f"{2:016x}"


def test_the_steps_are_numbered_without_a_gap() -> None:
    """Each step leads to the format after that of the step before."""
    assert [step.to for step in migrations.STEPS] == list(range(2, STORE_FORMAT + 1))


def test_every_released_format_is_kept() -> None:
    """There is an artefact of each format that this release migrates (`make freeze` writes them)."""
    kept = {store_format(file) for file in KEPT}
    assert set(migrations.FORMATS) - {STORE_FORMAT} <= kept


def store_format(kept: Path) -> int:
    with closing(sqlite3.connect(":memory:")) as database:
        # In memory there is no log: versions 1 of the header instead of 2 say so.
        content = bytearray(lzma.decompress(kept.read_bytes()))
        content[18:20] = b"\x01\x01"
        database.deserialize(bytes(content))
        return int(database.execute("SELECT format FROM meta").fetchone()[0])


def test_a_newer_store_is_refused_and_untouched(tmp_path: Path) -> None:
    """The refusal names both releases, both formats and the line to type; not a byte of the store changes."""
    file = tmp_path / "store.sqlite"
    opened(file)
    with closing(sqlite3.connect(file)) as database:
        database.execute("UPDATE meta SET format = 99, software = 'durability 9.1'")
        database.commit()
    before = digest(file)
    with pytest.raises(StoreError) as refused:
        opened(file)
    for part in ("format 99, made by durability 9.1", f"durability {durability.__version__} reads 1 to"):
        assert part in str(refused.value)
    assert "pipx install --force ./durability-9.1-py3-none-any.whl" in str(refused.value)
    assert digest(file) == before
    assert [one.name for one in tmp_path.iterdir()] == ["store.sqlite"]


@pytest.mark.parametrize("lost", ["runs.drive_set", "looks.receipt_ns"])
def test_a_store_of_an_unreleased_build_is_refused(store_url: str, lost: str) -> None:
    """A store of this format that lacks a column is refused, by the name of the column, and stays usable."""
    table, column = lost.split(".")
    store = Store(store_url)
    store.open()
    store.close()
    engine = create_engine(store_url)
    with engine.begin() as db:
        db.execute(text(f"ALTER TABLE {table} RENAME COLUMN {column} TO kept"))
    with pytest.raises(StoreError, match=rf"lacks {table}\.{column}: a build before the release"):
        store.open()
    store.close()
    with engine.begin() as db:
        db.execute(text(f"ALTER TABLE {table} RENAME COLUMN kept TO {column}"))
    engine.dispose()
    store.open()
    store.close()


def test_a_disk_without_room_for_the_copy_leaves_the_store(small_disk: SmallDisk) -> None:
    """The refusal says how much is needed and how much there is."""
    file = unpacked(OF_FORMAT_1, small_disk.directory)
    before = digest(file)
    with pytest.raises(
        StoreError, match=r"keep a copy takes \d+ MiB, and its file system has \d+ free. Nothing was"
    ):
        opened(file)
    assert digest(file) == before


def test_what_a_killed_server_left_takes_no_room(mount_small: MountSmall) -> None:
    """The disk has room for one copy; the start of one that is there already is given free first."""
    file = unpacked(OF_FORMAT_1, mount_small("tmpfs", size_mib=24).directory)
    file.with_name("store.sqlite.copying").write_bytes(bytes(12 << 20))
    migrated = opened(file)
    assert migrated is not None and Path(migrated.copy).stat().st_size < 12 << 20
    assert not file.with_name("store.sqlite.copying").exists()


# Forks a process for each moment: the one that is told to die at moment N dies there, until one is not told
# any more. A moment is an event of the interpreter (a file opened, renamed, removed; a connection) or a
# statement.
_KILLED = """
import os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from durability_server.store.store import Store

moment = 0
def pass_one(*_):
    global moment
    moment += 1
    if moment == wanted:
        os.kill(os.getpid(), signal.SIGKILL)

def hook(name, _args):
    if name == "open" or name.startswith(("os.", "sqlite3.")):
        pass_one()

wanted = 0
Store("sqlite:///" + sys.argv[1] + ".warm").open()
sys.addaudithook(hook)
event.listen(Engine, "before_cursor_execute", pass_one)
event.listen(Engine, "commit", pass_one)
number = int(sys.argv[2])
while True:
    child = os.fork()
    if child == 0:
        moment, wanted = 0, number
        store = Store("sqlite:///" + sys.argv[1])
        store.open()
        store.close()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
    line = sys.stdin.readline()
    if not line:
        break
    number = int(line)
"""


@pytest.mark.slow
def test_a_migration_that_is_killed_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    """After a kill at a file operation or a statement (every eighth, from a random one) the next server has
    the whole store, of the new format, and exactly one copy of the old one."""
    kept, first = OF_FORMAT_1, random.SystemRandom().randint(1, 8)
    print(f"first moment {first}")
    content = lzma.decompress(kept.read_bytes())
    file = tmp_path / "stores" / "store.sqlite"
    file.parent.mkdir()
    before = rows(unpacked(kept, tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(file), str(first)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        moment, killed = first, 0
        file.write_bytes(content)
        while (code := int(process.stdout.readline())) == -signal.SIGKILL:
            killed += 1
            migrated = opened(file)
            after = rows(file)
            assert after["meta"][0]["format"] == STORE_FORMAT, moment
            assert lost(before, after) == [], moment
            copies = sorted(one.name for one in file.parent.iterdir() if "format-" in one.name)
            assert copies == ["store.sqlite.format-1"], (moment, migrated)
            assert rows(file.with_name(copies[0])) == before, moment
            for left in file.parent.iterdir():
                left.unlink()
            file.write_bytes(content)
            moment += 8
            print(moment, file=process.stdin, flush=True)
        assert code == 0
        process.stdin.close()
    assert killed > 20


def of_format_2(store_fixture: StoreFixture) -> None:
    """Make a store in PostgreSQL one of the release before, with a run that a server held which is gone."""
    store_fixture.register(1)
    with store_fixture.store._database.transaction() as db:
        make_format_2(db)
        db.execute(text("UPDATE runs SET epoch = 7, holder = 'gone'"))
    store_fixture.store.close()


@pytest.mark.lab
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_postgresql_keeps_the_old_tables(store_fixture: StoreFixture, store_url: str) -> None:
    """A migration keeps the old data in separate tables, and servers of the earlier release can no longer
    save."""
    of_format_2(store_fixture)
    migrated = store_fixture.store.open()
    assert migrated is not None and "before_format_3_" in migrated.copy
    with store_fixture.store._database.reading() as db:
        assert db.execute(text("SELECT format FROM before_format_3_meta")).scalar_one() == 2
        assert db.execute(text("SELECT format FROM meta")).scalar_one() == STORE_FORMAT
        assert db.execute(text("SELECT epoch, holder FROM runs")).one() == (8, "")
        assert db.execute(text("SELECT epoch, holder FROM before_format_3_runs")).one() == (7, "gone")
    with store_fixture.store._database.transaction() as db:  # as if it were restored without its copies
        make_format_2(db)
    store_fixture.store.close()
    with pytest.raises(StoreError, match="DROP TABLE before_format_3_"):
        store_fixture.store.open()


def go_back(engine: Engine) -> None:
    """As psql does with the lines that are documented."""
    page = (DOCS / "how-to/upgrade.md").read_text()
    (lines,) = re.findall(r"<<'END'\n(DO .*?)\nEND\n", page, flags=re.DOTALL)
    with engine.begin() as db:
        db.exec_driver_sql(lines, execution_options={"no_parameters": True})


@pytest.mark.lab
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_shared_store_that_went_back_is_whole(store_fixture: StoreFixture, store_url: str) -> None:
    """The documented lines leave the tables, keys and indexes of before; so the release before saves to it,
    and this one migrates it again, to what a new store is."""
    new = schema(store_url)
    store_fixture.register(2)
    of_format_2(store_fixture)
    before = schema(store_url)
    assert store_fixture.store.open() is not None
    store_fixture.store.close()
    engine = create_engine(store_url)
    go_back(engine)
    with engine.begin() as db:
        assert db.execute(text("SELECT epoch, holder FROM runs")).all() == [(7, "gone")] * 2
        assert db.execute(text("SELECT format FROM meta")).scalar_one() == 2
    assert schema(store_url) == before
    assert store_fixture.store.open() is not None
    assert schema(store_url) | new == schema(store_url)
    store_fixture.register(3, force=True)
    store_fixture.arm(3)
    store_fixture.save(3, frontiers=(7, 9), credits=b"credits")
    assert store_fixture.store.load(3).snapshot.frontiers == (7, 9)
    store_fixture.store.close()
    go_back(engine)
    with pytest.raises(DatabaseError, match="there are no tables before_format_3_"):
        go_back(engine)
    engine.dispose()
    assert schema(store_url) == before


@pytest.mark.lab
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_postgresql_waits_for_the_servers_of_before(store_fixture: StoreFixture, store_url: str) -> None:
    """While a server of the release before lives, the store is not migrated, and the refusal names it."""
    of_format_2(store_fixture)
    store_fixture.store.leases.renew("192.0.2.8:7420", "boot")
    with pytest.raises(StoreError, match=r"run on this store \(192.0.2.8:7420\). Stop them"):
        store_fixture.store.open()
    with store_fixture.store._database.reading() as db:
        assert db.execute(text("SELECT format FROM meta")).scalar_one() == 2


@pytest.mark.lab
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_server_that_renews_within_a_transaction_lives(store_fixture: StoreFixture, store_url: str) -> None:
    """A transaction that waited, for a lock or its turn, sees a lease that is younger than itself."""
    other = Store(store_url)
    other.open()
    with store_fixture.store._database.transaction() as db:
        db.execute(text("SELECT pg_sleep(0.05)"))
        other.leases.renew("192.0.2.8:7420", "boot")
        assert living(db) == ("192.0.2.8:7420",)
    with store_fixture.store._database.reading() as db:  # which sees what was, however long it lasts
        assert living(db) == ("192.0.2.8:7420",)
        db.execute(text("SELECT pg_sleep(2.1)"))
        assert living(db) == ("192.0.2.8:7420",)
    other.close()
