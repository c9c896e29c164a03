"""Profile files: what is read, and what is refused, with the place and what to do."""

from __future__ import annotations

import pytest

from durability.acceptance.profile_file import CRITERIA_MAX, NAME_CHARACTERS_MAX, read_profile
from durability.errors import UsageError

GOOD = """
[profile]
title = "A drive"

[[criterion]]
kind = "clean-cuts"
limit = 59
cut_class = "vm"
reason = "Cuts tell."

[[criterion]]
kind = "plausible"
required = false
reason = "Times hint."
"""


def test_a_profile_is_read() -> None:
    """Keys that are missing have their defaults."""
    profile = read_profile(GOOD, name="mine")
    assert (profile.name, profile.title, profile.about) == ("mine", "A drive", "")
    cuts, plausible = profile.criteria
    assert (cuts.kind, cuts.limit, cuts.cut_class, cuts.required) == ("clean-cuts", 59.0, "vm", True)
    assert (plausible.limit, plausible.cut_class, plausible.required) == (None, "power", False)
    untitled = read_profile(GOOD.replace('title = "A drive"', 'name = "ours"'), name="mine")
    assert (untitled.name, untitled.title) == ("ours", "ours")
    long = "profile of a shelf " * 9
    assert read_profile(GOOD, name=long).name == long[:NAME_CHARACTERS_MAX].strip()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('title = "A drive"', 'title = "A', "the profile is not TOML: Illegal character .*line 3"),
        ('title = "A drive"', "title = 3", r"\[profile\] title is 3: a text in quotes is needed"),
        ("title", "titel", r"\[profile\] does not know titel: is title meant\?"),
        ("[profile]", "[profil]", "the profile does not know profil: is profile meant"),
        ('"clean-cuts"', '"clean-cut"', r"\[\[criterion\]\] 1 kind = 'clean-cut': is clean-cuts meant\?"),
        ('"clean-cuts"', '"beautiful"', "it is not one of clean-cuts, counted-cuts"),
        ('kind = "plausible"\n', "", r"\[\[criterion\]\] 2 kind is missing: one of clean-cuts"),
        ("limit = 59\n", "", r"1 \(clean-cuts\) limit is missing: add a number of cuts \(at least\)"),
        ("limit = 59", "limit = 0", "limit is 0: a whole number of cuts, 1 to 100000, is needed"),
        ("limit = 59", "limit = 1.5", r"limit is 1\.5: a whole number"),
        ("limit = 59", "limit = nan", "a number is needed"),
        ("limit = 59", 'limit = "many"', "limit is 'many': a number is needed"),
        ("limit = 59", "limit = true", "limit is True: a number is needed"),
        ("required = false", "limit = 3", r"2 \(plausible\) takes no limit: remove it"),
        ("required = false", 'cut_class = "vm"', r"2 \(plausible\) does not know cut_class"),
        ('cut_class = "vm"', 'cut_class = "fire"', "cut_class = 'fire' is not one of power, vm, os"),
        ("required = false", "required = 0", "required is 0: true or false is needed"),
        ('reason = "Cuts tell."', "", r"1 \(clean-cuts\) reason is missing: say in a sentence why"),
        ('reason = "Cuts tell."', f'reason = "{"x" * 101}"', "reason has 101 characters, at most 100"),
        (
            '"plausible"\nrequired = false',
            '"clean-cuts"\nlimit = 3\ncut_class = "vm"',
            "asks for clean-cuts again, after 1",
        ),
        ("[[criterion]]", "[criterion]", "Cannot declare .* twice"),
    ],
)
def test_a_bad_profile_is_refused_with_what_to_do(old: str, new: str, words: str) -> None:
    """Each slip is named by table, number and key."""
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    if old == "[[criterion]]":
        text = GOOD.replace(old, new)
    with pytest.raises(UsageError, match=words):
        read_profile(text, name="mine")


def test_a_profile_must_require_something_and_fit_a_page() -> None:
    """A profile of wishes decides nothing; one of too many criteria cannot be printed."""
    with pytest.raises(UsageError, match="requires nothing: add a"):
        read_profile(GOOD.replace("limit = 59", "limit = 59\nrequired = false"), name="mine")
    with pytest.raises(UsageError, match="requires nothing"):
        read_profile("", name="mine")
    many = "".join(
        f'[[criterion]]\nkind = "used"\nlimit = {number}\nreason = "x"\n'
        for number in range(CRITERIA_MAX + 1)
    )
    with pytest.raises(UsageError, match=f"has {CRITERIA_MAX + 1} criteria, at most {CRITERIA_MAX}"):
        read_profile(many, name="mine")
