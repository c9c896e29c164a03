"""What set-up installs is locked: one version of each dependency, in the range of setup.cfg, with hashes."""

from __future__ import annotations

import configparser
import importlib.metadata
import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.places import ROOT

LOCKS = ("build", "runtime", "dev")
MACHINES = [
    {"python_version": python, "python_full_version": f"{python}.1", "platform_machine": machine}
    for python, machine in itertools.product(("3.11", "3.12", "3.13", "3.14"), ("x86_64", "aarch64"))
]
HASHED = re.compile(r"(?P<requirement>[^\\]+?)(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n")


def _locked(lock: str) -> list[Requirement]:
    """The entries of a lock; each has a hash and nothing else stands in the file."""
    text = re.sub("^#.*\n", "", (ROOT / f"requirements/{lock}.txt").read_text(), flags=re.MULTILINE)
    entries = list(HASHED.finditer(text))
    assert "".join(entry[0] for entry in entries) == text
    return [Requirement(entry["requirement"]) for entry in entries]


def _environment() -> dict[str, str]:
    return {name: str(value) for name, value in default_environment().items()}


def _versions(lock: str, machine: dict[str, str]) -> dict[str, str]:
    """The version of each distribution that the lock gives a machine; it gives one."""
    environment = {**_environment(), **machine}
    versions: dict[str, str] = {}
    for entry in _locked(lock):
        (exact,) = entry.specifier
        assert exact.operator == "=="
        if entry.marker is None or entry.marker.evaluate(environment):
            name = canonicalize_name(entry.name)
            assert name not in versions
            versions[name] = exact.version
    return versions


def _ranges(*extras: str) -> Iterator[Requirement]:
    """What setup.cfg asks for, with those extras."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    wanted = [parser["options"]["install_requires"]]
    wanted += [parser["options.extras_require"][extra] for extra in extras]
    for line in "\n".join(wanted).split("\n"):
        requirement = Requirement(line) if line.strip() else None
        if requirement is not None and requirement.name == "durability":
            yield from _ranges(*requirement.extras)
        elif requirement is not None:
            yield requirement


def _needed(requirements: Iterable[Requirement], environment: dict[str, str]) -> Iterator[Requirement]:
    """These requirements and those of what they name, as far as it is installed here."""
    waiting = [(requirement, "") for requirement in requirements]
    seen = set()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({**environment, "extra": extra}):
            continue
        if (str(requirement), extra) in seen:
            continue
        seen.add((str(requirement), extra))
        yield requirement
        for line in importlib.metadata.distribution(requirement.name).requires or ():
            waiting += [(Requirement(line), wanted) for wanted in ("", *requirement.extras)]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: "-".join(machine.values()))
@pytest.mark.parametrize(("lock", "extras"), [("runtime", ("postgresql",)), ("dev", ("dev",))])
def test_the_lock_is_within_the_ranges(lock: str, extras: tuple[str, ...], machine: dict[str, str]) -> None:
    """Each supported machine gets one version of each requirement of setup.cfg, in its range."""
    versions = _versions(lock, machine)
    for requirement in _ranges(*extras):
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])


@pytest.mark.parametrize(("lock", "extras"), [("runtime", ("postgresql",)), ("dev", ("dev",))])
def test_the_lock_holds_every_dependency(lock: str, extras: tuple[str, ...]) -> None:
    """The lock has exactly the direct and indirect dependencies, in versions that all requirements accept."""
    versions = _versions(lock, {})
    needed = list(_needed(_ranges(*extras), _environment()))
    for requirement in needed:
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)], prereleases=True)
    assert set(versions) == {canonicalize_name(requirement.name) for requirement in needed}


def test_what_is_installed_is_what_is_locked() -> None:
    """The installed versions are those of the lock, including the build dependencies."""
    locked = _versions("dev", {}) | _versions("build", {})
    assert {name: importlib.metadata.version(name) for name in locked} == locked


def test_the_packages_that_are_built_are_those_of_the_tests() -> None:
    """The lock of the runtime has the versions that the tests run with."""
    for machine in MACHINES:
        assert _versions("runtime", machine).items() <= _versions("dev", machine).items()


def test_the_build_is_locked() -> None:
    """Each build requirement of pyproject.toml is locked to an exact version in its range."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    versions = _versions("build", {})
    for requirement in map(Requirement, build):
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_names_no_host(lock: str) -> None:
    """No lock says where a package comes from: that is for the machine's pip to know."""
    text = (ROOT / f"requirements/{lock}.txt").read_text()
    assert not re.search(r"://|index|find-links|trusted-host| @ ", text)
