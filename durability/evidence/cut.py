"""Was there a cut, and of what? That is rule 11.

The server's record, the facts at arming and the facts now show a class of cut, and how. Wall clocks and a
silent server are not evidence. The operator's statement raises the class only as far as the facts allow it.
Refuses to conclude anything from an emulated drive's counter.

    power   every leaf drive counted an unsafe shutdown since the run read its counter last, or the operator
            says that power was cut
    vm      the guest's memory is gone with its operating system; the host kept its power
    os      the operating system died; the drives may have kept power
    none    nothing shows a cut
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import le
from typing import Literal, TypeAlias

from durability.evidence.drive_identity import are_two, machine_ids, own_serial, same_kernel, told_apart
from durability.formats.case import PROVABLE_CUT_CLASSES, RESET, Case, PowerOff, ProvableCutClass, Receipt
from durability.formats.drive_serials import is_nobodys
from durability.formats.facts import Drive, Facts
from durability.formats.run_statistics import Statistics

CutClass: TypeAlias = Literal["none", ProvableCutClass]
CUT_CLASSES: tuple[CutClass, ...] = ("none", *reversed(PROVABLE_CUT_CLASSES))  # in rising order

# The time of now's boot is known from facts that may be older than the case by as much as this.
_BOOT_DOUBT_NS = 10_000_000_000
# For so long a power supply may feed a drive, or a machine, after its switch has said off.
_HOLD_UP_NS = 3_000_000_000
_RESTARTED = "after an I/O error of the target the machine may have been restarted cleanly"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The class that stands, with its proof in sentences. `attested`: the operator's words, None if there are
    none. `contradictions`: why these words were not believed. `unproven`: what happened and proves no cut, a
    sentence or ""."""

    cut_class: CutClass
    proof: tuple[str, ...]
    attested: str | None
    contradictions: tuple[str, ...]
    unproven: str = ""


def at_least(shown: CutClass, required: CutClass) -> bool:
    """True if `shown` is as strong as `required`."""
    return CUT_CLASSES.index(shown) >= CUT_CLASSES.index(required)


def assess(case: Case, now: Facts | None, *, attested: str | None, cut_class: CutClass | None) -> Cut:
    """The cut between the end of the run of `case` and `now`. `attested` is what the operator says of the
    cut, `cut_class` the class that the operator claims (None: power)."""
    off = next(iter(case.power_offs), None)
    by_controller = off is not None and not attested
    if off is not None and not attested:
        attested, cut_class = off.text, off.cut_class
    if case.armed is None or now is None:
        why = ["the run was never armed"] if case.armed is None else ["the target cannot be examined now"]
        if not attested or (by_controller and case.armed is None):
            why.clear()  # a controller may cut a run in its prefill
        return Cut(cut_class="none", proof=(), attested=attested, contradictions=tuple(why))
    armed = _as_last_counted(case.armed, case.statistics)
    counted = _counted_power_loss(armed, now)
    death = _os_death(case, case.armed, now)
    anew, moved = _enumerated_anew(case.armed, now), _moved(case.armed, now)
    of_guest = _is_guest(case.armed) or _is_guest(now)
    if by_controller and off is not None:
        cut_class = _at_most(off, of_guest=of_guest, enumerated_anew=bool(anew))
    shown: CutClass = "power" if counted else "os" if death and not case.failed else "none"
    claimed, contradictions = shown, list[str]()
    if attested:
        claimed = _believable(cut_class, of_guest=of_guest, died=bool(death), moved=bool(moved))
        # A drive that is cut alone leaves its system alive: the end of that is of another cause.
        alone = by_controller and off is not None and off.subject == "drive"
        happened = bool(counted or anew or moved or (death and not alone))
        unclear = not alone and restart_is_unclear(case, now)
        contradictions = _contradictions(armed, now, claimed, happened=happened, alone=alone, unclear=unclear)
        if by_controller:
            contradictions += _went_on_without_power(case)
    believed = bool(attested) and not contradictions
    # A machine whose target failed may be restarted in order, which looks the same as its death.
    unproven = _RESTARTED if death and case.failed and not (counted or believed) else ""
    proof = [sentence for sentence in (counted, "" if unproven else death, anew, moved) if sentence]
    if believed and not at_least(shown, claimed):
        shown = claimed
        who = "the power controller's log shows" if by_controller else "the operator attests"
        proof.append(f"{who}: {attested}")
    return Cut(
        cut_class=shown,
        proof=tuple(proof),
        attested=attested or None,
        contradictions=tuple(contradictions),
        unproven=unproven,
    )


