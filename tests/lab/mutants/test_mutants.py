"""The tester broken on purpose: with all rules of evidence every lab case gets the answer that it deserves,
without any one of them some case does not.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.mutants import cut_cases, drive_cases, kernel_cases, server_cases, writer_cases
from tests.lab.mutants.lab_case import CASES, LabCase
from tests.lab.mutants.mutants import MUTANTS
from tests.lab.mutants.mutation import Mutant, answering, without
from tests.places import REFERENCE

MODULES = (drive_cases, cut_cases, server_cases, writer_cases, kernel_cases)  # which fill CASES
PAGE = REFERENCE / "mutants.md"
RULES = range(1, 18)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_case_gets_the_answer_that_it_deserves(case: LabCase) -> None:
    """Nothing is taken away: honest drives pass, liars are caught, the rest has its true reason."""
    assert case.answer() == case.expected, case.done


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_case_notices_what_is_taken_away(mutant: Mutant) -> None:
    """Each case that is named for a mutant is answered wrongly by it, and rightly again without it."""
    assert mutant.noticed_by, f"{mutant.name}: no case notices; build one"
    for case in (CASES[name] for name in mutant.noticed_by):
        with mutant.change():
            answer = case.answer()
        assert answer != case.expected, f"{case.name} does not notice that {mutant.taken_away}"


def test_every_rule_is_taken_away_and_every_mutant_is_another() -> None:
    """A rule without a mutant would be one that nothing need enforce."""
    assert {mutant.rule for mutant in MUTANTS} == set(RULES)
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_page_lists_exactly_these_mutants() -> None:
    """docs/reference/mutants.md has, in this order, each rule, what is taken away, and the cases."""
    _, _, section = PAGE.read_text().partition("\n## Mutants\n")
    section, _, _ = section.partition("\n## ")
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert rows == list(_rows())


def _rows() -> Iterator[str]:
    for mutant in sorted(MUTANTS, key=lambda mutant: mutant.rule):
        cases = ", ".join(f"`{name}`" for name in mutant.noticed_by)
        yield f"| {mutant.rule} | {mutant.name}: {mutant.taken_away} | {cases} |"


def _twice(number: int) -> int:
    """Something to be changed."""
    return number * 2


def test_function_is_changed_for_a_block_and_for_everybody() -> None:
    """Whoever holds the function sees the change, and its end, also after an error."""
    held = _twice
    with without(_twice, "* 2", "* 3")():
        assert held(7) == 21
    with answering(_twice, "return 0")(), pytest.raises(ZeroDivisionError):
        assert 1 / held(7)
    assert held(7) == 14


def test_mutant_that_is_out_of_date_is_refused() -> None:
    """A mutant that changes nothing must not pass for one that is noticed."""
    with pytest.raises(AssertionError, match="out of date"), without(_twice, "* 4", "* 3")():
        pass
