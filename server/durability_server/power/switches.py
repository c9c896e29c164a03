"""The program to run for a request to a switch, the meaning of its exit code, and the identity of a switch.

Each kind of switch is a program with the contract of fence agents. It reads options and `action` from stdin.
Its exit code is 0 for done or on, and 2 for off. Fence agents are such programs. `plug_agent` is one for
Tasmota and Shelly. Of kind `commands` there are three commands. A program gets secrets only on its stdin.
"""

from __future__ import annotations

import difflib
import hashlib
import shlex
import shutil
import sys
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from durability.errors import SetupError
from durability_server.power import switch_programs
from durability_server.power.exchange import SwitchAccess
from durability_server.power.fence_metadata import Metadata, secret_name
from durability_server.power.secret_files import read_secret

if TYPE_CHECKING:  # the controller loads nothing that has threads, see `exchange`
    from durability.campaign.log_entries import SwitchOutcome

Action: TypeAlias = Literal["on", "off", "status"]

# Options of a fence agent that select an outlet of a device. Old names stand beside new ones.
_PLACE = (
    *(("ip", "ipaddr"), ("ipport",), ("plug", "port"), ("switch",), ("systems_uri",)),
    *(("managed",), ("suborg",), ("pve_node", "node_name", "nodename")),
)

# Secrets of all agents. For other options the agent's metadata say whether the agent itself reads the file.
_COMMON_SECRETS = frozenset({"password_file", "passwd_file", "community_file", "snmp_priv_passwd_file"})

# Module paths of this Python, which the Python of a fence agent must not use.
_PYTHON = frozenset({"PYTHONPATH", "PYTHONHOME"})

