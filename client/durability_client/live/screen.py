"""What the consoles of a live machine show: which machine it is, its drives, what it does, its verdicts.

Text only, and a function of its arguments. Whatever comes from hardware or a server is made plain.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import durability
from durability import plain_text
from durability.units import format_size
from durability_client.live.this_machine import SeenDrive, ThisMachine
from durability_client.system.block_devices import node_of
from durability_client.text_tables import table

HOW_TO_JOIN = "Type HOST:PORT CODE (server: `durability clients invite --machines 1`):"
_DRIVE_COLUMNS = ("device", "model", "serial", "size", "writes")
VERDICT_COLUMNS = ("verdict", "run", "registered", "path")
_BELOW = " " * 9  # what is shown below "Server"
_TROUBLE_LINES_MAX = 5
_LINES_MIN = 3  # of the agent
_CUT = ".."  # a console in text mode has few characters


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that is shown. `troubles`: why the machine has not joined; `said`: lines of the agent, oldest
    first; `verdicts`: rows of the server's listing, newest first; `joined`: as whom it is known and where, or
    ""."""

    machine: ThisMachine
    drives: Sequence[SeenDrive]
    network: str
    joined: str
    troubles: Sequence[str]
    said: Sequence[str]
    verdicts: Sequence[dict[str, str]]


def head(view: View, *, width: int) -> list[str]:
    """Machine, network, server and drives."""
    lines = [
        f"durability {durability.__version__}, live image: in memory; writes only to drives that you name",
        "",
        f"Machine  {view.machine.description}",
        f"Network  {view.network or 'no address yet'}",
        f"Server   {view.joined or 'not joined yet'}",
    ]
    for trouble in view.troubles:
        lines += _wrapped(trouble, width)
    lines += ["", *_drives(view, width)]
    return _fitted(lines, width)


def _wrapped(trouble: str, width: int) -> list[str]:
    """Its end may say what to do."""
    return textwrap.wrap(
        plain_text.as_line(trouble),
        width,
        initial_indent=_BELOW,
        subsequent_indent=_BELOW,
        break_on_hyphens=False,
        max_lines=_TROUBLE_LINES_MAX,
        placeholder=f" {_CUT}",
    )


def verdicts(view: View, *, width: int) -> list[str]:
    """The verdicts that the server has of this machine's runs."""
    if not view.verdicts:
        return []
    return _fitted(table(VERDICT_COLUMNS, view.verdicts, width=width), width)


def lines(said: Sequence[str], *, width: int) -> list[str]:
    """Lines of the agent, as they fit."""
    return _fitted(said, width)


def page(view: View, *, width: int, height: int, typed: str | None) -> str:
    """A whole screen. `typed`: what somebody has typed so far; None if nothing is asked."""
    shown = head(view, width=width)
    below = verdicts(view, width=width)
    asked = [] if typed is None else [*_fitted([HOW_TO_JOIN], width), _end_of(typed, width)]
    room = height - len(shown) - len(asked) - 2 - (len(below) + 1 if below else 0)
    if room < _LINES_MIN:
        below = below[: max(0, len(below) - (_LINES_MIN - room))]
        room = _LINES_MIN
    said = lines(view.said[-room:], width=width)
    shown += ["", *said, *([""] if said else []), *below]
    shown = shown[: height - len(asked)]
    shown += [""] * (height - len(shown) - len(asked))
    return "\r\n".join([*shown, *asked])


def _end_of(typed: str, width: int) -> str:
    """What is typed, or its end, which may have to be corrected."""
    line = f"> {plain_text.as_line(typed)}"
    return line if len(line) < width else f"> {_CUT}{line[len(_CUT) + 3 - width :]}"


def _drives(view: View, width: int) -> list[str]:
    if not view.drives:
        return ["No drive is seen."]
    rows = [
        {
            "device": str(node_of(one.name)),
            "model": one.model,
            "serial": one.serial,
            "size": format_size(one.size_bytes),
            "writes": "" if one.writes is None else f"{one.writes} in this boot",
        }
        for one in view.drives
    ]
    return list(table(_DRIVE_COLUMNS, rows, width=width))


def _fitted(texts: Iterable[str], width: int) -> list[str]:
    plain = (plain_text.as_line(text) for text in texts)
    return [line if len(line) <= width else f"{line[: width - len(_CUT)]}{_CUT}" for line in plain]
