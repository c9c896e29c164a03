"""The server's log does not grow with what strangers do."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest

from durability_server import log_lines
from durability_server.log_lines import LineLimit, PlainFormatter, Rare, about


def _written_by(logger: logging.Logger) -> list[str]:
    """What is written of the lines of `logger`, from now on."""
    written: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: written.append(PlainFormatter("%(message)s").format(record))  # type: ignore[method-assign]
    handler.addFilter(Rare())
    logger.addHandler(handler)
    return written


def test_a_line_that_comes_too_often_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty of a thousand lines of one kind are written, and the next line has the number of the others.
    Lines of other kinds are all written."""
    logger = logging.Logger("flooded")
    written = _written_by(logger)
    for number in range(1000):
        logger.warning("%s: closed: %s", number, "protocol 100%")
        if number % 500 == 0:
            logger.info("another kind, %d", number)
    assert len(written) == 22
    monkeypatch.setattr(log_lines, "_INTERVAL_S", -1.0)
    logger.warning("%s: closed: %s", 1000, "protocol 100%")
    assert written[-1] == "1000: closed: protocol 100% (and 980 such lines before)"


def test_a_noisy_client_hides_no_line_about_another() -> None:
    """Lines are counted for each client; those about strangers, however many ports they have, together."""
    logger = logging.Logger("noisy")
    written = _written_by(logger)
    for number in range(1000):
        logger.warning("%s: closed: %s", f"noisy at 10.0.0.1:{number}", "protocol", extra=about("noisy"))
        logger.warning("%s: closed: %s", f"10.0.0.2:{number}", "no hello")
    logger.warning("%s: closed: %s", "quiet at 10.0.0.3:1", "silent", extra=about("quiet"))
    assert len(written) == 20 + 20 + 1
    assert written[-1] == "quiet at 10.0.0.3:1: closed: silent"


def test_lines_of_asyncio_are_one_kind() -> None:
    """Each names an object of its own, so that no two have the same words."""
    logger = logging.Logger("asyncio")
    written = _written_by(logger)
    for number in range(1000):
        logger.error(f"Task exception was never retrieved\nfuture: <Task name='Task-{number}'>")
    assert len(written) == 20


def test_kinds_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, what is counted of them is not more; those after the last are one kind."""
    monkeypatch.setattr(log_lines, "_KINDS_MAX", 10)
    limit = LineLimit(2)
    passed = [limit.left_out(f"kind {number}") is not None for number in range(1000)]
    assert passed == [True] * 12 + [False] * 988
    assert len(limit._kinds) == 11


def test_lines_for_the_journal_have_a_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines for the journal have a priority, also each line of a traceback, so `journalctl -p err` finds
    errors. Lines in a file have none."""
    root = logging.Logger("root")
    monkeypatch.setattr(logging, "root", root)
    for name in ("journal", "file"):
        with (tmp_path / name).open("w") as out:
            monkeypatch.setattr(sys, "stderr", out)
            if name == "journal":
                status = os.fstat(out.fileno())
                monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
            handler = log_lines.set_up()
            root.info("listening")
            root.warning("closed")
            try:
                raise ValueError("a\nb")
            except ValueError:
                root.exception("a defect")
            root.critical("the end")
            handler.flush()
            root.removeHandler(handler)
    lines = (tmp_path / "journal").read_text().splitlines()
    found = [line[:3] for line in lines]
    assert found == ["<6>", "<4>"] + ["<3>"] * (len(lines) - 3) + ["<2>"]
    assert len(lines) > 6
    plain = (tmp_path / "file").read_text().splitlines()
    assert len(plain) == len(lines)
    assert not any(line.startswith("<") for line in plain)
