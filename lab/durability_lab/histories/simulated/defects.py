"""The defects of the product in a history: unexpected exceptions and log messages of its processes.

A command ends with an exit code for a DurabilityError or an OSError. Any other exception of a task, a thread
or a callback is a defect, and so is a message that reports a defect. Exceptions of a killed process do not
count.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any, Final

from durability.errors import DurabilityError
from durability_lab.histories.simulated.virtual_process import CURRENT, Process

_NAMED: Final = "a defect of this tool: "  # the product's messages report a defect with this text


def is_named(text: str) -> bool:
    """Whether a message reports a defect."""
    return _NAMED in f"{text}: "


class Defects(logging.Handler):
    """Collects the errors that the product logs or raises. `found`: each defect, as a sentence."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def note(self, where: str, error: BaseException | None) -> None:
        """Note an exception that was raised in the process or thread `where` and not handled."""
        if _is_dead(CURRENT.get()):
            return
        for_people = isinstance(error, DurabilityError | OSError) and not is_named(str(error))
        if isinstance(error, Exception) and not for_people:
            last = next(reversed(traceback.extract_tb(error.__traceback__)), None)
            at = f" ({last.filename.rpartition('/')[2]}:{last.lineno})" if last is not None else ""
            self.found.append(f"a defect in {where}: {type(error).__name__}: {error}{at}")

    def emit(self, record: logging.LogRecord) -> None:
        """Note a log record of level ERROR or above."""
        error = record.exc_info[1] if record.exc_info else None
        before = len(self.found)
        self.note(f"{record.name}, {record.getMessage()}", error)
        if len(self.found) == before and is_named(record.getMessage()) and not _is_dead(CURRENT.get()):
            self.found.append(f"a defect in {record.name}: {record.getMessage()}: {error!r}")

    def of_loop(self, context: dict[str, Any]) -> None:
        """Note an event loop's report of an exception, of a callback or of a task that was never awaited."""
        handle = context.get("handle")
        if handle is None or not _is_dead(handle._context.get(CURRENT)):
            self.note(str(context.get("message")), context.get("exception"))


def _is_dead(process: Process | None) -> bool:
    return process is not None and process.dead
