"""`verify` whole: real files, a real server, runs that were cut, and everything that is no verdict."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import pytest

from durability.errors import (
    EXIT_ENVIRONMENT,
    EXIT_INCONCLUSIVE,
    EXIT_LOSS,
    EXIT_OK,
    NOT_STORED,
    FormatError,
    RefusedError,
    SetupError,
    TargetBusyError,
    TargetError,
    UsageError,
    WrongTargetError,
)
from durability.evidence.document import Outcome
from durability.evidence.identity import identify
from durability.formats.case import Case, case_to_value
from durability.formats.documents import to_json, to_value
from durability.formats.facts import Facts, Host
from durability.formats.plan import MAIN, Plan
from durability.protocol.local_address import socket_name
from durability.protocol.messages import Accepted, Register
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import connect
from durability_client.target.discovery import host_now
from durability_client.target.kernel_storage import KernelStorage
from durability_client.verify.case_source import ServerCaseSource
from durability_client.verify.mount_probe import MountProbe
from durability_client.verify.unmountable import UnmountableStorage
from durability_client.verify.verify_command import VerifyOptions, examine, verify
from durability_server.server import Server
from durability_server.store import evidence_rows
from tests.client.verify.targets import BadStorage, FlickeringStorage, KnownStorage, lay_down, unreadable
from tests.client.verify.verify_lab import ACKED, Ending, Lab
from tests.core.evidence.memory_target import SECTOR, Disk, after_power_loss, make_case, small
from tests.joined import joined
from tests.sample_facts import drive, facts

MakePlan = Callable[..., Plan]
ENVIRONMENT = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
KEYS = """
schema run verdict reasons subject cut acked checked at_risk in_flight in_flight_damaged findings
order_violations collateral unstable loss_window control strength examples duration_s lost requirements
"""

pytestmark = pytest.mark.slow  # each starts a server and a scan


@pytest.fixture
async def lab(tmp_path: Path, make_plan: MakePlan) -> AsyncIterator[Lab]:
    server = Server(store_url=f"sqlite:///{tmp_path / 'store.sqlite'}")
    host, port = await server.start("127.0.0.1", 0, directory=None)
    where = await joined(server, host, port, credential=tmp_path / "credential.json")
    lab = Lab(tmp_path, where, make_plan)
    yield lab
    lab.end()
    await server.stop()


def codes(document: dict[str, Any]) -> list[str]:
    return [reason["code"] for reason in document["reasons"]]


async def test_intact_target_after_a_power_loss_is_durable(lab: Lab) -> None:
    """Everything holds: exit 0, and the server keeps the document that was printed."""
    await lab.run()

    document = await lab.verify()

    assert (document.pop("exit"), document["verdict"]) == (EXIT_OK, "durable")
    assert list(document) == KEYS.split()
    assert document["cut"]["class"] == "power"
    assert (document["acked"], document["checked"], document["at_risk"]["ms1000"]) == (ACKED, 1024, ACKED)
    assert (await lab.shown())["verdicts"] == [document]
    assert not lab.said.getvalue()


async def test_lost_writes_are_a_loss_with_evidence_on_the_server(lab: Lab) -> None:
    """Exit 3; the server gets the bytes that were found, and nothing is written beside the target."""
    await lab.run()
    lab.lose(40, 41, 42)
    before = {path.name for path in lab.directory.iterdir()}

    document = await lab.verify()

    assert (document["exit"], document["verdict"]) == (EXIT_LOSS, "loss")
    assert document["findings"]["lost"] == 3
    assert document["loss_window"]["operations"] == ACKED, "all were acknowledged in one message"
    evidence = (await lab.shown())["evidence"]
    assert [piece["bytes"] for piece in evidence] == [512] * 3
    assert all(piece["name"].startswith("lost ") for piece in evidence)
    assert {path.name for path in lab.directory.iterdir()} == {*before, "target"}


@pytest.mark.parametrize(
    ("workload", "finding"), [("create", "absent"), ("rename", "stale"), ("unlink", "resurrected")]
)
async def test_names_are_judged_as_slots_are(
    lab: Lab, make_plan: MakePlan, workload: str, finding: str
) -> None:
    """An intact directory is durable; what a lost sync of it leaves is a loss, with evidence."""
    lab.plan = small(make_plan, workload=workload, slots=1024, credit=256)
    lab.disk = Disk(lab.plan)
    lab.disk.write_to(0, ACKED)
    await lab.run()
    assert (await lab.verify())["verdict"] == "durable"
    name = f".0.{lab.disk.slot_of(0, 40)}"
    assert lab.storage is not None
    if workload == "create":
        lab.storage.unlink(name)
    else:
        lab.storage.path_of(name).write_bytes(lab.disk.record(0, lab.disk.slot_of(0, 40), 0))

    document = await lab.verify()

    assert (document["exit"], document["findings"][finding]) == (EXIT_LOSS, 1)
    assert document["loss_window"]["operations"] == ACKED
    assert document["examples"][0]["file_suffix"] == name
    (piece,) = (await lab.shown())["evidence"]
    assert piece["bytes"] == (0 if workload == "create" else 1024)


async def test_names_in_a_file_system_that_does_not_mount_are_absent(
    lab: Lab, make_plan: MakePlan, make_loop: Callable[..., Path]
) -> None:
    """`--device`: of a destroyed file system every name that was acknowledged is gone."""
    lab.plan = small(make_plan, workload="rename", slots=1024, credit=256)
    device = make_loop()
    await lab.run(armed=facts_while_mounted(device, lab.directory / "mount"))
    with device.open("r+b") as file:
        file.write(bytes(8 << 20))
    options = VerifyOptions(
        target=None, endpoint=lab.endpoint, run=lab.plan.run, device=device, attest_cut="pulled", json=True
    )
    out = io.StringIO()

    assert await verify(options, out=out) == EXIT_LOSS

    findings = json.loads(out.getvalue())["findings"]
    assert (findings["absent"], findings["truncated"]) == (1024, 2)


async def test_evidence_that_is_refused_keeps_no_verdict_from_the_server(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is stored before the slots as they were found, of which the server keeps only so many bytes;
    what it does not keep is said."""
    monkeypatch.setattr(evidence_rows, "EVIDENCE_BYTES_TOTAL_MAX", 2 * SECTOR)
    await lab.run()
    lab.lose(40, 41, 42)
    document = await lab.verify()
    assert document["exit"] == EXIT_LOSS
    shown = await lab.shown()
    assert (await lab.listed(), len(shown["verdicts"]), len(shown["evidence"])) == ("loss", 1, 2)
    said = lab.said.getvalue()
    assert NOT_STORED not in said
    assert "stored this verdict, but not all of the slots as they were found: 1 of 3 copies: run" in said


