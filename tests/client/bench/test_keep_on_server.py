"""`bench --keep` and `results` as people type them, with a real server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from durability_server.server import Server
from tests.joined import joined

COMMAND = str(Path(sys.executable).with_name("durability"))
SMALL = ("--force", "--size", "2MiB", "--only", "headline", "--wait", "0", "--quick")

pytestmark = pytest.mark.slow


async def _durability(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [COMMAND, *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


async def test_a_result_is_kept_listed_and_fetched(tmp_path: Path, place: Path) -> None:
    """The file that comes back is the one that was measured, to the byte; a file kept later is the same
    result; what does not exist is refused by name."""
    server = Server(store_url=f"sqlite:///{tmp_path / 'store.sqlite'}")
    address = await server.start("127.0.0.1", 0, directory=tmp_path)
    credential = tmp_path / "credential.json"
    await joined(server, *address, credential=credential)
    at = ("--server", f"{address[0]}:{address[1]}", "--credential", str(credential))
    output, again = tmp_path / "result.json", tmp_path / "again.json"
    try:
        done = await _durability("bench", place, *SMALL, "-o", output, "--keep", *at)
        assert done.returncode == 0, done.stderr
        name = done.stderr.split("the server stored the result as ")[1].split()[0]
        listed = json.loads((await _durability("results", "--json", *at)).stdout)
        assert [row["result"] for row in listed["results"]] == [name]
        assert name in (await _durability("results", *at)).stdout
        fetched = await _durability("results", name, "-o", again, *at)
        assert fetched.returncode == 0, fetched.stderr
        assert again.read_bytes() == output.read_bytes()
        assert "commits/s" in (await _durability("results", name, *at)).stdout
        later = await _durability("bench", "--show", output, "--keep", *at)
        assert f"the server stored the result as {name}" in later.stderr
        unknown = await _durability("results", "0" * 12, *at)
        assert unknown.returncode == 5 and "`durability results` lists them" in unknown.stderr
        useless = await _durability("results", name, "--drive", "x", *at)
        assert useless.returncode == 2 and "--host and --limit choose from the list" in useless.stderr
    finally:
        await server.stop()
    gone = await _durability("bench", place, *SMALL, "--keep", *at)
    assert gone.returncode == 5 and gone.stdout == "", "nothing is measured for a server that is not there"
