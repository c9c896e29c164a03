"""The files of an SQLite store are nobody else's to read: the server's private key lies there."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from durability_server.store.database import Mode
from durability_server.store.store import Store
from tests.waiting import DEADLINE_S

ALICE, BOB, TEAM = 54321, 54322, 54323  # no user or group of this machine


def _modes(directory: Path) -> dict[str, str]:
    return {path.name: f"{path.stat().st_mode & 0o777:03o}" for path in directory.iterdir()}


@pytest.mark.parametrize("mode", ["alone", "with readers"])
def test_a_backup_that_was_put_back_open_to_others_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: Mode
) -> None:
    """A restored backup that others can read is made private, including the log file of a killed server. The
    server's log reports each file once."""
    (tmp_path / "killed").mkdir()
    killed = Store(f"sqlite:///{tmp_path / 'killed' / 'store.sqlite'}", mode=mode)
    killed.open()
    shutil.copytree(tmp_path / "killed", tmp_path / "back")
    killed.close()
    for file in (tmp_path / "back").iterdir():
        file.chmod(0o644)
    copied = _modes(tmp_path / "back")
    assert {"store.sqlite", "store.sqlite-wal"} <= copied.keys()
    caplog.set_level(logging.WARNING)
    for count in (len(copied), 0):
        caplog.clear()
        back = Store(f"sqlite:///{tmp_path / 'back' / 'store.sqlite'}", mode=mode)
        back.open()
        assert set(_modes(tmp_path / "back").values()) == {"600"}
        back.close()
        assert caplog.text.count("was open to others (mode 0644)") == count


_OPEN = """
import logging, os, sys
import sqlalchemy.dialects.sqlite.pysqlite  # while it may be read
from durability.errors import StoreError
from durability_server.store.store import Store
logging.basicConfig(stream=sys.stdout, format="warning: %(message)s")
os.setgroups([int(sys.argv[3])]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2])); os.umask(0o007)
try:
    store = Store(sys.argv[1])
    store.open()
    print("opened")
    store.identity(lambda: (b"key", b"certificate"))  # writes
    if sys.argv[4:]:
        os._exit(0)  # leaves the log
    store.close()
except StoreError as error:
    print("refused:", error)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """Where any user may have a store."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name) / "my store.sqlite"


def _opened_as(user: int, file: Path, *, killed: bool = False, also_in: int | None = None) -> str:
    """What a server of this user and the group of the same number says of the store `file`; the user is
    `also_in` that group."""
    words = [f"sqlite:///{file}", str(user), str(user if also_in is None else also_in)]
    command = [sys.executable, "-c", _OPEN, *words, *(["killed"] if killed else [])]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout


def _put(file: Path, *, owner: int, group: int, mode: int) -> None:
    file.touch()
    os.chown(file, owner, group)
    file.chmod(mode)


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@as_root
def test_a_store_that_is_ones_own_is_closed(place: Path) -> None:
    """A store that belongs to the server's own user is also closed to its group, since no other user's server
    needs it."""
    for mode in (0o666, 0o660):
        _put(place, owner=ALICE, group=ALICE, mode=mode)
        said = _opened_as(ALICE, place)
        assert f"was open to others (mode {mode:04o}), and no longer is" in said and "opened" in said
        assert _modes(place.parent) == {place.name: "600"}


@as_root
def test_a_store_that_another_user_left_open_is_refused(place: Path) -> None:
    """A server that may not close it says what to type, and with that it opens."""
    _put(place, owner=BOB, group=ALICE, mode=0o666)
    said = _opened_as(ALICE, place)
    assert said.startswith(f"refused: {place} is open to others (mode 0666)")
    line = f"chown {ALICE} '{place}' && chmod 600 '{place}'"
    assert f"belongs to user {BOB}: run  {line}  as root" in said
    subprocess.run(["sh", "-c", line], check=True)
    assert _opened_as(ALICE, place) == "opened\n"


@as_root
@pytest.mark.parametrize("owner", [0, BOB])
def test_a_store_that_another_user_shares_with_a_group_is_opened(place: Path, owner: int) -> None:
    """A store that another user shares with the server's group is opened, with a warning at each start that
    names the remedy. Files left by a killed server stay open to the group only."""
    _put(place, owner=owner, group=ALICE, mode=0o660)
    line = f"chown {ALICE} '{place}' && chmod 600 '{place}'"
    said = _opened_as(ALICE, place, killed=True)
    assert "lets its group have it (mode 0660)" in said and f"run  {line}  as root" in said
    log = place.with_name(f"{place.name}-wal")
    log.chmod(0o666)
    again = _opened_as(ALICE, place, killed=True)
    assert f"{log} was open to others (mode 0666), and no longer is" in again and "opened" in again
    assert _modes(place.parent) == {file.name: "660" for file in place.parent.iterdir()}
    _opened_as(ALICE, place)
    subprocess.run(["sh", "-c", line], check=True)
    assert _opened_as(ALICE, place) == "opened\n"


@as_root
def test_a_shared_store_beside_which_files_would_be_another_groups_is_refused(place: Path) -> None:
    """A shared store is refused if SQLite's files beside it would belong to another group. It is opened if
    its directory gives them the store's group. An existing file of another group is closed to that group."""
    _put(place, owner=BOB, group=TEAM, mode=0o660)
    said = _opened_as(ALICE, place, also_in=TEAM)
    assert said.startswith(f"refused: {place} is open to others (mode 0660)")
    assert _modes(place.parent) == {place.name: "660"}
    os.chown(place.parent, -1, TEAM)
    place.parent.chmod(0o2777)
    assert "opened" in _opened_as(ALICE, place, killed=True, also_in=TEAM)
    log = place.with_name(f"{place.name}-wal")
    assert log.stat().st_gid == TEAM
    os.chown(log, ALICE, ALICE)
    said = _opened_as(ALICE, place, killed=True, also_in=TEAM)
    assert f"{log} was open to others (mode 0660), and no longer is" in said and "opened" in said


@pytest.mark.parametrize("number", [0, errno.EPERM, errno.ENOSYS])
def test_a_store_on_a_file_system_without_modes_is_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A store is opened on a file system that ignores modes, such as FAT, or that refuses to set them. The
    log reports it."""
    file = tmp_path / "store.sqlite"
    file.touch()
    file.chmod(0o755)

    def keep_none(path: Path, mode: int) -> None:
        if number:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "chmod", keep_none)
    store = Store(f"sqlite:///{file}")
    store.open()
    store.close()
    assert f"{file} looks open to others (mode 0755), and its file system keeps no mode" in caplog.text
    assert "Move the store to a file system that keeps modes" in caplog.text
    assert "no longer is" not in caplog.text
