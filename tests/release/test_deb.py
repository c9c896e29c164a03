"""The Debian packages in minimal systems without a network: install, use, upgrade, remove, purge."""

from __future__ import annotations

import lzma
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from durability_client.agent import service
from release import bundle, deb, one_file
from release.deb import Debian
from release.make_release import Release
from release.programs import Programs
from tests.joined import credential_of_nobody
from tests.places import ROOT, TESTS
from tests.release.conftest import require
from tests.release.real_cut import lose_at_a_real_cut

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

UNIT = "durability-server.service"
# By default one release of Debian: each takes minutes. Before a release all are tested (CONTRIBUTING).
_TESTED = [
    one for one in deb.RELEASES if one.name in os.environ.get("DURABILITY_DEBIANS", "bookworm").split()
]
# What nobody needs who uses a package: no such program is in a minimal system.
BUILDERS = ("gcc", "cc", "c++", "g++", "clang", "make", "rustc", "cargo", "git")
VENV_PACKAGES = "root/venv-packages"  # what `apt install python3-venv` installs; a wheel alone needs it
OF_THE_LAB = ("nbdkit", "nbdkit-plugin-python", "libnbd-bin", "fuse3", "e2fsprogs", "mount")
# What every installation, and every start of the system, writes.
OF_THE_SYSTEM = re.compile(
    r"(?:var/(?:log|cache|tmp|lib/(?:dpkg|systemd|private))|(?:etc|var)/.updated|run|tmp|dev|proc|sys|root)(?:/|$)"
)


@pytest.fixture(scope="session")
def release_machine(root: None) -> None:
    """Skips without the programs that make and start minimal systems, unless DURABILITY_LAB_REQUIRED=1."""
    require("dpkg-deb", "lintian", "mmdebstrap", "systemd-analyze", "systemd-nspawn")


@pytest.fixture(scope="module", params=_TESTED, ids=lambda one: one.name)
def debian(request: pytest.FixtureRequest, release_machine: None) -> Debian:
    """Each release of Debian that is to be tested."""
    assert isinstance(request.param, Debian)
    return request.param


