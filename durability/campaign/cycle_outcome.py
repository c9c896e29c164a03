"""Outcome of one cycle for each drive, from switches, agents and verdicts (rules 11, 12 and 16).

A loss counts whatever else went wrong. A pass counts only after a cut that the switches confirmed and nothing
contradicts. Every other outcome is "nothing", with its cause. Data are not judged here: verdicts come from
`evidence`.
"""

from __future__ import annotations

from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycle_state import CycleState
from durability.campaign.cycles import arm_of
from durability.campaign.definition.settings import Arm, CutSubject
from durability.campaign.log_entries import Cause, DriveCycle, Judged, OutcomeWord
from durability.campaign.tasks import Condition, DriveStatus, Trouble
from durability.evidence.cut import CUT_CLASSES, CutClass, at_least
from durability.evidence.verdict import REASONS

# Troubles of the drive or of the data on it. The other troubles are of the agent and the network.
OF_THE_DRIVE: frozenset[Trouble] = frozenset(
    {"missing", "in-use", "system-disk", "too-small", "wrong-drive", "unmountable", "not-made", "not-begun"}
)
# Reasons that keep a verdict from being durable just because of the arm's own question. They do not count
# against the outcome of such an arm.
_BY_QUESTION = frozenset({"nothing-at-risk", "cut-class", "cut-not-shown"})
# The same for runs that end cleanly: through the shutdown of the machine, or through the agent if only the
# drive is cut.
_BY_ITS_END = _BY_QUESTION | {"session-stopped", "session-closed"}
# Reasons of a verdict that concern only the cut. Any other reason may hide a fault of the drive.
_OF_THE_CUT = _BY_ITS_END | {"attestation-contradicted", "session-server-down", "session-client-error"}
# Sessions that had ended before the power went off, for reasons that no drive can cause. A machine without
# power closes no connection, but a machine whose drive was cut alone might. Only a signal stops a run of the
# agent cleanly.
_ENDED_BEFORE = {
    "session-closed": "the run's client had ended before the power went",
    "session-stopped": "the run had been stopped before the power went",
    "session-server-down": "the server was down when the power went",
}
# No drive can cause the run to be at another server than the one that conducts the campaign.
_AT_ANOTHER_SERVER = (
    "the run was at a server with another clock than the one that switched its power off, so the moment of"
    " the cut is not known"
)


def drive_cycles(state: CampaignState, cycle: CycleState) -> tuple[DriveCycle, ...]:
    """The outcome of the present cycle for each drive that took part, as if the cycle ended now."""
    return tuple(_drive_cycle(state, cycle, drive) for drive in cycle.began.drives)


def _drive_cycle(state: CampaignState, cycle: CycleState, drive: str) -> DriveCycle:
    arm = arm_of(state.plan, cycle.began.cycle)
    judged = cycle.judged.get(drive)
    status = cycle.back_status(drive, state.machine_of(drive))

    def says(word: OutcomeWord, cause: Cause | None = None, text: str = "") -> DriveCycle:
        return DriveCycle(
            drive=drive,
            word=word,
            cause=cause,
            text=text,
            run=cycle.runs.get(drive, ""),
            cut=cycle.cut_of(state.machine_of(drive)) and cycle.was_armed_at_cut(drive),
        )

    if judged is not None and judged.verdict == "loss":
        return says("loss")
    why_not = _why_not_counted(state, cycle, drive)
    if why_not is not None:
        return says("nothing", *why_not)
    if judged is not None and judged.verdict:
        word, cause, text = _ended_early(cycle, arm, judged) or _pass(state, arm, judged)
    elif arm.moment == "prefill" and status is not None and status.state == "done":
        word, cause, text = "kept", None, ""
    else:
        word, cause, text = "nothing", "no-verdict", _why(status)
    if arm.moment == "prefill" and word != "nothing" and (why := _not_cut_in_prefill(state, cycle, drive)):
        return says("nothing", "not-a-cut", why)
    machine = state.machine_of(drive)
    if word == "kept" and (why := _restarted(state, cycle, drive)):
        return says("nothing", "agent", why)
    if word != "nothing" and (why := _not_cut_again(cycle, machine)):
        return says("nothing", "switch", why)
    return says(word, cause, text)


