"""Serials: hidden wherever they stand, the same drive still the same."""

from __future__ import annotations

from dataclasses import replace

from durability.bench.serials import hash_serials
from durability.documents import to_json, to_value
from durability.facts import TargetWarning
from tests.core.bench.results import drive, facts

LOOP = drive(name="loop3", serial="loop:/home/eva/disk.img")


def test_no_serial_is_left_anywhere() -> None:
    """Neither in its own field nor in paths, layers or warnings, with spaces or the underscores of udev."""
    found = replace(
        facts(drives=(drive(), LOOP)),
        path="/dev/disk/by-id/ata-Model_One_S4X-0001_7",
        layers=("loop3 (loop:/home/eva/disk.img)",),
        warnings=(TargetWarning(code="x", text="drive S4X-0001 7 is on machine 0123456789abcdef"),),
    )
    text = to_json(to_value(hash_serials(found)))
    for secret in ("S4X-0001", "0123456789abcdef", "aaaa-bbbb-cccc", "/home/eva"):
        assert secret not in text
    assert text.count("sha256:") >= 8 and "Model_One" in text and "shelf-3" in text


def test_the_same_serial_has_the_same_hash_and_others_another() -> None:
    """Two results tell whether they are of one drive."""
    first, second = hash_serials(facts(drives=(drive(), drive(serial="S4X-0002"), drive()))).drives[:2]
    again = hash_serials(facts(virtualisation="kvm")).drives[0]
    assert first.serial == again.serial != second.serial
    assert len(first.serial) == len("sha256:") + 16


def test_what_has_no_serial_keeps_none() -> None:
    """An empty serial is not replaced, and a very short one only in its own place."""
    found = hash_serials(facts(drives=(drive(serial=""), drive(serial="7"))))
    assert found.drives[0].serial == "" and found.drives[1].serial.startswith("sha256:")
    assert found.drives[0].model == "Model One" and "data base" in found.path
    assert found.host.kernel == "Linux 6.1.0"


def test_a_target_without_file_system_is_fine() -> None:
    """A bare device has no UUID to hide."""
    assert hash_serials(facts(file_system=None)).file_system is None
