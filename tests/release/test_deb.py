"""The Debian packages in minimal systems without a network: install, use, upgrade, remove, purge."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durability.errors import EXIT_USAGE
from durability_client.agent import service
from release import deb, gzipped
from release.deb import Debian
from release.make_release import Release
from release.programs import Programs
from release.sources import Sources
from tests.joined import credential_of_nobody
from tests.places import ROOT
from tests.release.conftest import require
from tests.release.real_cut import lose_at_a_real_cut

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

UNIT = "durability-server.service"
# By default one release of Debian: each takes minutes. Before a release all are tested (CONTRIBUTING).
_TESTED = [
    one for one in deb.RELEASES if one.name in os.environ.get("DURABILITY_DEBIANS", "bookworm").split()
]
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
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(included)}", debian.name]
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
def _entered(system: Path, home: Path) -> Iterator[Programs]:
    """The commands in the system, with the devices and the kernel of this machine. What they mount is seen by
    nobody else, and gone at the end."""
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
        yield Programs(None, home, starts=(*enter, "durability"))


@pytest.mark.timeout(600)
def test_a_real_cut(installed: Path, rig_machine: None, tmp_path: Path) -> None:
    """From a drive of its lab to the verdict, all commands are those of the package, in a minimal system."""
    with _entered(installed, tmp_path) as machine:
        lose_at_a_real_cut(machine)


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


@pytest.mark.parametrize("before", ["", "0.1-1"])
def test_an_upgrade_does_not_wait_for_the_services(before: str, tmp_path: Path) -> None:
    """An upgrade restarts the services without waiting, because a store migration may take an hour, and names
    the journal command. An installation starts nothing."""
    script = deb.script(ROOT, deb.RELEASES[0], "postinst").replace("/run/systemd/system", str(tmp_path))
    for name in ("systemctl", "systemd-sysusers"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>"{tmp_path}/told"\n')
        program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", "-c", script, "postinst", "configure", before]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    restart = f"systemctl --no-block try-restart {UNIT} {service.NAME}\n"
    assert (restart in (tmp_path / "told").read_text()) == bool(before)
    assert ("journalctl -u durability-server" in done.stderr) == bool(before)


@pytest.mark.parametrize(
    ("words", "compiles", "restarts"),
    [
        (("configure", ""), True, False),
        (("configure", "0.1-1"), True, True),
        (("abort-upgrade", "0.3-1"), True, False),
        (("abort-remove", ""), True, False),
    ],
)
def test_what_prerm_removed_is_compiled_again(
    words: tuple[str, str], compiles: bool, restarts: bool, tmp_path: Path
) -> None:
    """Bytecode that prerm removed is compiled again, also after an upgrade that dpkg gave up. It is synced,
    because a torn module after a power cut would stop the agent at each start."""
    script = deb.script(ROOT, deb.RELEASES[0], "postinst").replace("/run/systemd/system", str(tmp_path))
    told = _told(script.replace("/usr/bin/python", "python"), *words, programs=tmp_path)
    compiled = re.search(
        r"^python3\.11 -m compileall -q -f .*\nsync -f /usr/lib/durability$", told, re.MULTILINE
    )
    assert (compiled is not None) == compiles
    assert ("try-restart" in told) == restarts


@pytest.mark.parametrize("word", ["remove", "upgrade"])
def test_a_removal_without_the_environment(word: str, tmp_path: Path) -> None:
    """The package can be removed after /usr/lib/durability was deleted by hand."""
    script = deb.script(ROOT, deb.RELEASES[0], "prerm").replace("/run/systemd/system", str(tmp_path / "none"))
    _told(script.replace("/usr/lib/durability", str(tmp_path / "none")), word, programs=tmp_path)


def test_a_removal_ends_where_a_compiled_module_cannot_be_removed(tmp_path: Path) -> None:
    """The services are stopped and disabled by then, and dpkg would leave it at that, with the package still
    installed. What is left, postrm removes."""
    compiled = tmp_path / "durability/lib/__pycache__"
    compiled.mkdir(parents=True)
    (tmp_path / "rm").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "rm").chmod(0o755)
    script = deb.script(ROOT, deb.RELEASES[0], "prerm").replace("/usr/lib/durability", str(compiled.parent))
    told = _told(script.replace("/run/systemd/system", str(tmp_path)), "remove", programs=tmp_path)
    assert "systemctl stop" in told and "disable" in told and compiled.is_dir()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("prerm", ("remove",)),
        ("postrm", ("remove",)),
        ("postrm", ("purge",)),
        ("postinst", ("configure", "0.1-1")),
    ],
)
def test_a_unit_that_cannot_be_loaded(name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """After a mistake in `systemctl edit`, systemctl fails. The package can be removed and installed all the
    same."""
    script = deb.script(ROOT, deb.RELEASES[0], name).replace("/run/systemd/system", str(tmp_path))
    for place in ("/usr/lib/durability", "/var/lib/durability", "/etc/durability"):
        script = script.replace(place, str(tmp_path / "none"))
    told = _told(script, *words, programs=tmp_path, systemctl=5)
    assert "systemctl stop" in told or "daemon-reload" in told


@pytest.mark.parametrize(
    ("is_active", "populated", "runs"),
    [(True, "", True), (False, "1", True), (False, "0", False), (False, "", False)],
)
def test_a_service_that_does_not_stop_is_named(
    is_active: bool, populated: str, runs: bool, tmp_path: Path
) -> None:
    """Removal of the package continues if a service does not stop, and names the service, including one that
    systemd calls failed but that still has processes."""
    script = deb.script(ROOT, deb.RELEASES[0], "prerm").replace("/run/systemd/system", str(tmp_path))
    script = script.replace("/usr/lib/durability", str(tmp_path / "none"))
    script = script.replace("/sys/fs/cgroup", str(tmp_path / "cgroup"))
    if populated:
        events = tmp_path / "cgroup/system.slice" / UNIT / "cgroup.events"
        events.parent.mkdir(parents=True)
        events.write_text(f"populated {populated}\nfrozen 0\n")
    says = f'case "$*" in *is-active*{UNIT}) exit {0 if is_active else 3};; esac; exit 1'
    (tmp_path / "systemctl").write_text(f"#!/bin/sh\n{says}\n")
    (tmp_path / "systemctl").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", script, "prerm", "remove"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert (f"{UNIT} still runs" in done.stderr) == runs and f"{service.NAME} still runs" not in done.stderr


@pytest.mark.parametrize("mounted", ["", "durability", "durability/backup", "etc"])
def test_a_purge_of_a_store_on_a_drive_of_its_own(mounted: str, root: None, tmp_path: Path) -> None:
    """A mount point cannot be removed: it stays, and all that lies there goes. What is mounted below the
    store stays with its files. The credential's directory may be a mount point too."""
    require("unshare")
    store, etc = tmp_path / "durability", tmp_path / "etc"
    for directory in (store / "backup", etc):
        directory.mkdir(parents=True)
    script = _of_directories("postrm", tmp_path / "none", store, etc)
    mount = f"mount -t tmpfs none {tmp_path / mounted}; mkdir -p {store}/backup" if mounted else "true"
    fill = f"touch {store}/server.sqlite {store}/.hidden {store}/backup/copy {etc}/credential.json"
    (tmp_path / "postrm").write_text(script)
    purge = f"{mount}; {fill}; sh {tmp_path}/postrm purge >&2; find {store} {etc} || true"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", purge], check=True, capture_output=True, text=True
    )
    left = {
        "": [],
        "etc": [etc],
        "durability": [store],
        "durability/backup": [store, store / "backup", store / "backup/copy"],
    }
    assert done.stdout.split() == [*map(str, left[mounted])], done.stderr
    assert not (etc / "credential.json").exists()


