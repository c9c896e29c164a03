"""The clients of the store, and the invitations by which they join.

The row of a revoked client stays, because it owns runs. All calls block and run in the store's threads; each
is one transaction. The store has only hashes of secrets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast

from sqlalchemy import Connection, Row, and_, bindparam, delete, func, insert, or_, select, update

from durability import limits, plain_text
from durability.errors import RefusedError
from durability.formats.packing import Value
from durability.protocol.auth import Role
from durability_server.store import tables
from durability_server.store.database import Database

CODE_S = 3600  # seconds for which a join code is valid
INVITATIONS_MAX = 1000  # open invitations
# Clients that are not revoked. They and all codes of both kinds must fit one listing.
CLIENTS_MAX = limits.LISTING_ROWS_MAX - 2 * INVITATIONS_MAX
JOINS_MAX = 100_000  # clients that ever joined, because the rows of revoked ones stay
REVOKED_LISTED_MAX = 1000  # revoked clients in a listing; fewer if it has no room
_CLOCKS_S = 600  # largest difference between the clocks of servers on one store
_NOT_CLIENTS = ("serve", "store", "live page")  # other names in the events of `serve`
_KEPT_S = 86_400  # seconds for which the state of an expired invitation is known
_CLIENTS = select(tables.clients).where(
    tables.clients.c.id.in_(bindparam("ids", expanding=True)), tables.clients.c.revoked == ""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client in the store. `hash` is the hash of its secret."""

    id: str
    name: str
    role: Role
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """A join code in the store. With `name` "" the client chooses its name. `expires` is in Unix seconds."""

    hash: bytes
    role: Role
    name: str
    expires: int


