"""The profile file: reads criteria from TOML.

    [profile]
    title = "SSD for a database"
    about = "For a server whose database commits to this drive."

    [[criterion]]
    kind = "clean-cuts"
    limit = 59
    cut_class = "power"     # only for kinds that count cuts; default "power"
    required = true         # default true; false makes the criterion optional
    reason = "59 cuts without a loss leave at most 5 %."

Every key is checked, and every criterion needs a reason. This module takes text and reads no files.
"""

from __future__ import annotations

import difflib
import math

from durability.acceptance.criteria import KINDS, CriterionKind
from durability.acceptance.profile import Criterion, Profile
from durability.errors import UsageError
from durability.evidence.cut import CutClass
from durability.formats.case import PROVABLE_CUT_CLASSES
from durability.formats.toml_tables import Table, read_tables
from durability.limits import NAME_BYTES_MAX

CRITERIA_MAX = 18  # criteria that fit a page
NAME_CHARACTERS_MAX = NAME_BYTES_MAX // 4
TITLE_CHARACTERS_MAX, ABOUT_CHARACTERS_MAX, REASON_CHARACTERS_MAX = 80, 200, 100


def read_profile(text: str, *, name: str) -> Profile:
    """Read the profile in the text of a file. `name`: its name if the file has none. Raises UsageError."""
    top = read_tables(text, "the profile")
    head = top.table("profile")
    tables = top.tables("criterion")
    top.end()
    called = _short(head, "name", name[:NAME_CHARACTERS_MAX], NAME_CHARACTERS_MAX)
    profile = Profile(
        name=called,
        title=_short(head, "title", called, TITLE_CHARACTERS_MAX),
        about=_short(head, "about", "", ABOUT_CHARACTERS_MAX),
        criteria=tuple(_criterion(table, number) for number, table in enumerate(tables, 1)),
    )
    head.end()
    _check(profile)
    return profile


def _check(profile: Profile) -> None:
    if not any(one.required for one in profile.criteria):
        raise UsageError("the profile requires nothing: add a [[criterion]] that is not required = false")
    if len(profile.criteria) > CRITERIA_MAX:
        raise UsageError(
            f"the profile has {len(profile.criteria)} criteria, at most {CRITERIA_MAX} fit a page"
        )
    seen: dict[tuple[str, str, bool], int] = {}
    for number, one in enumerate(profile.criteria, 1):
        same = (one.kind, one.cut_class, one.required)
        if same in seen:
            raise UsageError(
                f"[[criterion]] {number} asks for {one.kind} again, after {seen[same]}: remove one"
            )
        seen[same] = number


def _criterion(table: Table, number: int) -> Criterion:
    table.name = f"[[criterion]] {number}"
    kind = _kind(table)
    table.name = f"[[criterion]] {number} ({kind.name})"
    required = table.truth("required", default=True)
    cut_class: CutClass = "power"
    if kind.counts_cuts:
        cut_class = table.choice("cut_class", PROVABLE_CUT_CLASSES, cut_class)
    criterion = Criterion(
        kind=kind.name,
        limit=_limit(table, kind),
        cut_class=cut_class,
        required=required,
        reason=_short(table, "reason", "", REASON_CHARACTERS_MAX),
    )
    if not criterion.reason:
        raise UsageError(f"{table.name} reason is missing: say in a sentence why this is asked")
    table.end()
    return criterion


def _kind(table: Table) -> CriterionKind:
    name = table.text("kind", "")
    if name in KINDS:
        return KINDS[name]
    if not name:
        raise UsageError(f"{table.name} kind is missing: one of {', '.join(KINDS)}")
    near = difflib.get_close_matches(name, KINDS, n=1)
    meant = f"is {near[0]} meant?" if near else f"it is not one of {', '.join(KINDS)}"
    raise UsageError(f"{table.name} kind = {name!r}: {meant}")


def _limit(table: Table, kind: CriterionKind) -> float | None:
    limit = kind.limit
    if limit is None:
        if "limit" in table:
            raise UsageError(f"{table.name} takes no limit: remove it")
        return None
    if "limit" not in table:
        raise UsageError(f"{table.name} limit is missing: add a number of {limit.unit} ({limit.sense})")
    value = table.number("limit", 0.0)
    whole = "a whole number" if limit.whole else "a number"
    if not limit.low <= value <= limit.high or (limit.whole and not math.floor(value) == value):
        raise UsageError(
            f"{table.name} limit is {value:g}: {whole} of {limit.unit}, {limit.low:g} to {limit.high:g}, is"
            " needed"
        )
    return value


def _short(table: Table, key: str, default: str, most: int) -> str:
    text = " ".join(table.text(key, default).split())
    if len(text) > most:
        raise UsageError(f"{table.name} {key} has {len(text)} characters, at most {most} fit the page")
    return text
