"""The machine that boots the live image: its stick, and what it lacks, without a boot."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from durability.protocol.join_code import JoinCode
from durability_client.live import stick
from durability_client.live.join_request import JoinRequest
from durability_lab.vm_rig import live_machine
from durability_lab.vm_rig.live_machine import LiveImage
from durability_lab.vm_rig.network import GUEST


def test_the_image_reads_the_stick_that_the_lab_makes(tmp_path: Path) -> None:
    """Server, code, name and address come back as they were given."""
    if shutil.which("mformat") is None:
        pytest.skip("mtools is not installed")
    code = str(JoinCode(secret=b"0123456789", fingerprint=b"abcdefghijklm"))
    live_machine.make_stick(tmp_path / "stick", server="192.0.2.1:7420", code=code, name="guest")
    found = stick.read(tmp_path / "stick")
    assert found == JoinRequest(
        server="192.0.2.1:7420", code=code.replace(" ", ""), name="guest", address=f"{GUEST}/24"
    )


def test_an_image_that_is_not_there(tmp_path: Path) -> None:
    """The sentence says how to make one."""
    image = LiveImage(iso=tmp_path / "live.iso", firmware="bios")
    assert live_machine.missing(image) == (
        f"{tmp_path}/live.iso does not exist: `make release R=live` makes one in dist/"
    )
