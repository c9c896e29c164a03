"""What the server and the process of its live page say to each other, one JSON line each, through pipes.

The server begins with `PageSettings` and then says its `Pulse` every second; the process says that it lives.
The address of a database may have a password, so it comes here and not on the command line, which all can
read.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from durability.formats.documents import from_json, from_value, to_json

PULSE_S = 1.0
ALIVE = b"alive\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """What the process needs: the store, the descriptor of the bound socket, and the host it is bound to.
    `open`: whoever reaches the page may read it; else it takes TLS and a viewer's credential."""

    store_url: str
    descriptor: int
    host: str
    open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """What is in no store: how many group commits there were and how long they took together, why the store
    cannot be written ("" if it can), and by campaign and machine for how long its agent has been silent."""

    commits: int = 0
    commits_ns: int = 0
    failure: str = ""
    silent_s: dict[str, dict[str, float]] = field(default_factory=dict)


def line_of(what: PageSettings | Pulse) -> bytes:
    """One line."""
    return f"{to_json(asdict(what))}\n".encode()


def settings_of(line: bytes) -> PageSettings:
    """What `line_of` wrote. Raises FormatError."""
    return from_value(PageSettings, from_json(line))


def pulse_of(line: bytes) -> Pulse:
    """What `line_of` wrote. Raises FormatError."""
    return from_value(Pulse, from_json(line))
