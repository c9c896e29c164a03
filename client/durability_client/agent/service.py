"""`durability agent install` and `uninstall`: the systemd unit that starts the agent at every boot.

The unit is replaced atomically, and synced with the link that enables it, because the machine's power will be
cut. The Debian package contains the unit without options. With the package, `install` without options enables
that unit, which upgrades renew.

The unit has no mount namespace of its own, because other processes must see the agent's mounts. So systemd
options that need one are not used. On a machine without systemd, the error says what to do.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import durability
from durability.errors import SetupError
from durability_client.agent.agent_command import SYSTEMD
from durability_client.system.output_files import sync_directory
from durability_client.system.processes import own_command
from durability_client.system.programs import run_tool

NAME = "durability-agent.service"
ONE_FILE_VARIABLE = "DURABILITY_ONE_FILE"  # the one file that unpacked, and checks, this installation
_CACHE_VARIABLE = "XDG_CACHE_HOME"  # where the one file unpacks, if not in the home directory
_UNITS = Path("/etc/systemd/system")
# Directories in which systemd looks for programs, in this order, unless its settings differ.
_SYSTEMD_PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PACKAGE = Path("/usr/lib/durability")  # environment of the Debian package
# A package has compiled and synced modules. A module that is compiled later might be torn by the next cut.
_OF_PACKAGE = "Environment=PYTHONDONTWRITEBYTECODE=1\n"
_WANTS = "multi-user.target.wants"
_PLAIN = re.compile(r"[A-Za-z0-9@_=+./:,-]+")
_ORIGIN = "Written by `durability agent install`; `durability agent uninstall` removes it."
_UNIT = """\
# {origin}
[Unit]
Description=durability agent: does the tasks of power-loss campaigns
After=local-fs.target network.target
# A campaign waits for it: it is started again however often it fails, as before its credential is mounted.
StartLimitIntervalSec=0

[Service]
Type=notify
{environment}ExecStart={command}
# The one file first checks what it unpacked, and unpacks it again if it must: minutes on a slow stick.
TimeoutStartSec=15min
# An agent that hangs is started again. Programs that it waits for do not make it hang.
WatchdogSec=120
Restart=always
RestartSec=1
# A signal is for the agent alone: it ends its runs in order. What is left then is killed.
KillMode=mixed
TimeoutStopSec=150
SuccessExitStatus=143
# A run that takes too much memory is not to take the agent with it.
OOMPolicy=continue
OOMScoreAdjust=-500
UMask=0077
# It mounts, writes to devices and asks drives for their counters, so it is root with these capabilities.
CapabilityBoundingSet=CAP_SYS_ADMIN CAP_SYS_RAWIO CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_CHOWN \\
 CAP_KILL CAP_IPC_LOCK CAP_SYS_PTRACE CAP_SYSLOG CAP_SYS_NICE CAP_SYS_RESOURCE CAP_SYS_BOOT
NoNewPrivileges=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictRealtime=yes
RestrictSUIDSGID=yes
# `verify` tries a mount in a mount namespace.
RestrictNamespaces=mnt
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""


def unit(options: Sequence[str], *, program: Sequence[str] = (), origin: str = _ORIGIN) -> str:
    """The text of the unit. `options`: of the agent's command line. `program`: by default this installation's
    command. `origin`: a sentence about the origin of the unit."""
    command = " ".join(_of_command(word) for word in (*(program or _program()), "agent", *options))
    environment = _OF_PACKAGE if program else _environment()
    return _UNIT.format(command=command, environment=environment, origin=origin)


def install(options: Sequence[str], *, out: TextIO, err: TextIO, units: Path = _UNITS) -> None:
    """Write the unit, and make systemd start it now and at every boot. Raises SetupError."""
    _require_systemd(
        "have its init start `durability agent` as root at every boot, and again if it ends;"
        " `durability agent install --print` prints a systemd unit as a model"
    )
    for path in _writable_by_others():
        print(
            f"warning: {path} can be changed by another user than root, and the agent runs it as root:"
            " install durability where only root can write",
            file=err,
        )
    path = units / NAME
    if _of_package() and not options:
        _remove(path)
    else:
        _write(path, unit(options))
    _remove(units / _WANTS / NAME)  # systemd does not replace a link to a unit at another path
    for command in (("daemon-reload",), ("enable", NAME), ("restart", NAME)):
        _systemctl(*command)
    for directory in (units / _WANTS, units):
        with suppress(OSError):  # not made
            sync_directory(directory)
    print(f"The agent runs, and starts at every boot ({NAME}). Its log: journalctl -u {NAME}", file=out)


