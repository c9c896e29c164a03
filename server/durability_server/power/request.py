"""One request to a switch, in its own process: waits for its turn, asks, and ends all programs that it
started.

The switch has a lock, which is a file. The request holds it from its beginning until its last process is
gone, so a request never takes effect after a later one. The request is abandoned if the controller ends,
which this process notices through a pipe. If this process is killed, the lock is released. But the lock's
file names the sessions of its programs, and the next holder ends them first. No text of an answer has a
secret.
"""

from __future__ import annotations

import fcntl
import os
import select
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from durability import plain_text
from durability.errors import SetupError
from durability_server import clock
from durability_server.power import fence_metadata, switch_programs, switches
from durability_server.power.exchange import SwitchAnswer, SwitchRequest
from durability_server.power.fence_metadata import Metadata
from durability_server.power.secret_files import without_secrets
from durability_server.power.switch_programs import EndedProgram

if TYPE_CHECKING:  # the controller loads nothing that has threads, see `exchange`
    from durability.campaign.log_entries import SwitchOutcome

_LOCK_POLL_S = 0.02  # interval of trying to get the lock
_LOCK_BYTES_MAX = 4096  # bytes read of the lock's file: one line for each of the few programs of a request
_PATIENCE_S = 5.0  # longest wait for killed processes before the answer says that they still run
_TEXT_CHARACTERS = 500  # longest text of an answer
_PROBLEM_CHARACTERS = 2000  # longest text about invalid options, which may list all options
_USAGE_HINT = "Please use '-h' for usage"

# Receives the answer.
Tell: TypeAlias = Callable[[SwitchAnswer], None]


class _AbandonedError(Exception):
    """The controller has ended."""


class _LateError(Exception):
    """The deadline of the request has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What ends a request early."""

    deadline_s: float  # on the monotonic clock
    lifeline: int  # pipe that reaches its end of file when the controller ends


def do(request: SwitchRequest, *, lock: int, bounds: Bounds, tell: Tell) -> None:
    """Does the request and passes the answer to `tell`, unless the controller has ended. Returns when every
    process of the request is gone. `lock`: the open file of the switch's lock."""
    switch_programs.become_subreaper()
    received_ns = clock.now_ns()

    def failed(text: str) -> SwitchAnswer:
        line = plain_text.as_line(text)
        if len(line) > _PROBLEM_CHARACTERS:
            line = f"{line[:_PROBLEM_CHARACTERS]}…"
        return SwitchAnswer(outcome="failed", text=line, began_ns=received_ns, ended_ns=clock.now_ns())

    within = f"within {request.switch.timeout_s:g} s"
    try:
        _lock(lock, bounds)
        asking = _Asking(request, bounds, lock)
    except _LateError:
        tell(failed(f"not begun {within}: an earlier request to this switch is not over"))
        return
    except _AbandonedError:
        return
    try:
        tell(asking.answer())
    except SetupError as error:
        tell(failed(str(error)))
    except _LateError:
        if switch_programs.end_descendants(_PATIENCE_S):
            tell(failed(f"no answer {within}, and was stopped: it may have obeyed or not"))
        else:
            tell(failed(f"no answer {within}, and cannot be stopped: nothing else is asked before its end"))
            switch_programs.end_descendants(float("inf"))
    except _AbandonedError:
        switch_programs.end_descendants(float("inf"))
    asking.wait_until_gone()
    os.ftruncate(lock, 0)


def _lock(lock: int, bounds: Bounds) -> None:
    """Takes the lock, after ending programs of an earlier request whose process was killed. Raises _LateError
    and _AbandonedError."""
    while not _try_lock(lock):
        left_s = bounds.deadline_s - time.monotonic()
        if left_s <= 0:
            raise _LateError
        if select.select([bounds.lifeline], [], [], min(left_s, _LOCK_POLL_S))[0]:
            raise _AbandonedError


def _try_lock(lock: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if switch_programs.end_sessions(os.pread(lock, _LOCK_BYTES_MAX, 0).decode(errors="replace")):
            os.ftruncate(lock, 0)
            return True
    return False


class _Asking:
    """Runs the programs of one request."""

    def __init__(self, request: SwitchRequest, bounds: Bounds, lock: int) -> None:
        self._request = request
        self._bounds = bounds
        self._lock = lock
        self._groups: list[int] = []

    def answer(self) -> SwitchAnswer:
        """Asks the switch. Raises SetupError, _LateError and _AbandonedError."""
        switch, operation = self._request.switch, self._request.operation
        if operation == "check":
            self._check()
        action: switches.Action = "status" if operation == "check" else operation
        command = switches.command(switch, action, self._metadata)
        ended = self._run(command)
        outcome = switches.outcome(switch, action, ended.code, ended.errors)
        return SwitchAnswer(
            outcome=outcome,
            text=_text(outcome, ended, command.secrets),
            began_ns=ended.began_ns,
            ended_ns=ended.ended_ns,
        )

    def wait_until_gone(self) -> None:
        """Returns when the processes that the programs left in their groups, which were killed, are gone."""
        for group in self._groups:
            switch_programs.wait_for_group(group)

    def _check(self) -> None:
        """Raises SetupError if the options do not fit the fence agent, or a command is missing."""
        switch = self._request.switch
        if switch.kind == "commands":
            switches.check_commands(switch)
        if switch.kind == "fence" and (found := fence_metadata.problems(switch.options, self._metadata())):
            raise SetupError("; ".join(found))

    def _metadata(self) -> Metadata:
        ended = self._run(switches.metadata_command(self._request.switch))
        if ended.code != 0:
            agent = self._request.switch.agent
            raise SetupError(f"{agent} does not say what its options are: {_text('failed', ended, ())}")
        return fence_metadata.parse(ended.output)

    def _run(self, command: switches.SwitchCommand) -> EndedProgram:
        if time.monotonic() >= self._bounds.deadline_s:
            raise _LateError
        ended = switch_programs.run(
            command.argv,
            command.given,
            leave_out=command.leave_out,
            deadline_s=self._bounds.deadline_s,
            lifeline=self._bounds.lifeline,
            sessions=self._lock,
        )
        if ended.end == "abandoned":
            raise _AbandonedError
        if ended.end == "late":
            raise _LateError
        self._groups.append(ended.process)
        return ended


def _text(outcome: SwitchOutcome, ended: EndedProgram, secrets: tuple[str, ...]) -> str:
    """The output of the program without secrets. If it failed, also its errors and how it ended."""
    said = [ended.output] if outcome != "failed" else [ended.output, ended.errors]
    clean = " ".join(without_secrets(kept, secrets) for kept in said).replace(_USAGE_HINT, "")
    line = plain_text.as_line(" ".join(clean.split()))
    if len(line) > _TEXT_CHARACTERS:
        line = f"…{line[-_TEXT_CHARACTERS:]}"
    if outcome != "failed":
        return line
    how = f"killed by signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}"
    return f"{line or 'no output'} ({how})"
