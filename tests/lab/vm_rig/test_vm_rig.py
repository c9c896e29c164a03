"""Two machines and the plug: a guest with an NVMe drive is cut off, boots again and verifies by itself.

Every cut is of a machine of its own, with a real kernel, NVMe driver and TCP, from which nobody says goodbye.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from durability.errors import EXIT_ENVIRONMENT, EXIT_LOSS, EXIT_OK, EXIT_USAGE
from durability_lab.support.loads import Load
from durability_lab.vm_rig import vm_cycle
from durability_lab.vm_rig.vm_cycle import VmCut
from tests.lab.support.processes import Process, children, wait_until_gone
from tests.places import REFERENCE
from tests.waiting import wait_for

pytestmark = [pytest.mark.usefixtures("guest_machine"), pytest.mark.timeout(900)]

APPEND = Load(file_system="ext4", workload="append")
RAW_DSYNC = Load(sync="dsync", direct=True)
DOCUMENTATION = REFERENCE / "cli.md"
COMMAND = (sys.executable, "-c", "from durability_cli.main import main; main()", "lab", "vm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the command answered."""

    exit_code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """On ext4 the command's cuts of an honest drive and of a liar, and one that is about a file's length; one
    of a raw drive by writes that are each durable."""

    command: Answer
    append: VmCut
    raw_dsync: VmCut

    def of_command(self, drive: str) -> dict[str, Any]:
        """What the command's document says of the cut of that drive."""
        (cut,) = (one for one in json.loads(self.command.out)["cuts"] if one["drive"] == drive)
        return dict(cut)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command kept of what its guests said."""
    return tmp_path_factory.mktemp("vm") / "log"


@pytest.fixture(scope="module")
def cuts(log: Path) -> Cuts:
    """The cuts. The command makes its two beside the others: a guest takes little more than one processor."""
    return asyncio.run(_cuts(log))


async def _cuts(log: Path) -> Cuts:
    seed = random.SystemRandom().getrandbits(31)
    print(f"seed {seed}")
    options = ("honest", "flush-ignored", f"--seed={seed}", "--json", f"--keep-log={log}")
    # The server's files are nothing that a guest sees.
    command = asyncio.create_task(_command(*options, environment={"TMPDIR": "/dev/shm"}))
    async with vm_cycle.site() as site:
        append = await vm_cycle.cut(site, "honest", APPEND, seed=seed + 2, tell=print)
        raw_dsync = await vm_cycle.cut(site, "honest", RAW_DSYNC, seed=seed + 3, tell=print)
    return Cuts(command=await command, append=append, raw_dsync=raw_dsync)


def test_command_judges_both_drives(cuts: Cuts, log: Path) -> None:
    """`durability lab vm` cuts an honest drive and a liar; both verdicts are right, and reported in full."""
    said = log.read_text()
    assert cuts.command.exit_code == EXIT_OK, f"{cuts.command.err}\n{said}"
    document = json.loads(cuts.command.out)
    assert document["as_expected"]
    assert [*document, *document["cuts"][0]] == _documented_keys()
    assert [one["drive"] for one in document["cuts"]] == ["honest", "flush-ignored"]
    assert "the power is cut" in cuts.command.err
    assert said.count("virtualisation qemu") == 2


def test_honest_drive_is_durable_and_the_guest_itself_proves_the_cut(cuts: Cuts, log: Path) -> None:
    """The session ends in silence, the same machine boots again, and records were at risk. This proves the
    cut without an attestation."""
    one = cuts.of_command("honest")
    document, said = one["verify"], log.read_text()
    assert (one["exit_code"], document["verdict"], one["mounted"]) == (EXIT_OK, "durable", True), said
    assert (one["session_end"], one["bus"]) == ("silence", "nvme")
    assert document["cut"]["class"] == "os"
    assert document["cut"]["attested"] is None
    assert any("the same machine has restarted" in proof for proof in document["cut"]["proof"])
    assert document["at_risk"]["ms1000"] > 0
    assert document["acked"] >= one["cut_after"]
    assert document["subject"]["virtualisation"] == "qemu"
    drives = [(drive["name"], drive["write_cache"]) for drive in document["subject"]["drives"]]
    assert drives == [("nvme0n1", "write back")]
    assert (one["broken_records"], one["broken"]) == (0, 0) and one["promised"]
    assert one["as_expected"]


def test_drive_that_ignores_flush_is_loss(cuts: Cuts, log: Path) -> None:
    """Data that the drive acknowledged and dropped are found lost, whether or not the file system mounts."""
    one = cuts.of_command("flush-ignored")
    assert (one["exit_code"], one["verify"]["verdict"]) == (EXIT_LOSS, "loss"), log.read_text()
    assert one["session_end"] == "silence"
    assert one["verify"]["cut"]["class"] == "os"
    assert one["broken_records"] > 0
    assert one["as_expected"]


def test_honest_drive_keeps_what_its_journal_carries(cuts: Cuts) -> None:
    """Where durability hangs on the commit block of the journal, it gets to the drive's media as well."""
    one = cuts.append
    assert (one.exit_code, one.document["verdict"], one.mounted) == (EXIT_OK, "durable", True), _why(one)
    assert one.document["subject"]["drives"][0]["name"] == "sda"
    assert one.document["subject"]["drives"][0]["fua"] is False
    assert one.as_expected