async def test_later_pass_never_clears_a_loss(lab: Lab) -> None:
    """A drive that is right on the second look has lost the data all the same (rule 9)."""
    await lab.run()
    lab.lose(40)
    await lab.verify()
    assert lab.storage is not None
    lab.disk.write(0, 40)
    lay_down(lab.disk, lab.directory)

    document = await lab.verify()

    assert (document["exit"], codes(document)) == (EXIT_LOSS, ["earlier-loss"])


@pytest.mark.parametrize(
    ("ending", "now", "attested", "code"),
    [
        ("cut", facts(uptime_s=2000), None, "cut-not-shown"),
        ("cut", facts(uptime_s=2000), "pulled the plug", "attestation-contradicted"),
        ("stop", after_power_loss(), "pulled the plug", "session-stopped"),
    ],
)
async def test_what_is_missing_makes_it_inconclusive(
    lab: Lab, ending: Ending, now: Facts, attested: str | None, code: str
) -> None:
    """Without a cut that met load nothing is shown, whatever the operator says: exit 4."""
    lab.now = now
    await lab.run(ending)

    document = await lab.verify(attest_cut=attested)

    assert document["exit"] == EXIT_INCONCLUSIVE
    assert code in codes(document)


async def test_superseded_run_cannot_lose(lab: Lab, make_plan: MakePlan) -> None:
    """Where a later run overwrote the target, what is gone was not lost by the drive."""
    await lab.run()
    later = Disk(replace(lab.plan, run=77))
    later.write_to(0, ACKED)
    await lab.run(plan=later.plan)
    lab.disk.files = later.files

    document = await lab.verify(run=lab.plan.run)

    assert (document["exit"], document["run"]) == (EXIT_INCONCLUSIVE, f"{lab.plan.run:016x}")
    assert "superseded" in codes(document)
    assert (await lab.verify())["verdict"] == "durable", "the later run itself can be judged"


