"""Modules in the working directory, which may be another user's, are never loaded: not by the writers of a
run, nor by the processes of `verify`, nor by the commands of the agent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLANTED = ("durability_client", "durability_cli", "multiprocessing", "pickle", "struct", "numpy")

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
from durability_client.verify.scan_process import ScanProcess
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
from durability_client.agent.abandonable_calls import own_command
subprocess.run(own_command("--version"), check=True)
print("a process")
"""


@pytest.mark.parametrize("script", [WRITERS, SCAN, WATCH, COMMAND], ids=["run", "verify", "watch", "agent"])
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
