"""The unit that starts the agent at every boot, and the commands around it."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from durability.errors import SetupError
from durability_client.agent import agent_command, service
from tests.joined import credential_of_nobody

COMMAND = (sys.executable, "-c", "from durability_cli.main import main; main()", "agent")

_AS_ANOTHER_USER = """
import asyncio, os, sys
from pathlib import Path
from durability_client.agent.agent_command import agent
from durability_client.link.endpoint import Endpoint
os.setuid(65534)
asyncio.run(agent(Endpoint(), options=(), directory=Path("/run/none"), out=sys.stdout))
"""


def durability(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`durability agent WORDS`."""
    return subprocess.run(
        (*COMMAND, *words), capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def exec_start(unit: str) -> str:
    """The unit's command line."""
    (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    return line.removeprefix("ExecStart=")


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    """systemd's own check accepts each line of it."""
    path = tmp_path / service.NAME
    path.write_text(service.unit(["--credential", "/etc/a b/100%$x\"'\\.json"]))
    try:
        done = subprocess.run(
            ["systemd-analyze", "verify", path], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("systemd-analyze is not installed")
    complaints = [line for line in done.stderr.splitlines() if service.NAME in line]
    assert complaints == [], done.stderr


def test_systemd_rates_the_exposure_of_the_unit(tmp_path: Path) -> None:
    """The systemd unit has no privileges that work on drives does not need; its exposure stays below the
    threshold."""
    path = tmp_path / service.NAME
    path.write_text(service.unit([]))
    command = ["systemd-analyze", "--offline=true", "security", "--threshold=68", "--no-pager", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("systemd-analyze is not installed")
    if "Overall exposure" not in done.stdout:
        pytest.skip("this systemd-analyze does not rate a unit that is not loaded")
    assert done.returncode == 0, done.stdout


def test_words_are_quoted_for_systemd() -> None:
    """Characters that systemd would expand or split arrive as they were typed."""
    command = exec_start(service.unit(["--credential", '/etc/a b/100%$x".json', "--server", "[::1]:7420"]))
    assert command.endswith(' agent --credential "/etc/a b/100%%$$x\\".json" --server "[::1]:7420"')


def test_the_one_file_unpacks_to_the_same_place_after_a_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit of the one-file tool sets XDG_CACHE_HOME if the user has set it. Units of other installations
    and packages do not."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/srv/a b/100%$x")
    line = 'Environment="XDG_CACHE_HOME=/srv/a b/100%%$x"\n'
    assert "Environment=" not in service.unit([])
    monkeypatch.setenv(service.ONE_FILE_VARIABLE, "/srv/durability.pyz")
    path = tmp_path / service.NAME
    path.write_text(service.unit([]))
    assert line in path.read_text()
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", path], capture_output=True, text=True, check=False
        )
        assert "nvalid" not in done.stderr and "nknown" not in done.stderr, done.stderr
    assert "XDG_CACHE_HOME" not in service.unit([], program=("/usr/bin/durability",))
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")  # of which the one file takes no notice
    assert "Environment=" not in service.unit([])


def test_the_package_compiles_no_module_later() -> None:
    """The next cut would leave it torn, and the agent would not start again."""
    assert "\nEnvironment=PYTHONDONTWRITEBYTECODE=1\n" in service.unit([], program=("/usr/bin/durability",))


@pytest.mark.parametrize(
    ("mode", "started_with", "is_named"),
    [
        (0o755, "bin/python3", False),
        (0o755, "bin/python3.13", False),  # to which the former is a link
        (0o755, "opt/python3", True),  # where systemd does not look
        (0o755, "bin/python3.14", True),  # another one than systemd would start
        (0o755, "bin/python3.12", True),  # which is gone
        (0o644, "bin/python3", True),
    ],
)
def test_a_one_file_that_systemd_cannot_start_has_its_python_in_front(
    mode: int, started_with: str, is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python3.14 durability.pyz agent install` works without the right to start the file, and where
    `python3` is too old. So does its unit, with the Python that the file was started with."""
    tree, one_file = tmp_path / "tree", tmp_path / "durability.pyz"
    for directory in (tree, tmp_path / "bin", tmp_path / "opt"):
        directory.mkdir()
    for python in ("bin/python3.13", "bin/python3.14", "opt/python3"):
        (tmp_path / python).write_text("#!/bin/sh\n")
        (tmp_path / python).chmod(0o755)
    (tmp_path / "bin/python3").symlink_to("python3.13")
    (tree / "python").symlink_to(tmp_path / started_with)
    one_file.write_text("#!/usr/bin/env python3\n")
    one_file.chmod(mode)
    monkeypatch.setattr(service, "_SYSTEMD_PLACES", f"{tmp_path}/sbin:{tmp_path}/bin")
    monkeypatch.setattr(sys, "executable", str(tree / "python"))
    monkeypatch.setenv(service.ONE_FILE_VARIABLE, str(one_file))
    in_front = f"{tmp_path / started_with} " if is_named else ""
    assert exec_start(service.unit([])) == f"{in_front}{one_file} agent"
    assert one_file in service._writable_by_others() or os.geteuid() == 0
    if os.geteuid() == 0:
        os.chown(one_file, 65534, 65534)
        assert one_file in service._writable_by_others()


def test_where_systemd_looks_for_programs() -> None:
    """The list of directories for programs has systemd's own directories, in the same order."""
    command = ["systemd-path", "search-binaries-default"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("systemd-path is not installed")
    said = [place for place in done.stdout.strip().split(":") if place]
    assert [place for place in service._SYSTEMD_PLACES.split(":") if place in said] == said, done.stderr


def test_another_installation_has_a_unit_of_its_own() -> None:
    """A package names its own command and says that the unit is its own."""
    unit = service.unit(["--server", "a"], program=("/usr/bin/durability",), origin="Of a package.")
    assert unit.startswith("# Of a package.\n")
    assert exec_start(unit) == "/usr/bin/durability agent --server a"


def test_the_unit_keeps_to_what_the_agent_needs() -> None:
    """The unit has no option that creates a mount namespace, which would hide mounts. A stop signal goes to
    the agent only."""
    unit = service.unit([])
    assert "KillMode=mixed" in unit and "Restart=always" in unit and "WantedBy=multi-user.target" in unit
    assert "\nTimeoutStartSec=15min\n" in unit, (
        "the one file would be killed while it unpacks, again and again"
    )
    head, service_part = unit.split("[Service]")
    assert "StartLimitIntervalSec=0" in head, "an agent that fails five times at a boot would be given up"
    assert "RestrictNamespaces=mnt" in service_part, "verify tries a mount in a mount namespace"
    hiding = ("Private", "ProtectSystem", "ProtectHome", "ReadOnlyPaths", "RuntimeDirectory", "DeviceAllow")
    assert not any(line.startswith(hiding) for line in unit.splitlines())


@pytest.mark.slow
def test_print_shows_the_unit_and_changes_nothing(tmp_path: Path) -> None:
    """`install --print` needs no systemd; its command line has the options that were typed."""
    credential = tmp_path / "credential.json"
    credential_of_nobody(credential)
    done = durability("--credential", credential, "--server", "192.0.2.7", "install", "--print")
    assert done.returncode == 0, done.stderr
    assert exec_start(done.stdout).endswith(f" agent --server 192.0.2.7 --credential {credential}")
    program = exec_start(done.stdout).split()[0]
    assert Path(program).is_absolute() and os.access(program, os.X_OK)


@pytest.mark.slow
@pytest.mark.parametrize("words", [["install"], ["install", "--print"], []])
def test_a_machine_that_has_not_joined_is_refused(tmp_path: Path, words: list[str]) -> None:
    """Without a credential of its own a machine has no name in a campaign: it is told how to join."""
    done = durability("--credential", tmp_path / "none.json", *words, XDG_STATE_HOME=str(tmp_path))
    assert done.returncode == 5
    assert "durability join" in done.stderr and done.stdout == ""


def test_a_machine_without_systemd_is_told_what_to_do(tmp_path: Path) -> None:
    """Without systemd, root is told to start the agent at every boot, and no unit is written."""
    if agent_command.SYSTEMD.is_dir():
        pytest.skip("this machine runs systemd")
    expected = "at every boot" if os.geteuid() == 0 else "needs root"
    with pytest.raises(SetupError, match=expected):
        service.install([], out=io.StringIO(), err=io.StringIO(), units=tmp_path)
    with pytest.raises(SetupError):
        service.uninstall(out=io.StringIO(), units=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_the_agent_is_roots() -> None:
    """A user other than root is told to run the agent as root."""
    done = subprocess.run(
        [sys.executable, "-c", _AS_ANOTHER_USER], capture_output=True, text=True, check=False
    )
    assert "run it as root" in done.stderr
