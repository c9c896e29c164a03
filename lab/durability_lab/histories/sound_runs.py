"""Finds the sound runs: the power was cut under load, nothing else happened to them, and a verdict is due.

Both rigs use this one rule; each reports its steps and cuts. A run is not sound if anything else happened to
it, or if too little is known about it.
"""

from __future__ import annotations

from collections.abc import Iterable

from durability.formats.plan import Plan
from durability_lab.histories.steps import Step

# Steps that leave a sound run sound: the first only after its client is gone, the others always.
_HARMLESS_AFTER = frozenset({"reboot", "stop", "kill"})
_HARMLESS = frozenset({"pass", "copy", "cut", "boot", "answer", "unmount", "verify"}) | _HARMLESS_AFTER
_LOAD_NS = 50 * 1_000_000  # longest time between two promises under load
_CREDIT_GROUPS = 24  # with less credit, a writer may always be waiting for the server (rule 12)
_BEGIN_NS = 200 * 1_000_000  # this time after the first promise, the first acknowledgements are granted


class SoundRuns:
    """Keeps the set of runs that are sound now, in `sound`."""

    def __init__(self) -> None:
        self.sound: set[int] = set()
        self._spoiled: set[int] = set()  # runs to which something other than a cut happened
        self._before_boot: set[int] = set()  # runs that are older than the current boot

    def spoil(self, runs: Iterable[int]) -> None:
        """Note that something other than a cut happens to all `runs`; no run stays sound."""
        self._spoiled.update(runs)
        self.sound.clear()

    def step(self, step: Step, runs: Iterable[int], *, client_alive: bool) -> None:
        """Note that a step is about to be taken, with these runs on the drive."""
        if step.kind not in _HARMLESS or (step.kind in _HARMLESS_AFTER and client_alive):
            self.spoil(runs)

    def machine_starts(self, runs: Iterable[int]) -> None:
        """Note that the machine starts again, with these runs on the drive.

        Only the first boot after a run shows when that run's system ended. A boot in between may have reset
        the run's connection.
        """
        self._spoiled |= self._before_boot
        self.sound -= self._before_boot
        self._before_boot = set(runs)

    def cut(
        self, what: str, plan: Plan, *, heard: bool, at_ns: int, begun_ns: int | None, promised_ns: int
    ) -> None:
        """Note a cut; `plan` is that of the newest run.

        `heard`: the run's client lives, the run is armed, and the server knows it and hears it. `begun_ns`:
        when the drive made its first promise to the run, None if it made none. `promised_ns`: when the drive
        made its last one.

        A client whose drive alone lost power checks for some seconds whether the drive still answers. If its
        machine is cut before the client has reported, no evidence shows that the power was gone before.
        """
        if heard and what != "drive" and plan.run in self.sound:
            self.spoil((plan.run,))
            return
        if plan.credit < _CREDIT_GROUPS * plan.group:
            return
        if what == "guest":
            self._spoiled.add(plan.run)
            return
        began = begun_ns is not None and at_ns - begun_ns >= _BEGIN_NS
        if heard and began and at_ns - promised_ns <= _LOAD_NS and plan.run not in self._spoiled:
            self.sound.add(plan.run)
