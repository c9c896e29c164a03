"""The agent's connection: says its status and gets its task, for ever.

The server may be away for hours, and the machine is up before its network. Each failure is said once and
waited out, for at most five seconds, since each boot of a campaign waits for that. Nothing that a server says
or leaves out ends the agent, nor does a disk that fails or hangs with the credential on it. Such a disk keeps
one thread, however often the agent connects.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from durability.campaign.tasks import Task
from durability.errors import DurabilityError, SetupError
from durability.formats.documents import from_value, to_value
from durability.protocol.messages import AgentStatus, AgentTask
from durability_client.agent.task_work import TaskWork
from durability_client.link.credential import load_credential
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import Connection, connect, later_servers

STATUS_S = 1.0  # from one status to the next, if nothing changed
_NEWS_S = 0.05  # at least between two
_ANSWER_S = 60.0
_WAIT_S = (0.5, 1.0, 2.0, 5.0)  # after the first, second … failure to reach the server


async def agent_loop(
    endpoint: Endpoint, work: TaskWork, say: Callable[[str], None], *, credential: Path | None = None
) -> None:
    """Do the server's tasks until cancelled. `say` gets a line for people when something changes. Raises
    SetupError once the server is not to be had, and this machine has joined anew: then the file `credential`
    is another client's."""
    failures, last = 0, ""
    memory = _Memory(credential)
    while True:
        try:
            with (
                closing(await connect(endpoint, "agent", remember=False)) as connection,
                later_servers(connection, partial(memory.begin, connection)),
            ):
                try:
                    await _exchange(connection, work)
                    say(f"connected to the server at {connection.endpoint}")
                    failures, last = 0, ""
                    while True:
                        await _next_status(work)
                        await _exchange(connection, work)
                finally:
                    endpoint = connection.endpoint
        except DurabilityError as error:
            text = str(error)
        except TimeoutError:
            text = f"the server at {endpoint} has not answered for {_ANSWER_S:.0f} s"
        work.lost()
        if text != last:
            say(text)
            last = text
        memory.look(endpoint.client)
        if memory.joined_anew:
            raise SetupError(
                f"{memory.joined_anew}: start the agent again, so that it goes on as that client"
            )
        await asyncio.sleep(_WAIT_S[min(failures, len(_WAIT_S) - 1)])
        failures += 1


class _Memory:
    """Has the credential know the servers that live, and looks whether it is still the agent's, in one thread
    at a time, which nothing waits for. `joined_anew`: that it is another client's, in words, "" if not."""

    def __init__(self, credential: Path | None) -> None:
        self._credential = credential
        self._thread: threading.Thread | None = None
        self.joined_anew = ""

    def begin(self, connection: Connection) -> None:
        """Remember those that `connection` knows of. While an earlier call waits for the disk nothing
        happens: a later one makes up for it."""
        self._do(connection.remember)

    def look(self, client: str) -> None:
        """See whether this machine is still this client. A later call makes up for it in the same way."""
        self._do(partial(self._look, client))

    def _do(self, task: Callable[[], None]) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=_unless_it_fails, args=(task,), daemon=True)
            self._thread.start()

    def _look(self, client: str) -> None:
        known = load_credential(self._credential) if self._credential is not None else None
        if known is not None and known.client != client:
            self.joined_anew = f"this machine has joined {', '.join(known.servers)} as {known.name} since"


def _unless_it_fails(task: Callable[[], None]) -> None:
    with suppress(DurabilityError):  # the connection is what the agent needs
        task()


async def _exchange(connection: Connection, work: TaskWork) -> None:
    """Say the status and take the task. Raises PeerError, FormatError and TimeoutError."""
    work.changed.clear()
    status = work.status()
    async with asyncio.timeout(_ANSWER_S):
        answer = await connection.request(AgentStatus(status=to_value(status)), AgentTask)
    work.note_status(status)
    work.take(from_value(Task, answer.task))


async def _next_status(work: TaskWork) -> None:
    """Wait until a status is due."""
    await asyncio.sleep(_NEWS_S)
    with suppress(TimeoutError):
        async with asyncio.timeout(STATUS_S - _NEWS_S):
            await work.changed.wait()
