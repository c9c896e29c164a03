"""`durability join`: makes this machine a client of a server, once, with a code that the server gave.

The code contains the server's fingerprint, so the server is authenticated before any data are sent. It also
contains a secret, which proves that the server's operator invited this client. A second connection tests the
new credential before the command ends. A credential that works is replaced only with `force`. The code is
used only after space for the credential has been reserved.
"""

from __future__ import annotations

import socket
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from durability.errors import FormatError, SetupError, UsageError
from durability.protocol.join_code import parse_join_code
from durability.protocol.local_address import PORT
from durability.protocol.messages import Join, Joined, JoinMachine
from durability.units import format_address, parse_address
from durability_client.link.credential import (
    SCHEMA,
    Credential,
    TakenError,
    credential_path,
    load_credential,
    place_for_credential,
)
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import connect


async def join(
    server: str,
    code: str,
    *,
    name: str,
    credential: Path | None,
    force: bool,
    out: TextIO,
    machine: str = "",
) -> None:
    """Join `server` (HOST or HOST:PORT) as `name`; "" stands for this machine's host name.

    The credential is stored in the file `credential`, by default where every command looks for it. `force`
    replaces an existing one. `machine`: identity of a machine that does not store its credential across
    boots, else "".

    Raises UsageError, SetupError, FormatError for a torn credential without `force`, PeerError, and
    RefusedError for a code that is no longer valid. SetupError also if another `join` made the file
    meanwhile.
    """
    path = credential or credential_path()
    earlier = _require_free(path, force=force)
    parsed = parse_join_code(code)
    address = parse_address(server, port=PORT)
    stranger = Endpoint(addresses=(address,), fingerprint=parsed.fingerprint, secret=parsed.secret)
    with place_for_credential(path, replaces=force) as save:  # first, because the code can be used only once
        with closing(await connect(stranger, "join")) as connection:
            fingerprint = connection.server_fingerprint
            named = name or socket.gethostname()
            asked = JoinMachine(name=named, machine=machine) if machine else Join(name=named)
            joined = await connection.request(asked, Joined)
        made = Credential(
            schema=SCHEMA,
            servers=(format_address(*address),),
            fingerprint=fingerprint.hex(),
            client=joined.client,
            secret=joined.secret.hex(),
            name=joined.name,
            role=joined.role,
        )
        try:
            save(made)
        except TakenError as error:
            raise SetupError(
                f"{error}. So this machine cannot use the client {made.name} that this join has made: type"
                f" `durability clients revoke {made.client}` on the server's machine"
            ) from error
    member = replace(
        stranger, fingerprint=fingerprint, client=joined.client, secret=joined.secret, credential=path
    )
    with closing(await connect(member, "query")):
        print(f"Joined {member} as {joined.name} ({joined.role}); the credential is in {path}.", file=out)
    if earlier is not None and earlier.fingerprint == fingerprint.hex():
        lost = f"Runs that this machine began as {earlier.name} are another client's now"
        print(f"{lost}: only an operator can verify them.", file=out)
    if earlier is not None:
        restart = "`systemctl restart durability-agent`"
        print(f"If the agent runs on this machine, restart it: {restart}.", file=out)


def _require_free(path: Path, *, force: bool) -> Credential | None:
    """The credential to be replaced, if it can be read.

    Without `force`, raises UsageError if a credential would be lost, and FormatError if a torn one, or one of
    another release, would be lost. Raises SetupError for a file that others can read.
    """
    try:
        earlier = load_credential(path)
    except FormatError:
        if force:
            return None
        raise
    if earlier is not None and not force:
        raise UsageError(
            f"{path} says that this machine has joined {', '.join(earlier.servers)} as {earlier.name}: add"
            " --force to replace it, or name another file with --credential"
        )
    return earlier
