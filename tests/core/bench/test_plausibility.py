"""Plausibility: what each kind of drive is called, in words that say what was seen and claim no more."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, get_args

import pytest

from durability.bench.catalogue import FLUSH_CONTROL, HEADLINE, LADDER, WRITE_CONTROL
from durability.bench.measurement import Idle, Round, Work
from durability.bench.plausibility import (
    HEADLINES,
    Code,
    Controls,
    controls_of,
    plausibility,
    plausibility_of,
)
from durability.bench.result import Medium, Result
from durability.formats.plan import SyncMethod
from tests.core.bench.results import Device, drive, facts, latencies, simulate
from tests.places import DOCS

PROTECTED = Device()  # power-loss protection, or a liar: the same to look at
HONEST_NAND = Device(write_ns=20_000, flush_ns=8_000, dirty_ns=600_000, dirty_bytes_per_s=2e9)
HONEST_DISK = Device(write_ns=60_000, flush_ns=50_000, dirty_ns=8_300_000, dirty_bytes_per_s=150e6)
TURNING = (Medium(name="sda", rpm=7200, link_bytes_per_s=600_000_000, link=""),)
CONTROLS = controls_of(simulate(PROTECTED))


def on(result: Result, **changes: Any) -> Result:
    """The same measurement on a machine with other facts."""
    return replace(result, facts=facts(**changes))


def everything(result: Result) -> str:
    found = plausibility(result)
    return "\n".join((found.headline, *found.seen, *found.means, found.only_a_cut, *found.commands))


def judged(**changes: Any) -> tuple[Code, str]:
    found = plausibility_of(replace(CONTROLS, **changes))
    return found.code, "\n".join((*found.seen, *found.means))


def test_a_flush_that_does_nothing_is_called_so_with_its_figures() -> None:
    """Protected cache and ignored flush look alike: the verdict names both, and what tells them apart."""
    result = simulate(PROTECTED)
    found = plausibility(result)
    assert found.code == "flush-no-media-work" and found.headline == "flush does no media work"
    text = everything(result)
    for part in ("(W)", "(F0)", "(C)", "64 MiB", "GB/s", "1.00 flushes per commit reached sda"):
        assert part in text
    assert "power-loss protection" in text and "acknowledged and ignored" in text
    assert "the link carries 0.6 GB/s" in text and "survive loss of power" in found.only_a_cut


@pytest.mark.parametrize("device", [HONEST_NAND, HONEST_DISK])
def test_a_cache_that_is_flushed_is_consistent_and_no_more(device: Device) -> None:
    """A flush that takes time is no proof: the words say that it can still lose data."""
    result = simulate(device)
    found = plausibility(result)
    assert found.code == "volatile-cache" and found.headline.startswith("consistent with")
    assert "can still lose data" in found.only_a_cut and "times as long as an empty flush" in everything(
        result
    )


@pytest.mark.parametrize(
    ("write_cache", "words"),
    [
        ("write through", ["declares that it has no volatile cache"]),
        ("write back", ["withholds the flush"]),
        (None, ["may declare", "withholds the flush"]),
    ],
)
def test_no_flush_is_called_so_whatever_the_times(write_cache: str | None, words: list[str]) -> None:
    """Why no flush was sent follows from what the drive declares."""
    for device in (PROTECTED, HONEST_NAND, HONEST_DISK):
        result = on(simulate(replace(device, flushes=0.0)), drives=(drive(write_cache=write_cache),))
        assert plausibility(result).code == "no-flush-sent"
        assert [word for word in words if word not in everything(result)] == []
        assert len(plausibility(result).means) == len(words)


def test_others_flushes_do_not_hide_that_none_was_sent() -> None:
    """One flush per twenty commits comes from other programs, so the result still counts as without a
    flush."""
    assert plausibility(simulate(replace(PROTECTED, flushes=0.05))).code == "no-flush-sent"


def test_a_disk_that_answers_faster_than_it_turns_is_called_so() -> None:
    """28,000 commits per second are not those of any platter."""
    result = on(simulate(PROTECTED, media=TURNING), drives=(drive(rotational=True),))
    found = plausibility(result)
    assert found.code == "faster-than-media"
    text = everything(result)
    assert "allows about 120 at 7,200 rpm" in text and "allows about 240" in text and "capacitors" in text


def test_what_only_the_kernel_calls_rotating_is_no_liar() -> None:
    """If only the kernel calls a drive rotating, a high rate makes the flag doubtful. If the drive reports
    that it does not rotate, the flag is ignored."""
    result = on(simulate(PROTECTED), drives=(drive(rotational=True),))
    found = plausibility(result)
    assert found.code == "inconclusive" and "the flag is doubtful" in found.reasons[0]
    still = (Medium(name="sda", rpm=0, link_bytes_per_s=10**9, link=""),)
    assert plausibility(replace(result, media=still)).code == "flush-no-media-work"


def test_a_round_in_which_the_machine_stalled_does_not_hide_it() -> None:
    """One round as slow as a platter among others that no platter could do."""
    result = on(simulate(PROTECTED, media=TURNING), drives=(drive(rotational=True),))
    stalled = [
        replace(one, rounds=(replace(one.rounds[0], seconds=one.rounds[0].commits / 20.0), *one.rounds[1:]))
        for one in result.cells
    ]
    assert plausibility(replace(result, cells=tuple(stalled))).code == "faster-than-media"


def test_an_honest_disk_is_not_faster_than_its_platter() -> None:
    """The same facts with the times of a disk: 119 commits per second are possible."""
    result = on(simulate(HONEST_DISK), drives=(drive(rotational=True),))
    assert plausibility(result).code == "volatile-cache"


@pytest.mark.parametrize(
    ("rpm", "random", "sequential", "too_fast", "words"),
    [
        (7200, 119.0, 119.0, False, ""),
        (7200, 230.0, 119.0, False, ""),  # half a turn on average, at random places
        (7200, 300.0, 119.0, True, "at random places"),
        (7200, 119.0, 140.0, True, "block after block"),
        (15_000, 300.0, 240.0, False, ""),
        (15_000, 600.0, None, True, "about 500 at 15,000 rpm"),
        (5400, 150.0, 118.0, False, ""),  # many that report 5,400 rpm turn at 7,200
        (5400, 230.0, None, False, ""),
        (5400, 150.0, 1000.0, True, "about 120 at 7,200 rpm (the drive reports 5,400 rpm, but"),
        (5400, 300.0, 118.0, True, "about 240 at 7,200 rpm (the drive reports 5,400 rpm, but"),
        (7200, 300.0, 119.0, True, "about 240 at 7,200 rpm\n"),
        (None, None, 200.0, False, ""),  # a disk of 15,000 rpm could do it
        (None, None, 400.0, False, "even 15,000 rpm allow about 250: the flag is doubtful"),
        (None, None, None, False, ""),
    ],
)
def test_the_bound_follows_from_the_turns(
    rpm: int | None, random: float | None, sequential: float | None, too_fast: bool, words: str
) -> None:
    """A block that has just passed takes a turn to come again, one anywhere half a turn on average."""
    code, text = judged(rotational=True, rpm=rpm, random_rate=random, sequential_rate=sequential)
    assert (code == "faster-than-media") == too_fast
    assert words in text


def test_an_emulated_disk_that_calls_itself_rotating_is_not_believed() -> None:
    """An emulated disk carries the rotating flag on any storage, so the flag is ignored."""
    result = on(simulate(PROTECTED), drives=(drive(rotational=True, emulated=True),), virtualisation="kvm")
    assert plausibility(result).code == "flush-no-media-work"


def test_a_loop_device_over_a_file_is_not_the_disk_below() -> None:
    """It inherits the flag of the disk that its file lies on, where its work is counted; its own is not
    known. Over a file that lies on no disk it has its own word."""
    loop = (drive(name="loop0", rotational=True),)
    result = on(simulate(PROTECTED), drives=loop)
    assert plausibility(result).code == "flush-no-media-work"
    alone = tuple(replace(idle, name="loop0") for idle in result.idle)
    turning = (replace(TURNING[0], name="loop0"),)
    assert plausibility(replace(result, idle=alone, media=turning)).code == "faster-than-media"


def test_the_turns_come_from_the_media() -> None:
    """Known rpm are used, of several drives the fastest, and only if all are known."""
    two = (drive(name="sda", rotational=True), drive(name="sdb", rotational=True))
    medium = Medium(name="sda", rpm=5400, link_bytes_per_s=10**9, link="")
    both = (medium, replace(medium, name="sdb", rpm=10_000))
    result = on(simulate(HONEST_DISK), drives=two)
    assert controls_of(replace(result, media=both)).rpm == 10_000
    assert controls_of(replace(result, media=both)).link_bytes_per_s == 2 * 10**9
    one = controls_of(replace(result, media=(medium,)))
    assert one.rpm is None and one.link_bytes_per_s is None


@pytest.mark.slow
def test_a_virtual_machine_adds_that_the_host_may_lie() -> None:
    """In a virtual machine, every verdict has a remark that the host may ignore flushes."""
    for device in (PROTECTED, HONEST_NAND, replace(PROTECTED, flushes=0.0)):
        result = on(simulate(device), virtualisation="kvm")
        assert "virtual machine (kvm): the host may acknowledge a flush and do nothing" in everything(result)
        assert "virtual machine" not in everything(simulate(device))
    assert "emulated drive" in everything(on(simulate(PROTECTED), drives=(drive(emulated=True),)))


def test_an_unknown_link_is_assumed_to_be_the_fastest() -> None:
    """The assumption stands in the words, for each drive below."""
    code, text = judged(link_bytes_per_s=None)
    assert code == "flush-no-media-work" and "unknown (16 GB/s assumed, PCIe 5.0 x4" in text
    _, text = judged(link_bytes_per_s=None, write_caches=("write back", "write back"))
    assert "16 GB/s assumed for each drive" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"write_ns": None}, "direct writes (W) were not measured"),
        ({"flush_ns": None}, "empty syncs (F0) were not measured"),
        ({"commit_ns": None}, "direct writes with a sync (C) were not measured"),
        ({"ladder": ()}, "the flush after 64 MiB was not measured"),
        ({"ladder": ((65536, 15_000.0),)}, "the flush after 64 MiB was not measured"),
        ({"flushes": ()}, "the drive below is unknown"),
        ({"flushes": (("sda", None),)}, "does not count flushes"),
        ({"flushes": (("sda", None),), "others": (("sda", 90.0),)}, "flushes cannot be attributed"),
        ({"write_share": None, "others": (("sda", 90.0),)}, "it is unknown whether direct writes"),
        (
            {"random_rate": None, "flushes": ()},
            "the headline (4k-random-fdatasync-overwritten), whose flushes",
        ),
        ({"flushes": (("sda", 0.5),)}, "only 0.5 flushes per commit"),
        ({"empty_flushes": 0.0}, "F0 is not the time of a flush"),
        ({"write_share": 0.2}, "W is not the drive's"),
        ({"write_share": 1.0, "commit_share": 4.0}, "the drives wrote 4.0 times as much"),
        ({"ladder": ((64 << 20, 200e6),)}, "fits neither"),
        ({"commit_ns": 70_000.0}, "fits neither"),
        ({"commit_ns": 200_000.0}, "fits neither"),
    ],
)
def test_what_is_missing_disturbed_or_between_is_inconclusive(changes: dict[str, Any], words: str) -> None:
    """The verdict says which control is in doubt, and draws nothing from the others."""
    code, text = judged(**changes)
    assert code == "inconclusive" and words in text


def test_a_mirror_is_judged_by_what_reaches_both() -> None:
    """Twice the bytes on two drives is no write of the file system's own."""
    assert judged(write_share=2.0, commit_share=2.0)[0] == "flush-no-media-work"
    code, text = judged(flushes=(("sda", 1.0), ("sdb", 0.0)))
    assert code == "flush-no-media-work" and "0.00 flushes per commit reached sdb" in text


