"""A BMC: OpenIPMI's `ipmi_sim`, which speaks IPMI on UDP like the BMC of a server.

The caller supplies a command that switches the power, so that a machine can be behind the BMC. The BMC is not
secure: its user is `operator`, and it listens on 127.0.0.1 only.
"""

from __future__ import annotations

import shlex
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from durability.errors import SetupError
from durability_server.power.switch_programs import search_path

USERNAME: Final = "operator"
CIPHER: Final = "3"  # without this option, ipmitool tries other ciphers first, which may take 14 s

_HOST = "127.0.0.1"
_ADDRESS = "0x20"
_PING = bytes.fromhex("0600ff06000011be80000000")  # RMCP presence ping
_TIMEOUT_S = 120.0
_POLL_S = 0.1
_ATTEMPTS = 10

_LAN = """name "bmc"
set_working_mc {address}
  startlan 1
    addr {host} {port}
    priv_limit admin
    allowed_auths_admin md5 none
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "{chassis}"
  user 1 true "" "{password}" user 10 none md2 md5 straight
  user 2 true "{username}" "{password}" admin 10 none md2 md5 straight
"""
_COMMANDS = """mc_setbmc {address}
mc_add {address} 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable {address} 1000 0x0a
mc_enable {address}
"""


def missing() -> str:
    """The programs that are not installed, as a sentence; "" if all are."""
    absent = [program for program in ("ipmi_sim", "ipmitool", "fence_ipmilan") if not _find(program)]
    return f"{', '.join(absent)} not installed (Debian: openipmi, ipmitool, fence-agents)" if absent else ""


class Bmc:
    """A BMC that runs within the block, with its files in `directory`.

    `chassis` is a program. The BMC calls it as `chassis get power`, which prints `power:1` or `power:0`, and
    as `chassis set power 1` or `0`, and waits for it. `password` has at most 16 characters and no space.
    """

    def __init__(self, directory: Path, *, chassis: Path, password: str) -> None:
        """Raises SetupError if programs are missing."""
        if problem := missing():
            raise SetupError(problem)
        self._directory = directory
        self._script = directory / "chassis_control"
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        # ipmi_sim passes the controller's address before the command's own arguments.
        self._script.write_text(f'#!/bin/sh\nshift\nexec {shlex.quote(str(chassis))} "$@"\n')
        self._script.chmod(0o755)

    @property
    def options(self) -> dict[str, str]:
        """The options with which `fence_ipmilan` reaches the BMC, without the password."""
        return {
            "ip": _HOST,
            "ipport": str(self.port),
            "username": USERNAME,
            "lanplus": "1",
            "cipher": CIPHER,
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Starts the BMC, at its earlier port if it had one; returns when it answers. Raises SetupError."""
        for _ in range(_ATTEMPTS):
            port = self.port or _free_port()
            self._write(port)
            self._process = subprocess.Popen(
                [
                    *(str(_find("ipmi_sim")), "-n", "-d"),
                    *("-c", self._directory / "lan.conf", "-f", self._directory / "commands"),
                    *("-s", self._directory),
                ],
                stdin=subprocess.DEVNULL,
                stdout=(self._directory / "log").open("wb"),
                stderr=subprocess.STDOUT,
            )
            if self._answers(port):
                self.port = port
                return
            self.kill()
        raise SetupError(f"ipmi_sim does not answer: {(self._directory / 'log').read_text(errors='replace')}")

    @property
    def process_id(self) -> int:
        """Process id of the running BMC."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    def kill(self) -> None:
        """Kills the BMC, which can be started again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _write(self, port: int) -> None:
        values = {
            "address": _ADDRESS,
            "host": _HOST,
            "port": port,
            "chassis": f"{self._script} {_ADDRESS}",
            "username": USERNAME,
            "password": self._password,
        }
        (self._directory / "lan.conf").write_text(_LAN.format(**values))
        (self._directory / "commands").write_text(_COMMANDS.format(**values))

    def _answers(self, port: int) -> bool:
        """Whether the BMC answers; False if it has ended, for example because its port is in use."""
        assert self._process is not None
        deadline_s = time.monotonic() + _TIMEOUT_S
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
            asker.settimeout(_POLL_S)
            while self._process.poll() is None and time.monotonic() < deadline_s:
                asker.sendto(_PING, (_HOST, port))
                with suppress(TimeoutError):
                    if asker.recv(1024):
                        return True
        return False


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind((_HOST, 0))
        return int(found.getsockname()[1])


def _find(program: str) -> str | None:
    return shutil.which(program, path=search_path())
