"""The verdict: durable, loss or inconclusive, with its reasons.

A loss requires one finding on the right target that only the drive, or the stack above it, can explain.
Durable requires all of these: a cut that is shown and met load, a complete log, every slot checked, and no
slot wrong. Otherwise the verdict is inconclusive, with a reason for each missing requirement.
docs/explanation/evidence.md explains the codes.

Only the run's own target may be judged: see `durability.evidence.identity`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from durability import errors
from durability.evidence.at_risk import AtRisk
from durability.evidence.cut import Cut, CutClass, at_least
from durability.evidence.identity import Identity
from durability.evidence.scan_report import ScanReport
from durability.evidence.strength import Strength, has_series, strength
from durability.formats.case import TRACES_OF_A_CUT, Case, PastVerdict
from durability.units import counted

VerdictWord: TypeAlias = Literal["durable", "loss", "inconclusive"]
EXIT_CODES: Mapping[VerdictWord, int] = {
    "durable": errors.EXIT_OK,
    "loss": errors.EXIT_LOSS,
    "inconclusive": errors.EXIT_INCONCLUSIVE,
}

# Every reason code, and when it is given. docs/reference/cli.md has the same table.
REASONS: Mapping[str, str] = {
    "findings": "acknowledged data are missing or damaged on the target",
    "device-smaller": "the drive or the device is smaller than at arming",
    "earlier-loss": "an earlier verify of this run found a loss, which none has withdrawn",
    "unreadable-only": "only I/O errors show the loss; a verify that reads the whole run withdraws it",
    "loss-withdrawn": "an earlier verify found slots unreadable, which a complete one has read since",
    "no-server-log": "this run has no server log",
    "not-armed": "the run was never armed, so nothing was acknowledged",
    "superseded": "a later run wrote to this target",
    "tainted": "the run violated the protocol",
    "log-behind": "the target holds newer writes than the server's log allows",
    "drive-changed": "the target is on other drives than at arming, or its drives now report no serial",
    "emptied-at-boot": "the target is gone from a directory that systems empty when they start",
    "copied": "the target is a copy, or may be one",
    "drive-missing": "a drive that the target was on at arming is gone, and what is on it was not read",
    "smaller-or-copy": "a device without serials is smaller than at arming, or the target was copied to it",
    "session-stopped": "the run was stopped cleanly, not by a cut",
    "session-closed": "the run's system outlived its client, so no cut ended the run",
    "session-client-error": "the client failed, but not because of an I/O error of the target",
    "session-server-down": "the server was down when the session ended",
    "session-live": "the server never saw the session end",
    "cut-not-shown": "the evidence does not show a cut",
    "cut-class": "the cut shown is of a weaker class than required",
    "attestation-contradicted": "the facts contradict what was attested",
    "scan-unfinished": "the target was not read completely",
    "nothing-checked": "no record was checked",
    "nothing-at-risk": "no record was at risk at the cut",
    "unstable": "a slot was wrong when first read, right when reread",
    "earlier-unstable": "an earlier verify read a slot wrong, then right; a later one never clears that",
    "too-few-cuts": "the series has fewer verified cuts than required",
    "series-has-loss": "another cut of the series lost data",
    "series-incomplete": "cuts of the series were not verified, or verified in a way that may hide a loss",
}
# With these reasons, something other than the drive may explain findings, so a finding is not a loss. They
# are also reported with a loss of another kind, because the findings of that pass do not count.
EXPLAIN_FINDINGS = frozenset(
    {"not-armed", "superseded", "tainted", "log-behind"}
    | {"drive-changed", "copied", "emptied-at-boot", "drive-missing"}
)
# These are reported with a loss that may be withdrawn, because they remain valid after that.
_OUTLAST_A_LOSS = frozenset({"unstable", "earlier-unstable"})

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
    "os": "durable across loss of the operating system; power loss not shown",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One of `REASONS`, with a sentence for this case."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on one run."""

    word: VerdictWord
    headline: str  # first line to print
    reasons: tuple[Reason, ...]
    strength: Strength
    explained: bool  # something other than the drive may explain missing data, or the drive became smaller

    @property
    def by_findings(self) -> bool:
        """Whether the findings of this pass count, which makes the verdict a loss."""
        return any(reason.code == "findings" for reason in self.reasons)

    @property
    def exit_code(self) -> int:
        """The exit code of `verify` for this verdict."""
        return EXIT_CODES[self.word]


