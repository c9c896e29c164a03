"""This release beside the last one, whose programs, store, runs and files are kept in `tests/artefacts`."""

from __future__ import annotations

import json
import lzma
import re
import shutil
import socket
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durability import releases
from durability.protocol import messages
from durability.protocol.frame import frame
from durability_client.link.credential import load_credential
from durability_client.link.endpoint import short_path
from durability_client.target import discovery
from release.freeze import ARTEFACTS
from release.programs import Programs, line_of, write_until_silent
from tests.client.agent.task_server import by_name

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

KEPT = max(
    (one for one in ARTEFACTS.iterdir() if one.is_dir()), key=lambda one: [*map(int, one.name.split("."))]
)
DURATION = "duration_s"
CAMPAIGN = """\
[campaign]
machine = "shelf-3"
[power]
off = "true"
on = "true"
status = "echo off"
cut_class = "os"
[[drive]]
device = "{device}"
file_system = "ext4"
"""
# The drive of the kept runs in msgpack and in JSON, and the same with serial and firmware exchanged.
KEPT_DRIVE = (
    (b"\xa6serial\xaaoverlayblk\xa8firmware\xa0", b"\xa6serial\xa0\xa8firmware\xaaoverlayblk"),
    (b'"serial":"overlayblk","firmware":""', b'"serial":"","firmware":"overlayblk"'),
)


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the last release."""
    directory = tmp_path_factory.mktemp("last-release")
    with tarfile.open(KEPT / "programs.tar.xz") as tar:
        tar.extractall(directory, filter="data")
    return directory


@pytest.fixture
def last(code: Path, tmp_path: Path) -> Programs:
    """A machine with the last release."""
    return machine(code, tmp_path / "last")


@pytest.fixture
def this(tmp_path: Path) -> Programs:
    """A machine with this release."""
    return machine(None, tmp_path / "this")


def machine(code: Path | None, home: Path) -> Programs:
    home.mkdir()
    return Programs(code, home)


@pytest.fixture
def upgraded(this: Programs) -> Programs:
    """A server's machine that has the store of the last release, and this release."""
    unpack("store.sqlite.xz", this.store)
    shutil.copy(KEPT / "credential.json", this.credential)
    this.credential.chmod(0o600)
    return this


@pytest.fixture(scope="module")
def runs() -> Any:
    """What was kept of the runs of the last release, by name."""
    return json.loads((KEPT / "runs.json").read_text())


def unpack(name: str, place: Path) -> Path:
    """Lay down a kept file. If this machine has the machine id of the kept runs, as machines of one image do,
    the runs get another: else the last release's verdict depends on the moment. Their drive, which is a
    guest's, gets no serial: on another machine the same one would be another drive's."""
    here = discovery.host_now().machine_id.encode()
    data = (KEPT / name).read_bytes()
    if name.endswith(".xz"):
        data = lzma.decompress(data)
    for kept, nameless in KEPT_DRIVE:
        data = data.replace(kept, nameless)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data.replace(here, here[::-1]) if here else data)
    return place


def judgement(document: dict[str, Any]) -> dict[str, Any]:
    """What two programs must say alike of the same run on the same target: all but how long it took, the
    wording of sentences, and the bound, which a drive without a serial no longer has."""
    told = {key: value for key, value in document.items() if key != DURATION}
    return {
        **told,
        "cut": {**told["cut"], "proof": len(told["cut"]["proof"])},
        "reasons": [reason["code"] for reason in told["reasons"]],
        "examples": [{**example, "text": ...} for example in told["examples"]],
        "strength": {**told["strength"], "bound": ...},
    }


def test_the_programs_are_those_of_the_last_release(last: Programs) -> None:
    """The tests below run the kept packages, not the ones of this repository."""
    said = last.run("--version")
    assert said.strip() == f"durability {KEPT.name}"


