"""The container image: its layout, and its server as a runtime starts it, from packages to verdict."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from release import container, gzipped
from release.programs import Programs, Server, line_of, write_until_silent
from tests.places import ROOT
from tests.release.conftest import require
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def parts(image: Path) -> tuple[dict[str, bytes], dict[str, Any], bytes]:
    """The files of an archive, its configuration and the tar archive of its layer, found as runtimes do."""
    with tarfile.open(image) as tar:
        files = {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]  # only files
    (listed,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(files, listed))
    (layer,) = manifest["layers"]
    return files, json.loads(blob(files, manifest["config"])), gzip.decompress(blob(files, layer))


def blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    algorithm, _, digest = descriptor["digest"].partition(":")
    content = files[f"blobs/{algorithm}/{digest}"]
    assert len(content) == descriptor["size"] and hashlib.sha256(content).hexdigest() == digest
    return content


def test_the_layout(tmp_path: Path) -> None:
    """The image names its parts by checksum, and has a user, a volume, a port and a health check. The same
    files give the same bytes with any Python."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("file"))
    for name in ("one", "two"):
        container.write_image(packed.getvalue(), "0.1", tmp_path / name, dated_s=1_000_000_000)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    files, config, layer = parts(tmp_path / "one")
    assert layer == packed.getvalue()
    (compressed,) = (content for content in files.values() if content.startswith(b"\x1f\x8b"))
    assert compressed[9] == gzipped.NO_SYSTEM
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (listed,) = json.loads(files["manifest.json"])
    assert (
        json.loads(files[listed["Config"]]) == config and gzip.decompress(files[listed["Layers"][0]]) == layer
    )
    assert config["created"] == "2001-09-09T01:46:40Z"
    assert config["config"]["User"].split(":") == [str(container.USER)] * 2 != ["0", "0"]
    assert list(config["config"]["Volumes"]) == [container.STATE]
    assert config["config"]["Healthcheck"]["Test"] == ["CMD", *container.HEALTH]


def test_nothing_of_the_machine_that_builds(tmp_path: Path) -> None:
    """Its name and its name servers, which mmdebstrap copies, are gone; the files are there, for runtimes
    that mount their own over them."""
    (tmp_path / "etc").mkdir()
    for name in ("hostname", "resolv.conf"):
        (tmp_path / "etc" / name).write_text("of the machine that builds")
    subprocess.run(["sh", "-c", container.EMPTIED, "hook", tmp_path], check=True)
    assert {file.name: file.read_text() for file in (tmp_path / "etc").iterdir()} == {
        "hostname": "",
        "resolv.conf": "",
    }


