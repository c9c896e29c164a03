"""A result stored on the server: its transfer format, and the summary for lists and searches.

    body       the result file as `bench` writes it, compressed with zlib
    summary    a few fields: time, machine, drives and main figures

The server stores the body as it came, with the hash of the file in it, but does not parse the file: so no
client can make the server work hard. The summary is the client's claim about the body; code that judges a
result reads the body. A body that cannot be unpacked, or that is longer than a result may be, is refused.
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

DRIVES_MAX = 256  # drives of one result
ID_DIGITS = 12  # hexadecimal digits of a result's id; the id of a run has 16
_PIECE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDrive:
    """A drive below the target."""

    model: Text
    serial: Text  # the serial in the result, a hash if the result hides serials
    identity: Text  # always the hash of the serial, "" for a drive without a serial
    size_bytes: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSummary:
    """Summary of a stored result. A figure is None if it was not measured."""

    created: Text
    software: Text
    mode: Text
    profile: Text
    complete: Flag
    host: Text
    machine: Text  # hash of the machine's id
    target: Text
    drives: tuple[KeptDrive, ...]
    rate: Finite | None  # commits per second of one writer
    p99_ns: Natural | None  # 99th percentile of these commits
    honesty: Text  # as in the bottom line
    bytes_per_s: Finite | None = None  # bandwidth of these commits
    cell: Text = ""  # cell of these figures, "" for none

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
    """The cell of the rate in a row of stored results. "" for the headline, or if the row has no cell."""
    name = str(row.get("cell") or "")
    return "" if name == HEADLINE.name else name


def pack_body(result: Result) -> bytes:
    """The body of a result. Raises UsageError if the body is too long to be stored."""
    body = zlib.compress(encode(result), 6)
    if len(body) > limits.EVIDENCE_BYTES_MAX:
        raise UsageError(
            f"the result has {len(body):,} bytes when compressed, and a server keeps at most"
            f" {limits.EVIDENCE_BYTES_MAX:,}: keep its file"
        )
    return body


def unpack_body(body: bytes) -> tuple[bytes, Result]:
    """The result file in a body, and the result in the file. Raises FormatError."""
    data = b"".join(_parts(body))
    return data, decode(data)


def _parts(body: bytes) -> Iterator[bytes]:
    """The file in a body, piece by piece. Raises FormatError."""
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
    """Hash and length of the file in a body."""

    sha256: str  # SHA-256 in hexadecimal
    file_bytes: int


def digest_of(body: bytes) -> FileDigest:
    """The digest of the file in a body, computed piece by piece. Raises FormatError."""
    digest, length = hashlib.sha256(), 0
    for part in _parts(body):
        digest.update(part)
        length += len(part)
    return FileDigest(sha256=digest.hexdigest(), file_bytes=length)


def result_id(client: str, sha256: str) -> str:
    """The id of a result of `client` on a server, from the hash of its file. Copies of one file by two
    clients have different ids, so that they do not conflict."""
    return hashlib.sha256(f"{client}\0{sha256}".encode()).hexdigest()[:ID_DIGITS]


def is_result_id(text: str) -> bool:
    """Whether `text` has the form of the id of a stored result."""
    return len(text) == ID_DIGITS and set(text) <= set("0123456789abcdef")
