"""The system of the live image: Debian packages and this tool's, as one compressed file.

mmdebstrap makes it, with the package sources of this machine. What would touch a drive by itself is left out
(md, LVM, multipath) or masked (`files/customise`).
"""

from __future__ import annotations

import os
import re
import shlex
import tarfile
from dataclasses import dataclass
from pathlib import Path

from release.deb import Debian
from release.sources import Sources

FILES = Path("release/live/files")  # in the sources
SOURCES_VARIABLE = "DURABILITY_LIVE_SOURCES"  # a file with package sources, in the place of this machine's
PACKAGES_VARIABLE = "DURABILITY_LIVE_PACKAGES"  # more packages, such as firmware of network cards
_SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
PACKAGES = (
    "linux-image-amd64",
    *("systemd", "systemd-sysv", "systemd-resolved", "udev", "dbus", "kmod", "iproute2", "python3"),
    *("smartmontools", "nvme-cli", "e2fsprogs", "xfsprogs", "btrfs-progs", "dosfstools"),
    *("mtools", "pciutils", "ethtool", "iputils-ping", "busybox-static"),
)
# Drivers of what no test of a drive needs, below /lib/modules/VERSION/kernel.
_DRIVERS_LEFT_OUT = (
    "sound",
    *("net/bluetooth", "net/mac80211", "net/wireless", "net/nfc", "net/can", "net/ax25", "net/netrom"),
    *("fs/ceph", "fs/gfs2", "fs/ocfs2", "fs/smb", "fs/nfs", "fs/nfsd", "fs/afs"),
    *(f"drivers/{name}" for name in ("gpu", "media", "staging", "iio", "comedi", "isdn", "atm", "bluetooth")),
    *(f"drivers/{name}" for name in ("infiniband", "mtd", "video/fbdev", "net/wireless", "net/can")),
)
_DRIVERS_KEPT = ("drivers/mtd/mtd.ko*",)  # of these directories: network cards of Solarflare need it
_MUST_LOAD = re.compile(r"drivers/(?:net|scsi|ata|nvme|message|block)/")
# Drivers that must be there, by the kernel's names. All are modules in Debian 12, none is built in.
DRIVERS = (
    *("nvme", "vmd", "ahci", "ata_piix", "sata_mv", "sata_sil24", "usb_storage", "uas", "xhci_pci"),
    *("sd_mod", "sg", "ses", "megaraid_sas", "mpt3sas", "mpi3mr", "mptsas", "smartpqi", "hpsa", "aacraid"),
    *("arcmsr", "3w_9xxx", "3w_sas", "pm80xx", "mvsas", "isci"),
    *("virtio_pci", "virtio_blk", "virtio_scsi", "virtio_net"),
    *("vmw_pvscsi", "vmxnet3", "hv_storvsc", "hv_netvsc"),
    *("e1000", "e1000e", "igb", "igc", "ixgbe", "i40e", "iavf", "ice", "tg3", "bnx2", "bnx2x", "bnxt_en"),
    *("r8169", "mlx4_en", "mlx5_core", "cxgb4", "qede", "sfc", "be2net", "enic", "ena", "atlantic"),
    *("r8152", "ax88179_178a", "asix", "cdc_ether", "cdc_ncm"),
)
_NEED_NOT_LOAD = re.compile(r"drivers/net/hamradio/|drivers/nvme/(?:host|target)/nvmet?-rdma\.ko")
_DOCUMENTS_LEFT_OUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*")
_COPYRIGHTS = "/usr/share/doc/*/copyright"
# The kernel's installation would make a memory file system of Debian's, which the image does not use.
_NO_INITRD = "INITRD=No"


@dataclass(frozen=True, slots=True)
class System:
    """`compressed`: the system; `early`: what comes before it (kernel, busybox, modules)."""

    compressed: Path
    early: Path


