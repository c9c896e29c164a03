"""What tells a live machine from others, boot after boot, and which drives it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from durability_client.live import this_machine

UUID = "4c4c4544-0042-3510-8054-b7c04f4e3332"
STRANGE = "01020304-0506-0708-090a-0b0c0d0e0f10"  # not as the standard has it, and in no list
CARD = {"eth0": ("52:54:00:00:00:02", "pci0/2")}
OTHER_CARD = {"eth0": ("52:54:00:00:00:03", "pci0/2")}


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
    """The firmware's UUID identifies the machine, whatever its network cards. A given key takes
    precedence."""
    one = tree(tmp_path / "1", uuid=UUID, cards={})
    two = tree(tmp_path / "2", uuid=UUID.upper(), cards={"eth0": ("52:54:00:00:00:01", "pci0/0")})
    found = this_machine.this_machine(sys=one)
    assert found.key == this_machine.this_machine(sys=two).key
    assert found.name == "live-EX123" and len(found.id) == 32
    assert this_machine.this_machine(sys=one, given_key="shelf 3").key != found.key
    assert not this_machine.is_known_by_cards(sys=one)


@pytest.mark.parametrize(
    ("uuid", "serial", "key"),
    [
        (UUID, "EX123", "bc114b5e3af116e62c7f50226ba77bbb"),
        (UUID, "", "189b1f95fb4977025ac43cfa41fd5506"),
        (UUID, "Default string", "189b1f95fb4977025ac43cfa41fd5506"),
        (UUID, "0123456789", "963a7f8982fbba359e332d9992c4b96c"),
        ("30373237-3132-584d-5130-313930303646", "CZ123", "e3a65583c7ffe3de99f86dd7bd80f28b"),
        ("03000200-0400-0500-0006-000700080009", "EX123", "18b813b4f32c69d51754ce10923f3552"),
    ],
)
def test_a_machine_that_joined_stays_the_same(tmp_path: Path, uuid: str, serial: str, key: str) -> None:
    """These are keys by which servers know machines: another one would be another client."""
    root = tree(tmp_path, uuid=uuid, cards=CARD, serial=serial)
    assert this_machine.this_machine(sys=root).key == key


@pytest.mark.parametrize(
    ("uuid", "serials", "is_enough"),
    [
        (STRANGE, ("EX123", "EX124"), True),
        (STRANGE, ("", ""), False),
        (STRANGE, ("To be filled by O.E.M.", "To be filled by O.E.M."), False),
        (STRANGE, ("0123456789", "0123456789"), False),
        (STRANGE, ("System Serial Number", "System Serial Number"), False),
        (UUID, ("", ""), True),
        ("4c4c4544-0042-1035-8054-b7c04f4e3332", ("", ""), True),  # two bytes in the other order
    ],
)
def test_a_uuid_that_others_may_have_needs_a_serial_number(
    tmp_path: Path, uuid: str, serials: tuple[str, str], is_enough: bool
) -> None:
    """One that is made as the standard says is the machine's own. Without either, its cards are the machine:
    two boards with one UUID are two machines."""
    boards = [
        tree(tmp_path / name, uuid=uuid, cards=cards, serial=serial)
        for name, cards, serial in zip("ab", (CARD, OTHER_CARD), serials, strict=True)
    ]
    assert [not this_machine.is_known_by_cards(sys=board) for board in boards] == [is_enough] * 2
    one, two = (this_machine.this_machine(sys=board) for board in boards)
    assert (one.key == two.key) == (is_enough and serials[0] == serials[1])


@pytest.mark.parametrize(
    "shared",
    [
        "",
        "00000000-0000-0000-0000-000000000000",
        "FEFEFEFE-FEFE-FEFE-FEFE-FEFEFEFEFEFE",
        "03000200-0400-0500-0006-000700080009",
        "00020003-0004-0005-0006-000700080009",
        "07090201-0103-0301-0807-060504030201",
        "03020100-0504-0706-0809-0a0b0c0d0e0f",
        "12345678-1234-5678-90ab-cddeefaabbcc",
        "4a5b9712-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
    ],
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
    assert this_machine.is_known_by_cards(sys=tree(tmp_path / "4", uuid=shared, cards={}))


def test_a_number_that_changes_with_each_boot_is_not_taken(tmp_path: Path) -> None:
    """The kernel makes one up for a card that has none. A card on USB is taken if there is no other."""
    cards = {"usb0": ("02:00:00:00:00:07", "pci0/usb1/1-1"), "eth0": ("02:00:00:00:00:01", "pci0/1")}
    root = tree(tmp_path, uuid="", cards=cards)
    (root / "class/net/eth0/addr_assign_type").write_text("1\n")
    assert [card.address for card in this_machine.cards(sys=root)] == ["02:00:00:00:00:07"]


def test_a_machine_without_any_number_has_no_key(tmp_path: Path) -> None:
    """A word in its place would be the key of all such machines."""
    root = tree(tmp_path, uuid="", cards=CARD, serial="")
    (root / "class/net/eth0/addr_assign_type").write_text("1\n")
    found = this_machine.this_machine(sys=root)
    assert (found.key, found.id, found.name) == ("", "", "live") and "Example Inc." in found.description
    assert this_machine.this_machine(sys=root, given_key="shelf 3").key


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
