"""Calls and programs that may wait for a drive. They run outside the agent's event loop.

All of them can be abandoned. Programs are children that end with the agent (`bound_child`). Calls run in
threads, for which the end of the process does not wait. An abandoned program is killed. While a drive blocks
it in the kernel, it stays alive; `Children.settled` waits for it, so that no other program uses the drive
meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from durability import plain_text
from durability_client.agent import bound_child
from durability_client.system.programs import find_tool

TEXT_CHARACTERS_MAX = 1000  # longest sentence in a status
_LINE_BYTES_MAX = 1 << 20
_OWN = "durability: "  # prefix of errors of this product's commands
_KILL_S = 5.0  # from SIGTERM to SIGKILL, and from SIGKILL to abandoning
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Result of a program that ended. `output` and `errors` are complete, because part of a JSON document is
    useless."""

    exit_code: int  # as in a shell: 128 plus the signal's number if a signal ended the program
    output: str
    errors: str

    @property
    def said(self) -> str:
        """The program's own error message, as one line."""
        return (
            last_words(self.errors.splitlines() or self.output.splitlines()) or f"exit code {self.exit_code}"
        )


class ProgramError(Exception):
    """A program is missing, or did not end in time."""


class Children:
    """The programs of one drive that have not ended."""

    def __init__(self) -> None:
        self._live: dict[asyncio.subprocess.Process, asyncio.Task[int]] = {}

    async def start(
        self, *command: str, stdin: int = asyncio.subprocess.DEVNULL
    ) -> asyncio.subprocess.Process:
        """Start a program, with pipes for its output. Raises ProgramError."""
        try:
            process = await asyncio.create_subprocess_exec(
                *bound(command),
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C must reach only the agent, which ends its children in order
                limit=_LINE_BYTES_MAX,
            )
        except OSError as error:
            raise ProgramError(f"{command[0]} cannot be started: {error.strerror}") from error
        waiting = asyncio.create_task(process.wait())
        self._live[process] = waiting
        waiting.add_done_callback(lambda _: self._live.pop(process, None))
        return process

    async def run(self, *command: str, timeout_s: float, given: bytes = b"") -> Done:
        """Run a program with `given` as its input. If it takes too long, or if the caller is cancelled, the
        program is ended. Raises ProgramError."""
        program = command[0] if "/" in command[0] else find_tool(command[0])
        if program is None:
            raise ProgramError(f"{command[0]} is not installed")
        process = await self.start(program, *command[1:], stdin=asyncio.subprocess.PIPE)
        try:
            async with asyncio.timeout(timeout_s):
                output, errors = await process.communicate(given)
        except TimeoutError:
            raise ProgramError(f"{' '.join(command)}: no answer within {timeout_s:.0f} s") from None
        finally:
            if process.returncode is None:
                await asyncio.shield(self.end(process))
        assert process.returncode is not None
        return Done(
            exit_code=shell_code(process.returncode),
            output=output.decode(errors="replace"),
            errors=errors.decode(errors="replace"),
        )

    async def end(self, process: asyncio.subprocess.Process) -> None:
        """End a program with SIGTERM, then SIGKILL. If it still does not end, `settled` waits for it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                process.send_signal(number)
            waiting = self._live.get(process)
            if waiting is None:
                return
            await asyncio.wait({waiting}, timeout=_KILL_S)
            if process.returncode is not None:
                return

    @property
    def stuck(self) -> bool:
        """Whether any program has not ended."""
        return bool(self._live)

    async def settled(self) -> None:
        """Wait until all programs have ended."""
        while self._live:
            await asyncio.wait(set(self._live.values()))


def bound(command: Sequence[str]) -> tuple[str, ...]:
    """The command line that runs `command` as a child that ends with this process."""
    return (sys.executable, "-I", "-S", bound_child.__file__, str(os.getpid()), *command)


async def in_thread(call: Callable[[], T], *, discard: Callable[[T], None] | None = None) -> T:
    """Run `call` in a thread, and return or raise its result. If this is cancelled, the thread is abandoned.
    `discard` then gets a late result, such as a descriptor, which must be closed."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = call()
        except BaseException as caught:  # passed to the waiting caller
            error = caught
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result, error)

    def end_late(late: asyncio.Future[T]) -> None:
        if late.exception() is None and discard is not None:
            discard(late.result())

    threading.Thread(target=work, daemon=True).start()
    try:
        await asyncio.wait({answer})
    except asyncio.CancelledError:  # may arrive just after the answer
        answer.add_done_callback(end_late)
        raise
    return answer.result()


async def poll(look: Callable[[], Awaitable[T | None]], *, every_s: float, within_s: float) -> T | None:
    """Call `look` repeatedly, at least once. Returns its first result that is not None, or None after
    `within_s`."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while (found := await look()) is None and loop.time() < deadline_s:  # noqa: ASYNC110 - no event
        await asyncio.sleep(every_s)
    return found


def shell_code(return_code: int) -> int:
    """Convert Python's return code to a shell's exit code."""
    return 128 - return_code if return_code < 0 else return_code


def last_words(lines: Sequence[str]) -> str:
    """The reason of a program's failure, from its lines for people: the last error line of this product's
    commands, or all lines of another program, as one line."""
    own = [line.removeprefix(_OWN) for line in lines if line.startswith(_OWN)]
    return shortened(own[-1] if own else " ".join(lines))


def shortened(text: str) -> str:
    """The end of `text` as one plain line that fits a status."""
    line = plain_text.as_line(" ".join(text.split()))
    return line if len(line) <= TEXT_CHARACTERS_MAX else "…" + line[1 - TEXT_CHARACTERS_MAX :]
