"""`accept` as people type it, with evidence in files: exit codes, the screen, the page, and bad input."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from durability.bench.decision.published_drives import KINDS
from durability.bench.result import encode
from durability.errors import FormatError, SetupError, UsageError
from durability_client.acceptance import profiles
from durability_client.acceptance.accept_command import AcceptOptions, accept, show_profile
from durability_client.acceptance.gather import EvidenceWanted
from tests.core.acceptance.samples import HONEST, NO_FLUSH, accept_result
from tests.core.acceptance.test_criteria import FEW_STALLS, of_commits
from tests.core.bench.results import drive, facts, simulate
from tests.file_limits import files_of_at_most
from tests.joined import NOWHERE

MINE = """
[[criterion]]
kind = "commit-rate"
limit = 1000
reason = "It must be fast."
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a profile, and results that pass, refuse and show nothing."""
    (tmp_path / "mine.toml").write_text(MINE)
    (tmp_path / "good.json").write_bytes(encode(accept_result()))
    (tmp_path / "slow.json").write_bytes(encode(accept_result(falls_to=0.1)))
    (tmp_path / "quick.json").write_bytes(encode(simulate(HONEST)))
    other = facts(drives=(drive(model="Other\x1b[31m <b>", serial="X9"),))
    (tmp_path / "other.json").write_bytes(encode(accept_result(NO_FLUSH, facts=other)))
    return tmp_path


def run(place: Path, *results: str, **options: Any) -> tuple[int, str, str]:
    """The exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    wanted = EvidenceWanted(
        campaigns=(), results=tuple(str(place / name) for name in results), drive=options.pop("drive", "")
    )
    chosen = {"profile": str(place / "mine.toml"), "by": "a tester", **options}
    return accept(AcceptOptions(wanted=wanted, **chosen), out, err), out.getvalue(), err.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("result", "code", "word"),
    [("good.json", 0, "PASS"), ("slow.json", 3, "REFUSE"), ("quick.json", 4, "NOT SHOWN")],
)
def test_the_exit_code_and_the_screen_say_the_decision(
    place: Path, result: str, code: int, word: str
) -> None:
    """The exit code, the first line and the last line give the decision. The output fits a screen of 80 by
    24."""
    found, out, err = run(place, result)
    lines = out.splitlines()
    assert found == code and lines[0] == lines[-1] and lines[0].startswith(word)
    assert len(lines) <= 22 and max(map(len, lines)) <= 80
    assert lines[2] == f"evidence: {result}"
    assert "no server is known" in err


@pytest.mark.slow
def test_a_sheet_without_a_server_says_so(place: Path) -> None:
    """The sheet itself says that no server was asked, since a reader of the sheet has not seen stderr."""
    run(place, "good.json", output=place / "sheet.html")
    assert "no server was asked for cuts" in " ".join((place / "sheet.html").read_text().split())


def test_names_of_two_columns_a_character_fit_the_screen(place: Path) -> None:
    """A drive, a result and a person with Chinese names, alone and beside another drive."""
    wide = facts(
        drives=(drive(model="\u4e09\u661f\u56fa\u6001\u786c\u76d8" * 4, serial="\u5e8f\u5217\u53f7" * 7),)
    )
    name = "\u6d4b\u8bd5\u7ed3\u679c" * 12 + ".json"
    (place / name).write_bytes(encode(accept_result(facts=wide, complete=False, stopped="Ctrl-C")))
    for results in ((name,), (name, "good.json")):
        _, out, _ = run(place, *results, by="\u6d4b\u8bd5\u5458" * 26)
        widths = [cell_len(line) for line in out.splitlines()]
        assert 79 <= max(widths) <= 80 and len(widths) <= 22


@pytest.mark.slow
@pytest.mark.parametrize("name", profiles.SHIPPED)
def test_every_shipped_profile_fits_the_screen(place: Path, name: str) -> None:
    """Each can be read, shown, and judged by."""
    code, out, _ = run(place, "good.json", profile=name)
    assert code in (3, 4) and len(out.splitlines()) <= 22, "without a campaign nothing passes"
    shown = io.StringIO()
    show_profile(name, shown)
    assert shown.getvalue() == profiles.load(name).text
    assert profiles.load(name).profile.name == name


