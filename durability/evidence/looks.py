"""What calls of `verify` found of a run's machine and drives, and what that says of its cut.

The first thing that happens to a machine or its drives after a run is the run's cut, or shows that there was
none. What happens later met no load of that run. Another run may have been verified first: its verify has
seen the machine as well. Refuses to take a later event for the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile

from durability.evidence.drive_identity import same_kernel
from durability.evidence.machine_changes import (
    are_all_there,
    as_last_counted,
    changed_drives,
    enumerated_anew,
    has_changed,
    kept_power,
    with_counters_of,
)
from durability.formats.case import Case, Look
from durability.formats.facts import Facts
from durability.formats.run_statistics import Statistics


def found_alive(case: Case) -> bool:
    """Whether a look found the machine of the run in the run's boot, and not all of its drives attached anew:
    what silenced the client was no cut."""
    armed = case.armed
    return armed is not None and any(
        same_kernel(armed.host, look.facts.host) and not enumerated_anew(armed, look.facts)
        for look in case.looks
    )


def drive_answered(case: Case) -> bool:
    """Whether a look in the boot of the run could read the target, on drives that had kept their power."""
    if case.armed is None:
        return False
    armed = as_last_counted(case.armed, case.statistics)
    own = (look for look in case.looks if look.run == case.run)
    return any(look.answers and kept_power(armed, look.facts) for look in own)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstEvent:
    """What is known of the first thing that happened: the looks that found it, oldest first, each with all
    that is known of the drives then, and of what was attested. `over`: more has happened since, so what is
    found or said now may be of that."""

    looks: tuple[Look, ...]
    over: bool


def first_event(case: Case, now: Facts) -> FirstEvent | None:
    """What was known when something was first found to have happened; None if no look has found anything, so
    that `now` shows it. If nothing more has happened, `now` is the last of the looks."""
    if case.armed is None:
        return None
    armed = as_last_counted(case.armed, case.statistics)
    looks = [*dropwhile(lambda look: not has_changed(armed, look.facts), case.looks)]
    if not looks:
        return None
    found = looks[:1]
    for look in (*looks[1:], _as_look(case, now)):
        if _has_gone_on(armed, found[-1].facts, look.facts):
            return FirstEvent(looks=_as_known_last(case, found), over=True)
        found.append(replace(look, facts=_known_better(armed, found[-1].facts, look.facts)))
    return FirstEvent(looks=_as_known_last(case, found), over=False)


def _as_look(case: Case, now: Facts) -> Look:
    """What is found now, as a look that tells of no attestation."""
    return Look(
        run=case.run,
        at_ns=case.now_ns,
        boot_id=case.server_boot_id,
        wall="",
        facts=now,
        answers=False,
        attested="",
        cut_class=None,
    )


def _as_known_last(case: Case, found: Sequence[Look]) -> tuple[Look, ...]:
    """The looks at one state, each with the drives as the last one knew them, and with what was attested
    last: in a verify of this run, if any was in one of them."""
    said = [look for look in found if look.attested]
    own = [look for look in said if look.run == case.run]
    last = (own or said or found)[-1]
    return tuple(
        replace(
            look,
            run=last.run,
            facts=replace(look.facts, drives=found[-1].facts.drives),
            attested=last.attested,
            cut_class=last.cut_class,
        )
        for look in found
    )


def _known_better(armed: Facts, before: Facts, later: Facts) -> Facts:
    """The facts of a later look at one state, with drives and counters of the one before where it has not
    found them."""
    return (
        with_counters_of(later, before)
        if are_all_there(armed, later)
        else replace(later, drives=before.drives)
    )


def _has_gone_on(armed: Facts, first: Facts, later: Facts) -> bool:
    """Whether more has happened after what a first look found. In one boot, the drives of a mirror may be
    attached anew one after the other: more has happened once a drive is that had been before the look."""
    if same_kernel(armed.host, first.host):
        first = replace(first, drives=tuple(changed_drives(armed, first)))
    return has_changed(first, later)


def as_of(case: Case, look: Look) -> Case:
    """The case as it was for that `verify`: by its clock, and without what a power controller did later."""
    offs = (off for off in case.power_offs if off.boot_id != look.boot_id or off.asked_ns <= look.at_ns)
    return replace(case, now_ns=look.at_ns, server_boot_id=look.boot_id, power_offs=tuple(offs))


def is_to_be_kept(
    run: str, armed: Facts, counted: Statistics | None, kept: Sequence[Look], look: Look
) -> bool:
    """Whether a look says anything of a run beside those that are `kept` of it: of the machine in the boot of
    the run, or of what happened first after it. `armed` and `counted` are the run's facts at arming and its
    last statistics. A look for another run says something if it has found all drives of this one."""
    if look.run != run and not are_all_there(armed, look.facts):
        return False
    if kept and not look.tells_more_than(kept[-1]):
        return False
    armed = as_last_counted(armed, counted)
    first = next((one for one in kept if has_changed(armed, one.facts)), None)
    if first is None:
        return same_kernel(armed.host, look.facts.host) or has_changed(armed, look.facts)
    again = same_kernel(first.facts.host, look.facts.host) or has_changed(armed, look.facts)
    return again and not _has_gone_on(armed, first.facts, look.facts)


def as_of_another_run(look: Look, verified: Facts, armed: Facts) -> Look:
    """What a look for the run that was armed with the facts `verified` says of one that was with `armed`.
    What its operator attests is of the first event after that run: of this one too only if nothing had
    happened between the two, and they have these drives in common."""
    one = same_kernel(verified.host, armed.host) and are_all_there(armed, verified)
    if one and not has_changed(verified, armed) and not has_changed(armed, verified):
        return look
    return replace(look, attested="", cut_class=None)
