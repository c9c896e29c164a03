"""What is seen of a measurement: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import io

from durability_client.bench.progress_bar import Bar


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_is_measured() -> None:
    """The cell now running and the time left are drawn; a sentence stays; the bar goes at the end."""
    err = _Terminal()
    with Bar(err) as bar:
        bar.preparing(1 << 20, 4 << 20)
        bar.measuring("4k-random 1/5", 3.0, 61.0)
        assert "writing test files: 1 of 4 MiB" in err.getvalue()
        assert "1:01 left  4k-random 1/5" in err.getvalue()
        bar.say("a sentence [with brackets]")
    assert "a sentence [with brackets]" in err.getvalue()
    assert err.getvalue().endswith("\x1b[2K")  # the line is cleared


def test_elsewhere_there_are_only_sentences_at_first() -> None:
    """A log gets no bar and no escape sequence."""
    err = io.StringIO()
    with Bar(err) as bar:
        bar.preparing(1, 2)
        bar.measuring("4k-random 1/5", 3.0, 61.0)
        bar.say("a sentence")
    assert err.getvalue() == "a sentence\n"
