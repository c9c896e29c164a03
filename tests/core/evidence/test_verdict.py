"""Loss needs one finding, durable needs everything, and whatever lies between names what was missing."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from durability.evidence import verdict
from durability.evidence.at_risk import AtRisk
from durability.evidence.cut import Cut, CutClass
from durability.evidence.identity import Identity
from durability.evidence.judgement import FindingClass
from durability.evidence.scan_report import Apart
from durability.evidence.verdict import EXPLAIN_FINDINGS, REASONS, Verdict, decide
from durability.formats.case import Case, PastVerdict
from durability.formats.plan import Plan
from tests.core.evidence.memory_target import (
    Disk,
    Found,
    MakePlan,
    apart,
    codes,
    judged,
    make_case,
    scan,
    small,
)
from tests.places import REFERENCE

ACKED = 2000
POWER = Cut(cut_class="power", proof=("counters",), attested=None, contradictions=())
TARGET = Identity(by="superblock", reasons=(), superseded_by="", drive_changed=False)
EXPOSED = AtRisk(ms1=1, ms10=2, ms100=3, ms1000=4, stalled=())


@pytest.fixture(name="plan", scope="module")
def fixture_plan(make_plan: MakePlan) -> Plan:
    """A small plan."""
    return small(make_plan)


@pytest.fixture(name="intact", scope="module")
def fixture_intact(plan: Plan) -> Found:
    """The scan of a target on which everything is as it must be."""
    disk = Disk(plan)
    disk.write_to(0, ACKED)
    return scan(disk, (ACKED,))


@pytest.fixture(name="broken", scope="module")
def fixture_broken(plan: Plan) -> Found:
    """The scan of a target that lacks one acknowledged write."""
    disk = Disk(plan)
    disk.write_to(0, ACKED)
    slot = disk.slot_of(0, ACKED)
    disk.put(0, slot, disk.record(0, slot, 0))
    return scan(disk, (ACKED,))


def decided(case: Case | None, found: Found, **changes: Any) -> Verdict:
    """The verdict where everything speaks for durable, but for `changes`."""
    fields: dict[str, Any] = {
        "identity": TARGET,
        "cut": POWER,
        "at_risk": EXPOSED,
        "require_cut": "power",
        "min_cuts": 1,
        **changes,
    }
    return decide(case=case, scan=found.report(), **fields)


def past(verdict: str, **changes: Any) -> PastVerdict:
    """A verdict from before."""
    fields = {"run": "0" * 16, "cut_class": "power", "at_risk_ms1000": 5, "wall": "", **changes}
    return PastVerdict(verdict=verdict, **fields)


@pytest.mark.slow
def test_durable_needs_everything(plan: Plan, intact: Found) -> None:
    """A whole run, from receipts to facts, on an honest drive."""
    verdict = judged(make_case(plan, (ACKED,)), plan, intact).verdict
    assert (verdict.word, verdict.exit_code, verdict.reasons) == ("durable", 0, ())
    assert verdict.headline == "durable across power loss"
    assert (verdict.strength.cuts, verdict.strength.losses) == (1, 0)


@pytest.mark.slow
def test_loss_needs_one_finding(plan: Plan, broken: Found) -> None:
    """One lost write in two thousand is loss, and the reason counts it."""
    verdict = judged(make_case(plan, (ACKED,)), plan, broken).verdict
    assert (verdict.word, verdict.exit_code, codes(verdict)) == ("loss", 3, ["findings"])
    assert "1 lost" in verdict.headline


INCONCLUSIVE_CASES: list[tuple[dict[str, Any], str]] = [
    ({"armed": None}, "not-armed"),
    ({"tainted": "frontier above the grant"}, "tainted"),
    ({"session_end": "stop"}, "session-stopped"),
    ({"session_end": "fin"}, "session-closed"),
    ({"session_end": "rst"}, "session-closed"),
    ({"session_end": "client-error"}, "session-client-error"),
    ({"session_end": "server-down"}, "session-server-down"),
    ({"session_end": "live"}, "session-live"),
    ({"session_end": "never"}, "session-live"),
]
INCONCLUSIVE_CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"identity": dataclasses.replace(TARGET, superseded_by="aa")}, "superseded"),
    ({"identity": dataclasses.replace(TARGET, drive_changed=True)}, "drive-changed"),
    ({"identity": dataclasses.replace(TARGET, perhaps_smaller=("half",))}, "smaller-or-copy"),
    ({"identity": dataclasses.replace(TARGET, missing=("Disk serial S2",))}, "drive-missing"),
    ({"identity": dataclasses.replace(TARGET, copied="on another volume")}, "copied"),
    ({"cut": dataclasses.replace(POWER, cut_class="none")}, "cut-not-shown"),
    ({"cut": dataclasses.replace(POWER, cut_class="vm")}, "cut-class"),
    (
        {"cut": Cut(cut_class="os", proof=(), attested="plug", contradictions=("counter",))},
        "attestation-contradicted",
    ),
    ({"at_risk": AtRisk(ms1=0, ms10=0, ms100=0, ms1000=0, stalled=())}, "nothing-at-risk"),
    ({"at_risk": AtRisk(ms1=0, ms10=0, ms100=0, ms1000=0, stalled=(0,))}, "nothing-at-risk"),
    ({"min_cuts": 2}, "too-few-cuts"),
]
INCONCLUSIVE_SCANS: list[tuple[dict[str, Any], str]] = [
    ({"finished": False, "failure": "a read hung for 120 s"}, "scan-unfinished"),
    ({"checked": 0}, "nothing-checked"),
    ({"unstable": 1}, "unstable"),
    ({"above_ceiling": 3}, "log-behind"),
]


@pytest.mark.parametrize(("changes", "code"), INCONCLUSIVE_CASES)
def test_a_record_of_the_run_that_shows_no_cut_under_load(
    plan: Plan, intact: Found, changes: dict[str, Any], code: str
) -> None:
    """Each way in which the server's record falls short is inconclusive under its own code."""
    verdict = decided(make_case(plan, (ACKED,), **changes), intact)
    assert (verdict.word, verdict.exit_code) == ("inconclusive", 4)
    assert code in codes(verdict)


