"""The fault models: the spec of each, and that each breaks its promises in its own way and in no other."""

from __future__ import annotations

import errno
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields

import pytest

from durability_lab.drive.drive import Drive, HangingReadError, Model
from durability_lab.drive.drive_log import DriveLog
from durability_lab.drive.faults import CATALOGUE, Cached, parse
from durability_lab.drive.flash_pages import PAGE_BYTES
from durability_lab.drive.media import SparseMedia
from tests.lab.drive.small_drives import DEAD, HONEST, LIARS, Clock, Host
from tests.places import REFERENCE

USUAL = {one.name: one.default for one in fields(Cached)}  # what the page says of all models
SECTOR = 512
DRIVE_BYTES = 64 << 20
TARGET_BYTES = 4 << 20
TARGET_OFFSET = 1 << 20
RATE = 4000  # synced writes a second
CUTS = 5
ZONE = 128  # sectors, of `partial-flush`
KINDS = {  # what each liar leaves where something was promised; of a target that was zeros at first
    "flush-ignored": {"older"},
    "early-ack": {"older"},
    "flush-skipped:one_in=1": {"older", "blank"},
    "partial-flush": {"older"},
    "fua-ignored": {"older"},
    "flush-below": {"older"},
    "shorn": {"older", "blank"},
    "misdirected": {"older", "blank", "elsewhere"},
    "neighbour-flip": {"garbage"},
    "rollback": {"older"},
    "partial-rollback": {"older"},
    "unreadable": {"unreadable"},
    "hanging": {"unreadable"},
    "smaller": {"gone"},
    "empty": {"blank"},
    "dead": {"unreadable"},
}


def drive_of(spec: str, seed: int = 1, clock: Clock | None = None, sectors: int = 64) -> Drive:
    return Drive(SparseMedia(sectors * SECTOR), parse(spec), seed=seed, clock=clock or Clock())


def fill(number: int, sectors: int = 1) -> bytes:
    return bytes([number % 255 + 1]) * (sectors * SECTOR)


def after_cut(drive: Drive) -> bytes:
    drive.cut()
    drive.power_on()
    return drive.read(0, drive.size_bytes)


