"""Any sector can be judged alone: damage of any kind is told apart from what was written."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability import limits
from durability.errors import FormatError
from durability.formats.mixing import U64, Words
from durability.formats.plan import Plan
from durability.formats.record import KIND_RECORD, SECTOR_WORDS, Stamper, parse, read_superblock, superblock

MakePlan = Callable[..., Plan]
bits = st.integers(0, limits.SECTOR_BYTES * 8 - 1)


def records(plan: Plan, seqs: Words, writer: int = 0) -> Words:
    """Records of `writer` where its schedule puts `seqs`, shape (n, sectors, 64)."""
    out = np.empty((len(seqs), plan.record_bytes // limits.SECTOR_BYTES, SECTOR_WORDS), dtype=U64)
    slots = plan.schedule(writer).slot_of(seqs)
    Stamper(plan).stamp_extent(out, plan.extent(writer), slots=slots, seqs=seqs)
    return out


@pytest.fixture(scope="module")
def sector(make_plan: MakePlan) -> bytes:
    """The third sector of a record."""
    return bytes(records(make_plan(), np.asarray([77], dtype=U64))[0, 2].tobytes())


@pytest.mark.parametrize("record_bytes", [512, 4096, 12288, 1 << 20])
def test_a_record_names_itself(make_plan: MakePlan, record_bytes: int) -> None:
    """Every sector carries run, target, writer, slot, seq, offset and index, and is intact."""
    plan = make_plan(record_bytes=record_bytes)
    seqs = np.asarray([1, 999, 1001, 123456789], dtype=U64)
    found = parse(records(plan, seqs, writer=1))
    sectors = record_bytes // limits.SECTOR_BYTES
    slots = plan.schedule(1).slot_of(seqs)
    assert found.intact.all()
    assert (found.kind == KIND_RECORD).all()
    assert (found.run == plan.run).all()
    assert (found.target == plan.target).all()
    assert (found.writer == 1).all()
    assert (found.seq == np.repeat(seqs, sectors)).all()
    assert (found.slot == np.repeat(slots, sectors)).all()
    assert (found.index == np.tile(np.arange(sectors), len(seqs))).all()
    starts = U64(plan.extent(1).offset_bytes) + slots * U64(record_bytes)
    assert (found.offset == np.repeat(starts, sectors) + found.index * U64(512)).all()


@given(bit=bits)
def test_any_flipped_bit_is_seen(sector: bytes, bit: int) -> None:
    """One flipped bit leaves no intact sector; if it is in the body, the header still names the record."""
    damaged = bytearray(sector)
    damaged[bit // 8] ^= 1 << bit % 8
    found = parse(damaged)
    assert not found.intact[0]
    assert found.header_ok[0] == (bit // 8 >= 56)


@given(cut=st.integers(0, 511), filler=st.sampled_from([b"\0", b"\xff"]))
def test_any_truncation_is_seen(sector: bytes, cut: int, filler: bytes) -> None:
    """A sector whose end never came is not intact."""
    damaged = sector[:cut] + filler * (512 - cut)
    assert not parse(damaged).intact[0]


@pytest.mark.slow
@given(cut=st.integers(1, 511), old_seq=st.integers(0, 5000), new_seq=st.integers(0, 5000))
def test_a_splice_of_two_versions_is_seen(make_plan: MakePlan, cut: int, old_seq: int, new_seq: int) -> None:
    """A sector whose head is of one version and whose tail is of another is not intact."""
    plan = make_plan()
    out = np.empty((2, 8, SECTOR_WORDS), dtype=U64)
    slots = np.asarray([5, 5], dtype=U64)
    seqs = np.asarray([old_seq, new_seq], dtype=U64)
    Stamper(plan).stamp_extent(out, plan.extent(0), slots=slots, seqs=seqs)
    old, new = out[0, 0].tobytes(), out[1, 0].tobytes()
    spliced = new[:cut] + old[cut:]
    assert parse(spliced).intact[0] == (spliced in (old, new))


@given(data=st.binary(min_size=512, max_size=512))
def test_foreign_bytes_are_nobodys(data: bytes) -> None:
    """Bytes of another origin are never taken for a sector."""
    assert not parse(data).header_ok[0]


@pytest.mark.parametrize("fill", [b"\0", b"\xff", b"DURB"])
def test_a_uniform_sector_is_nobodys(fill: bytes) -> None:
    """Zeros, ones and a repeated magic are not sectors."""
    assert not parse(fill * (512 // len(fill))).header_ok[0]


def test_two_runs_share_no_sector(make_plan: MakePlan) -> None:
    """Two runs of the same plan, but for run and seed, write different bytes everywhere."""
    seqs = np.arange(1, 65, dtype=U64)
    one = records(make_plan(), seqs).reshape(-1, SECTOR_WORDS)
    two = records(make_plan(run=2, seed=3), seqs).reshape(-1, SECTOR_WORDS)
    assert not (set(map(bytes, one)) & set(map(bytes, two)))


@pytest.mark.slow
def test_the_data_can_neither_be_compressed_nor_deduplicated(make_plan: MakePlan) -> None:
    """Deflate gains under 8 % (the headers), and neither a sector nor a body repeats."""
    data = records(make_plan(slots=4096, credit=1000), np.arange(1, 4097, dtype=U64))
    raw = data.tobytes()
    assert len(zlib.compress(raw, 6)) > 0.92 * len(raw)
    assert len({bytes(sector) for sector in data.reshape(-1, SECTOR_WORDS)}) == 4096 * 8
    bodies = data.reshape(-1, SECTOR_WORDS)[:, 7:63]
    assert len({bytes(body) for body in bodies}) == 4096 * 8


def test_a_superblock_survives_the_loss_of_most_of_it(make_plan: MakePlan) -> None:
    """Any one intact copy of each part of the plan is enough."""
    plan = make_plan()
    image = bytearray(superblock(plan, 0))
    assert read_superblock(image) == plan
    image[: 60 << 10] = bytes(60 << 10)
    assert read_superblock(image) == plan
    image[60 << 10 :] = bytes(4 << 10)
    assert read_superblock(image) is None


@given(data=st.binary(max_size=2048))
def test_garbage_is_no_superblock(data: bytes) -> None:
    """Any bytes of any length are refused without an error."""
    assert read_superblock(data) is None


def test_a_superblock_of_another_plan_version_is_refused_by_name(
    make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that this release cannot read is an error that says so, not a missing superblock."""
    monkeypatch.setattr("durability.formats.plan.PLAN_VERSION", 9)
    image = superblock(make_plan(), 0)
    monkeypatch.undo()
    with pytest.raises(FormatError, match="version 9"):
        read_superblock(image)
