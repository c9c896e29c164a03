"""The screen of a result: it fits 80 by 24, and opens with the four lines."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from durability.bench.catalogue import (
    CLASSIC,
    FSYNC,
    HEADLINE,
    HELD_COMMIT,
    HELD_UNSYNCED,
    HELD_WRITERS,
    PROFILES,
    STANDARD,
    sustained,
)
from durability.bench.cells import Cell
from durability.bench.decision.block_size import best_sizes
from durability.bench.decision.bottom_line import bottom_line
from durability.bench.measurement import NO_LATENCIES
from durability.bench.result import LayerBlock, Result, decode
from durability.bench.result_warnings import result_warnings
from durability.formats.facts import TargetWarning
from durability.units import counted
from durability_client.bench.report.one_screen import show_lines, show_screen, wrapped
from durability_client.system.terminal import SCREEN_HEIGHT_MAX, cut_to
from tests.core.bench.results import Device, classic_result, drive, facts, simulate, throttled
from tests.places import DOCS

BUSY = tuple(
    TargetWarning(
        code="busy-drive",
        text=f"{name} got 313 requests per second from other programs before the first round; postgres (pid"
        " 1234) wrote the most, 12.3 MB/s",
    )
    for name in ("nvme0n1", "nvme1n1")
)
DISTURBED = (
    TargetWarning(
        code="new-file-system",
        text="ext4lazyinit writes the tables of a new ext4 file system: wait until it has ended, or make the"
        " file system with mkfs.ext4 -E lazy_itable_init=0,lazy_journal_init=0",
    ),
    TargetWarning(code="resync", text="md0 does a resync: wait until it has ended"),
    *BUSY,
)


def test_lines_are_as_wide_as_a_terminal_shows_them() -> None:
    """Characters of two columns count as two, for a cut and for a break; what begins a line counts too. A
    word is broken only if it is longer than a line."""
    assert (
        cut_to("固态硬盘", 8) == "固态硬盘"
        and cut_to("固态硬盘x", 8) == "固态硬 …"
        and cut_to("abc", 2) == "a…"
    )
    assert list(wrapped("固态 硬盘 abc", 9)) == ["固态 硬盘", "abc"]
    assert list(wrapped("one two three", 8, first="- ", then="  ")) == ["- one", "  two", "  three"]
    assert list(wrapped("a" * 7, 3)) == ["aaa", "aaa", "a"] and list(wrapped("", 3)) == []
    assert list(wrapped("ab 固态硬盘", 5)) == ["ab", "固态", "硬盘"]
    assert list(wrapped("abcdefg h", 4, first="x ", then="  ")) == ["x ab", "  cd", "  ef", "  g", "  h"]


def _disturbed(result: Result, *, warnings: tuple[TargetWarning, ...] = DISTURBED) -> Result:
    """The result, of a guest whose drives others use."""
    return replace(result, facts=facts(path="/srv/data", warnings=warnings, virtualisation="kvm"))


SCATTERS, FITS_NOTHING = Device(noise=0.6), Device(dirty_ns=3e6)
BLOCKS = (LayerBlock(what="recordsize", of="tank/data/with/long/name", block_bytes=1 << 20),)
ZFS = simulate(SCATTERS, cells=PROFILES["zfs-qcow2"], layer_blocks=BLOCKS)
EXAMPLE = decode((DOCS / "examples/sustained.json").read_bytes())
HONEST = simulate(Device(dirty_ns=3e6, dirty_bytes_per_s=4e8), cells=STANDARD)
RESULTS = {
    "example": EXAMPLE,
    "honest": HONEST,
    "few cells": simulate(Device(flushes=0.0), cells=STANDARD[:1]),
    "throttled": throttled(sustained()[-4]),
    "classic": classic_result(),
    "another cell": simulate(Device(), cells=PROFILES["dedicated-server"]),
    "partial": replace(HONEST, complete=False, stopped="interrupted (Ctrl-C)"),
    "disturbed": _disturbed(simulate(SCATTERS, cells=STANDARD)),
    "disturbed, steady": _disturbed(simulate(FITS_NOTHING, cells=STANDARD)),
    "disturbed, classic": _disturbed(classic_result(SCATTERS)),
    "disturbed, classic, steady": _disturbed(classic_result(FITS_NOTHING)),
    "disturbed, best sizes": _disturbed(ZFS),
    "best sizes": ZFS,
}


def _shown(result: Result, width: int, *, joined: bool = True) -> list[str]:
    out = io.StringIO()
    show_screen(result, Console(file=out, width=width), joined=joined)
    return out.getvalue().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", RESULTS)
def test_a_screen_fits(name: str, width: int, *, joined: bool) -> None:
    """At 80 and at 120 columns no line is longer, and there are at most 22 lines."""
    lines = _shown(RESULTS[name], width, joined=joined)
    assert len(lines) <= SCREEN_HEIGHT_MAX
    assert [line for line in lines if len(line) > width] == []
    assert not any("\x1b" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["standard", "classic"])
def test_a_disturbance_is_on_the_screen_once(name: str) -> None:
    """In short, in the line `steady`; its warning, which says the same, is in the tables."""
    whole = simulate(SCATTERS, cells=STANDARD) if name == "standard" else classic_result(SCATTERS)
    lines = _shown(_disturbed(whole, warnings=BUSY), 80)
    text = " ".join(" ".join(lines).split())
    assert "nvme0n1 had 313 requests/s of others, and postgres (pid 1234) wrote the most (and 1 other" in text
    assert text.count("nvme0n1") == text.count("postgres") == 1 and "nvme1n1" not in text
    assert not any(line.startswith("warning") for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("width", [80, 120])
def test_a_sentence_on_the_best_size_is_whole_or_said_to_be_missing(
    name: str, width: int, *, joined: bool
) -> None:
    """The kinds of published drives, which the line `place` names too, leave it their room."""
    lines, sizes = _shown(RESULTS[name], width, joined=joined), best_sizes(RESULTS[name])
    text = " ".join(" ".join(lines).split())
    assert text.count("best size for ") == sum(one.text in text for one in sizes)
    missing = any(one.text not in text for one in sizes)
    assert lines[-1].endswith("a best size") == missing
    if missing:
        assert "this target" not in text


@pytest.mark.slow
@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("width", [80, 120])
def test_a_warning_is_whole_or_counted_in_the_last_line(name: str, width: int, *, joined: bool) -> None:
    """A warning takes as many lines as it needs. The last line has the number of those without room."""
    result = RESULTS[name]
    lines = _shown(result, width, joined=joined)
    text = " ".join(" ".join(lines).split())
    in_steady = bottom_line(result).disturbances
    warnings = [
        one.text for one in (*result_warnings(result), *result.facts.warnings) if one.text not in in_steady
    ]
    told = [one for one in warnings if f"warning {one}" in text]
    assert sum(line.startswith("warning ") for line in lines) == len(told)
    if missing := len(warnings) - len(told):
        words = counted(missing, "more warning" if told else "warning")
        assert f" --full; {words}" in lines[-1]
    else:
        assert "warning" not in lines[-1]
    assert not any("\u2026" in line for line in lines[1:] if not line.startswith(("block ", "writers ")))


@pytest.mark.slow
def test_the_best_sizes_take_the_room_of_the_published_drives() -> None:
    """Both sentences of the profile are whole, and the axis is not there."""
    text = " ".join(" ".join(_shown(ZFS, 80)).split())
    assert len(best_sizes(ZFS)) == 2 and all(one.text in text for one in best_sizes(ZFS))
    assert "this target" not in text and "place commits at the rate of datacenter SSDs" in text


@pytest.mark.slow
def test_the_curve_by_writers_has_megabytes() -> None:
    """The writers' line has MB/s of both ends of the curve. At 80 columns, it has the rates of only these."""
    each = "1: 10,113  2: 15,452  4: 21,683  8: 33,698  16: 45,753"
    for width, words in ((120, each), (80, "1: 10,113 … 16: 45,753")):
        (line,) = (one for one in _shown(EXAMPLE, width) if one.startswith("writers "))
        assert line.endswith(f"█  {words}  commits/s, 41.4 to 187 MB/s")


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", RESULTS)
def test_megabytes_stand_beside_every_rate(name: str, width: int) -> None:
    """Each curve has MB/s, however narrow the screen is."""
    labels = ("writers ", "block ", "time ")
    assert [one for one in _shown(RESULTS[name], width) if one.startswith(labels) and "MB/s" not in one] == []


