"""The wheel and the source package, by the locked setuptools; one commit always gives the same bytes."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

from release import gzipped
from release.sources import Sources


def make(sources: Sources, out: Path) -> tuple[Path, Path]:
    """Build both into `out`, the wheel from the source package, and check their metadata."""
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", out)
    sources.output(*build, sources.directory)
    (sdist,) = out.glob("*.tar.gz")
    (wheel,) = out.glob("*.whl")
    _normalise(sdist, dated_s=sources.committed_at_s)
    sources.output(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    return sdist, wheel


def _normalise(sdist: Path, *, dated_s: int) -> None:
    """Give its files one date, one owner and one order: setuptools takes those of this machine."""
    new = sdist.with_suffix(".new")
    with (
        tarfile.open(sdist) as old,
        new.open("wb") as file,
        gzipped.writer(file, dated_s=dated_s) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            member.mtime, member.pax_headers = dated_s, {}
            member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""
            tar.addfile(member, old.extractfile(member) if member.isfile() else None)
    new.replace(sdist)
