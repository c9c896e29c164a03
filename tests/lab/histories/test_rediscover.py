"""The search for known wrong verdicts: it finds one whose rule is gone, and says so of one that it misses."""

from __future__ import annotations

import pytest

from tests.lab.histories.rediscover import main


@pytest.mark.slow
def test_a_rule_that_is_gone_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    """The history that shows it is printed; with the rule in place it is judged rightly."""
    assert main(["i", "--count", "500", "--seed", "20000"]) == 0
    assert "i: found after" in capsys.readouterr().out


@pytest.mark.slow
def test_a_rule_that_is_missed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """One history, the simplest, shows nothing, so the search ends with an error."""
    assert main(["a", "--count", "1", "--seed", "1"]) == 1
    assert "a: NOT FOUND in 1 histories" in capsys.readouterr().out
