"""The Debian packages, one for each release of Debian, with the environment for its Python bundled.

Debian's own packages will not do: bookworm's typer and pydantic are too old. What is bundled is laid out as a
virtual environment in /usr/lib/durability, around the Python of the system.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from durability_client.agent import service
from release import bundle, gzipped
from release.sources import Sources

FILES = Path("release/debian")  # in the sources
_MAINTAINER = "durability maintainers <maintainers@durability.invalid>"
_SCRIPTS = ("postinst", "prerm", "postrm")
_CONFFILE = "etc/default/durability-server"
# Prints the unit that `durability agent install` writes, for the command of this package.
_AGENT_UNIT = """\
from durability_client.agent import service

origin = "From the package durability; start it once the machine has joined."
print(service.unit([], program=("/usr/bin/durability",), origin=origin), end="")
"""


@dataclass(frozen=True, slots=True)
class Debian:
    """A release of Debian, and its Python."""

    name: str
    python: str

    @property
    def next_python(self) -> str:
        """The first version that the bundle is not for."""
        major, minor = self.python.split(".")
        return f"{major}.{int(minor) + 1}"


RELEASES = (Debian("bookworm", "3.11"), Debian("trixie", "3.13"))


def make(sources: Sources, debian: Debian, laid_out: Path, out: Path) -> Path:
    """Build the package for `debian` around the packages in `laid_out`, and have lintian check it."""
    version = f"{upstream_version(sources.version)}-1~{debian.name}1"
    root = laid_out.parent / f"{debian.name}-root"
    _lay_out(sources, debian, laid_out, root)
    _write(root / "usr/share/doc/durability/changelog.Debian.gz", _changelog(sources, version))
    control = root / "DEBIAN"
    _write(control / "control", _control(debian, version, installed_kb(root)).encode())
    _write(control / "conffiles", f"/{_CONFFILE}\n".encode())
    _write(control / "md5sums", _md5sums(root))
    for name in _SCRIPTS:
        _write(control / name, script(sources.directory, debian, name).encode(), mode=0o755)
    for path in (root, *root.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    package = out / f"durability_{version}_amd64.deb"
    # The second level of xz takes a third of the time of the sixth, for a tenth more bytes.
    sources.output("dpkg-deb", "--root-owner-group", "-Zxz", "-z2", "--build", root, package)
    shutil.rmtree(root)
    check(package)
    return package


def upstream_version(version: str) -> str:
    """In Debian's terms: what is built between releases sorts below the release that follows."""
    return version.replace(".dev", "~dev")


def script(directory: Path, debian: Debian, name: str) -> str:
    """The text of one of the package's scripts, from the sources in `directory`."""
    own_agent = (directory / FILES / "own-agent").read_text("utf-8").strip()
    text = (directory / FILES / name).read_text("utf-8")
    return text.replace("@PYTHON@", f"python{debian.python}").replace("@OWN_AGENT@", own_agent)


def _lay_out(sources: Sources, debian: Debian, laid_out: Path, root: Path) -> None:
    """All files that the package installs."""
    bundle.install(sources, laid_out, root, python=debian.python)
    units = root / "usr/lib/systemd/system"
    _copy(sources, "durability-server.service", units / "durability-server.service")
    _write(units / service.NAME, sources.output(sys.executable, "-c", _AGENT_UNIT).encode())
    _copy(sources, "durability-server.default", root / _CONFFILE)
    _copy(sources, "durability.sysusers", root / "usr/lib/sysusers.d/durability.conf")
    _copy(sources, "lintian-overrides", root / "usr/share/lintian/overrides/durability")
    _write(
        root / "usr/share/doc/durability/copyright", _copyright(sources, bundle.components(laid_out)).encode()
    )
    for file in sources.share.rglob("*"):
        if file.is_file():
            place = root / "usr/share" / file.relative_to(sources.share)
            if "man" in file.relative_to(sources.share).parts:
                _write(place.with_name(f"{file.name}.gz"), gzipped.compressed(file.read_bytes()))
            else:
                # Debian's zsh looks for what packages bring in a directory of its own.
                place = Path(str(place).replace("zsh/site-functions", "zsh/vendor-completions"))
                _write(place, file.read_bytes())


def installed_kb(root: Path) -> int:
    """What Debian calls Installed-Size: a file or link counts in whole KiB, anything else 1. The sizes of
    directories depend on the file system of whoever builds."""
    found = (path.lstat() for path in (root, *root.rglob("*")))
    return sum(1 if stat.S_ISDIR(one.st_mode) else -(-one.st_size // 1024) for one in found)


def _control(debian: Debian, version: str, size_kb: int) -> str:
    pythons = f"python3 (>= {debian.python}~), python3 (<< {debian.next_python}~)"
    depends = f"libc6 (>= 2.28), libgcc-s1, libstdc++6, {pythons}, systemd"
    return textwrap.dedent(
        f"""\
        Package: durability
        Version: {version}
        Architecture: amd64
        Maintainer: {_MAINTAINER}
        Installed-Size: {size_kb}
        Depends: {depends}
        Recommends: nvme-cli, smartmontools
        Suggests: btrfs-progs, fence-agents, fio, ipmitool, xfsprogs
        Section: admin
        Priority: optional
        Description: test whether drives keep acknowledged writes through power loss
         A client writes to a drive and reports each acknowledgement to a server on
         a second machine. After a power cut it reads the drive back and says what
         was lost. Campaigns cut the power automatically, many times.
         .
         This package bundles the Python packages that durability was tested with.
        """
    )


def _changelog(sources: Sources, version: str) -> bytes:
    date = formatdate(sources.committed_at_s)
    text = f"durability ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md of the sources.\n\n"
    return gzipped.compressed(f"{text} -- {_MAINTAINER}  {date}\n".encode())


def _copyright(sources: Sources, components: Sequence[bundle.Component]) -> str:
    lines = [f"  {one.name} {one.version}: {one.licence}" for one in components if one.name != "durability"]
    text = (sources.directory / FILES / "copyright").read_text("utf-8")
    licence = (sources.directory / "LICENSE").read_text("utf-8")
    text = text.replace("@COMPONENTS@", "\n".join(lines)).replace("@LICENCE@", licence)
    parts = (sources.directory / bundle.LICENCES / "README.txt").read_text("utf-8")
    return text.replace("@PARTS@", parts.strip())


def _md5sums(root: Path) -> bytes:
    files = sorted(file for file in root.rglob("*") if file.is_file() and not file.is_symlink())
    lines = [
        f"{hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()}  {file.relative_to(root)}\n"
        for file in files
        if "DEBIAN" not in file.parts and file.relative_to(root) != Path(_CONFFILE)
    ]
    return "".join(lines).encode()


def check(package: Path) -> None:
    """Raises CalledProcessError if lintian finds an error, and FileNotFoundError if it is not installed and
    DURABILITY_LAB_REQUIRED=1 says that it must be."""
    if shutil.which("lintian") is None:
        if os.environ.get("DURABILITY_LAB_REQUIRED") == "1":
            raise FileNotFoundError(
                f"lintian is not installed, so nothing checks {package.name}: make packages"
            )
        print(f"lintian is not installed: {package.name} was not checked", file=sys.stderr)
        return
    command = ["lintian", "--fail-on", "error", "--tag-display-limit", "0", str(package)]
    if os.geteuid() == 0:
        command.insert(1, "--allow-root")
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _copy(sources: Sources, name: str, place: Path) -> None:
    _write(place, (sources.directory / FILES / name).read_bytes())


def _write(place: Path, content: bytes, *, mode: int = 0o644) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    place.chmod(mode)
