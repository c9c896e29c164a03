"""The verdict: durable, loss or inconclusive, with its reasons.

Loss needs one finding on the right target that nothing but the drive, or the stack above it, explains.
Durable needs everything: a cut that is shown and met load, a log that was whole, every slot checked and
none wrong. What lies between is inconclusive, and each thing that was missing is named. Docs/evidence.md
has the rules behind every code here.

It refuses to judge what is not the run's target: see `durability.evidence.identity`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from durability import errors
from durability.evidence.at_risk import AtRisk
from durability.evidence.cut import Cut, CutClass, at_least
from durability.evidence.identity import Identity
from durability.evidence.judgement import FindingClass
from durability.evidence.strength import Strength, strength
from durability.formats.case import Case
from durability.units import counted

Word: TypeAlias = Literal["durable", "loss", "inconclusive"]
EXIT_CODES: Mapping[Word, int] = {
    "durable": errors.EXIT_OK,
    "loss": errors.EXIT_LOSS,
    "inconclusive": errors.EXIT_INCONCLUSIVE,
}

# Every reason code, and when it is given. docs/cli.md has the same table.
REASONS: Mapping[str, str] = {
    "findings": "what was acknowledged is not on the target as it must be",
    "earlier-loss": "an earlier pass over this run found a loss, and a later pass never clears it",
    "no-server-log": "there is no server's log of this run",
    "not-armed": "the run was never armed, so nothing was acknowledged",
    "superseded": "a later run was made on this target",
    "tainted": "the run broke a rule of the protocol",
    "log-behind": "the target holds writes that the server's log does not allow for",
    "drive-changed": "the target lies on other drives than at arming, or on drives that tell no serial now",
    "session-stopped": "the run ended with a clean stop, not in a cut",
    "session-closed": "the connection was closed, so the kernel outlived the client",
    "session-client-error": "the client failed, and not by an I/O error of the target",
    "session-server-down": "the server was down when the session ended",
    "session-live": "the server never saw the session end",
    "cut-not-shown": "nothing shows a cut",
    "cut-class": "the cut shown is of a lesser class than required",
    "attestation-contradicted": "the facts contradict the operator's word",
    "scan-unfinished": "not everything was read",
    "nothing-checked": "no record was checked",
    "nothing-at-risk": "no record was at risk when the cut came",
    "unstable": "a wrong slot was right when it was read again",
    "earlier-unstable": "an earlier pass read a slot wrong and then right; no later pass clears that",
    "too-few-cuts": "the series has fewer verified cuts than asked for",
    "series-has-loss": "another cut of the series lost data",
    "series-incomplete": "cuts of the series were never verified, or so that a loss may be hidden",
}
# These explain findings by something that is not the drive, so they keep a finding from being a loss.
EXPLAIN_FINDINGS = frozenset({"not-armed", "superseded", "tainted", "log-behind", "drive-changed"})

_SESSION_REASONS: Mapping[str, str] = {
    "stop": "session-stopped",
    "fin": "session-closed",
    "rst": "session-closed",
    "client-error": "session-client-error",
    "server-down": "session-server-down",
    "live": "session-live",
    "never": "session-live",
}
_DURABLE_HEADLINES: Mapping[CutClass, str] = {
    "power": "durable across power loss",
    "vm": "durable across guest loss; host power loss not shown",
    "os": "durable across the death of the operating system; power loss not shown",
}


class Scan(Protocol):
    """What a scan of the target found; counts of slots, lists by writer."""

    @property
    def finished(self) -> bool: ...
    @property
    def failure(self) -> str: ...
    @property
    def checked(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def in_flight_damaged(self) -> int: ...
    @property
    def findings(self) -> Mapping[FindingClass, int]: ...
    @property
    def order_violations(self) -> int: ...
    @property
    def collateral(self) -> int: ...
    @property
    def unstable(self) -> int: ...
    @property
    def above_ceiling(self) -> int: ...
    @property
    def control_lost(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One of `REASONS`, with a sentence for this case."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The word, the line to print first, why, and what the series says."""

    word: Word
    headline: str
    reasons: tuple[Reason, ...]
    strength: Strength

    @property
    def exit_code(self) -> int:
        """What `verify` exits with for this word."""
        return EXIT_CODES[self.word]


