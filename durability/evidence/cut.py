"""Whether there was a cut, and its class (rule 11).

The server's record, the facts at arming and the facts now show the class of a cut and its proof. Wall clocks
and a silent server are not evidence. The operator's statement raises the class only as far as the facts allow
it. The counter of an emulated drive is never used as evidence.

    power   every leaf drive counted an unsafe shutdown since the run read its counter last, or the operator
            says that power was cut
    vm      the guest's memory is gone with its operating system; the host kept its power
    os      the operating system died; the drives may have kept power
    none    nothing shows a cut

The first event after the run is judged as the first `verify` that saw it found it (`looks`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import le
from typing import Literal, TypeAlias

from durability.evidence.drive_identity import same_kernel
from durability.evidence.looks import FirstEvent, as_of, first_event
from durability.evidence.machine_changes import (
    as_last_counted,
    attached_elsewhere,
    counted_pairs,
    counted_power_loss,
    enumerated_anew,
    has_risen,
    is_another_boot,
)
from durability.formats.case import (
    PROVABLE_CUT_CLASSES,
    RESET,
    Case,
    Look,
    PowerOff,
    ProvableCutClass,
    Receipt,
)
from durability.formats.facts import Facts

CutClass: TypeAlias = Literal["none", ProvableCutClass]
CUT_CLASSES: tuple[CutClass, ...] = ("none", *reversed(PROVABLE_CUT_CLASSES))  # in rising order

# The facts now, which give the time of the present boot, may be older than the case by as much as this.
_BOOT_DOUBT_NS = 10_000_000_000
# Longest time for which a power supply may feed a drive or a machine after its switch confirmed off.
_HOLD_UP_NS = 3_000_000_000
_RESTARTED = "after an I/O error of the target the machine may have been restarted cleanly"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The class of the cut that is shown."""

    cut_class: CutClass
    proof: tuple[str, ...]  # sentences that prove the class
    # The operator's statement, or that of a power controller's log; None if there is none.
    attested: str | None
    contradictions: tuple[str, ...]  # why the statement was not believed
    unproven: str = ""  # a sentence about an event that does not prove a cut, or ""


def at_least(shown: CutClass, required: CutClass) -> bool:
    """True if `shown` is as strong as `required`."""
    return CUT_CLASSES.index(shown) >= CUT_CLASSES.index(required)


def assess(case: Case, now: Facts | None, *, attested: str | None, cut_class: CutClass | None) -> Cut:
    """The cut between the end of the run of `case` and `now`. `attested` is what the operator says about the
    cut, `cut_class` the class that the operator claims. Without a class, power is assumed, or vm if a guest
    died or its drives are on another machine."""
    event = first_event(case, now) if now is not None else None
    if event is None:
        return _assess(case, now, attested=attested, cut_class=cut_class)
    look = _by_which_clock(case, event)
    then = partial(_assess, as_of(case, look), look.facts)
    first = then(attested=look.attested or None, cut_class=look.cut_class)
    if not attested:
        return first if look.run == case.run else then(attested=None, cut_class=None)
    said = then(attested=attested, cut_class=cut_class)
    if not event.over:
        return said
    if look.attested:  # a later statement may lower the class, but not raise it
        return first if at_least(said.cut_class, first.cut_class) else said
    return (
        first if first.attested else replace(first, attested=attested, contradictions=(_perhaps_later(look),))
    )


def _by_which_clock(case: Case, event: FirstEvent) -> Look:
    """The first look at one state whose clock shows that the system of the run had died. If there is none,
    the first look."""
    assert case.armed is not None
    died = (look for look in event.looks if _os_death(as_of(case, look), case.armed, look.facts))
    return next(died, event.looks[0])


def _perhaps_later(look: Look) -> str:
    """Why an attestation is not believed if the first verify after the cut was not given it."""
    return (
        f"before the verify of {look.wall} the machine restarted, or drives lost power or were attached anew,"
        " and again after it; that verify was told of no cut, so what is attested may have happened after it"
    )