def uninstall(*, out: TextIO, units: Path = _UNITS) -> None:
    """Stop the agent, and remove its unit from systemd. Raises SetupError."""
    _require_systemd("stop what starts `durability agent` there")
    path = units / NAME
    if not (path.exists() or _of_package()):
        raise SetupError(f"{path} does not exist: `durability agent install` was not used on this machine")
    _systemctl("disable", "--now", NAME)
    _remove(path)
    with suppress(OSError):
        sync_directory(units)
    _systemctl("daemon-reload")
    print("The agent is stopped, and no longer starts at boot.", file=out)


def _require_systemd(otherwise: str) -> None:
    if os.geteuid() != 0:
        raise SetupError("`durability agent install` and `uninstall` need root: type `sudo` before them")
    if not SYSTEMD.is_dir():
        raise SetupError(f"this machine does not run systemd: {otherwise}")


def _of_package() -> bool:
    """Whether this is the Debian package's installation."""
    return Path(sys.prefix) == _PACKAGE


def _remove(path: Path) -> None:
    """Remove a unit, or the link that enables it, if it exists. Raises SetupError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise SetupError(f"cannot remove {path}: {error.strerror}") from error


def _program() -> tuple[str, ...]:
    """The command that starts this installation: its script or one file, with its Python if needed."""
    if one_file := os.environ.get(ONE_FILE_VARIABLE):
        python = _python_of_one_file()
        return (one_file,) if _is_program(Path(one_file)) and _is_default(python) else (python, one_file)
    script = Path(sys.executable).with_name("durability")
    return (str(script),) if os.access(script, os.X_OK) else own_command()


def _is_program(file: Path) -> bool:
    """Whether systemd can execute it: it has the permission, and its mount is not `noexec`."""
    try:
        return os.access(file, os.X_OK) and not os.statvfs(file).f_flag & os.ST_NOEXEC
    except OSError:
        return False


def _python_of_one_file() -> str:
    """The Python with which the one file was started: the unpacked installation has a link to it."""
    own = Path(sys.executable)
    return str(own.parent / own.readlink()) if own.is_symlink() else str(own)


def _is_default(python: str) -> bool:
    """Whether systemd would use this Python for a script that asks for `python3`."""
    found = shutil.which("python3", path=_SYSTEMD_PLACES)
    try:
        return found is not None and Path(found).samefile(python)
    except OSError:
        return False


def _environment() -> str:
    """The environment line with which the one file unpacks to the same place after a boot; "" if none."""
    cache = os.environ.get(_CACHE_VARIABLE, "")
    if ONE_FILE_VARIABLE not in os.environ or not cache.startswith("/"):
        return ""
    return f"Environment={_quoted(_escaped(f'{_CACHE_VARIABLE}={cache}'))}\n"


def _writable_by_others() -> list[Path]:
    """Files that the agent runs as root, but that other users may change."""
    found = []
    program = (Path(word) for word in _program() if word.startswith("/"))
    for path in dict.fromkeys((Path(sys.executable), *program, Path(durability.__file__).parent)):
        for part in (path, *path.resolve().parents):
            with suppress(OSError):
                status = part.stat()
                loose = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX
                if status.st_uid != 0 or loose:
                    found.append(path)
                    break
    return found


def _of_command(word: str) -> str:
    """`word` quoted for ExecStart, where `$` is special, too."""
    return _quoted(_escaped(word).replace("$", "$$"))


def _escaped(word: str) -> str:
    """`word` escaped for systemd's quotes: `%` is special, and quotes and backslashes are as in C."""
    return word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _quoted(escaped: str) -> str:
    return escaped if _PLAIN.fullmatch(escaped) else f'"{escaped}"'


def _write(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}")
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o644)
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise SetupError(f"cannot write {path}: {error.strerror}") from error


def _systemctl(*words: str) -> None:
    done = run_tool("systemctl", *words, timeout_s=200.0)
    if done.returncode:
        raise SetupError(f"systemctl {' '.join(words)}: {done.stderr.strip() or done.returncode}")
