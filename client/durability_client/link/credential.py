"""What `join` leaves on a machine: where the server is, its certificate's fingerprint, and this client's own
secret.

One file that only its user can read: /etc/durability/credential.json for root, XDG_CONFIG_HOME/durability for
others. It is written whole and synced, because the machine's power will be cut. Refuses a file that others
can read, or that another user than root put there.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from platformdirs import user_config_path

from durability import limits
from durability.errors import FormatError, SetupError
from durability.formats.documents import from_json, from_value, to_json, to_value
from durability.plain_text import is_line
from durability.private_files import why_not_private
from durability.protocol.auth import APPLICATION, SECRET_BYTES
from durability.protocol.secure_stream import FINGERPRINT_BYTES
from durability_client.system.output_files import give_name, sync_directory

SCHEMA = "durability.credential/1"
_FILE = "credential.json"
_SYSTEM = Path("/etc/durability")
_ROOM_BYTES = 4096
_LOCK_S = 10.0  # another command keeps the lock for as long as a write takes, unless it was suspended
_LOOK_S = 0.05  # from one look at the lock to the next
ANEW = "Replace it: join again, with --force"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """`servers`: addresses of the server, each HOST:PORT. `fingerprint` is the SHA-256 of its certificate and
    `secret` this client's, both in hexadecimal; `client`, `name` and `role` as the server knows it."""

    schema: str
    servers: tuple[str, ...]
    fingerprint: str
    client: str
    secret: str
    name: str
    role: str


Save: TypeAlias = Callable[[Credential], None]


class TakenError(SetupError):
    """A file that was not there to be replaced was made meanwhile."""


def credential_path() -> Path:
    """Where `join` of this user leaves it, and every command looks for it."""
    directory = _SYSTEM if os.geteuid() == 0 else user_config_path(APPLICATION)
    return directory / _FILE


def load_credential(path: Path) -> Credential | None:
    """The credential in the file `path`; None if there is no such file. Raises SetupError and FormatError."""
    try:
        with open(path, "rb", opener=_open) as file:
            status = os.fstat(file.fileno())
            why = why_not_private(path, mode=status.st_mode, owner=status.st_uid, user=os.geteuid())
            text = b"" if why else file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SetupError(f"cannot read the credential {path}: {error.strerror}") from error
    if why:
        raise SetupError(f"the credential {why}")
    try:
        credential = from_value(Credential, from_json(text))
        if credential.schema == SCHEMA:
            _check_identity(credential)
        found_bytes = len(bytes.fromhex(credential.fingerprint))
    except (FormatError, ValueError) as error:
        raise FormatError(
            f"{path} is not a credential that `durability join` wrote: {error}. {ANEW}"
        ) from error
    if credential.schema != SCHEMA:
        raise FormatError(
            f"{path} has the schema {credential.schema!r}, this release reads {SCHEMA!r}. {ANEW}"
        )
    if found_bytes != FINGERPRINT_BYTES:
        raise FormatError(
            f"{path} has {found_bytes} bytes of the fingerprint of the server's certificate, expected"
            f" {FINGERPRINT_BYTES}: any server could answer. {ANEW}"
        )
    return credential


def _check_identity(credential: Credential) -> None:
    """Raises ValueError for what is no client of any server, and may be more than can be said to one."""
    found_bytes = len(bytes.fromhex(credential.secret))
    if found_bytes != SECRET_BYTES:
        raise ValueError(f"its secret has {found_bytes} bytes, expected {SECRET_BYTES}")
    client = credential.client
    if not client or not is_line(client) or len(client.encode()) > limits.NAME_BYTES_MAX:
        raise ValueError(f"its client is not a line of 1 to {limits.NAME_BYTES_MAX} bytes of plain text")


def save_credential(credential: Credential, path: Path) -> None:
    """Write it, durably, in the place of an earlier one. Raises SetupError."""
    with place_for_credential(path) as save:
        save(credential)


@contextmanager
def place_for_credential(path: Path, *, replaces: bool = True) -> Iterator[Save]:
    """A place for a credential in the file `path`, with room for it on the disk, and what saves one there as
    `save_credential` does; until then what is there stays. Both raise SetupError, also where another command
    keeps what is there locked. Without `replaces`, what saves one raises TakenError if there is a file by
    then, and leaves it as it is."""
    with _unchanged_soon(path) as locked, _place(path, replaces=replaces) as save:

        def save_alone(credential: Credential) -> None:
            with nullcontext() if locked else _unchanged_soon(path):  # another `join` may have made it
                save(credential)

        yield save_alone