@dataclass(frozen=True)
class Image:
    """An image that lies in `root`, unpacked from `packed`, with its configuration, and a volume."""

    packed: Path
    root: Path
    config: dict[str, Any]
    volume: Path

    @contextmanager
    def started(self, *words: str, network: bool = True) -> Iterator[subprocess.Popen[str]]:
        """The image with these words in place of its own, its files read-only."""
        command = [
            *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--as-pid2", "--read-only"),
            *(() if network else ("--private-network",)),
            *(f"--directory={self.root}", f"--bind={self.volume}:{container.STATE}"),
            *(f"--user={container.USER}", f"--chdir={self.config['WorkingDir']}"),
            *(f"--setenv={setting}" for setting in self.config["Env"]),
            *self.config["Entrypoint"],
            *(words or self.config["Cmd"]),
        ]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    def inside(self, process: subprocess.Popen[str], *words: str) -> subprocess.CompletedProcess[str]:
        """A program within the container that runs, as a runtime executes a health check."""
        namespaces = ("nsenter", "--all", f"--target={children(process.pid)[0]}")
        user = (f"--setuid={container.USER}", f"--setgid={container.USER}")
        return subprocess.run(
            [*namespaces, *user, "env", "-i", *self.config["Env"], *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=200,
        )


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.fixture(scope="module")
def image(root: None, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image that `make release R=container` built, unpacked. Skipped unless DURABILITY_CONTAINER names
    it: to build it takes minutes."""
    if "DURABILITY_CONTAINER" not in os.environ:
        pytest.skip("DURABILITY_CONTAINER=dist/durability-VERSION-container-amd64.tar tests the image")
    require("systemd-nspawn", "nsenter")
    packed = ROOT / os.environ["DURABILITY_CONTAINER"]
    _, config, layer = parts(packed)
    directory = tmp_path_factory.mktemp("image")
    (directory / "root").mkdir()
    subprocess.run(
        [
            "tar",
            "--extract",
            "--numeric-owner",
            "--preserve-permissions",
            f"--directory={directory / 'root'}",
        ],
        input=layer,
        check=True,
    )
    volume = directory / "volume"
    volume.mkdir(mode=0o700)
    os.chown(volume, container.USER, container.USER)
    return Image(packed, directory / "root", config["config"], volume)


def test_its_files(image: Image) -> None:
    """The list beside the image names the packages of Debian within, with their versions; the machine that
    built it left nothing."""
    status = (image.root / "var/lib/dpkg/status").read_text()
    installed = set(re.findall(r"(?m)^Package: (.*)$", status))
    lines = image.packed.with_suffix(".packages.txt").read_text().splitlines()
    assert {line.partition("\t")[0].partition(":")[0] for line in lines} == installed > {"python3"}
    for name in ("hostname", "resolv.conf"):
        assert (image.root / "etc" / name).read_bytes() == b""
    assert not (image.root / "packages").exists()


@pytest.mark.parametrize(
    ("words", "end"),
    [
        ("demo", "Each verdict is the expected one for its drive."),
        ("lab matrix --quick --rig a --only honest --cuts 1 --seed 1", "0 wrong"),
    ],
)
def test_the_simulated_rig(image: Image, words: str, end: str) -> None:
    """The simulated drives run in the image, without rights, a network and a file of its own."""
    with image.started(*words.split(), network=False) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        assert process.wait() == 0, said
    assert end in said


def test_from_the_image_to_a_verdict(image: Image, tmp_path: Path) -> None:
    """The server in the container, a client outside: join, run, verify. The health check passes as long as
    the server answers, and the next container on the volume has the run."""
    client = Programs(None, tmp_path)
    with image.started("serve", "--listen", "127.0.0.1:0") as process:
        running = Server(process, address_of(process))
        check = image.config["Healthcheck"]["Test"][1:]
        assert image.inside(process, *check).returncode == 0
        invited = image.inside(process, "durability", "clients", "invite").stdout
        code = re.search(r"durability join \S+ (\S+)", invited)
        assert code is not None
        client.run("join", running.address, code[1])
        run = write_until_silent(client, running, tmp_path / "target", label="container")
        assert client.json("verify", tmp_path / "target", ends=4)["run"] == run
        (server,) = children(children(process.pid)[0])
        assert f"\nUid:\t{container.USER}" in Path(f"/proc/{server}/status").read_text()
        os.kill(server, signal.SIGSTOP)
        assert image.inside(process, *check).returncode != 0
        os.kill(server, signal.SIGCONT)
        os.kill(server, signal.SIGTERM)
        assert process.wait(60) == 0
    with image.started("serve", "--listen", "127.0.0.1:0") as process:
        address_of(process)
        assert run in image.inside(process, "durability", "runs", "--all").stdout
        process.terminate()
    assert {file.name for file in image.volume.iterdir()} >= {"server.sqlite"}


def address_of(process: subprocess.Popen[str]) -> str:
    """Where a server that begins listens."""
    line = line_of(process, lambda line: line.startswith("Listening on "))
    wait_for(lambda: bool(children(children(process.pid)[0])))
    return line.removeprefix("Listening on ").strip().rstrip(".")
