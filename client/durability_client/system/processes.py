"""Where processes of the client come from: a clean one that has numpy loaded, and hears no signal.

It loads nothing from the working directory, which may be another user's. A terminal sends Ctrl-C to every
process in front of it, but only one knows what must be kept, so those that it starts are started with such
signals blocked.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from typing import Any, Final

CONTEXT: Final = get_context("forkserver")  # children start from a clean process, not from this one
_SAFE_PATH = "PYTHONSAFEPATH"
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # what ends programs, and can be heard

JOIN_S = 2.0  # a killed process that is still there then waits for the drive
CHECK_NS = 20_000_000  # between looks at whether the parent is still there


class OrphanedError(Exception):
    """The process that started this one is gone."""


class ParentWatch:
    """What a child looks at its parent with, unless it is a thread: from `look_at_ns` on, and then again."""

    def __init__(self) -> None:
        self._parent = multiprocessing.parent_process()
        self.look_at_ns = 0

    def look(self, now_ns: int) -> None:
        """Raises OrphanedError once the parent process is gone; looks at most every `CHECK_NS`."""
        if now_ns >= self.look_at_ns:
            self.look_at_ns = now_ns + CHECK_NS
            if self._parent is not None and not self._parent.is_alive():
                raise OrphanedError("the process that started this one is gone")


def main_of(module: str, *words: str) -> tuple[str, ...]:
    """The command that runs `main` of `module` with WORDS, in this very installation: its functions and
    classes have the names that they have here, which `-m` would change."""
    return (sys.executable, "-P", "-c", f"from {module} import main; main()", *words)


def own_command(*words: str) -> tuple[str, ...]:
    """This product's command `durability WORDS`, of this very installation, whatever PATH has."""
    return main_of("durability_cli.main", *words)


@contextmanager
def starting() -> Iterator[None]:
    """Processes started within the block keep the signals that end programs blocked."""
    with _safe_path():
        resource_tracker.ensure_running()  # it unblocks such signals when it starts, so that must be before
        with signals_blocked():
            yield


@contextmanager
def _safe_path() -> Iterator[None]:
    """Python processes started within the block do not look for modules in the working directory."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


@contextmanager
def signals_blocked() -> Iterator[None]:
    """What ends programs does so after the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def signals_held() -> Iterator[None]:
    """What ends programs is heard after the block, whichever thread gets it: a mask is one thread's alone.
    Other threads than the main one hear none anyway. What is started within hears them as ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    before: dict[signal.Signals, Any] = {}
    try:
        for number in ENDING:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, lambda number, _: heard.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for sent in dict.fromkeys(heard):
            signal.raise_signal(sent)
