"""Which runs are sound: the power was cut under load, nothing else happened to them, and so a verdict is due.

Both rigs count a run as sound by this one rule; each says what it knows of a step and of a cut. Refuses to
guess: a run of which anything else is known, or too little, is not sound.
"""

from __future__ import annotations

from collections.abc import Iterable

from durability.formats.plan import Plan
from durability_lab.histories.steps import Step

# Steps that leave a sound run sound, and those that do after its client is gone.
_HARMLESS_AFTER = frozenset({"reboot", "stop", "kill"})
_HARMLESS = frozenset({"pass", "copy", "cut", "boot", "answer", "unmount", "verify"}) | _HARMLESS_AFTER
_LOAD_NS = 50 * 1_000_000  # between two promises under load, at most
_CREDIT_GROUPS = 24  # with fewer a writer may always be waiting for the server (rule 12)
_BEGIN_NS = 200 * 1_000_000  # after the first one the first acknowledgements have been granted


class SoundRuns:
    """`sound`: the runs that are sound now."""

    def __init__(self) -> None:
        self.sound: set[int] = set()
        self._spoiled: set[int] = set()  # runs to which more happened than a cut
        self._before_boot: set[int] = set()  # runs that are older than the boot that there is

    def spoil(self, runs: Iterable[int]) -> None:
        """More than a cut happens, to all runs that there are."""
        self._spoiled.update(runs)
        self.sound.clear()

    def step(self, step: Step, runs: Iterable[int], *, client_alive: bool) -> None:
        """A step comes, with these runs on the drive."""
        if step.kind not in _HARMLESS or (step.kind in _HARMLESS_AFTER and client_alive):
            self.spoil(runs)

    def machine_starts(self, runs: Iterable[int]) -> None:
        """It starts anew, with these runs on the drive. Only the first boot after a run shows when the system
        of that ended: one between may have reset its connection."""
        self._spoiled |= self._before_boot
        self.sound -= self._before_boot
        self._before_boot = set(runs)

    def cut(
        self, what: str, plan: Plan, *, heard: bool, at_ns: int, begun_ns: int | None, promised_ns: int
    ) -> None:
        """A cut comes, and this is the newest run. `heard`: its client lives, it is armed, and the server
        hears and knows it; `begun_ns`: when the drive made its first promise to it, None if it made none;
        `promised_ns`: the last one.

        A client whose drive alone lost its power looks for some seconds whether that still answers. If its
        machine goes before it has said so, nobody knows that the power was gone before."""
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
