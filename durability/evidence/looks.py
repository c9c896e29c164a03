"""What earlier calls of `verify` found of a run's machine and drives, and what that says of its cut.

The first thing that happens to a machine or its drives after a run is the run's cut, or shows that there was
none. What happens later met no load of that run. Refuses to take a later event for the first one.
"""

from __future__ import annotations

from dataclasses import replace

from durability.evidence.drive_identity import same_kernel
from durability.evidence.machine_changes import (
    as_last_counted,
    changed_drives,
    enumerated_anew,
    has_changed,
    has_counters,
    kept_power,
)
from durability.formats.case import Case, Look
from durability.formats.facts import Facts


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
    return any(look.answers and kept_power(armed, look.facts) for look in case.looks)


def first_found(case: Case, now: Facts) -> Look | None:
    """What was known when something was first found to have happened, if more has happened until `now`; else
    None: then `now` shows it. Of several looks in between, the counters and the attestation of the newest
    that has them."""
    if case.armed is None:
        return None
    armed, looks = as_last_counted(case.armed, case.statistics), list(case.looks)
    while looks and not has_changed(armed, looks[0].facts):
        looks.pop(0)
    if not looks or not _has_gone_on(armed, looks[0].facts, now):
        return None
    first, *later = looks
    for look in later:
        if _has_gone_on(armed, first.facts, look.facts):
            break
        if has_counters(armed, look.facts):
            first = replace(first, at_ns=look.at_ns, boot_id=look.boot_id, facts=look.facts)
        if look.attested:
            first = replace(first, attested=look.attested, cut_class=look.cut_class)
    return first


def _has_gone_on(armed: Facts, first: Facts, later: Facts) -> bool:
    """Whether more has happened after what a first look found. In one boot, the drives of a mirror may be
    attached anew one after the other: more has happened once a drive is that had been before the look."""
    if same_kernel(armed.host, first.host):
        before = [one.serial for one in changed_drives(armed, first)]
        first = replace(first, drives=tuple(one for one in first.drives if one.serial in before))
    return has_changed(first, later)


def as_of(case: Case, look: Look) -> Case:
    """The case as it was for that `verify`: by its clock, and without what a power controller did later."""
    offs = (off for off in case.power_offs if off.boot_id != look.boot_id or off.asked_ns <= look.at_ns)
    return replace(case, now_ns=look.at_ns, server_boot_id=look.boot_id, power_offs=tuple(offs))
