"""Codes for machines that keep nothing on a disk, and the machines that joined by them.

Such a machine joins after every boot by the same code. It sends what identifies it, and becomes the same
client as before, with a new secret. So the code is worth as much as the secrets of all its machines. It
expires, it admits a limited number of machines, and revoking it revokes them. All calls block and run in the
store's threads; each is one transaction. The store has only hashes of codes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Connection, Row, func, insert, select, update

from durability.errors import RefusedError
from durability.formats.packing import Value
from durability.protocol.auth import Role
from durability_server.store import tables
from durability_server.store.client_store import (
    INVITATIONS_MAX,
    Client,
    add_client,
    fit_name,
    free_name,
    require_free,
    require_not_made_later,
    require_still_free,
)
from durability_server.store.database import Database

_AGAIN = "type `durability clients invite --machines N` on the server's machine for another"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCode:
    """A code in the store."""

    hash: bytes
    name: str  # name for its machines, "" if each machine chooses its name
    machines: int  # number of machines that may join
    expires: int  # Unix seconds


class MachineStore:
    """The codes and machines in `database`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, hash_: bytes, *, now: int) -> MachineCode | None:
        """The code with this hash, None if no code for machines has it. Raises RefusedError "code-used" if
        the code was revoked, and "code-expired" if it has expired."""
        with self._database.reading() as db:
            row = _found(db, hash_, now=now)
        if row is None:
            return None
        return MachineCode(hash=row.hash, name=row.name, machines=row.machines, expires=row.expires)

    def invite(self, code: MachineCode, *, wall: str, now: int) -> None:
        """Adds a code. Raises RefusedError "too-many" or "bad-request". Raises "name-taken" only for a code
        of one machine, because several machines get numbers after their name."""
        columns = tables.machine_codes.c
        name = fit_name(code.name) if code.name else ""
        with self._database.transaction() as db:
            if name and code.machines == 1:
                require_free(db, name)
            open_ = select(func.count()).where(columns.revoked == "", columns.expires > now)
            if db.execute(open_).scalar_one() >= INVITATIONS_MAX:
                raise RefusedError(
                    "too-many",
                    f"{INVITATIONS_MAX} codes for machines are open: `durability clients` lists them, and"
                    " `durability clients revoke ID` removes one",
                )
            db.execute(
                insert(tables.machine_codes).values(
                    hash=code.hash, name=name, machines=code.machines, expires=code.expires, created=wall
                )
            )

    def join(self, hash_: bytes, machine: str, client: Client, *, wall: str, now: int) -> tuple[Client, bool]:
        """Joins `machine` by the code with this hash. A machine that joined before becomes the same client
        with the new secret. Another one becomes `client` with a name that no other client has. Returns the
        client as stored, and whether it joined before. Raises what `find` raises, and RefusedError
        "code-unknown", "bad-request", "machine-revoked", "code-used", "name-taken" and "too-many". For a new
        machine, also raises "code-expired" if the code was made later than `now`."""
        with self._database.transaction() as db:
            code = _found(db, hash_, now=now)
            if code is None:
                raise RefusedError("code-unknown", f"this server does not know this code: {_AGAIN}")
            if not machine:
                raise RefusedError(
                    "bad-request",
                    "this code joins machines that run the live image: on another machine use the line of"
                    " `durability clients invite`",
                )
            known = _joined(db, hash_, machine)
            if known is not None:
                if known.revoked:
                    raise RefusedError(
                        "machine-revoked",
                        f"this machine was {known.name}, which was revoked at {known.revoked}: {_AGAIN}",
                    )
                row = tables.clients.c.id == known.id
                db.execute(update(tables.clients).where(row).values(hash=client.hash))
                return Client(
                    id=known.id, name=known.name, role=cast(Role, known.role), hash=client.hash
                ), True
            # Known machines may join even if the server's clock is behind, as after its own boot.
            made = int(datetime.fromisoformat(code.created).timestamp())
            require_not_made_later(code.expires, valid_s=code.expires - made, now=now)
            of_code = select(func.count()).where(tables.machines.c.hash == hash_)
            if db.execute(of_code).scalar_one() >= code.machines:
                raise RefusedError(
                    "code-used", f"{code.machines} machines have joined with this code, its maximum: {_AGAIN}"
                )
            if code.name and code.machines == 1:
                require_still_free(db, code.name)
                name = code.name
            else:
                name = free_name(db, code.name or client.name, hash_, now=now)
            kept = add_client(db, replace(client, name=name, role="client"), wall=wall)
            db.execute(insert(tables.machines).values(hash=hash_, machine=machine, client=kept.id))
            return kept, False

    def revoke(self, code: str, *, wall: str) -> dict[str, str] | None:
        """Revokes the code with this id and the machines that joined by it. Returns their names by their ids.
        An expired code can be revoked too, because its machines stay known. None if no such code exists, or
        it was already revoked."""
        columns, clients = tables.machine_codes.c, tables.clients.c
        with self._database.transaction() as db:
            for row in db.execute(select(tables.machine_codes).where(columns.revoked == "")):
                if _id(row) == code:
                    of_code = select(tables.machines.c.client).where(tables.machines.c.hash == row.hash)
                    known = db.execute(
                        select(clients.id, clients.name).where(clients.id.in_(of_code), clients.revoked == "")
                    )
                    revoked = {row.id: row.name for row in known}
                    db.execute(update(tables.clients).where(clients.id.in_(revoked)).values(revoked=wall))
                    db.execute(
                        update(tables.machine_codes).where(columns.hash == row.hash).values(revoked=wall)
                    )
                    return revoked
        return None

    def listing(self, *, now: int) -> tuple[dict[str, Value], ...]:
        """Each open code as one flat map, like a client's."""
        columns = tables.machine_codes.c
        counts = select(tables.machines.c.hash, func.count()).group_by(tables.machines.c.hash)
        with self._database.reading() as db:
            open_ = select(tables.machine_codes).where(columns.revoked == "", columns.expires > now)
            rows = db.execute(open_.order_by(columns.created)).all()
            joined = {bytes(row[0]): int(row[1]) for row in db.execute(counts)}
        return tuple(
            {
                "client": _id(row),
                "name": row.name,
                "role": "client",
                "state": f"code, {count} of {row.machines} machines",
                "since": row.created,
                "runs": 0,
                "joined": count,
                "machines": row.machines,
            }
            for row in rows
            for count in (joined.get(bytes(row.hash), 0),)
        )


def _found(db: Connection, hash_: bytes, *, now: int) -> Row[Any] | None:
    columns = tables.machine_codes.c
    row = db.execute(select(tables.machine_codes).where(columns.hash == hash_)).first()
    if row is None:
        return None
    if row.revoked:
        raise RefusedError("code-used", f"this code for machines was revoked at {row.revoked}: {_AGAIN}")
    if row.expires <= now:
        raise RefusedError("code-expired", f"the time of this code for machines is over: {_AGAIN}")
    return row


def _joined(db: Connection, hash_: bytes, machine: str) -> Row[Any] | None:
    """The client that this machine became by that code, None if it has not joined."""
    machines, clients = tables.machines.c, tables.clients.c
    mine = select(machines.client).where(machines.hash == hash_, machines.machine == machine)
    return db.execute(select(tables.clients).where(clients.id.in_(mine))).first()


def _id(row: Row[Any]) -> str:
    return f"code-{bytes(row.hash).hex()[:8]}"
