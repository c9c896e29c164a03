"""Run `durability bench` in a virtual machine: on a host that ignores flushes, and on stacked devices.

A guest of QEMU has NVMe drives that are files here: one with `cache=unsafe`, the others with
`cache=writeback`. On these, the guest makes a partition, a linear device of dm, a mirror of md and a logical
volume of LVM, and measures each. Without KVM, the times are an emulator's; only counts and verdicts matter.

The kernel is an unpacked Debian package (`apt-get download linux-image-VERSION`, `dpkg-deb --extract`, then
`depmod --basedir ROOT VERSION`), because the lab keeps only the modules of its own guests. mdadm and lvm are
used if they are in PATH, which is the same here and in the guest.

    python benchmarks/bench_in_guest.py --kernel ROOT [--seed N]
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from drives import measured_on

from durability.bench.catalogue import (
    CONTROLS,
    HEADLINE,
    WRITE_CONTROL,
)
from durability.bench.cells import MIB
from durability.bench.plausibility import plausibility
from durability.bench.summary import disks_per_operation
from durability_lab.vm_rig import initramfs
from durability_lab.vm_rig.guest_kernel import GUEST_FILES, GuestKernel

DRIVES = 6
DRIVE_BYTES = 160 * MIB
_DEADLINE_S = 600
_END = "end"
_JOB = """
. /durability-guest/settings
export PATH="$path" LD_LIBRARY_PATH="$library_path" PYTHONPATH="$python_path" HOME=/root
stty -F /dev/ttyS1 raw
mkdir -p /run/lock /run/lvm /run/mdadm
"$python" "$script" --inside --seed "$seed" </dev/null >/dev/ttyS1
"""


def kernel_below(root: Path) -> GuestKernel:
    """The kernel that was unpacked to `root`, with the lab's modules and those of stacked devices."""
    (image,) = (root / "boot").glob("vmlinuz-*")
    version = image.name.removeprefix("vmlinuz-")
    files: dict[Path, None] = {}
    for name in ((GUEST_FILES / "modules").read_text().split(), ("dm_mod", "raid1")):
        command = ("modprobe", "--dirname", root, "--set-version", version, "--all", "--show-depends", *name)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "insmod":
                files[Path(rest.split(" ")[0])] = None
    return GuestKernel(version=version, root=root, modules=tuple(files))


