"""A real cut with the commands of one release only, from a drive of its lab to the verdict."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from durability.errors import EXIT_ENVIRONMENT, EXIT_LOSS
from release.programs import Programs, line_of

_DRIVE = ("lab", "drive", "flush-ignored", "--file-system", "ext4", "--size", "256MiB")


def lose_at_a_real_cut(machine: Programs) -> None:
    """A drive of the lab that ignores flushes is written to, and its power is cut: the verdict is loss."""
    with (
        subprocess.Popen(
            machine.command(*_DRIVE),
            cwd=machine.home,
            env=machine.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as drive,
        machine.serving(),
    ):
        assert drive.stdin is not None
        target = _target_of(drive)
        machine.join(machine, "bench-1")
        with machine.started("run", target, "--size", "4M", "--json") as run:
            line_of(run, lambda line: json.loads(line).get("acked", 0) > 100)
            print("cut", file=drive.stdin, flush=True)
            line_of(drive, lambda line: line.startswith("off"))
            assert run.wait(120) == EXIT_ENVIRONMENT  # the target failed
        print("on", file=drive.stdin, flush=True)
        verdict = machine.json("verify", _target_of(drive), "--attest-cut", "lab drive", ends=EXIT_LOSS)
        print("quit", file=drive.stdin, flush=True)
        assert drive.wait(60) == 0
    assert verdict["verdict"] == "loss"


def _target_of(drive: subprocess.Popen[str]) -> Path:
    """A file in the file system of a drive that is switched on."""
    return Path(line_of(drive, lambda line: line.startswith("on ")).split()[2]) / "target"