def test_noise_that_makes_the_flush_seem_free_is_no_error() -> None:
    """C below W is a flush that took nothing, printed as what was measured."""
    code, text = judged(write_ns=40_000.0, commit_ns=38_000.0)
    assert code == "flush-no-media-work" and "C - W is -2 µs" in text


def test_a_flush_that_took_longer_than_an_empty_one_is_told_with_both_times() -> None:
    """A flush up to 2.5 times as long as an empty one counts as alike. The text gives both times and does not
    say that the flush took no longer."""
    code, text = judged(write_ns=200_000.0, flush_ns=40_000.0, commit_ns=299_000.0)
    assert code == "flush-no-media-work" and "no longer" not in text
    assert (
        "a flush with data (C - W, 99 µs) took about as long as an empty one (F0, 40 µs; up to 100 µs count"
        in text
    )


def test_a_slow_write_scatters_by_more_than_a_flush_takes() -> None:
    """A write of milliseconds and the same with a sync differ by chance; that is no work of the flush."""
    slow = {"write_ns": 8_450_000.0, "flush_ns": 50_000.0, "ladder": ((64 << 20, 200_000.0),)}
    assert judged(**slow, commit_ns=8_780_000.0)[0] == "flush-no-media-work"
    assert judged(**slow, commit_ns=9_600_000.0)[0] == "inconclusive"


