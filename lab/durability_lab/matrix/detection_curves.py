"""Detection curves: the loads under which two lies are cut, so that what hides them can be read off.

The points of one curve differ in what it is about and in nothing else. `matrix_command` cuts them, as often
as it is told to, and `detection_page` shows the shares caught. Refuses to judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from durability_lab.simulated_rig.scenario import Scenario

DELAYS_MS = (1, 10, 100, 1000)
RATES = (50.0, 500.0, 5000.0)  # commits per second of the one writer
ONE_IN = (10, 100, 1000)
PACED_RATE = 50.0
LOADS = ((1, PACED_RATE), (1, 0.0), (4, 0.0), (16, 0.0))  # writers, and the rate of each (0: flat out)

# One sector to a record and a target that no run covers: neither changes what is caught, both save time.
_LOAD = Scenario(record_bytes=512, slots=1024, operations=(100, 400), control=False)


def early_ack_scenarios() -> Iterator[Scenario]:
    """The drive that acknowledges a flush and has it on media d ms later: d against the rate of writes.

    A cut shows it if a record was acknowledged within the last d ms whose acknowledgement had time to reach
    the server: the share is about the chance that one falls between the ack lag and d before the cut.
    """
    for delay_ms in DELAYS_MS:
        for rate in RATES:
            yield replace(_LOAD, model=f"early-ack:delay_ms={delay_ms}", rate=rate)


def flush_skipped_scenarios() -> Iterator[Scenario]:
    """The drive that skips a flush now and then: how often, against who writes.

    The next honoured flush by any writer covers a skipped one. So a cut shows the drive only if the very
    last flush was skipped, and only if its acknowledgement had time to reach the server: a paced writer has
    that time, writers flat out do not, and the more there are the sooner one of them covers the lie.
    """
    for one_in in ONE_IN:
        for writers, rate in LOADS:
            yield replace(_LOAD, model=f"flush-skipped:one_in={one_in}", writers=writers, rate=rate)
