"""An SQLite store whose files are removed, moved or replaced while a server has them open."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import OperationalError

from durability.errors import RefusedError, StoreError
from durability.protocol import messages
from durability_server.store import database
from durability_server.store.store import Store

if TYPE_CHECKING:
    from tests.server.conftest import Lab


@pytest.fixture(autouse=True)
def looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store looks where its files are with each commit."""
    monkeypatch.setattr(database, "_LOOK_AGAIN_S", 0.0)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the store is."""
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


@pytest.fixture(params=["alone", "with readers"])
def store(request: pytest.FixtureRequest, directory: Path) -> Iterator[Store]:
    """An open store to which something was saved."""
    opened = Store(f"sqlite:///{directory / 'store.sqlite'}", mode=request.param)
    opened.open()
    opened.save(())
    yield opened
    opened.close()


def _refused(store: Store) -> str:
    with pytest.raises(StoreError, match="saves nothing more") as refused:
        store.identity(lambda: (b"key", b"certificate"))
    return str(refused.value)


def _move(place: Path, to: Path) -> None:
    place.rename(to)


@pytest.mark.parametrize("name", ["store.sqlite", "store.sqlite-wal"])
def test_nothing_is_saved_to_a_file_that_was_moved_until_it_is_back(
    store: Store, directory: Path, name: str
) -> None:
    """Saving fails while the store's file is moved or replaced, because the data would be gone after a
    restart. Saving works again once the file is back."""
    file, elsewhere = directory / name, directory / "elsewhere"
    file.rename(elsewhere)
    for _ in range(2):
        assert f"{file}: No such file or directory" in _refused(store)
    shutil.copy(elsewhere, file)
    assert f"{file}: another file lies there now" in _refused(store)
    elsewhere.rename(file)
    assert store.identity(lambda: (b"another", b"one")) == (b"another", b"one")


def test_a_log_that_was_removed_is_in_the_store_once_the_server_has_stopped(
    store: Store, directory: Path
) -> None:
    """So the message says to stop it in order, and to put no backup there."""
    identity = store.identity(lambda: (b"key", b"certificate"))
    (directory / "store.sqlite-wal").unlink()
    assert "put no backup there" in _refused(store)
    store.close()
    again = Store(f"sqlite:///{directory / 'store.sqlite'}")
    again.open()
    assert again.identity(lambda: (b"another", b"one")) == identity
    again.close()


def test_a_log_without_its_store_is_kept(store: Store, directory: Path) -> None:
    """SQLite would make a new store there and remove the log, which the store still needs when it is back."""
    identity = store.identity(lambda: (b"key", b"certificate"))
    file, elsewhere = directory / "store.sqlite", directory / "elsewhere"
    file.rename(elsewhere)
    store.close()
    with pytest.raises(StoreError, match="move the store back beside its log"):
        Store(f"sqlite:///{file}").open()
    elsewhere.rename(file)
    again = Store(f"sqlite:///{file}")
    again.open()
    assert again.identity(lambda: (b"another", b"one")) == identity
    again.close()


def test_a_store_whose_directory_is_gone_says_so(store: Store, directory: Path) -> None:
    """A store whose directory is gone reports this, also when evidence is added and free disk space is
    checked first."""
    shutil.rmtree(directory)
    assert "No such file or directory" in _refused(store)
    with pytest.raises(StoreError, match=f"{directory}: No such file or directory"):
        store.add_evidence(1, "name", b"data")


def test_a_connection_that_broke_makes_no_store_in_the_place_of_one(store: Store, directory: Path) -> None:
    """SQLite would make an empty file there, and go on with that."""
    with pytest.raises(StoreError), store._database.transaction() as db:
        db.close()  # as after an error that the driver does not survive
        raise OperationalError("", {}, Exception())
    (directory / "store.sqlite").unlink()
    assert "No such file or directory" in _refused(store)
    assert not (directory / "store.sqlite").exists()


def test_a_store_behind_a_link_is_found(tmp_path: Path, directory: Path) -> None:
    """Its log lies beside the file, not beside the link; a link to somewhere else is another store."""
    link = tmp_path / "link"
    link.symlink_to(directory / "store.sqlite")
    store = Store(f"sqlite:///{link}")
    store.open()
    store.save(())
    shutil.copy(directory / "store.sqlite", tmp_path / "copy")
    link.unlink()
    link.symlink_to(tmp_path / "copy")
    assert f"{link}: another file lies there now" in _refused(store)
    store.close()


@pytest.mark.usefixtures("no_silence")
async def test_no_credit_is_given_for_what_would_be_gone(lab: Lab, directory: Path) -> None:
    """Clients are told; with the store in its place again they have their credit."""
    running = await lab.start(f"sqlite:///{directory / 'store.sqlite'}")
    client = await lab.connect(running.address)
    await client.begin(lab.plan(run=1), lab.facts())
    await client.acknowledge(1, 1)
    elsewhere = directory.with_name("elsewhere")
    _move(directory, elsewhere)
    client.say(messages.Ack(frontiers=(2, 2), control=0))
    assert (await client.get(messages.Notice)).code == "store-unavailable"
    other = await lab.connect(running.address, local=True)
    with pytest.raises(RefusedError, match="move it back") as refused:
        await other.register(lab.plan(run=2), lab.facts(serial="S2", uuid="uuid-2"))
    assert refused.value.code == "store-unavailable"
    _move(elsewhere, directory)
    assert (await client.get(messages.Credit)).grants == (2, 2)
    assert (await client.get(messages.Notice)).code == "store-recovered"
