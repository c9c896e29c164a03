"""Whether a connection to PostgreSQL must be encrypted and its server's certificate checked.

The store has this server's private key and the secrets of the runs. But libpq by default falls back to plain
text if an attacker between the two machines asks for it. So the certificate is checked for every connection
to another machine, unless the URL or PGSSLMODE says otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address
from itertools import zip_longest
from typing import Any

MODE = "verify-full"
_FAILED = "connection failed", "connection is bad"  # beginnings of psycopg's messages
_ADVICE = (
    f"PostgreSQL on another machine needs TLS with a certificate that can be checked (sslmode={MODE}): add"
    f" ?sslmode={MODE}&sslrootcert=FILE to the URL, FILE being the certificate of its CA. Without a check"
    " sslmode=require only encrypts, and sslmode=disable sends the store's secrets as plain text"
)


def options(connect: Mapping[str, Any]) -> dict[str, str]:
    """Options to add to the connection parameters `connect`, with libpq's names."""
    if "sslmode" in connect or os.environ.get("PGSSLMODE"):
        return {}
    is_elsewhere = "service" in connect or os.environ.get("PGSERVICE")  # only libpq knows that service's host
    if is_elsewhere or not all(map(_is_here, _places(connect))):
        return {"sslmode": MODE}
    return {}


def advice(why: str) -> str:
    """Advice after a connection failed with the driver's message `why`; "" unless TLS was the reason. A
    refusal by PostgreSQL itself came over an existing connection, so TLS was not the reason."""
    failed = why.startswith(_FAILED) and "FATAL:" not in why
    return f". {_ADVICE}" if failed and ("SSL" in why or "certificate" in why) else ""


def _places(connect: Mapping[str, Any]) -> list[str]:
    """The addresses to which libpq connects in turn, or the host for each missing address. libpq takes
    parameters that the URL lacks from the environment."""
    addresses = str(connect.get("hostaddr", os.environ.get("PGHOSTADDR", ""))).split(",")
    hosts = str(connect.get("host", os.environ.get("PGHOST", ""))).split(",")
    return [address or host for address, host in zip_longest(addresses, hosts, fillvalue="")]


def _is_here(host: str) -> bool:
    """Whether `host` is a directory of sockets ("" is the default one), or a loopback name or address."""
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