async def test_run_that_was_registered_and_wrote_nothing_hides_no_loss(lab: Lab) -> None:
    """Its connection was lost before the server accepted it, and both superblocks are the earlier run's."""
    await lab.run()
    lab.lose(40, 41, 42)
    later = replace(lab.plan, run=77)
    connection = await connect(lab.endpoint, "run")
    register = Register(
        run=77, plan=later.encode(), facts=to_value(facts()), secret=bytes(32), label="", force=True
    )
    await connection.request(register, Accepted)
    connection.close()

    document = await lab.verify()
    assert (document["exit"], document["findings"]["lost"]) == (EXIT_LOSS, 3)


async def test_newer_run_is_judged_where_an_older_superblock_is_left(lab: Lab) -> None:
    """Rule 9: losing all of a later run is its loss, and what the earlier run had shown stands."""
    await lab.run()
    assert (await lab.verify())["verdict"] == "durable"
    later = replace(lab.plan, run=77)
    await lab.run(plan=later)

    document = await lab.verify()

    assert (document["exit"], document["run"]) == (EXIT_LOSS, f"{later.run:016x}")
    older = await lab.verify(run=lab.plan.run)
    assert older["exit"] == EXIT_INCONCLUSIVE
    assert f"--run {later.run:016x}" in older["reasons"][0]["text"]
    stands = (await lab.shown())["case"]["verdicts"]
    assert [past["verdict"] for past in stands] == ["durable", "inconclusive"]


async def test_another_clients_run_on_the_target_hides_no_newer_run(
    tmp_path: Path, make_plan: MakePlan
) -> None:
    """An operator who verifies gets the newest run of the client whose superblock is left."""
    server = Server(store_url=f"sqlite:///{tmp_path / 'store.sqlite'}")
    with TemporaryDirectory() as directory:  # short enough for a socket
        host, port = await server.start("127.0.0.1", 0, directory=Path(directory))
        owner = await joined(server, host, port, credential=tmp_path / "owner.json")
        lab = Lab(tmp_path, owner, make_plan)
        await lab.run()
        await lab.run(plan=replace(lab.plan, run=77))
        lab.endpoint = await joined(server, host, port, credential=tmp_path / "other.json")
        await lab.run(plan=replace(lab.plan, run=99))
        lab.endpoint = Endpoint(local=Path(directory) / socket_name(port))
        document = await lab.verify()
        assert (document["exit"], document["run"]) == (EXIT_LOSS, f"{77:016x}")
        await server.stop()


async def test_newer_run_is_not_judged_without_a_serial(lab: Lab) -> None:
    """Nothing shows that the drive with the older superblock is the one of the later run."""
    nameless = facts(drives=(drive(serial=""),))
    await lab.run(armed=nameless)
    await lab.run(plan=replace(lab.plan, run=77), armed=nameless)
    lab.now = replace(lab.now, drives=nameless.drives)

    document = await lab.verify()

    assert (document["exit"], document["run"]) == (EXIT_INCONCLUSIVE, f"{lab.plan.run:016x}")
    assert "superseded" in codes(document)


async def test_export_of_the_newer_run_is_a_loss_where_the_older_one_is_left(lab: Lab) -> None:
    """An export says which runs are older, as the server does; that of the older run says that it is so."""
    await lab.run()
    first, lab.plan = lab.plan, replace(lab.plan, run=77)
    await lab.run()
    newer = await lab.verify(from_export=await lab.export(), endpoint=None)
    lab.plan = first
    older = await lab.verify(from_export=await lab.export(), endpoint=None)

    assert (newer["exit"], newer["run"]) == (EXIT_LOSS, f"{77:016x}")
    assert (older["exit"], "superseded" in codes(older)) == (EXIT_INCONCLUSIVE, True)


async def test_smaller_drive_is_loss(lab: Lab) -> None:
    """Every slot is right, and half of the drive is gone."""
    await lab.run()
    lab.now = replace(lab.now, drives=(drive(diskseq=1, unsafe_shutdowns=4, size_bytes=1 << 39),))

    document = await lab.verify()

    assert (document["exit"], codes(document)) == (EXIT_LOSS, ["device-smaller"])
    assert not any(document["findings"].values())


async def test_missing_file_is_loss_where_the_drive_is_the_runs(lab: Lab) -> None:
    """The server knows the run by drives, place and UUID; the file that is gone was lost."""
    await lab.run()
    lab.disk.files.clear()

    document = await lab.verify()

    assert (document["exit"], document["findings"]["truncated"]) == (EXIT_LOSS, 1024 + 2)


