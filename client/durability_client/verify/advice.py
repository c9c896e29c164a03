"""Next steps after each verdict: commands and options for this situation.

Steps that cannot help are not advised. So an attestation is advised only if the judge would believe it, and
if a later `verify` could still make the run durable.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from durability.evidence.cut import restart_is_unclear
from durability.evidence.judge import attestation_would_do
from durability.evidence.looks import first_event
from durability.evidence.outcome import Outcome
from durability.evidence.strength import upper_bound
from durability.formats.case import ProvableCutClass
from durability.units import percent_at_most

_SERIES_AIMS = (10, 30, 59, 299)  # cuts without loss, for bounds of 26, 9.6, 5 and 1 %

# Advice for each reason of a verdict that is not a loss. {cut}: class of the cut that the evidence shows;
# {cuts}: verified cuts of the series.
ADVICE: Mapping[str, str] = {
    "no-server-log": "verify with the server that has the log of this run, or with an export of it",
    "loss-withdrawn": "look in the kernel's log for I/O errors of this drive, and find out why they came",
    "not-armed": "run again, and cut only after records are acknowledged",
    "superseded": "verify the later run; this run can no longer be judged",
    "tainted": "run again, with only one client for the run",
    "log-behind": "check if the server's store was restored from a copy; if not, report a defect of the tool",
    "drive-changed": "verify on the drives that lost power, not on a copy",
    "emptied-at-boot": "run again on a target outside this directory",
    "copied": "verify the target itself at its own path, not a copy of it",
    "drive-missing": "attach the drive that is missing, then verify again",
    "smaller-or-copy": "verify on the drive that lost power; if this is it, it came back smaller",
    "session-stopped": "run again, and cut the power while the run writes; do not stop it first",
    "session-closed": "cut the power of the machine; do not end the client or its connection",
    "session-client-error": "look up the failure with `durability show {run}`, and run again",
    "session-server-down": "run again, and keep the server up until after the cut",
    "session-live": "run again, and keep the server up until the client falls silent",
    "cut-not-shown": "run again, and cut the power of the drive or of its machine while the run writes",
    "cut-class": "run again, and cut the power of the drive itself, or ask for less: `--require-cut {cut}`",
    "attestation-contradicted": "check that this drive lost power, and that it did so after the run began",
    "scan-unfinished": "verify again; a drive that does not answer cannot be judged",
    "nothing-checked": "run again, and write for longer before the cut",
    "nothing-at-risk": "run again, and cut while records are acknowledged and the server is reachable",
    "unstable": "test the memory and cables of this machine, and run again",
    "earlier-unstable": "test the memory and cables of this machine, and run again",
    "too-few-cuts": "run, cut and verify again on the same target, with the same options, or ask for less:"
    " `--min-cuts {cuts}`",
    "series-has-loss": "look at the cut with the loss: `durability runs --all` lists the runs",
    "series-incomplete": "verify the other cuts of the series; if one can no longer be judged, as after a"
    " later run on its target, begin a new series with another `--size`",
}
# With one of these reasons no later `verify` can make the run durable, so proof of the cut would not help.
_SPENT = frozenset(
    {"not-armed", "superseded", "tainted", "nothing-at-risk", "unstable", "earlier-unstable"}
    | {"session-stopped", "session-closed", "session-client-error", "session-server-down"}
)
_ON_SHOWING_A_CUT = frozenset({"cut-not-shown", "cut-class", "attestation-contradicted"})

_NO_SERIAL = (
    "for a series, give a virtual disk a serial of its own, or attach the drive without an adapter that hides"
    " its serial"
)
_NO_DRIVE = (
    "for a series, use a device, or a file system on one: below this target no drive is known that a serial"
    " identifies"
)
_NEWER_LOG = "verify with the server that has the log of this run, or with a newer export of it"
# An attestation after a restart or a new attachment may be about another cut (rule 11).
_VERIFY_AGAIN = "verify again before this machine restarts or a drive is attached anew"
_ATTESTED_AS: Mapping[ProvableCutClass, str] = {
    "power": "if the drives lost their power",
    "vm": "if the virtual machine was ended by force",
    "os": "if the operating system crashed or was reset",
}


def next_steps(outcome: Outcome) -> Iterator[str]:
    """The next steps, one sentence each."""
    verdict, run = outcome.verdict, f"{outcome.plan.run:016x}"
    if verdict.word == "loss":
        if outcome.case is not None:
            yield f"look at the run: `durability show {run}`"
            yield f"save the run: `durability export {run} -o FILE`"
        yield "do not trust this stack with data that must survive power loss"
        fewer = "the raw device, `--direct`, `--sync dsync`, one writer"
        yield f"to find the layer, test with fewer layers: {fewer}"
    elif verdict.word == "durable":
        yield from (ADVICE[reason.code] for reason in verdict.reasons)
        yield from _cut_again(outcome)
        yield "also test a single writer, and `--direct --sync dsync`: flush and FUA are different paths"
    else:
        yield from dict.fromkeys(text for code in _codes(outcome) for text in _about(code, outcome))
        if later := outcome.identity.superseded_by:
            yield f"to judge the later run: `durability verify {_place(outcome)} --run {later}`"


def _codes(outcome: Outcome) -> list[str]:
    """Codes of the reasons that the operator can do something about."""
    codes = [reason.code for reason in outcome.verdict.reasons]
    hopeless = set[str]()
    if outcome.case is None:  # without a log, the cut and the records at risk remain unknown
        hopeless |= {*_ON_SHOWING_A_CUT, "nothing-at-risk"}
    elif not _SPENT.isdisjoint(codes):
        hopeless |= _ON_SHOWING_A_CUT
    if "scan-unfinished" in codes:
        hopeless.add("nothing-checked")
    return [code for code in codes if code not in hopeless]


def _about(code: str, outcome: Outcome) -> Iterator[str]:
    """Advice for one reason."""
    cut, series = outcome.cut.cut_class, outcome.verdict.strength
    advice = ADVICE[code].format(cut=cut, cuts=max(1, series.cuts), run=f"{outcome.plan.run:016x}")
    if code in ("cut-not-shown", "attestation-contradicted") and _needs_a_newer_log(outcome):
        yield _NEWER_LOG
    elif code in ("cut-not-shown", "cut-class"):
        said = _attest(outcome)
        if said:
            yield said
        if not said or code == "cut-class":
            yield advice
    elif code == "attestation-contradicted" and _was_seen_before(outcome):
        yield "run again, and attest the cut in the first `verify` after it"
    elif code == "nothing-at-risk":
        yield _to_have_records_at_risk(outcome) or advice
    elif code == "too-few-cuts" and not series.is_series:
        yield f"{_for_a_series(outcome)}; or ask for less: `--min-cuts 1`"
    else:
        yield advice


def _needs_a_newer_log(outcome: Outcome) -> bool:
    """Whether a newer copy of the log would show if the machine restarted after the run. A log from a server
    on this boot of this machine would not."""
    case, now = outcome.case, outcome.facts
    if case is None or now.host.boot_id == case.server_boot_id:
        return False
    return restart_is_unclear(case, now) and all(off.subject != "drive" for off in case.power_offs)


def _was_seen_before(outcome: Outcome) -> bool:
    """Whether an earlier `verify` saw the cut and a later event followed."""
    event = None if outcome.case is None else first_event(outcome.case, outcome.facts)
    return event is not None and event.over


def _attest(outcome: Outcome) -> str:
    """How to attest a cut of the required class; "" if the judge would not believe the attestation."""
    case, required = outcome.case, outcome.requirements.cut
    assert case is not None
    controller = next((off.text for off in case.power_offs), None)
    unsaid = outcome.cut.attested in (None, controller)
    if unsaid and attestation_would_do(outcome, None):
        return f'if you cut the power, {_VERIFY_AGAIN}, and say how: `--attest-cut "mains plug pulled"`'
    if required != "none" and attestation_would_do(outcome, required):
        what = _ATTESTED_AS[required]
        said = f'`--attest-cut "HOW IT WAS CUT" --cut-class {required}`'
        return f"{what}, {_VERIFY_AGAIN}, and say so: {said}"
    return ""


def _to_have_records_at_risk(outcome: Outcome) -> str:
    """How to run again so that the moment of the cut is observed; "" if it was, or no advice applies."""
    case = outcome.case
    assert case is not None
    if case.off_by_another_clock:
        return "run again, with the machine connected to the server that runs the campaign"
    if outcome.at_risk.unknown and (case.target_error is None or case.target_error.drive == "unseen"):
        return (
            "run again as root, and keep the server reachable: after an I/O error the client has to read the"
            " drives, and to say whether they answer"
        )
    return ""


def _for_a_series(outcome: Outcome) -> str:
    """Advice if the drives have no series."""
    return _NO_SERIAL if outcome.armed.drives else _NO_DRIVE


def _cut_again(outcome: Outcome) -> Iterator[str]:
    """What more cuts of the series would prove, if none of them loses data."""
    series = outcome.verdict.strength
    aims = [cuts for cuts in _SERIES_AIMS if cuts > series.cuts][:3]
    if not series.is_series:
        yield _for_a_series(outcome)
    elif series.left_out:
        yield ADVICE["series-incomplete"]
    elif aims and series.bound is not None and not series.losses:
        first, *others = ((percent_at_most(upper_bound(0, cuts)), cuts) for cuts in aims)
        more = "".join(f", {share} after {cuts}" for share, cuts in others)
        yield (
            f"cut again: at most {first[0]} of cuts lose data after {first[1]} clean cuts{more}"
            " (`--min-cuts N` requires N cuts)"
        )
    else:
        yield "cut again: a longer series says more"


def _place(outcome: Outcome) -> str:
    """Arguments that name the target in a command: its path, or `--device` if it did not mount."""
    file_system = outcome.facts.file_system
    if file_system is not None and not file_system.mount_point:
        return f"--device {shlex.quote(file_system.source)}"
    return shlex.quote(outcome.facts.path)