def _assess(case: Case, now: Facts | None, *, attested: str | None, cut_class: CutClass | None) -> Cut:
    """As `assess`, without regard to earlier looks."""
    off = next(iter(case.power_offs), None)
    by_controller = off is not None and not attested
    if off is not None and not attested:
        attested, cut_class = off.text, off.cut_class
    if case.armed is None or now is None:
        why = ["the run was never armed"] if case.armed is None else ["the target cannot be examined now"]
        if not attested or (by_controller and case.armed is None):
            why.clear()  # a controller may cut a run in its prefill
        return Cut(cut_class="none", proof=(), attested=attested, contradictions=tuple(why))
    armed = as_last_counted(case.armed, case.statistics)
    counted = counted_power_loss(armed, now)
    death = _os_death(case, case.armed, now)
    anew, elsewhere = enumerated_anew(case.armed, now), attached_elsewhere(case.armed, now)
    of_guest = _is_guest(case.armed) or _is_guest(now)
    if by_controller and off is not None:
        cut_class = _at_most(off, of_guest=of_guest, enumerated_anew=bool(anew))
    shown: CutClass = "power" if counted else "os" if death and not case.failed else "none"
    claimed, contradictions = shown, list[str]()
    if attested:
        claimed = _believable(cut_class, of_guest=of_guest, died=bool(death), moved=bool(elsewhere))
        # A cut of the drive alone leaves its system alive. If the system died, it had another cause.
        alone = by_controller and off is not None and off.subject == "drive"
        happened = bool(counted or anew or elsewhere or (death and not alone))
        unclear = not alone and restart_is_unclear(case, now)
        contradictions = _contradictions(armed, now, claimed, happened=happened, alone=alone, unclear=unclear)
        if by_controller:
            contradictions += _went_on_without_power(case)
    believed = bool(attested) and not contradictions
    # A machine whose target failed may be restarted cleanly, which looks the same as its death.
    unproven = _RESTARTED if death and case.failed and not (counted or believed) else ""
    proof = [sentence for sentence in (counted, "" if unproven else death, anew, elsewhere) if sentence]
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
    """Whether the system that the client ran on was alive after the client fell silent. This is shown if its
    connection was reset in the boot of the run, or before the present boot began. Another boot may have begun
    in between, or a machine's firmware may have answered. Then a cut that met load is not believed. A reset
    by the present system only shows that it does not know the connection. A reset in the boot of the run
    shows nothing if every drive was enumerated anew: a cut of the drive alone leaves its system alive."""
    if case.session_end != "silence" or case.armed is None or now is None or not now.host.boot_id:
        return False
    reset_ns = _reset_ns(case)
    if reset_ns is None:
        return False
    event = first_event(case, now)
    seen = ((as_of(case, look), look.facts) for look in event.looks) if event is not None else ((case, now),)
    return any(_outlived(then, found, reset_ns) for then, found in seen)


def _outlived(case: Case, now: Facts, reset_ns: int) -> bool:
    """As `outlived`, with the clock and the facts of one look."""
    assert case.armed is not None
    if same_kernel(case.armed.host, now.host):
        return not enumerated_anew(case.armed, now)
    if not case.armed.host.machine_id or case.armed.host.machine_id != now.host.machine_id:
        return False
    if case.server_boot_id != case.receipt_boot_id:
        return False
    return case.now_ns - now.host.uptime_ns - reset_ns > _BOOT_DOUBT_NS


def restart_is_unclear(case: Case, now: Facts) -> bool:
    """Whether the run's machine is in another boot, and no clock shows if that boot began after the run's
    last message. The log was read too soon after that message, or by a server that started with this boot."""
    armed = case.armed
    if armed is None or not armed.host.boot_id:
        return False
    if (event := first_event(case, now)) is not None:
        look = _by_which_clock(case, event)
        case, now = as_of(case, look), look.facts
    return is_another_boot(armed, now) and not _os_death(case, armed, now)


def off_as_seen(case: Case) -> PowerOff | None:
    """The power-off in the controller's log, as far as the drive and its machine agree with it. None if there
    is none, or if they went on for longer than a power supply may feed them. If they went on for a shorter
    time, the confirmation time is later by that time."""
    heard_ns = _heard_after_off_ns(case)
    if case.power_off is None or _worked_after_off_ns(case) or heard_ns > _HOLD_UP_NS:
        return None
    acknowledged_ns, _ = _after_off_ns(case)
    fed_ns = max(acknowledged_ns, heard_ns)
    return replace(case.power_off, confirmed_ns=case.power_off.confirmed_ns + fed_ns)


