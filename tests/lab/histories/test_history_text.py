"""How a history is written: any of them is read back, and a file that is none says what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given

from durability_lab.histories.search import histories
from durability_lab.histories.steps import FORMAT, History, Step

HEAD = f"{FORMAT}\nseed 7\ntarget device\ndrive honest\ncounters no\n"


@pytest.mark.slow
@given(history=histories())
def test_a_history_is_read_back(history: History) -> None:
    """Any history that is written is read back as the same one."""
    assert History.parse(str(history)) == history


def test_comments_and_empty_lines_do_not_count() -> None:
    """Lines that are empty or begin with # are no part of a history."""
    text = f"# why\n\n{HEAD}run\n  # in between\n\ncut what=drive\n"
    assert History.parse(text).steps == (Step("run"), Step("cut", (("what", "drive"),)))


def test_the_simplest_value_need_not_be_written() -> None:
    """A word with its first value is the same as none."""
    assert Step.parse("cut what=machine") == Step.parse("cut") == Step("cut")
    assert Step("cut")["what"] == "machine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the first line is not"),
        ("durability.history/2\n" + HEAD, "the first line is not 'durability.history/1'"),
        (FORMAT + "\nseed 7\nrun\n", "expected the lines seed, target, drive and counters"),
        (HEAD.replace("7", "seven"), "seed is a number, found 'seven'"),
        (HEAD.replace("device", "tape"), "target is one of device, file, found 'tape'"),
        (HEAD.replace("counters no", "counters maybe"), "counters is one of yes, no, found 'maybe'"),
        (HEAD.replace("honest", "perfect"), "no drive model 'perfect'"),
        (HEAD + "serials many\n", "serials is one of own, wwid, same, none, found 'many'"),
        (HEAD + "machine desk\n", "machine is one of hardware, guest, hidden, found 'desk'"),
        (HEAD + "explode\n", "no step 'explode'; there are run,"),
        (HEAD + "cut what=server\n", "'cut what=server': what is one of machine, drive, guest"),
        (HEAD + "stop now=yes\n", "'stop now=yes': now is no word of stop"),
    ],
)
def test_what_is_no_history_is_refused(text: str, message: str) -> None:
    """The message says what was expected and what was found."""
    with pytest.raises(ValueError, match=message):
        History.parse(text)