@pytest.mark.parametrize(("server_is", "client_is"), [("last", "this"), ("this", "last")])
def test_neighbours_talk(request: pytest.FixtureRequest, server_is: str, client_is: str) -> None:
    """A server and a client work together if one of them is of the last release: join, run, verify, list,
    show, export."""
    server: Programs = request.getfixturevalue(server_is)
    client: Programs = request.getfixturevalue(client_is)
    target = client.home / "target"
    with server.serving() as running:
        client.join(server, "shelf-3")
        run = write_until_silent(client, running, target, label="neighbours")
        document = client.json("verify", target, ends=4)
        assert document["run"] == run and document["acked"] > 100 and sum(document["findings"].values()) == 0
        assert run in client.run("runs", "--all")
        assert run in client.run("show", run)
        client.run("export", run, "-o", client.home / "export.json")
        assert (
            client.json("verify", target, "--from-export", client.home / "export.json", ends=4)["run"] == run
        )


def test_runs_made_before_an_upgrade_are_judged_after_it(
    upgraded: Programs, last: Programs, runs: dict[str, Any]
) -> None:
    """The migrated store and this release give the verdicts that the last release gives on the same targets:
    a loss, and none."""
    targets = {name: unpack(f"{name}.target.xz", upgraded.home / name) for name in runs}
    unpack("store.sqlite.xz", last.store)
    shutil.copy(upgraded.credential, last.credential)
    judged: list[dict[str, Any]] = []
    for machine in (last, upgraded):
        with machine.serving() as running:
            where = ("--server", running.address)
            judged.append(
                {
                    name: judgement(
                        machine.json(
                            *("verify", targets[name], *kept["options"], *where),
                            ends=3 if name == "lying" else 4,
                        )
                    )
                    for name, kept in runs.items()
                }
            )
    before, after = judged
    assert after == before
    for name, kept in runs.items():
        for key in ("run", "verdict", "findings", "acked"):
            assert after[name][key] == kept["verdict"][key], (name, key)


def test_all_that_a_store_of_the_last_release_has_is_shown(upgraded: Programs, runs: Any) -> None:
    """The server of a migrated store lists runs, verdicts, clients and campaigns, and says what it did."""
    with upgraded.serving() as running:
        migrated = line_of(running.process, lambda line: "store" in line)
        listed = json.loads(upgraded.operate("runs", "--all", "--json"))["runs"]
        assert {run["run"] for run in listed} > {one["run"] for one in runs.values()}
        assert "inconclusive" in {run["verdict"] for run in listed}
        assert "shelf-3" in upgraded.operate("clients")
        assert "campaign winter" in upgraded.operate("campaign", "show", "winter")
    assert re.search(r"migrated from format \d+ to \d+; \S+\.format-\d+ is a copy of the old store", migrated)


def test_the_last_release_refuses_the_migrated_store(upgraded: Programs, last: Programs) -> None:
    """An older server that is started by mistake changes nothing; with the kept copy it goes on."""
    with upgraded.serving():
        pass
    last.store.parent.mkdir(parents=True)
    shutil.copy(upgraded.store, last.store)
    before = last.store.read_bytes()
    assert "format" in last.run("serve", "--listen", "127.0.0.1:0", ends=5)
    assert last.store.read_bytes() == before
    (copy,) = upgraded.store.parent.glob("*.format-?")
    shutil.copy(copy, last.store)
    with last.serving():
        assert "shelf-3" in last.operate("clients")


def test_an_exported_log_is_judged(this: Programs, last: Programs, runs: Any) -> None:
    """`verify --from-export` gives the verdict that the last release gives."""
    target = unpack("honest.target.xz", this.home / "honest")
    words = ("verify", target, "--from-export", unpack("export.json", this.home / "export.json"))
    before, after = (judgement(machine.json(*words, ends=4)) for machine in (last, this))
    assert after == before and after["run"] == runs["honest"]["run"]


def test_a_result_of_the_last_release_is_compared(this: Programs) -> None:
    """`compare` reads its result file."""
    result = unpack("result.json.xz", this.home / "result.json")
    assert this.operate("compare", result, result)


def test_frames_of_the_last_release_are_read_and_written() -> None:
    """Each message of the last release is decoded, and encoded to the same bytes: a message is never changed,
    a new one is added."""
    frames = json.loads((KEPT / "frames.json").read_text())
    assert len(frames) > 30
    kinds = set()
    for name, body in frames.items():
        message = messages.decode(bytes.fromhex(body))
        kinds.add(type(message))
        assert messages.encode(message).hex() == body, name
    # A class may be named better since: its name does not go over the wire.
    assert len(kinds) == len(frames)


