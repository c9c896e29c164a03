"""What may wait for a drive is done outside of the agent's event loop, and can be given up.

Programs are children that end with the agent (`bound_child`); calls of this process are threads that its end
does not wait for. A program that is given up is killed. If a drive keeps it in the kernel it lives on, and
`Children.settled` waits for it, so that nothing else is done to its drive meanwhile.
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

TEXT_CHARACTERS_MAX = 1000  # of a sentence in a status
_LINE_BYTES_MAX = 1 << 20
_OWN = "durability: "  # before an error of this product's commands
_KILL_S = 5.0  # from SIGTERM to SIGKILL, and from that to giving up
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A program that ended. `exit_code` as of a shell: 128 and the signal's number if one ended it. `output`
    and `errors` are whole: a part of a JSON document is none."""

    exit_code: int
    output: str
    errors: str

    @property
    def said(self) -> str:
        """Why it failed, in its own words, as a line."""
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
        """Start a program, with pipes for what it says. Raises ProgramError."""
        try:
            process = await asyncio.create_subprocess_exec(
                *bound(command),
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the agent, which ends its children in order
                limit=_LINE_BYTES_MAX,
            )
        except OSError as error:
            raise ProgramError(f"{command[0]} cannot be started: {error.strerror}") from error
        waiting = asyncio.create_task(process.wait())
        self._live[process] = waiting
        waiting.add_done_callback(lambda _: self._live.pop(process, None))
        return process

    async def run(self, *command: str, timeout_s: float, given: bytes = b"") -> Done:
        """Run a program to its end; it reads what is `given`. One that takes longer, or whose caller is
        cancelled, is ended. Raises ProgramError."""
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
        """End a program: SIGTERM, then SIGKILL; one that does not even end then is left to `settled`."""
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
        """Whether any has not ended."""
        return bool(self._live)

    async def settled(self) -> None:
        """Wait until all have ended."""
        while self._live:
            await asyncio.wait(set(self._live.values()))


def bound(command: Sequence[str]) -> tuple[str, ...]:
    """`command` as a child that ends with this process."""
    return (sys.executable, "-I", "-S", bound_child.__file__, str(os.getpid()), *command)


async def in_thread(call: Callable[[], T], *, discard: Callable[[T], None] | None = None) -> T:
    """What `call` returns or raises, in a thread that nothing waits for if this is cancelled. `discard` gets
    what it returns too late for that: a descriptor, which nobody else would close."""
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
        except BaseException as caught:  # for whoever waits
            error = caught
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result, error)

    def end_late(late: asyncio.Future[T]) -> None:
        if late.exception() is None and discard is not None:
            discard(late.result())

    threading.Thread(target=work, daemon=True).start()
    try:
        await asyncio.wait({answer})
    except asyncio.CancelledError:  # which may come just after the answer
        answer.add_done_callback(end_late)
        raise
    return answer.result()


async def poll(look: Callable[[], Awaitable[T | None]], *, every_s: float, within_s: float) -> T | None:
    """The first answer of `look` that is not None; None if there is none in time. It is asked at least
    once."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while (found := await look()) is None and loop.time() < deadline_s:  # noqa: ASYNC110 - no event
        await asyncio.sleep(every_s)
    return found


def shell_code(return_code: int) -> int:
    """The exit code that a shell gives, of what Python gives."""
    return 128 - return_code if return_code < 0 else return_code


def last_words(lines: Sequence[str]) -> str:
    """Why a program failed, of the lines that it had for people: of this product's commands the last line,
    and all lines of any other, as one line."""
    own = [line.removeprefix(_OWN) for line in lines if line.startswith(_OWN)]
    return shortened(own[-1] if own else " ".join(lines))


def shortened(text: str) -> str:
    """The end of `text` as one plain line that fits a status."""
    line = plain_text.as_line(" ".join(text.split()))
    return line if len(line) <= TEXT_CHARACTERS_MAX else "…" + line[1 - TEXT_CHARACTERS_MAX :]
