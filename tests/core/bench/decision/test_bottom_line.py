"""The bottom line: what the four lines say of drives that are known, and that they never say more."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from durability.bench.catalogue import HEADLINE, PROFILES, STANDARD, sustained
from durability.bench.cells import make_cell
from durability.bench.decision.block_size import best_sizes
from durability.bench.decision.bottom_line import bottom_line, megabytes, suspected
from durability.bench.measurement import Idle
from durability.bench.plausibility import plausibility
from durability.bench.result import Medium
from durability.formats.facts import TargetWarning
from tests.core.bench.results import JUDGED, Device, drive, facts, simulate, throttled

SIXTEEN = make_cell("jobs", "", jobs=16)
CELLS = (*JUDGED, SIXTEEN)
HONEST = Device(dirty_ns=3e6, dirty_bytes_per_s=4e8)


def test_speed_is_that_of_one_writer_and_of_sixteen() -> None:
    """The first line has commits per second, MB/s and p99 of the headline and of 16 writers."""
    found = bottom_line(simulate(Device(), cells=CELLS))
    assert found.one is not None and found.many is not None
    assert found.one.summary.cell.name == HEADLINE.name and found.many.summary.cell.jobs == 16
    assert found.one.bytes_per_s == pytest.approx(4096 * found.one.rate)
    speed = found.lines()[0]
    assert speed.startswith(f"speed: 1 writer: {found.one.rate:,.0f} commits/s, ")
    assert speed.count("MB/s") == 2 and speed.count("p99 ") == 2 and "(4k" not in speed


def test_figures_of_a_slow_drive_are_not_rounded_to_nothing() -> None:
    """A stick that makes a commit in three seconds."""
    slow = simulate(Device(flush_ns=3e9), cells=STANDARD, rounds=5)
    found = bottom_line(slow)
    assert found.one is not None and 0.2 < found.one.rate < 0.5
    assert f"1 writer: {found.one.rate:.3g} commits/s" in found.lines()[0]
    said = [one.text for one in best_sizes(slow)]
    assert said and not any("(0 MB/s)" in one for one in said)


def test_rounds_that_differ_by_too_much_are_not_rounded_to_the_limit() -> None:
    """A difference just above the limit of 20 % is not printed as 20 %."""
    whole = simulate(Device(), cells=[HEADLINE])
    rounds = tuple(
        replace(one, seconds=one.commits / rate, bins=())
        for one, rate in zip(whole.cells[0].rounds, (1000, 1000, 1210, 1000, 1000), strict=True)
    )
    uneven = replace(whole, cells=(replace(whole.cells[0], rounds=rounds),))
    assert (
        bottom_line(uneven).lines()[1].startswith("steady: NOT STEADY: 1 writer: rounds differ by 20.2% of")
    )


def test_another_cell_is_named() -> None:
    """A profile without the headline has the speed of its own committing cells, by name, and no place."""
    cells = [
        cell for cell in PROFILES["postgres"] if cell.group in ("commit", "jobs") and cell.block_bytes == 8192
    ]
    found = bottom_line(simulate(Device(), cells=cells))
    speed, place = found.lines()[0], found.lines()[3]
    assert "(8k-sequential-fdatasync-overwritten)" in speed and "8 writers" in speed
    assert found.rate is None and place == f"place: unknown, since {HEADLINE.name} was not measured"


def test_nothing_is_made_up() -> None:
    """Without a cell that commits, each line says that it was not measured."""
    found = bottom_line(simulate(Device(), cells=[make_cell("controls", "", direct=True, sync="none")]))
    assert (found.one, found.many, found.steady) == (None, None, "not judged")
    speed, _, honest, _ = found.lines()
    assert "no cell that commits was measured" in speed and honest.startswith("honest: not shown")
    rounds = simulate(Device(), cells=CELLS, rounds=0, order=())
    assert bottom_line(rounds).one is None


@pytest.mark.parametrize(
    ("device", "cache", "word", "reason"),
    [
        (HONEST, "write back", "looks honest", "only a power cut proves it"),
        (
            Device(),
            "write back",
            "not shown",
            "power-loss protection, a cache of the host, an ignored flush, or data written before",
        ),
        (Device(flushes=0.0), "write back", "suspicious", "no flush reached a drive"),
        (Device(flushes=0.0), "write through", "not shown", "declares no volatile cache"),
    ],
)
def test_honesty_follows_the_plausibility(device: Device, cache: str, word: str, reason: str) -> None:
    """A flush that works looks honest, a free one shows nothing, one that is withheld is suspicious."""
    where = facts(drives=(drive(write_cache=cache),))
    found = bottom_line(simulate(device, cells=CELLS, facts=where))
    assert found.honesty == word and reason in found.honesty_reason
    assert "Next: durability run " in found.lines()[2]


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ("SATA 6.0 Gbps", "the drive declares no volatile cache, so it got no flush"),
        ("USB 5000 Mbit/s", "a USB bridge or a RAID controller may not mention one), so it got no flush"),
        ("PCIe 8.0 GT/s x8", "a USB bridge or a RAID controller may not mention one), so it got no flush"),
    ],
)
def test_a_drive_behind_a_bridge_may_have_declared_nothing(link: str, says: str) -> None:
    """The kernel assumes `write through` of a SCSI disk that does not say what its cache is."""
    medium = Medium(name="sda", rpm=None, link_bytes_per_s=600_000_000, link=link)
    where = facts(drives=(drive(write_cache="write through"),))
    result = simulate(Device(flushes=0.0), cells=CELLS, facts=where, media=(medium,))
    found, means = bottom_line(result), plausibility(result).means
    assert found.honesty == "not shown" and says in found.honesty_reason
    assert ("says nothing of its cache" in means[0]) == ("declares that it has no" not in means[0])
    assert ("says nothing of its cache" in means[0]) == ("USB bridge" in says)


@pytest.mark.parametrize(
    ("rpm", "cache", "word", "reason"),
    [
        (7200, "write through", "suspicious", "commits came faster than the platter turns"),
        (None, "write through", "not shown", "declares no volatile cache"),
        (7200, "write back", "suspicious", "no flush reached a drive"),
    ],
)
def test_no_flush_excuses_no_commit_that_a_platter_cannot_make(
    rpm: int | None, cache: str, word: str, reason: str
) -> None:
    """A disk that says how fast it turns, and that it has no volatile cache: a cache answers all the same."""
    where = facts(drives=(drive(write_cache=cache, rotational=True),))
    medium = Medium(name="sda", rpm=rpm, link_bytes_per_s=600_000_000, link="SATA 6.0 Gbps")
    result = simulate(Device(flushes=0.0), cells=CELLS, facts=where, media=(medium,))
    found = bottom_line(result)
    assert plausibility(result).code == "no-flush-sent"
    assert found.honesty == word and reason in found.honesty_reason


@pytest.mark.slow
@pytest.mark.parametrize("link", ["PCIe 8.0 GT/s x8", "USB 5000 Mbit/s", ""])
def test_a_controller_may_answer_for_a_platter(link: str) -> None:
    """A volume behind a controller that commits faster than its platters turn is not suspected: the
    controller's cache may be protected. Slow commits get no such remark."""
    where = facts(drives=(drive(write_cache="write through", rotational=True),))
    medium = Medium(name="sda", rpm=7200, link_bytes_per_s=600_000_000, link=link)
    fast, slow = (
        simulate(replace(device, flushes=0.0), cells=CELLS, facts=where, media=(medium,))
        for device in (Device(), Device(flush_ns=20_000_000))
    )
    found, reason = bottom_line(fast), bottom_line(slow).honesty_reason
    assert found.honesty == "not shown" and suspected(fast, plausibility(fast)) is None
    assert found.honesty_reason.endswith(
        "; commits came faster than the platter turns: a controller's cache may answer, which a battery or"
        " flash may protect; only a power cut tells"
    )
    assert "may not mention one), so it got no flush; only a power cut tells" in reason