def test_a_flush_that_does_not_grow_is_no_cache_at_work() -> None:
    """One block that takes longer to flush than 64 MiB shows a busy machine, and no data moving."""
    measured = {"write_ns": 50_000.0, "flush_ns": 63_000.0, "commit_ns": 520_000.0}
    assert judged(**measured, ladder=((64 << 20, 315_000.0),))[0] == "inconclusive"
    assert judged(**measured, ladder=((64 << 20, 31_500_000.0),))[0] == "volatile-cache"


def test_a_drive_that_others_use_is_named() -> None:
    """Their flushes are among those that were counted, so the verdict says that they were there."""
    busy = Idle(name="sda", seconds=2.0, flushes=30, writes=70, write_kib=300, reads=0)
    found = plausibility(replace(simulate(PROTECTED), idle=(busy,)))
    assert any("other programs sent sda 50 requests per second" in line for line in found.seen)
    assert not any("other programs" in line for line in plausibility(simulate(PROTECTED)).seen)


def test_nothing_measured_is_inconclusive() -> None:
    """A run that was stopped before its controls says that they are missing."""
    found = plausibility(simulate(PROTECTED, rounds=0))
    assert found.code == "inconclusive" and len(found.seen) >= 5


def test_controls_are_taken_from_their_cells() -> None:
    """Medians of merged rounds, the median round's rate, what reached the drive per byte."""
    found = controls_of(simulate(HONEST_NAND))
    assert found.write_ns == pytest.approx(20_000, rel=0.05)
    assert found.flush_ns == pytest.approx(8_000, rel=0.05)
    assert found.commit_ns == pytest.approx(630_000, rel=0.05)
    assert [size for size, _ in found.ladder] == [step.dirty_bytes for step in LADDER]
    assert found.ladder[-1][1] == pytest.approx(608_000 + (64 << 20) / 2, rel=0.05)
    assert (found.write_share, found.commit_share, found.empty_flushes) == (1.0, 1.0, 1.0)
    assert found.random_rate == pytest.approx(1e9 / 632_000, rel=0.05)