def synced_load(spec: str, seed: int, sector_bytes: int, *, fua: bool) -> Counter[str]:
    """Prefill a target and overwrite pages of it at random, each synced, for a random while; the cut, and the
    promises that it broke, by their kinds."""
    chance, clock, drive_log = random.Random(seed), Clock(), DriveLog()
    drive = Drive(
        SparseMedia(DRIVE_BYTES),
        parse(spec),
        seed=seed,
        sector_bytes=sector_bytes,
        clock=clock,
        drive_log=drive_log,
    )
    for offset in range(0, TARGET_BYTES, 1 << 18):
        drive.write(TARGET_OFFSET + offset, chance.randbytes(1 << 18))
    drive.flush()
    clock.now_s += 2
    for _ in range(chance.randint(600, 1000)):
        page = chance.randrange(TARGET_BYTES // PAGE_BYTES)
        drive.write(TARGET_OFFSET + page * PAGE_BYTES, chance.randbytes(PAGE_BYTES), fua=fua)
        if not fua:
            drive.flush()
        clock.now_s += 1 / RATE
    drive.cut()
    drive.power_on()
    return Counter(broken.kind for broken in drive_log.broken(drive.peek, drive.size_bytes))


def variants() -> Iterator[Model]:
    """Every model with its defaults, and with other values of all its parameters."""
    chance = random.Random(1)
    for kind in CATALOGUE.values():
        yield kind()
        for _ in range(20):
            values = {}
            for parameter in fields(kind):
                if parameter.init:
                    least, most = parameter.metadata["least"], min(parameter.metadata["most"], 5000)
                    value = least + (most - least) * chance.random() / 2  # kept and torn stay below 1
                    values[parameter.name] = int(value) if isinstance(parameter.default, int) else value
            yield kind(**values)


@pytest.mark.parametrize("model", list(variants()), ids=lambda model: model.spec)
def test_spec_says_all_of_a_model(model: Model) -> None:
    """Parsing the spec of a model gives an equal one, whose spec is the same."""
    assert parse(model.spec) == model
    assert parse(model.spec).spec == model.spec


def test_spec_leaves_out_what_is_as_usual() -> None:
    """Parameters at their defaults are not in a spec, whole numbers have no point."""
    assert parse("early-ack:delay_ms=10,kept=0.3").spec == "early-ack"
    assert parse("early-ack:delay_ms=1.0").spec == "early-ack:delay_ms=1"
    assert parse("honest:torn=0.25,cache_bytes=4096").spec == "honest:cache_bytes=4096,torn=0.25"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("liar", "no drive model 'liar'; there are write-through, honest, flush-ignored"),
        ("", "no drive model ''"),
        ("honest:", None),
        ("early-ack:delay=1", "early-ack has no parameter 'delay'; it has cache_bytes, kept, torn, delay_ms"),
        ("write-through:kept=1", "write-through has no parameter 'kept'; it has none"),
        ("early-ack:delay_ms=soon", "early-ack: delay_ms must be a number, found 'soon'"),
        ("early-ack:delay_ms", "early-ack: expected delay_ms=VALUE once, found 'delay_ms'"),
        ("early-ack:delay_ms=1,delay_ms=2", "early-ack: expected delay_ms=VALUE once"),
        ("early-ack:delay_ms=-1", "early-ack: delay_ms must be from 0.0 to 86400000.0, not -1.0"),
        ("early-ack:delay_ms=nan", "delay_ms must be from"),
        ("flush-skipped:one_in=0", "flush-skipped: one_in must be from 1 to"),
        ("flush-skipped:one_in=2.5", "one_in must be a number, found '2.5'"),
        ("shorn:chance=2", "chance must be from 0.0 to 1.0"),
        ("honest:kept=0.7,torn=0.7", "honest: kept and torn are more than 1 together"),
        ("honest:_written=1", "no parameter '_written'"),
    ],
)
def test_wrong_specs_are_explained(spec: str, said: str | None) -> None:
    """A spec with an unknown model or parameter, or an impossible value, raises ValueError, which names the
    possible ones."""
    if said is None:
        assert parse(spec).spec == spec.rstrip(":")
        return
    with pytest.raises(ValueError) as caught:
        parse(spec)
    assert said in str(caught.value)


def test_models_describe_themselves() -> None:
    """Each has the name that the catalogue knows it by, and a first line that can stand alone."""
    for name, kind in CATALOGUE.items():
        assert kind.name == name
        assert kind.__doc__ is not None
        assert kind.__doc__.splitlines()[0].endswith(".")
    assert {name for name, kind in CATALOGUE.items() if kind.honest} == {"honest", "write-through"}
    assert {name for name, kind in CATALOGUE.items() if not kind.volatile} == {"write-through"}
    assert {parse(spec).name for spec in (*HONEST, *LIARS, DEAD)} == set(CATALOGUE)
    assert {parse(spec).name for spec in KINDS} == {
        name for name, kind in CATALOGUE.items() if not kind.honest
    }


def test_documentation_lists_every_model_with_its_defaults() -> None:
    """The table in docs/reference/drive-models.md has each model once, with its defaults."""
    page = (REFERENCE / "drive-models.md").read_text()
    section = page.partition("## Models")[2].partition("\n## ")[0]
    specs = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    models = [parse(spec) for spec in specs if not spec.startswith("filter-")]
    assert models == [kind() for kind in CATALOGUE.values()]
    for spec, model in zip((one for one in specs if not one.startswith("filter-")), models, strict=True):
        own = {one.name for one in fields(model) if one.init and one.default != USUAL.get(one.name)}
        assert own <= {said.partition("=")[0] for said in spec.partition(":")[2].split(",")}, spec


def test_drives_of_one_model_share_nothing() -> None:
    """Two drives made of one model object share no state."""
    model, clock = parse("early-ack:delay_ms=5"), Clock()
    one, other = (Drive(SparseMedia(1 << 16), model, seed=1, clock=clock) for _ in range(2))
    one.write(0, fill(1), fua=True)
    clock.now_s += 1
    one.tick()
    other.tick()
    assert after_cut(one)[:SECTOR] == fill(1)
    assert not any(after_cut(other))