@pytest.fixture(scope="module")
def system(debian: Debian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The root of a minimal system with Python, systemd and what the lab's drives need, and nothing to build
    with."""
    directory = tmp_path_factory.mktemp(debian.name) / "root"
    included = ("python3", "systemd", "systemd-sysv", *OF_THE_LAB)
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(included)}"]
    fetch = f"apt-get -qq --download-only -o Dir::Cache::archives=/{VENV_PACKAGES} install python3-venv"
    command += [f'--customize-hook=mkdir -p "$1/{VENV_PACKAGES}/partial"; chroot "$1" {fetch}', debian.name]
    subprocess.run([*command, str(directory)], check=True, timeout=600)
    _in(directory, "true")  # the first start writes the machine's id
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def package(debian: Debian, system: Path, release: Release) -> str:
    """The package for that release, as a path within the system; lintian finds no error in it."""
    made = deb.make(release.sources, debian, release.bundle(debian.python), release.directory)
    shutil.copy(made, system / "root")
    return f"/root/{made.name}"


@pytest.fixture
def installed(system: Path, package: str) -> Iterator[Path]:
    """The system with the package, which is purged at the end and leaves nothing."""
    before = _files(system)
    _in(system, "dpkg", "--install", package)
    yield system
    _in(system, "dpkg", "--purge", "durability")
    assert _files(system) - before == set()
    assert before - _files(system) == set()


def _in(system: Path, *command: str, boot: bool = False) -> str:
    """What a program says in the system, which has no network; with `boot`, all that it starts says it."""
    words = ["--boot"] if boot else ["--as-pid2"]
    done = subprocess.run(
        [
            "systemd-nspawn",
            "--quiet",
            "--register=no",
            "--keep-unit",
            "--private-network",
            f"--directory={system}",
            *words,
            *command,
        ],
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def _booted(system: Path, script: str) -> list[str]:
    """Boot the system, run a shell script once it is up, switch it off; the lines that the script printed."""
    (system / "root/script").write_text(script)
    unit = system / "etc/systemd/system/durability-test.service"
    unit.write_text(
        "[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\n"
        'ExecStart=/bin/sh -c \'sh -eu /root/script > /root/said 2>&1; echo "exit $?" >> /root/said;'
        " systemctl poweroff'\n"
    )
    wanted = system / "etc/systemd/system/default.target.wants" / unit.name
    wanted.parent.mkdir()
    wanted.symlink_to(Path("..", unit.name))
    try:
        _in(system, boot=True)
        said = (system / "root/said").read_text().splitlines()
    finally:
        shutil.rmtree(wanted.parent)
        unit.unlink()
    assert said[-1] == "exit 0", "\n".join(said)
    return said


def _files(system: Path) -> set[str]:
    """Paths of all files and directories but for what any installation leaves."""
    found = (str(path.relative_to(system)) for path in system.rglob("*"))
    return {path for path in found if not OF_THE_SYSTEM.match(path)}


def test_it_is_used(installed: Path) -> None:
    """The command runs with the lab: three drives are written to, cut and verified, without a compiler."""
    assert _in(installed, "durability", "--version").startswith("durability ")
    assert "Each verdict is the expected one for its drive." in _in(installed, "durability", "demo")
    assert "/usr/bin/durability agent" in (installed / "usr/lib/systemd/system" / service.NAME).read_text()
    for file in ("man/man1/durability-run.1.gz", "bash-completion/completions/durability"):
        assert (installed / "usr/share" / file).is_file(), file
    assert (installed / "usr/share/zsh/vendor-completions/_durability").is_file()


@contextmanager
def _entered(system: Path, home: Path, *starts: str) -> Iterator[Programs]:
    """The commands that begin with `starts` in the system, with the devices and the kernel of this machine.
    What they mount is seen by nobody else, and gone at the end. Nothing there can compile or fetch code."""
    assert _in(system, "sh", "-c", f"command -v {' '.join(BUILDERS)} || true") == ""
    (system / home.relative_to("/")).mkdir(parents=True)
    # The root of a system is a mount: programs may ask for a mount namespace of their own there.
    mounts = (
        "mount --bind $0 $0; cd $0; mount --rbind /dev dev; mount --rbind /sys sys; mount -t proc proc proc"
    )
    script = f"{mounts}; echo; exec cat"
    stays = ("unshare", "--mount", "--propagation", "private", "sh", "-euc", script, str(system))
    with subprocess.Popen(stays, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"\n"
        enter = ("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "chroot", system)
        yield Programs(None, home, starts=(*enter, *starts))


@pytest.mark.timeout(600)
def test_a_real_cut(installed: Path, rig_machine: None, tmp_path: Path) -> None:
    """From a drive of its lab to the verdict, all commands are those of the package, in a minimal system."""
    with _entered(installed, tmp_path, "durability") as machine:
        lose_at_a_real_cut(machine)


@pytest.mark.timeout(600)
def test_a_real_cut_with_the_one_file(
    system: Path, release: Release, rig_machine: None, tmp_path: Path
) -> None:
    """The one file is copied to a minimal system, where Python starts it: lab, server, run and verify."""
    bundles = {python: release.bundle(python) for python in bundle.PYTHONS}
    shutil.copy(one_file.make(release.sources, bundles, release.directory), system / "root/durability.pyz")
    before = _files(system)
    with _entered(system, tmp_path, "python3", "/root/durability.pyz") as machine:
        lose_at_a_real_cut(machine)
    assert _files(system) == before
    (system / "root/durability.pyz").unlink()


@pytest.mark.timeout(600)
def test_a_real_cut_with_the_wheel(
    debian: Debian, system: Path, release: Release, rig_machine: None, tmp_path: Path
) -> None:
    """pip installs the wheel and the locked packages from a directory, in an environment of the minimal
    system's Python."""
    wheels = system / "root/wheels"
    fetch = (
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--dest",
        wheels,
        "-r",
        release.sources.directory / bundle.LOCK,
    )
    chosen = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--python-version", debian.python)
    platforms = (f"--platform=manylinux_2_{glibc}_x86_64" for glibc in (28, 27, 17))
    subprocess.run([*fetch, *chosen, *platforms, "--platform=manylinux2014_x86_64"], check=True, timeout=300)
    shutil.copy(release.wheel, wheels)
    _in(system, "sh", "-euc", f"dpkg --install /{VENV_PACKAGES}/*.deb")
    before = _files(system)
    _in(system, "python3", "-m", "venv", "/opt/durability")
    offline = ("--no-index", "--find-links", "/root/wheels")
    _in(system, "/opt/durability/bin/pip", "install", *offline, f"/root/wheels/{release.wheel.name}")
    with _entered(system, tmp_path, "/opt/durability/bin/durability") as machine:
        lose_at_a_real_cut(machine)
    shutil.rmtree(system / "opt/durability")
    assert _files(system) == before


def test_the_server_under_systemd(installed: Path) -> None:
    """Nothing is started by the installation. Once started, the server is ready when it listens; root's
    commands find it; a run is judged; a server that hangs is started again; the store is its user's alone."""
    said = _booted(
        installed,
        f"""
        systemctl is-enabled {UNIT} {service.NAME} || true
        mkdir -p /run/systemd/system/{UNIT}.d
        printf '[Service]\\nWatchdogSec=10\\nTimeoutAbortSec=1\\n' > /run/systemd/system/{UNIT}.d/test.conf
        systemctl daemon-reload
        systemctl start {UNIT}
        code=$(durability clients invite | sed -n 's/.*durability join [^ ]* //p')
        DURABILITY_CREDENTIAL=/root/credential.json; export DURABILITY_CREDENTIAL
        durability join 127.0.0.1:7420 $code
        durability run /root/target --size 1M --duration 1 --force
        durability verify /root/target || echo verified $?
        durability runs
        kill -STOP $(systemctl show -p MainPID --value {UNIT})
        while [ $(systemctl show -p NRestarts --value {UNIT}) = 0 ]; do sleep 0.1; done
        until systemctl is-active {UNIT}; do sleep 0.1; done
        durability runs
        stat -c '%U %a %n' /var/lib/durability /var/lib/durability/server.sqlite
        systemctl stop {UNIT}
        systemctl show -p Result {UNIT}
        rm -r /root/target* /root/credential.json
        """,
    )
    assert said[:2] == ["disabled", "disabled"]
    assert "verified 4" in said, said  # nothing was cut
    assert "durability 700 /var/lib/durability" in said
    assert "durability 600 /var/lib/durability/server.sqlite" in said
    assert "Result=success" in said


def test_the_agent_under_systemd(installed: Path) -> None:
    """`durability agent install` enables the package's unit; with options it writes one of its own, until it
    is installed without. `uninstall` stops it."""
    credential = installed / "etc/durability/credential.json"
    credential.parent.mkdir()
    credential_of_nobody(credential)
    where = f"systemctl show -p FragmentPath --value {service.NAME}"
    said = _booted(
        installed,
        f"""
        durability agent install
        {where}
        durability agent --directory /run/other install
        {where}
        durability agent install
        {where}
        systemctl is-enabled {service.NAME}
        systemctl is-active {service.NAME}
        durability agent uninstall
        systemctl is-enabled {service.NAME} || true
        systemctl is-active {service.NAME} || true
        """,
    )
    units = [line for line in said if line.endswith(f"/systemd/system/{service.NAME}")]
    assert [unit.startswith("/etc/") for unit in units] == [False, True, False], said
    assert [line for line in said if line in ("enabled", "disabled", "active", "inactive")] == [
        "enabled",
        "active",
        "disabled",
        "inactive",
    ]


def test_an_upgrade_keeps_settings_and_store(system: Path, package: str, tmp_path: Path) -> None:
    """Edited settings and the store survive an upgrade and a removal, files of the old version do not survive
    the upgrade, and a purge leaves nothing but the server's user."""
    before = _files(system)
    old = _older(system, package)
    _in(system, "dpkg", "--install", old)
    settings = system / "etc/default/durability-server"
    settings.write_text(f"{settings.read_text()}# edited\n")
    store = system / "var/lib/durability/server.sqlite"
    store.parent.mkdir()
    store.write_text("evidence")
    _in(system, "dpkg", "--install", package)
    assert not (system / "usr/lib/durability/old").exists()
    assert settings.read_text().endswith("# edited\n") and store.read_text() == "evidence"

    _in(system, "dpkg", "--remove", "durability")
    assert settings.is_file() and store.is_file()
    assert not (system / "usr/lib/durability").exists()
    left = {"etc/default/durability-server", "var/lib/durability", "var/lib/durability/server.sqlite"}
    assert _files(system) - before == left
    _in(system, "dpkg", "--purge", "durability")
    assert _files(system) == before
    assert "durability:x:" in (system / "etc/passwd").read_text()


def test_an_upgrade_restarts_the_server_and_migrates_its_store(system: Path, package: str) -> None:
    """A running server is restarted with the new package. The store of release 0.1.0, which is in its place
    then, is migrated under the confinement of the unit; its runs are there, and so is the copy."""
    before = _files(system)
    store = "/var/lib/durability/server.sqlite"
    kept = lzma.decompress((TESTS / "artefacts/0.1.0/store.sqlite.xz").read_bytes())
    (system / "root/kept.sqlite").write_bytes(kept)
    with closing(sqlite3.connect(system / "root/kept.sqlite")) as database:
        runs = [run for (run,) in database.execute("SELECT run FROM runs")]
    _in(system, "dpkg", "--install", _older(system, package))
    said = _booted(
        system,
        f"""
        systemctl start {UNIT}
        before=$(systemctl show -p MainPID --value {UNIT})
        mkdir /root/new
        mv {store}* /root/new
        install -o durability -g durability -m 600 /root/kept.sqlite {store}
        dpkg --install {package}
        while [ $(systemctl show -p MainPID --value {UNIT}) = $before ]; do sleep 0.1; done
        until systemctl is-active {UNIT}; do sleep 0.1; done
        durability runs --all --json
        stat -c '%U %a %n' {store} {store}.format-2
        """,
    )
    assert runs and all(any(run in line for line in said) for run in runs), said
    assert {f"durability 600 {store}", f"durability 600 {store}.format-2"} <= {*said}, said
    _in(system, "dpkg", "--purge", "durability")
    assert _files(system) == before


@pytest.mark.parametrize(
    ("program", "stays"),
    [("/opt/durability/bin/durability", True), ("/usr/lib/durability/bin/durability", False)],
)
def test_a_purge_leaves_the_agent_of_another_installation(
    program: str, stays: bool, system: Path, package: str
) -> None:
    """A purge keeps the unit, its enabling link and the credential of another installation's agent. It
    removes those of the package's own agent."""
    before = _files(system)
    _in(system, "dpkg", "--install", package)
    unit = system / "etc/systemd/system" / service.NAME
    enabled = unit.parent / "multi-user.target.wants" / unit.name
    credential = system / "etc/durability/credential.json"
    unit.write_text(service.unit([], program=(program,)))
    _in(system, "systemctl", "enable", service.NAME)
    assert enabled.is_symlink()
    credential.parent.mkdir()
    credential.write_text("{}")
    _in(system, "dpkg", "--purge", "durability")
    left = {str(path.relative_to(system)) for path in (unit, enabled, credential, credential.parent)}
    assert _files(system) - before == (left if stays else set())
    if stays:
        unit.unlink()
        enabled.unlink()
        shutil.rmtree(credential.parent)


def _older(system: Path, package: str) -> str:
    """A package of an earlier version, which has a file that the new one lacks."""
    unpacked = system / "root/old"
    subprocess.run(["dpkg-deb", "--raw-extract", f"{system}{package}", unpacked], check=True)
    control = unpacked / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^Version: .*$", "Version: 0.0.1-1", control.read_text()))
    (unpacked / "usr/lib/durability/old").write_text("of the old version")
    subprocess.run(["dpkg-deb", "-Znone", "--build", unpacked, system / "root/old.deb"], check=True)
    shutil.rmtree(unpacked)
    return "/root/old.deb"


def test_the_server_is_confined(release_machine: None) -> None:
    """systemd rates the exposure of the server's unit below 3 of 10."""
    unit = ROOT / deb.FILES / UNIT
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager", str(unit)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
