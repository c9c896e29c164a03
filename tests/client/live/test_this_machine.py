"""What tells a live machine from others, boot after boot, and which drives it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from durability_client.live import this_machine

UUID = "4c4c4544-0042-3510-8054-b7c04f4e3332"


def tree(root: Path, *, uuid: str, cards: dict[str, tuple[str, str]], serial: str = "EX123") -> Path:
    """A tree as /sys, with these numbers; each card has an address and a place."""
    dmi = root / "class/dmi/id"
    dmi.mkdir(parents=True)
    for name, text in (
        ("product_uuid", uuid),
        ("product_serial", serial),
        ("sys_vendor", "Example Inc."),
        ("product_name", "Server\x1b[2J 1"),
    ):
        (dmi / name).write_text(f"{text}\n")
    for name, (address, place) in cards.items():
        device = root / "devices" / place
        device.mkdir(parents=True)
        card = root / "class/net" / name
        card.mkdir(parents=True)
        (card / "device").symlink_to(device)
        (card / "address").write_text(f"{address}\n")
    (root / "class/block").mkdir()
    return root


def test_the_firmwares_number_is_the_machine(tmp_path: Path) -> None:
    """Whatever cards it has; and a number that somebody gave it comes first."""
    one = tree(tmp_path / "1", uuid=UUID, cards={})
    two = tree(tmp_path / "2", uuid=UUID.upper(), cards={"eth0": ("52:54:00:00:00:01", "pci0/0")})
    found = this_machine.this_machine(sys=one)
    assert found.key == this_machine.this_machine(sys=two).key
    assert found.name == "live-EX123" and len(found.id) == 32
    assert this_machine.this_machine(sys=one, given_key="shelf 3").key != found.key
    assert this_machine.has_key(sys=one)


@pytest.mark.parametrize(
    "shared", ["", "00000000-0000-0000-0000-000000000000", "03000200-0400-0500-0006-000700080009"]
)
def test_a_number_that_many_boards_have_is_not_taken(tmp_path: Path, shared: str) -> None:
    """Then it is the lowest number of a card; one on USB does not count, as it may be plugged elsewhere."""
    cards = {
        "usb0": ("02:00:00:00:00:01", "pci0/usb1/1-1"),
        "eth1": ("52:54:00:00:00:03", "pci0/1"),
        "eth0": ("52:54:00:00:00:02", "pci0/2"),
    }
    one = this_machine.this_machine(sys=tree(tmp_path / "1", uuid=shared, cards=cards))
    del cards["usb0"], cards["eth1"]
    two = this_machine.this_machine(sys=tree(tmp_path / "2", uuid=shared, cards=cards, serial="0"))
    three = tree(tmp_path / "3", uuid=shared, cards={"eth0": ("52:54:00:00:00:09", "pci0/2")})
    assert one.key == two.key != this_machine.this_machine(sys=three).key
    assert two.name == f"live-{two.id[:8]}"
    assert not this_machine.has_key(sys=tree(tmp_path / "4", uuid=shared, cards={}))


def test_drives_are_shown_with_their_writes(tmp_path: Path) -> None:
    """Loop devices, optical drives and partitions are not drives to be tested."""
    root = tree(tmp_path, uuid=UUID, cards={})
    for name in ("nvme0n1", "loop0", "sr0", "sda"):
        block = root / "class/block" / name
        (block / "device").mkdir(parents=True)
        (block / "size").write_text("2048\n")
    block = root / "class/block/nvme0n1"
    (block / "device/model").write_text("Example SSD   \n")
    (block / "device/serial").write_text("S1\n")
    (block / "stat").write_text("5 0 40 1 7 0 56 1 0 1 2 0 0 0 0 3 1\n")
    seen = this_machine.drives(sys=root)
    assert [one.name for one in seen] == ["nvme0n1", "sda"]
    first = seen[0]
    assert (first.model, first.serial, first.size_bytes, first.writes) == ("Example SSD", "S1", 1 << 20, 7)
    assert seen[1].writes is None
