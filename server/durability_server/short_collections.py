"""Keeps Python's collections of cyclic garbage short, because the server stands still meanwhile.

A full collection scans all objects. With 1,550 connections that takes a tenth of a second, in which no
heartbeat leaves and no receipt gets its time. So objects that have survived a long collection are left out of
later ones. Reference counts still free them; only cycles of them stay. So all objects are scanned once an
hour.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from durability_server import clock

LONG_NS = 10_000_000  # a collection that takes longer would make heartbeats late
ALL_AGAIN_S = 3600.0
_OLDEST = 2  # the generation of a full collection


class ShortCollections:
    """From `begin` to `end`, collections scan only the objects made since the last long one."""

    def __init__(self) -> None:
        self._begun_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Leaves out all objects that exist now."""
        gc.callbacks.append(self._note)
        self._scan_all()

    def end(self) -> None:
        """Collections scan all objects again. Does nothing before `begin`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.callbacks.remove(self._note)
            gc.unfreeze()

    def _scan_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._timer = asyncio.get_running_loop().call_later(ALL_AGAIN_S, self._scan_all)

    def _note(self, phase: str, details: dict[str, Any]) -> None:
        """Called by Python at the start and the end of each collection, in any thread."""
        if details["generation"] != _OLDEST:
            return
        now_ns = clock.now_ns()
        if phase == "start":
            self._begun_ns = now_ns
        elif now_ns - self._begun_ns > LONG_NS:
            gc.freeze()
