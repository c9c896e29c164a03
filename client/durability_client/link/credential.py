"""The credential that `join` stores on a machine: the server's addresses, the fingerprint of its certificate,
and this client's secret.

The credential is one file that only its user can read: /etc/durability/credential.json for root, a file in
XDG_CONFIG_HOME/durability for others. The file is replaced atomically and synced, because the machine's power
will be cut. A file that others can read, or that belongs to a user other than this one or root, is refused.
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
_LOCK_S = 10.0  # wait for the lock: other commands hold it only during a write, unless they are suspended
_LOOK_S = 0.05  # interval between attempts to lock
ANEW = "Replace it: join again, with --force"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A client's credential for the servers of one store."""

    schema: str
    servers: tuple[str, ...]  # addresses, each HOST:PORT
    fingerprint: str  # SHA-256 of the servers' certificate, in hexadecimal
    # The client's id, secret (in hexadecimal), name and role, as the server knows them.
    client: str
    secret: str
    name: str
    role: str


Save: TypeAlias = Callable[[Credential], None]


class TakenError(SetupError):
    """Another command has made the file since its absence was checked."""


def credential_path() -> Path:
    """The file where this user's `join` stores the credential and all commands look for it."""
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
    """Raises ValueError for a client id or secret that no server gives out, and that may be too long."""
    found_bytes = len(bytes.fromhex(credential.secret))
    if found_bytes != SECRET_BYTES:
        raise ValueError(f"its secret has {found_bytes} bytes, expected {SECRET_BYTES}")
    client = credential.client
    if not client or not is_line(client) or len(client.encode()) > limits.NAME_BYTES_MAX:
        raise ValueError(f"its client is not a line of 1 to {limits.NAME_BYTES_MAX} bytes of plain text")


def save_credential(credential: Credential, path: Path) -> None:
    """Write the credential durably, and replace an earlier one. Raises SetupError."""
    with place_for_credential(path) as save:
        save(credential)


@contextmanager
def place_for_credential(path: Path, *, replaces: bool = True) -> Iterator[Save]:
    """Reserve disk space for a credential in the file `path`, and yield a function that saves one there.

    The function works like `save_credential`. An existing file stays until it is called. The reservation and
    the function raise SetupError, also if another command keeps the existing file locked. Without `replaces`,
    the function raises TakenError if the file exists by then, and does not change the file.
    """
    with _unchanged_soon(path) as locked, _place(path, replaces=replaces) as save:

        def save_alone(credential: Credential) -> None:
            with nullcontext() if locked else _unchanged_soon(path):  # another `join` may have made it
                save(credential)

        yield save_alone


@contextmanager
def _unchanged_soon(path: Path) -> Iterator[bool]:
    """Like `_unchanged`, but raises SetupError if the lock is not free within `_LOCK_S`."""
    with _unchanged(path, within_s=_LOCK_S) as locked:
        if locked is None:
            raise SetupError(
                f"cannot write the credential {path}: another command has kept it locked for {_LOCK_S:.0f} s,"
                " and may be suspended. End that one: `fuser` with this path names it"
            )
        yield locked


@contextmanager
def _unchanged(path: Path, *, within_s: float) -> Iterator[bool | None]:
    """Lock the file `path` against other commands of this user during the block.

    Yields True if the file is locked. Yields False if its file system cannot lock files: saving a credential
    matters more than the lock. Yields False also if the file does not exist or cannot be opened, since then
    no data can be lost. Yields None if another command keeps the file locked for longer than `within_s`.
    """
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
    """Open and lock the file `path`. None if that is impossible. Raises BlockingIOError if another command
    keeps the file locked for longer than `within_s`."""
    until_s = time.monotonic() + within_s
    while True:
        try:
            descriptor = _opened(path)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(path.stat(), os.fstat(descriptor)):  # otherwise the file was replaced
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
    """Open the file `path`, for writing if possible, because NFS locks only such files. Raises OSError."""
    flags = os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, os.O_RDWR | flags)
    except OSError:
        return os.open(path, os.O_RDONLY | flags)


def _close(descriptor: int) -> None:
    with suppress(OSError):  # important data have been synced already
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
        with suppress(OSError):  # the temporary name is gone if the file was renamed to `path`
            Path(name).unlink()


def _give_name(temporary: str, path: Path) -> None:
    """Rename `temporary` to `path` without replacing a file. Raises TakenError and OSError."""
    try:
        give_name(temporary, str(path))
    except FileExistsError as error:
        raise TakenError(f"{path} was made by another command meanwhile, and is not replaced") from error


def _put(descriptor: int, data: bytes) -> None:
    """Replace the content of the file by `data`, durably."""
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
    """The addresses of a store's servers to remember: `known` in their order, then those in `live`. If these
    are too many, known addresses that are not in `live` are dropped, the last first."""
    every = dict.fromkeys((*known, *live))
    spare = len(every) - limits.SERVERS_MAX
    for address in reversed(known):
        if spare > 0 and address not in live:
            del every[address]
            spare -= 1
    return tuple(every)[: limits.SERVERS_MAX]


def remember_servers(path: Path, live: Sequence[str], *, client: str) -> None:
    """Add addresses of running servers to the credential of `client` in the file `path`, so that later
    commands find a server when another one is gone.

    Does nothing if the credential already has the addresses, belongs to another user, or is of another client
    because the machine joined again. Also does nothing while another command keeps the file locked, since a
    later command can add the addresses. Raises SetupError and FormatError.
    """
    if not _is_own(path) or _lacking(path, live, client=client) is None:
        return
    with _unchanged(path, within_s=0.0) as locked:
        if locked is None:
            return
        known = _lacking(path, live, client=client)  # the credential may have been replaced since
        if known is not None:
            with _place(path) as save:
                save(replace(known, servers=with_servers(known.servers, live)))


def _lacking(path: Path, live: Sequence[str], *, client: str) -> Credential | None:
    """The credential in `path`, if it belongs to `client` and lacks addresses of `live`; else None."""
    known = load_credential(path)
    if known is None or known.client != client or set(live) <= set(known.servers):
        return None
    return known


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe, for example, must not block this


def _is_own(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