@pytest.mark.parametrize(
    "now", [facts(boot="boot-2", uuid="uuid-2"), facts(boot="boot-2", drives=(drive(serial="S2"),))]
)
async def test_another_target_is_never_a_loss(lab: Lab, now: Facts) -> None:
    """A file system that is not mounted, or another drive: exit 5, and the run is not ended."""
    await lab.run()
    lab.disk.files.clear()
    lab.now = now

    with pytest.raises(WrongTargetError, match="is not the target of run") as caught:
        await lab.verify(run=lab.plan.run)
    line = f"If it no longer mounts: `durability verify --device /dev/sda1 --run {lab.plan.run:016x}`"
    assert line in str(caught.value)

    assert caught.value.exit_code == EXIT_ENVIRONMENT
    assert (await lab.shown())["case"]["state"] != "ended"
    assert not (await lab.shown())["verdicts"]


async def test_volumes_of_one_drive_are_two_targets(lab: Lab) -> None:
    """Names of device mapper change with a boot; a run on one volume is not judged on another one."""

    def volume(letter: str, name: str) -> Facts:
        place: dict[str, Any] = {"path_in_file_system": "", "offset_bytes": None, "volume": f"LVM-{letter}"}
        return facts(kind="device", path=name, file_system=None, **place)

    first = replace(lab.plan, run=0xBB, seed=9)
    disk = Disk(first)
    disk.write_to(0, ACKED)
    lab.lose(5)  # the other volume's loss
    await lab.run(plan=first, armed=volume("b", "/dev/dm-0"))
    await lab.run(armed=volume("a", "/dev/dm-0"))
    (lab.directory / "b").mkdir()
    path = lay_down(disk, lab.directory / "b").path
    after_cut = replace(volume("b", "/dev/dm-0"), host=after_power_loss().host)
    lab.storage = KnownStorage(path, replace(after_cut, drives=after_power_loss().drives))

    document = await lab.verify()
    assert (document["exit"], document["run"]) == (EXIT_OK, f"{first.run:016x}")
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(WrongTargetError, match="the target is on the volume LVM-b, expected LVM-a"):
        await lab.verify(run=lab.plan.run)


async def test_facts_are_as_new_as_the_case(lab: Lab) -> None:
    """The start of this system is counted from the case, however long the drive and the server take."""
    await lab.run()
    storage = KnownStorage(lay_down(lab.disk, lab.directory).path, lab.now)
    took_ns: list[int] = []
    older_ns: list[int] = []

    class LateSource(ServerCaseSource):
        async def open(self, run: int, facts: Facts, *, end: bool) -> Case | None:
            older_ns.append(facts.host.uptime_ns - lab.now.host.uptime_ns)
            began_ns = time.monotonic_ns()
            case = await super().open(run, facts, end=end)
            took_ns.append(time.monotonic_ns() - began_ns)
            return case

    options = VerifyOptions(target=storage.path, endpoint=lab.endpoint)
    await examine(options, storage, LateSource(lab.endpoint), lambda _: None)
    assert older_ns[0] == 0 and older_ns[-1] >= took_ns[0]


async def test_live_run_is_refused(lab: Lab) -> None:
    """A run that goes on is neither ended nor judged."""
    await lab.run("live")

    with pytest.raises(RefusedError, match="is going on") as caught:
        await lab.verify()

    assert (caught.value.code, caught.value.exit_code) == ("run-live", EXIT_ENVIRONMENT)


async def test_target_in_use_is_refused(lab: Lab) -> None:
    """Whoever holds the target's lock keeps it."""
    await lab.run()
    other = KernelStorage(lay_down(lab.disk, lab.directory).path)
    other.lock()

    with pytest.raises(TargetBusyError):
        await lab.verify()
    other.unlock()
    assert (await lab.verify())["verdict"] == "durable", "the lock is given back"
    assert (await lab.verify())["verdict"] == "durable"


async def test_unknown_target_is_refused(lab: Lab) -> None:
    """Neither superblock nor server know a run on it: exit 5."""
    lab.disk.files[MAIN] = bytearray(len(lab.disk.files[MAIN]))

    with pytest.raises(RefusedError) as caught:
        await lab.verify()
    assert caught.value.code == "run-unknown"
    with pytest.raises(SetupError, match="does not know run 000000000000002a"):
        await lab.verify(run=42)


async def test_without_a_server_log_it_is_never_durable(lab: Lab) -> None:
    """The plan on the target alone: intact is inconclusive, a hole before newer writes is a loss."""
    document = await lab.verify()

    assert (document["exit"], codes(document)[0]) == (EXIT_INCONCLUSIVE, "no-server-log")

    lab.lose(40)
    lay_down(lab.disk, lab.directory)
    assert (await lab.verify())["exit"] == EXIT_LOSS


