"""Which facts are of the same drives: by serial, hidden or not, and by machine where serials repeat."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from durability.acceptance.known_cuts import same_drives
from durability.bench.serials import hash_serials
from durability.formats.facts import Facts
from tests.core.bench.results import Device, drive, facts, simulate


def on(machine: str, **changes: Any) -> Facts:
    """Facts of one drive on a machine."""
    found = facts(drives=(drive(**changes),))
    return replace(found, host=replace(found.host, machine_id=machine))


def hidden(found: Facts) -> Facts:
    """The same facts as a result has them."""
    return hash_serials(replace(simulate(Device()), facts=found)).facts


def test_a_serial_is_the_drive_wherever_it_is() -> None:
    """Hidden or not, on this machine or another."""
    assert same_drives(on("a"), hidden(on("b")), named=False)
    assert not same_drives(on("a"), on("a", serial="another"), named=True)


def test_a_virtual_serial_is_a_drive_of_its_machine() -> None:
    """Hypervisors and loop devices give the same serial on every machine."""
    for same in ({"emulated": True, "serial": "QM00001"}, {"name": "loop0", "serial": "loop:/d.img"}):
        assert same_drives(on("a", **same), hidden(on("a", **same)), named=False)
        assert not same_drives(on("a", **same), hidden(on("b", **same)), named=True)


def test_a_drive_without_a_serial_must_be_named() -> None:
    """Then machine, name, model and size must agree."""
    bare = {"serial": ""}
    assert not same_drives(on("a", **bare), on("a", **bare), named=False)
    assert same_drives(on("a", **bare), on("a", **bare), named=True)
    assert not same_drives(on("a", **bare), on("b", **bare), named=True)
    assert not same_drives(on("a", **bare), on("a", size_bytes=1, **bare), named=True)