@pytest.mark.slow
def test_the_screen_opens_with_the_four_lines() -> None:
    """Speed of one writer and 16, steady, honest with the next command, place: in this order."""
    lines = _shown(EXAMPLE, 80)
    assert lines[0].startswith("vda 256 GiB · ext4 at /srv/disk · accept")
    labels = [line[:8].strip() for line in lines[2:11]]
    assert [label for label in labels if label] == ["speed", "steady", "honest?", "place"]
    assert lines[2].split()[1:7] == ["1", "writer", "10,113", "commits/s", "41.4", "MB/s"]
    assert lines[3].split()[:5] == ["16", "writers", "45,753", "commits/s", "187"]
    assert lines[4].startswith("steady  NOT STEADY: 16 writers of 64 KiB for 130 s: the rate rises by 12%")
    assert any(line.strip() == "next: durability run /srv/disk/durability-run" for line in lines)
    assert lines[-1] == "All tables: durability bench --show FILE --full; 2 more warnings"


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("show", [show_screen, show_lines])
@pytest.mark.parametrize(
    ("profile", "writers", "name"),
    [
        ("dedicated-server", "16 writers ", "64k-random-fsync-16jobs-overwritten"),
        ("postgres", "8 writers ", "8k-sequential-fdatasync-8jobs-overwritten"),
        ("classic", "32 writers ", "4k-random-direct-fdatasync-32jobs-overwritten"),
    ],
)
def test_a_speed_of_another_cell_names_it(
    profile: str, writers: str, name: str, show: Callable[[Result, Console], None], width: int
) -> None:
    """Commits of another size or sync do not stand below the headline as if only the writers differed."""
    out = io.StringIO()
    show(simulate(Device(), cells=PROFILES[profile]), Console(file=out, width=width))
    lines = out.getvalue().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("speed"))
    assert "1 writer " in lines[at] and lines[at + 1][8:].startswith(writers)
    assert lines[at + 2] == f"{'':8}({name})" and lines[at + 3].startswith("steady")


