"""The clients of the store, and the invitations with which they join.

A client that was revoked stays in its row, because runs are its own. All calls block and belong to the
store's thread; each is one transaction. Refuses to keep a secret: it has their hashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast

from sqlalchemy import Connection, Row, and_, delete, func, insert, or_, select, update

from durability import limits, plain_text
from durability.errors import RefusedError
from durability.formats.packing import Value
from durability.protocol.auth import Role
from durability_server.store import tables
from durability_server.store.database import Database

CODE_S = 3600  # for which a join code is good
INVITATIONS_MAX = 1000  # that are open at a time
# That are known at a time: all of them, and all codes of both kinds, are in one list.
CLIENTS_MAX = limits.LISTING_ROWS_MAX - 2 * INVITATIONS_MAX
JOINS_MAX = 100_000  # ever, since those that were revoked stay
REVOKED_LISTED_MAX = 1000  # or fewer, if the list has no room
_CLOCKS_S = 600  # by which the clocks of servers on one store may differ
_NOT_CLIENTS = ("serve", "store", "live page")  # of which `serve` tells events, as it does of clients
_KEPT_S = 86_400  # for which an invitation that is over is known as what it was


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client as the store knows it. `hash` is of its secret."""

    id: str
    name: str
    role: Role
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """A join code as the store knows it; `name` "" leaves it to the client. `expires` is in seconds of
    Unix."""

    hash: bytes
    role: Role
    name: str
    expires: int


class ClientStore:
    """The clients in `database`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, client: str) -> Client | None:
        """The client with this id, unless it was revoked."""
        clients = tables.clients.c
        with self._database.reading() as db:
            row = db.execute(
                select(tables.clients).where(clients.id == client, clients.revoked == "")
            ).first()
        if row is None:
            return None
        return Client(id=row.id, name=row.name, role=cast(Role, row.role), hash=row.hash)

    def invitation(self, hash_: bytes, *, now: int) -> Invitation:
        """The open invitation with this hash. Raises RefusedError "code-unknown", "code-used" or
        "code-expired"."""
        with self._database.reading() as db:
            return _open_invitation(db, hash_, now=now)

    def invite(self, invitation: Invitation, *, wall: str, now: int) -> None:
        """Adds an invitation, and forgets those that are long over. Raises RefusedError "too-many",
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
        """Uses up the invitation with this hash for `client`, who gets the name that it says, or if it says
        none, one of its own that no other has. Returns the client as it is kept. Raises as `invitation` does,
        and RefusedError "too-many", "name-taken" and "bad-request"."""
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
        """The client with this id or name, or else the open invitation with this id, is no longer known; its
        name by its id, "" for an invitation. Raises RefusedError "client-unknown"."""
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
        """Of all clients that are known, in the order in which they joined."""
        columns = tables.clients.c
        with self._database.reading() as db:
            known = select(columns.name).where(columns.revoked == "").order_by(columns.joined, columns.id)
            return tuple(db.execute(known).scalars())

    def revoked(self) -> tuple[str, ...]:
        """The ids of all clients that are no longer known."""
        columns = tables.clients.c
        with self._database.reading() as db:
            return tuple(db.execute(select(columns.id).where(columns.revoked != "")).scalars())

    def listing(self, *, now: int, rows_max: int = limits.LISTING_ROWS_MAX) -> tuple[dict[str, Value], ...]:
        """Each client, then each open invitation: one flat map each. Of those that were revoked only the
        newest, as many as there is room for among `rows_max`."""
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
    """`name` without spaces around it. Raises RefusedError "bad-request" where nothing is left, or what
    people read as the operator, who has no name, or as a line of `serve` about something else."""
    fit = " ".join(name.split())
    if not fit or _is_no_client(fit) or fit.casefold().startswith(plain_text.OPERATOR):
        raise RefusedError(
            "bad-request",
            f"a client cannot be called {name!r}: choose a name, and not one that says it is the operator, a"
            " campaign or the server",
        )
    return fit


def _as_client(name: str) -> str:
    """A name that a machine gives itself, which nobody may be there to change."""
    return f"client {name}" if _is_no_client(" ".join(name.split())) else name


def _is_no_client(name: str) -> bool:
    plain = name.casefold()
    return plain in _NOT_CLIENTS or plain.startswith("campaign ")


def client_names(db: Connection) -> dict[str, str]:
    """What people call each client that ever joined, by id. One that was revoked and whose name another has
    now is told apart by its id."""
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
    """Raises RefusedError "name-taken" where a client has this name, which is to be another's: a campaign
    finds its machines by their names."""
    holder = _holder(db, name)
    if holder is not None:
        raise RefusedError(
            "name-taken",
            f"client {holder} has the name {name!r}: choose another one, or if it is the same machine that"
            f" joins anew, type `durability clients revoke {holder}` first",
        )


def require_still_free(db: Connection, name: str) -> None:
    """As `require_free`, for whoever joins by a code that was given for this name."""
    holder = _holder(db, name)
    if holder is not None:
        raise RefusedError(
            "name-taken",
            f"this code is for the name {name!r}, which client {holder} has by now: type `durability clients"
            f" rename {holder} NAME` on the server's machine, or revoke it, then join with the same code",
        )


def free_name(db: Connection, wanted: str, code: bytes, *, now: int) -> str:
    """For whoever joins by the code with the hash `code`: `wanted`, with a number behind it if a client has
    that name or another open code gives it. Cut where both together would be too long for a name. Raises
    RefusedError "bad-request"."""
    wanted = fit_name(_as_client(wanted))
    taken = _held(db) | _promised(db, code, now=now)  # looked up once: others may have many such numbers
    name, number = wanted, 1
    while name in taken:
        number += 1
        suffix = f"-{number}"
        room = limits.NAME_BYTES_MAX - len(suffix)
        name = wanted.encode()[:room].decode(errors="ignore") + suffix
    return name


def add_client(db: Connection, client: Client, *, wall: str) -> Client:
    """Adds `client`, whose name no other client has. Returns the client as it is kept. Raises RefusedError
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
    """Raises RefusedError "code-expired" for a code, good for `valid_s`, that ends later than any can which
    was made by now: that the server's clock was put back makes no code last longer."""
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
    """The id of the client that is known by this name or id."""
    columns = tables.clients.c
    taken = or_(columns.id == name, columns.name == name)
    return db.execute(select(columns.id).where(taken, columns.revoked == "")).scalar()


def _held(db: Connection) -> set[str]:
    """The names and ids of all clients that are known."""
    columns = tables.clients.c
    return set(chain.from_iterable(db.execute(select(columns.id, columns.name).where(columns.revoked == ""))))


def _promised(db: Connection, code: bytes, *, now: int) -> set[str]:
    """The names that open codes, but not the one with the hash `code`, give to whoever is still to join."""
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
