"""Observations ("looks") that calls of `verify` made of a run's machine and drives, and what they show of the
cut.

The first event that happens to a machine or its drives after a run is the run's cut, or shows that there was
no cut. Later events met no load of that run. If another run was verified first, its verify has observed the
machine as well. This module never takes a later event for the first one.
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
    """Whether a look found the run's machine in the run's boot, with not all of its drives newly attached.
    Then the client did not fall silent because of a cut."""
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
    """The first event after the run, as far as it is known."""

    # Looks that found the event, oldest first, each with all that is known of the drives and of the
    # attestation then.
    looks: tuple[Look, ...]
    over: bool  # whether more has happened since; if so, new findings or statements may be about later events


def first_event(case: Case, now: Facts) -> FirstEvent | None:
    """The first event that looks have found; None if no look has found one, so that `now` shows it. If
    nothing more has happened, `now` is the last of the looks."""
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
    """The facts found now, as a look without an attestation."""
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
    """The looks at one state, each with the drives as the last look knew them and with the last attestation.
    An attestation in a verify of this run takes precedence over those in verifies of other runs."""
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
    """The facts of a later look at one state. Drives and counters that the later look did not find are taken
    from the look before it."""
    return (
        with_counters_of(later, before)
        if are_all_there(armed, later)
        else replace(later, drives=before.drives)
    )


def _has_gone_on(armed: Facts, first: Facts, later: Facts) -> bool:
    """Whether more has happened after the first look. Within one boot, the drives of a mirror may be
    reattached one after the other. So if the first look was in the run's boot, drives that had not changed by
    then do not count."""
    if same_kernel(armed.host, first.host):
        first = replace(first, drives=tuple(changed_drives(armed, first)))
    return has_changed(first, later)


def as_of(case: Case, look: Look) -> Case:
    """The case as it was at that `verify`: with its clock, and without later actions of a power
    controller."""
    offs = (off for off in case.power_offs if off.boot_id != look.boot_id or off.asked_ns <= look.at_ns)
    return replace(case, now_ns=look.at_ns, server_boot_id=look.boot_id, power_offs=tuple(offs))


def is_to_be_kept(
    run: str, armed: Facts, counted: Statistics | None, kept: Sequence[Look], look: Look
) -> bool:
    """Whether a look adds information about a run to the looks in `kept`. It must differ from the newest of
    these. It must describe the machine in the run's boot, or the first event after the run. `armed` and
    `counted` are the run's facts at arming and its last statistics. A look for another run counts only if it
    found all drives of this run."""
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


def as_of_another_run(look: Look, verified: Facts | None, armed: Facts) -> Look:
    """What a look for one run, armed with the facts `verified` (None if it was not), shows of another run,
    armed with the facts `armed`. The operator's attestation is about the first event after the verified run.
    It holds for the other run, too, on two conditions. Nothing had happened between the two armings, and the
    verified run had all drives of the other one."""
    if (
        verified is not None
        and same_kernel(verified.host, armed.host)
        and are_all_there(armed, verified)
        and not has_changed(verified, armed)
        and not has_changed(armed, verified)
    ):
        return look
    return replace(look, attested="", cut_class=None)