def test_a_purge_leaves_what_is_mounted_from_the_same_file_system(root: None, tmp_path: Path) -> None:
    """A directory of the same drive is mounted below the store, also by a name that the kernel escapes and
    find takes for a pattern; a link leads to the store. All else goes, and what stays is named."""
    require("unshare")
    store, etc, odd = tmp_path / "var/durability", tmp_path / "etc", "deep/a b*[1]\\"
    (tmp_path / "data disk/durability").mkdir(parents=True)
    (tmp_path / "var").symlink_to("data disk")
    for name in ("backup", "backup2", odd, "deep/other"):
        (store / name).mkdir(parents=True)
        (store / name / "file").touch()
    for name in ("photos", "music"):
        (tmp_path / name / "album").mkdir(parents=True)
        (tmp_path / name / "album/1").touch()
    script = _of_directories("postrm", tmp_path / "none", store, etc)
    (tmp_path / "postrm").write_text(script)
    purge = 'mount --bind photos var/durability/backup; mount --bind music "$1"; sh postrm purge'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", purge, "purge", store / odd],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert all((tmp_path / name / "album/1").is_file() for name in ("photos", "music")), done.stderr
    left = {str(path.relative_to(store)) for path in store.rglob("*")}
    assert left == {"backup", "backup/file", "deep", odd, f"{odd}/file"}, done.stderr
    assert "data?disk/durability/backup is mounted, and stays with its files\n" in done.stderr