def decide(
    *,
    case: Case | None,
    identity: Identity,
    cut: Cut,
    scan: ScanReport,
    at_risk: AtRisk,
    require_cut: CutClass,
    min_cuts: int,
) -> Verdict:
    """The verdict on one run. `case` None: there is no server log. `identity` must have identified the run's
    target."""
    assert identity.by is not None, identity.reasons
    missing = [
        *_log_reasons(case, identity, scan),
        *_session_reasons(case),
        *_cut_reasons(cut, require_cut),
        *_scan_reasons(scan, at_risk),
        *_earlier_reasons(case),
    ]
    explained = any(reason.code in EXPLAIN_FINDINGS for reason in missing)
    on_its_own_drives = not (explained or identity.perhaps_smaller)
    earlier = _earlier_losses(case, complete=_reads_everything(scan) and on_its_own_drives)
    loss = _loss_reasons(earlier.standing, identity, scan, explained=explained)
    withdrawn = [_reason("loss-withdrawn")] if earlier.withdrawn and not loss else []
    word: VerdictWord = "loss" if loss else "inconclusive" if missing else "durable"
    series = Strength(cuts=0, losses=0, bound=None, left_out=0)
    if case is not None:
        series = strength(
            case,
            cut_class=cut.cut_class,
            verdict=word,
            at_risk_ms1000=at_risk.ms1000,
            reasons=tuple(reason.code for reason in (*missing, *withdrawn)),
        )
        if case.armed is not None and not has_series(case.armed):
            series = replace(series, bound=None, is_series=False)
    if word == "durable":
        missing += _series_reasons(case, series, min_cuts)
        word = "inconclusive" if missing else "durable"
    if loss:
        may_fall = any(reason.code == "unreadable-only" for reason in loss)
        beside = EXPLAIN_FINDINGS | (_OUTLAST_A_LOSS if may_fall else frozenset())
        if not scan.convicting:
            beside |= {"scan-unfinished"}  # the loss has another cause, and this pass shows too little
        loss += [reason for reason in missing if reason.code in beside]
    reasons = (*(loss or missing), *withdrawn)
    return Verdict(
        word=word,
        headline=_headline(word, reasons, cut),
        reasons=reasons,
        strength=series,
        explained=explained or bool(identity.smaller or identity.perhaps_smaller),
    )


@dataclass(frozen=True, slots=True)
class _EarlierLosses:
    """Verdicts of earlier passes that were a loss: those still in effect, and whether any was withdrawn."""

    standing: tuple[PastVerdict, ...]
    withdrawn: bool


def _reads_everything(scan: ScanReport) -> bool:
    return scan.finished and not scan.failed_reads


def _earlier_losses(case: Case | None, *, complete: bool) -> _EarlierLosses:
    """The earlier losses. A pass that reads everything, this one (`complete`) or an earlier one, withdraws
    the losses before it that were only due to I/O errors."""
    given = case.verdicts if case is not None else ()
    read_since = len(given) if complete else 0
    for number, past in enumerate(given):
        if "loss-withdrawn" in past.reasons:
            read_since = max(read_since, number)
    losses = [(number, past) for number, past in enumerate(given) if past.verdict == "loss"]
    standing = tuple(
        past for number, past in losses if "unreadable-only" not in past.reasons or number >= read_since
    )
    return _EarlierLosses(standing=standing, withdrawn=len(standing) < len(losses))


def _loss_reasons(
    earlier: Sequence[PastVerdict], identity: Identity, scan: ScanReport, *, explained: bool
) -> list[Reason]:
    reasons = []
    found = {} if explained else scan.convicting
    if found:
        listed = ", ".join(f"{count} {name}" for name, count in found.items())
        reasons.append(Reason(code="findings", text=f"{REASONS['findings']}: {listed}"))
    # A drive does not become smaller because the run broke the protocol or the log is behind.
    smaller = identity.smaller and not (identity.superseded_by or identity.begun_by or identity.is_copy)
    if smaller:
        reasons.append(_reason("device-smaller", "; ".join(identity.smaller)))
    if earlier:
        reasons.append(_reason("earlier-loss"))
    unreadable_before = all("unreadable-only" in past.reasons for past in earlier)
    by_errors = scan.by_errors or found.keys() <= {"unreadable"}
    if reasons and not smaller and by_errors and unreadable_before:
        reasons.append(_reason("unreadable-only"))
    return reasons


def _log_reasons(case: Case | None, identity: Identity, scan: ScanReport) -> Iterator[Reason]:
    """Reasons why the record of the run is not complete or not reliable."""
    if case is None:
        yield _reason("no-server-log", "plan and target alone can prove a loss, but not durability")
        if not any(scan.newest_seen):  # only seq 1 shows that the server knew of the prefill
            yield _reason("not-armed", "or at least no operation of it is on the target")
        if _only_superblocks(scan) and not (identity.superseded_by or identity.begun_by):
            yield _reason(
                "superseded", "or may have, and was cut while it began: only superblocks are damaged"
            )
    elif case.armed is None:
        yield _reason("not-armed")
    elif case.tainted:
        yield _reason("tainted", case.tainted)
    yield from _identity_reasons(identity, scan)
    if scan.above_ceiling:
        yield _reason(
            "log-behind",
            f"{counted(scan.above_ceiling, 'slot')} beyond the server's credit; or a defect of this tool",
        )


