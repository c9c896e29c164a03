"""Whether a connection to PostgreSQL must be encrypted, and its server's certificate checked.

The store has the key of this server and the secrets of the runs, and libpq's own default falls back to plain
text wherever somebody between the two asks for it. So beyond this machine the certificate is checked, unless
the URL or PGSSLMODE says otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address
from itertools import zip_longest
from typing import Any

MODE = "verify-full"
_FAILED = "connection failed", "connection is bad"  # as psycopg says it
_ADVICE = (
    f"PostgreSQL on another machine needs TLS with a certificate that can be checked (sslmode={MODE}): add"
    f" ?sslmode={MODE}&sslrootcert=FILE to the URL, FILE being the certificate of its CA. Without a check"
    " sslmode=require only encrypts, and sslmode=disable sends the store's secrets as plain text"
)


def options(connect: Mapping[str, Any]) -> dict[str, str]:
    """What to add to the parameters of a connection, `connect`, as libpq has them."""
    if "sslmode" in connect or os.environ.get("PGSSLMODE"):
        return {}
    is_elsewhere = "service" in connect or os.environ.get("PGSERVICE")  # what that names is libpq's to know
    if is_elsewhere or not all(map(_is_here, _places(connect))):
        return {"sslmode": MODE}
    return {}


def advice(why: str) -> str:
    """What to do where a connection failed for the reason `why`, as the driver has it; "" unless that is TLS.
    What PostgreSQL itself refuses is not: it came over a connection that was made."""
    failed = why.startswith(_FAILED) and "FATAL:" not in why
    return f". {_ADVICE}" if failed and ("SSL" in why or "certificate" in why) else ""


def _places(connect: Mapping[str, Any]) -> list[str]:
    """Where libpq connects to, one after the other until it is connected: each address, or the host where
    there is none. It takes from the environment whatever the URL lacks."""
    addresses = str(connect.get("hostaddr", os.environ.get("PGHOSTADDR", ""))).split(",")
    hosts = str(connect.get("host", os.environ.get("PGHOST", ""))).split(",")
    return [address or host for address, host in zip_longest(addresses, hosts, fillvalue="")]


def _is_here(host: str) -> bool:
    """Whether this is a directory of sockets (the default one is ""), or a name or address of loopback."""
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
