"""The sheet in a real browser: one A4 page a drive, nothing asked for, nothing wider than a phone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from durability.acceptance.acceptance_document import Report
from durability.acceptance.criteria import KINDS
from durability.acceptance.cut_search import unread
from durability.acceptance.decision import decide_on
from durability.acceptance.drive_evidence import DriveEvidence
from durability.acceptance.profile import Criterion, Profile
from durability.acceptance.profile_file import CRITERIA_MAX, REASON_CHARACTERS_MAX
from durability.bench.decision.proof import Proof
from durability_client.acceptance.profiles import SHIPPED, load
from durability_client.acceptance.sheet import print_of, report_page
from tests import chromium
from tests.core.acceptance.samples import NO_FLUSH, accept_result, campaign, evidence, measured, rows

_PHONE = 400
_TABLE_POINTS = 7.6  # in `sheet.css`, at full size
_REASONS = "getComputedStyle(document.querySelector('.lines th small')).display"
GOOD = evidence(campaign(), results=[measured()])
BAD = evidence(
    campaign(
        299, losses=3, unknown=4, trouble="it was not there within 120 s", health=rows(303, media_errors=9)
    ),
    results=[
        measured(accept_result(NO_FLUSH, falls_to=0.3), name="a-rather-long-name-of-a-result-file.json")
    ],
)
EMPTY = evidence()
RUN = Proof(
    cuts=41,
    losses=0,
    bound=None,
    cut_class="power",
    source="",
    lost_in="",
    unknown=12,
    but="with the cache off",
)
# A clean campaign, beside a loss that nobody named and a claim of another client.
APART = replace(
    evidence(campaign(), results=[measured()], runs=[replace(RUN, source="run 00000000000000aa")]),
    against=(campaign(40, losses=2, trouble="it was not there within 120 s", name="shelf-4"),),
    disputed="2 cuts with unknown outcome in runs of rack-7 that are left out",
)
# All that may be much: campaigns, also those that nobody named, single runs, evidence that cannot be read,
# other clients, results that were broken off, and the names of many drives below one target.
MUCH = evidence(
    *(campaign(20, name=f"shelf-3-round-{n}", began=f"2026-01-{n % 28 + 1:02}T00:00:00Z") for n in range(40)),
    results=[
        measured(
            accept_result(
                complete=False, stopped=f"/mnt/disk: I/O error of the target {'at sector 9 ' * 40}"
            ),
            name=f"result-{n}.json",
        )
        for n in range(3)
    ],
    runs=[replace(RUN, source=f"run {n:016x}") for n in range(20)],
)
MUCH = replace(
    MUCH,
    against=tuple(campaign(20, losses=1, name=f"shelf-4-round-{n}") for n in range(20)),
    subject=replace(MUCH.subject, model=" + ".join(["Model One"] * 24), serial=" + ".join(["S4X-0001"] * 24)),
    unfinished=(
        *(unread(f"campaign shelf-{n}") for n in range(60)),
        *(unread(f"run {n:016x}") for n in range(60)),
        "the server was not searched to the end: it took too long",
    ),
    left_out=tuple(
        f"Model One S4X-000{n}: the runs of b count, and those of rack-7 (12 runs, 1 loss), rack-8 (3 runs),"
        " rack-9 (41 runs, 2 cuts with unknown outcome) and 3 others are left out; choose with --client NAME"
        for n in range(3)
    ),
)


def _report(*drives: DriveEvidence) -> Report:
    """A report by every kind of criterion, as many as fit, each with the longest reason."""
    reason = ("why " * REASON_CHARACTERS_MAX)[:REASON_CHARACTERS_MAX]
    criteria = [
        Criterion(
            kind=kind.name,
            limit=None if kind.limit is None else max(kind.limit.low, 50.0),
            cut_class="power",
            required=number % 3 > 0,
            reason=reason,
        )
        for number, kind in enumerate(KINDS.values())
    ][:CRITERIA_MAX]
    profile = Profile(
        name="everything", title="Every kind of criterion", about="For tests.", criteria=tuple(criteria)
    )
    return Report(
        profile=profile,
        profile_sha256="00" * 32,
        by="somebody at some machine",
        created="2026-01-02T03:04:05+00:00",
        software="durability 1",
        decisions=tuple(decide_on(profile, one) for one in drives),
    )


@pytest.mark.parametrize(
    ("drives", "sheets"),
    [((GOOD,), 1), ((BAD,), 1), ((EMPTY,), 1), ((APART,), 1), ((MUCH,), 1), ((GOOD, BAD, EMPTY), 4)],
)
def test_each_sheet_prints_on_one_page(
    browser: chromium.Browser, tmp_path: Path, drives: tuple[DriveEvidence, ...], sheets: int
) -> None:
    """With as many criteria as a profile may have: one A4 page a drive, and one for the summary of several.
    It asks for nothing, complains of nothing, and fits a phone."""
    path, printed = tmp_path / "report.html", tmp_path / "report.pdf"
    path.write_text(report_page(_report(*drives), "ab" * 32), encoding="utf-8")
    for width in (_PHONE, 1280):
        browser.open(path, width=width)
        assert browser.requests == [path.as_uri()]
        assert browser.complaints == []
        assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate(_REASONS) == "block"  # on the screen
    browser.print_to(printed)
    assert len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes())) == sheets


@pytest.mark.parametrize("name", SHIPPED)
def test_a_sheet_on_paper_can_be_read(browser: chromium.Browser, tmp_path: Path, name: str) -> None:
    """The profiles that come with this tool print on one page, usual evidence in letters of 6.5 points and
    more: reasons that would make them smaller are left out."""
    profile = load(name).profile
    decisions = [decide_on(profile, one) for one in (GOOD, BAD, EMPTY, APART)]
    assert min(print_of(one).scale for one in decisions) * _TABLE_POINTS >= 6.5
    path, printed = tmp_path / "report.html", tmp_path / "report.pdf"
    for decision in (*decisions, decide_on(profile, MUCH)):
        report = replace(_report(BAD), profile=profile, decisions=(decision,))
        path.write_text(report_page(report, "ab" * 32), encoding="utf-8")
        browser.open(path)
        browser.print_to(printed)
        assert len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes())) == 1


def test_a_sheet_says_that_a_result_was_broken_off_and_why() -> None:
    """Beside the result, and with the words of the error where it says what is not proven. Of many campaigns
    it lists the first."""
    text = report_page(_report(MUCH), "ab" * 32)
    assert text.count("result-0.json: bench --accept of 2026-01-02, broken off, SHA-256") == 1
    assert "result-0.json was broken off before its end: /mnt/disk: I/O error of the target at sector" in text
    assert text.count("<li>Campaign shelf-4-round-") == 8 and "52 more campaigns: the JSON file" in text
