"""A client that has joined a server of the tests."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from durability.units import format_address
from durability_client.link.credential import SCHEMA, Credential, save_credential
from durability_client.link.endpoint import Endpoint, endpoint
from durability_lab.support.local_server import join_server
from durability_server.server import Server


async def joined(server: Server, host: str, port: int, *, credential: Path) -> Endpoint:
    """The server as this client has it, which joins it unless the file `credential` says that it has."""
    address = format_address(host, port)
    if not credential.exists():  # noqa: ASYNC240 - a file in memory, or nearly
        await join_server(await server.invite(), address, credential)
    return endpoint(address, credential)


def credential_of_nobody(path: Path) -> None:
    """As `durability join` leaves it in the file `path`, but of a server that there is not."""
    credential = Credential(
        schema=SCHEMA,
        servers=("127.0.0.1:1",),
        fingerprint="00" * 32,
        client="c1",
        secret="00" * 32,
        name="b7",
        role="client",
    )
    save_credential(credential, path)


@contextmanager
def kept_locked(path: Path) -> Iterator[None]:
    """Another command, which was suspended, keeps the credential in the file `path` locked."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


NOWHERE = Endpoint(addresses=(("127.0.0.1", 1),), fingerprint=bytes(32))  # where no server is
