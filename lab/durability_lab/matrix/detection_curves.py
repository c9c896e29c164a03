"""Detection curves: two lying drives under varied loads, to show which conditions hide their faults.

The points of one curve differ only in the fault's parameter and the load's pace. `matrix_command` cuts them,
and `detection_page` shows the shares of caught cuts. This module has scenarios only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from durability_lab.simulated_rig.scenario import Scenario

DELAYS_MS = (1, 10, 100, 1000)
RATES = (50.0, 500.0, 5000.0)  # commits per second of the only writer
ONE_IN = (10, 100, 1000)
PACED_RATE = 50.0
LOADS = ((1, PACED_RATE), (1, 0.0), (4, 0.0), (16, 0.0))  # writers, and the rate of each (0: unpaced)

# Records of one sector and a target that no run covers save time and do not change the results.
_LOAD = Scenario(record_bytes=512, slots=1024, operations=(100, 400), control=False)


def early_ack_scenarios() -> Iterator[Scenario]:
    """A drive that acknowledges a flush d ms before the data are on media: d varied against the commit rate.

    A cut shows the fault if a record was acknowledged within the last d ms, and the acknowledgement had time
    to reach the server. The share of caught cuts is about the probability of such an acknowledgement, made
    between d and the ack lag before the cut.
    """
    for delay_ms in DELAYS_MS:
        for rate in RATES:
            yield replace(_LOAD, model=f"early-ack:delay_ms={delay_ms}", rate=rate)


def flush_skipped_scenarios() -> Iterator[Scenario]:
    """A drive that skips one flush in N: N varied against the number and pace of the writers.

    The next honoured flush by any writer covers a skipped one. A cut shows the fault only if the very last
    flush was skipped, and its acknowledgement had time to reach the server. A paced writer has that time;
    unpaced writers do not. The more writers there are, the sooner one of them covers the skipped flush.
    """
    for one_in in ONE_IN:
        for writers, rate in LOADS:
            yield replace(_LOAD, model=f"flush-skipped:one_in={one_in}", writers=writers, rate=rate)