def decide(
    *,
    case: Case | None,
    identity: Identity,
    cut: Cut,
    scan: Scan,
    at_risk: AtRisk,
    require_cut: CutClass,
    min_cuts: int,
) -> Verdict:
    """The verdict on one run. `case` None: there is no server's log. `identity` must hold."""
    assert identity.by is not None
    missing = [
        *_log_reasons(case, identity, scan),
        *_session_reasons(case),
        *_cut_reasons(cut, require_cut),
        *_scan_reasons(scan, at_risk),
        *_earlier_reasons(case),
    ]
    loss = _loss_reasons(case, scan, explained=any(reason.code in EXPLAIN_FINDINGS for reason in missing))
    word: Word = "loss" if loss else "inconclusive" if missing else "durable"
    series = Strength(cuts=0, losses=0, bound=None, left_out=0)
    if case is not None:
        series = strength(
            case,
            cut_class=cut.cut_class,
            verdict=word,
            at_risk_ms1000=at_risk.ms1000,
            reasons=tuple(reason.code for reason in missing),
        )
    if word == "durable":
        missing += _series_reasons(series, min_cuts)
        word = "inconclusive" if missing else "durable"
    reasons = tuple(loss or missing)
    return Verdict(word=word, headline=_headline(word, reasons, cut), reasons=reasons, strength=series)


def _loss_reasons(case: Case | None, scan: Scan, *, explained: bool) -> list[Reason]:
    reasons = []
    found = {name: count for name, count in scan.findings.items() if count}
    if found and not explained:
        listed = ", ".join(f"{count} {name}" for name, count in found.items())
        reasons.append(Reason(code="findings", text=f"{REASONS['findings']}: {listed}"))
    if case is not None and any(past.verdict == "loss" for past in case.verdicts):
        reasons.append(_reason("earlier-loss"))
    return reasons


def _log_reasons(case: Case | None, identity: Identity, scan: Scan) -> Iterator[Reason]:
    """What is wrong with the record of the run itself."""
    if case is None:
        yield _reason("no-server-log", "the plan and the target alone can prove a loss, never durability")
    elif case.armed is None:
        yield _reason("not-armed")
    elif case.tainted:
        yield _reason("tainted", case.tainted)
    if identity.superseded_by:
        yield _reason("superseded", f"run {identity.superseded_by}")
    if identity.drive_changed:
        yield _reason("drive-changed", "a copy shows nothing of the drive that was cut")
    if scan.above_ceiling:
        yield _reason(
            "log-behind",
            f"{scan.above_ceiling} places hold more than was ever granted; or this tool has a defect",
        )


def _session_reasons(case: Case | None) -> Iterator[Reason]:
    """Rule 12: only silence, or an I/O error of the target, ends in a cut."""
    if case is not None and case.armed is not None and case.session_end not in ("silence", "target-error"):
        yield _reason(_SESSION_REASONS[case.session_end])


def _cut_reasons(cut: Cut, require_cut: CutClass) -> Iterator[Reason]:
    if at_least(cut.cut_class, require_cut):
        return
    if cut.contradictions:
        yield _reason("attestation-contradicted", "; ".join(cut.contradictions))
    if cut.cut_class == "none":
        yield _reason(
            "cut-not-shown", "--attest-cut TEXT is for a cut that you made and the facts do not show"
        )
    else:
        yield _reason("cut-class", f"{cut.cut_class} is shown, {require_cut} is required")


def _scan_reasons(scan: Scan, at_risk: AtRisk) -> Iterator[Reason]:
    if not scan.finished:
        yield _reason("scan-unfinished", scan.failure)
    if not scan.checked:
        yield _reason("nothing-checked")
    if not at_risk.ms1000:
        stalled = (
            f"{counted(len(at_risk.stalled), 'writer')} may have been waiting for the server"
            if at_risk.stalled
            else ""
        )
        yield _reason("nothing-at-risk", stalled)
    if scan.unstable:
        yield _reason("unstable", f"{scan.unstable} slots; suspect memory, cable or controller")


def _earlier_reasons(case: Case | None) -> Iterator[Reason]:
    """What earlier passes saw that more evidence cannot clear: a drive that needs two looks is no pass."""
    if case is not None and any("unstable" in past.reasons for past in case.verdicts):
        yield _reason("earlier-unstable")


def _series_reasons(series: Strength, min_cuts: int) -> Iterator[Reason]:
    """What a series must have, where more than this cut was asked for."""
    if min_cuts <= 1:
        return
    if series.cuts < min_cuts:
        yield _reason("too-few-cuts", f"{series.cuts} of {min_cuts}")
    if series.losses:
        yield _reason("series-has-loss", f"{series.losses} of {series.cuts}")
    if series.left_out:
        yield _reason("series-incomplete", f"{series.left_out} of them")


def _reason(code: str, detail: str = "") -> Reason:
    return Reason(code=code, text=f"{REASONS[code]}: {detail}" if detail else REASONS[code])


def _headline(word: Word, reasons: tuple[Reason, ...], cut: Cut) -> str:
    if word == "durable":
        return _DURABLE_HEADLINES[cut.cut_class]
    return f"{word}: {reasons[0].text}"