def _identity_reasons(identity: Identity, scan: ScanReport) -> Iterator[Reason]:
    """Reasons why the target may not be the run's target as it was cut."""
    if identity.superseded_by:
        later = identity.superseded_by
        yield _reason("superseded", f"run {later}; --run {later} judges that one")
    elif identity.begun_by:
        yield _reason("superseded", f"run {identity.begun_by} may have, and was cut in its first sync")
    elif identity.attempted_by and scan.superblocks_wrong:
        # That run may have been cut during its first write, which is to the superblocks.
        yield _reason("superseded", f"run {identity.attempted_by} may have begun to write its superblocks")
    if identity.drive_changed:
        yield _reason("drive-changed", "a copy proves nothing about the drive that lost power")
    found = scan.convicting.keys()  # empty if nothing was read: that does not show that the target is gone
    if identity.emptied and found and not any(scan.newest_seen) and found <= {"truncated", "absent"}:
        yield _reason("emptied-at-boot", identity.emptied)
    if identity.copied:
        yield _reason("copied", identity.copied)
    elif identity.moved and not scan.is_seen:  # else its files were moved along
        yield _reason("copied", f"{identity.moved}, and nothing that the run wrote is beside it")
    if identity.missing:
        yield _reason("drive-missing", ", ".join(identity.missing))
    if identity.perhaps_smaller:
        yield _reason("smaller-or-copy", "; ".join(identity.perhaps_smaller))


def _only_superblocks(scan: ScanReport) -> bool:
    """Whether only copies of the superblock are wrong. A later run writes them first."""
    return 0 < sum(scan.findings.values()) == scan.superblocks_wrong


def _session_reasons(case: Case | None) -> Iterator[Reason]:
    """Rule 12: only a session that ended in silence, or with an I/O error of the target, can have ended in a
    cut."""
    if case is not None and case.armed is not None and case.session_end not in TRACES_OF_A_CUT:
        yield _reason(_SESSION_REASONS[case.session_end])


def _cut_reasons(cut: Cut, require_cut: CutClass) -> Iterator[Reason]:
    if at_least(cut.cut_class, require_cut):
        return
    if cut.contradictions:
        yield _reason("attestation-contradicted", "; ".join(cut.contradictions))
    if cut.cut_class == "none":
        yield _reason("cut-not-shown", cut.unproven)
    else:
        yield _reason("cut-class", f"{cut.cut_class} is shown, {require_cut} is required")


def _scan_reasons(scan: ScanReport, at_risk: AtRisk) -> Iterator[Reason]:
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
        yield _reason("nothing-at-risk", at_risk.unknown or stalled)
    if scan.unstable:
        yield _reason("unstable", f"{counted(scan.unstable, 'slot')}; suspect memory, cable or controller")


def _earlier_reasons(case: Case | None) -> Iterator[Reason]:
    """Reasons that later evidence cannot remove. A drive that needed two reads in an earlier verify has not
    passed."""
    if case is not None and any("unstable" in past.reasons for past in case.verdicts):
        yield _reason("earlier-unstable")


def _series_reasons(case: Case | None, series: Strength, min_cuts: int) -> Iterator[Reason]:
    """Requirements that the series does not meet, if more than one cut is required."""
    if min_cuts <= 1:
        return
    if series.cuts < min_cuts:
        found = case is not None and case.armed is not None and case.armed.drives
        without = "drive without a serial of its own" if found else "target without known drives"
        alone = "" if series.is_series else f"; a {without} has no series"
        yield _reason("too-few-cuts", f"{series.cuts} of {min_cuts}{alone}")
    if series.losses:
        yield _reason("series-has-loss", f"{series.losses} of {counted(series.cuts, 'cut')}")
    if series.left_out:
        yield _reason("series-incomplete", counted(series.left_out, "run"))


def _reason(code: str, detail: str = "") -> Reason:
    return Reason(code=code, text=f"{REASONS[code]}: {detail}" if detail else REASONS[code])


def _headline(word: VerdictWord, reasons: tuple[Reason, ...], cut: Cut) -> str:
    if word == "durable":
        return _DURABLE_HEADLINES[cut.cut_class]
    return f"{word}: {reasons[0].text}"