def run_guest(kernel: GuestKernel, seed: int) -> int:
    """Boot the guest, print its reports, and wait for its end; returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="durability-guest-", dir="/var/tmp") as name:
        directory = Path(name)
        settings = {
            "guest_address": "192.0.2.2",
            "machine_id": uuid.uuid4().hex,
            "path": os.environ["PATH"] + ":/usr/sbin:/sbin",
            "library_path": os.environ.get("LD_LIBRARY_PATH", ""),
            "python_path": os.pathsep.join(str(Path(path).absolute()) for path in sys.path),
            "python": sys.executable,
            "script": str(Path(__file__).absolute()),
            "seed": str(seed),
        }
        job = initramfs.archive([initramfs.ArchiveEntry(name="job", mode=0o100755, data=_JOB.encode())])
        archive = initramfs.base(kernel) + job + initramfs.settings(settings)
        (directory / "initramfs").write_bytes(archive)
        bare = kernel.bare()
        image = kernel.loader
        if bare is not None:
            image = directory / "vmlinux"
            image.write_bytes(bare)
        console = directory / "console"
        command = [
            *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "Nehalem,+rdrand", "-m", "768"),
            *("-nodefaults", "-display", "none", "-no-reboot", "-kernel", str(image)),
            *("-initrd", str(directory / "initramfs")),
            *("-append", "console=ttyS0 quiet panic=-1 mitigations=off nokaslr audit=0 no_timer_check"),
            *("-serial", f"file:{console}", "-serial", "stdio"),
            *("-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"),
            *("-device", "virtio-9p-pci,fsdev=root,mount_tag=host"),
            *("-netdev", "user,id=net,restrict=on", "-device", "virtio-net-pci,netdev=net,romfile="),
        ]
        for number in range(DRIVES):
            file = directory / f"drive{number}"
            with file.open("wb") as media:
                media.truncate(DRIVE_BYTES)
            cache = "writeback" if number else "unsafe"
            command += ["-drive", f"if=none,id=d{number},file={file},format=raw,cache={cache}"]
            command += ["-device", f"nvme,drive=d{number},serial=BENCH{number}"]
        reports = _reports(command)
        if not reports or reports[-1] != _END:
            print(f"the guest ended early:\n{console.read_text(errors='replace')[-4000:]}", file=sys.stderr)
            return 1
        return 0


def _reports(command: Sequence[str]) -> list[str]:
    """The lines that the guest reports, each printed when it arrives."""
    lines = []
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        timer = threading.Timer(_DEADLINE_S, process.kill)
        timer.start()
        for line in process.stdout:
            lines.append(line.rstrip())
            if lines[-1] != _END:
                print(lines[-1], flush=True)
        timer.cancel()
    return lines


def inside(seed: int) -> None:
    """In the guest: make each device, measure it, and report the result."""
    for name, target in _targets():
        result = measured_on(target, CONTROLS, seconds=0.5, rounds=2, size_bytes=64 * MIB, seed=seed)
        disks = disks_per_operation(result.rounds_of(HEADLINE.name))
        counts = ", ".join(f"{disk.name} {_count(disk.flushes)} flushes" for disk in disks)
        direct = disks_per_operation(result.rounds_of(WRITE_CONTROL.name))
        written = ", ".join(f"{_count(disk.write_kib)} KiB" for disk in direct)
        print(f"{name:28} {counts}; a direct write of 4 KiB: {written}; {plausibility(result).headline}")
        print(f"{'':28} {' > '.join(result.facts.layers)}", flush=True)


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _targets() -> Iterator[tuple[str, Path]]:
    drives = sorted(Path("/dev").glob("nvme*n1"))
    assert len(drives) == DRIVES, drives
    sectors = DRIVE_BYTES // 512 - 2048
    yield "QEMU, cache=unsafe", drives[0]
    yield "QEMU, cache=writeback", drives[1]
    _run("addpart", str(drives[1]), "1", "2048", str(sectors))
    yield "ext4 on a partition", _mounted(Path(f"{drives[1]}p1"))
    _run("dmsetup", "create", "line", given=f"0 {sectors} linear {drives[2]} 2048\n")
    _run("dmsetup", "mknodes")
    yield "dm-linear", Path("/dev/mapper/line")
    if shutil.which("mdadm"):
        mirror = ("--level=1", "--raid-devices=2", "--assume-clean", "--metadata=1.2", "--bitmap=none")
        _run("mdadm", "--create", "/dev/md0", "--run", *mirror, str(drives[3]), str(drives[4]))
        yield "md, mirror of two", Path("/dev/md0")
        yield "ext4 on the same", _mounted(Path("/dev/md0"))
    if shutil.which("lvm"):
        _run("lvm", "vgcreate", "--devicesfile", "", "group", str(drives[5]))
        # The volume has no device node while it is created, so it is not cleared; the drive is empty anyway.
        keep = ("--zero", "n", "--wipesignatures", "n")
        _run("lvm", "lvcreate", "--yes", *keep, "--size", "120m", "--name", "volume", "group")
        _run("dmsetup", "mknodes")
        yield "ext4 on LVM", _mounted(Path("/dev/mapper/group-volume"))


def _mounted(device: Path) -> Path:
    directory = Path("/run") / f"on-{device.name}"
    directory.mkdir()
    _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(device))
    _run("mount", str(device), str(directory))
    return directory


def _run(*command: str, given: str = "") -> None:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the guest, or with --inside run as the program in it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", type=Path, help="what a kernel's package was unpacked into")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside:
        inside(options.seed)
        print(_END)
        return 0
    if options.kernel is None:
        parser.error("--kernel ROOT is needed")
    print(f"seed {options.seed}", flush=True)
    return run_guest(kernel_below(options.kernel), options.seed)


if __name__ == "__main__":
    sys.exit(main())