@pytest.mark.parametrize("is_dangling", [False, True])
def test_a_purge_of_a_link_says_what_stays(is_dangling: bool, tmp_path: Path) -> None:
    """If the store's directory is a link, a purge removes only the link, and says where the evidence still
    lies."""
    store, kept = tmp_path / "durability", tmp_path / "srv/store"
    if not is_dangling:
        kept.mkdir(parents=True)
        (kept / "server.sqlite").touch()
    store.symlink_to("srv/store")
    script = _of_directories("postrm", tmp_path / "none", store, tmp_path / "etc")
    done = subprocess.run(["sh", "-c", script, "postrm", "purge"], check=True, capture_output=True, text=True)
    assert not store.is_symlink()
    assert f"durability: {store} was a link; what lies in {kept} stays\n" in done.stderr
    assert (kept / "server.sqlite").exists() == (not is_dangling)


def _of_directories(name: str, systemd: Path, store: Path, etc: Path) -> str:
    """A script of the package, with these in the place of the system's directories."""
    script = deb.script(ROOT, deb.RELEASES[0], name).replace("/run/systemd/system", str(systemd))
    return script.replace("/var/lib/durability", str(store)).replace("/etc/durability", str(etc))


@pytest.mark.parametrize(("word", "goes"), [("remove", True), ("upgrade", False), ("purge", False)])
def test_what_python_compiled_meanwhile_is_removed(word: str, goes: bool, tmp_path: Path) -> None:
    """A service that did not stop may compile a module after prerm removed such files, which dpkg does not
    know. An upgrade has its new files there by then."""
    compiled = tmp_path / "durability/lib/__pycache__/module.pyc"
    compiled.parent.mkdir(parents=True)
    compiled.touch()
    script = deb.script(ROOT, deb.RELEASES[0], "postrm").replace(
        "/usr/lib/durability", str(tmp_path / "durability")
    )
    for place in ("/run/systemd/system", "/var/lib/durability", "/etc/durability"):
        script = script.replace(place, str(tmp_path / "none"))
    _told(script, word, programs=tmp_path)
    assert (tmp_path / "durability").exists() == (not goes)


def test_a_mistake_in_the_servers_options_is_not_tried_again() -> None:
    """systemd restarts a server that crashed, but not one with an error in its options, which must be edited
    first."""
    text = (ROOT / deb.FILES / UNIT).read_text()
    assert "\nRestart=on-failure\n" in text and f"\nRestartPreventExitStatus={EXIT_USAGE}\n" in text


