"""`durability agent`: does the tasks of a campaign on the machine under test, until it is stopped.

The agent needs root and a credential of this machine, and refuses to run beside another agent. A signal ends
it in order: runs are stopped, and file systems that it mounted are unmounted.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from pathlib import Path
from typing import TextIO

from durability import plain_text
from durability.errors import SetupError
from durability_client.agent.abandonable_calls import Children
from durability_client.agent.agent_loop import agent_loop
from durability_client.agent.agent_paths import AgentPaths
from durability_client.agent.drive_work import Setting
from durability_client.agent.task_work import TaskWork
from durability_client.link.endpoint import HOW_TO_JOIN, Endpoint
from durability_client.target.discovery import host_now

SYSTEMD = Path("/run/systemd/system")  # exists if systemd is the init
_POWER_OFF_S = 300.0


async def agent(
    endpoint: Endpoint,
    *,
    options: Sequence[str],
    directory: Path,
    out: TextIO,
    credential: Path | None = None,
    power_off: Callable[[], Awaitable[None]] | None = None,
    working: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
) -> None:
    """Do the tasks of the server at `endpoint` until SIGINT or SIGTERM. Raises SetupError.

    `options`: command-line options with which started commands find the server. `directory`: directory in
    memory for mounts and marks. `credential`: credential file of `endpoint`, which is read again after a lost
    connection. `power_off` replaces the system's command. `working` is entered when the agent can do tasks,
    and left when it begins to stop.
    """
    if os.geteuid() != 0:
        raise SetupError("the agent mounts file systems and writes to devices: run it as root")
    places = AgentPaths(directory, client=endpoint.client)

    def say(text: str) -> None:
        with suppress(OSError):  # without a reader of its output, the agent still does its tasks
            print(plain_text.as_line(text), file=out, flush=True)

    with places.held():
        host = await asyncio.to_thread(host_now)
        setting = Setting(places=places, options=tuple(options), boot_id=host.boot_id)
        work = TaskWork(setting, host, power_off=power_off or _power_off, say=say)
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        talking = asyncio.create_task(agent_loop(endpoint, work, say, credential=credential))
        stopping = asyncio.create_task(stopped.wait())
        try:
            async with working():
                await asyncio.wait({talking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if talking.done():
                talking.result()
            say("stopping")
        finally:
            talking.cancel()
            stopping.cancel()
            await work.close()


def require_joined(endpoint: Endpoint) -> Endpoint:
    """`endpoint`, if this machine has joined its server. Raises SetupError otherwise."""
    if not endpoint.client:
        raise SetupError(f"this machine has not joined a server, so no campaign can name it: {HOW_TO_JOIN}")
    return endpoint


async def _power_off() -> None:
    command = ("systemctl", "poweroff") if SYSTEMD.is_dir() else ("poweroff",)  # noqa: ASYNC240 - in memory
    done = await Children().run(*command, timeout_s=_POWER_OFF_S)
    if done.exit_code:
        raise SetupError(f"{' '.join(command)}: {done.said}")
