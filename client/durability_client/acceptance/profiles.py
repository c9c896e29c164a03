"""Profiles: shipped ones by name, and users' own ones by file."""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from durability.acceptance.profile import Profile
from durability.acceptance.profile_file import read_profile
from durability.errors import SetupError, UsageError

SHIPPED = ("database-ssd", "datacenter-nvme-plp", "consumer-ssd", "rented-vm-disk", "rented-server")
_FILE_BYTES_MAX = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A profile, its text, and the text's SHA-256 in hexadecimal."""

    profile: Profile
    text: str
    sha256: str


def load(name: str) -> Loaded:
    """The profile called `name`, or in the file `name`. Raises UsageError, SetupError."""
    if name in SHIPPED:
        return _read((files(__package__) / "profiles" / f"{name}.toml").read_bytes(), name, name)
    path = Path(name)
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        near = difflib.get_close_matches(name, SHIPPED, n=1)
        meant = f"is {near[0]} meant?" if near else f"name a file, or one of {', '.join(SHIPPED)}"
        raise SetupError(f"cannot read the profile {name}: {error.strerror}; {meant}") from error
    if len(data) > _FILE_BYTES_MAX:
        raise UsageError(f"{name} is too long for a profile: at most {_FILE_BYTES_MAX:,} bytes are read")
    return _read(data, path.stem, name)


def _read(data: bytes, name: str, place: str) -> Loaded:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{place}: the profile is not UTF-8 at byte {error.start}") from error
    try:
        profile = read_profile(text, name=name)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error
    return Loaded(profile=profile, text=text, sha256=hashlib.sha256(data).hexdigest())