async def test_export_is_judged_as_the_server_is(lab: Lab) -> None:
    """`--from-export` comes to the same verdict without the server, and keeps nothing there."""
    await lab.run()
    export = await lab.export()

    document = await lab.verify(from_export=export, endpoint=None)

    assert (document["exit"], document["acked"]) == (EXIT_OK, ACKED)
    assert not (await lab.shown())["verdicts"]


async def test_export_of_something_else_is_refused(lab: Lab, make_plan: MakePlan) -> None:
    """Another run's export, another file, and no file at all each say what they are."""
    path = lab.directory / "export.json"
    options = {"from_export": path, "endpoint": None}
    with pytest.raises(SetupError, match="cannot read the export"):
        await lab.verify(**options)
    path.write_text("{}")
    with pytest.raises(FormatError, match=r"export\.json: .*not an export of a run"):
        await lab.verify(**options)
    path.write_text("no JSON at all")
    with pytest.raises(FormatError, match=r"export\.json: not JSON"):
        await lab.verify(**options)
    path.write_text(to_json(case_to_value(make_case(lab.plan, (ACKED,)))))
    with pytest.raises(SetupError, match="was asked for"):
        await lab.verify(**options, run=42)


async def test_drive_that_never_answers_is_inconclusive(lab: Lab) -> None:
    """Not even the superblocks can be read: known by its drive, judged unfinished, not lost (rule 10)."""

    def children() -> set[str]:
        return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())

    class SilentStorage(KnownStorage):
        def facts(self) -> Facts:
            for child in children() - elders:
                os.kill(int(child), signal.SIGSTOP)  # as silent as a process that waits for its drive
            return super().facts()

    await lab.run()
    elders = (
        children()
    )  # begun by other tests: a helper of multiprocessing that is stopped hangs the next one
    lab.storage = SilentStorage(lay_down(lab.disk, lab.directory).path, lab.now)

    document = await lab.verify(stall_s=1.0)

    assert document["exit"] == EXIT_INCONCLUSIVE
    assert codes(document)[:2] == ["scan-unfinished", "nothing-checked"]


async def test_page_and_junit(lab: Lab) -> None:
    """Without --json people get the page; --junit writes a report beside it."""
    await lab.run()
    lab.lose(40)

    answer = await lab.verify(json=False, junit=lab.directory / "report.xml")

    assert answer["page"].startswith("LOSS: 1 acknowledged operation is lost\n")
    assert "bench 4" in answer["page"]
    suite = ElementTree.parse(lab.directory / "report.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("errors")) == ("2", "0")


async def test_a_report_that_cannot_be_written_changes_no_verdict(lab: Lab) -> None:
    """A loss must not end as an error of the environment because of a mistyped --junit."""
    await lab.run()
    lab.lose(40)

    answer = await lab.verify(junit=lab.directory / "missing" / "report.xml")

    assert (answer["exit"], answer["verdict"]) == (3, "loss")
    assert "a JUnit report cannot be written there" in lab.said.getvalue()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": Path("/dev/null")}, "--device needs --run"),
        ({"cut_class": "vm"}, "--cut-class needs --attest-cut TEXT"),
    ],
)
async def test_options_that_contradict_each_other_are_refused(
    lab: Lab, options: dict[str, Any], message: str
) -> None:
    """A usage error comes before anything is looked at."""
    with pytest.raises(UsageError, match=message):
        await lab.verify(**options)


async def test_target_must_be_named(lab: Lab) -> None:
    """Without TARGET and --device there is nothing to look at."""
    with pytest.raises(UsageError, match="name the TARGET"):
        await verify(VerifyOptions(target=None, endpoint=lab.endpoint))


async def test_mount_without_replay_is_refused(lab: Lab) -> None:
    """What was synced may be in the log alone: exit 5 and how to mount, and the run is not judged."""
    await lab.run()
    lab.lose(40)
    for kind, options in (("ext4", "ro,norecovery"), ("btrfs", "ro,rescue=usebackuproot:nologreplay")):
        found = lab.now.file_system
        assert found is not None
        lab.storage = None
        mounted = replace(lab.now, file_system=replace(found, type=kind, options=options))
        lab.storage = KnownStorage(lay_down(lab.disk, lab.directory).path, mounted)
        with pytest.raises(TargetError, match=r"mount -o ro /dev/sda1 /mnt") as refused:
            await lab.verify()
        assert refused.value.exit_code == EXIT_ENVIRONMENT
        line = f"`durability verify --device /dev/sda1 --run {lab.plan.run:016x}`"
        assert line in str(refused.value)
    assert not (await lab.shown())["verdicts"]