class ClientStore:
    """The clients in `database`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, client: str) -> Client | None:
        """The client with this id, None if it is revoked or unknown."""
        return self.find_several((client,))[client]

    def find_several(self, clients: Collection[str]) -> dict[str, Client | None]:
        """The clients with these ids, None for one that is revoked or unknown."""
        found: dict[str, Client | None] = dict.fromkeys(clients)
        with self._database.reading() as db:
            for row in db.execute(_CLIENTS, {"ids": list(clients)}):
                found[row.id] = Client(id=row.id, name=row.name, role=cast(Role, row.role), hash=row.hash)
        return found

    def invitation(self, hash_: bytes, *, now: int) -> Invitation:
        """The open invitation with this hash. Raises RefusedError "code-unknown", "code-used" or
        "code-expired"."""
        with self._database.reading() as db:
            return _open_invitation(db, hash_, now=now)

    def invite(self, invitation: Invitation, *, wall: str, now: int) -> None:
        """Adds an invitation, and removes those that expired long ago. Raises RefusedError "too-many",
        "name-taken" or "bad-request"."""
        columns = tables.invitations.c
        name = fit_name(invitation.name) if invitation.name else ""
        with self._database.transaction() as db:
            if name:
                require_free(db, name)
            db.execute(delete(tables.invitations).where(columns.expires < now - _KEPT_S))
            open_ = select(func.count()).where(columns.used == "", columns.expires > now)
            if db.execute(open_).scalar_one() >= INVITATIONS_MAX:
                raise RefusedError(
                    "too-many",
                    f"{INVITATIONS_MAX} join codes are unused: `durability clients` lists them, and"
                    " `durability clients revoke ID` removes one",
                )
            db.execute(
                insert(tables.invitations).values(
                    hash=invitation.hash,
                    role=invitation.role,
                    name=name,
                    expires=invitation.expires,
                    created=wall,
                )
            )

    def join(self, hash_: bytes, client: Client, *, wall: str, now: int) -> Client:
        """Uses the invitation with this hash for `client`. The client gets the invitation's name. Without one
        it gets its own name, with a number if that is taken. Returns the client as stored. Raises what
        `invitation` raises, and RefusedError "too-many", "name-taken" and "bad-request"."""
        with self._database.transaction() as db:
            invitation = _open_invitation(db, hash_, now=now)
            if invitation.name:
                require_still_free(db, invitation.name)
                name = invitation.name
            else:
                name = free_name(db, client.name, hash_, now=now)
            kept = add_client(db, replace(client, name=name, role=invitation.role), wall=wall)
            used = tables.invitations.c.hash == hash_
            db.execute(update(tables.invitations).where(used).values(used=wall))
        return kept

    def rename(self, client: str, name: str) -> None:
        """Gives the client with this id or name another name. Raises RefusedError "client-unknown",
        "name-taken" or "bad-request"."""
        name = fit_name(name)
        with self._database.transaction() as db:
            row = _known(db, client)
            if name != row.name and _holder(db, name) is not None:
                raise RefusedError("name-taken", f"another client has the name {name!r}")
            db.execute(update(tables.clients).where(tables.clients.c.id == row.id).values(name=name))

    def revoke(self, client: str, *, wall: str, now: int) -> dict[str, str]:
        """Revokes the client with this id or name, or else the open invitation with this id. Returns its id
        with its name, "" for an invitation. Raises RefusedError "client-unknown"."""
        columns = tables.invitations.c
        with self._database.transaction() as db:
            for row in db.execute(
                select(tables.invitations).where(columns.used == "", columns.expires > now)
            ):
                if _invitation_id(row) == client:
                    db.execute(update(tables.invitations).where(columns.hash == row.hash).values(used=wall))
                    return {client: ""}
            row = _known(db, client)
            db.execute(update(tables.clients).where(tables.clients.c.id == row.id).values(revoked=wall))
        return {row.id: row.name}

    def names(self) -> tuple[str, ...]:
        """The names of all clients that are not revoked, in the order in which they joined."""
        columns = tables.clients.c
        with self._database.reading() as db:
            known = select(columns.name).where(columns.revoked == "").order_by(columns.joined, columns.id)
            return tuple(db.execute(known).scalars())

    def revoked(self) -> tuple[str, ...]:
        """The ids of all revoked clients."""
        columns = tables.clients.c
        with self._database.reading() as db:
            return tuple(db.execute(select(columns.id).where(columns.revoked != "")).scalars())

    def listing(self, *, now: int, rows_max: int = limits.LISTING_ROWS_MAX) -> tuple[dict[str, Value], ...]:
        """Each client, then each open invitation: one flat map each. Only the newest revoked clients are
        included, as many as fit `rows_max`."""
        clients, runs, invitations = tables.clients.c, tables.runs.c, tables.invitations.c
        counts = select(runs.client, func.count()).group_by(runs.client)
        with self._database.reading() as db:
            open_ = select(tables.invitations).where(invitations.used == "", invitations.expires > now)
            waiting = db.execute(open_.order_by(invitations.created)).all()
            known = db.execute(select(func.count()).where(clients.revoked == "")).scalar_one()
            room = min(REVOKED_LISTED_MAX, max(0, rows_max - known - len(waiting)))
            gone = (
                select(clients.id).where(clients.revoked != "").order_by(clients.revoked.desc(), clients.id)
            )
            shown = or_(clients.revoked == "", clients.id.in_(gone.limit(room)))
            rows = db.execute(select(tables.clients).where(shown).order_by(clients.joined, clients.id)).all()
            runs_of: dict[str, int] = {row[0]: row[1] for row in db.execute(counts)}
        return (*_listed(rows, runs_of), *map(_listed_invitation, waiting))


def fit_name(name: str) -> str:
    """`name` with single spaces, and none around it. Raises RefusedError "bad-request" if it is empty. Also
    raises it if people would take the name for the operator, who has no name, or for another source of events
    of `serve`."""
    fit = " ".join(name.split())
    if not fit or _is_no_client(fit) or fit.casefold().startswith(plain_text.OPERATOR):
        raise RefusedError(
            "bad-request",
            f"a client cannot be called {name!r}: choose a name, and not one that says it is the operator, a"
            " campaign or the server",
        )
    return fit


def _as_client(name: str) -> str:
    """Corrects a name that a machine gives itself, because there may be no person to change it."""
    return f"client {name}" if _is_no_client(" ".join(name.split())) else name


def _is_no_client(name: str) -> bool:
    plain = name.casefold()
    return plain in _NOT_CLIENTS or plain.startswith("campaign ")


def client_names(db: Connection) -> dict[str, str]:
    """The name for people of each client that ever joined, by id. The id is added to the name of a revoked
    client if another client has or had that name."""
    columns = tables.clients.c
    rows = db.execute(select(columns.id, columns.name, columns.revoked)).all()
    held = {row.name for row in rows if not row.revoked}
    counts = Counter(row.name for row in rows if row.revoked)
    return {
        row.id: f"{row.name} ({row.id})"
        if row.revoked and (row.name in held or counts[row.name] > 1)
        else row.name
        for row in rows
    }


def require_free(db: Connection, name: str) -> None:
    """Raises RefusedError "name-taken" if a client has this name. Names must differ, because a campaign finds
    its machines by name."""
    holder = _holder(db, name)
    if holder is not None:
        raise RefusedError(
            "name-taken",
            f"client {holder} has the name {name!r}: choose another one, or if it is the same machine that"
            f" joins anew, type `durability clients revoke {holder}` first",
        )


def require_still_free(db: Connection, name: str) -> None:
    """Like `require_free`, for a client that joins by a code for this name."""
    holder = _holder(db, name)
    if holder is not None:
        raise RefusedError(
            "name-taken",
            f"this code is for the name {name!r}, which client {holder} has by now: type `durability clients"
            f" rename {holder} NAME` on the server's machine, or revoke it, then join with the same code",
        )


def free_name(db: Connection, wanted: str, code: bytes, *, now: int) -> str:
    """The name for a client that joins by the code with the hash `code`. It is `wanted`, with a number added
    if a client has that name or another open code gives it. `wanted` is cut to the maximum length of a name.
    Raises RefusedError "bad-request"."""
    wanted = fit_name(_as_client(wanted))
    taken = _held(db) | _promised(db, code, now=now)  # read only once, because many numbers may be taken
    name, number = wanted, 1
    while name in taken:
        number += 1
        suffix = f"-{number}"
        room = limits.NAME_BYTES_MAX - len(suffix)
        name = wanted.encode()[:room].decode(errors="ignore") + suffix
    return name


def add_client(db: Connection, client: Client, *, wall: str) -> Client:
    """Adds `client`, whose name no other client has. Returns the client as stored. Raises RefusedError
    "too-many" or "bad-request"."""
    known = func.count().filter(tables.clients.c.revoked == "")
    joined, count = db.execute(select(func.count(), known).select_from(tables.clients)).one()
    if count >= CLIENTS_MAX:
        raise RefusedError(
            "too-many",
            f"the server has {CLIENTS_MAX:,} clients, its maximum: `durability clients revoke` makes room",
        )
    if joined >= JOINS_MAX:
        raise RefusedError("too-many", f"{JOINS_MAX:,} clients have joined, the maximum of one store")
    kept = replace(client, name=fit_name(client.name))
    row = {"id": kept.id, "name": kept.name, "role": kept.role, "hash": kept.hash, "joined": wall}
    db.execute(insert(tables.clients).values(row))
    return kept


def require_not_made_later(expires: int, *, valid_s: int, now: int) -> None:
    """Raises RefusedError "code-expired" for a code that is valid for `valid_s` and seems to be made after
    now. So putting the server's clock back does not extend the life of a code."""
    if expires > now + valid_s + _CLOCKS_S:
        raise RefusedError(
            "code-expired",
            "this code was made later than it is now by the server's clock, which was put back, or is wrong:"
            " set it, or type `durability clients invite` on the server's machine for another code",
        )