@pytest.mark.slow
@pytest.mark.parametrize("sector_bytes", [512, 4096])
@pytest.mark.parametrize("spec", KINDS)
def test_liar_breaks_its_promises_in_most_cuts(spec: str, sector_bytes: int) -> None:
    """With its defaults, under a usual load on a small target, with either sector, and in its own way."""
    cuts = [synced_load(spec, seed, sector_bytes, fua=spec == "fua-ignored") for seed in range(CUTS)]
    assert sum(map(bool, cuts)) >= CUTS - 1, cuts
    assert set().union(*cuts) == KINDS[spec]


@pytest.mark.slow
@pytest.mark.parametrize("fua", [False, True])
@pytest.mark.parametrize("spec", ["honest", "write-through"])
def test_honest_drive_breaks_none(spec: str, fua: bool) -> None:
    """Under the same load."""
    for seed in range(3):
        assert not synced_load(spec, seed, 512, fua=fua), f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("spec", [spec for spec in LIARS if spec != "smaller:share=0.5"])
def test_book_and_account_agree_on_what_is_broken(spec: str) -> None:
    """By the log exactly those sectors are broken that were ever promised and hold what they must not."""
    for seed in range(5):
        host = Host(spec, seed, drive_log=DriveLog())
        for _ in range(2):
            host.work(60)
            host.cut()
        assert host.drive_log is not None
        reported = {broken.offset // SECTOR for broken in host.drive_log.broken(host.drive.peek, 256 << 10)}
        by_the_book = host.broken()
        assert reported <= by_the_book, f"seed {seed}"
        # What was never promised is zeros by the book, and anything by the drive log.
        assert all(bytes(SECTOR) in host.legal[sector] for sector in by_the_book - reported), f"seed {seed}"


def test_early_ack_is_durable_after_its_delay() -> None:
    """A flush that is `delay_ms` old is kept, a younger one lost; what is lost are the newest writes."""
    for delay_ms in (1, 10, 100, 1000):
        clock = Clock()
        drive = drive_of(f"early-ack:delay_ms={delay_ms},kept=0,torn=0", clock=clock)
        for number in range(40):
            drive.write(number % 64 * SECTOR, fill(number))
            drive.flush()
            clock.now_s += delay_ms / 1000 / 10.5
        survivors = after_cut(drive)
        assert survivors[: 30 * SECTOR] == b"".join(fill(number) for number in range(30))
        assert not any(survivors[30 * SECTOR :])


def test_early_ack_brings_each_version_to_media_in_its_turn() -> None:
    """If a sector is overwritten again and again, a cut leaves the version of `delay_ms` ago."""
    clock = Clock()
    drive = drive_of("early-ack:delay_ms=10", clock=clock)
    for number in range(100):
        drive.write(0, fill(number), fua=True)
        assert drive.read(0, SECTOR) == fill(number)
        clock.now_s += 0.001
    assert after_cut(drive)[:SECTOR] == fill(90)


def test_early_ack_does_what_is_due_before_the_cut() -> None:
    """The cut comes when the clock says, also where no request has looked at the clock since."""
    clock = Clock()
    drive = drive_of("early-ack:delay_ms=10", clock=clock)
    drive.write(0, fill(1), fua=True)
    assert drive.due_s == clock.now_s + 0.01
    clock.now_s += 60
    assert after_cut(drive)[:SECTOR] == fill(1)


@pytest.mark.slow
@pytest.mark.parametrize("one_in", [1, 2, 10])
@pytest.mark.parametrize("fua", [False, True])
def test_flush_skipped_loses_the_last_sync_once_in_n(one_in: int, fua: bool) -> None:
    """The share of cuts that take the newest synced write is 1 in N."""
    lost = 0
    for seed in range(600):
        drive = drive_of(f"flush-skipped:one_in={one_in},kept=0,torn=0", seed)
        drive.write(0, fill(1), fua=fua)
        if not fua:
            drive.flush()
        lost += not any(after_cut(drive))
    assert abs(lost / 600 - 1 / one_in) < 0.08


def test_flush_skipped_is_made_good_by_the_next_flush() -> None:
    """A flush that is honoured covers all writes accepted before it."""
    for seed in range(50):
        drive = drive_of("flush-skipped:one_in=2", seed)
        drive.write(0, fill(1))
        while drive.cache:
            drive.flush()
        assert after_cut(drive)[:SECTOR] == fill(1)


def test_fua_ignored_honours_flush() -> None:
    """Flushed data survive a cut; data written with FUA alone do not."""
    drive = drive_of("fua-ignored:kept=0,torn=0")
    drive.write(0, fill(1), fua=True)
    drive.flush()
    drive.write(SECTOR, fill(2), fua=True)
    assert after_cut(drive)[: 2 * SECTOR] == fill(1) + bytes(SECTOR)


def test_flush_below_lies_above_its_limit_only() -> None:
    """Flushes of little are honoured; from the first of more on, none is."""
    drive = drive_of("flush-below:cache_bytes=4096,kept=0,torn=0")
    drive.write(0, fill(1, 8))
    drive.flush()
    drive.write(8 * SECTOR, fill(2, 9))
    drive.flush()
    drive.write(0, fill(3), fua=True)
    assert after_cut(drive)[: 17 * SECTOR] == fill(1, 8) + bytes(9 * SECTOR)


def test_partial_flush_leaves_one_part_of_the_cache() -> None:
    """A flush brings every zone to media but each fourth; FUA reaches those too, and want of room."""
    drive = drive_of("partial-flush:kept=0,torn=0", sectors=8 * ZONE)
    drive.write(0, fill(1, 8 * ZONE))
    drive.flush()
    drive.write(4 * ZONE * SECTOR, fill(2), fua=True)
    found = after_cut(drive)
    left = [number for number in range(8) if not any(found[(number + 1) * ZONE * SECTOR - SECTOR :][:SECTOR])]
    assert left == [0, 4]
    assert found[4 * ZONE * SECTOR :].startswith(fill(2) + bytes(SECTOR))
    small = drive_of("partial-flush:kept=0,torn=0,cache_bytes=4096", sectors=ZONE)
    small.write(0, fill(1, 3))
    small.flush()
    assert after_cut(small)[: 3 * SECTOR] == fill(1) + bytes(2 * SECTOR)


@pytest.mark.parametrize("sector_bytes", [512, 4096])
def test_shorn_page_ends_at_a_multiple_of_512(sector_bytes: int) -> None:
    """A shorn page has a new first part and an old rest, each at least 512 bytes, for both sector sizes."""
    ends = set()
    for seed in range(40):
        model = parse("shorn:chance=1,kept=0,torn=0")
        drive = Drive(SparseMedia(1 << 16), model, seed=seed, sector_bytes=sector_bytes)
        drive.write(0, fill(1, 16))
        drive.flush()
        found = after_cut(drive)
        for page in (found[:PAGE_BYTES], found[PAGE_BYTES : 2 * PAGE_BYTES]):
            end = page.count(fill(1)[:1])
            assert page == fill(1, 8)[:end] + bytes(PAGE_BYTES - end)
            ends.add(end)
    assert ends == set(range(SECTOR, PAGE_BYTES, SECTOR))


def test_shorn_page_is_repaired_by_the_next_whole_write() -> None:
    """With the power on the rest is read from memory; what is written again without a tear is kept."""
    drive = drive_of("shorn:chance=0.5", seed=3)
    for number in range(20):
        drive.write(0, fill(number, 8), fua=True)
        assert drive.read(0, PAGE_BYTES) == fill(number, 8)
        if not drive.held:
            break
    assert after_cut(drive)[:PAGE_BYTES] == fill(number, 8)


@pytest.mark.slow
def test_misdirected_page_is_found_elsewhere_and_its_place_is_old() -> None:
    """After the cut the page lies whole in another page's place, a power of two away, and its own is old."""
    distances = set()
    for seed in range(60):
        drive = drive_of("misdirected:chance=1", seed, sectors=2048 * 8)
        drive.write(1024 * PAGE_BYTES, fill(1, 8), fua=True)
        found = after_cut(drive)
        place = found.index(fill(1)[0])
        assert found[place:].startswith(fill(1, 8))
        assert not any(found[1024 * PAGE_BYTES : 1025 * PAGE_BYTES])
        distances.add(abs(place // PAGE_BYTES - 1024))
    assert distances == {1 << bit for bit in range(10)}


@pytest.mark.slow
def test_neighbour_flip_damages_old_pages_next_to_the_newest_only() -> None:
    """A cut flips a few bits in one sector of a page that was durable long before, per open page; all else is
    whole, the newest writes too."""
    for seed in range(20):
        drive = drive_of("neighbour-flip:open_pages=2", seed, sectors=1024)
        chance = random.Random(seed)
        expected = bytearray(chance.randbytes(drive.size_bytes))
        drive.write(0, bytes(expected))
        drive.flush()
        for _ in range(50):
            newest = chance.randrange(drive.size_bytes // PAGE_BYTES) * PAGE_BYTES
            data = chance.randbytes(PAGE_BYTES)
            expected[newest : newest + PAGE_BYTES] = data
            drive.write(newest, data, fua=True)
        found = after_cut(drive)
        wrong = [place for place in range(len(found)) if found[place] != expected[place]]
        assert len({place // SECTOR for place in wrong}) in {1, 2}, f"seed {seed}"
        assert all((found[place] ^ expected[place]).bit_count() == 1 for place in wrong)
        assert len(wrong) <= 6
        assert found[newest : newest + PAGE_BYTES] == expected[newest : newest + PAGE_BYTES], f"seed {seed}"


@pytest.mark.slow
def test_rollback_returns_the_whole_drive_to_one_moment() -> None:
    """After the cut every sector is what it was at the last checkpoint, synced or not, old or new."""
    newest = 0
    for seed in range(20):
        host = Host("rollback:interval_ms=20,kept=0,torn=0", seed)
        moments = []
        for _ in range(60):
            host.work(1)
            moments.append(host.drive.settled(0, host.drive.size_bytes))
        found = after_cut(host.drive)
        assert any(found), f"seed {seed}"
        assert found in moments, f"seed {seed}"
        newest += found == moments[-1]
    assert newest < 5


def test_partial_rollback_returns_regions_and_no_more() -> None:
    """After the cut about a share of the regions is what it was at the last checkpoint; all else is new."""
    region, regions = 65536 // SECTOR, 64
    drive = drive_of("partial-rollback:kept=0,torn=0", sectors=region * regions)
    for number in (1, 2):
        drive.write(0, fill(number, region * regions))
        drive.flush()
        if number == 1:
            drive.tick()
            drive.model.tick(drive)
    found = after_cut(drive)
    held = [found[start : start + region * SECTOR] for start in range(0, len(found), region * SECTOR)]
    assert set(held) == {fill(1, region), fill(2, region)}
    assert 6 <= held.count(fill(1, region)) <= 26


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["unreadable:share=0.25", "hanging:share=0.25"])
def test_regions_fail_until_they_are_written_again(spec: str) -> None:
    """Before a cut none fails; after it about their share, whole regions, and a write heals a sector."""
    drive = drive_of(spec, sectors=1 << 16)
    region = 8192

    def failing() -> set[int]:
        found = set()
        for place in range(0, drive.size_bytes, region // 2):
            try:
                drive.peek(place, region // 2)
            except (OSError, HangingReadError):
                found.add(place)
        return found

    assert failing() == set()
    drive.cut()
    drive.power_on()
    first = failing()
    assert abs(len(first) * (region // 2) / drive.size_bytes - 0.25) < 0.03
    assert {place ^ region // 2 for place in first} == first
    place = min(first)
    drive.write(place, fill(1, region // 2 // SECTOR))
    assert drive.peek(place, region // 2) == fill(1, region // 2 // SECTOR)
    assert failing() == first - {place}
    drive.cut()
    drive.power_on()
    assert failing() == first


def unreadable_pages(drive: Drive) -> set[int]:
    found = set()
    for page in range(drive.size_bytes // PAGE_BYTES):
        try:
            drive.read(page * PAGE_BYTES, PAGE_BYTES)
        except OSError:
            found.add(page)
    return found


def test_a_sector_stays_unreadable_over_any_number_of_cuts() -> None:
    """Nothing but a write makes it good, in this process and in each that opens the drive after a kill."""
    drive = drive_of("unreadable:share=0.5", sectors=8 * 128)
    drive.cut()
    drive.power_on()
    first = unreadable_pages(drive)
    assert 0 < len(first) < 128
    for cuts in (2, 3):
        drive.cut()
        drive.power_on()
        opened = Drive(drive.media, drive.model, seed=1, cuts=cuts)
        assert unreadable_pages(drive) == unreadable_pages(opened) == first
    page = min(first)
    drive.write(page * PAGE_BYTES, fill(2, 8))
    assert drive.read(page * PAGE_BYTES, PAGE_BYTES) == fill(2, 8)
    assert unreadable_pages(drive) == first - {page}


def test_transient_errors_end_after_their_time() -> None:
    """A drive that recovers fails reads for so long after each power on, and then gives back all."""
    clock = Clock()
    drive = drive_of("unreadable:share=1.0,recovery_ms=500", clock=clock)
    drive.write(0, fill(1), fua=True)
    for _ in range(2):
        drive.cut()
        clock.now_s += 60
        drive.power_on()
        clock.now_s += 0.499
        with pytest.raises(OSError, match="cannot be read"):
            drive.read(0, SECTOR)
        clock.now_s += 0.002
        assert drive.read(0, SECTOR) == fill(1)


def test_dead_drive_answers_nothing_after_its_cut() -> None:
    """Each request fails, after this cut and any other."""
    drive = drive_of("dead")
    drive.write(0, fill(1), fua=True)
    assert drive.read(0, SECTOR) == fill(1)
    for _ in range(2):
        drive.cut()
        drive.power_on()
        for request in (lambda: drive.read(0, 1), lambda: drive.write(0, fill(1)), drive.flush):
            with pytest.raises(OSError, match="the drive is dead") as caught:
                request()
            assert caught.value.errno == errno.EIO


def test_smaller_drive_has_no_sector_beyond_its_new_end() -> None:
    """Its size changes with the cut, and a request beyond the end is one beyond any drive's end."""
    drive = drive_of("smaller:share=0.3", sectors=100 * 8)
    assert drive.size_bytes == 100 * PAGE_BYTES
    drive.cut()
    drive.power_on()
    assert drive.size_bytes == 30 * PAGE_BYTES == drive.model.capacity_bytes(100 * PAGE_BYTES, cuts=1)
    for request in (lambda: drive.read(30 * PAGE_BYTES, 1), lambda: drive.write(30 * PAGE_BYTES, fill(1))):
        with pytest.raises(OSError, match="outside a drive"):
            request()


def test_empty_drive_works_after_the_cut() -> None:
    """All is zeros, of the same size; what is written then is kept as on any drive, until the next cut."""
    drive = drive_of("empty")
    drive.write(0, fill(1, 64), fua=True)
    assert not any(after_cut(drive))
    drive.write(0, fill(2), fua=True)
    drive.flush()
    assert drive.read(0, SECTOR) == fill(2)
    assert not any(after_cut(drive))


@pytest.mark.parametrize("model", ["smaller", "dead", "empty"])
def test_a_drive_changes_with_the_cut_that_its_spec_names(model: str) -> None:
    """Until then it keeps size and content, as an honest drive; from then on it is as after a first cut."""
    drive = drive_of(f"{model}:from_cut=3")
    size_bytes = drive.size_bytes
    drive.write(0, fill(1), fua=True)
    for cut in range(1, 5):
        drive.cut()
        drive.power_on()
        try:
            kept = (drive.size_bytes, drive.read(0, SECTOR)) == (size_bytes, fill(1))
        except OSError:
            kept = False
        assert kept == (cut < 3), f"after cut {cut}"