@pytest.mark.parametrize(
    ("caches", "word"),
    [((), "not shown"), (("write through",), "not shown"), (("write back",), "suspicious")],
)
def test_no_flush_under_a_loop_device_shows_nothing(caches: tuple[str, ...], word: str) -> None:
    """A loop device has a volatile cache, whatever the disk under its file has. Missing flushes at that disk
    show nothing, unless a drive beside it with a volatile cache got none either."""
    loop = drive(name="loop0", serial="loop:/srv/ct.img", write_cache="write back")
    beside = tuple(drive(name="sdb", serial="S-2", write_cache=one) for one in caches)
    alone = tuple(
        Idle(name=name, seconds=1.0, flushes=0, writes=2, write_kib=8, reads=0) for name in ("sda", "sdb")
    )
    result = simulate(Device(flushes=0.0), cells=CELLS, facts=facts(drives=(loop, *beside)), idle=alone)
    found = bottom_line(result)
    assert found.honesty == word
    assert ("the disk under the loop device got no flush" in found.honesty_reason) == (word == "not shown")
    assert plausibility(result).code == "no-flush-sent"


@pytest.mark.slow
def test_a_benchmark_never_calls_a_drive_honest_or_safe() -> None:
    """At best a drive looks honest, and the line says what proves it."""
    for device in (HONEST, Device(), Device(flushes=0.0)):
        text = " ".join(bottom_line(simulate(device, cells=CELLS)).lines())
        assert "safe" not in text and "is honest" not in text


def test_a_missing_control_is_the_reason() -> None:
    """An inconclusive plausibility names what is missing."""
    found = bottom_line(simulate(Device(), cells=STANDARD[:1]))
    assert found.honesty == "not shown" and "direct writes (W) were not measured" in found.honesty_reason


