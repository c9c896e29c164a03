"""The one file: a zip archive that Python runs, with the packages for each version of Python.

A file that is the same for several versions is in it once. PostgreSQL's client library is left out: who runs
servers on PostgreSQL can install packages.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from release import one_file_start
from release.sources import Sources

_LEFT_OUT = ("psycopg",)
_START = "release/one_file_start.py"  # in the sources
# Read by any Python there is, also by those that are too old for the rest.
_MAIN = """\
import os
import sys

if sys.version_info < (3, 11):
    for minor in range({newest}, 10, -1):
        try:
            os.execvp("python3.%d" % minor, ["python3.%d" % minor] + sys.argv)
        except OSError:
            pass
    sys.exit("durability: this file needs Python 3.11 or later, and %s is Python %d.%d"
             % (sys.executable, sys.version_info[0], sys.version_info[1]))

from pathlib import Path

import one_file_start

one_file_start.main(Path(sys.path[0]).absolute(), "{build}", {versions})
"""


def make(sources: Sources, bundles: Mapping[str, Path], out: Path) -> Path:
    """Pack the `bundles`, each the packages for a version of Python, and try the file with this Python."""
    trees = _trees(bundles)
    newest = max(int(version.partition(".")[2]) for version in bundles)
    build = hashlib.sha256()
    for name, file in sorted(trees.items()):
        build.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    path = out / f"durability-{sources.version}-linux-x86_64.pyz"
    start = (sources.directory / _START).read_bytes()
    main = _MAIN.format(newest=newest, build=build.hexdigest()[:16], versions=tuple(bundles)).encode()
    dated = time.gmtime(sources.committed_at_s)[:6]
    with path.open("wb") as packed:
        packed.write(b"#!/usr/bin/env python3\n")
        with ZipFile(packed, "w") as archive:
            _add(archive, "__main__.py", main, dated)
            _add(archive, "one_file_start.py", start, dated)
            for name, member in sorted(trees.items()):
                _add(archive, name, member.read_bytes(), dated)
    path.chmod(0o755)
    _try(path, sources.version)
    return path


def _trees(bundles: Mapping[str, Path]) -> dict[str, Path]:
    """Each file by its name in the archive, which begins with the versions that it is for."""
    versions: dict[tuple[str, bytes], list[str]] = {}
    files = {}
    for version, directory in bundles.items():
        for file in directory.rglob("*"):
            path = file.relative_to(directory)
            if file.is_file() and not path.parts[0].startswith(_LEFT_OUT):
                key = str(path), hashlib.sha256(file.read_bytes()).digest()
                versions.setdefault(key, []).append(version)
                files[key] = file
    return {f"{one_file_start.SEPARATOR.join(versions[key])}/{key[0]}": file for key, file in files.items()}


def _add(archive: ZipFile, name: str, content: bytes, dated: tuple[int, ...]) -> None:
    info = ZipInfo(name, dated)  # type: ignore[arg-type]  # six numbers
    info.external_attr = 0o100644 << 16
    archive.writestr(info, content, ZIP_DEFLATED)


def _try(path: Path, version: str) -> None:
    """Raises ValueError if the file does not start."""
    with tempfile.TemporaryDirectory(dir=path.parent.parent) as cache:
        environment = os.environ | {"XDG_CACHE_HOME": cache}
        command = [sys.executable, str(path), "--version"]
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.stdout.strip() != f"durability {version}":
        raise ValueError(f"{path.name} does not start: {done.stdout}{done.stderr}")
