"""The server's log does not grow with what strangers do."""

from __future__ import annotations

import logging

import pytest

from durability_server import log_lines
from durability_server.log_lines import PlainFormatter, Rare


def test_a_line_that_comes_too_often_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand lines of one kind twenty are written, other kinds all, and the next one says how many."""
    logger = logging.Logger("flooded")
    written: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: written.append(PlainFormatter("%(message)s").format(record))  # type: ignore[method-assign]
    handler.addFilter(Rare())
    logger.addHandler(handler)
    for number in range(1000):
        logger.warning("%s: closed: %s", number, "protocol 100%")
        if number % 500 == 0:
            logger.info("another kind, %d", number)
    assert len(written) == 22
    monkeypatch.setattr(log_lines, "_INTERVAL_S", -1.0)
    logger.warning("%s: closed: %s", 1000, "protocol 100%")
    assert written[-1] == "1000: closed: protocol 100% (and 980 such lines before)"