async def test_unstable_pass_is_never_cleared(lab: Lab) -> None:
    """A slot that was wrong once, and right on every later look, is no pass: exit 4 for good."""
    await lab.run()
    path = lay_down(lab.disk, lab.directory).path
    offset = lab.disk.versions.place(0, lab.disk.slot_of(0, 40))[1]
    lab.storage = FlickeringStorage(path, lab.now, {offset: 1})
    assert codes(await lab.verify()) == ["unstable"]
    lab.storage = KnownStorage(path, lab.now)

    document = await lab.verify()

    assert (document["exit"], document["unstable"]) == (EXIT_INCONCLUSIVE, 0)
    assert codes(document) == ["earlier-unstable"]


async def test_unreadable_slots_are_withdrawn_by_a_pass_that_reads_them(lab: Lab) -> None:
    """A loss by I/O errors alone stands until a pass reads everything; that pass says so, and is listed."""
    await lab.run()
    path = lay_down(lab.disk, lab.directory).path
    offset = lab.disk.versions.place(0, lab.disk.slot_of(0, 40))[1]
    lab.storage = BadStorage(path, lab.now, unreadable(offset))
    document = await lab.verify()
    assert (document["exit"], codes(document)) == (EXIT_LOSS, ["findings", "unreadable-only"])
    assert await lab.listed() == "loss"
    lab.storage = KnownStorage(path, lab.now)

    for _ in range(2):
        document = await lab.verify()

        assert (document["exit"], codes(document)) == (EXIT_OK, ["loss-withdrawn"])
        assert await lab.listed() == "durable"


async def test_device_that_loses_its_capacity_before_it_is_read_is_no_loss(
    lab: Lab, make_plan: MakePlan, make_loop: Callable[..., Path]
) -> None:
    """A drive drops off once it has been recognised: unfinished, and the next pass may still be durable."""
    device = make_loop(2 << 20)
    backing = backing_of(device)
    lab.plan = small(make_plan, target_kind="device", slots=1024, credit=256)
    lab.disk = Disk(lab.plan)
    lab.disk.write_to(0, ACKED)
    content = bytes(lab.disk.files[MAIN])
    content += bytes((2 << 20) - len(content))
    device.write_bytes(content)
    await lab.run(armed=KernelStorage(device).facts())

    def resize(size_bytes: int) -> None:
        os.truncate(backing, size_bytes)
        subprocess.run(["losetup", "--set-capacity", device], check=True, env=ENVIRONMENT)

    class DroppingSource(ServerCaseSource):
        async def open(self, run: int, facts: Facts, *, end: bool) -> Case | None:
            if end:
                resize(0)
            return await super().open(run, facts, end=end)

    async def examined(source: ServerCaseSource) -> Outcome:
        options = VerifyOptions(target=device, endpoint=lab.endpoint)
        outcome = await examine(options, KernelStorage(device), source, lambda _: None)
        await source.close(lab.plan.run, outcome.document(), outcome.examples)
        return outcome

    outcome = await examined(DroppingSource(lab.endpoint))
    assert (outcome.verdict.word, outcome.report.finished) == ("inconclusive", False)
    assert not outcome.report.findings
    resize(2 << 20)
    with device.open("r+b") as file:
        file.write(content)
    outcome = await examined(ServerCaseSource(lab.endpoint))
    assert (outcome.report.finished, outcome.report.checked) == (True, 1024)
    assert [reason.code for reason in outcome.verdict.reasons] == ["cut-not-shown"]


def backing_of(device: Path) -> str:
    """The file under a loop device."""
    return Path(f"/sys/block/{device.name}/loop/backing_file").read_text().strip()


async def verify_device(lab: Lab, device: Path) -> int:
    options = VerifyOptions(
        target=None, endpoint=lab.endpoint, run=lab.plan.run, device=device, attest_cut="pulled", json=True
    )
    out = io.StringIO()
    code = await verify(options, out=out)
    assert json.loads(out.getvalue())["findings"]["truncated"] == 1024 + 2
    return code


