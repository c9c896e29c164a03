"""Starts, watches and ends a run's writers and its control arm.

On a target of the kernel, each writer is a process, so that no writer waits for another's interpreter. A
storage in this process's memory, such as a simulated drive, gets threads.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

from durability.errors import NOT_STARTED, SetupError
from durability.formats.plan import Plan
from durability_client.run.shared_state import FAILURES, SharedState, WriterFailure, WriterState
from durability_client.run.slot_writer import write_records
from durability_client.system.processes import CONTEXT, JOIN_S, starting
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.storage import Storage

_ENDED = (WriterState.DONE, *FAILURES)
_KILLED = (
    "its process was killed (SIGKILL), as the system does when memory runs out: free memory, or use fewer"
    " --writers"
)
_SWITCH_S = 0.0001  # so that threads that never wait for a drive let the event loop run often enough


@contextmanager
def starting_for_run() -> Iterator[None]:
    """Raises SetupError if the system cannot start the processes or threads of the block."""
    try:
        yield
    except (OSError, EOFError) as error:  # EOFError: the fork server could not start a process
        why = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
        raise SetupError(
            f"{NOT_STARTED}{why}. Free memory, use fewer --writers, or allow more processes and open files"
            " (ulimit -u, ulimit -n)"
        ) from error


class WriterProcesses:
    """Writers 0 to `plan.writers` - 1 and, if the plan has one, the control arm. After `start` they wait for
    orders."""

    def __init__(self, plan: Plan, storage: Storage) -> None:
        self.shared = SharedState(plan.writers + bool(plan.control_slots))
        self._plan = plan
        self._storage = storage
        self._members: list[BaseProcess | threading.Thread] = []
        self._switch_s = sys.getswitchinterval()

    def start(self) -> None:
        """Start all writers. Signals stay blocked in them, so that Ctrl-C affects only this process."""
        processes = isinstance(self._storage, KernelStorage)
        if processes:
            CONTEXT.set_forkserver_preload(["__main__", write_records.__module__])
        else:
            sys.setswitchinterval(_SWITCH_S)
        with starting():
            for writer in range(self.shared.writers):
                arguments = (self._plan, writer, self._storage, self.shared)
                name = f"durability-writer-{writer}"
                member: BaseProcess | threading.Thread
                if processes:
                    member = CONTEXT.Process(target=write_records, args=arguments, name=name, daemon=True)
                else:
                    member = threading.Thread(target=write_records, args=arguments, name=name, daemon=True)
                member.start()
                self._members.append(member)

    def all_in(self, state: WriterState) -> bool:
        """Whether every writer, the control arm included, is in `state`."""
        return all(self.shared.state(writer) == state for writer in range(self.shared.writers))

    def any_in(self, state: WriterState) -> bool:
        """Whether at least one writer, the control arm included, is in `state`."""
        return any(self.shared.state(writer) == state for writer in range(self.shared.writers))

    @property
    def control_completed(self) -> int:
        """Writes that the control arm completed."""
        return sum(self.shared.frontiers()[self._plan.writers :])

    def look(self) -> None:
        """Record a failure in the shared state for each writer that died without reporting one."""
        for writer, member in enumerate(self._members):
            if not member.is_alive() and self.shared.state(writer) not in _ENDED:
                code = member.exitcode if isinstance(member, BaseProcess) else None
                killed = code == -signal.SIGKILL  # no defect of this tool sends SIGKILL
                self.shared.fail(
                    WriterFailure(
                        at_ns=time.monotonic_ns(),
                        writer=writer,
                        errno=0,
                        seq=self.shared.frontiers()[writer],
                        text=_KILLED if killed else f"its process ended with exit code {code}",
                        killed=killed,
                    )
                )

    def dismiss(self) -> bool:
        """Kill all writers, also those that wait for a drive. Returns whether all have ended."""
        self.shared.halt()
        deadline = time.monotonic() + JOIN_S
        for member in self._members:
            if isinstance(member, BaseProcess):
                member.kill()  # SIGTERM is blocked there
        for member in self._members:
            member.join(max(0.0, deadline - time.monotonic()))
        sys.setswitchinterval(self._switch_s)
        return not any(member.is_alive() for member in self._members)
