"""The README's test of a drive with two machines, as it is typed: each machine is a network namespace with an
/etc of its own, with a cable between them. The drive is the lab's, and the second boot of B has another boot
id and clock.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from durability.errors import EXIT_LOSS, EXIT_OK
from durability_client.system.processes import own_command
from durability_lab.histories.kernel.kernel_processes import KernelMachine
from durability_lab.kernel_rig.block_rig import BlockRig, without_loop_mounts
from tests.places import ROOT
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.timeout(900)

ADDRESS_A, ADDRESS_B = "192.0.2.7", "192.0.2.8"
WRITTEN = 1000  # acknowledged operations before the cut, so that all of them are seconds from the first
# Mounts $0 at /etc for the command that follows.
_WITH_OWN_ETC = (
    "unshare",
    "--mount",
    "--propagation",
    "slave",
    "sh",
    "-c",
    'mount --bind "$0" /etc && exec "$@"',
)
NOT_COPIED = shutil.ignore_patterns("durability", "*shadow*", "ssh", "private")  # credentials of this machine
LINE = re.compile(r"durability join \S+ [0-9A-Z-]{47}(?=\s)")


def typed_in_the_readme() -> dict[str, list[str]]:
    """What the walk-through types on each machine, in its order."""
    _, _, section = (ROOT / "README.md").read_text().partition("\n## Test a drive\n")
    lines = re.findall(r"^ +([AB])[$#] (.+)$", section.partition("\n## ")[0], re.M)
    return {machine: [line for on, line in lines if on == machine] for machine in "AB"}


@dataclass(slots=True)
class Machine:
    """One of the two. `before`: what its commands begin with, so that they are on it."""

    network: str
    home: Path
    before: tuple[str, ...] = ()

    def command(self, line: str) -> tuple[str, ...]:
        """The words of a line that is typed there; `durability` is this very installation."""
        program, *words = _words(line)
        assert program == "durability"
        on_it = ("nsenter", f"--net=/run/netns/{self.network}", *self.before)
        return (*on_it, *_WITH_OWN_ETC, str(self.etc), *own_command(*words))

    @property
    def etc(self) -> Path:
        """Its /etc."""
        return self.home / "etc"

    @property
    def environment(self) -> Mapping[str, str]:
        """Its state directory, on a disk that both machines share, and nothing in place of an option."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DURABILITY_")}
        return kept | {"XDG_STATE_HOME": str(self.home)}

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        """What comes of a line."""
        return subprocess.run(
            self.command(line),
            env=self.environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )


