"""Finds the runs to which documented assumptions apply: the server did not hear of their clients' state.

An assumption about a client ends once the server has heard of the client's state. Each method notes one
event; this module causes no events.
"""

from __future__ import annotations

import math
from typing import Final

from durability_lab.histories.assumed_runs import AssumedRuns
from durability_lab.histories.simulated.history_machine import HistoryMachine
from durability_lab.histories.simulated.history_server import HistoryServer
from durability_lab.histories.simulated.virtual_loop import VirtualLoop

MS, S = 1_000_000, 1_000_000_000
# The longest time between a promise and the receipt of its acknowledgement, and between the last frame and a
# cut.
UNHEARD_NS: Final = 60 * MS
_UNSHOWN_NS = 3 * S  # a client that is frozen for longer must not look like a cut
_REPORT_NS = 200 * MS  # within this time, a client reports its state
_COUNTED_NS = 63 * S  # within this time, a running client reads its drive's counter and reports it


class UnheardClients:
    """Keeps the runs to which assumptions apply now, in `assumed`."""

    def __init__(self, machine: HistoryMachine, server: HistoryServer, loop: VirtualLoop) -> None:
        self.assumed = AssumedRuns()
        self._machine = machine
        self._server = server
        self._network = loop.network
        self._loop = loop
        self._failed: set[int] = set()  # runs with an I/O error
        self._ended_before: set[int] = set()  # runs whose end this store will not learn
        self._frozen_ns: dict[int, int] = {}  # by run: since when its client is frozen
        self._dark_since_ns = 0  # when the network last died
        self._heard_since_ns: int | None = None  # since when the server can hear the client's present state
        self._counted_ns: int | None = None  # since when the client can report its drive's counter

    def note_time(self) -> None:
        """Note that time has passed: the server may have heard of the client meanwhile."""
        machine = self._machine
        goes_on = machine.client_goes_on and machine.client_connected and not machine.drive.hung
        if self._counted_ns is not None and goes_on and self._loop.now_ns - self._counted_ns > _COUNTED_NS:
            self._counted_ns = None
            self.assumed.counted.discard(machine.client_run)
        if self._heard_since_ns is None:
            return
        if self._machine.client_alive and not self._machine.client_connected:
            self._heard_since_ns = self._loop.now_ns
        elif self._loop.now_ns - self._heard_since_ns > self._unheard_for_ns():
            self._forget()

    def note_change(self) -> None:
        """Note that the client, its drive or its connection to the server has changed now."""
        self._heard_since_ns = self._loop.now_ns if self._network.up and self._server.runs else None
        if self._counted_ns is not None:
            self._counted_ns = self._loop.now_ns

    def note_stop(self) -> None:
        """Note that the client stops writing now. If the network is dead, it does not use up its credit.

        If it had stopped long before the network died, the server knows that.
        """
        run = self._machine.client_run
        wrote_ns = self._machine.drive.promised_ns.get(run, 0)
        before_ns = self._dark_since_ns - _UNSHOWN_NS - UNHEARD_NS
        if self._machine.client_alive and not self._network.up and wrote_ns >= before_ns:
            self.assumed.ended_unheard.add(run)

    def note_error(self) -> None:
        """Note that the drive fails from now on."""
        self._meet_error()
        self.note_change()

    def note_glitch(self) -> None:
        """Note that the drive has counted a power loss."""
        self.assumed.counted.update(self._machine.plans)
        self._counted_ns = self._loop.now_ns

    def note_freeze(self) -> None:
        """Note that the client is about to be frozen."""
        self.note_stop()
        self._frozen_ns[self._machine.client_run] = self._loop.now_ns
        self.note_change()

    def note_thaw(self) -> None:
        """Note that the client goes on."""
        self._frozen_ns.pop(self._machine.client_run, None)
        self._meet_error()
        self.note_change()

    def note_end_of_sight(self) -> None:
        """Note the end of the machine or the server. The server may not have seen yet that a client is
        frozen."""
        self.assumed.frozen_shortly.update(self.frozen_shortly)

    @property
    def frozen_shortly(self) -> frozenset[int]:
        """The run whose client is frozen, but too shortly for the server to have seen it."""
        run = self._machine.client_run
        frozen_ns = self._loop.now_ns - self._frozen_ns.get(run, 0)
        return frozenset({run} if self._machine.client_alive and frozen_ns <= _UNSHOWN_NS else ())

    @property
    def as_of_now(self) -> AssumedRuns:
        """The assumptions that hold for a server that ends now."""
        return AssumedRuns(
            ended_unheard={*self.assumed.ended_unheard},
            frozen_shortly=self.assumed.frozen_shortly | self.frozen_shortly,
            copied_alive={self._machine.client_run} if self._machine.client_alive else set(),
        )

    def note_older_log(self, then: AssumedRuns) -> None:
        """Note that verdicts come from an older log: the assumptions `then` hold, as if the server had ended
        at that time. An export affects all later verdicts, so some are not graded strictly."""
        self._ended_before |= then.ended_unheard
        self.assumed.ended_unheard.update(then.ended_unheard)
        self.assumed.frozen_shortly.update(then.frozen_shortly)
        self.assumed.copied_alive.update(then.copied_alive)

    def note_restart(self) -> bool:
        """Note that the machine was shut down in order. Returns whether a series may count this as a cut."""
        runs = self._machine.plans.keys()
        like_cut = bool(self.assumed.ended_unheard.intersection(runs) - self.assumed.restarted)
        self.assumed.restarted.update(runs)
        return like_cut

    def note_network(self, *, was_up: bool) -> None:
        """Note that the network was turned on or off.

        A network that dies holds back the last bytes of a client that had ended. A client that is stuck while
        the network is dead does not use up its credit.
        """
        machine = self._machine
        if was_up and not self._network.up:
            self._dark_since_ns = self._loop.now_ns
        if not self._network.up and machine.last_words_unheard:
            self.assumed.ended_unheard.update(list(machine.plans)[-1:])
        self.note_change()
        stuck = machine.drive.hung or machine.client_run in self._failed
        if stuck or not machine.client_goes_on:
            self.note_stop()

    def _meet_error(self) -> None:
        """Note that the client meets an error of its failing drive."""
        run, failing = self._machine.client_run, self._machine.drive.failing
        if not failing or not self._machine.client_goes_on:
            return
        if failing == "lasting":  # perhaps after another error, while the client still looks at the drive
            self.assumed.failed_with_power.add(run)
        if run not in self._failed:
            self.note_stop()
            self._failed.add(run)

    def _unheard_for_ns(self) -> float:
        """The time after which the server has heard of the client's state, or why it ended by itself.

        Infinite if the server never hears.
        """
        if self._machine.client_alive:
            return _REPORT_NS if self._machine.client_goes_on else _UNSHOWN_NS
        failed = self._machine.client_run in self._failed - self._ended_before
        return _REPORT_NS if failed and self._machine.client_closed else math.inf

    def _forget(self) -> None:
        """Note that the server has heard of the client: assumptions about its earlier state end."""
        self._heard_since_ns = None
        self.assumed.ended_unheard.discard(self._machine.client_run)
        if self._machine.client_goes_on:
            self.assumed.frozen_shortly.discard(self._machine.client_run)
            self.assumed.copied_alive.discard(self._machine.client_run)
