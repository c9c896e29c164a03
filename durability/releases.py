"""Different releases: what to upgrade if two releases do not understand each other, and how.

The messages here are for a server and client without a common protocol version, and for a store newer than
its server. It is unknown how another machine was installed. So a message gives the command line for the
wheel; the guide `upgrade` has the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import durability

_SOFTWARE = re.compile(r"durability (\d[\w.+-]{0,30})", re.ASCII)


def upgrade_line(version: str) -> str:
    """The command to type on a machine that needs release `version`."""
    return f"pipx install --force ./durability-{version}-py3-none-any.whl"


def no_common_version(software: str, offered: Sequence[int], spoken: Sequence[int]) -> str:
    """Why a server that speaks the versions `spoken` of the protocol refuses the client `software`, which
    offers other versions, and the remedy: upgrade the older of the two."""
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
    """Why a server refuses the client `software`, whose purpose the server does not know."""
    match = _SOFTWARE.fullmatch(software)
    line = upgrade_line(match[1] if match else "VERSION")
    return (
        f"the server (durability {durability.__version__}) does not know the purpose {purpose!r} of this"
        f" client ({software}). Upgrade the server's machine: {line}, then start it again"
    )


def too_old_for(what: str, version: int, needed: int) -> str:
    """Why this client does not send `what` to a server with which it speaks protocol `version`."""
    return (
        f"the server is of an earlier release: it speaks protocol {version}, and {what} needs {needed}."
        f" Upgrade the server's machine: {upgrade_line(durability.__version__)}, then start it again"
    )


def _listed(versions: Sequence[int]) -> str:
    return " and ".join(map(str, sorted(versions)))