def _why_not_counted(state: CampaignState, cycle: CycleState, drive: str) -> tuple[Cause, str] | None:
    """Cause and text if the cycle cannot count for a drive, whatever the verdict. None if it may count."""
    machine = state.machine_of(drive)
    status = cycle.back_status(drive, machine)
    if not cycle.was_armed_at_cut(drive) and (drive not in cycle.runs or cycle.first_off is not None):
        return _not_armed(cycle, drive)
    failed = status if status is not None and status.state == "failed" else None
    if failed is not None and failed.trouble in OF_THE_DRIVE:
        return "drive", failed.text
    without_cut = _without_cut(cycle, machine, cycle.judged.get(drive))
    if without_cut is None and not cycle.back_task(machine):
        return "no-verdict", f"machine {machine} did not come back"
    if without_cut is None and failed is not None:
        return "no-verdict", failed.text
    return without_cut or _not_shut_down(state, cycle, drive)


def _not_shut_down(state: CampaignState, cycle: CycleState, drive: str) -> tuple[Cause, str] | None:
    """Cause and text if the drive was not shut down cleanly before the power went off. None if it was, or if
    the cycle has no shutdown. A drive that prevents a clean shutdown must not look good because of it."""
    if not cycle.shutdown:
        return None
    mine = cycle.status(drive, cycle.shutdown)
    if mine is not None and mine.state == "failed":
        return "drive" if mine.trouble in OF_THE_DRIVE else "no-verdict", mine.text
    machine = state.machine_of(drive)
    for other in (one for one in cycle.began.drives if state.machine_of(one) == machine):
        status = cycle.status(other, cycle.shutdown)
        if status is None:
            return "agent", f"machine {machine} was not shut down: its agent did not begin to"
        if status.state == "working":
            return "no-verdict", f"machine {machine} was not shut down: {other} was still at work"
    return None


def _without_cut(cycle: CycleState, machine: str, judged: Judged | None) -> tuple[Cause, str] | None:
    """Cause and text if a drive with an armed run was not cut. None if it was cut."""
    if cycle.abandoned is not None and judged is not None and judged.target_error:
        return "drive", _failed_under_load(judged)
    if cycle.abandoned is not None:
        return cycle.abandoned.cause, cycle.abandoned.text
    if (contradiction := cycle.contradiction(machine)) is not None:
        return "not-a-cut", contradiction.text
    if cycle.kept_power:  # false if only a later off failed: then the first off was a cut
        return "switch", cycle.power_failed
    return None


def _restarted(state: CampaignState, cycle: CycleState, drive: str) -> str:
    """A sentence if a restart of the machine may have ended the run before its drive was cut alone. "" if
    not."""
    machine = state.machine_of(drive)
    early = cycle.restarted_before_cut(machine, drive) if state.plan.subject == "drive" else False
    if early is None:
        return (
            f"machine {machine} restarted, and it is not known whether before or after the power of the drive"
            " went: perhaps its run met no cut"
        )
    return f"machine {machine} restarted before the power of the drive went" if early else ""


def _not_cut_again(cycle: CycleState, machine: str) -> str:
    """Why the second off of an arm did not come, as a sentence. "" if it came, or if the arm has none. A
    machine that kept its power verifies at once, and a second off of the others would disturb that."""
    if cycle.began.again_after_s is None or cycle.offs_of(machine) >= 2:
        return ""
    return cycle.power_failed or "there was no second off: another machine kept its power"


def _not_cut_in_prefill(state: CampaignState, cycle: CycleState, drive: str) -> str:
    """Why the drive was not cut, as a sentence, from its conditions before and after the cut. "" if nothing
    contradicts the cut. A run that is cut in its prefill was never armed, so its verdict has no facts to
    compare (rule 11)."""
    machine, before = state.machine_of(drive), cycle.found.get(drive)
    status = cycle.back_status(drive, machine)
    after = status.condition if status is not None else None
    counted = _counted(before, after)
    if counted is False and state.plan.cut_class == "power":
        return "the drive's count of unsafe shutdowns did not rise"
    if counted or state.plan.subject == "machine":
        return ""
    then, now = (one.diskseq if one is not None else None for one in (before, after))
    restarted = cycle.has_started_since(machine, cycle.armed.get(drive, 0))
    if then is None or now is None or now <= then or restarted:
        return "the drive was not attached anew, and did not count a power loss"
    return ""


def _counted(before: Condition | None, after: Condition | None) -> bool | None:
    """Whether the count of unsafe shutdowns rose. None if the counts prove nothing."""
    if before is None or after is None or before.serial != after.serial:
        return None
    then, now = before.unsafe_shutdowns, after.unsafe_shutdowns
    if then is None or now is None or before.emulated or after.emulated:
        return None
    return now > then


