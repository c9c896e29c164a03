"""Blocks of layers: what zfs and qemu-img say is read, and nothing is made up where they say nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from durability.bench.result import LayerBlock
from durability.formats.facts import Facts
from durability_client.bench.measure.layer_blocks import layer_blocks
from durability_client.system.programs import find_tool
from tests.core.bench.results import facts
from tests.sample_facts import file_system
from tests.waiting import wait_for

ZFS = file_system(type="zfs", source="tank/data")


class Said:
    """What programs print, by their arguments; "" as `output_of` gives for one that is missing or fails."""

    def __init__(self, answers: Mapping[tuple[str, ...], str]) -> None:
        self._answers = answers

    def __call__(self, *command: str) -> str:
        return self._answers.get(command, "")


def _get(what: str, dataset: str) -> tuple[str, ...]:
    return ("zfs", "get", "-Hp", "-o", "value", what, dataset)


def test_a_zfs_file_system_says_its_recordsize() -> None:
    """In bytes, of the dataset that is mounted."""
    said = Said({_get("recordsize", "tank/data"): "131072"})
    (found,) = layer_blocks(facts(file_system=ZFS), ask=said)
    assert found == LayerBlock(what="recordsize", of="tank/data", block_bytes=131_072)


@pytest.mark.parametrize("answer", ["", "-", "128K", "0", "-1", "9" * 19, "cannot open 'tank/data'"])
def test_what_is_no_size_is_not_taken_for_one(answer: str) -> None:
    """A program that is missing, fails, or prints something else gives no layer."""
    assert layer_blocks(facts(file_system=ZFS), ask=Said({_get("recordsize", "tank/data"): answer})) == ()


def test_a_volume_is_found_by_its_link(tmp_path: Path) -> None:
    """The device is zd16; the volume has the name of the link that leads to it."""
    directory = tmp_path / "zvol/tank/vm"
    directory.mkdir(parents=True)
    (directory / "other").symlink_to("../../../zd0")
    (directory / "disk1").symlink_to("../../../zd16")
    said = Said({_get("volblocksize", "tank/vm/disk1"): "16384"})
    below = facts(layers=("zd16p1 (partition)", "zd16 (drive)"))
    found = layer_blocks(below, zvols=tmp_path / "zvol", ask=said)
    assert found == (LayerBlock(what="volblocksize", of="tank/vm/disk1", block_bytes=16_384),)
    assert layer_blocks(below, zvols=tmp_path / "nothing", ask=said) == ()


def _nbd(tmp_path: Path, pid: str) -> tuple[Facts, Path]:
    """A target on nbd0, whose server is the process `pid`."""
    block = tmp_path / "sys/class/block/nbd0"
    block.mkdir(parents=True)
    (block / "pid").write_text(f"{pid}\n")
    return facts(layers=("nbd0 (drive)",)), tmp_path / "sys"


@pytest.mark.skipif(find_tool("qemu-nbd") is None, reason="no qemu-utils are installed")
def test_an_image_behind_a_network_block_device_says_its_clusters(tmp_path: Path) -> None:
    """The real server has the image open; its arguments and its working directory do not say where it is."""
    make = ("qemu-img", "create", "-q", "-f", "qcow2", "-o", "cluster_size=256k", "disk.qcow2", "8M")
    subprocess.run(make, cwd=tmp_path, check=True)
    socket = tmp_path / "nbd.sock"
    serve = ("qemu-nbd", f"--socket={socket}", "-f", "qcow2", "disk.qcow2")
    with subprocess.Popen(serve, cwd=tmp_path) as server:
        try:
            target, sys = _nbd(tmp_path, str(server.pid))
            wait_for(lambda: bool(layer_blocks(target, sys=sys)))  # it may listen before it opens the image
            (found,) = layer_blocks(target, sys=sys)
        finally:
            server.kill()  # it ignores SIGTERM until it serves
    assert found == LayerBlock(what="cluster_size", of=str(tmp_path / "disk.qcow2"), block_bytes=256 << 10)


@pytest.mark.parametrize("pid", ["", "none", "0", "999999999"])
def test_a_server_that_is_gone_says_nothing(tmp_path: Path, pid: str) -> None:
    """A network block device whose server is gone or never existed has no known blocks."""
    target, sys = _nbd(tmp_path, pid)
    assert layer_blocks(target, sys=sys) == ()


@pytest.mark.parametrize("printed", ["", "{", "[]", '{"cluster-size": "64"}', '{"cluster-size": 0}'])
def test_an_image_without_clusters_says_nothing(tmp_path: Path, printed: str) -> None:
    """A raw image has none; what is not JSON is nothing."""
    image = tmp_path / "disk.raw"
    image.touch()
    descriptors = tmp_path / "proc/77/fd"
    descriptors.mkdir(parents=True)
    (descriptors / "3").symlink_to("socket:[1]")
    (descriptors / "11").symlink_to(image)
    target, sys = _nbd(tmp_path, "77")
    said = Said({("qemu-img", "info", "-U", "--output=json", str(image)): printed})
    assert layer_blocks(target, sys=sys, proc=tmp_path / "proc", ask=said) == ()
