"""Releases beside each other: what to upgrade where two of them do not understand each other, and how.

A server and a client that have no version of the protocol in common, and a store that is newer than its
server, are refused with the words that are made here. Refuses to guess how another machine was installed: the
line is the one for the wheel, and the guide `upgrade` has the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import durability

_SOFTWARE = re.compile(r"durability (\d[\w.+-]{0,30})", re.ASCII)


def upgrade_line(version: str) -> str:
    """What to type on a machine that is to have release `version`."""
    return f"pipx install --force ./durability-{version}-py3-none-any.whl"


def no_common_version(software: str, offered: Sequence[int], spoken: Sequence[int]) -> str:
    """Why a server that speaks these versions of the protocol refuses a client that is `software` and offers
    others, and what to do: the older of the two is to be upgraded."""
    match = _SOFTWARE.fullmatch(software)
    theirs = match[1] if match else ""
    what = (
        f"this client ({software or 'of an unknown release'}) speaks protocol {_listed(offered)}, the server"
        f" (durability {durability.__version__}) {_listed(spoken)}."
    )
    if max(offered) < min(spoken):
        return f"{what} Upgrade the client's machine: {upgrade_line(durability.__version__)}"
    return f"{what} Upgrade the server's machine: {upgrade_line(theirs or 'VERSION')}, then start it again"


def unknown_purpose(purpose: str, software: str) -> str:
    """Why a server refuses a client that is `software` and comes for what the server does not know."""
    match = _SOFTWARE.fullmatch(software)
    line = upgrade_line(match[1] if match else "VERSION")
    return (
        f"the server (durability {durability.__version__}) does not know the purpose {purpose!r} of this"
        f" client ({software}). Upgrade the server's machine: {line}, then start it again"
    )


def too_old_for(what: str, version: int, needed: int) -> str:
    """Why this client does not send `what` to a server with which it speaks `version` of the protocol."""
    return (
        f"the server is of an earlier release: it speaks protocol {version}, and {what} needs {needed}."
        f" Upgrade the server's machine: {upgrade_line(durability.__version__)}, then start it again"
    )


def _listed(versions: Sequence[int]) -> str:
    return " and ".join(map(str, sorted(versions)))
