"""`make release`: makes and checks every artefact, and lists them with size, time and checksum.

All is built from the commit that is checked out and from the lock files, in a temporary directory. It refuses
to run code that is not committed. `dist` is replaced only once everything is made and has passed its checks.
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
        lists = [file.read_text("utf-8") for file in self.out.glob("*.packages.txt")]
        listed = [line for text in lists for line in text.splitlines()]
        self._timed(lambda: (bill_of_materials.make(self.sources, bundled, listed, self.out),))
        write_sums(self.out)

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


def write_sums(directory: Path) -> None:
    """List the checksums of all files of the directory in one of them."""
    files = sorted(file for file in directory.iterdir() if file.is_file() and file.name != SUMS)
    (directory / SUMS).write_text("".join(f"{_sha256(file)}  {file.name}\n" for file in files), "utf-8")


def publish(made: Path, dist: Path, *, is_whole: bool) -> list[str]:
    """Put the directory `made` in the place of `dist`. Unless it `is_whole`, files of `dist` with other names
    stay; returns these. The new directory is complete before it gets its name."""
    beside = dist.parent / "build"
    beside.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dist-", dir=beside) as work:
        new, old = Path(work, "new"), Path(work, "old")
        shutil.copytree(made, new)
        stay = sorted(
            file
            for file in (() if is_whole or not dist.is_dir() else dist.iterdir())
            if file.is_file() and not (new / file.name).exists()
        )
        for file in stay:
            shutil.copy2(file, new)
        write_sums(new)
        try:
            if dist.exists():
                dist.rename(old)
            new.rename(dist)
        except BaseException:  # also Ctrl-C: what is left in `work` will be removed
            if old.exists():
                old.rename(dist)
            raise
    return [file.name for file in stay]


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def table(made: Iterable[Made]) -> str:
    """A line for each artefact; files of one step share its time."""
    listed = list(made)
    width = max((len(file.name) for one in listed for file in one.files), default=0)
    lines = [f"{'artefact':{width}} {'size':>9} {'built in':>9}  SHA-256"]
    for one in listed:
        for index, file in enumerate(one.files):
            seconds = f"{one.seconds:.1f} s" if index == 0 else '"'
            lines.append(
                f"{file.name:{width}} {file.stat().st_size / 1e6:6.2f} MB {seconds:>9}  {_sha256(file)}"
            )
    return "\n".join(lines)


def main() -> None:
    """`python -m release.make_release [KIND]…`; without kinds, everything."""
    kinds = sys.argv[1:] or KINDS
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        sys.exit(f"make release: no such artefact: {', '.join(unknown)}; R takes some of: {' '.join(KINDS)}")
    left_out = sources.uncommitted()
    executed = sources.run_as_they_are(left_out)
    if executed:
        sys.exit(
            f"make release: {', '.join(executed)}: not committed, but `make release` would run or read this"
            " as it is. So nothing could be built again from the commit. Commit it, or put it aside with `git"
            " stash --include-untracked`; then type `make release` again."
        )
    if left_out:
        print(f"Not committed, so not in the release: {len(left_out)} files.", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="durability-release-") as directory:
        release = Release(Path(directory))
        try:
            release.make(kinds)
        except subprocess.CalledProcessError as error:
            sys.exit(f"make release: {error}\n{error.stdout or ''}")
        # A program that makes or checks an artefact is missing, or an artefact is not as it must be.
        except (FileNotFoundError, ValueError) as error:
            sys.exit(f"make release: {error}")
        print(table(release.made))
        stayed = publish(release.out, DIST, is_whole=not sys.argv[1:])
        version = release.sources.version
    print(f"All of it is in {DIST.name}/, with {SUMS}.")
    if stayed:
        print(f"From earlier builds there are also: {', '.join(stayed)}.")
    if ".dev" in version:
        print(f"This commit has no tag of its release: the artefacts have the version {version}.")


if __name__ == "__main__":
    main()