def facts_while_mounted(device: Path, directory: Path) -> Facts:
    """The facts of a target in a new file system on `device`, which is unmounted again."""
    directory.mkdir()
    for command in (["mkfs.ext4", "-q", str(device)], ["mount", str(device), str(directory)]):
        subprocess.run(command, check=True, env=ENVIRONMENT)
    known = KernelStorage(directory / "target").facts()
    subprocess.run(["umount", directory], check=True, env=ENVIRONMENT)
    return known


async def test_file_system_that_does_not_mount_is_loss(lab: Lab, make_loop: Callable[..., Path]) -> None:
    """`--device`: a destroyed file system is loss on the run's own drive, and exit 5 on another one."""
    device = make_loop()
    await lab.run(armed=facts_while_mounted(device, lab.directory / "mount"))
    with pytest.raises(TargetError, match="mount it, and verify the target at its path"):
        await verify_device(lab, device)
    with pytest.raises(WrongTargetError, match="the drives are"):
        await verify_device(lab, make_loop())
    with device.open("r+b") as file:
        file.write(bytes(8 << 20))

    assert await verify_device(lab, device) == EXIT_LOSS


def system(*command: str | Path) -> None:
    """Run a program of the system."""
    subprocess.run(command, check=True, env=ENVIRONMENT)


async def run_in_file_system(lab: Lab, device: Path) -> Path:
    """Make a run on a new file system of `device`, on which its target lies; the path while it is mounted."""
    directory = lab.directory / "mount"
    armed = facts_while_mounted(device, directory)
    system("mount", device, directory)
    target = lay_down(lab.disk, directory).path
    system("umount", directory)
    await lab.run(armed=armed)
    return target


async def verdict_of_device(lab: Lab, device: Path) -> tuple[str, list[str]]:
    """The word and the reasons of `verify --device`."""
    options = VerifyOptions(
        target=None, endpoint=lab.endpoint, run=lab.plan.run, device=device, attest_cut="pulled", json=True
    )
    out = io.StringIO()
    await verify(options, out=out, err=lab.said)
    document = json.loads(out.getvalue())
    return document["verdict"], codes(document)


async def verdict_once_mounted(lab: Lab, device: Path, target: Path) -> list[str]:
    """The reasons of `verify` on the target, where the file system mounts again."""
    system("mount", device, target.parent)
    try:
        options = VerifyOptions(target=target, endpoint=lab.endpoint, run=lab.plan.run, json=True)
        out = io.StringIO()
        await verify(options, out=out, err=lab.said)
    finally:
        system("umount", target.parent)
    document = json.loads(out.getvalue())
    assert not any(document["findings"].values())
    return codes(document)


@pytest.mark.parametrize("resized", [False, True])
async def test_device_that_dies_while_it_is_probed_is_no_loss(
    lab: Lab, make_loop: Callable[..., Path], resized: bool
) -> None:
    """`--device`: a drive without power fails blkid and mount, and may show no capacity any more."""
    device = make_loop()
    target = await run_in_file_system(lab, device)
    backing = backing_of(device)
    kept = read_and_cut(backing, 0)
    if resized:
        system("losetup", "--set-capacity", device)

    word, reasons = await verdict_of_device(lab, device)

    assert word == "inconclusive"
    assert "scan-unfinished" in reasons
    put_back(backing, kept)
    system("losetup", "--set-capacity", device)
    assert await verdict_once_mounted(lab, device, target) == ["cut-not-shown"]


async def test_file_system_that_does_not_mount_for_io_errors_may_be_withdrawn(
    lab: Lab, make_loop: Callable[..., Path]
) -> None:
    """`--device`: a part of the device cannot be read. It is a loss, until a pass reads everything."""
    device = make_loop()
    target = await run_in_file_system(lab, device)
    backing = backing_of(device)
    kept = read_and_cut(backing, 8 << 20)

    assert await verdict_of_device(lab, device) == ("loss", ["findings", "unreadable-only"])

    put_back(backing, kept)
    assert await verdict_once_mounted(lab, device, target) == ["cut-not-shown", "loss-withdrawn"]


def read_and_cut(backing: str, size_bytes: int) -> bytes:
    """What the file under a loop device holds; beyond `size_bytes` the device gives EIO from now on."""
    os.sync()
    kept = Path(backing).read_bytes()
    os.truncate(backing, size_bytes)
    Path("/proc/sys/vm/drop_caches").write_text("1")
    return kept


def put_back(backing: str, kept: bytes) -> None:
    """The device can be read again, and is as it was."""
    Path(backing).write_bytes(kept)
    Path("/proc/sys/vm/drop_caches").write_text("1")


