"""Modules in the working directory, which may be another user's, are never loaded: not by the writers of a
run, nor by the processes of `verify`, nor by the commands of the agent and of the lab, nor by its workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLANTED = (
    "durability_client",
    "durability_cli",
    "multiprocessing",
    "pickle",
    "struct",
    "numpy",
    "typer",
    "xxhash",
)

WRITERS = """
from durability_client.system.processes import CONTEXT, starting
if __name__ == "__main__":
    with starting():
        process = CONTEXT.Process(target=print, args=("a process",))
        process.start()
    process.join()
"""
SCAN = """
import sys
from durability_client.target.kernel_storage import KernelStorage
from durability_client.verify.scan.scan_process import ScanProcess
open(sys.argv[1], "wb").close()
with ScanProcess(KernelStorage(sys.argv[1]), stall_s=60):
    print("a process")
"""
WATCH = """
import os, sys
from durability_client.target import drive_watch
open(sys.argv[1], "wb").close()
process = drive_watch._reader(512, [os.open(sys.argv[1], os.O_RDONLY)])
process.communicate()
print("a process")
"""
COMMAND = """
import subprocess
from durability_client.system.processes import own_command
subprocess.run(own_command("--version"), check=True)
print("a process")
"""
WORKER = """
import asyncio, tempfile
from durability_lab.matrix import cut_workers
from durability_lab.support.worker_processes import last_words, start
async def work():
    with tempfile.TemporaryFile() as said:
        process = await start(cut_workers.__name__, said)
        await process.communicate(b"")
        print("a process" if process.returncode == 0 else last_words(said))
asyncio.run(work())
"""
FLOOD = """
import socket
from durability_lab.support.flood import Flood, running
with socket.create_server(("127.0.0.1", 0)) as listener:
    with running(Flood(port=listener.getsockname()[1], held=1, rate=100)) as flood:
        print("a process" if flood.counted().open else "")
"""
SCRIPTS = {
    "run": WRITERS,
    "verify": SCAN,
    "watch": WATCH,
    "own command": COMMAND,
    "worker": WORKER,
    "flood": FLOOD,
}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_nothing_is_loaded_from_the_working_directory(script: str, tmp_path: Path) -> None:
    """Modules with the names of ours and of the standard library lie there, and say so if they are loaded."""
    planted, marker = tmp_path / "planted", tmp_path / "loaded"
    planted.mkdir()
    for name in PLANTED:
        (planted / name).mkdir()
        (planted / name / "__init__.py").write_text(f"open({str(marker)!r}, 'a').write('{name} ')\n")
    program = tmp_path / "program.py"
    program.write_text(script)
    command = [sys.executable, str(program), str(tmp_path / "target")]
    ended = subprocess.run(command, cwd=planted, capture_output=True, text=True, check=False, timeout=120)
    assert not marker.exists(), marker.read_text()
    assert "a process" in ended.stdout, ended.stderr