def _words(line: str) -> list[str]:
    return [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', line)]


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    """A and B, and the cable between them."""
    a, b = (Machine(f"{name}{os.getpid()}", tmp_path / name) for name in ("machine-a", "machine-b"))
    with ExitStack() as stack:
        for machine in (a, b):
            machine.home.mkdir()
            shutil.copytree("/etc", machine.etc, symlinks=True, ignore=NOT_COPIED)
            _ip("netns", "add", machine.network)
            stack.callback(_ip, "netns", "delete", machine.network)
        _plug_in(a, b)
        a.before = without_loop_mounts()  # or `serve` would keep the drive of B busy
        yield a, b


def _plug_in(a: Machine, b: Machine) -> None:
    """The cable, with the address of each machine."""
    ends = ("peer", "name", "cable", "netns", b.network)
    _ip("-n", a.network, "link", "add", "cable", "type", "veth", *ends)
    for machine, address in ((a, ADDRESS_A), (b, ADDRESS_B)):
        _ip("-n", machine.network, "address", "add", f"{address}/24", "dev", "cable")
        for link in ("lo", "cable"):
            _ip("-n", machine.network, "link", "set", link, "up")


@contextmanager
def _without_power(a: Machine, b: Machine, rig: BlockRig) -> Iterator[None]:
    """B and its drive are off when the block begins, and start anew after it: B says nothing at its end, and
    later knows no connection of before."""
    _ip("-n", b.network, "link", "set", "cable", "down")
    rig.cut()
    yield
    while _newest_run(a)["session_end"] != "silence":  # no machine starts sooner
        pass
    _ip("-n", a.network, "link", "delete", "cable")
    _ip("netns", "delete", b.network)
    rig.power_on()
    rig.mount()
    _ip("netns", "add", b.network)
    _plug_in(a, b)


@contextmanager
def _serving(machine: Machine, line: str) -> Iterator[str]:
    """`serve` on a terminal of its own: the line that it prints there."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        machine.command(line), env=machine.environment, stdout=theirs, stderr=subprocess.DEVNULL
    ) as server:
        os.close(theirs)
        try:
            said = ""
            while (found := LINE.search(said)) is None:
                said += os.read(ours, 1 << 16).decode()
            yield found[0]
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(DEADLINE_S) == 0
            os.close(ours)


@contextmanager
def _running(machine: Machine, line: str) -> Iterator[None]:
    """`run`, which has written for a while when the block begins, and is killed with its machine."""
    with subprocess.Popen(
        machine.command(line),
        env=machine.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as client:
        try:
            while _newest_run(machine).get("acked", 0) < WRITTEN:
                assert client.poll() is None, "the client has ended"
            yield
        finally:
            os.killpg(client.pid, signal.SIGKILL)


def _newest_run(machine: Machine) -> dict[str, Any]:
    """What the server knows of it, nothing if there is none."""
    listed = machine.type("durability runs --all --json")
    assert listed.returncode == 0, listed.stderr
    rows: list[dict[str, Any]] = json.loads(listed.stdout)["runs"]
    return rows[0] if rows else {}


def test_no_option_is_longer_than_a_path() -> None:
    """The README's lines name neither server nor credential, and no option or value there is longer than the
    path of the target."""
    readme = typed_in_the_readme()
    lines = [_words(line) for line in (*readme["A"], *readme["B"]) if line.startswith("durability ")]
    assert [words[1] for words in lines] == ["serve", "join", "device", "run", "verify"]
    (path,) = {word for words in lines for word in words if word.startswith("/")}
    for words in lines:
        first = next((number for number, word in enumerate(words) if word.startswith("-")), len(words))
        options = words[first:]
        assert not [word for word in options if len(word) > len(path)]
        assert {"--server", "--credential"}.isdisjoint(options)


@pytest.mark.usefixtures("rig_machine")
@pytest.mark.parametrize(
    ("drive", "code", "says"),
    [
        ("honest", EXIT_OK, "DURABLE across power loss"),
        ("early-ack:delay_ms=1000", EXIT_LOSS, "LOSS"),
    ],
)
def test_the_walk_through_ends_in_a_verdict(
    machines: tuple[Machine, Machine], tmp_path: Path, drive: str, code: int, says: str
) -> None:
    """From `serve` to the verdict, with the README's own words. Only the size is smaller, and the class of
    the cut is named, since the machine of this test may be a virtual one."""
    a, b = machines
    readme = typed_in_the_readme()
    (serve,) = readme["A"]
    join, device, run, mount, verify = readme["B"]
    assert join.startswith(f"durability join {ADDRESS_A}") and mount.startswith("mount ")
    with BlockRig(drive, "ext4", seed=1, size_bytes=96 << 20) as rig:

        def here(line: str) -> str:
            assert "/mnt/disk/" in line
            return line.replace("/mnt/disk", str(rig.mount_point)).replace(" 4G ", " 32M ")

        booted = KernelMachine(tmp_path, seed=1)
        with _serving(a, serve) as line:
            joined = b.type(line)
            assert joined.returncode == 0, joined.stderr
            assert (b.etc / "durability" / "credential.json").is_file()
            looked = b.type(here(device))
            assert looked.returncode == 0, looked.stderr
            with ExitStack() as power, _running(b, here(run)):
                power.enter_context(_without_power(a, b, rig))
            booted.start_anew(rig.mount_point)
            b.before = booted.before
            verified = b.type(f"{here(verify)} --cut-class power")
    assert verified.returncode == code, verified.stdout + verified.stderr
    assert verified.stdout.startswith(says), verified.stdout