def outlived(case: Case, now: Facts | None) -> bool:
    """Whether the system that the client ran on was alive after the client fell silent: its connection was
    reset in the boot of the run, or before the boot of now began. Another one may have begun in between, or
    a machine's firmware answered; then a cut that met load is not believed. A reset by the system of now says
    that it does not know the connection, and nothing else. Neither does one in the boot of the run, if every
    drive was enumerated anew: a drive that is cut alone leaves its system alive."""
    if case.session_end != "silence" or case.armed is None or now is None or not now.host.boot_id:
        return False
    reset_ns = _reset_ns(case)
    if reset_ns is None:
        return False
    if same_kernel(case.armed.host, now.host):
        return not _enumerated_anew(case.armed, now)
    if not case.armed.host.machine_id or case.armed.host.machine_id != now.host.machine_id:
        return False
    if case.server_boot_id != case.receipt_boot_id:
        return False
    return case.now_ns - now.host.uptime_ns - reset_ns > _BOOT_DOUBT_NS


def restart_is_unclear(case: Case, now: Facts) -> bool:
    """Whether the machine of the run is in another boot, and no clock tells if that began after the run's
    last message: the log was read too soon after it, or by a server that started with this boot."""
    if case.armed is None or not case.armed.host.boot_id:
        return False
    return _is_another_boot(case.armed, now) and not _os_death(case, case.armed, now)


def off_as_seen(case: Case) -> PowerOff | None:
    """The controller's log as far as the drive, and its machine, bear it out: None if they went on, and with
    a later confirmation if a power supply fed them until then."""
    heard_ns = _heard_after_off_ns(case)
    if case.power_off is None or _worked_after_off_ns(case) or heard_ns > _HOLD_UP_NS:
        return None
    acknowledged_ns, _ = _after_off_ns(case)
    fed_ns = max(acknowledged_ns, heard_ns)
    return replace(case.power_off, confirmed_ns=case.power_off.confirmed_ns + fed_ns)


def _reset_ns(case: Case) -> int | None:
    """When the connection of the last session was reset, None if it was not."""
    reset_ns = None
    for event in case.events:
        if event.kind == "session":
            reset_ns = None
        elif event.kind == "rst" and event.text.startswith(RESET):
            reset_ns = event.at_ns
    return reset_ns


def _believable(claimed: CutClass | None, *, of_guest: bool, died: bool, moved: bool) -> CutClass:
    """The class that an attestation stands for: power, unless the operator or a virtual machine says less. A
    guest that died, or whose drives are elsewhere now, was forced off as a rule with its host alive, so
    without the operator's explicit word it counts as `vm`. A drive that was cut off under a living guest is
    what the operator says it is."""
    if claimed is not None:
        return claimed
    return "vm" if of_guest and (died or moved) else "power"


def _at_most(off: PowerOff, *, of_guest: bool, enumerated_anew: bool) -> CutClass:
    """The class that a controller's log stands for: not more than `vm` where it switched a guest. A drive
    that was cut off under a living guest is what the campaign file says."""
    alone = off.subject == "drive" and enumerated_anew
    return "vm" if of_guest and off.cut_class == "power" and not alone else off.cut_class


def _is_guest(facts: Facts) -> bool:
    """Whether the machine of the facts is a virtual one. Not every system says so of itself; a drive of a
    hypervisor does."""
    return facts.host.virtualisation != "none" or any(drive.emulated for drive in facts.drives)


def _went_on_without_power(case: Case) -> list[str]:
    """The contradiction that what a controller switched off went on after that, for longer than a power
    supply may feed it: a machine whose client was heard, or a drive that acknowledged or answered."""
    off = case.power_off
    if off is None:
        return []
    if off.subject == "drive":
        late_ns, what = _worked_after_off_ns(case), "a drive answered"
    else:
        heard_ns = _heard_after_off_ns(case)
        late_ns, what = heard_ns if heard_ns > _HOLD_UP_NS else 0, "the client was heard"
    if not late_ns:
        return []
    return [f"{what} {late_ns / 1e6:.0f} ms after the switch had said that the power was off"]