@pytest.mark.parametrize(("changes", "code"), INCONCLUSIVE_CHANGES)
def test_a_cut_or_target_that_falls_short(
    plan: Plan, intact: Found, changes: dict[str, Any], code: str
) -> None:
    """Each way in which cut, identity, exposure or series fall short is inconclusive under its own code."""
    verdict = decided(make_case(plan, (ACKED,)), intact, **changes)
    assert verdict.word == "inconclusive"
    assert code in codes(verdict)


@pytest.mark.parametrize(("changes", "code"), INCONCLUSIVE_SCANS)
def test_a_scan_that_falls_short(plan: Plan, intact: Found, changes: dict[str, Any], code: str) -> None:
    """Each way in which the scan falls short is inconclusive under its own code."""
    verdict = decided(make_case(plan, (ACKED,)), dataclasses.replace(intact, **changes))
    assert verdict.word == "inconclusive"
    assert codes(verdict) == [code]


def test_no_log_is_never_durable(intact: Found, broken: Found) -> None:
    """Plan and target alone may prove a loss."""
    none = Cut(cut_class="none", proof=(), attested=None, contradictions=())
    nothing = AtRisk(ms1=0, ms10=0, ms100=0, ms1000=0, stalled=())
    verdict = decided(None, intact, cut=none, at_risk=nothing)
    assert verdict.word == "inconclusive"
    assert codes(verdict)[0] == "no-server-log"
    assert decided(None, broken, cut=none, at_risk=nothing).word == "loss"


def test_without_a_log_superblocks_alone_prove_no_loss(plan: Plan, intact: Found, broken: Found) -> None:
    """Without a log, damaged superblocks alone prove no loss. An unknown later run that was cut while it
    began would damage a copy first."""
    copy: dict[tuple[Apart, FindingClass], int] = {("superblock", "corrupt"): 1}
    one = dataclasses.replace(intact.report(), findings={"corrupt": 1}, apart=copy)
    more = dataclasses.replace(broken.report(), findings={"corrupt": 1, "lost": 1}, apart=copy)
    fields: dict[str, Any] = {"identity": TARGET, "cut": POWER, "at_risk": EXPOSED}
    fields |= {"require_cut": "power", "min_cuts": 1}
    without = decide(case=None, scan=one, **fields)
    assert (without.word, codes(without)) == ("inconclusive", ["no-server-log", "superseded"])
    assert "only superblocks" in without.reasons[1].text
    assert decide(case=None, scan=more, **fields).word == "loss"
    assert decide(case=make_case(plan, (ACKED,)), scan=one, **fields).word == "loss"