@pytest.mark.slow
@pytest.mark.parametrize("result", ["good.json", "slow.json", "quick.json"])
@pytest.mark.parametrize("name", profiles.SHIPPED)
def test_figures_and_limits_are_whole_at_80_columns(
    place: Path, name: str, result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row is cut. Each criterion has its figure and limit, and the last row counts those without room, by
    their word."""
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(place, result, profile=name)
    lines = out.splitlines()
    assert "\u2026" not in out and max(map(cell_len, lines)) <= 80 and len(lines) <= 22
    text = " ".join(out.split())
    (drive_document,) = json.loads(run(place, result, profile=name, json=True)[1])["drives"]
    left_out = []
    for one in drive_document["criteria"]:
        limit = f" ({one['limit']})" if one["limit"] else ""
        if f"{one['word']} {one['kind']} {one['figure']}{limit}" not in text:
            left_out.append(one["word"])
    assert [line for line in lines if re.search(r"^\d+ more ", line)] == (
        [f"{len(left_out)} more ({_counts(left_out)}): the report page (-o) has all"] if left_out else []
    )
    assert drive_document["why"] in text


def _counts(words: list[str]) -> str:
    worst_first = ("refuse", "not shown", "pass")
    return ", ".join(f"{words.count(word)} {word}" for word in worst_first if word in words)


def test_a_long_figure_is_broken_between_words(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figure of stalls, which is longer than a row, goes on below itself, and the limit ends it. The
    decision, which repeats it, is whole, too."""
    monkeypatch.setenv("COLUMNS", "80")
    (place / "stalls.toml").write_text(
        '[[criterion]]\nkind = "commit-p99"\nlimit = 10\nreason = "It must not stall."\n'
    )
    (place / "stalls.json").write_bytes(encode(of_commits(FEW_STALLS).results[0].result))
    code, out, _ = run(place, "stalls.json", profile=str(place / "stalls.toml"))
    figure = "0.901 ms, longest 1 s, 6.8 % of the time beyond the limit, by only 8 commits"
    lines = out.splitlines()
    at = next(number for number, line in enumerate(lines) if line[:27] == "not shown commit-p99       ")
    assert code == 4 and lines[at + 1][:27] == " " * 27 and lines[at + 2].startswith("It shows")
    assert " ".join((lines[at] + lines[at + 1]).split()) == f"not shown commit-p99 {figure} (at most 10 ms)"
    for ends in (lines[:2], lines[-2:]):
        assert " ".join(" ".join(ends).split()) == f"NOT SHOWN commit-p99: {figure}"


def test_the_slowest_published_drive_of_its_kind_is_fast_enough() -> None:
    """The commit rate that a shipped profile asks for is the lowest published rate of that kind of drive."""
    (limit,) = (
        one.limit
        for one in profiles.load("datacenter-nvme-plp").profile.criteria
        if one.kind == "commit-rate"
    )
    assert limit == next(kind.low for kind in KINDS if kind.short == "datacenter SSD")


@pytest.mark.slow
def test_a_report_has_a_page_and_its_evidence(place: Path) -> None:
    """Two drives give a summary and two sheets; what a drive calls itself is text; the page is replaced by
    the next one, and nothing else is."""
    page, beside = place / "report.html", place / "report.json"
    code, _, err = run(place, "good.json", "other.json", output=page)
    assert code == 0 and f"the report is in {page}, its evidence in {beside}\n" in err
    text, document = page.read_text(), json.loads(beside.read_text())
    assert text.count('<section class="sheet') == 3 and document["sha256"] in text
    assert "<b>" not in text.replace("&lt;b&gt;", "") and "\x1b" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    _, _, err = run(place, "slow.json", output=page)
    assert f"{beside} (the earlier report there was replaced)\n" in err
    assert json.loads(beside.read_text())["decision"] == "refuse"
    assert page.read_text().count('<section class="sheet') == 1
    for taken in (place / "notes.html", place / "notes.json"):
        taken.write_text("mine")
        with pytest.raises(SetupError, match="is not overwritten"):
            run(place, "good.json", output=place / "notes.html")
        assert taken.read_text() == "mine"
        taken.unlink()
    with pytest.raises(UsageError, match=r"Name a file such as report\.html"):
        run(place, "good.json", output=beside)
    for day in ("01.05", "01.06"):
        run(place, "good.json", output=place / f"report-2026.{day}")
        assert (place / f"report-2026.{day}.json").exists()


@pytest.mark.slow
def test_a_page_without_room_leaves_the_earlier_report_whole(place: Path) -> None:
    """The evidence has room, and is not replaced either: its hash stands on the page."""
    page, beside = place / "report.html", place / "report.json"
    run(place, "good.json", output=page)
    before = page.read_bytes(), beside.read_bytes()
    sizes = [len(each) for each in before]
    assert sizes[0] > 2 * sizes[1]
    with pytest.raises(SetupError, match="cannot write"), files_of_at_most(sum(sizes) // 2):
        run(place, "slow.json", output=page)
    assert (page.read_bytes(), beside.read_bytes()) == before


@pytest.mark.slow
def test_json_is_one_document(place: Path) -> None:
    """Stdout holds the document of the report, and nothing else."""
    code, out, _ = run(place, "good.json", json=True)
    document = json.loads(out)
    assert code == 0 and document["schema"] == "durability.acceptance/1"
    assert (document["by"], document["decision"]) == ("a tester", "pass")


@pytest.mark.slow
def test_drives_are_told_apart(place: Path) -> None:
    """Two results of one drive are one drive; --drive chooses by model, or by a whole serial."""
    _, out, _ = run(place, "good.json", "slow.json", "other.json", json=True)
    drives = json.loads(out)["drives"]
    assert [len(one["evidence"]["results"]) for one in drives] == [2, 1]
    for text, model in (("model one", "Model One"), ("X9", "Other")):
        _, out, _ = run(place, "good.json", "other.json", json=True, drive=text)
        (one,) = json.loads(out)["drives"]
        assert one["subject"]["model"].startswith(model)
    with pytest.raises(UsageError, match="the evidence is of other drives"):
        run(place, "good.json", drive="X")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"profile": "no-such"}, SetupError, "name a file, or one of database-ssd"),
        ({"profile": "BAD"}, UsageError, r"bad\.toml: \[\[criterion\]\] 1 kind is missing"),
        ({"profile": "BYTES"}, UsageError, r"bytes\.toml: the profile is not UTF-8 at byte 0"),
        ({"profile": "LONG"}, UsageError, "too long for a profile"),
        ({"by": "x" * 81}, UsageError, "at most 80 fit the page"),
        ({"output": Path("/no/such/directory/r.html")}, SetupError, "does not exist; create it first"),
        ({"output": Path()}, SetupError, "is a directory; name a file in it"),
        ({"output": Path("/")}, SetupError, "is a directory; name a file in it"),
    ],
)
def test_bad_input_is_refused_by_name(
    place: Path, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    """Each refusal names what was read, and what to do; nothing is written."""
    (place / "bad.toml").write_text("[[criterion]]\n")
    (place / "bytes.toml").write_bytes(b"\xff\xfe")
    (place / "long.toml").write_text("#" * 70_000)
    named = {"BAD": "bad.toml", "BYTES": "bytes.toml", "LONG": "long.toml"}
    if options.get("profile") in named:
        options = {"profile": str(place / named[options["profile"]])}
    before = set(place.iterdir())
    with pytest.raises(error, match=words):
        run(place, "good.json", **options)
    assert set(place.iterdir()) == before


@pytest.mark.slow
def test_a_result_that_is_none_is_refused(place: Path) -> None:
    """The refusal names a file that cannot be read or is not a result, and a stored result or campaign that
    needs a server."""
    with pytest.raises(SetupError, match=r"cannot read the result .*none\.json"):
        run(place, "none.json")
    with pytest.raises(FormatError, match=r"mine\.toml: not JSON"):
        run(place, "mine.toml")
    wanted = EvidenceWanted(campaigns=(), results=("0123456789ab",), drive="")
    with pytest.raises(UsageError, match="no such file, and no server is known that keeps it"):
        accept(AcceptOptions(profile="consumer-ssd", wanted=wanted), io.StringIO(), io.StringIO())
    with pytest.raises(UsageError, match="--campaign needs a server"):
        wanted = EvidenceWanted(campaigns=("c",), results=(), drive="")
        accept(AcceptOptions(profile="consumer-ssd", wanted=wanted), io.StringIO(), io.StringIO())


@pytest.mark.slow
def test_a_server_that_cannot_be_searched_leaves_it_open(place: Path) -> None:
    """The result that was named passes; what the server knows of the drive may be a loss. Exit code 4, and
    the page, the document and stderr say why."""
    page = place / "report.html"
    code, out, err = run(place, "good.json", endpoint=NOWHERE, output=page)
    assert code == 4 and out.startswith("NOT SHOWN what was found passes, but the server was not searched")
    document = json.loads((place / "report.json").read_text())
    (one,) = document["drives"]
    assert one["decision"] == "not shown" and "was not searched to the end" in one["unfinished"][0]
    assert "was not searched to the end" in page.read_text() and "was not searched to the end" in err