def make(sources: Sources, debian: Debian, package: Path, directory: Path) -> System:
    """Make the system with the Debian package `package` of this tool, in the new `directory`. Raises
    CalledProcessError, and ValueError if a driver, or a module that one needs, is missing."""
    directory.mkdir()
    made = System(directory / "system.squashfs", directory / "early")
    archive = directory / "system.tar"
    files = added(sources, directory / "added.tar")
    wanted = (*PACKAGES, *os.environ.get(PACKAGES_VARIABLE, "").split())
    sources.output(
        *("env", _NO_INITRD, "mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(wanted)}"),
        *(f"--dpkgopt={option}" for option in dpkg_options()),
        f"--customize-hook=tar-in {_quoted(files)} /",
        f"--customize-hook=upload {_quoted(package.resolve())} /durability.deb",
        f"--customize-hook=upload {_quoted(sources.directory / FILES / 'customise')} /customise",
        '--customize-hook=chroot "$1" sh /customise',
        f"--customize-hook=copy-out /early {_quoted(directory)}",
        '--customize-hook=chroot "$1" rm -r /customise /early',
        *(debian.name, str(archive), *_own_sources(debian)),
    )
    require_modules((made.early / "needs").read_text("utf-8"))
    # Of a few per cent of the size this takes a fraction of the time that the default takes.
    sources.output("sh", "-c", _compress(archive, made.compressed))
    archive.unlink()
    return made


def added(sources: Sources, to: Path) -> Path:
    """What is copied over the system, as an archive in the file `to`. All is root's and readable, whoever
    builds: the archive also has /etc itself."""

    def of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() else 0o644
        member.mtime = sources.committed_at_s
        return member

    with tarfile.open(to, "w") as archive:
        archive.add(sources.directory / FILES / "system/etc", "etc", filter=of_root)
    return to


def dpkg_options() -> tuple[str, ...]:
    """Which files of packages are installed. The last option that fits a file decides."""
    kernel = "/lib/modules/*/kernel"
    left_out = (*_DOCUMENTS_LEFT_OUT, *(f"{kernel}/{path}/*" for path in _DRIVERS_LEFT_OUT))
    kept = (_COPYRIGHTS, *(f"{kernel}/{path}" for path in _DRIVERS_KEPT))
    return (*(f"path-exclude={path}" for path in left_out), *(f"path-include={path}" for path in kept))


def require_modules(needs: str) -> None:
    """Raises ValueError if one of `DRIVERS` is missing, or if a driver of drives or of network cards would
    not load for lack of a module. `needs`: the lines `filename:` and `depends:` that modinfo prints of all
    modules in the system."""
    rows = re.findall(r"^filename: *.*/kernel/(.*)\ndepends: *(.*)$", needs, re.MULTILINE)
    modules = {_module(path): (path, [*filter(None, depends.split(","))]) for path, depends in rows}

    def missing(name: str) -> set[str]:
        """What the module `name` needs and is not there, itself included."""
        if name not in modules:
            return {name}
        return set().union(*(missing(_module(one)) for one in modules[name][1]))

    if absent := sorted(set(DRIVERS) - set(modules)):
        raise ValueError(
            f"the live image lacks the drivers {', '.join(absent)}. Take what excludes them out of"
            " _DRIVERS_LEFT_OUT; if this kernel has them built in or no longer, out of DRIVERS"
        )
    lacking = {path: lacks for name, (path, _) in modules.items() if (lacks := missing(name))}
    texts = [
        f"{path} needs {', '.join(sorted(lacks))}"
        for path, lacks in sorted(lacking.items())
        if (_MUST_LOAD.match(path) or _module(path) in DRIVERS) and not _NEED_NOT_LOAD.match(path)
    ]
    if texts:
        raise ValueError(
            f"drivers of the live image would not load: {'; '.join(texts)}. Add what they"
            " need to _DRIVERS_KEPT"
        )


def _module(path: str) -> str:
    """The kernel's name of a module."""
    return path.rpartition("/")[2].partition(".")[0].replace("-", "_")


def _own_sources(debian: Debian) -> tuple[str, ...]:
    """The file with this machine's package sources, if of that Debian; else mmdebstrap knows some."""
    if given := os.environ.get(SOURCES_VARIABLE):
        return (given,)
    for path in map(Path, _SOURCES):
        if path.is_file() and debian.name in path.read_text("utf-8", "replace"):
            return (str(path),)
    return ()


def _compress(archive: Path, to: Path) -> str:
    options = (
        "-quiet",
        "-no-progress",
        "-noappend",
        "-comp",
        "zstd",
        "-Xcompression-level",
        "9",
        "-b",
        "256K",
    )
    words = shlex.join(("mksquashfs", "-", str(to), "-tar", *options))
    return f"{words} <{_quoted(archive)}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