def _ended_early(cycle: CycleState, arm: Arm, judged: Judged) -> tuple[OutcomeWord, Cause, str] | None:
    """Word, cause and text if this drive's run ended before the power went off. None if it did not, or if its
    verdict has reasons other than the cut."""
    if not cycle.ended_before_cut(judged.drive):
        return None
    if judged.target_error:
        return "nothing", "drive", _failed_under_load(judged)
    if not set(judged.reasons) <= _of_the_cut(arm):
        return None
    status = cycle.status(judged.drive, cycle.number)
    why = f": {status.text}" if status is not None and status.text else ""
    return "nothing", "agent", f"its run ended before the cut{why}"


def _failed_under_load(judged: Judged) -> str:
    return f"it failed under load, with its power on: {judged.target_error}"


def _pass(state: CampaignState, arm: Arm, judged: Judged) -> tuple[OutcomeWord, Cause | None, str]:
    """Word, cause and text for a verdict without a loss. The class of the cut is checked again, since a
    verify by hand may require a weaker class than the campaign."""
    codes = list(judged.reasons)
    if judged.verdict == "durable" and not _is_of_class(judged, state.plan.cut_class):
        codes.append("cut-class")
    reasons = set(codes)
    if arm.moment == "shutdown":  # the machine has restarted, and drives do not count a clean shutdown
        reasons.discard("attestation-contradicted")
    left_out = _left_out(arm, judged, reasons, state.plan.subject)
    if left_out is not None:
        return "nothing", *left_out
    if judged.verdict == "durable" and "cut-class" not in reasons:
        return "durable", None, ""
    if arm.moment != "load" and reasons <= _by_question(arm, state.plan.subject) | {"not-armed"}:
        return "kept", None, ""
    return "nothing", "inconclusive", "; ".join(REASONS.get(code, code) for code in codes)


def _by_question(arm: Arm, subject: CutSubject) -> frozenset[str]:
    return _BY_ITS_END if arm.moment == "shutdown" or subject == "drive" else _BY_QUESTION


def _is_of_class(judged: Judged, required: CutClass) -> bool:
    return any(one == judged.cut_class and at_least(one, required) for one in CUT_CLASSES)


def _left_out(arm: Arm, judged: Judged, reasons: set[str], subject: CutSubject) -> tuple[Cause, str] | None:
    """Cause and text if the cut did not test what the arm tests, for a cause other than the drive. None if it
    did."""
    if "attestation-contradicted" in reasons and reasons <= _OF_THE_CUT:
        return "not-a-cut", REASONS["attestation-contradicted"]
    if arm.moment == "idle" and judged.at_risk_ms1000 and reasons <= _BY_ITS_END:
        return "not-armed", "the writers still had credit when the power went"
    if arm.moment == "prefill" and "not-armed" not in reasons and reasons <= _BY_ITS_END:
        return "not-armed", "the target had been filled before the power went"
    if arm.moment == "load" and judged.other_clock and reasons == {"nothing-at-risk"}:
        return "agent", _AT_ANOTHER_SERVER
    of_the_cut = _of_the_cut(arm)
    at_work = arm.moment != "shutdown" and subject == "machine"
    for code, text in _ENDED_BEFORE.items():
        of_this_cut = at_work or code == "session-server-down"
        if code in reasons and of_this_cut and reasons <= of_the_cut:
            return "agent", text
    return None


def _of_the_cut(arm: Arm) -> frozenset[str]:
    """Reasons that concern only the cut. For `prefill` they include "not-armed": a run that is cut in its
    prefill is never armed."""
    return _OF_THE_CUT | {"not-armed"} if arm.moment == "prefill" else _OF_THE_CUT


def _not_armed(cycle: CycleState, drive: str) -> tuple[Cause, str]:
    status = cycle.status(drive, cycle.number)
    if status is not None and status.trouble in OF_THE_DRIVE:
        return "drive", status.text
    if cycle.abandoned is not None and cycle.abandoned.cause == "operator":
        return "operator", cycle.abandoned.text
    if status is not None and status.state == "armed":
        return "not-armed", "the run was armed only after the power had been switched off"
    return "not-armed", _why(status)


def _why(status: DriveStatus | None) -> str:
    if status is None:
        return "the agent said nothing of it"
    return status.text or f"the agent said {status.state!r}, and no verdict came of it"
