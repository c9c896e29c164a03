"""Which facts are of the same drives: by serial, hidden or not, and by machine where serials repeat."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from durability.acceptance.known_cuts import KnownDrive, proof_beside, same_drives, unsearchable
from durability.bench.decision.proof import Proof
from durability.bench.hashed_serials import hash_serials
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


def test_one_serial_does_not_make_two_drives_one() -> None:
    """An adapter gives its own serial to each drive in it: another model is another drive, hidden or not. A
    smaller size may be a drive that has lost capacity, so that alone is the same drive."""
    assert not same_drives(on("a"), hidden(on("a", model="Another")), named=True)
    assert same_drives(on("a"), hidden(on("a", model="")), named=False), "one that names no model"
    assert same_drives(on("a"), hidden(on("a", size_bytes=1)), named=False)
    mirror = facts(drives=(drive(serial="S1"), drive(serial="S2", model="B")))
    assert same_drives(mirror, replace(mirror, drives=mirror.drives[::-1]), named=False)
    other = replace(mirror, drives=(mirror.drives[0], replace(mirror.drives[1], model="C")))
    assert not same_drives(mirror, other, named=False)


def test_a_virtual_serial_is_a_drive_of_its_machine() -> None:
    """Hypervisors and loop devices give the same serial on every machine."""
    for same in ({"emulated": True, "serial": "disk-1"}, {"name": "loop0", "serial": "loop:/d.img"}):
        assert same_drives(on("a", **same), hidden(on("a", **same)), named=False)
        assert not same_drives(on("a", **same), hidden(on("b", **same)), named=True)


def test_a_serial_that_any_drive_may_have_is_none() -> None:
    """A hypervisor's number, and zeros, tell no drive from another: it must be named, as one without."""
    for given in ({"emulated": True, "serial": "QM00001"}, {"serial": "00000000"}):
        assert not same_drives(on("a", **given), on("a", **given), named=False)
        assert same_drives(on("a", **given), on("a", **given), named=True)
        assert same_drives(on("a", **given), hidden(on("a", **given)), named=True)
        assert not same_drives(on("a", **given), on("b", **given), named=True)
    shared = {"emulated": True, "serial": "disk-1"}
    assert not same_drives(on("", **shared), on("", **shared), named=False)


def test_a_drive_without_a_serial_must_be_named() -> None:
    """Then machine, name, model and size must agree."""
    bare = {"serial": ""}
    assert not same_drives(on("a", **bare), on("a", **bare), named=False)
    assert same_drives(on("a", **bare), on("a", **bare), named=True)
    assert not same_drives(on("a", **bare), on("b", **bare), named=True)
    assert not same_drives(on("a", **bare), on("a", size_bytes=1, **bare), named=True)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (on("a"), ""),
        (hidden(on("a")), ""),
        (on("a", serial="", name="vdb"), "vdb has no serial of its own"),
        (on("a", emulated=True, serial="QM00001"), "sda has no serial of its own"),
        (hidden(on("a", serial="00000000")), "sda has no serial of its own"),
        (on("", emulated=True, serial="disk-1"), "sda has no serial of its own"),
        (facts(drives=()), "no drive below it is known"),
        (
            facts(drives=tuple(drive(serial=f"S{n}") for n in range(65))),
            "65 drives are too many to be looked for",
        ),
    ],
)
def test_a_drive_whose_cuts_cannot_be_looked_for_is_named(found: Facts, said: str) -> None:
    """With the reason; by the rule by which drives are compared."""
    assert unsearchable(found) == (said and f"{said}, so its cuts cannot be found on the server")


def known(*, losses: int, bound: float | None, is_campaign: bool) -> KnownDrive:
    """What cuts said of the drive: a campaign of one run, or that run by itself."""
    proof = Proof(cuts=59, losses=losses, bound=bound, cut_class="power", source="it", lost_in="")
    return KnownDrive(facts=on("a"), proof=proof, runs=frozenset({"r"}), is_campaign=is_campaign)


def test_a_loss_of_a_campaigns_run_counts_beside_the_campaign() -> None:
    """A later verify of its last run found a loss; a cut of the same series without a verdict leaves that
    series without a bound."""
    campaign = known(losses=0, bound=0.0495, is_campaign=True)
    result = replace(simulate(Device()), facts=on("a"))
    for losses, word in ((1, "lost data"), (0, "proven")):
        run = known(losses=losses, bound=None, is_campaign=False)
        found = proof_beside(result, (campaign, run), named=False)
        assert found is not None and found.word == word
