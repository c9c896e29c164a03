"""The machine under a measurement, as it is."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from durability_client.system import host
from durability_client.system.host import Ticks


def test_this_machine_is_described() -> None:
    """It has a processor with a name, as many as the system says, and memory."""
    machine = host.machine()
    assert machine.cpu_model
    assert machine.cpus == os.cpu_count()
    assert machine.memory_bytes > 1 << 20


def test_the_processors_time_is_shared_out(tmp_path: Path) -> None:
    """Busy and stolen shares are of the time since, and the file system is filled to what it is filled."""
    now = host.ticks()
    assert now is not None
    long_ago = Ticks(total=0, busy=0, stolen=0)
    moment = host.machine_load(tmp_path, since=long_ago)
    assert moment.busy_percent is not None
    assert moment.steal_percent is not None
    assert 0 <= moment.steal_percent <= 100 >= moment.busy_percent >= 0
    assert moment.size_bytes == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert moment.used_bytes is not None
    assert 0 <= moment.used_bytes <= moment.size_bytes
    assert moment.reserved_bytes is not None


def test_what_programs_may_not_use_is_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free blocks that programs may not use count as reserved: 50 of 120 free blocks, which ext4 keeps for
    root."""
    room = SimpleNamespace(f_frsize=4096, f_blocks=1000, f_bfree=120, f_bavail=70)
    monkeypatch.setattr(os, "statvfs", lambda _: room)
    moment = host.machine_load(Path("/"), since=None)
    blocks = (moment.used_bytes, moment.size_bytes, moment.reserved_bytes)
    assert blocks == (880 * 4096, 1000 * 4096, 50 * 4096)


def test_without_a_time_before_there_is_no_share() -> None:
    """Without an earlier reading there is no busy share, and without a path no used space."""
    moment = host.machine_load(None, since=None)
    assert (moment.busy_percent, moment.used_bytes, moment.reserved_bytes) == (None, None, None)
    future = Ticks(total=1 << 62, busy=0, stolen=0)
    assert host.machine_load(None, since=future).busy_percent is None
