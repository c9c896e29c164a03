"""The agent's connection: sends its status and receives its task, for ever.

The server may be unreachable for hours, and the machine starts before its network. Each failure is printed
once. The next attempt follows after at most five seconds, because each boot of a campaign waits for it. No
message of a server, and no missing answer, ends the agent. Neither does a failing or hanging disk with the
credential. Such a disk blocks only one thread, however often the agent connects.
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

STATUS_S = 1.0  # interval between statuses if nothing changed
_NEWS_S = 0.05  # shortest interval between statuses
_ANSWER_S = 60.0
_WAIT_S = (0.5, 1.0, 2.0, 5.0)  # after the first, second … failure to reach the server


async def agent_loop(
    endpoint: Endpoint, work: TaskWork, say: Callable[[str], None], *, credential: Path | None = None
) -> None:
    """Do the server's tasks until cancelled. `say` gets a line for people when something changes.

    Raises SetupError if the connection fails and this machine has joined again, so that the file
    `credential` belongs to another client.
    """
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
    """Stores addresses of running servers in the credential, and checks whether it is still the agent's. Uses
    one thread at a time, and never waits for it. `joined_anew`: a text if the credential belongs to another
    client, else ""."""

    def __init__(self, credential: Path | None) -> None:
        self._credential = credential
        self._thread: threading.Thread | None = None
        self.joined_anew = ""

    def begin(self, connection: Connection) -> None:
        """Store the servers that `connection` knows. Does nothing while an earlier call waits for the disk; a
        later call makes up for it."""
        self._do(connection.remember)

    def look(self, client: str) -> None:
        """Check whether this machine is still the client `client`. May do nothing, as `begin`."""
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
    with suppress(DurabilityError):  # the agent needs only the connection
        task()


async def _exchange(connection: Connection, work: TaskWork) -> None:
    """Send the status and take the task. Raises PeerError, FormatError and TimeoutError."""
    work.changed.clear()
    status = work.status()
    async with asyncio.timeout(_ANSWER_S):
        answer = await connection.request(AgentStatus(status=to_value(status)), AgentTask)
    work.note_status(status)
    work.take(from_value(Task, answer.task))


async def _next_status(work: TaskWork) -> None:
    """Wait until the next status is due."""
    await asyncio.sleep(_NEWS_S)
    with suppress(TimeoutError):
        async with asyncio.timeout(STATUS_S - _NEWS_S):
            await work.changed.wait()
