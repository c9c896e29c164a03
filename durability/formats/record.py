"""The record: the content of every 512-byte sector under test. Each sector can be judged alone.

A sector is 64 little-endian 64-bit words, whatever the block size of the device:

    word   bytes     field
    0      0-3       magic "DURB"
           4         format version (1)
           5         kind: 1 record, 2 superblock
           6-7       index of the sector within its record
    1      8-15      run
    2      16-19     target tag
           20-23     writer
    3      24-31     slot
    4      32-39     seq (0: the prefill)
    5      40-47     byte offset of this sector in its file or device
    6      48-55     header check: a hash of words 0 to 5
    7-62   56-503    body: 448 bytes, XOR the header check in every word
    63     504-511   body check: XXH3-64 of the body before that XOR, XOR the header check

The header is checked before the body; if its check fails, the sector shows nothing. The body of a record
comes from a pool of `POOL_ROWS` rows, which the plan's seed determines. The header determines the first row.
The XOR makes equal rows differ, so that neither compression nor deduplication can shrink the data. The pool's
digests are known in advance. So a few numpy calls can stamp thousands of sectors, or compare them with their
expected content.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from struct import iter_unpack

import numpy as np
import xxhash
from numpy.typing import NDArray

from durability import limits
from durability.errors import FormatError, SetupError
from durability.formats.mixing import U64, Words, finish, fold, stream
from durability.formats.plan import Extent, Plan

RECORD_VERSION = 1
KIND_RECORD = 1
KIND_SUPERBLOCK = 2
SECTOR_WORDS = limits.SECTOR_BYTES // 8
BODY = slice(7, 63)
BODY_BYTES = 448
POOL_ROWS = 512

_MAGIC_WORD = int.from_bytes(b"DURB" + bytes((RECORD_VERSION, 0, 0, 0)), "little")
_CHECK_SEED = np.full(1, 0x6475726162696C69, dtype=U64)


def _word0(kind: int, index: Words) -> Words:
    return (index << U64(48)) | U64(_MAGIC_WORD | kind << 40)


def _word2(target: int, writer: int) -> np.uint64:
    return U64(target | writer << 32)


class Stamper:
    """Makes the records of one plan. Holds the plan's pool (256 KiB) and no changing state."""

    def __init__(self, plan: Plan) -> None:
        if sys.byteorder != "little":
            raise SetupError("records are written as little-endian words: this machine is big-endian")
        self._run = U64(plan.run)
        self._target = plan.target
        body = stream(plan.seed, POOL_ROWS * BODY_BYTES // 8).reshape(POOL_ROWS, -1)
        # A row has the layout of its sector, so that one XOR masks the body and makes the body check.
        self._pool = np.zeros((POOL_ROWS, SECTOR_WORDS), dtype=U64)
        self._pool[:, BODY] = body
        self._pool[:, 63] = _digests(body)

    def stamp(self, out: Words, *, writer: int, slots: Words, seqs: Words, offsets: Words) -> None:
        """Fill `out`, shape (n, sectors, 64), with n records; `slots`, `seqs`, `offsets` have shape (n,).
        `offsets` are the byte offsets of the records' first sectors."""
        sectors = np.arange(out.shape[1], dtype=U64)
        word2 = _word2(self._target, writer)
        fixed = fold(fold(_CHECK_SEED, self._run), word2)
        per_record = fold(fold(fixed, slots), seqs)[:, None]
        word0 = _word0(KIND_RECORD, sectors)
        word5 = offsets[:, None] + sectors * U64(limits.SECTOR_BYTES)
        check = finish(fold(fold(per_record, word0), word5))
        rows = (per_record + sectors).astype(np.intp) & (POOL_ROWS - 1)
        np.take(self._pool, rows, axis=0, out=out, mode="wrap")
        out ^= check[:, :, None]
        # `out` may exceed the processor's cache, so the headers are written to it in one pass, not in seven.
        headers = np.empty((*check.shape, 7), dtype=U64)
        for number, word in enumerate((word0, self._run, word2, slots[:, None], seqs[:, None], word5, check)):
            headers[:, :, number] = word
        out[:, :, :7] = headers

    def stamp_extent(self, out: Words, extent: Extent, *, slots: Words, seqs: Words) -> None:
        """As `stamp`, with the offsets that `extent` gives the slots."""
        offsets = (slots - U64(extent.first_slot)) * U64(extent.record_bytes) + U64(extent.offset_bytes)
        self.stamp(out, writer=extent.writer, slots=slots, seqs=seqs, offsets=offsets)


@dataclass(frozen=True, slots=True)
class Sectors:
    """The claims of n sectors: each array has shape (n,). Fields of a sector whose header is not ok are
    meaningless."""

    header_ok: NDArray[np.bool_]  # magic, version and header check are correct, so the fields below are valid
    intact: NDArray[np.bool_]  # the body check is correct as well
    kind: Words
    index: Words
    run: Words
    target: Words
    writer: Words
    slot: Words
    seq: Words
    offset: Words


def may_be_sectors(first_words: Words) -> NDArray[np.bool_]:
    """Where the first word of a sector has the magic and version of a record or superblock."""
    magic: NDArray[np.bool_] = (first_words & U64(0xFF_FFFF_FFFF)) == U64(_MAGIC_WORD)
    return magic


def claims(
    words: Words, *, run: int, target: int, writer: int, slots: Words, offsets: Words
) -> NDArray[np.bool_]:
    """Which sectors of `words`, shape (n, sectors, 64), claim to be of a record of this writer and slot at
    these offsets. The result has shape (n, sectors). No checks are computed."""
    sectors = np.arange(words.shape[1], dtype=U64)
    claimed: NDArray[np.bool_] = words[:, :, 0] == _word0(KIND_RECORD, sectors)
    claimed &= words[:, :, 1] == U64(run)
    claimed &= words[:, :, 2] == _word2(target, writer)
    claimed &= words[:, :, 3] == slots[:, None]
    claimed &= words[:, :, 5] == offsets[:, None] + sectors * U64(limits.SECTOR_BYTES)
    return claimed


def parse(data: bytes | bytearray | memoryview | Words) -> Sectors:
    """Read `data`, a whole number of sectors, each on its own. The content may be anything."""
    words = data if isinstance(data, np.ndarray) else np.frombuffer(data, dtype="<u8")
    words = words.reshape(-1, SECTOR_WORDS)
    head = [words[:, number].astype(U64) for number in range(7)]
    state = fold(fold(_CHECK_SEED, head[1]), head[2])
    check = finish(fold(fold(fold(fold(state, head[3]), head[4]), head[0]), head[5]))
    header_ok = may_be_sectors(head[0]) & (check == head[6])
    intact = header_ok.copy()
    good = slice(None) if header_ok.all() else np.flatnonzero(header_ok)
    intact[good] = _digests(words[good, BODY] ^ check[good, None]) == words[good, 63] ^ check[good]
    return Sectors(
        header_ok=header_ok,
        intact=intact,
        kind=head[0] >> U64(40) & U64(0xFF),
        index=head[0] >> U64(48),
        run=head[1],
        target=head[2] & U64(0xFFFFFFFF),
        writer=head[2] >> U64(32),
        slot=head[3],
        seq=head[4],
        offset=head[5],
    )


def _digests(bodies: Words) -> Words:
    """XXH3-64 of each row of `bodies`."""
    digest, rows = xxhash.xxh3_64_intdigest, np.ascontiguousarray(bodies, dtype="<u8").data
    return np.array([digest(row) for (row,) in iter_unpack(f"{BODY_BYTES}s", rows)], dtype=U64)


def superblock(plan: Plan, offset_bytes: int) -> bytes:
    """One superblock copy, `limits.SUPERBLOCK_BYTES` long, for byte offset `offset_bytes` of the main file.

    Superblock sectors carry the encoded plan in their bodies: `slot` is the length of the plan in bytes,
    `seq` is 0, and sector i holds bytes i*448 onwards. The rest of the copy repeats the first sectors, so
    that one damaged sector loses nothing.
    """
    encoded = plan.encode()
    fragments = -(-len(encoded) // BODY_BYTES)
    total = limits.SUPERBLOCK_BYTES // limits.SECTOR_BYTES
    if fragments > total:
        raise FormatError(f"a plan of {len(encoded)} bytes does not fit a superblock")
    index = np.arange(total, dtype=U64)
    out = np.zeros((total, SECTOR_WORDS), dtype=U64)
    bodies = np.zeros((fragments, BODY_BYTES), dtype=np.uint8)
    bodies.reshape(-1)[: len(encoded)] = np.frombuffer(encoded, dtype=np.uint8)
    out[:, BODY] = bodies.view("<u8")[np.arange(total) % fragments]
    out[:, 63] = _digests(out[:, BODY])
    word2 = _word2(plan.target, plan.writers)
    word0 = _word0(KIND_SUPERBLOCK, index)
    word5 = index * U64(limits.SECTOR_BYTES) + U64(offset_bytes)
    state = fold(fold(fold(fold(_CHECK_SEED, U64(plan.run)), word2), U64(len(encoded))), U64(0))
    check = finish(fold(fold(state, word0), word5))
    out ^= check[:, None]
    for number, word in enumerate((word0, U64(plan.run), word2, U64(len(encoded)), U64(0), word5, check)):
        out[:, number] = word
    return out.astype("<u8").tobytes()


def superblocks_within(data: bytes | bytearray | memoryview, offset_bytes: int) -> frozenset[tuple[int, int]]:
    """Run and offset of each superblock that has an intact sector in its place in `data`. `data` was read at
    `offset_bytes` of the main file."""
    usable = memoryview(data)[: len(data) // limits.SECTOR_BYTES * limits.SECTOR_BYTES]
    sectors = parse(usable)
    places = np.arange(len(sectors.offset), dtype=U64) * U64(limits.SECTOR_BYTES) + U64(offset_bytes)
    found = sectors.intact & (sectors.kind == KIND_SUPERBLOCK) & (sectors.offset == places)
    starts = places - sectors.index * U64(limits.SECTOR_BYTES)
    return frozenset(zip(map(int, sectors.run[found]), map(int, starts[found]), strict=True))


def read_superblock(data: bytes | bytearray | memoryview) -> Plan | None:
    """The plan of a superblock copy, or None if too little of the copy is intact. Raises FormatError for a
    plan that this release cannot read."""
    usable = memoryview(data)[: len(data) // limits.SECTOR_BYTES * limits.SECTOR_BYTES]
    sectors = parse(usable)
    words = np.frombuffer(usable, dtype="<u8").reshape(-1, SECTOR_WORDS)
    good = np.flatnonzero(sectors.intact & (sectors.kind == KIND_SUPERBLOCK))
    if not len(good):
        return None
    length = int(sectors.slot[good[0]])
    if not 0 < length <= limits.SUPERBLOCK_BYTES:
        return None
    run = sectors.run[good[0]]
    fragments = -(-length // BODY_BYTES)
    pieces: dict[int, bytes] = {}
    for number in good:
        if sectors.slot[number] == length and sectors.run[number] == run:
            body = words[number, BODY] ^ words[number, 6]
            pieces.setdefault(int(sectors.index[number]) % fragments, body.tobytes())
    if len(pieces) != fragments:
        return None
    return Plan.decode(b"".join(pieces[number] for number in range(fragments))[:length])
