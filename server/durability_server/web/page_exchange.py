"""Messages between the server and the process of its live page, one JSON line each, through pipes.

The server first sends `PageSettings` and then a `Pulse` every second. The process reports that it is alive.
The address of a database may have a password, so it is sent here and not on the command line, which all users
can read.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from durability.formats.documents import from_json, from_value, to_json

PULSE_S = 1.0  # interval of pulses and of reports
ALIVE = b"alive\n"  # the report of the process


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """The settings of the process."""

    store_url: str
    descriptor: int  # descriptor of the bound socket
    host: str  # address of the bound socket
    open: bool  # whether all who reach the page may read it, else TLS and a viewer's credential are required


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """State of the server that is not in the store."""

    commits: int = 0  # number of group commits
    commits_ns: int = 0  # their total duration
    failure: str = ""  # why the store cannot be written, "" if it can
    # For how many seconds each agent has been silent, by campaign and machine.
    silent_s: dict[str, dict[str, float]] = field(default_factory=dict)


def line_of(what: PageSettings | Pulse) -> bytes:
    """The message as one line."""
    return f"{to_json(asdict(what))}\n".encode()


def settings_of(line: bytes) -> PageSettings:
    """The settings in a line of `line_of`. Raises FormatError."""
    return from_value(PageSettings, from_json(line))


def pulse_of(line: bytes) -> Pulse:
    """The pulse in a line of `line_of`. Raises FormatError."""
    return from_value(Pulse, from_json(line))
