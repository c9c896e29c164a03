"""Writers as threads of a test, with the orders that a run would give them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from durability.formats.plan import Plan
from durability_client.run.shared_state import Order, SharedState
from durability_client.run.slot_writer import write_records
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.target_files import TargetFiles
from tests.waiting import DEADLINE_S


class ThreadWriters:
    """Writers as threads over one storage, and the orders that a run would give."""

    def __init__(self, plan: Plan, storage: KernelStorage) -> None:
        self.plan = plan
        self.storage = storage
        self.shared = SharedState(plan.writers + bool(plan.control_slots))
        self.threads: list[threading.Thread] = []

    def start(self, *writers: int) -> None:
        TargetFiles(self.storage, self.plan).create()
        for writer in writers:
            arguments = (self.plan, writer, self.storage, self.shared)
            self.threads.append(threading.Thread(target=write_records, args=arguments, daemon=True))
            self.threads[-1].start()
        self.shared.give_order(Order.GO)

    def until(self, condition: Callable[[], bool]) -> None:
        """Look at the shared memory, which wakes nobody, until it says so."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"{self.shared.frontiers()} {self.shared.first_failure()}"
            os.sched_yield()

    def finish(self) -> list[int]:
        """Stop cleanly; the final frontiers."""
        self.shared.give_order(Order.STOP)
        return self.join()

    def join(self) -> list[int]:
        for thread in self.threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        return self.shared.frontiers()