def test_a_short_run_was_steady_for_seconds_only() -> None:
    """Steady rounds say how far they lie apart, and which option holds a load for longer."""
    found = bottom_line(simulate(Device(), cells=CELLS))
    assert found.steady == "steady" and "1 writer: rounds differ by " in found.steady_reason
    assert found.steady_reason.endswith("--accept holds a load for longer")


def test_a_load_that_was_held_decides() -> None:
    """A sustained load that fell is NOT STEADY, and the line says when it fell."""
    found = bottom_line(throttled(sustained()[-4]))
    assert found.steady == "NOT STEADY" and "1 writer for 30 s" in found.steady_reason
    assert "about 10 s in it went from 1,000 to 100" in found.steady_reason


def test_a_rate_that_scatters_has_its_disturbance_beside_it() -> None:
    """Rounds that lie apart on a drive that others use: the line names the drive."""
    idle = (Idle(name="sda", seconds=1.0, flushes=0, writes=300, write_kib=8, reads=0),)
    result = simulate(Device(noise=0.4), cells=CELLS, idle=idle)
    found = bottom_line(result)
    assert found.steady == "NOT STEADY"
    assert found.steady_reason.endswith("; sda had 300 requests/s of others")
    assert found.disturbances == (
        "sda got 300 requests per second from other programs while this tool was idle",
    )
    calm = bottom_line(replace(result, idle=()))
    assert "of others" not in calm.steady_reason and calm.disturbances == ()


BUSY = (
    "{} got 313 requests per second from other programs before the first round; postgres (pid 1234) wrote the"
    " most, 12.3 MB/s"
)
LAZY = (
    "ext4lazyinit writes the tables of a new ext4 file system: wait until it has ended, or make the file"
    " system with mkfs.ext4 -E lazy_itable_init=0,lazy_journal_init=0"
)


@pytest.mark.parametrize(
    ("warnings", "words"),
    [
        (
            [("busy-drive", BUSY.format("nvme0n1"))],
            "nvme0n1 had 313 requests/s of others, and postgres (pid 1234) wrote the most",
        ),
        (
            [("busy-drive", BUSY.format(f"sd{letter}")) for letter in "abc"],
            "sda had 313 requests/s of others, and postgres (pid 1234) wrote the most (and 2 other drives)",
        ),
        ([("new-file-system", LAZY)], "ext4lazyinit writes a new ext4 (wait, or lazy_itable_init=0)"),
        ([("resync", "md0 does a resync: wait until it has ended")], "md0 does a resync"),
        ([("busy-drive", "x" * 99)], f"{'x' * 71}…"),
    ],
)
def test_a_disturbance_is_named_once_in_short(warnings: list[tuple[str, str]], words: str) -> None:
    """In the line `steady` alone, also if the rate was steady and the times prove nothing."""
    told = tuple(TargetWarning(code=code, text=text) for code, text in warnings)
    for noise in (0.02, 0.4):
        line = bottom_line(simulate(Device(noise=noise), cells=STANDARD[:4], facts=facts(warnings=told)))
        assert line.steady_reason.endswith(f"; {words}")
        assert line.honesty == "not shown" and words not in line.honesty_reason
        assert line.disturbances == tuple(one.text for one in told)


def test_two_kinds_of_disturbance_are_named() -> None:
    """More would take the room of all else; they are warnings."""
    kinds = [
        ("new-file-system", LAZY),
        ("resync", "md0 does a check: wait"),
        ("busy-drive", BUSY.format("sda")),
    ]
    told = tuple(TargetWarning(code=code, text=text) for code, text in kinds)
    found = bottom_line(simulate(Device(noise=0.4), cells=CELLS, facts=facts(warnings=told)))
    assert found.steady_reason.endswith("lazy_itable_init=0); md0 does a check")
    assert found.disturbances == (LAZY, "md0 does a check: wait")


def test_what_the_rounds_differ_by_is_said_once() -> None:
    """One writer and 16, both not steady."""
    said = bottom_line(simulate(Device(noise=0.4), cells=CELLS)).steady_reason
    assert re.fullmatch(r"1 writer: rounds differ by \d+% of their mean; 16 writers: by \d+%", said)


def test_a_place_seen_from_a_virtual_machine_says_so() -> None:
    """The rate of a guest's disk may be that of its host's memory."""
    guest = bottom_line(simulate(Device(), cells=CELLS, facts=facts(virtualisation="kvm")))
    assert guest.standing.endswith(", seen from a virtual machine")
    assert "virtual" not in bottom_line(simulate(Device(), cells=CELLS)).standing


def test_bandwidth_has_three_digits() -> None:
    """Megabytes are 10^6 bytes; large figures are whole."""
    assert [megabytes(value) for value in (1.5e3, 28.63e6, 99.96e6, 3.2e9)] == [
        "0.0015 MB/s",
        "28.6 MB/s",
        "100 MB/s",
        "3,200 MB/s",
    ]