@pytest.mark.parametrize(("changes", "code"), INCONCLUSIVE_CASES)
def test_a_finding_is_loss_unless_something_else_explains_it(
    plan: Plan, broken: Found, changes: dict[str, Any], code: str
) -> None:
    """A missing cut excuses no finding: acknowledged data are gone all the same."""
    word = decided(make_case(plan, (ACKED,), **changes), broken).word
    assert word == ("inconclusive" if code in EXPLAIN_FINDINGS else "loss")


@pytest.mark.parametrize(("changes", "code"), INCONCLUSIVE_CHANGES)
def test_a_finding_is_loss_whatever_the_cut(
    plan: Plan, broken: Found, changes: dict[str, Any], code: str
) -> None:
    """Only a later run on the target, or other drives below it, take a finding back."""
    word = decided(make_case(plan, (ACKED,)), broken, **changes).word
    explained = ("superseded", "drive-changed", "drive-missing", "copied")
    assert word == ("inconclusive" if code in explained else "loss")


@pytest.mark.parametrize(("changes", "code"), INCONCLUSIVE_SCANS)
def test_a_finding_of_a_poor_scan(plan: Plan, broken: Found, changes: dict[str, Any], code: str) -> None:
    """Half a scan may prove a loss; one against a log that is behind may not."""
    word = decided(make_case(plan, (ACKED,)), dataclasses.replace(broken, **changes)).word
    assert word == ("inconclusive" if code == "log-behind" else "loss")


def test_a_later_pass_never_clears_a_loss(plan: Plan, intact: Found) -> None:
    """A target that was repaired, or read differently the second time, has still lost."""
    case = make_case(plan, (ACKED,), verdicts=(past("durable"), past("loss"), past("durable")))
    verdict = judged(case, plan, intact).verdict
    assert (verdict.word, codes(verdict)) == ("loss", ["earlier-loss"])


@pytest.mark.parametrize(("changes", "code"), INCONCLUSIVE_CHANGES)
def test_what_explains_findings_is_told_beside_an_earlier_loss(
    plan: Plan, broken: Found, changes: dict[str, Any], code: str
) -> None:
    """Else what a later run or a copy holds would be taken for what the drive lost."""
    verdict = decided(make_case(plan, (ACKED,), verdicts=(past("loss"),)), broken, **changes)
    explained = code in EXPLAIN_FINDINGS
    assert codes(verdict) == (["earlier-loss", code] if explained else ["findings", "earlier-loss"])
    assert (verdict.word, verdict.by_findings) == ("loss", not explained)


def test_what_was_unstable_beside_unreadable_slots_is_kept(plan: Plan, intact: Found) -> None:
    """A withdrawn loss takes nothing away from what else its pass saw: a slot that was wrong, then right."""
    poor = dataclasses.replace(intact.report(), findings={"unreadable": 1}, unstable=1)
    first = decide(
        case=make_case(plan, (ACKED,)),
        identity=TARGET,
        cut=POWER,
        scan=poor,
        at_risk=EXPOSED,
        require_cut="power",
        min_cuts=1,
    )
    assert codes(first) == ["findings", "unreadable-only", "unstable"]

    earlier = past("loss", reasons=tuple(codes(first)))
    second = decided(make_case(plan, (ACKED,), verdicts=(earlier,)), intact)

    assert (second.word, codes(second)) == ("inconclusive", ["earlier-unstable", "loss-withdrawn"])
    assert second.strength.left_out == 1


