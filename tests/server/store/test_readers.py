"""A store that other processes may read: they see what is committed, and still only one server has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from durability.errors import StoreError
from durability_server.store.database import Mode
from durability_server.store.store import Store

_OPEN = """
import sys
from durability.errors import StoreError
from durability_server.store.store import Store
store = Store(sys.argv[1], mode=sys.argv[2])
try:
    (store.open_to_read if sys.argv[2] == "reader" else store.open)()
    print(store.server_id)
except StoreError as error:
    print(error)
"""


def _elsewhere(url: str, mode: Mode) -> str:
    """What another process gets of the store: the server's id, or why not."""
    done = subprocess.run(
        [sys.executable, "-c", _OPEN, url, mode], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_who_may_open_a_store_beside_a_server(sqlite_url: str) -> None:
    """A server in mode "alone" excludes readers and servers. A server in mode "with readers" admits readers,
    but no second server."""
    asked: dict[Mode, tuple[Mode, ...]] = {"alone": ("reader",), "with readers": get_args(Mode)}
    for first, others in asked.items():
        store = Store(sqlite_url, mode=first)
        store.open()
        for other in others:
            found = _elsewhere(sqlite_url, other)
            if (first, other) == ("with readers", "reader"):
                assert found == store.server_id
            else:
                assert found.endswith("another server has it open; stop that one first"), (first, other)
        store.close()


def test_a_reader_sees_what_is_committed_and_changes_nothing(sqlite_url: str) -> None:
    """A reader sees data that is committed after it was opened, and every change through it is refused."""
    store = Store(sqlite_url, mode="with readers")
    store.open()
    reader = Store(sqlite_url, mode="reader")
    reader.open_to_read()
    with pytest.raises(StoreError, match="there is no certificate yet"):
        reader.known_identity()
    assert store.identity(lambda: (b"key", b"certificate")) == reader.known_identity()
    with pytest.raises(StoreError, match="opened to be read only"):
        reader.identity(lambda: (b"other", b"other"))
    with pytest.raises(StoreError, match="opened to be read only"):
        reader.save(())
    reader.close()
    store.close()


def test_a_reader_makes_no_store(tmp_path: Path) -> None:
    """A reader of a missing store raises StoreError and creates no file."""
    reader = Store(f"sqlite:///{tmp_path / 'none.sqlite'}", mode="reader")
    with pytest.raises(StoreError, match="unable to open"):
        reader.open_to_read()
    assert not list(tmp_path.iterdir())
