"""The wheel, as people get it: built, installed where nothing else is, and used from there."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from durability_lab.histories import libraries
from release import completions
from release import wheel as release_wheel
from release.make_release import Release
from release.programs import Programs
from tests.places import ROOT
from tests.release.real_cut import lose_at_a_real_cut

COMMANDS = ("serve", "run", "verify", "device", "runs", "show", "export", "demo")

pytestmark = pytest.mark.slow  # builds and installs a wheel

PACKAGES = {
    "durability": ROOT,
    "durability_cli": ROOT / "cli",
    "durability_server": ROOT / "server",
    "durability_client": ROOT / "client",
    "durability_lab": ROOT / "lab",
}


def _output(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment | {"NO_COLOR": "1", "COLUMNS": "100", "XDG_STATE_HOME": str(cwd)},
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tree: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as `make release` builds it, of the files that are tested."""
    made = Release(tmp_path_factory.mktemp("wheel"), tree)
    _, built = release_wheel.make(made.sources, made.out)
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The `bin` of a fresh environment with the locked packages and the wheel, which needs no others."""
    environment = wheel.parent.parent / "environment"
    _output(sys.executable, "-m", "venv", environment, cwd=wheel.parent)
    pip = (environment / "bin/python", "-m", "pip", "install", "--quiet")
    locked = ("--require-hashes", "--no-deps", "--only-binary", ":all:")
    _output(*pip, *locked, "-r", ROOT / "requirements/runtime.txt", cwd=wheel.parent)
    _output(*pip, "--no-index", wheel, cwd=wheel.parent)
    return environment / "bin"


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    """Every module and type marker is in the wheel, what a guest boots with, the templates of pages, the
    profiles of accept, manual pages and completions, and no test or tool is."""
    wanted = {
        str(path.relative_to(top))
        for name, top in PACKAGES.items()
        for path in (top / name).rglob("*")
        if path.suffix in {".py", ".typed"} or path.parent.name in {"guest", "host", "profiles", "templates"}
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    shared = {name.partition(".data/data/share/")[2] for name in held if ".data/data/share/" in name}
    assert {name for name in held if ".data/" not in name} == wanted
    assert {name for name in shared if not name.startswith("man/man1/durability")} == set(
        completions.PLACES.values()
    )


def test_the_installed_command_knows_its_version_and_commands(
    installed: Path, wheel: Path, tmp_path: Path
) -> None:
    """From any directory, the installed `durability` prints the wheel's version and lists its commands."""
    said = _output(installed / "durability", "--version", cwd=tmp_path)
    assert said == f"durability {wheel.name.split('-')[1]}\n"
    text = _output(installed / "durability", "--help", cwd=tmp_path)
    assert [name for name in COMMANDS if f"\n  {name} " not in text] == []


def test_pages_and_completions_are_installed(installed: Path) -> None:
    """pip lays manual pages and the completions of three shells below `share` of the environment."""
    share = installed.parent / "share"
    for name in ("man/man1/durability.1", "man/man1/durability-run.1", *completions.PLACES.values()):
        assert (share / name).stat().st_size > 0, name


def test_every_installed_module_imports(installed: Path, tmp_path: Path) -> None:
    """The declared dependencies are enough to import all that was installed, but for the modules of histories
    that use the libraries of the extra `lab`."""
    script = (
        "import importlib, pkgutil\n"
        f"for top in {list(PACKAGES)}:\n"
        "    package = importlib.import_module(top)\n"
        "    for module in pkgutil.walk_packages(package.__path__, top + '.'):\n"
        "        if module.name != 'durability_lab.drive.nbdkit_plugin':  # runs inside nbdkit only\n"
        "            try:\n"
        "                print(importlib.import_module(module.name).__file__)\n"
        "            except ModuleNotFoundError as error:\n"
        f"                allowed = error.name in {libraries.NEEDED}\n"
        "                if not (allowed and module.name.startswith('durability_lab.histories.')):\n"
        "                    raise\n"
    )
    files = _output(installed / "python", "-c", script, cwd=tmp_path).split()
    assert files
    assert all(str(installed.parent) in file for file in files)


def test_the_installed_demo_agrees_with_itself(installed: Path, tmp_path: Path) -> None:
    """`durability demo` works from the wheel alone: server, client, three drives, three right verdicts."""
    assert "inconclusive" not in _output(installed / "durability", "demo", cwd=tmp_path)


def test_a_target_is_described(installed: Path, tmp_path: Path) -> None:
    """`durability device` of a file says on which file system it lies, without a server."""
    text = _output(installed / "durability", "device", tmp_path / "target", "--json", cwd=tmp_path)
    assert '"mount_point"' in text


@pytest.mark.timeout(600)
def test_a_real_cut_from_the_installed_wheel(installed: Path, rig_machine: None, tmp_path: Path) -> None:
    """From a drive of its lab to the verdict, all commands are those of the wheel."""
    lose_at_a_real_cut(Programs(None, tmp_path, python=installed / "python"))