def test_a_rate_of_nothing_has_no_bar() -> None:
    """A file of others may have rounds with writes and without a commit."""
    still = simulate(Device(), cells=STANDARD[:1])
    empty = {"commits": 0, "commit_ns": NO_LATENCIES, "sync_ns": NO_LATENCIES, "bins": ()}
    rounds = tuple(replace(one, **empty) for one in still.cells[0].rounds)  # type: ignore[arg-type]
    still = replace(still, cells=(replace(still.cells[0], rounds=rounds),))
    (line,) = [one for one in _shown(still, 80) if one.startswith("speed")]
    assert " 0 commits/s" in line and "█" not in line


@pytest.mark.slow
def test_a_machine_without_a_server_is_told_to_get_one_first() -> None:
    """Both lines can be typed as they stand, since the remark is a comment. The first one fits 80 columns."""
    out = io.StringIO()
    show_screen(EXAMPLE, Console(file=out, width=80), joined=False)
    lines = [line.strip() for line in out.getvalue().splitlines()]
    at = lines.index("next: durability serve  # on a machine that stays up; type its line here")
    assert lines[at + 1] == "then: durability run /srv/disk/durability-run"
    assert len(lines) <= SCREEN_HEIGHT_MAX


def test_classic_rates_stand_beside_the_same_with_syncs() -> None:
    """A row for each label, with MB/s and IOPS of reads, writes and commits, and the ratio in one line."""
    lines = _shown(RESULTS["classic"], 80)
    head = next(number for number, line in enumerate(lines) if line.startswith("fio "))
    assert " ".join(lines[head].split()) == "fio read MB/s IOPS write MB/s IOPS synced MB/s IOPS"
    assert [line[:11].strip() for line in lines[head + 1 : head + 5]] == [row.label for row in CLASSIC]
    assert [len(line.split()) for line in lines[head + 1 : head + 5]] == [8] * 4
    assert lines[head + 5].startswith("cost    with a sync after each write, RND4K Q1T1 keeps ")


@pytest.mark.slow
def test_the_block_sizes_end_in_a_line() -> None:
    """The best of them, and whether it fits."""
    text = " ".join(" ".join(_shown(HONEST, 120)).split())
    assert "best size for 1 writer: " in text and "it fits the blocks of ext4 (4 KiB)" in text


@pytest.mark.slow
def test_pictures_stand_below() -> None:
    """The published kinds, the target's mark in its column, the rate by writers and by block."""
    text = "\n".join(_shown(EXAMPLE, 80))
    assert "1: 10,113 … 16: 45,753" in text and "4 KiB: 41.4 MB/s … 128 KiB: 737 MB/s" in text
    text = "\n".join(_shown(replace(EXAMPLE, cells=EXAMPLE.cells[:1], order=(0,) * 5), 80))
    assert "datacenter SSD" in text and "1,600-34,000" in text and "▲ 10,113" in text


def test_a_curve_has_cells_of_one_kind() -> None:
    """A commit by fsync is no first point of a curve by fdatasync."""
    sixteen = next(cell for cell in STANDARD if cell.name == "4k-random-fdatasync-16jobs-overwritten")
    for first, drawn in ((HEADLINE, True), (FSYNC, False)):
        lines = _shown(simulate(Device(), cells=(first, sixteen)), 80)
        assert any(line.startswith("writers ") for line in lines) == drawn
        assert any(line.startswith("time ") and "commits/s of 1 writer over" in line for line in lines)


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (HELD_COMMIT, "commits/s of 1 writer over 30 s, 1.64 MB/s"),
        (HELD_WRITERS, "commits/s of 16 writers of 64 KiB over 30 s, 26.2 MB/s"),
        (HELD_UNSYNCED, "writes/s of 16 writers of 64 KiB over 30 s, 26.2 MB/s"),
    ],
)
def test_a_rate_over_time_says_whose(held: Cell, words: str) -> None:
    """The label is that of the load which was held, with MB/s. A long label has fewer bars beside it."""
    (line,) = (one for one in _shown(throttled(held), 80) if one.startswith("time "))
    assert line.endswith(words) and len(line) <= 80


@pytest.mark.slow
def test_a_partial_result_says_so_first() -> None:
    """The first warning of a result that was interrupted is that rounds are missing."""
    warnings = [line for line in _shown(RESULTS["partial"], 80) if line.startswith("warning")]
    assert warnings[0].startswith("warning some rounds are missing: interrupted")


def test_hostile_names_move_no_cursor() -> None:
    """A model or a path of control characters is plain text on the screen."""
    where = facts(path="/srv/\x1b[2J\r\u202e", drives=(drive(model="\x07model\x1b"),))
    text = "\n".join(_shown(simulate(Device(), facts=where), 80))
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(text)
