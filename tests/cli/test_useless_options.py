"""An option without the one that it belongs to is refused, not dropped."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from durability.errors import UsageError
from durability_cli.main import app


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("clients", "invite", "--days", "30"), "--days needs --machines"),
        (("lab", "campaign", "--firmware", "bios"), "--firmware needs --live"),
        (
            ("results", "0123456789ab", "--limit", "50"),
            "--limit choose from the list: remove them",
        ),
        (("results", "0123456789ab", "-o", "/tmp/r.json", "--json"), "-o saves the file of RESULT"),
        (("clients", "--json", "invite"), "--json is for the list of clients"),
        (("verify", "/mnt/t", "--attest-cut", ""), "--attest-cut is empty"),
        (("verify",), "TARGET is missing: name the file or device that `run` wrote"),
        (("verify", "/mnt/t", "--run", ""), "--run '' names no run: give its id"),
        (("verify", "/mnt/t", "--run", "0" * 16), "names no run"),
    ],
    ids=" ".join,
)
def test_an_option_that_would_be_dropped_is_refused(words: tuple[str, ...], why: str) -> None:
    """An option that would have no effect is refused, even if its value is the default."""
    ended = CliRunner().invoke(app, words)
    assert isinstance(ended.exception, UsageError)
    assert why in str(ended.exception)
