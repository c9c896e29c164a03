"""The defects of the product in a history: what its processes raise, or log, that is not for people.

A command ends with an exit code for a DurabilityError or an OSError. All else is a defect: an exception of a
task, a thread or a callback, and a message that names one. Refuses to count what a process does that was
killed.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any, Final

from durability.errors import DurabilityError
from durability_lab.histories.simulated.virtual_process import CURRENT, Process

_NAMED: Final = "a defect of this tool: "  # so the product says it in its messages


def is_named(text: str) -> bool:
    """Whether a message says that it is about a defect."""
    return _NAMED in f"{text}: "


class Defects(logging.Handler):
    """Hears what the product logs, and is told what it raises. `found`: each defect, as a sentence."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def note(self, where: str, error: BaseException | None) -> None:
        """This was raised in the process or thread `where`, and nobody took it."""
        if _is_dead(CURRENT.get()):
            return
        for_people = isinstance(error, DurabilityError | OSError) and not is_named(str(error))
        if isinstance(error, Exception) and not for_people:
            last = next(reversed(traceback.extract_tb(error.__traceback__)), None)
            at = f" ({last.filename.rpartition('/')[2]}:{last.lineno})" if last is not None else ""
            self.found.append(f"a defect in {where}: {type(error).__name__}: {error}{at}")

    def emit(self, record: logging.LogRecord) -> None:
        """A line of the log, of level ERROR or above."""
        error = record.exc_info[1] if record.exc_info else None
        before = len(self.found)
        self.note(f"{record.name}, {record.getMessage()}", error)
        if len(self.found) == before and is_named(record.getMessage()) and not _is_dead(CURRENT.get()):
            self.found.append(f"a defect in {record.name}: {record.getMessage()}: {error!r}")

    def of_loop(self, context: dict[str, Any]) -> None:
        """What an event loop reports: a callback, or a task that nobody awaits, has raised."""
        handle = context.get("handle")
        if handle is None or not _is_dead(handle._context.get(CURRENT)):
            self.note(str(context.get("message")), context.get("exception"))


def _is_dead(process: Process | None) -> bool:
    return process is not None and process.dead
