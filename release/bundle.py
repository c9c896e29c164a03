"""Environments that are bundled: the locked packages and this one's wheel, laid out for a version of Python.

uv chooses the wheels for that version and for Linux on x86-64, whatever runs here; hashes are checked.
"""

from __future__ import annotations

import csv
import email
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from release.sources import Sources

PLATFORM = "x86_64-manylinux_2_28"  # glibc 2.28: Debian 10, RHEL 8
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LOCK = "requirements/runtime.txt"
HOME = "usr/lib/durability"  # in a Debian system
LICENCES = Path("release/licences")  # in the sources: of what packages contain without a licence

_UV = Path(sys.executable).with_name("uv")
_PROGRAM = """\
#!/usr/lib/durability/bin/python
from durability_cli.main import main

if __name__ == "__main__":
    main()
"""
_OF_INSTALLERS = ("bin", "share", ".lock")  # beside the packages; not imported
_OF_THIS_MACHINE = ("direct_url.json", "uv_cache.json")  # where and when it was installed
# Packages that name their licence, but not in SPDX terms. That of each is in its `dist-info`.
_LICENCES_IN_SPDX = {
    "Jinja2": "BSD-3-Clause",
    "markdown-it-py": "MIT",
    "mdurl": "MIT",
    "shellingham": "ISC",
}


@dataclass(frozen=True, slots=True, order=True)
class Component:
    """A package that is bundled, with its licence in SPDX terms."""

    name: str
    version: str
    licence: str


def lay_out(sources: Sources, wheel: Path, directory: Path, *, python: str) -> None:
    """The packages of the lock file and the wheel, importable from `directory`, and licences."""
    install = (_UV, "pip", "install", "--quiet", "--target", directory, "--no-deps", "--link-mode", "copy")
    choice = ("--python-platform", PLATFORM, "--python-version", python, "--only-binary", ":all:")
    sources.output(*install, *choice, "--require-hashes", "-r", LOCK)
    sources.output(*install, *choice, "--offline", wheel)
    for name in _OF_INSTALLERS:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for cache in directory.rglob("__pycache__"):
        shutil.rmtree(cache)
    for name in _OF_THIS_MACHINE:
        for file in directory.glob(f"*.dist-info/{name}"):
            file.unlink()
    _forget_removed(directory)
    shutil.copytree(sources.directory / LICENCES, directory / "durability-licences")


def _forget_removed(directory: Path) -> None:
    """Take what was removed out of the lists of the packages. They have checksums of it, and that of a
    launcher depends on where the Python of this machine lies."""
    for listed in directory.glob("*.dist-info/RECORD"):
        lines = listed.read_text("utf-8").splitlines(keepends=True)
        names = (row[0] for row in csv.reader(lines))
        kept = [line for line, name in zip(lines, names, strict=True) if (directory / name).is_file()]
        listed.write_text("".join(kept), "utf-8")


def install(sources: Sources, laid_out: Path, root: Path, *, python: str) -> None:
    """Make what `lay_out` laid out a virtual environment in the Debian system `root`, around its Python, with
    the command in /usr/bin. All of it is dated by the commit."""
    home = root / HOME
    packages = home / "lib" / f"python{python}" / "site-packages"
    shutil.copytree(laid_out, packages)
    for file in packages.rglob("*"):
        if file.is_file():
            file.chmod(0o644)
    (home / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    program = home / "bin/durability"
    program.parent.mkdir()
    program.write_text(_PROGRAM)
    (home / "bin/python").symlink_to(f"/usr/bin/python{python}")
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/durability").symlink_to("../lib/durability/bin/durability")
    for file, mode in ((program, 0o755), (home / "pyvenv.cfg", 0o644)):
        file.chmod(mode)
    for path in (root, *root.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
        os.utime(path, (sources.committed_at_s, sources.committed_at_s), follow_symlinks=False)


def components(directory: Path) -> list[Component]:
    """What `lay_out` laid out, by name."""
    return sorted(component(file) for file in directory.glob("*.dist-info/METADATA"))


def component(metadata: Path) -> Component:
    """The package of which `metadata` is the file METADATA. Raises ValueError if its licence is not in SPDX
    terms."""
    about = email.message_from_bytes(metadata.read_bytes())
    classifiers = [text for text in about.get_all("Classifier", []) if text.startswith("License ::")]
    name, version = about["Name"], about["Version"]
    licence = (
        about["License-Expression"]
        or _LICENCES_IN_SPDX.get(name)
        or about["License"]
        or "".join(classifiers[:1]).rpartition(" :: ")[2]
    )
    try:
        return Component(name, version, canonicalize_license_expression(licence))
    except InvalidLicenseExpression as error:
        raise ValueError(
            f"{name} {version} does not state its licence in SPDX terms, but as {licence!r}: {metadata}. Read"
            " its licence and add the package to _LICENCES_IN_SPDX"
        ) from error