async def test_wiped_device_on_layers_is_not_recognised(lab: Lab) -> None:
    """`--device`: without a UUID, and through layers, another volume of the same drives looks the same."""
    case = make_case(lab.plan, (ACKED,), armed=facts(offset_bytes=None))
    probe = MountProbe(type="", uuid="", mounts=False, text="no file system is recognised on /dev/dm-1")
    storage = UnmountableStorage(Path("/dev/dm-1"), probe)

    with pytest.raises(WrongTargetError, match="shows that it is the device of run"):
        storage.facts_as_target_of(case, facts(kind="device", file_system=None, offset_bytes=None))

    volume: dict[str, Any] = {"offset_bytes": None, "volume": "LVM-a"}
    case = make_case(lab.plan, (ACKED,), armed=facts(**volume))
    found = storage.facts_as_target_of(case, facts(kind="device", file_system=None, **volume))
    assert identify(case, found, ()).by == "hardware"


WITH_LOG = (drive(), drive(name="sdb", serial="LOG"))


@pytest.mark.parametrize(
    ("armed", "recognised"),
    [
        ({"drives": WITH_LOG}, True),
        ({"drives": (drive(),)}, True),
        ({"drives": WITH_LOG, "offset_bytes": 0}, False),
        ({"drives": WITH_LOG, "offset_bytes": None}, False),
        ({"drives": WITH_LOG[1:]}, False),
    ],
)
async def test_wiped_device_is_recognised_without_the_drive_of_its_log(
    lab: Lab, armed: dict[str, Any], *, recognised: bool
) -> None:
    """`--device`: a file system without a superblock names no external log. Its own place must be known."""
    case = make_case(lab.plan, (ACKED,), armed=facts(**armed))
    probe = MountProbe(type="", uuid="", mounts=False, text="no file system is recognised on /dev/sda1")
    storage = UnmountableStorage(Path("/dev/sda1"), probe)
    device = facts(kind="device", file_system=None)
    if not recognised and armed["drives"] == WITH_LOG:
        with pytest.raises(WrongTargetError, match="started at"):
            storage.facts_as_target_of(case, device)
        return
    identity = identify(case, storage.facts_as_target_of(case, device), ())
    assert (identity.by, identity.missing) == ("hardware" if recognised else None, ())


REFUSED = MountProbe(type="ext4", uuid="uuid-1", mounts=False, text="ext4 does not mount", refused=True)
DAMAGED = replace(REFUSED, refused=False)


def by_kernel(release: str) -> Host:
    """This machine with a kernel of another release, in the words of `host_now`."""
    now = host_now()
    assert now.kernel == f"Linux {now.release}"
    return replace(now, kernel=now.kernel.replace(platform.release(), release))


@pytest.mark.parametrize(
    ("probe", "armed", "now", "judged"),
    [
        (DAMAGED, "6.12.48+deb13-amd64", "6.1.0-56-amd64", False),
        (DAMAGED, "6.12.48+deb13-amd64", "6.12.30+deb13-amd64", True),
        (DAMAGED, "4.18.0-553.el8", "5.10.0-30-amd64", True),
        (REFUSED, "6.12.48+deb13-amd64", "6.1.0-56-amd64", False),
        (REFUSED, "4.18.0-553.el8", "5.10.0-30-amd64", False),
        (REFUSED, "6.12.48+deb13-amd64", "6.12.48-vendor", False),
        (REFUSED, "6.12.48+deb13-amd64", "6.12.48+deb13-amd64", True),
        (replace(REFUSED, type="", refused=False), "6.12.48+deb13-amd64", "6.1.0-56-amd64", True),
    ],
)
async def test_file_system_that_another_kernel_does_not_mount_is_no_loss(
    lab: Lab, probe: MountProbe, armed: str, now: str, *, judged: bool
) -> None:
    """`--device`: a rescue system's kernel may not know a feature of the file system. If the kernel says that
    it is damaged, an earlier one is not believed; if it only refuses it, none but that of the run is."""
    case = make_case(lab.plan, (ACKED,), armed=facts(host=by_kernel(armed)))
    storage = UnmountableStorage(Path("/dev/sda1"), probe)
    found = facts(kind="device", file_system=None, host=by_kernel(now))
    if judged:
        assert storage.facts_as_target_of(case, found).file_system is not None
        return
    with pytest.raises(TargetError, match=f"Verify on Linux {re.escape(armed)}"):
        storage.facts_as_target_of(case, found)
