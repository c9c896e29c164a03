"""The walk-through of the README as two machines type it: each is a network namespace with its own address
and its own files, and the drive of the one loses its power."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from durability.errors import EXIT_LOSS
from durability_lab.kernel_rig.block_rig import BlockRig

COMMAND = str(Path(sys.executable).with_name("durability"))
DEADLINE_S = 120
TRIES = 5

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.timeout(900)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine with an address of its own, and `home` for its user's files."""

    namespace: str
    home: Path

    def start(self, line: str, *, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """A command that runs, as its user types it."""
        typed = line.split()
        assert typed[0] == "durability"
        state = {
            "XDG_STATE_HOME": str(self.home),
            "DURABILITY_CREDENTIAL": str(self.home / "credential.json"),
        }
        return subprocess.Popen(
            ("nsenter", f"--net=/run/netns/{self.namespace}", COMMAND, *typed[1:]),
            env=os.environ | state,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )

    def type(self, line: str) -> tuple[int, str]:
        """Exit code and output of a command, as its user types it."""
        with self.start(line) as process:
            stdout, stderr = process.communicate(timeout=DEADLINE_S)
            return process.returncode, stdout + stderr


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    """A and B, with a cable between them."""
    name = f"durability-{os.getpid()}"
    a, b = (Machine(namespace=f"{name}-{letter}", home=tmp_path / letter) for letter in "ab")
    try:
        for machine in (a, b):
            machine.home.mkdir()
            _ip("netns", "add", machine.namespace)
        _plug_in(a, b)
        yield a, b
    finally:
        for machine in (a, b):
            subprocess.run(("ip", "netns", "delete", machine.namespace), check=False, capture_output=True)


def _plug_in(a: Machine, b: Machine) -> None:
    _ip(
        *("link", "add", "cable", "netns", a.namespace, "type", "veth"),
        *("peer", "name", "cable", "netns", b.namespace),
    )
    for machine, address in ((a, "192.0.2.7/24"), (b, "192.0.2.8/24")):
        _ip("-n", machine.namespace, "address", "add", address, "dev", "cable")
        _ip("-n", machine.namespace, "link", "set", "cable", "up")


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True, timeout=DEADLINE_S)


@contextmanager
def _serving(machine: Machine) -> Iterator[Terminal]:
    """`durability serve` at a terminal."""
    ours, theirs = pty.openpty()
    with machine.start("durability serve", stdout=theirs) as server:
        os.close(theirs)
        try:
            yield Terminal(ours)
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=DEADLINE_S)
            os.close(ours)


@dataclass(slots=True)
class Terminal:
    """What a command prints at a terminal, of which `master` is the other end."""

    master: int
    said: str = ""

    def until(self, pattern: str) -> str:
        """What is there of that pattern, as soon as it is there."""
        while not (found := re.search(pattern, self.said)):
            self.said += os.read(self.master, 1 << 16).decode()
        return found[0]


def _cut_and_verify(a: Machine, b: Machine, rig: BlockRig, terminal: Terminal) -> tuple[int, str]:
    """B runs, loses its power, comes back and verifies; what that answers."""
    with b.start(f"durability run {rig.target} --size 8M --writers 4") as run:
        assert run.stderr is not None
        assert any(re.search(r"acked [1-9]", said) for said in run.stderr)
        _ip("-n", a.namespace, "link", "delete", "cable")  # B's network goes with its power
        rig.cut()
        run.kill()
    wanted = terminal.until(r"lost at .*type `durability verify [^`]*`")
    terminal.said = ""
    assert wanted.endswith(f"`durability verify {rig.target}`")
    _ip("netns", "delete", b.namespace)
    _ip("netns", "add", b.namespace)
    _plug_in(a, b)
    rig.power_on()
    rig.mount()
    return b.type(f"durability verify {rig.target} --attest-cut plug")


@pytest.mark.parametrize(
    ("drive", "code", "verdict"), [("honest", 0, "DURABLE"), ("flush-ignored", EXIT_LOSS, "LOSS")]
)
def test_the_walk_through(
    machines: tuple[Machine, Machine], drive: str, code: int, verdict: str, seed: int
) -> None:
    """From `serve` to the verdict nothing is typed but what the README says; no option names the server."""
    a, b = machines
    with _serving(a) as terminal, BlockRig(drive, "ext4", seed=seed) as rig:
        line = terminal.until(r"durability join \S+ \S+(?=\s)")
        assert line.startswith("durability join 192.0.2.7:7420 ")
        assert b.type(line)[0] == 0
        assert b.type(f"durability device {rig.target}")[0] == 0
        for _ in range(TRIES):
            got, report = _cut_and_verify(a, b, rig, terminal)
            if "no record was at risk" not in report:
                break  # a busy machine may keep the writers waiting for the server
        assert (got, report.partition(":")[0].split()[0]) == (code, verdict), report
        assert str(rig.target) in a.type("durability runs --all")[1]