@contextmanager
def _unchanged_soon(path: Path) -> Iterator[bool]:
    """As `_unchanged`, after a wait that ends. Raises SetupError."""
    with _unchanged(path, within_s=_LOCK_S) as locked:
        if locked is None:
            raise SetupError(
                f"cannot write the credential {path}: another command has kept it locked for {_LOCK_S:.0f} s,"
                " and may be suspended. End that one: `fuser` with this path names it"
            )
        yield locked


@contextmanager
def _unchanged(path: Path, *, within_s: float) -> Iterator[bool | None]:
    """No command of this user writes the file `path` during the block: True. False if its file system cannot
    lock files: a lock is not worth a credential. Or if it does not exist, or cannot be read: it has nothing
    to lose. None if another command keeps it locked for longer than `within_s`."""
    try:
        descriptor = _locked(path, within_s=within_s)
    except BlockingIOError:
        yield None
        return
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _close(descriptor)


def _locked(path: Path, *, within_s: float) -> int | None:
    """The file `path`, open and locked; None if it cannot be. Raises BlockingIOError where another command
    keeps it locked."""
    until_s = time.monotonic() + within_s
    while True:
        try:
            descriptor = _opened(path)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(path.stat(), os.fstat(descriptor)):  # else another file took its place
                return descriptor
        except BlockingIOError:
            if time.monotonic() >= until_s:
                _close(descriptor)
                raise
            time.sleep(_LOOK_S)
        except OSError:
            _close(descriptor)
            return None
        _close(descriptor)


def _opened(path: Path) -> int:
    """The file `path`, open for writing if this user may write it: NFS locks no other. Raises OSError."""
    flags = os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, os.O_RDWR | flags)
    except OSError:
        return os.open(path, os.O_RDONLY | flags)


def _close(descriptor: int) -> None:
    with suppress(OSError):  # what was to last has been synced
        os.close(descriptor)


@contextmanager
def _place(path: Path, *, replaces: bool = True) -> Iterator[Save]:
    with _writing(path):
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with _writing(path):
            _put(descriptor, bytes(_ROOM_BYTES))

        def save(credential: Credential) -> None:
            with _writing(path):
                _put(descriptor, f"{to_json(to_value(credential))}\n".encode())
                if replaces:
                    Path(name).replace(path)
                else:
                    _give_name(name, path)
                sync_directory(path.parent)

        yield save
    finally:
        _close(descriptor)
        with suppress(OSError):  # it has its place, or nothing was saved
            Path(name).unlink()


def _give_name(temporary: str, path: Path) -> None:
    """Raises TakenError and OSError."""
    try:
        give_name(temporary, str(path))
    except FileExistsError as error:
        raise TakenError(f"{path} was made by another command meanwhile, and is not replaced") from error


def _put(descriptor: int, data: bytes) -> None:
    """Makes `data` all that the file has, durably."""
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], written)
    os.ftruncate(descriptor, len(data))
    os.fsync(descriptor)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SetupError(f"cannot write the credential {path}: {error.strerror}") from error


def with_servers(known: Sequence[str], live: Sequence[str]) -> tuple[str, ...]:
    """The addresses of a store's servers that are worth to be known: `known`, in their order, and those that
    live; if these are too many, those that live."""
    every = dict.fromkeys((*known, *live))
    spare = len(every) - limits.SERVERS_MAX
    for address in reversed(known):
        if spare > 0 and address not in live:
            del every[address]
            spare -= 1
    return tuple(every)[: limits.SERVERS_MAX]


def remember_servers(path: Path, live: Sequence[str], *, client: str) -> None:
    """Adds addresses of servers that live to the credential of `client` in the file `path`, so that later
    commands find one when another is gone; nothing happens where it has them, or is another user's, or this
    machine has joined anew since. Nor while another command keeps it locked, which may last: a later one
    remembers them as well. Raises SetupError and FormatError."""
    if not _is_own(path) or _lacking(path, live, client=client) is None:
        return
    with _unchanged(path, within_s=0.0) as locked:
        if locked is None:
            return
        known = _lacking(path, live, client=client)  # which may be another one since
        if known is not None:
            with _place(path) as save:
                save(replace(known, servers=with_servers(known.servers, live)))


def _lacking(path: Path, live: Sequence[str], *, client: str) -> Credential | None:
    """The credential in the file `path`, if it is that of `client` and lacks addresses of `live`."""
    known = load_credential(path)
    if known is None or known.client != client or set(live) <= set(known.servers):
        return None
    return known


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # something else than a file must not keep it waiting


def _is_own(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
