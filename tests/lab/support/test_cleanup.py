"""What a process of the lab has set up is gone soon after a SIGKILL of it, also while it is set up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.support.processes import children, naming, wait_until_gone
from tests.waiting import wait_for

SERVER = """
import asyncio
from durability_lab.support.local_server import local_server

async def main():
    async with local_server() as lab:
        print(lab.credential.parent, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""
PROGRAM = """
import os, subprocess, tempfile
from pathlib import Path
from durability_lab.support.cleanup import Cleanup, watched

directory = Path(tempfile.mkdtemp(prefix="durability-rig-"))
cleanup = Cleanup(directory)
command = ("tail", "-f", str(directory / "program.pid"))  # for ever; and none of its own starts another
subprocess.Popen(watched(directory, "program", command), stdout=subprocess.DEVNULL)
print(directory, flush=True)  # last: whoever reads it may kill this process at once
{then}
"""
CLOSED = """
from durability_lab.support.cleanup import watched_directory

with watched_directory("durability-test-") as directory:
    (directory / "file").touch()
    print(directory, flush=True)
    input()
"""
INTERRUPTED = """
import subprocess
from durability_lab.support.cleanup import watched, watched_directory

with watched_directory("durability-test-") as directory:
    command = ("tail", "-f", "/dev/null", str(directory / "none"))  # for ever
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(watched(directory, "program", command), **quiet)
    while not (directory / "program.pid").exists():
        pass
    print(directory, flush=True)
"""


def _killed(script: str) -> Path:
    """The directory that `script` names, killed in its last line; its processes are gone."""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        directory = Path(process.stdout.readline().strip())
        started = children(process.pid)
        process.kill()
    wait_until_gone(started, [directory])
    return directory


@pytest.mark.slow
def test_servers_store_and_credential_go_with_its_process() -> None:
    """If the process of a local server is killed, the server's directory is removed."""
    assert not _killed(SERVER).exists()


@pytest.mark.parametrize(
    "then", ["input()", "os.kill(os.getpid(), 9)"], ids=["while it runs", "at its start"]
)
def test_program_goes_with_the_process_that_started_it(then: str) -> None:
    """If a process is killed, the programs that it started end too, even one started just before the kill."""
    directory = _killed(PROGRAM.format(then=then))
    wait_for(lambda: not naming(directory), lambda: naming(directory))
    assert not directory.exists()


def test_closed_directory_goes_at_once() -> None:
    """At the end of its block, with what lies in it, and its cleanup process too."""
    done = subprocess.run(
        [sys.executable, "-c", CLOSED], input="\n", capture_output=True, text=True, timeout=60, check=True
    )
    directory = Path(done.stdout.strip())
    assert not directory.exists()
    assert not naming(directory)


def test_a_block_that_leaves_a_program_ends_it() -> None:
    """As after a second Ctrl-C, which interrupts what would have ended the program."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=True
    )
    directory = Path(done.stdout.strip())
    wait_for(lambda: not naming(directory), lambda: naming(directory))
    assert not directory.exists()
