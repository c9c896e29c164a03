"""The sources of a release: what is committed, nothing else, with the files that packages install beside it.

Whatever lies in the working tree and is not committed is left out, so a release can be made again from its
commit alone. A commit without the tag of its version is no release: its sources get a version that is below
it, with the time of the commit.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LAYERS = (".", "cli", "server", "client", "lab")
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_VERSION_FILE = Path("durability/__init__.py")
# `make release` runs these as they are in the working tree, whatever the commit has.
_RUN_AS_THEY_ARE = (
    *("release/", "lab/", "requirements/", "client/durability_client/agent/service.py"),
    *("Makefile", "pyproject.toml", "setup.cfg"),
)


@dataclass(frozen=True)
class Sources:
    """The tree of one commit in `directory`, and the time of that commit in seconds since the epoch."""

    directory: Path
    committed_at_s: int

    @cached_property
    def version(self) -> str:
        """The version that the sources say they are."""
        return self.output(sys.executable, "-c", "import durability; print(durability.__version__)").strip()

    @property
    def share(self) -> Path:
        """Manual pages and completions, as they lie below `share` of a prefix."""
        return self.directory / "share"

    @property
    def environment(self) -> Mapping[str, str]:
        """For programs that build: these sources come first, and files are dated by the commit."""
        path = os.pathsep.join(str(self.directory / layer) for layer in _LAYERS)
        return os.environ | {"SOURCE_DATE_EPOCH": str(self.committed_at_s), "PYTHONPATH": path}

    def output(self, *command: str | Path) -> str:
        """What a program prints that runs in the sources. Raises CalledProcessError, which has it too."""
        return subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            umask=0o022,  # the rights of files are the same whoever builds
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ).stdout


def check_out(directory: Path, tree: str = "HEAD", *, before_its_tag: bool = False) -> Sources:
    """The sources of the commit that is checked out, or of another commit or `tree` of files, in a new
    `directory`. They keep the version of the release if the commit has its tag, or `before_its_tag`."""
    archive, commit = directory.with_suffix(".tar"), _commit(tree)
    _git("-c", "tar.umask=0022", "archive", f"--output={archive}", commit or tree)
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")
    archive.unlink()
    sources = Sources(directory, int(_git("log", "-1", "--format=%ct", commit or "HEAD")))
    if not before_its_tag:
        _set_version(sources, _tags(commit))
    sources.output(sys.executable, "-m", "release.share", "share", str(sources.committed_at_s))
    return sources


def _commit(tree: str) -> str:
    """The commit that `tree` names; empty if it names a tree of files that was never committed."""
    command = ["git", "rev-parse", "--verify", "--quiet", f"{tree}^{{commit}}"]
    return subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True).stdout.strip()


def _tags(commit: str) -> list[str]:
    return _git("tag", "--points-at", commit).split() if commit else []


def _set_version(sources: Sources, tags: Collection[str]) -> None:
    """Write the version of a build between releases into the sources, unless the release is tagged."""
    file = sources.directory / _VERSION_FILE
    text = file.read_text("utf-8")
    release = _VERSION.findall(text)[0]
    if f"v{release}" not in tags:
        version = f"{release}.dev{sources.committed_at_s}"
        file.write_text(_VERSION.sub(f'__version__ = "{version}"', text), "utf-8")


def uncommitted() -> list[str]:
    """Files of the working tree that differ from the commit, and so are not in the release."""
    lines = _git("status", "--porcelain", "--no-renames", "--untracked-files=all").splitlines()
    return [line[3:].strip('"') for line in lines]


def run_as_they_are(files: Iterable[str]) -> list[str]:
    """Those of the uncommitted `files` that make a release, or set up what makes it."""
    return [file for file in files if file.startswith(_RUN_AS_THEY_ARE)]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
