"""Starts the client's processes, from a clean fork server with preloaded modules, with signals blocked.

The fork server loads nothing from the working directory, which may belong to another user. A terminal sends
Ctrl-C to all its foreground processes, but only the main process knows what must be saved. So child processes
are started with the signals that end programs blocked.
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
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # signals that end programs and can be caught

JOIN_S = 2.0  # a killed process that has not ended after this time waits for the drive
CHECK_NS = 20_000_000  # interval between checks whether the parent still runs


class OrphanedError(Exception):
    """The process that started this one has ended."""


class ParentWatch:
    """Checks in a child process whether its parent still runs; in a thread it checks nothing. The next check
    is due at `look_at_ns`."""

    def __init__(self) -> None:
        self._parent = multiprocessing.parent_process()
        self.look_at_ns = 0

    def look(self, now_ns: int) -> None:
        """Raises OrphanedError if the parent process has ended. Checks at most once every `CHECK_NS`."""
        if now_ns >= self.look_at_ns:
            self.look_at_ns = now_ns + CHECK_NS
            if self._parent is not None and not self._parent.is_alive():
                raise OrphanedError("the process that started this one is gone")


def main_of(module: str, *words: str) -> tuple[str, ...]:
    """The command that runs `main` of `module` with WORDS in this installation. Unlike with `-m`, functions
    and classes of the module keep their qualified names."""
    return (sys.executable, "-P", "-c", f"from {module} import main; main()", *words)


def own_command(*words: str) -> tuple[str, ...]:
    """The command `durability WORDS` of this installation, independent of PATH."""
    return main_of("durability_cli.main", *words)


@contextmanager
def starting() -> Iterator[None]:
    """Processes started in the block keep the signals that end programs blocked."""
    with _safe_path():
        resource_tracker.ensure_running()  # before the block, because its start unblocks such signals
        with signals_blocked():
            yield


@contextmanager
def _safe_path() -> Iterator[None]:
    """Python processes started in the block do not import modules from the working directory."""
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
    """Signals that end programs take effect only after the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def signals_held() -> Iterator[None]:
    """Signals that end programs are handled after the block, whichever thread receives them.

    A signal mask would affect only one thread. In threads other than the main one this does nothing, because
    they handle no signals. Processes started in the block receive signals as usual.
    """
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