def test_a_flush_of_no_time_at_all_counts_as_not_measured() -> None:
    """A file that claims it is no reason to divide by zero."""
    (step,) = simulate(PROTECTED, cells=LADDER[-1:], rounds=1).cells
    (one,) = step.rounds
    zeros = replace(step, rounds=(replace(one, sync_ns=latencies([0] * one.commits)),))
    result = simulate(PROTECTED, cells=LADDER[-1:], rounds=1)
    assert controls_of(replace(result, cells=(zeros,))).ladder == ()
    assert plausibility(replace(result, cells=(zeros,))).code == "inconclusive"


def test_counters_that_are_not_known_stay_unknown() -> None:
    """Without accounting there is no share and no count, rather than a wrong one."""

    def bare(one: Round) -> Round:
        work = Work(operations=one.commits, user_us=None, system_us=None, kernel_us=None, disks=())
        return replace(one, work=work)

    result = simulate(PROTECTED, cells=(HEADLINE, WRITE_CONTROL, FLUSH_CONTROL))
    found = controls_of(
        replace(
            result,
            cells=tuple(replace(one, rounds=tuple(map(bare, one.rounds))) for one in result.cells),
        )
    )
    assert found.flushes == () and found.write_share is None and found.empty_flushes is None


def every_text() -> list[str]:
    texts = [everything(simulate(device)) for device in (PROTECTED, HONEST_NAND, HONEST_DISK)]
    texts += [everything(simulate(replace(PROTECTED, flushes=0.0)))]
    texts += [everything(on(simulate(PROTECTED), drives=(drive(rotational=True),), virtualisation="kvm"))]
    return [*texts, everything(simulate(PROTECTED, rounds=0)), *HEADLINES.values()]


def test_no_verdict_is_a_clean_bill() -> None:
    """The word safe is never printed, nor one that says as much."""
    for text in every_text():
        assert not re.search(r"\b(safe|safely|trust|reliable|honest|good|fine|passed|ok)\b", text, re.I), text


@pytest.mark.parametrize(
    ("path", "kind", "word", "destroy"),
    [
        ("/srv/data base", "file", "'/srv/data base/durability-run'", False),
        ("/", "file", "/durability-run", False),
        ("/dev/sdb", "device", "/dev/sdb", True),
        ("/srv/it's", "file", "'/srv/it'\"'\"'s/durability-run'", False),
        ("/dev/disk/by-id/ata-sha256:0123456789abcdef", "device", "TARGET", True),
    ],
)
def test_the_next_commands_can_be_typed(path: str, kind: str, word: str, destroy: bool) -> None:
    """A path is one word of the shell, a device is named with what it needs, options are documented ones."""
    commands = plausibility(on(simulate(PROTECTED), path=path, kind=kind)).commands
    assert len(commands) == 3
    for command in commands:
        assert command.startswith(("durability run " + word, "durability verify " + word))
        assert ("--destroy-data" in command) == (destroy and " run " in command)
    documented = (DOCS / "reference/cli.md").read_text()
    options = {option for command in commands for option in re.findall(r"--[a-z-]+", command)}
    assert {option for option in options if option not in documented} == set()
    assert "dsync" in get_args(SyncMethod)


def test_the_document_has_every_code() -> None:
    """docs/reference/bench-results.md lists each verdict with what it is called."""
    text = (DOCS / "reference/bench-results.md").read_text()
    assert {code for code in get_args(Code) if f"`{code}`" not in text} == set()
    assert set(HEADLINES) == set(get_args(Code))
    assert isinstance(CONTROLS, Controls)
