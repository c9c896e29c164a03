"""The ISO: kernel and memory file system behind GRUB, for BIOS and UEFI, from a disc or a stick.

A stick made from it has one small partition that any system can write to, labelled DURABILITY: there lies the
file with which the machine joins.

GRUB is the one of the machine that builds, so its licence lies on the disc; all others are within the system.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from release.live.system import FILES
from release.sources import Sources

LABEL = "DURABILITY"
JOIN_FILE = "durability-join.txt"
# What would open a disk is switched off by name as well, though no program for it is installed.
OPTIONS = (
    "console=ttyS0,115200 console=tty0 systemd.show_status=0 systemd.gpt_auto=0 systemd.swap=0 fsck.mode=skip"
    " raid=noautodetect noresume"
)
# What grub-mkrescue copies to the disc.
_GRUB = ("grub-common", "grub-efi-amd64-bin", "grub-pc-bin")
# In the folder `licences` of the disc, by their names there.
LICENCES = {f"{name}.txt": Path("/usr/share/doc", name, "copyright") for name in _GRUB} | {
    "GPL-3.txt": Path("/usr/share/common-licenses/GPL-3")
}
_STICK_BYTES = 2 << 20
_MODULES = "linux normal iso9660 serial echo test configfile part_msdos part_gpt fat search all_video"


def grub_config(sources: Sources) -> str:
    """The menu."""
    text = (sources.directory / FILES / "grub.cfg").read_text("utf-8")
    return text.replace("@VERSION@", sources.version).replace("@OPTIONS@", OPTIONS)


def packages(sources: Sources) -> str:
    """The packages of GRUB with their versions, as dpkg-query lists them. Raises CalledProcessError."""
    return sources.output("dpkg-query", "--show", *_GRUB)


def make(sources: Sources, kernel: Path, initrd: Path, to: Path) -> Path:
    """Write the ISO to the file `to`, by way of a directory beside it. Raises CalledProcessError."""
    root = to.with_suffix(".root")
    (root / "boot/grub").mkdir(parents=True)
    (root / "live").mkdir()
    (root / "boot/grub/grub.cfg").write_text(grub_config(sources), "utf-8")
    (root / "live/vmlinuz").hardlink_to(kernel)
    (root / "live/initrd").hardlink_to(initrd)
    (root / "licences").mkdir()
    for name, file in LICENCES.items():
        shutil.copy(file, root / "licences" / name)
    stick = _stick(sources, to.with_suffix(".fat"))
    sources.output(
        *("grub-mkrescue", "--quiet", f"--output={to}", "--locales=", "--fonts=", "--themes="),
        *("--compress=xz", f"--install-modules={_MODULES}", root, "--"),
        *("-volid", "DURABILITYLIVE", "-append_partition", "3", "0x0c", stick),
    )
    shutil.rmtree(root)
    stick.unlink()
    return to


def _stick(sources: Sources, to: Path) -> Path:
    """A file system for the partition, with the file that says how to join, all of it comments."""
    with to.open("wb") as file:
        file.truncate(_STICK_BYTES)
    # A number of its own would be the time: then no two builds were the same.
    sources.output(
        "mformat",
        "-i",
        to,
        "-v",
        LABEL,
        "-N",
        "44524249",
        "-T",
        str(_STICK_BYTES // 512),
        "-h",
        "64",
        "-s",
        "32",
        "::",
    )
    sources.output("mcopy", "-i", to, "-m", sources.directory / FILES / JOIN_FILE, f"::{JOIN_FILE}")
    return to