def _heard_after_off_ns(case: Case) -> int:
    """How long after the confirmation that the machine is off its client was heard last; 0 for not at all,
    and where a drive alone was switched."""
    off = case.power_off
    if off is None or off.subject == "drive":
        return 0
    return max(0, case.last_receipt_ns - off.confirmed_ns - case.rtt_max_ns)


def _worked_after_off_ns(case: Case) -> int:
    """For how long, at least, the drive went on after the controller had confirmed that it is off; 0 for not
    at all, or for no longer than a power supply may feed it."""
    acknowledged_ns, answered_ns = _after_off_ns(case)
    return max(answered_ns, acknowledged_ns if acknowledged_ns > _HOLD_UP_NS else 0)


def _after_off_ns(case: Case) -> tuple[int, int]:
    """How long after the confirmation of off the drive acknowledged something last, and answered a read after
    an I/O error; 0 for not at all. A report may have been under way for a round trip, and for longer if it
    was held up."""
    if case.power_off is None:
        return 0, 0
    off_ns = case.power_off.confirmed_ns + case.rtt_max_ns
    answered_ns = 0
    if case.target_error is not None and case.target_error.drive == "answered":
        answered_ns = case.target_error.at_ns
    acknowledged_ns = sent_ns(case, case.timeline[-1]) if case.timeline else 0
    return max(0, acknowledged_ns - off_ns), max(0, answered_ns - off_ns)


def sent_ns(case: Case, receipt: Receipt) -> int:
    """When the acknowledgements of a receipt of the timeline were sent, at the earliest as far as that is
    known: where they came late, when the stretch began that held them up."""
    # A stretch that began after the receipt changes nothing.
    held_up = (held.from_ns for held in case.held_up if all(map(le, receipt.frontiers, held.frontiers)))
    return min((receipt.at_ns, *held_up))


def _contradictions(
    armed: Facts, now: Facts, claimed: CutClass, *, happened: bool, alone: bool, unclear: bool
) -> list[str]:
    """Facts that contradict what is attested. `alone`: that drives lost their power, and their machine did
    not. `unclear`: whether the system has restarted."""
    if not happened and alone:
        return [
            "since the run's last message, not all drives were reattached, and not all counted a power loss"
        ]
    if not happened and unclear:
        return [
            "the system has restarted since the run was armed, but this log does not show whether this boot"
            " began after the run's last message, and not all drives were reattached"
        ]
    if not happened:
        return [
            "since the run's last message, the system has not restarted and not all drives were reattached"
        ]
    if claimed != "power":
        return []
    return [
        f"the unsafe-shutdown counter of {before.model or before.name} (serial {before.serial}) stayed at "
        f"{after.unsafe_shutdowns}; a power cut raises it"
        for before, after in _counted(armed, now)
        if after is not None and _risen(before, after) is False
    ]


def _pairs(armed: Facts, now: Facts) -> list[tuple[Drive, Drive | None]]:
    """Each leaf drive at arming with itself now: by serial, else by name and size, and emulated or not as it
    was at arming (rule 9). Of several that are alike, as two paths to one drive, the one that has been there
    the longest."""
    then_on, now_on = machine_ids(armed.host, now.host)

    def is_same(before: Drive, after: Drive) -> bool:
        serial = own_serial(before, then_on)
        if serial != own_serial(after, now_on):
            return False
        if serial:
            return not are_two(before, after)
        return (before.name, before.size_bytes) == (after.name, after.size_bytes)

    def age(drive: Drive) -> tuple[int, int]:
        return drive.diskseq or 0, drive.unsafe_shutdowns or 0

    known = zip(told_apart(armed, now).drives, now.drives, strict=True)
    found = sorted(known, key=lambda one: age(one[1]))
    return [
        (before, next((after for taken, after in found if is_same(before, taken)), None))
        for before in armed.drives
    ]


def _counted(armed: Facts, now: Facts) -> list[tuple[Drive, Drive | None]]:
    """As `_pairs`; None where the drive now may be that of another count. Paths to one drive show one count,
    unless only some of them could be read later, so others are drives that nothing else tells apart."""
    pairs = _pairs(armed, now)

    def is_one(before: Drive, other: Drive) -> bool:
        return before.unsafe_shutdowns == other.unsafe_shutdowns or (
            bool(before.wwid) and before.wwid == other.wwid
        )

    return [
        (before, after if all(is_one(before, other) for other, its in pairs if its is after) else None)
        for before, after in pairs
    ]


