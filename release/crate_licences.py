"""The licences of the Rust crates within packages that are bundled: `make licences` writes them anew.

A package lists its crates in the `sboms` of its .dist-info. cargo fetches these crates, which bring their
licences.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from release.bundle import LICENCES
from release.sources import ROOT

PACKAGES = ("cryptography", "pydantic_core")
LIST = ROOT / LICENCES / "rust-crates.txt"

_OF_THE_PACKAGE = "download_url=file:"  # a crate of the package itself, whose licence is in the .dist-info
_NAMES = ("licen", "copying")  # how the name of a licence's file begins, in small letters
_NEVER_CHOSEN = "gpl"  # always one of several licences to choose from
_ALTERNATIVES = ("apache", "bsd", "copying")  # not needed where the crate can be had under MIT
_HEAD = """\
Rust crates within {packages}, with the licences that their authors offer, in SPDX terms.
Where they offer MIT among others, its text is the one below. `make licences` writes this file.
"""


@dataclass(frozen=True, slots=True, order=True)
class Crate:
    """A crate in a version, with its licence in SPDX terms."""

    name: str
    version: str
    licence: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def crates_of(package: str) -> set[Crate]:
    """The crates of others that an installed package lists. Raises FileNotFoundError if it lists none."""
    found = {crate for listed in _lists(package) for crate in _crates(listed)}
    if not found:
        raise FileNotFoundError(f"{package} lists no crates in its .dist-info: see where it does now")
    return found


def _lists(package: str) -> Iterator[dict[str, Any]]:
    for file in files(package) or ():
        if "sboms" in file.parts:
            yield json.loads(file.read_text())


def _crates(listed: dict[str, Any]) -> Iterator[Crate]:
    for one in listed["components"]:
        if one["purl"].startswith("pkg:cargo/") and _OF_THE_PACKAGE not in one["purl"]:
            terms = " AND ".join(term["expression"] for term in one["licenses"])
            yield Crate(one["name"], one["version"], terms)


def write() -> None:
    """Write the list with all texts. Raises CalledProcessError if cargo cannot fetch a crate."""
    crates: set[Crate] = set()
    texts: dict[str, set[Crate]] = defaultdict(set)
    for package in PACKAGES:
        with TemporaryDirectory() as directory:
            fetched = _fetch(crates_of(package), Path(directory))
            crates |= fetched.keys()
            for crate, home in fetched.items():
                for text in _texts(home):
                    texts[text].add(crate)
    parts = [_HEAD.format(packages=" and ".join(PACKAGES)), _table(crates, set().union(*texts.values()))]
    for text, sharing in sorted(texts.items(), key=lambda one: min(one[1])):
        parts.append(f"{'-' * 80}\n{', '.join(map(str, sorted(sharing)))}\n\n{text}\n")
    LIST.write_text("\n".join(parts), "utf-8")


def _fetch(crates: set[Crate], directory: Path) -> dict[Crate, Path]:
    """Each crate and where it lies, fetched as the dependencies of a project that has no code."""
    (directory / "src").mkdir()
    (directory / "src/lib.rs").touch()
    wanted = "".join(
        f'c{number} = {{ package = "{one.name}", version = "={one.version.partition("+")[0]}",'
        " default-features = false }\n"
        for number, one in enumerate(sorted(crates))
    )
    project = f'[package]\nname = "crates"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n{wanted}'
    (directory / "Cargo.toml").write_text(project, "utf-8")
    subprocess.run(
        ["cargo", "vendor", "--quiet", "--versioned-dirs"], cwd=directory, check=True, stdout=sys.stderr
    )
    return {one: directory / "vendor" / f"{one.name}-{one.version}" for one in crates}


def _texts(home: Path) -> set[str]:
    """The licences in a crate that are needed, without the ends of their lines."""
    named = {file.name.lower(): file for file in home.iterdir() if file.name.lower().startswith(_NAMES)}
    unwanted = (_NEVER_CHOSEN, *_ALTERNATIVES) if any("mit" in name for name in named) else (_NEVER_CHOSEN,)
    chosen = [file for name, file in named.items() if not any(word in name for word in unwanted)]
    return {
        "\n".join(line.rstrip() for line in file.read_text("utf-8").strip().splitlines()) for file in chosen
    }


def _table(crates: set[Crate], with_text: set[Crate]) -> str:
    width = max(len(str(one)) for one in crates)
    return "".join(
        f"  {one!s:{width}}  {one.licence}{'' if one in with_text else '  (the crate brings no text)'}\n"
        for one in sorted(crates)
    )


if __name__ == "__main__":
    write()