def _reset_ns(case: Case) -> int | None:
    """When the connection of the last session was reset; None if it was not."""
    reset_ns = None
    for event in case.events:
        if event.kind == "session":
            reset_ns = None
        elif event.kind == "rst" and event.text.startswith(RESET):
            reset_ns = event.at_ns
    return reset_ns


def _believable(claimed: CutClass | None, *, of_guest: bool, died: bool, moved: bool) -> CutClass:
    """The class that an attestation proves: power, unless the operator or a virtual machine indicates less. A
    guest that died, or whose drives are elsewhere now, was usually forced off while its host stayed alive. So
    without the operator's explicit class it counts as `vm`. For a drive that was cut off under a living
    guest, the operator's statement counts."""
    if claimed is not None:
        return claimed
    return "vm" if of_guest and (died or moved) else "power"


def _at_most(off: PowerOff, *, of_guest: bool, enumerated_anew: bool) -> CutClass:
    """The class that a controller's log proves: at most `vm` if it switched a guest. For a drive that was cut
    off under a living guest, the class in the campaign file counts."""
    alone = off.subject == "drive" and enumerated_anew
    return "vm" if of_guest and off.cut_class == "power" and not alone else off.cut_class


def _is_guest(facts: Facts) -> bool:
    """Whether the machine of the facts is virtual. Not every guest reports this, but a hypervisor's drive
    shows it."""
    return facts.host.virtualisation != "none" or any(drive.emulated for drive in facts.drives)


def _went_on_without_power(case: Case) -> list[str]:
    """A contradiction if the machine or drive that a controller switched off went on for longer than a power
    supply may feed it. A machine went on if its client was heard; a drive, if it acknowledged or answered."""
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
    """How long after the confirmation that the machine is off its client was last heard. 0 if it was not
    heard, or if a drive alone was switched."""
    off = case.power_off
    if off is None or off.subject == "drive":
        return 0
    return max(0, case.last_receipt_ns - off.confirmed_ns - case.rtt_max_ns)


def _worked_after_off_ns(case: Case) -> int:
    """The shortest time for which the drive must have gone on after the controller confirmed that it is off.
    0 if it did not, or if a power supply may have fed it for that long."""
    acknowledged_ns, answered_ns = _after_off_ns(case)
    return max(answered_ns, acknowledged_ns if acknowledged_ns > _HOLD_UP_NS else 0)


def _after_off_ns(case: Case) -> tuple[int, int]:
    """How long after the confirmation of off the drive last acknowledged a write, and answered a read after
    an I/O error; 0 if it did not. A report may have been in transit for one round trip, and for longer if it
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
    """The earliest known time at which the acknowledgements of a timeline receipt can have been sent. If they
    came late, this is the start of the stretch that held them up."""
    # A stretch that began after the receipt does not change the minimum.
    held_up = (held.from_ns for held in case.held_up if all(map(le, receipt.frontiers, held.frontiers)))
    return min((receipt.at_ns, *held_up))


def _contradictions(
    armed: Facts, now: Facts, claimed: CutClass, *, happened: bool, alone: bool, unclear: bool
) -> list[str]:
    """Facts that contradict the attestation. `alone`: drives lost their power, but their machine did not.
    `unclear`: it is unknown whether this boot began after the run's last message."""
    if not happened and alone:
        return [
            "since the run's last message, not all drives were reattached, and not all counted a power loss"
        ]
    if not happened and not all((*_ids(armed), *_ids(now))):
        return ["this system, or that of the run, has no machine id or no boot id: no restart can be shown"]
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
        for before, after in counted_pairs(armed, now)
        if after is not None and has_risen(before, after) is False
    ]


def _ids(facts: Facts) -> tuple[str, str]:
    return facts.host.machine_id, facts.host.boot_id


def _os_death(case: Case, armed: Facts, now: Facts) -> str:
    """A sentence if the operating system of the run died after the last frame, else ""."""
    if not is_another_boot(armed, now):
        return ""
    since_ns = case.now_ns - case.last_receipt_ns
    before = f"the run's last message came {since_ns / 1e9:.0f} s ago"
    if case.receipt_boot_id != case.server_boot_id:
        # The last frame is older than this boot of the server, or another machine received it. So no clock
        # counts from that frame. The uptime of a restarted server is still a lower bound of the time since.
        # If verify runs on the same system as the server, both uptimes are the same, and comparing them shows
        # nothing.
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
