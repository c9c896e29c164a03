"""A drive whose fast cache fills during the load over its free space, judged as `accept` does."""

from __future__ import annotations

import threading

import pytest

from benchmarks.drives import Drive, Silent, measured_on
from durability.acceptance.decision import CriterionLine, decide_on
from durability.acceptance.profile import Criterion, Profile
from durability.bench.catalogue import HELD_FILL
from durability.bench.cells import MIB
from durability.bench.result import Result
from tests.core.acceptance.samples import evidence, measured

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.slow]
TRIES = 3  # a busy machine may slow a drive down, or the load before the fast part is full
FAST_BYTES = 208 * MIB  # of a drive of 384 MiB: most of it, so that the load says what it fills
BEHIND_MB_PER_S = 4.0


def _filled(*, cache: bool) -> Result:
    """The load over the free space, on a drive that takes `FAST_BYTES` as fast as it can. With `cache`, it
    has a rate of `BEHIND_MB_PER_S` from then on, as when a fast part of its flash is full."""
    with Drive() as drive:
        is_over = threading.Event()

        def slow_down_when_full() -> None:
            while not is_over.wait(0.002):
                if drive.written_bytes >= FAST_BYTES:
                    drive.throttle(int(BEHIND_MB_PER_S * 8e6))
                    return

        watcher = threading.Thread(target=slow_down_when_full)
        listener = Silent(when_measuring=watcher.start if cache else None)
        try:
            return measured_on(
                drive.target, (HELD_FILL,), seed=5, seconds=5.0, size_bytes=2 * MIB, listener=listener
            )
        finally:
            is_over.set()
            if cache:
                watcher.join()


def _behind_the_cache(result: Result, limit: float) -> CriterionLine:
    """What an acceptance says of the rate behind the cache."""
    criterion = Criterion(
        kind="filled-rate", limit=limit, cut_class="power", required=True, reason="It must not fall."
    )
    profile = Profile(name="filled", title="Filled", about="", criteria=(criterion,))
    (line,) = decide_on(profile, evidence(results=[measured(result)])).lines
    return line


def test_a_fast_cache_that_fills_is_judged_by_the_rate_behind_it() -> None:
    """The drive takes half of its space at full speed. Its rate behind that decides, and the same drive
    without the fall passes."""
    limit = 3 * BEHIND_MB_PER_S
    for cache, word in ((False, "pass"), (True, "refuse")):
        for _ in range(TRIES):
            line = _behind_the_cache(_filled(cache=cache), limit)
            if line.word == word:
                break
        assert line.word == word, line
