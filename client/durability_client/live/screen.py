"""The text on the consoles of a live machine: the machine, its drives, the agent's messages, and verdicts.

All functions depend only on their arguments. Text from hardware or a server is made plain.
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
_BELOW = " " * 9  # indent of lines below "Server"
_TROUBLE_LINES_MAX = 5
_LINES_MIN = 3  # least number of lines for the agent's messages
_CUT = ".."  # not an ellipsis, since consoles in text mode have few characters


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that the consoles show."""

    machine: ThisMachine
    drives: Sequence[SeenDrive]
    network: str
    joined: str  # this client's name and the server, or ""
    troubles: Sequence[str]  # why the machine has not joined
    said: Sequence[str]  # the agent's messages, oldest first
    verdicts: Sequence[dict[str, str]]  # rows of the server's list, newest first


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
    """The text in at most `_TROUBLE_LINES_MAX` lines, because its end may contain the remedy."""
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
    """The server's verdicts on this machine's runs."""
    if not view.verdicts:
        return []
    return _fitted(table(VERDICT_COLUMNS, view.verdicts, width=width), width)


def lines(said: Sequence[str], *, width: int) -> list[str]:
    """The agent's messages, cut to `width`."""
    return _fitted(said, width)


def page(view: View, *, width: int, height: int, typed: str | None) -> str:
    """A whole screen. `typed`: the input so far; None if there is no prompt."""
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
    """The typed input; if it is too long, its end, which the user may have to correct."""
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
