"""The tester broken on purpose: with all rules of evidence every lab case gets the answer that it deserves,
without any one of them some case does not.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from tests.lab.mutants import (
    cut_cases,
    drive_cases,
    identity_cases,
    kernel_cases,
    mutation,
    reading_cases,
    server_cases,
    writer_cases,
)
from tests.lab.mutants.lab_case import CASES, LabCase
from tests.lab.mutants.mutants import MUTANTS
from tests.lab.mutants.mutation import Mutant, answering, without
from tests.places import REFERENCE

# They fill CASES.
MODULES = (
    drive_cases,
    identity_cases,
    reading_cases,
    cut_cases,
    server_cases,
    writer_cases,
    kernel_cases,
)
pytestmark = pytest.mark.slow  # hundreds of them take a minute

PAGE = REFERENCE / "mutants.md"
RULES = range(1, 18)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_case_gets_the_answer_that_it_deserves(case: LabCase) -> None:
    """Nothing is taken away: honest drives pass, liars are caught, the rest has its true reason."""
    assert case.answer() == case.expected, case.done


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_case_notices_what_is_taken_away(mutant: Mutant) -> None:
    """Each case that is named for a mutant is answered wrongly by it, in the way that its rule prevents: any
    other wrong answer would be that of another defect. Where the truth disagrees, how is left out."""
    assert mutant.noticed_by, f"{mutant.name}: no case notices; build one"
    for case, wrong in ((CASES[name], wrong) for name, wrong in mutant.noticed_by.items()):
        assert wrong != case.expected, f"{case.name} does not notice that {mutant.taken_away}"
        with mutant.change():
            answer, at_odds, _ = case.answer().partition("; not the truth")
        assert answer + at_odds == wrong, f"{case.name}, {case.done}"


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


@pytest.mark.parametrize(
    "change",
    [
        without(_twice, "Something", "Nothing"),
        without(_twice, "* 2", "* 2  # twice"),
        answering(_twice, '"""Twice."""; return number * 2'),
    ],
)
def test_mutant_without_an_effect_is_refused(change: mutation.Change) -> None:
    """A docstring, a comment or the same answer in other words is no change of what a function does."""
    with pytest.raises(AssertionError, match="changes nothing"), change():
        pass


def test_mutant_of_names_that_are_gone_is_refused() -> None:
    """A mutant that fails with NameError would be noticed by any case, and show nothing."""
    with pytest.raises(AssertionError, match="nothing is named factor"), without(_twice, "2", "factor")():
        pass


@contextmanager
def _wrapped() -> Iterator[None]:
    """Something that is called by another function of its name."""
    yield


def test_mutant_of_a_wrapped_function_is_refused() -> None:
    """The code of what is wrapped must not become that of its wrapper."""
    with pytest.raises(AssertionError, match="wrapped"), answering(_wrapped, "pass")():
        pass


MakeModule = Callable[[str, str], ModuleType]


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeModule]:
    """A function that imports a made-up module of the product, given its name and its source."""
    monkeypatch.syspath_prepend(tmp_path)
    made: list[str] = []

    def make(name: str, source: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        made.append(name)
        return importlib.import_module(name)

    yield make
    for name in made:
        del sys.modules[name]


READER = "LIMIT = 5\nclass Reader:\n    def read(self):\n        return [LIMIT for _ in '1']\n"


def test_constant_is_changed_for_a_block(make_module: MakeModule) -> None:
    """Functions of its module read the other value, at any depth, until the end of the block."""
    module = make_module("durability_reader", READER)
    with mutation.constant(module, "LIMIT", 6)():
        assert module.Reader().read() == [6]
    assert module.Reader().read() == [5]


@pytest.mark.parametrize(
    "source",
    [
        "LIMIT = 5\n",
        "LIMIT = 5\nTWICE = 2 * LIMIT\ndef read():\n    return TWICE\n",
        "LIMIT = 5\ndef read(limit=LIMIT):\n    return limit\n",
        "LIMIT = 5\ndef read():\n    LIMIT = 6\n    return LIMIT\n",
        "LIMIT = 6\ndef read():\n    return LIMIT\n",
        "def read():\n    return LIMIT\n",
    ],
)
def test_constant_that_nothing_reads_is_refused(make_module: MakeModule, source: str) -> None:
    """The functions of its module must look it up when they run, and find the other value."""
    module = make_module("durability_reader", source)
    with pytest.raises(AssertionError, match="out of date"), mutation.constant(module, "LIMIT", 6)():
        pass


def test_constant_that_another_module_holds_is_refused(make_module: MakeModule) -> None:
    """A module that imported the value itself would go on with it."""
    module = make_module("durability_reader", READER)
    make_module("durability_importer", "from durability_reader import LIMIT\n")
    with pytest.raises(AssertionError, match="durability_importer"), mutation.constant(module, "LIMIT", 6)():
        pass