def _listed(rows: Sequence[Row[Any]], runs_of: dict[str, int]) -> tuple[dict[str, Value], ...]:
    return tuple(
        {
            "client": row.id,
            "name": row.name,
            "role": row.role,
            "state": "revoked" if row.revoked else "joined",
            "since": row.revoked or row.joined,
            "runs": runs_of.get(row.id, 0),
        }
        for row in rows
    )


def _listed_invitation(row: Row[Any]) -> dict[str, Value]:
    return {
        "client": _invitation_id(row),
        "name": row.name,
        "role": row.role,
        "state": "invited",
        "since": row.created,
        "runs": 0,
    }


def _invitation_id(row: Row[Any]) -> str:
    return f"invitation-{bytes(row.hash).hex()[:8]}"


def _open_invitation(db: Connection, hash_: bytes, *, now: int) -> Invitation:
    row = db.execute(select(tables.invitations).where(tables.invitations.c.hash == hash_)).first()
    again = "type `durability clients invite` on the server's machine for another"
    if row is None:
        raise RefusedError("code-unknown", f"this server does not know this join code: {again}")
    if row.used:
        raise RefusedError(
            "code-used",
            f"this join code was used at {row.used}: {again}. `durability clients` there shows which client"
            " joined then. If that was this machine, and the network failed before the answer came, or if you"
            " do not know it, revoke that client",
        )
    if row.expires <= now:
        raise RefusedError("code-expired", f"this join code is older than an hour: {again}")
    require_not_made_later(row.expires, valid_s=CODE_S, now=now)
    return Invitation(hash=row.hash, role=cast(Role, row.role), name=row.name, expires=row.expires)


def _known(db: Connection, client: str) -> Row[Any]:
    columns = tables.clients.c
    named = or_(columns.id == client, columns.name == client)
    row = db.execute(select(tables.clients).where(named, columns.revoked == "")).first()
    if row is None:
        raise RefusedError(
            "client-unknown", f"no client is called {client!r}: `durability clients` lists them"
        )
    return row


def _holder(db: Connection, name: str) -> str | None:
    """The id of the client with this name or id that is not revoked."""
    columns = tables.clients.c
    taken = or_(columns.id == name, columns.name == name)
    return db.execute(select(columns.id).where(taken, columns.revoked == "")).scalar()


def _held(db: Connection) -> set[str]:
    """The names and ids of all clients that are not revoked."""
    columns = tables.clients.c
    return set(chain.from_iterable(db.execute(select(columns.id, columns.name).where(columns.revoked == ""))))


def _promised(db: Connection, code: bytes, *, now: int) -> set[str]:
    """The names that open codes, except the one with the hash `code`, give to clients that have not yet
    joined."""
    invitations, codes = tables.invitations.c, tables.machine_codes.c
    joined = select(func.count()).where(tables.machines.c.hash == codes.hash).scalar_subquery()
    gives = (
        select(columns.name).where(columns.hash != code, columns.expires > now, is_open)
        for columns, is_open in (
            (invitations, invitations.used == ""),
            (codes, and_(codes.revoked == "", joined < codes.machines)),
        )
    )
    return {name for given in gives for name in db.execute(given).scalars()}
