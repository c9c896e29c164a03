"""Environments that are bundled: the locked packages and this one's wheel, laid out for a version of Python.

uv chooses the wheels for that version and for Linux on x86-64, whatever runs here; hashes are checked.
"""

from __future__ import annotations

import email
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from release.sources import Sources

PLATFORM = "x86_64-manylinux_2_28"  # glibc 2.28: Debian 10, RHEL 8
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LOCK = "requirements/runtime.txt"

_UV = Path(sys.executable).with_name("uv")
_OF_INSTALLERS = ("bin", "share", ".lock")  # beside the packages; not imported
_OF_THIS_MACHINE = ("direct_url.json", "uv_cache.json")  # where and when it was installed


@dataclass(frozen=True, slots=True, order=True)
class Component:
    """A package that is bundled, with its licence in SPDX terms where it states one so."""

    name: str
    version: str
    licence: str


def lay_out(sources: Sources, wheel: Path, directory: Path, *, python: str) -> None:
    """The packages of the lock file and the wheel, importable from `directory`."""
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


def components(directory: Path) -> list[Component]:
    """What `lay_out` laid out, by name."""
    return sorted(_component(file) for file in directory.glob("*.dist-info/METADATA"))


def _component(metadata: Path) -> Component:
    about = email.message_from_bytes(metadata.read_bytes())
    classifiers = [text for text in about.get_all("Classifier", []) if text.startswith("License ::")]
    licence = (
        about["License-Expression"] or about["License"] or "".join(classifiers[:1]).rpartition(" :: ")[2]
    )
    name, version = about["Name"], about["Version"]
    if not licence or "\n" in licence.strip():
        raise ValueError(f"{name} {version} does not state its licence in a line: {metadata}")
    return Component(name, version, licence.strip())
