"""`make freeze`: keeps a release as later ones meet it, in `tests/artefacts/VERSION`.

    programs.tar.xz   the packages of core, commands, server and client
    store.sqlite.xz   a store with a client, runs, verdicts, evidence and a campaign
    credential.json   that client's
    NAME.target.xz    the target of the run NAME, as it is after the cut
    runs.json         of each run its id, how to judge it, and the verdict of this release
    export.json       one of the runs, exported
    result.json.xz    of `bench --quick`
    frames.json       a frame of each message, as this release sends it

The runs `honest` and `lying` are not verified in the store; their verdicts were given on a copy of it. What
lies here is never changed. Tests of later releases read it, talk to the programs, and judge the runs.
"""

from __future__ import annotations

import json
import lzma
import shutil
import sqlite3
import sys
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from release import sources
from release.programs import Programs, line_of, write_until_silent

ARTEFACTS = sources.ROOT / "tests" / "artefacts"
PACKAGES = ("durability", "cli/durability_cli", "server/durability_server", "client/durability_client")
ATTESTED = ("--attest-cut", "unplugged")
RUNS = {"honest": ATTESTED, "lying": ATTESTED}

_CAMPAIGN = """\
[campaign]
machine = "shelf-3"
[power]
off = "true"
on = "true"
status = "echo off"
cut_class = "os"
[[drive]]
device = "/dev/disk/by-id/none-EXAMPLE"
file_system = "ext4"
"""
_FRAMES = """
import json
from durability.protocol import messages
from tests.core.protocol.conftest import SAMPLES
print(json.dumps({type(one).__name__: messages.encode(one).hex() for one in SAMPLES}, indent=1))
"""


def freeze(tree: str, out: Path, work: Path) -> None:
    """Keep the release that is the commit `tree` in a new directory of `out`."""
    made = sources.check_out(work / "sources", tree, before_its_tag=True)
    kept = out / made.version
    kept.mkdir(parents=True)
    code = work / "code"
    for package in PACKAGES:
        shutil.copytree(
            made.directory / package,
            code / Path(package).name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    _pack(code, kept / "programs.tar.xz", dated_s=made.committed_at_s)
    (kept / "frames.json").write_text(made.output(sys.executable, "-c", _FRAMES))
    machines = [Programs(code, work / name) for name in ("server", "client")]
    for machine in machines:
        machine.home.mkdir()
    _fill(kept, *machines)


def _fill(kept: Path, server: Programs, client: Programs) -> None:
    """Use the release as people do, and keep what it leaves."""
    runs: dict[str, Any] = {}
    with server.serving() as running:
        client.join(server, "shelf-3")
        shutil.copy(client.credential, kept / "credential.json")
        client.run("run", client.home / "stopped", "--size", "192K", "--force", "--duration", "1")
        client.run("verify", client.home / "stopped", ends=4)
        for name in RUNS:
            target = client.home / name
            runs[name] = {"run": write_until_silent(client, running, target, label=name)}
        (kept / "export.json").write_text(client.run("export", runs["honest"]["run"]))
        _start_campaign(server)
    _damage(client.home / "lying")
    for name in RUNS:
        (kept / f"{name}.target.xz").write_bytes(lzma.compress((client.home / name).read_bytes()))
    _keep_store(server.store, kept / "store.sqlite.xz")
    with server.serving() as running:
        for name, options in RUNS.items():
            ends = 4 if name == "honest" else 3  # nothing was cut here, whatever is attested
            target = client.home / name
            document = client.json("verify", target, *options, "--server", running.address, ends=ends)
            runs[name] |= {"options": options, "verdict": document}
    (kept / "runs.json").write_text(json.dumps(runs, indent=1))
    result = client.home / "result.json"
    client.run("bench", client.home, "--quick", "--force", "-o", result)
    (kept / "result.json.xz").write_bytes(lzma.compress(result.read_bytes()))
    for file in kept.iterdir():
        file.chmod(0o644)


def _start_campaign(server: Programs) -> None:
    """A campaign whose machine has not come yet."""
    file = server.home / "winter.toml"
    file.write_text(_CAMPAIGN)
    with server.started("campaign", "start", file, "--yes", together=True) as process:
        line_of(process, lambda line: "the check begins" in line)


def _damage(target: Path) -> None:
    """A drive that kept none of the last half: zeros are there, as on a drive that was never written."""
    size = target.stat().st_size
    with target.open("r+b") as opened:
        opened.seek(size - size // 8)
        opened.write(bytes(size // 8))


def _keep_store(store: Path, place: Path) -> None:
    with closing(sqlite3.connect(store)) as database:  # its log becomes part of it
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    place.write_bytes(lzma.compress(store.read_bytes()))


def _pack(code: Path, place: Path, *, dated_s: int) -> None:
    """The same bytes for the same commit."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime, member.uid, member.gid, member.uname, member.gname = dated_s, 0, 0, "", ""
        return member

    with tarfile.open(place, "w:xz") as tar:
        for file in sorted(code.rglob("*")):
            if file.is_file():
                tar.add(file, file.relative_to(code), filter=plain)


def main() -> None:
    """`python -m release.freeze [COMMIT]`."""
    with tempfile.TemporaryDirectory(prefix="durability-freeze-") as directory:
        freeze(sys.argv[1] if len(sys.argv) > 1 else "HEAD", ARTEFACTS, Path(directory))


if __name__ == "__main__":
    main()