def _risen(before: Drive, after: Drive | None) -> bool | None:
    """Whether the unsafe-shutdown counter rose; None where it proves nothing, as one that went back."""
    if after is None or is_nobodys(before.serial) or before.emulated or after.emulated:
        return None
    then, now = before.unsafe_shutdowns, after.unsafe_shutdowns
    return None if then is None or now is None or now < then else now > then


def _as_last_counted(armed: Facts, statistics: Statistics | None) -> Facts:
    """The facts at arming, with the counters that the run read last: what they counted until then was no cut
    at its end."""
    newest = () if statistics is None else statistics.unsafe_shutdowns
    if len(newest) != len(armed.drives):
        return armed
    drives = (
        drive if count is None else replace(drive, unsafe_shutdowns=count)
        for drive, count in zip(armed.drives, newest, strict=True)
    )
    return replace(armed, drives=tuple(drives))


def _counted_power_loss(armed: Facts, now: Facts) -> str:
    """The sentence that every leaf drive counted a power loss, or ""."""
    pairs = _counted(armed, now)
    if not pairs or not all(_risen(before, after) for before, after in pairs):
        return ""
    counters = ", ".join(
        f"{before.serial} {before.unsafe_shutdowns} → {after.unsafe_shutdowns}"
        for before, after in pairs
        if after is not None
    )
    return f"the unsafe-shutdown counter of every drive rose since the run read it last: {counters}"


def _os_death(case: Case, armed: Facts, now: Facts) -> str:
    """The sentence that the operating system of the run died after the last frame, or ""."""
    if not _is_another_boot(armed, now):
        return ""
    since_ns = case.now_ns - case.last_receipt_ns
    before = f"the run's last message came {since_ns / 1e9:.0f} s ago"
    if case.receipt_boot_id != case.server_boot_id:
        # The last frame is older than this boot of the server, or another machine received it: no clock
        # counts from it. A restarted server's uptime still bounds the time from below. If verify runs on the
        # same system as the server, both uptimes are one: which was read first shows nothing.
        if case.server_boot_id == now.host.boot_id:
            return ""
        since_ns = case.now_ns
        before = (
            f"the run's last message came before the server's machine started, {since_ns / 1e9:.0f} s ago,"
            " or to a server on another machine"
        )
    if now.host.uptime_ns >= since_ns:
        return ""
    return f"the same machine has restarted, {now.host.uptime_ns / 1e9:.0f} s ago; {before}"


def _is_another_boot(armed: Facts, now: Facts) -> bool:
    """Whether the same machine is in another boot than at arming."""
    if not armed.host.machine_id or armed.host.machine_id != now.host.machine_id:
        return False
    return bool(now.host.boot_id) and armed.host.boot_id != now.host.boot_id


def _enumerated_anew(armed: Facts, now: Facts) -> str:
    """The sentence that each leaf drive was attached anew in the boot of the run, or "". The drives of `now`
    are those below the file system as it is mounted now, so a newer one means a newer mount as well."""
    pairs = _pairs(armed, now)
    if not pairs or armed.host.boot_id != now.host.boot_id or _is_elsewhere(armed, now):
        return ""  # within another boot everything is new, and two machines number drives as they like
    for before, after in pairs:
        if after is None or before.diskseq is None or after.diskseq is None:
            return ""
        if after.diskseq <= before.diskseq:
            return ""
    return "every drive was re-enumerated: " + ", ".join(
        f"{before.name} diskseq {before.diskseq} → {after.diskseq}"
        for before, after in pairs
        if after is not None
    )


def _moved(armed: Facts, now: Facts) -> str:
    """The sentence that each leaf drive is attached to another machine than at arming, or ""."""
    pairs = _pairs(armed, now)
    if not pairs or not _is_elsewhere(armed, now):
        return ""
    for before, after in pairs:
        if after is None or not own_serial(before, armed.host.machine_id):
            return ""  # two machines may give one name to drives of one size
    return "every drive, recognised by its serial number, is attached to another machine than at arming"


def _is_elsewhere(armed: Facts, now: Facts) -> bool:
    """Whether the facts are of another machine. Containers have machine ids of their own; the boot is their
    kernel's."""
    return not same_kernel(armed.host, now.host) and armed.host.machine_id != now.host.machine_id
