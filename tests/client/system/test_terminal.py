"""How wide text is for people, and where it has colour."""

from __future__ import annotations

import io

import pytest

from durability_client.system.terminal import Terminal, columns_of, fitted


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("columns", "width"), [("0", 80), ("1", 80), ("20", 20), ("100", 100)])
def test_a_width_that_cannot_be_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    """A serial console says 0, and a line must not fail for it."""
    monkeypatch.setenv("TERM", "xterm")  # of a dumb one rich believes nothing
    monkeypatch.setenv("COLUMNS", columns)
    assert columns_of(_Terminal()) == Terminal(file=_Terminal()).width == width
    assert "".join(fitted("a line of words", _Terminal(), indent=2).split()) == "alineofwords"


def test_no_colour_elsewhere_than_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of a CI export FORCE_COLOR, and scripts read the last line of a verdict."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = io.StringIO()
    Terminal(file=out).print("[bold red]LOSS")
    assert out.getvalue() == "LOSS\n"
