"""`make release`: makes and checks every artefact, and lists them with size, time and checksum.

All is built from the commit that is checked out and from the lock files, in a temporary directory. `dist` is
replaced only once everything is made and has passed its checks.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from release import bill_of_materials, bundle, container, deb, one_file, sources, wheel
from release.live import image

DIST = sources.ROOT / "dist"
KINDS = ("wheel", "onefile", "deb", "container", "live")
LIVE = deb.RELEASES[0]  # the Debian of the live image
SUMS = "SHA256SUMS"


@dataclass(frozen=True, slots=True)
class Made:
    """What one step made, and how long it took."""

    files: tuple[Path, ...]
    seconds: float


@dataclass
class Release:
    """One release in the making, in `directory`; its artefacts go to `out`."""

    directory: Path
    tree: str = "HEAD"
    made: list[Made] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.out = self.directory / "dist"
        self.out.mkdir()
        self.sources = sources.check_out(self.directory / "sources", self.tree)

    def make(self, kinds: Collection[str]) -> None:
        """Make the artefacts of these kinds, their bill of materials and their checksums."""
        if "live" in kinds:
            image.require_tools()  # before the minutes that the others take
        _, self.wheel = self._timed(lambda: wheel.make(self.sources, self.out))
        bundles = {python: self.bundle(python) for python in bundle.PYTHONS}
        if "onefile" in kinds:
            self._timed(lambda: (one_file.make(self.sources, bundles, self.out),))
        for debian in deb.RELEASES if "deb" in kinds else ():
            self._timed(partial(self._deb, debian))
        if "container" in kinds:
            self._timed(lambda: container.make(self.sources, self.bundle(container.PYTHON), self.out))
        if "live" in kinds:
            self._timed(self._live)
        bundled = [one for laid_out in bundles.values() for one in bundle.components(laid_out)]
        self._timed(lambda: (bill_of_materials.make(self.sources, bundled, self.out),))
        self._write_sums()

    def bundle(self, python: str) -> Path:
        """The environment for a version of Python, laid out once."""
        directory = self.directory / "bundles" / python
        if not directory.exists():
            directory.parent.mkdir(exist_ok=True)
            bundle.lay_out(self.sources, self.wheel, directory, python=python)
        return directory

    def _deb(self, debian: deb.Debian) -> tuple[Path, ...]:
        return (deb.make(self.sources, debian, self.bundle(debian.python), self.out),)

    def _live(self) -> tuple[Path, ...]:
        packages = sorted(self.out.glob(f"*{LIVE.name}*.deb"))
        package = (
            packages[0]
            if packages
            else deb.make(self.sources, LIVE, self.bundle(LIVE.python), self.directory)
        )
        return image.make(self.sources, LIVE, package, self.directory / "live", self.out)

    def _timed(self, step: Callable[[], tuple[Path, ...]]) -> tuple[Path, ...]:
        began = time.monotonic()
        files = step()
        self.made.append(Made(files, time.monotonic() - began))
        return files

    def _write_sums(self) -> None:
        lines = [f"{_sha256(file)}  {file.name}\n" for file in sorted(self.out.iterdir())]
        (self.out / SUMS).write_text("".join(lines), "utf-8")


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def table(made: Iterable[Made]) -> str:
    """A line for each artefact; files of one step share its time."""
    lines = [f"{'artefact':44} {'size':>9} {'built in':>9}  SHA-256"]
    for one in made:
        for index, file in enumerate(one.files):
            seconds = f"{one.seconds:.1f} s" if index == 0 else '"'
            lines.append(f"{file.name:44} {file.stat().st_size / 1e6:6.2f} MB {seconds:>9}  {_sha256(file)}")
    return "\n".join(lines)


def main() -> None:
    """`python -m release.make_release [KIND]…`; without kinds, everything."""
    kinds = sys.argv[1:] or KINDS
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        sys.exit(f"make release: no such artefact: {', '.join(unknown)}; R takes some of: {' '.join(KINDS)}")
    left_out = sources.uncommitted()
    if left_out:
        print(f"Not committed, so not in the release: {len(left_out)} files.", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="durability-release-") as directory:
        release = Release(Path(directory))
        try:
            release.make(kinds)
        except subprocess.CalledProcessError as error:
            sys.exit(f"make release: {error}\n{error.stdout or ''}")
        except FileNotFoundError as error:  # a program that makes or checks an artefact
            sys.exit(f"make release: {error}")
        print(table(release.made))
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(release.out, DIST)
    print(f"All of it is in {DIST.name}/, with {SUMS}.")


if __name__ == "__main__":
    main()