_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "tasmota": frozenset({"relay", "username", "password_file"}),
    "shelly": frozenset({"switch", "password_file"}),
    "commands": frozenset({"on", "off", "status"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchCommand:
    """A program to run."""

    argv: tuple[str, ...]
    given: str  # input for its stdin
    secrets: tuple[str, ...]  # secrets that must be removed from every text
    leave_out: frozenset[str] = frozenset()  # environment variables that it does not get


def identity(switch: SwitchAccess) -> str:
    """A name for the switch. Tables for the same outlet have the same name, even with different agents."""
    options = switch.options
    place = [next((options[name] for name in names if name in options), "") for names in _PLACE]
    if switch.kind == "tasmota":
        parts = [plug_address(switch.agent), options.get("relay", "1")]
    elif switch.kind == "shelly":
        parts = [plug_address(switch.agent), options.get("switch", "0")]
    elif switch.kind == "fence" and place[0]:
        parts = [part.lower() for part in place]
    elif switch.kind == "commands":
        parts = [options.get("off", "")]
    else:
        parts = [switch.agent, *(f"{key}={options[key]}" for key in sorted(options))]
    return hashlib.sha256("\0".join([switch.kind, *parts]).encode()).hexdigest()[:24]


def plug_address(address: str) -> str:
    """The URL of a switch given as host or URL, without a slash at its end."""
    url = (address if "://" in address else f"http://{address}").rstrip("/").lower()
    return url.removesuffix(":80") if url.startswith("http://") else url.removesuffix(":443")


def agent_path(agent: str) -> str:
    """Path of the fence agent. Raises SetupError if it is not installed."""
    path = shutil.which(agent, path=switch_programs.search_path())
    if path is None:
        package = agent.removeprefix("fence_").replace("_", "-")
        raise SetupError(
            f"{agent} is not installed on the server: install the package fence-agents (Debian 12), or where"
            f" each agent has a package of its own, fence-agents-{package}"
        )
    return path


def needs_metadata(switch: SwitchAccess) -> bool:
    """Whether `command` needs the agent's metadata: only they say whether `NAME_file` has a secret."""
    return switch.kind == "fence" and any(
        key.endswith("_file") and key not in _COMMON_SECRETS for key in switch.options
    )


def command(switch: SwitchAccess, action: Action, metadata: Callable[[], Metadata]) -> SwitchCommand:
    """The program that asks the switch. `metadata` is called for a fence agent if `needs_metadata`. Raises
    SetupError if options or files of secrets are invalid."""
    if switch.kind == "fence":
        known = metadata() if needs_metadata(switch) else None
        names = {key: _secret_name(key, known) for key in switch.options}
        made = _with_options((agent_path(switch.agent),), switch, action, names)
        return replace(made, leave_out=_PYTHON)
    _check_options(switch)
    if switch.kind == "commands":
        return SwitchCommand(argv=_words(switch, action), given="", secrets=())
    program = (sys.executable, "-P", "-m", "durability_server.power.plug_agent")
    names = {key: key.removesuffix("_file") if key.endswith("_file") else None for key in switch.options}
    address = _checked_address(switch)
    return _with_options((*program, switch.kind, address), switch, action, names)


def metadata_command(switch: SwitchAccess) -> SwitchCommand:
    """The program that asks a fence agent for its metadata. Raises SetupError."""
    path = agent_path(switch.agent)
    return SwitchCommand(argv=(path,), given="action=metadata\n", secrets=(), leave_out=_PYTHON)


def outcome(switch: SwitchAccess, action: Action, code: int, errors: str) -> SwitchOutcome:
    """The result shown by the exit code of a program that wrote `errors` to stderr."""
    if action != "status":
        return "done" if code == 0 else "failed"
    if code == 2 and switch.kind == "commands" and errors.strip():
        return "failed"  # a shell, Python or grep that misses a file also exits with 2, which is not "off"
    return "on" if code == 0 else "off" if code == 2 else "failed"


def check_commands(switch: SwitchAccess) -> None:
    """Raises SetupError if one of the commands is missing or its program is not installed."""
    _check_options(switch)
    for action in ("on", "off", "status"):
        program = _words(switch, action)[0]
        if shutil.which(program, path=switch_programs.search_path()) is None:
            raise SetupError(f"the command {action} cannot be run: there is no program {program}")


def _secret_name(key: str, metadata: Metadata | None) -> str | None:
    if key in _COMMON_SECRETS:
        return key.removesuffix("_file")
    return None if metadata is None else secret_name(key, metadata)


def _with_options(
    argv: tuple[str, ...], switch: SwitchAccess, action: Action, secret_names: Mapping[str, str | None]
) -> SwitchCommand:
    """Adds the options to `argv`. `secret_names`: for each option the option whose secret its file has, or
    None. Raises SetupError."""
    lines, secrets = [f"action={action}"], []
    for key, value in switch.options.items():
        name = secret_names[key]
        if name is not None:
            secrets.append(read_secret(value))
        lines.append(_option_line(name or key, value if name is None else secrets[-1]))
    given = "".join(f"{line}\n" for line in lines)
    if len(given.encode()) > switch_programs.GIVEN_BYTES_MAX:
        raise SetupError(f"the options have more than {switch_programs.GIVEN_BYTES_MAX:,} bytes in all")
    return SwitchCommand(argv=argv, given=given, secrets=tuple(secrets))


def _option_line(name: str, value: str) -> str:
    """An option as agents read it: they strip a line, and one pair of quotes around the value. Raises
    SetupError."""
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in name + value) or "=" in name:
        raise SetupError(f"the option {name!r} or its value has a newline or another control character")
    quoted = value != value.strip() or (len(value) > 1 and value[0] == value[-1] == '"')
    return f'{name}="{value}"' if quoted else f"{name}={value}"


def _check_options(switch: SwitchAccess) -> None:
    known = sorted(_OPTIONS[switch.kind])
    for key in switch.options:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            meant = f": did you mean {near[0]}?" if near else f": it has {', '.join(known)}"
            raise SetupError(f"{switch.kind} has no option {key}{meant}")
    for key in ("relay", "switch"):
        number = switch.options.get(key, "1")
        if not number.isdecimal() or len(number) > 3:
            raise SetupError(f"{key} is {number!r}, expected a number")


def _words(switch: SwitchAccess, action: str) -> tuple[str, ...]:
    line = switch.options.get(action, "")
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise SetupError(f"the command {action} = {line!r} cannot be split into words: {error}") from None
    if not words:
        raise SetupError(f"the command {action} is missing: on, off and status are needed")
    return words


def _checked_address(switch: SwitchAccess) -> str:
    address = plug_address(switch.agent)
    try:
        parts = urllib.parse.urlsplit(address)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.path or parts.query or parts.fragment:
        raise SetupError(f"{switch.agent!r} is not an address: write HOST, HOST:PORT or http://HOST")
    if parts.username is not None or parts.password is not None:
        raise SetupError("the address holds a user or a password: set username and password_file instead")
    return address
