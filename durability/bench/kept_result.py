"""A result that is kept on the server: how it is sent, and the summary by which lists and searches find it.

    body       the result file as `bench` writes it, compressed with zlib
    summary    a map of few fields: when, which machine and drives, what it came down to

The server keeps the body as it came, with the hash of the file in it, and does not read that file: no client
can make it work hard. The summary is what the client says of the body; whoever judges a result reads the
body. Refuses a body that cannot be unpacked, or becomes longer than a result may be.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from durability import limits
from durability.bench.catalogue import HEADLINE
from durability.bench.decision.bottom_line import bottom_line
from durability.bench.hashed_serials import hashed
from durability.bench.result import Result, decode, encode
from durability.errors import FormatError, UsageError
from durability.formats.documents import Finite, Flag, Natural, Text

DRIVES_MAX = 256  # of one result
ID_DIGITS = 12  # of hexadecimal: a run has 16
_PIECE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDrive:
    """A drive below the target. `serial` as the result has it, a hash where that hides it; `identity`: the
    hash in any case, "" for a drive without a serial."""

    model: Text
    serial: Text
    identity: Text
    size_bytes: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSummary:
    """What a kept result is of. `machine`: hash of the machine's id. `rate`: commits per second of one
    writer, `bytes_per_s` and `p99_ns` of its commits; None where not measured. `cell`: that they are of, ""
    for none. `honesty`: as in the bottom line."""

    created: Text
    software: Text
    mode: Text
    profile: Text
    complete: Flag
    host: Text
    machine: Text
    target: Text
    drives: tuple[KeptDrive, ...]
    rate: Finite | None
    p99_ns: Natural | None
    honesty: Text
    bytes_per_s: Finite | None = None
    cell: Text = ""

    def __post_init__(self) -> None:
        """Raises FormatError for more drives than a result has."""
        if len(self.drives) > DRIVES_MAX:
            raise FormatError(f"the summary of a result: {len(self.drives)} drives, at most {DRIVES_MAX}")


def summary_of(result: Result) -> KeptSummary:
    """The summary of a result."""
    line = bottom_line(result)
    facts = result.facts
    return KeptSummary(
        created=result.created,
        software=result.software,
        mode=result.mode,
        profile=result.profile,
        complete=result.complete,
        host=facts.host.hostname,
        machine=hashed(facts.host.machine_id),
        target=facts.path,
        drives=tuple(
            KeptDrive(
                model=drive.model,
                serial=drive.serial,
                identity=hashed(drive.serial),
                size_bytes=drive.size_bytes,
            )
            for drive in facts.drives
        ),
        rate=line.one.rate if line.one is not None else None,
        p99_ns=line.one.p99_ns if line.one is not None else None,
        honesty=line.honesty,
        bytes_per_s=line.one.bytes_per_s if line.one is not None else None,
        cell=line.one.summary.cell.name if line.one is not None else "",
    )


def other_cell(row: Mapping[str, Any]) -> str:
    """Of a row of kept results the cell that its rate is of, "" for the headline, or if it is not said."""
    name = str(row.get("cell") or "")
    return "" if name == HEADLINE.name else name


def pack_body(result: Result) -> bytes:
    """The body of a result. Raises UsageError for one that is too long to be kept."""
    body = zlib.compress(encode(result), 6)
    if len(body) > limits.EVIDENCE_BYTES_MAX:
        raise UsageError(
            f"the result has {len(body):,} bytes when compressed, and a server keeps at most"
            f" {limits.EVIDENCE_BYTES_MAX:,}: keep its file"
        )
    return body


def unpack_body(body: bytes) -> tuple[bytes, Result]:
    """The result file in a body, and the result in it. Raises FormatError."""
    data = b"".join(_parts(body))
    return data, decode(data)


def _parts(body: bytes) -> Iterator[bytes]:
    """The file in a body, piece by piece."""
    unpacking, length = zlib.decompressobj(), 0
    try:
        while not unpacking.eof and (part := unpacking.decompress(body, _PIECE_BYTES)):
            length += len(part)
            if length > limits.RESULT_BYTES_MAX:
                raise FormatError(f"a kept result is longer than {limits.RESULT_BYTES_MAX:,} bytes")
            yield part
            body = unpacking.unconsumed_tail
    except zlib.error as error:
        raise FormatError(f"a kept result cannot be unpacked: {error}") from error
    if not unpacking.eof or unpacking.unused_data:
        raise FormatError("a kept result cannot be unpacked: it is cut off, or something follows it")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigest:
    """The SHA-256 of the file in a body, in hexadecimal, and the file's length."""

    sha256: str
    file_bytes: int


def digest_of(body: bytes) -> FileDigest:
    """The digest of the file in a body, in little memory. Raises FormatError."""
    digest, length = hashlib.sha256(), 0
    for part in _parts(body):
        digest.update(part)
        length += len(part)
    return FileDigest(sha256=digest.hexdigest(), file_bytes=length)


def result_id(client: str, sha256: str) -> str:
    """What a server calls the result that `client` keeps, from the hash of its file: another client's copy of
    the same file has another name, so that none stands in another's way."""
    return hashlib.sha256(f"{client}\0{sha256}".encode()).hexdigest()[:ID_DIGITS]


def is_result_id(text: str) -> bool:
    """Whether `text` is what a server calls a kept result."""
    return len(text) == ID_DIGITS and set(text) <= set("0123456789abcdef")