def _told(script: str, *words: str, programs: Path, systemctl: int = 0) -> str:
    """What a script of the package tells the programs of the system, which write it down here. `systemctl`:
    how systemctl ends."""
    for name in ("systemctl", "systemd-sysusers", "python3.11", "sync"):
        ends = systemctl if name == "systemctl" else 0
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >>"{programs}/told"\nexit {ends}\n')
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script, "script", *words], env=environment, check=True, capture_output=True)
    return (programs / "told").read_text() if (programs / "told").exists() else ""


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


def test_the_size_of_a_package(tmp_path: Path) -> None:
    """A file counts in whole KiB. A link and a directory count as 1 KiB each."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "small").write_bytes(b"1")
    (tmp_path / "large").write_bytes(bytes(1025))
    (tmp_path / "link").symlink_to("nowhere")
    assert deb.installed_kb(tmp_path) == 1 + 1 + 1 + 2 + 1


def test_two_places_give_the_same_package(tmp_path: Path) -> None:
    """Packages built on two file systems, from clones of different dates, have the same bytes. Compressed
    files in them name no operating system. The test uses a small environment."""
    require("dpkg-deb")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        made = [_small_package(tmp_path, dated_s=1_500_000_000), _small_package(Path(memory))]
        assert made[0].read_bytes() == made[1].read_bytes()
    subprocess.run(["dpkg-deb", "--raw-extract", made[0], tmp_path / "unpacked"], check=True)
    compressed = [*(tmp_path / "unpacked/usr/share").rglob("*.gz")]
    assert compressed and {file.read_bytes()[9] for file in compressed} == {gzipped.NO_SYSTEM}
    control = subprocess.run(
        ["dpkg-deb", "--info", made[0]], check=True, capture_output=True, text=True
    ).stdout
    assert "Recommends: nvme-cli, smartmontools\n" in control
    (depends,) = re.findall(r"Depends: (.*)\n", control)
    assert {"libgcc-s1", "libstdc++6", "systemd"} <= set(depends.split(", ")), depends


def test_a_package_is_made_of_the_sources_alone(tmp_path: Path) -> None:
    """A package is made of the checked-out sources alone, including the agent's unit; later edits are not in
    it."""
    require("dpkg-deb")
    sources = Sources(tmp_path / "sources", 1_700_000_000)
    for name in ("LICENSE", "durability", "release", "client"):
        place = sources.directory / name
        place.parent.mkdir(exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, place)
    for name in ("debian/durability-server.service", "debian/postinst", "licences/README.txt"):
        with (sources.directory / "release" / name).open("a") as file:
            file.write("# as committed\n")
    unit = sources.directory / "client/durability_client/agent/service.py"
    unit.write_text(unit.read_text().replace("WatchdogSec=120\n", "WatchdogSec=120\n# as committed\n"))
    package = _small_package(tmp_path, sources=sources)
    subprocess.run(["dpkg-deb", "--raw-extract", package, tmp_path / "unpacked"], check=True)
    files = (path for path in (tmp_path / "unpacked").rglob("*") if path.is_file() and not path.is_symlink())
    assert {path.name for path in files if b"# as committed" in path.read_bytes()} == {
        UNIT,
        service.NAME,
        "postinst",
        "copyright",
    }


_SOURCES = Sources(ROOT, 1_700_000_000)


def _small_package(directory: Path, *, dated_s: int | None = None, sources: Sources = _SOURCES) -> Path:
    """The package around an environment of this tool's metadata alone, which is from now or `dated_s`."""
    about = directory / "bundle/durability-0.1.dist-info/METADATA"
    about.parent.mkdir(parents=True)
    about.write_text("Metadata-Version: 2.4\nName: durability\nVersion: 0.1\nLicense-Expression: MIT\n")
    if dated_s is not None:
        os.utime(about, (dated_s, dated_s))
    return deb.make(sources, deb.RELEASES[0], directory / "bundle", directory)


def test_the_server_is_confined(release_machine: None) -> None:
    """systemd rates the exposure of the server's unit below 3 of 10."""
    unit = ROOT / deb.FILES / UNIT
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager", str(unit)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