def test_a_pass_that_withdraws_a_loss_does_not_count_it(plan: Plan, intact: Found) -> None:
    """A pass that withdraws a loss does not count that loss. Its series is that of a run without a loss, for
    any required number of cuts."""
    unreadable = past("loss", reasons=("findings", "unreadable-only"))
    other = past("durable", run="1" * 16)
    case = make_case(plan, (ACKED,), verdicts=(unreadable,), series=apart(other))

    verdict = decided(case, intact, min_cuts=2)

    assert (verdict.word, codes(verdict)) == ("durable", ["loss-withdrawn"])
    assert (verdict.strength.cuts, verdict.strength.losses) == (2, 0)
    more = decided(case, intact, min_cuts=3)
    assert codes(more) == ["too-few-cuts", "loss-withdrawn"]
    answered = past("inconclusive", reasons=tuple(codes(more)))
    again = decided(dataclasses.replace(case, verdicts=(unreadable, answered)), intact)
    assert (again.word, again.strength.cuts) == ("durable", 2)


@pytest.mark.parametrize(("changes", "code"), [*INCONCLUSIVE_CHANGES, *INCONCLUSIVE_SCANS])
def test_a_pass_that_does_not_read_the_runs_own_target_withdraws_no_loss(
    plan: Plan, intact: Found, changes: dict[str, Any], code: str
) -> None:
    """A pass over a readable copy, or over a target with a later run, withdraws no loss of the original
    drive."""
    unreadable = past("loss", reasons=("findings", "unreadable-only"))
    case = make_case(plan, (ACKED,), verdicts=(unreadable,))
    fields = {
        key: value for key, value in changes.items() if key in ("identity", "cut", "at_risk", "min_cuts")
    }
    scanned = {key: value for key, value in changes.items() if key not in fields}
    found = dataclasses.replace(intact, **scanned) if scanned else intact
    elsewhere = EXPLAIN_FINDINGS | {"scan-unfinished", "smaller-or-copy"}
    assert ("loss-withdrawn" in codes(decided(case, found, **fields))) == (code not in elsewhere)


def test_an_earlier_pass_that_lacked_evidence_may_be_repeated(plan: Plan, intact: Found) -> None:
    """An attestation may be given later; the target is the same."""
    case = make_case(plan, (ACKED,), verdicts=(past("inconclusive"),))
    assert judged(case, plan, intact).verdict.word == "durable"


@pytest.mark.parametrize(
    ("cut_class", "words"),
    [
        ("power", "durable across power loss"),
        ("vm", "durable across guest loss; host power loss not shown"),
        ("os", "durable across loss of the operating system; power loss not shown"),
    ],
)
def test_the_first_line_says_which_cut(plan: Plan, intact: Found, cut_class: CutClass, words: str) -> None:
    """A weaker class, where it is enough, is never passed off as power loss."""
    cut = dataclasses.replace(POWER, cut_class=cut_class)
    verdict = decided(make_case(plan, (ACKED,)), intact, cut=cut, require_cut="os")
    assert (verdict.word, verdict.headline) == ("durable", words)


def test_min_cuts_asks_the_series(plan: Plan, intact: Found) -> None:
    """Enough cuts are durable; one of them lost, or never verified, is not."""
    case = make_case(plan, (ACKED,), series=apart(past("durable"), past("durable")))
    assert decided(case, intact, min_cuts=3).word == "durable"
    lost = make_case(plan, (ACKED,), series=apart(past("durable"), past("loss")))
    assert codes(decided(lost, intact, min_cuts=3)) == ["series-has-loss"]
    assert decided(lost, intact).word == "durable"
    unverified = make_case(plan, (ACKED,), series=apart(past("durable"), past("durable"), past("unverified")))
    assert codes(decided(unverified, intact, min_cuts=3)) == ["series-incomplete"]


def test_every_reason_is_documented() -> None:
    """The table in docs/reference/cli.md has the codes and sentences of the code, in its order."""
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    table = page.partition("## Reasons")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", table, re.MULTILINE) == list(REASONS.items())


def test_the_page_of_the_verdict_quotes_every_durable_headline() -> None:
    """docs/reference/verdict.md has what each class of cut is called in the first line."""
    page = (REFERENCE / "verdict.md").read_text(encoding="utf-8")
    for headline in verdict._DURABLE_HEADLINES.values():
        assert headline.removeprefix("durable ") in page
