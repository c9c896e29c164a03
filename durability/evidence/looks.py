"""What earlier calls of `verify` found of a run's machine and drives, and what that says of its cut.

The first thing that happens to a machine or its drives after a run is the run's cut, or shows that there was
none. What happens later met no load of that run. Refuses to take a later event for the first one.
"""

from __future__ import annotations

from dataclasses import replace

from durability.evidence.machine_changes import as_last_counted, has_changed, went_on
from durability.formats.case import Case, Look
from durability.formats.facts import Facts


def looks_while_it_went_on(case: Case) -> list[Look]:
    """Those that found the machine of the run in the run's boot, and all its drives attached as they were.
    What ended the client was no cut of that machine, and what was at risk then is no more."""
    if case.armed is None:
        return []
    armed = as_last_counted(case.armed, case.statistics)
    return [look for look in case.looks if went_on(armed, look.facts)]


def first_found(case: Case, now: Facts) -> Look | None:
    """What was known when something was first found to have happened, if more has happened until `now`; else
    None: then `now` shows it. Of several looks in between, the counters and the attestation of the newest
    that has them."""
    if case.armed is None:
        return None
    armed, looks = as_last_counted(case.armed, case.statistics), list(case.looks)
    while looks and not has_changed(armed, looks[0].facts):
        looks.pop(0)
    if not looks or not has_changed(looks[0].facts, now):
        return None
    first, *later = looks
    for look in later:
        if has_changed(first.facts, look.facts):
            break
        if all(drive.unsafe_shutdowns is not None for drive in look.facts.drives):
            first = replace(first, at_ns=look.at_ns, boot_id=look.boot_id, facts=look.facts)
        if look.attested:
            first = replace(first, attested=look.attested, cut_class=look.cut_class)
    return first


def as_of(case: Case, look: Look) -> Case:
    """The case as it was for that `verify`: by its clock, and without what a power controller did later."""
    offs = (off for off in case.power_offs if off.boot_id != look.boot_id or off.asked_ns <= look.at_ns)
    return replace(case, now_ns=look.at_ns, server_boot_id=look.boot_id, power_offs=tuple(offs))
