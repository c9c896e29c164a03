"""What a guest starts from and lives in, before it is started: kernel, first file system, network."""

from __future__ import annotations

import lzma
import os
import random
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from durability.errors import SetupError
from durability_lab.vm_rig import guest_kernel, guest_machine, initramfs
from durability_lab.vm_rig.guest_kernel import GuestKernel
from durability_lab.vm_rig.initramfs import ArchiveEntry
from durability_lab.vm_rig.network import SERVER, TAP, GuestNetwork

pytestmark = pytest.mark.usefixtures("guest_machine")


def test_archive_is_what_cpio_unpacks(tmp_path: Path) -> None:
    """Names and contents of any length come back, with directories, from two archives one after another."""
    seed = random.SystemRandom().getrandbits(32)
    draw = random.Random(seed)
    files = {f"d/{'n' * length}": draw.randbytes(draw.randrange(9)) for length in range(1, 9)}
    first = [ArchiveEntry(name="d", mode=stat.S_IFDIR | 0o755)]
    first += [ArchiveEntry(name=name, mode=stat.S_IFREG | 0o640, data=data) for name, data in files.items()]
    for entries in (first, [ArchiveEntry(name="late", mode=stat.S_IFREG | 0o600, data=b"x")]):
        command = ("busybox", "cpio", "-i")
        subprocess.run(command, input=initramfs.archive(entries), cwd=tmp_path, check=True)
    found = {
        str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert found == {**files, "late": b"x"}, seed
    assert (tmp_path / "d/n").stat().st_mode == stat.S_IFREG | 0o640


def test_settings_reach_the_guests_shell_unchanged(tmp_path: Path) -> None:
    """Paths with spaces, quotes, dollars and line ends are what they were."""
    value = "a b'c\"d$e`f\\g\nh*"
    subprocess.run(
        ("busybox", "cpio", "-i"), input=initramfs.settings({"python": value}), cwd=tmp_path, check=True
    )
    command = ("sh", "-c", '. ./settings; printf %s "$python"')
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == value


def test_kernel_has_what_the_guest_needs(tmp_path: Path) -> None:
    """Each wanted module is in the kernel or among the files, dependencies before what depends on them."""
    kernel = guest_kernel.find()
    names = [path.name.partition(".")[0] for path in kernel.modules]
    assert names.index("virtio") < names.index("virtio_net")
    assert names.index("jbd2") < names.index("ext4")
    assert guest_machine.make_image(tmp_path).kernel.stat().st_size > 1 << 20


def test_newest_fetched_kernel_that_lacks_nothing_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest fetched kernel that has all needed modules is used. Packed modules are unpacked for the
    guest."""
    kernel = guest_kernel.find()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    nothing = tmp_path / "nothing"
    with pytest.raises(SetupError, match="lab/guest-kernel"):
        guest_kernel.find(nothing)
    _fetch(kernel, "6.1.0-9", kernel.modules)
    _fetch(kernel, "6.1.0-11", kernel.modules[:-1])
    assert guest_kernel.find(nothing).version == "6.1.0-9"
    _fetch(kernel, "6.1.0-10", kernel.modules, packed=True)
    found = guest_kernel.find(nothing)
    assert found.version == "6.1.0-10"
    assert {path.suffix for path in found.modules} == {".xz"}
    assert _unpacked(found) == _unpacked(kernel)
    assert len(initramfs.base(found)) > sum(map(len, _unpacked(kernel).values()))


def _unpacked(kernel: GuestKernel) -> dict[str, bytes]:
    return {path.name.partition(".")[0]: guest_kernel.read_module(path) for path in kernel.modules}


def _fetch(kernel: GuestKernel, version: str, modules: Sequence[Path], *, packed: bool = False) -> None:
    """Put `kernel` into the cache with some of its modules, as `version`."""
    root = guest_kernel.cache() / version
    directory = root / "lib/modules" / version
    (root / "boot").mkdir(parents=True)
    (root / "boot" / f"vmlinuz-{version}").write_bytes(b"a kernel")
    for module in modules:
        to = directory / module.relative_to(kernel.root / "lib/modules" / kernel.version)
        to.parent.mkdir(parents=True, exist_ok=True)
        data = guest_kernel.read_module(module)
        name = f"{module.name.partition('.')[0]}.ko"
        if packed:
            to.with_name(f"{name}.xz").write_bytes(lzma.compress(data, check=lzma.CHECK_CRC32, preset=0))
        else:
            to.with_name(name).write_bytes(data)
    for listing in (kernel.root / "lib/modules" / kernel.version).glob("modules.builtin*"):
        shutil.copy(listing, directory)
    subprocess.run(("depmod", "--basedir", str(root), version), check=True, capture_output=True)


def test_network_has_nothing_but_the_guests_card() -> None:
    """The server's socket is in the network, this process is not, and nothing of it stays."""
    outside = socket.if_nameindex()
    with GuestNetwork() as network:
        listener = network.listener()
        assert listener.getsockname()[0] == SERVER
        inside = {name for _, name in network.call(socket.if_nameindex)}
        assert {TAP, "lo"} <= inside
        assert socket.if_nameindex() == outside
        listener.close()
    with GuestNetwork() as again:
        again.listener().close()


@pytest.mark.parametrize("hidden", ["prefix", "module"])
def test_python_that_the_guest_does_not_see_is_named(tmp_path: Path, hidden: str) -> None:
    """A Python environment, or a part of it, in /dev/shm: the guest has a /dev of its own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        place = Path(directory, "place")
        python, path = sys.executable, str(tmp_path)
        if hidden == "prefix":
            place.symlink_to(Path(python).parents[1])
            python = str(place / Path(python).relative_to(Path(python).parents[1]))
        else:
            place.mkdir()
            (tmp_path / "link").symlink_to(place)
            path = str(tmp_path / "link")
        done = subprocess.run(
            (python, "-c", "from durability_lab.vm_rig import guest_machine; print(guest_machine.missing())"),
            env={**os.environ, "PYTHONPATH": os.pathsep.join((path, *sys.path))},
            capture_output=True,
            text=True,
            check=True,
        )
    assert re.fullmatch(r"the guest does not see \S+, because it has its own /dev: install .*\n", done.stdout)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each program that the lab starts itself is missed, with the package to install."""
    for name in ("ip", "qemu-system-x86_64", "nbdkit", "mkfs.ext4", "modprobe", "busybox"):
        monkeypatch.setenv("PATH", str(tmp_path))
        problem = guest_machine.missing()
        assert re.fullmatch(f"{name} not found: install [a-z0-9-]+", problem), problem
        found = shutil.which(name, path=os.defpath + ":/usr/sbin:/sbin")
        assert found is not None
        (tmp_path / name).symlink_to(found)
    assert "install busybox-static" in problem
