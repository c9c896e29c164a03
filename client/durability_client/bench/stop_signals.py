"""Signals that end a measurement early: from Ctrl-C, SIGTERM, or a closed terminal.

The first signal ends the rounds. No signal interrupts the steps that follow: removing test files, and saving
the result.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any, NoReturn, Self

from durability_client.system.processes import ENDING


class StopSignals:
    """In the block, the first signal raises KeyboardInterrupt or SystemExit, and later ones are ignored.

    Signals that were ignored before (SIGHUP under nohup) stay ignored.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {
            number: handler
            for number in ENDING
            if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
        }
        for number in self._before:
            signal.signal(number, self._end)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hold(self) -> None:
        """Ignore signals from now to the end of the block."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def _end(self, number: int, frame: FrameType | None) -> NoReturn:
        self.hold()
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)
