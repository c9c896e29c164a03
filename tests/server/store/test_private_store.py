"""The files of an SQLite store are nobody else's to read: the server's private key lies there."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from durability_server.store.database import Mode
from durability_server.store.store import Store
from tests.waiting import DEADLINE_S

ALICE, BOB = 54321, 54322  # no user of this machine


def _modes(directory: Path) -> dict[str, str]:
    return {path.name: f"{path.stat().st_mode & 0o777:03o}" for path in directory.iterdir()}


@pytest.mark.parametrize("mode", ["alone", "with readers"])
def test_a_backup_that_was_put_back_open_to_others_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: Mode
) -> None:
    """Also its log, which a server that was killed has left, and the log says so once."""
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
import os, sys
import sqlalchemy.dialects.sqlite.pysqlite  # while it may be read
from durability.errors import StoreError
from durability_server.store.store import Store
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
try:
    Store(sys.argv[1])
except StoreError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
@pytest.mark.parametrize("owner", [ALICE, BOB])
def test_a_store_that_another_user_left_open_is_refused(owner: int) -> None:
    """A server that may not close it says what to type."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        file = directory / "my store.sqlite"
        file.touch()
        file.chmod(0o666)
        os.chown(file, owner, owner)
        command = [sys.executable, "-c", _OPEN, f"sqlite:///{file}", str(ALICE)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
        if owner == ALICE:
            assert (done.stdout, _modes(directory)) == ("", {file.name: "600"})
        else:
            assert f"{file} is open to others (mode 0666)" in done.stdout
            assert f"run  chmod 600 '{file}'  as the user to whom it belongs" in done.stdout