def test_the_credential_of_the_last_release_is_read(upgraded: Programs) -> None:
    """A machine that has joined need not join again."""
    credential = load_credential(upgraded.credential)
    assert credential is not None and credential.name == "shelf-3"


def test_an_agent_of_the_last_release_connects(
    upgraded: Programs, last: Programs, root: None, tmp_path: Path
) -> None:
    """An older agent connects to a newer server with a migrated store, whose campaign looks for drives."""
    shutil.copy(upgraded.credential, last.credential)
    with upgraded.serving() as running:
        words = ("agent", "--server", running.address, "--directory", tmp_path / "agent")
        with last.started(*words, together=True) as agent:
            line_of(agent, lambda line: "connected to the server" in line)
        assert "looking for the drives" in upgraded.operate("campaign", "show", "winter")


@pytest.mark.parametrize(("server_is", "agent_is"), [("this", "last"), ("last", "this")])
def test_neighbouring_agents_do_a_task(
    request: pytest.FixtureRequest, server_is: str, agent_is: str, rig_machine: None, tmp_path: Path
) -> None:
    """An agent does the first task of a campaign, to examine a drive, and the server takes its findings, if
    one of them is of the last release."""
    server: Programs = request.getfixturevalue(server_is)
    with server.serving() as running, drive(tmp_path) as device:
        machine = elsewhere(request.getfixturevalue(agent_is), tmp_path)
        machine.join(server, "shelf-3")
        file = server.home / "autumn.toml"
        file.write_text(CAMPAIGN.format(device=device))
        agent_words = ("agent", "--server", running.address, "--directory", tmp_path / "agent")
        with (
            machine.started(*agent_words, together=True) as agent,
            server.started("campaign", "start", file, "--yes", together=True) as campaign,
        ):
            line_of(agent, lambda line: line == f"{device.name}: done\n")
            line_of(campaign, lambda line: f"{device.name}: examine: done" in line)


@contextmanager
def drive(directory: Path) -> Iterator[Path]:
    """A drive without content, by a name of its own."""
    image = directory / "drive"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    made = subprocess.run(["losetup", "--find", "--show", image], check=True, capture_output=True, text=True)
    device = Path(made.stdout.strip())
    try:
        with by_name(device) as link:
            yield link.path
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def elsewhere(here: Programs, directory: Path) -> Programs:
    """The same commands as on a machine of its own: the server does not cut the power of its own machine."""
    ids = {"/proc/sys/kernel/random/boot_id": str(uuid.uuid4()), "/etc/machine-id": uuid.uuid4().hex}
    mounts = []
    for number, (place, text) in enumerate(ids.items()):
        (directory / f"id{number}").write_text(f"{text}\n")
        mounts.append(f"mount --bind {directory}/id{number} {place}")
    script = f'{"; ".join(mounts)}; exec "$@"'
    return replace(here, starts=("unshare", "--mount", "sh", "-euc", script, "sh", *here.command()))


def test_a_release_that_is_too_far_away_is_refused_on_the_wire(this: Programs) -> None:
    """A server answers a client which speaks other versions, or comes for what it does not know, with the
    line to type; the frames are laid out as in the last release."""
    hello = messages.decode(bytes.fromhex(json.loads((KEPT / "frames.json").read_text())["Hello"]))
    assert isinstance(hello, messages.Hello)
    with this.serving() as running:
        place = this.store.with_name(f"server-{running.address.rpartition(':')[2]}.socket")
        for changed in (replace(hello, versions=(99,)), replace(hello, purpose="web")):
            newer = replace(changed, software="durability 9.1")
            with socket.socket(socket.AF_UNIX) as connection, short_path(place) as path:
                connection.connect(path)
                connection.sendall(frame(messages.encode(newer)))
                answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
            refusal = messages.decode(answer[4:])
            assert isinstance(refusal, messages.Failure) and refusal.code == "version"
            assert releases.upgrade_line("9.1") in refusal.text and "durability 9.1" in refusal.text


def test_every_refusal_names_what_to_upgrade() -> None:
    """The line to type installs the newer of the two releases."""
    line = releases.upgrade_line("9.1")
    assert line in releases.no_common_version("durability 9.1", (9,), (3,))
    assert "server's machine" in releases.no_common_version("durability 9.1", (9,), (3,))
    assert "client's machine" in releases.no_common_version("durability 0.0.1", (1,), (3,))
