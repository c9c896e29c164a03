"""The account of histories notices a durable verdict that meets less than was asked, or that passes over a
read that was wrong; and a counter that a run has read since counts for nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from durability.evidence import machine_changes, verdict
from durability.evidence.outcome import Outcome
from tests.lab.histories.test_deserved import LOADED, played
from tests.lab.mutants.mutation import answering, together, without

pytestmark = pytest.mark.slow

AFTER = ("cut", "boot")
Change = Callable[[], AbstractContextManager[None]]


def words(*lines: str, target: str = "device", counters: str = "no") -> list[str]:
    """What `verify` answers, where nothing is wrong."""
    found = played(*lines, target=target, counters=counters)
    assert found.wrong == (), found.told
    return [f"{grade.word} {' '.join(grade.reasons)}".strip() for grade in found.grades]


@pytest.mark.parametrize(
    ("lines", "answer", "change", "wrong"),
    [
        (
            ("cut", "boot", "verify min_cuts=2"),
            "inconclusive too-few-cuts",
            answering(verdict._series_reasons, "return iter(())"),
            "of 2 cuts that were asked, 1 count, and 1 were made",
        ),
        (
            ("cut what=guest", "boot", "verify attest=none"),
            "inconclusive cut-class",
            without(
                verdict._cut_reasons, "at_least(cut.cut_class, require_cut)", "at_least(cut.cut_class, 'os')"
            ),
            "a cut of class os was shown, where power was asked",
        ),
        (
            ("cut", "boot", "verify require=os"),
            "durable",
            without(Outcome.document, '_named(self.requirements, "cut min_cuts")', "{}"),
            "a verdict for {}, where",
        ),
    ],
)
def test_a_verdict_must_answer_what_was_asked(
    lines: tuple[str, ...], answer: str, change: Change, wrong: str
) -> None:
    """A verdict is wrong if it does not meet the requested number of cuts and class, or answers another
    request."""
    assert words(*LOADED, *lines)[0] == answer
    with change():
        assert any(wrong in one for one in played(*LOADED, *lines).wrong)


def test_as_many_cuts_as_were_asked_are_durable() -> None:
    """Two runs, each with a cut of its own, and each verified; with one that was not, it is refused."""
    verified = (*LOADED, *AFTER, "verify", *LOADED, *AFTER, "verify min_cuts=2")
    assert words(*verified) == ["durable"] * 3
    lines = (*LOADED, *AFTER, "verify", *LOADED, *AFTER, *LOADED, *AFTER, "verify min_cuts=2")
    assert words(*lines)[1] == "inconclusive series-incomplete"
    with without(verdict._series_reasons, "if series.left_out:", "if False:")():
        assert any("2 cuts without a loss were asked" in one for one in played(*lines).wrong)


FORGETS = answering(verdict._earlier_reasons, "return iter(())")
FORGETS_BOTH = together(without(verdict._scan_reasons, "if scan.unstable:", "if False:"), FORGETS)


@pytest.mark.parametrize("target", ["device", "file"])
def test_a_bit_that_was_wrong_in_passing_is_never_durable(target: str) -> None:
    """In the read of all slots: no verdict is due then or later, and one that is durable is wrong."""
    lines = (*LOADED, *AFTER, "verify cut_after=7 loses=bit", "verify")
    unstable = ["inconclusive unstable", *["inconclusive earlier-unstable"] * 2]
    assert words(*lines, target=target) == unstable
    with FORGETS_BOTH():
        assert any("was wrong in passing" in one for one in played(*lines, target=target).wrong)
    with FORGETS():
        assert any("an earlier verify read a slot" in one for one in played(*lines, target=target).wrong)


def test_a_store_that_lost_an_unstable_verdict_does_not_know_it() -> None:
    """It was copied before; and an export of before does not either."""
    lines = (
        *LOADED,
        *AFTER,
        "copy",
        "verify cut_after=7 loses=bit",
        "verify log=export",
        "server how=newest",
    )
    assert words(*lines)[2] == "durable"


@pytest.mark.parametrize("code", ["unstable", "earlier-unstable"])
def test_no_read_is_called_unstable_that_was_right(code: str) -> None:
    """A sound run owes its verdict, and what no earlier verify said is not to be repeated."""
    lines = (*LOADED, *AFTER, "verify cut_class=os")
    with answering(verdict._earlier_reasons, f"yield _reason('{code}')")():
        wrong = played(*lines).wrong
    assert any("where durable is due" in one or "earlier-unstable, and no earlier" in one for one in wrong)


@pytest.mark.parametrize("reads", ["1", "4", "5", "7", "30"])
@pytest.mark.parametrize("workload", ["overwrite", "append", "create"])
def test_any_read_may_have_a_wrong_bit(reads: str, workload: str) -> None:
    """Whichever it is, no verdict is wrong, and none is a loss."""
    steps = (f"verify cut_after={reads} loses=bit", "verify")
    lines = (f"run size_kib=1024 workload={workload}", "pass ms=400", *AFTER, *steps)
    assert not any("loss" in word for word in words(*lines, target="file"))


def test_a_counter_that_the_run_has_read_since_shows_no_cut() -> None:
    """The drive counts a power loss under a run that goes on for more than a minute; then its system dies."""
    lines = (*LOADED, "glitch", *["pass ms=4000"] * 17, "cut what=guest", "boot", "verify attest=none")
    assert words(*lines, counters="yes")[0] == "inconclusive cut-class"
    with answering(machine_changes.as_last_counted, "return armed")():
        assert any("no such cut met load" in one for one in played(*lines, counters="yes").wrong)


def test_a_counter_that_rose_just_before_the_end_is_a_known_limit() -> None:
    """The run had no time to read it."""
    lines = (*LOADED, "glitch", "pass ms=400", "cut what=guest", "boot", "verify attest=none")
    found = played(*lines, counters="yes")
    assert (found.wrong, found.grades[0].word) == ((), "durable")
    assert found.grades[0].limit == "a counter that rose just before the end"
