"""Serials: hidden wherever they stand, the same drive still the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from durability.bench.catalogue import HEADLINE
from durability.bench.hashed_serials import are_of_one_drive, hash_serials, marks_of
from durability.bench.result import Result, decode, encode
from durability.formats.documents import to_json, to_value
from durability.formats.facts import Facts, TargetWarning
from tests.core.bench.results import Device, drive, facts, simulate

LOOP = drive(name="loop3", serial="loop:/home/eva/disk.img")


def result_of(found: Facts, **changes: Any) -> Result:
    return simulate(Device(), cells=(HEADLINE,), rounds=1, facts=found, **changes)


def hashed_facts(found: Facts) -> Facts:
    return hash_serials(result_of(found)).facts


def test_no_serial_is_left_anywhere() -> None:
    """No serial is left in fields, paths, layers or warnings, with spaces or udev's underscores."""
    found = replace(
        facts(drives=(drive(), LOOP)),
        path="/dev/disk/by-id/ata-Model_One_S4X-0001_7",
        layers=("loop3 (loop:/home/eva/disk.img)",),
        warnings=(TargetWarning(code="x", text="drive S4X-0001 7 is on machine 0123456789abcdef"),),
    )
    text = to_json(to_value(hashed_facts(found)))
    for secret in ("S4X-0001", "0123456789abcdef", "aaaa-bbbb-cccc", "/home/eva"):
        assert secret not in text
    assert text.count("sha256:") >= 8 and "Model_One" in text and "shelf-3" in text


def test_what_is_said_of_errors_has_no_serial_either() -> None:
    """The reasons why a run or a cell stopped have no serial, although they name the target as typed."""
    whole = result_of(facts(), stopped="/mnt/aaaa-bbbb-cccc: the target is full", complete=False)
    typed = "/dev/disk/by-id/ata-Model_One_S4X-0001_7: the target gave an error"
    noted = replace(whole, cells=(replace(whole.cells[0], note=typed),))
    hidden = hash_serials(noted)
    assert (hidden.serials, noted.serials) == ("hashed", "shown")
    text = encode(hidden).decode()
    assert "aaaa-bbbb-cccc" not in text and "S4X-0001" not in text
    assert hidden.stopped.startswith("/mnt/sha256:") and hidden.stopped.endswith(": the target is full")
    assert decode(encode(hidden)) == hidden


@pytest.mark.parametrize(
    "name", ["by-id/wwn-0x5002538e00000001", "by-id/nvme-eui.0025385b01:2", "by-partuuid/0fc63daf-01"]
)
def test_a_name_that_identifies_the_drive_without_its_serial_is_hashed_whole(name: str) -> None:
    """The facts do not know what it is made of."""
    stopped = hash_serials(result_of(facts(), stopped=f"/dev/disk/{name}: x: the target is full")).stopped
    kind, secret = name.split("/")
    assert secret not in stopped and stopped.startswith(f"/dev/disk/{kind}/sha256:")
    assert stopped.endswith(": x: the target is full")


def test_a_serial_that_is_a_word_of_the_format_does_not_break_it() -> None:
    """An emulated drive may have any serial, also a word of the file format. Hashing it does not change other
    fields."""
    found = hash_serials(result_of(facts(kind="device", drives=(drive(serial="device"),))))
    assert found.facts.kind == "device" and decode(encode(found)) == found


def test_the_same_serial_has_the_same_hash_and_others_another() -> None:
    """Two results tell whether they are of one drive."""
    first, second = hashed_facts(facts(drives=(drive(), drive(serial="S4X-0002"), drive()))).drives[:2]
    again = hashed_facts(facts(virtualisation="kvm")).drives[0]
    assert first.serial == again.serial != second.serial
    assert len(first.serial) == len("sha256:") + 16


def test_what_has_no_serial_keeps_none() -> None:
    """An empty serial is not replaced, and a very short one only in its own place."""
    found = hashed_facts(facts(drives=(drive(serial=""), drive(serial="7"))))
    assert found.drives[0].serial == "" and found.drives[1].serial.startswith("sha256:")
    assert found.drives[0].model == "Model One" and "data base" in found.path
    assert found.host.kernel == "Linux 6.1.0"


@pytest.mark.parametrize("serial", ["000000000000", "QM00001"])
def test_a_serial_that_any_drive_may_have_is_not_hidden(serial: str) -> None:
    """A serial that many drives share is not hashed, because its hash would look like a drive's own."""
    found = hashed_facts(facts(drives=(drive(serial=serial, emulated=True),)))
    assert found.drives[0].serial == serial and marks_of(found) == frozenset()


def test_a_target_without_file_system_is_fine() -> None:
    """A bare device has no UUID to hide."""
    assert hashed_facts(facts(file_system=None)).file_system is None


def test_results_of_one_drive_are_seen_to_be_so() -> None:
    """Serials must be a drive's own, and agree; what an adapter gives to every drive in it is told apart by
    the rest, and what one of them does not tell is not compared."""
    one = facts()
    assert are_of_one_drive(one, facts(drives=(drive(firmware="2.0", write_cache="write through"),)))
    assert are_of_one_drive(hashed_facts(one), hashed_facts(facts(path="/mnt")))
    assert are_of_one_drive(one, facts(drives=(drive(model="", size_bytes=0),)))
    pair = (drive(), drive(name="sdb", serial="S2"))
    assert are_of_one_drive(facts(drives=pair), facts(drives=pair[::-1]))
    for other in (
        (drive(serial="S2"),),
        (drive(model="Model Two"),),
        (drive(size_bytes=1 << 30),),
        pair,
        (),
    ):
        assert not are_of_one_drive(one, facts(drives=other))
    nobody = facts(drives=(drive(serial="QM00001"),))
    assert not are_of_one_drive(nobody, nobody)
