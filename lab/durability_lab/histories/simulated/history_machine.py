"""The machine under test of a history: its boots, its drive as a target, and the process of its client.

This module carries out events and does not record them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from durability.formats import facts
from durability.formats.plan import Plan
from durability_lab.histories.simulated.eventful_drive import EventfulDrive, HistoryStorage
from durability_lab.histories.simulated.simulated_files import HistoryFileStorage
from durability_lab.histories.simulated.virtual_loop import VirtualLoop
from durability_lab.histories.simulated.virtual_process import Process
from durability_lab.histories.steps import History

T = TypeVar("T")

_UP_FOR_NS: Final = 100 * 1_000_000_000  # uptime at the beginning of the history


class HistoryMachine:
    """The machine, with one client at a time. `up`: its system runs. `storage`: its drive as a target."""

    def __init__(self, history: History, loop: VirtualLoop) -> None:
        self.up = True
        self._history = history
        self._loop = loop
        self._network = loop.network
        self._boots = 1
        self._booted_ns = loop.now_ns - _UP_FOR_NS
        self._drives = 1
        self._client: Process | None = None
        self._ended: list[Process] = []  # earlier clients
        self._pending: list[int] = []  # signals to a frozen client
        self._runs_before = 0  # number of runs on the drive when the client began
        self.storage = self._new_drive()

    # State.

    @property
    def drive(self) -> EventfulDrive:
        """The drive itself."""
        return self.storage.drive

    @property
    def plans(self) -> Mapping[int, Plan]:
        """The plans of the runs that wrote to the drive, in order."""
        return self.drive.plans

    @property
    def newest_run(self) -> int:
        """The run that wrote to the drive last; 0 for none."""
        return next(reversed(self.drive.plans), 0)

    @property
    def boot_id(self) -> str:
        """The boot id of the system."""
        return f"boot-{self._boots}"

    @property
    def reachable(self) -> bool:
        """Whether the machine is up and the drive has power."""
        return self.up and self.drive.powered

    @property
    def client_alive(self) -> bool:
        """Whether a client process is running or frozen."""
        return self._client is not None and bool(self._client.tasks)

    @property
    def client_frozen(self) -> bool:
        """Whether the client is frozen; `thaw_client` lets it go on."""
        return self._client is not None and self._client.frozen

    @property
    def client_goes_on(self) -> bool:
        """Whether the client is alive and not frozen."""
        return self.client_alive and not self.client_frozen

    @property
    def client_run(self) -> int:
        """The run of the present or last client; 0 before it has written a superblock."""
        return self.newest_run if len(self.plans) > self._runs_before else 0

    @property
    def client_connected(self) -> bool:
        """Whether the client has a connection that is open at both ends."""
        return self._client is not None and self._network.connected(self._client)

    @property
    def client_closed(self) -> bool:
        """Whether the server heard a connection of the present client end in order."""
        return self._client is not None and self._network.heard_end(self._client)

    @property
    def last_words_unheard(self) -> bool:
        """Whether the client that ended last has sent bytes that have not arrived yet."""
        return bool(self._ended) and self._network.unheard(self._ended[-1])

    # Events of the client.

    def begin_client(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a client that does `work`."""
        self._runs_before = len(self.plans)
        self._client = Process("client")
        return self._client.begin(self._loop, work)

    def takes_signal(self, number: int) -> bool:
        """Whether the client handles this signal now. A frozen client gets the signal when it goes on."""
        if self._client is None or number not in self._client.handlers:
            return False
        if self._client.frozen:
            self._pending.append(number)
        return not self._client.frozen

    def signal_client(self, number: int) -> None:
        """Let the client handle a signal for which it has a handler."""
        assert self._client is not None
        self._client.handlers[number]()

    def freeze_client(self) -> None:
        """Stop all code of the client until `thaw_client`."""
        assert self._client is not None
        self._client.freeze()

    def thaw_client(self) -> Sequence[int]:
        """Let the client go on; returns the signals that it has to handle now."""
        assert self._client is not None
        self._client.thaw()
        self._network.thaw(self._client)
        pending, self._pending = self._pending, []
        return pending

    def end_client(self, *, silent: bool = False) -> None:
        """End the client's process. `silent`: its machine ends too and sends nothing more."""
        client, self._client = self._client, None
        self._pending = []
        if silent:
            self._network.darken(*self._ended, client)
        if client is None:
            return
        self._ended.append(client)
        self.end_process(client)

    def end_process(self, process: Process) -> None:
        """End a process and release its lock on the target."""
        process.end()
        self._network.kill(process)
        self.storage.unlock()

    # Events of the machine.

    def lose_system(self) -> None:
        """End the system, with the client."""
        self.end_client(silent=True)
        self.up = False

    def lose_system_of(self, processes: Sequence[Process]) -> None:
        """End the system, with these processes, while no client runs."""
        self._network.darken(*self._ended, *processes)
        for process in processes:
            self.end_process(process)
        self.up = False

    def shut_down(self) -> None:
        """Shut the system down in order. Bytes that could not be sent by now are never sent."""
        self._network.darken(*self._ended)

    def start(self) -> None:
        """Start the system again."""
        self.up = True
        self._boots += 1
        self._booted_ns = self._loop.now_ns
        self._network.reset_dark()

    def replace_drive(self, *, copied: bool) -> None:
        """Replace the drive with another one of the same kind; `copied`: with a copy of its content."""
        self._drives += 1
        before, self.storage = self.storage, self._new_drive()
        if copied:
            self.storage.copy_from(before)
        self._runs_before = 0

    def _new_drive(self) -> HistoryStorage:
        kind = HistoryFileStorage if self._history.target == "file" else HistoryStorage
        return kind(
            self._history.drive,
            seed=self._history.seed * 16 + self._drives,
            counters=self._history.counters,
            serials=self._history.serials,
            emulated=self._history.in_guest,
            loop=self._loop,
            host=self._host,
        )

    def _host(self) -> facts.Host:
        return facts.Host(
            machine_id="simulated-machine",
            boot_id=self.boot_id,
            uptime_ns=self._loop.now_ns - self._booted_ns,
            kernel="simulated",
            virtualisation="kvm" if self._history.machine == "guest" else "none",
            hostname="simulated",
        )