def test_write_that_is_durable_by_itself_is_flushed_on_a_raw_drive(cuts: Cuts) -> None:
    """Though the drive claims FUA, which it drops, the kernel sends a flush after each O_DSYNC write."""
    one = cuts.raw_dsync
    assert (one.exit_code, one.document["verdict"]) == (EXIT_OK, "durable"), _why(one)
    assert one.document["subject"]["path"] == "/dev/nvme0n1"
    assert one.document["at_risk"]["ms1000"] > 0
    (drive,) = one.document["subject"]["drives"]
    assert (drive["name"], drive["fua"]) == ("nvme0n1", True)
    assert one.drive_check.flushes >= sum(one.acked) >= one.cut_after
    assert one.as_expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_nothing_outlives_the_command(number: signal.Signals) -> None:
    """If the command is ended by any signal while a guest runs, the guest, its drive, the server's store and
    all files are removed soon."""
    async with _started("honest") as process:
        programs = await asyncio.to_thread(_wait_for_machine, process.pid)
        directories = _watched(programs)
        os.kill(process.pid, number)
        await process.communicate()
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    kinds = {directory.name.rpartition("-")[0] for directory in directories}
    assert kinds == {"durability-guest", "durability-lab", "durability-vm"}
    await asyncio.to_thread(wait_until_gone, programs, directories)


async def test_what_is_missing_is_exit_5(tmp_path: Path) -> None:
    """A machine without QEMU is told what to install; nothing is started."""
    answer = await _command(environment={"PATH": str(tmp_path)})
    assert (answer.exit_code, answer.out) == (EXIT_ENVIRONMENT, "")
    assert "install" in answer.err
    assert "Seed" not in answer.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("hones",), "no drive model 'hones'"),
        (("filter-honest",), "filter-honest is a filter of nbdkit without a drive log"),
        (("--file-system", "none", "--workload", "rename"), "needs files"),
    ],
)
async def test_what_cannot_be_is_a_usage_error(options: tuple[str, ...], said: str) -> None:
    """A misspelt drive, one that no guest has, and a workload that needs files on a raw device."""
    answer = await _command(*options)
    assert (answer.exit_code, answer.out) == (EXIT_USAGE, "")
    assert said in answer.err


def _why(one: VmCut) -> str:
    """Why the verdict is what it is, and what the guest said."""
    return f"{one.document['reasons']}\n{one.console}"


def _documented_keys() -> list[str]:
    """The keys of the document, then those of a cut in it."""
    section = DOCUMENTATION.read_text().partition("\n### `lab vm --json`\n")[2].partition("\n##")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.M)


async def _command(*options: str, environment: dict[str, str] | None = None) -> Answer:
    async with _started(*options, environment=environment) as process:
        out, err = await process.communicate()
    assert process.returncode is not None
    return Answer(exit_code=process.returncode, out=out.decode(), err=err.decode())


@asynccontextmanager
async def _started(
    *options: str, environment: dict[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command, killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *options,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def _wait_for_machine(parent: int) -> dict[Process, list[str]]:
    """What `parent` has started, once QEMU is among it and none is in the middle of its exec."""

    def machine() -> bool:
        lines = children(parent).values()
        return all(lines) and any(line[0].startswith("qemu") for line in lines)

    wait_for(machine, lambda: children(parent))
    return children(parent)


def _watched(programs: dict[Process, list[str]]) -> set[Path]:
    """The directories that the cleanup processes among these programs watch over."""
    return {Path(line[-1]) for line in programs.values() if "durability-rig-cleanup" in line}
