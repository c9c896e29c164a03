"""`verify` whole: real files, a real server, runs that were cut, and everything that is no verdict."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from durability.errors import (
    EXIT_ENVIRONMENT,
    EXIT_INCONCLUSIVE,
    EXIT_LOSS,
    EXIT_OK,
    NOT_STORED,
    PERHAPS_NOT_STORED,
    FormatError,
    PeerError,
    RefusedError,
    SetupError,
    TargetError,
    UsageError,
)
from durability.formats.case import case_to_value
from durability.formats.documents import to_json
from durability.formats.facts import Facts
from durability.formats.plan import Plan
from durability.protocol.messages import Evidence, GiveVerdict, Message
from durability_client import queries
from durability_client.link.server_connection import Connection
from durability_client.verify import case_source
from durability_server.store import evidence_rows, store
from tests.client.verify.targets import BadStorage, FlickeringStorage, KnownStorage, lay_down, unreadable
from tests.client.verify.verify_lab import ACKED, Ending, Lab, codes
from tests.core.evidence.memory_target import SECTOR, Disk, after_power_loss, make_case, small
from tests.sample_facts import facts

MakePlan = Callable[..., Plan]
KEYS = """
schema run verdict reasons subject cut acked checked at_risk in_flight in_flight_damaged findings
order_violations collateral unstable loss_window control strength examples duration_s lost requirements
"""
pytestmark = pytest.mark.slow  # each starts a server and a scan


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


async def test_show_tells_what_each_verify_found(lab: Lab) -> None:
    """The boot, the drives, and what was attested: a later verify is judged by them, too."""
    await lab.run()
    await lab.verify()
    await lab.verify(attest_cut="pulled the plug")
    out = io.StringIO()
    await queries.show(lab.endpoint, lab.plan.run, json=False, out=out)
    lines = [line.partition("verify-begins")[2].strip() for line in out.getvalue().splitlines()]
    assert [line for line in lines if line] == [
        "boot boot-2, sda diskseq 1; no cut attested",
        'boot boot-2, sda diskseq 1; attested "pulled the plug"',
    ]


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


async def test_evidence_that_is_refused_keeps_no_verdict_from_the_server(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is stored before its evidence. The server keeps a limited number of evidence bytes, and the
    output says what was not kept."""
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


def lose_answers(monkeypatch: pytest.MonkeyPatch, kind: type[Message], count: int) -> None:
    """The connection ends after the server has stored something of this kind, so many times."""
    request = Connection.request
    left = count

    async def losing(self: Connection, message: Message, answer: type[Any]) -> Any:
        nonlocal left
        given = await request(self, message, answer)
        if isinstance(message, kind) and left:
            left -= 1
            raise PeerError("the answer was lost")
        return given

    monkeypatch.setattr(Connection, "request", losing)
    monkeypatch.setattr(case_source, "_AGAIN_S", 0.0)


@pytest.mark.parametrize("kind", [GiveVerdict, Evidence])
async def test_what_the_server_has_not_confirmed_is_given_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, kind: type[Message]
) -> None:
    """A connection that fails for a moment costs neither the verdict nor the slots as they were found. A
    verdict that is stored twice counts once."""
    lose_answers(monkeypatch, kind, 3)
    await lab.run()
    lab.lose(40, 41, 42)
    document = await lab.verify()
    assert document.pop("exit") == EXIT_LOSS
    shown = await lab.shown()
    assert shown["verdicts"] == [document] * (4 if kind is GiveVerdict else 1)
    assert (await lab.listed(), len(shown["evidence"])) == ("loss", 3)
    (said,) = lab.said.getvalue().splitlines()
    assert said == (
        "waiting up to 60 s for the server, which has not confirmed the verdict: the answer was lost"
    )


async def test_a_server_that_stays_away_has_perhaps_not_stored_the_verdict(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict is printed, its exit code stands, and what to type is said."""
    lose_answers(monkeypatch, GiveVerdict, 1000)
    monkeypatch.setattr(case_source, "WAIT_S", 0.0)
    await lab.run()
    document = await lab.verify()
    assert (document["exit"], document["verdict"]) == (EXIT_OK, "durable")
    _, said = lab.said.getvalue().splitlines()
    assert said == f"warning: {PERHAPS_NOT_STORED}: the answer was lost; then type this `verify` again"


async def test_a_verdict_that_is_refused_is_not_given_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To wait changes nothing; the server's code and words are said at once."""
    await lab.run()
    monkeypatch.setattr(store, "VERDICTS_MAX", 0)
    assert (await lab.verify())["exit"] == EXIT_OK
    (said,) = lab.said.getvalue().splitlines()
    assert said.startswith(f"warning: {NOT_STORED} (bad-request): run ")


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
    """Without a cut that met load, the exit code is 4 even with an attestation."""
    lab.now = now
    await lab.run(ending)

    document = await lab.verify(attest_cut=attested)

    assert document["exit"] == EXIT_INCONCLUSIVE
    assert code in codes(document)


async def test_live_run_is_refused(lab: Lab) -> None:
    """A run that goes on is neither ended nor judged."""
    await lab.run("live")

    with pytest.raises(RefusedError, match="is going on") as caught:
        await lab.verify()

    assert (caught.value.code, caught.value.exit_code) == ("run-live", EXIT_ENVIRONMENT)


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


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("plan", "zz", "plan is not of hexa"),
        ("frontiers", [], "frontiers of 0"),
        ("grants", [1, 2], "of 2 writ"),
    ],
)
async def test_export_that_is_not_whole_is_refused(lab: Lab, key: str, value: object, says: str) -> None:
    """Not taken for a defect of the tool."""
    path = lab.directory / "export.json"
    whole = case_to_value(make_case(lab.plan, (ACKED,)))
    path.write_text(json.dumps({**whole, key: value}))
    with pytest.raises(FormatError, match=says):
        await lab.verify(from_export=path, endpoint=None)


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


async def test_mount_without_replay_is_refused(lab: Lab) -> None:
    """A file system mounted without log replay is refused with exit code 5 and the right mount command,
    because synced data may be only in the log. The run is not judged."""
    await lab.run()
    lab.lose(40)
    found = lab.now.file_system
    assert found is not None
    for kind, options in (("ext4", "ro,norecovery"), ("btrfs", "ro,rescue=usebackuproot:nologreplay")):
        lab.storage = None
        mounted = replace(lab.now, file_system=replace(found, type=kind, options=options))
        lab.storage = KnownStorage(lay_down(lab.disk, lab.directory).path, mounted)
        with pytest.raises(TargetError, match=r"mount -o ro /dev/sda1 /mnt") as refused:
            await lab.verify()
        assert refused.value.exit_code == EXIT_ENVIRONMENT
        line = f"`durability verify --device /dev/sda1 --run {lab.plan.run:016x}`"
        assert line in str(refused.value)
    lab.storage = None
    pool = replace(lab.now, file_system=replace(found, type="zfs", options="ro,xattr", source="tank/t"))
    lab.storage = KnownStorage(lay_down(lab.disk, lab.directory).path, pool)
    with pytest.raises(TargetError, match=r"mount it read-write; a ZFS pool must be imported read-write"):
        await lab.verify()
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
