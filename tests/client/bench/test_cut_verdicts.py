"""Verdicts of cuts for a comparison: found by the drive's serial, or named where it has none."""

from __future__ import annotations

import asyncio
import io
import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from durability import limits
from durability.acceptance.criteria import KINDS
from durability.acceptance.cut_search import NO_CAMPAIGNS
from durability.acceptance.profile import Criterion
from durability.bench.hashed_serials import hash_serials
from durability.bench.kept_result import digest_of, pack_body, summary_of
from durability.bench.result import Result, encode
from durability.campaign.log_entries import Entry
from durability.errors import EXIT_OK, FormatError, UsageError
from durability.formats.documents import to_value
from durability.formats.facts import Drive, Facts
from durability.protocol.local_address import socket_name
from durability_client.acceptance.gather import EvidenceWanted, gather
from durability_client.bench.bench_command import CompareOptions, compare_files
from durability_client.bench.cut_verdicts import found_verdicts, named_verdicts
from durability_client.link.credential import load_credential
from durability_client.link.endpoint import Endpoint
from durability_server.server import Server
from durability_server.store.result_store import NewResult
from durability_server.store.store import Store
from durability_server.web.campaign_watch import CampaignWatch
from durability_server.web.comparisons import ComparisonView, comparison_view
from tests import sample_facts
from tests.core.bench.results import JUDGED, Device, simulate
from tests.core.campaign.told_campaign import condition
from tests.core.campaign.written_log import said, written_log
from tests.joined import joined
from tests.server.conftest import Lab
from tests.server.store.conftest import StoreFixture

_Log: TypeAlias = Sequence[Entry | dict[str, Any]]  # entries, or what other releases wrote

LONG = "S" * (limits.DRIVE_NAME_MAX + 20)


def _facts(drive: Drive, machine: str = "shelf") -> Facts:
    facts = sample_facts.facts()
    return replace(facts, drives=(drive,), host=replace(facts.host, machine_id=machine))


def _result(drive: Drive, machine: str = "shelf") -> Result:
    """A benchmark of that drive, its serial hidden as `bench` hides it."""
    return hash_serials(simulate(Device(), cells=JUDGED[:4], facts=_facts(drive, machine)))


class Cut:
    """A server that has runs on drives. `cuts`: each drive, or target, with its verdict, behind it the codes
    of its reasons, "" if nobody verified it; run 1 is on the first. `planned`: what their plans have;
    `classes`: of the runs' cuts, where they left the drive its power; `clients`: ids of others than the one
    that joined, by the runs that they made; `results`: that it keeps, each with the id of its client, None
    for that one's."""

    def __init__(self, directory: Path) -> None:
        self.planned: dict[str, Any] = {}
        self.classes: dict[int, str] = {}
        self.clients: dict[int, str] = {}
        self.results: list[tuple[Result, str | None]] = []
        self.database = directory / "store.sqlite"
        self._directory = directory
        self._url = f"sqlite:///{self.database}"
        self._credential = directory / "credential.json"
        self._server = Server(store_url=self._url)

    async def begin(self, cuts: Sequence[tuple[Drive | Facts, str]], *logs: _Log) -> Endpoint:
        """The server as a client that made the runs has it, or its operator where it has the logs of
        campaigns: c, then d."""
        host, port = await self._server.start("127.0.0.1", 0, directory=None)
        await joined(self._server, host, port, credential=self._credential)
        await self.end()
        known = load_credential(self._credential)
        assert known is not None
        self._fill(cuts, known.client, logs)
        self._server = Server(store_url=self._url)
        if logs:
            await self._server.start("127.0.0.1", port, directory=self._directory)
            return Endpoint(local=self._directory / socket_name(port))
        await self._server.start("127.0.0.1", port, directory=None)
        return await joined(self._server, host, port, credential=self._credential)

    def _fill(self, cuts: Sequence[tuple[Drive | Facts, str]], client: str, logs: Sequence[_Log]) -> None:
        store = Store(self._url)
        store.open()
        fixture = StoreFixture(store, Lab(self._directory))
        for run, (target, verdict) in enumerate(cuts, 1):
            facts = target if isinstance(target, Facts) else _facts(target)
            owner = self.clients.get(run, client)
            fixture.register(run, facts=facts, force=True, client=owner, **self.planned)
            fixture.arm(run, facts=facts)
            fixture.save(run, session_end="silence")
            if verdict:
                fixture.judge(run, *verdict.split(), cut_class=self.classes.get(run, "power"))
        for name, log in zip("cd", logs, strict=False):
            keep_log(store, log, name)
        for result, keeper in self.results:
            store.results.add(_kept(result, client if keeper is None else keeper))
        store.close()

    def change(self, *statements: str) -> None:
        """Change the store's database behind the server."""
        with closing(sqlite3.connect(self.database, timeout=60)) as database, database:
            for statement in statements:
                database.execute(statement)

    def page_of(self, *results: Result) -> ComparisonView:
        """The comparison of `results` on the page of the server."""
        store = Store(self._url)
        store.open()
        try:
            names = [store.results.add(_kept(result)) for result in results]
            return comparison_view(store, CampaignWatch(store.campaigns), names)
        finally:
            store.close()

    async def end(self) -> None:
        await self._server.stop()


def _kept(result: Result, client: str = "") -> NewResult:
    body = pack_body(result)
    return NewResult(client=client, wall="", summary=summary_of(result), body=body, digest=digest_of(body))


@pytest.fixture
async def cut(tmp_path: Path) -> AsyncIterator[Cut]:
    """A server that is stopped at the end."""
    server = Cut(tmp_path)
    yield server
    await server.end()


def keep_log(store: Store, log: _Log, name: str = "c") -> None:
    """Keep the log of a campaign."""
    for number, entry in enumerate(log, 1):
        value = to_value(entry) if isinstance(entry, Entry) else entry
        if number == 1:
            assert store.campaigns.begin(name, value, number=1, home="", after=store.campaigns.newest())
        else:
            assert store.campaigns.append(name, number, value)


def _drive(serial: str, **changes: Any) -> Drive:
    return sample_facts.drive(serial=serial, **changes)


@pytest.mark.slow
async def test_cuts_are_found_by_the_serial_among_those_of_other_drives(cut: Cut) -> None:
    """A drive whose serial is a part of another's is another drive; one that is longer than listings is
    found all the same."""
    endpoint = await cut.begin(
        [
            (_drive("S1"), "durable"),
            (_drive("S12"), "loss"),
            (_drive(LONG), "loss"),
            (_drive("S3"), "durable"),
        ]
    )
    measured = [_result(_drive(serial)) for serial in ("S1", "S12", LONG, "S4")]
    words = [None if one is None else one.word for one in (await found_verdicts(endpoint, measured)).proofs]
    assert words == ["too few cuts", "lost data", "lost data", None]


@pytest.mark.slow
async def test_cuts_of_another_firmware_or_file_system_prove_nothing(cut: Cut) -> None:
    """They are shown, with what was other; a loss stays one."""
    endpoint = await cut.begin([(_drive("S1"), "durable"), (_drive("S2"), "loss")])
    plain = _result(_drive("S1"))
    assert plain.facts.file_system is not None
    unsafe = replace(plain.facts.file_system, options="rw,nobarrier")
    measured = [
        plain,
        _result(_drive("S1", firmware="2.0")),
        replace(plain, facts=replace(plain.facts, file_system=unsafe)),
        _result(_drive("S2", firmware="2.0")),
    ]
    same, newer, without, lost = (await found_verdicts(endpoint, measured)).proofs
    assert same is not None and same.but == ""
    assert newer is not None and newer.text.startswith("no loss in 1 cut, but of firmware ")
    assert without is not None and without.text == "no loss in 1 cut, but not with nobarrier"
    assert lost is not None and lost.word == "lost data" and "(of firmware " in lost.text


def _on(drive: Drive, **changes: Any) -> Facts:
    """Facts of a file on that drive, its file system changed by keyword."""
    return replace(_facts(drive), file_system=sample_facts.file_system(**changes))


@pytest.mark.slow
async def test_a_loss_without_flushes_hides_no_loss_with_them(cut: Cut) -> None:
    """The newest loss is of a mount without barriers: an older one of the stack that was measured counts."""
    bare = {serial: _on(_drive(serial), options="rw,nobarrier") for serial in ("S1", "S2")}
    endpoint = await cut.begin([(_drive("S1"), "loss"), (bare["S1"], "loss"), (bare["S2"], "loss")])
    both, alone = (await found_verdicts(endpoint, [_result(_drive(one)) for one in ("S1", "S2")])).proofs
    assert both is not None and both.text == f"lost data in run {1:016x}"
    assert alone is not None and alone.word == "too few cuts"
    assert alone.text == f"lost data in run {3:016x}, but with nobarrier"


UNANSWERED = ("", "inconclusive superseded")


@pytest.mark.slow
@pytest.mark.parametrize("verdict", UNANSWERED)
async def test_a_series_without_a_durable_run_is_looked_at(cut: Cut, tmp_path: Path, verdict: str) -> None:
    """A series with only unknown outcomes keeps another series from having a bound. If it is the only series,
    it is reported."""
    other = _drive("S1", wwid="naa.1")  # the same stack, and a series of its own
    endpoint = await cut.begin([(other, verdict), (_drive("S1"), "durable"), (_drive("S2"), verdict)])
    paths = [tmp_path / f"{serial}.json" for serial in ("S1", "S2")]
    for path in paths:
        path.write_bytes(encode(_result(_drive(path.stem))))
    wanted = EvidenceWanted(campaigns=(), results=tuple(map(str, paths)), drive="")
    asked = Criterion(kind="clean-cuts", limit=1, cut_class="power", required=True, reason="It must.")
    both, alone = await gather(endpoint, wanted, lambda _: None)
    assert KINDS["clean-cuts"].look(both, asked).figure == (
        f"1 cut without a loss, but 1 cut of run {1:016x} with unknown outcome, so nothing is bounded"
    )
    assert KINDS["clean-cuts"].look(alone, asked).word == "not shown"
    (proof,) = (await found_verdicts(endpoint, [_result(_drive("S2"))])).proofs
    assert proof is not None and proof.text == "1 cut with unknown outcome"


@pytest.mark.slow
@pytest.mark.parametrize("cut_class", ["os", "vm"])
async def test_a_weaker_cut_answers_for_no_run_without_an_outcome(
    cut: Cut, tmp_path: Path, cut_class: str
) -> None:
    """The series of the run has a clean cut that left the drive its power. The run may have lost data at a
    cut of the power, so it keeps the 59 of another series from proving anything."""
    other = _facts(_drive("S1", wwid="naa.1"))
    clean = _facts(_drive("S1"))
    booted = [replace(clean, host=replace(clean.host, boot_id=f"boot-{n}")) for n in range(59)]
    cut.classes = {1: cut_class}
    endpoint = await cut.begin([(other, "durable"), (other, ""), *((one, "durable") for one in booted)])
    result = _result(_drive("S1"))
    (proof,) = (await found_verdicts(endpoint, [result])).proofs
    assert proof is not None
    assert proof.text == f"no loss in 59 cuts, but 1 cut of run {2:016x} with unknown outcome"
    path = tmp_path / "a.json"
    path.write_bytes(encode(result))
    wanted = EvidenceWanted(campaigns=(), results=(str(path),), drive="")
    (evidence,) = await gather(endpoint, wanted, lambda _: None)
    asked = Criterion(kind="clean-cuts", limit=59, cut_class="power", required=True, reason="It must.")
    assert KINDS["clean-cuts"].look(evidence, asked).figure == (
        f"59 cuts without a loss, but 1 cut of run {2:016x} with unknown outcome, so nothing is bounded"
    )
    for run in (1, 2):  # whichever is named, the cut without an outcome counts
        (proof,) = (await named_verdicts(endpoint, [f"{run:016x}"], [result])).proofs
        assert proof is not None and proof.text == "1 cut with unknown outcome"


@pytest.mark.slow
async def test_cuts_that_sent_no_flush_prove_none(cut: Cut) -> None:
    """A drive with FUA got only that; one without it got flushes after the same writes."""
    cut.planned = {"sync": "dsync", "direct": True}
    drives = (_drive("S1", fua=True), _drive("S2"))
    endpoint = await cut.begin([(drive, "durable") for drive in drives])
    by_fua, by_flush = (await found_verdicts(endpoint, [_result(one) for one in drives])).proofs
    assert by_fua is not None and by_fua.text == "no loss in 1 cut, but by FUA, not by a flush"
    assert by_flush is not None and by_flush.but == ""


@pytest.mark.slow
async def test_acceptance_holds_cuts_against_the_stack_that_was_measured(cut: Cut, tmp_path: Path) -> None:
    """Cuts on ext4, or with another state of the write cache, are told with what was other."""
    off = _drive("S2", write_cache="write through")
    endpoint = await cut.begin([(_drive("S1"), "durable"), (off, "durable"), (_drive("S3"), "durable")])
    stacks = (_on(_drive("S1"), type="xfs"), _facts(_drive("S2")), _facts(_drive("S3")))
    paths = [tmp_path / f"{number}.json" for number in range(len(stacks))]
    for path, facts in zip(paths, stacks, strict=True):
        path.write_bytes(encode(replace(_result(_drive("")), facts=facts)))
    wanted = EvidenceWanted(campaigns=(), results=tuple(map(str, paths)), drive="")
    found = await gather(endpoint, wanted, lambda _: None)
    assert [one.but for of in found for one in of.proofs] == [
        "on ext4, not on xfs",
        "with the write cache off, not on",
        "",
    ]


@pytest.mark.slow
async def test_a_campaign_counts_for_each_stack_that_it_cut(cut: Cut, tmp_path: Path) -> None:
    """The write cache is on until the first power cut only. `compare` and `accept`, by name or not, and the
    page of the server count one cut of what was measured, and say how many were of another stack."""
    on, off = _drive("S1"), _drive("S1", write_cache="write through")
    log = written_log("c", [[said("durable", run)] for run in (1, 2, 3)])
    endpoint = await cut.begin([(on, "durable"), (off, "durable"), (off, "durable")], log)
    text = "no loss in 1 cut, but 2 cuts of campaign c with the write cache off, not on"
    result = _result(on)
    found = (await found_verdicts(endpoint, [result])).proofs
    named = (await named_verdicts(endpoint, ["c"], [result])).proofs
    assert [one and one.text for one in (*found, *named)] == [text, text]
    path = tmp_path / "a.json"
    path.write_bytes(encode(result))
    for campaigns in ((), ("c",)):
        wanted = EvidenceWanted(campaigns=campaigns, results=(str(path),), drive="")
        (evidence,) = await gather(endpoint, wanted, lambda _: None)
        assert [(one.cuts, one.but) for one in evidence.proofs] == [
            (1, ""),
            (2, "with the write cache off, not on"),
        ]
    await cut.end()
    tiles = cut.page_of(result, _result(off)).tiles
    assert [one.cuts for one in tiles] == [
        text,
        "no loss in 2 cuts, but 1 cut of campaign c with the write cache on, not off",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cuts", "verdict", "text"),
    [
        (2, "loss", f"lost data in run {3:016x}"),
        (2, "durable", "no loss in 2 cuts; 59 are needed"),
        (59, "", f"no loss in 59 cuts, but 1 cut of run {60:016x} with unknown outcome"),
    ],
)
async def test_a_named_campaign_hides_nothing_against_its_drive(
    cut: Cut, cuts: int, verdict: str, text: str
) -> None:
    """A later loss or unknown outcome in another series counts beside a named campaign; clean cuts of other
    series do not. `compare` gives the same text without a name."""
    clean = _facts(_drive("S1"))
    booted = [replace(clean, host=replace(clean.host, boot_id=f"boot-{n}")) for n in range(cuts)]
    log = written_log("c", [[said("durable", run)] for run in range(1, cuts + 1)])
    later = _drive("S1", wwid="naa.1")
    endpoint = await cut.begin([*((one, "durable") for one in booted), (later, verdict)], log)
    result = _result(_drive("S1"))
    for found in (await named_verdicts(endpoint, ["c"], [result]), await found_verdicts(endpoint, [result])):
        assert [one and one.text for one in found.proofs] == [text] and found.notes == ()


@pytest.mark.slow
async def test_a_loss_that_is_named_is_the_one_that_is_told(cut: Cut) -> None:
    """The campaign that has its run counted more cuts, and lost as much."""
    log = written_log("c", [[said("durable", 1)], [said("loss", 2)]])
    endpoint = await cut.begin([(_drive("S1"), "durable"), (_drive("S1", wwid="naa.1"), "loss")], log)
    (proof,) = (await named_verdicts(endpoint, [f"{2:016x}"], [_result(_drive("S1"))])).proofs
    assert proof is not None and proof.text == f"lost data in run {2:016x}"


@pytest.mark.slow
async def test_a_campaign_that_is_not_named_tells_why_it_left_a_cut_out(cut: Cut) -> None:
    """A campaign that is not named explains a run without an outcome: its agent was gone before the cut. Its
    clean power cut does not count beside the named run, whose cut was of a weaker class."""
    log = written_log("c", [[said("durable", 2)], [replace(said("nothing", 3), cause="agent")]])
    drives = [_drive("S1"), _drive("S1", wwid="naa.1"), _drive("S1", wwid="naa.2")]
    cut.classes = {1: "os"}
    endpoint = await cut.begin(list(zip(drives, ("durable", "durable", ""), strict=True)), log)
    (proof,) = (await named_verdicts(endpoint, [f"{1:016x}"], [_result(_drive("S1"))])).proofs
    assert proof is not None and proof.text == "no loss in 1 cut of class os: the drive kept its power"


@pytest.mark.slow
async def test_a_campaign_that_cannot_be_read_is_named_beside_one_that_was_asked_for(
    cut: Cut, tmp_path: Path
) -> None:
    """It may have lost data: `compare --verdict-of` says so on stderr and in the JSON."""
    log = written_log("c", [[said("durable", 1)]])
    later = [{**to_value(log[0]), "happening": {"kind": "later"}}]
    endpoint = await cut.begin([(_drive("S1"), "durable")], log, later)
    paths = (tmp_path / "a.json", tmp_path / "b.json")
    for path, serial in zip(paths, ("S1", "S2"), strict=True):
        path.write_bytes(encode(_result(_drive(serial))))
    out, err = io.StringIO(), io.StringIO()
    options = CompareOptions(paths=paths, verdicts_of=("c",), endpoint=endpoint, json=True)
    assert await asyncio.to_thread(compare_files, options, out, err) == EXIT_OK
    note = "campaign d cannot be read, and what it says does not count"
    assert note in json.loads(out.getvalue())["warnings"] and err.getvalue() == f"durability: {note}\n"


@pytest.mark.slow
async def test_a_drive_that_was_gone_before_its_first_run_is_on_the_report(cut: Cut, tmp_path: Path) -> None:
    """The check found it, and no cycle after that. By the campaign's name, or by a result of it, its sheet
    refuses."""
    checked = {"d0": condition("S1"), "d1": condition("S2")}
    cycles = [[said("durable", 1), said("nothing", drive="d1")], [said("durable", 2)]]
    endpoint = await cut.begin(
        [(_drive("S1"), "durable"), (_drive("S1"), "durable")], written_log("c", cycles, checked)
    )
    path = tmp_path / "gone.json"
    path.write_bytes(encode(_result(_drive("S2", model="m", size_bytes=10**9))))
    for campaigns, results in ((("c",), ()), ((), (str(path),))):
        wanted = EvidenceWanted(campaigns=campaigns, results=results, drive="")
        found = await gather(endpoint, wanted, lambda _: None)
        assert len(found) == (2 if campaigns else 1)
        assert found[-1].subject.machine.startswith("b (Linux of unknown release)" if campaigns else "")
        asked = Criterion(
            kind="always-there", limit=None, cut_class="power", required=True, reason="It must."
        )
        told = KINDS["always-there"].look(found[-1], asked)
        assert (told.word, told.figure) == ("refuse", "it is gone (cycle 1 of campaign c)")


@pytest.mark.slow
async def test_campaigns_of_drives_without_a_serial_are_joined_if_they_are_named(cut: Cut) -> None:
    """A hypervisor gave two volumes one serial, one after the other: who names neither campaign gets a sheet
    for each."""
    volume = _drive("drive-scsi1", name="sdb", model="QEMU HARDDISK", emulated=True)
    logs = [written_log(name, [[said("durable", run)]]) for run, name in enumerate("cd", 1)]
    endpoint = await cut.begin([(volume, "durable"), (volume, "durable")], *logs)
    for campaigns, sheets in (((), [["c"], ["d"]]), (("c", "d"), [["c", "d"]])):
        wanted = EvidenceWanted(campaigns=campaigns, results=(), drive="drive-scsi1")
        found = await gather(endpoint, wanted, lambda _: None)
        assert [[one.name for one in of.campaigns] for of in found] == sheets


@pytest.mark.slow
async def test_a_drive_without_a_serial_takes_verdicts_that_are_named(cut: Cut) -> None:
    """Nothing is found by itself; the operator's word counts if machine, name, model and size agree."""
    endpoint = await cut.begin([(_drive("", name="vdb", model="Volume"), "durable")])
    same = _result(_drive("", name="vdb", model="Volume"))
    assert (await found_verdicts(endpoint, [same])).proofs == (None,)
    (proof,) = (await named_verdicts(endpoint, [f"{1:016x}"], [same])).proofs
    assert proof is not None and proof.cuts == 1 and proof.source == f"run {1:016x}"
    for other in (
        _result(_drive("", name="vdb", model="Volume"), machine="other"),
        _result(_drive("", name="vdc", model="Volume")),
        _result(_drive("S1", name="vdb", model="Volume")),
    ):
        with pytest.raises(UsageError, match="the results are of"):
            await named_verdicts(endpoint, [f"{1:016x}"], [other])


@pytest.mark.slow
async def test_compare_names_a_campaign_that_it_cannot_read(cut: Cut, tmp_path: Path) -> None:
    """One of a later release may have lost data; what others say still counts. The page and the JSON name it,
    too."""
    log = written_log("c", [[said("durable", 1)]])
    later = [{**to_value(log[0]), "happening": {"kind": "later"}}]
    endpoint = await cut.begin([(_drive("S1"), "durable")], log, later)
    found = await found_verdicts(endpoint, [_result(_drive("S1"))])
    note = "campaign d cannot be read, and what it says does not count"
    assert found.notes == (note,)
    (proof,) = found.proofs
    assert proof is not None and proof.source == "campaign c"
    paths = (tmp_path / "a.json", tmp_path / "b.json")
    for path, serial in zip(paths, ("S1", "S2"), strict=True):
        path.write_bytes(encode(_result(_drive(serial))))
    out, err, page = io.StringIO(), io.StringIO(), tmp_path / "page.html"
    options = CompareOptions(paths=paths, verdicts_of=(), endpoint=endpoint, html=page, json=True)
    assert await asyncio.to_thread(compare_files, options, out, err) == EXIT_OK
    assert note in json.loads(out.getvalue())["warnings"] and note in page.read_text()
    assert err.getvalue() == f"durability: {note}\n"


async def test_a_log_that_cannot_be_read_is_not_taken_for_a_short_one(cut: Cut, tmp_path: Path) -> None:
    """An entry of the second campaign, which has a loss, is damaged while the server runs. `compare` and the
    page name the campaign, `accept` passes nothing that it may refuse, and by name it is an error."""
    logs = [written_log("c", [[said("durable", 1)]]), written_log("d", [[said("loss", 2)]])]
    endpoint = await cut.begin([(_drive("S1"), "durable"), (_drive("S1"), "durable")], *logs)
    result = _result(_drive("S1"))
    (proof,) = (await found_verdicts(endpoint, [result])).proofs
    assert proof is not None and proof.word == "lost data"
    cut.change("UPDATE campaign_entries SET data = x'c1' WHERE campaign = 'd' AND number = 2")
    said_of_it = "campaign d cannot be read, and what it says does not count"
    found = await found_verdicts(endpoint, [result])
    (proof,) = found.proofs
    assert proof is not None and proof.losses == 0 and found.notes == (said_of_it,)
    path = tmp_path / "a.json"
    path.write_bytes(encode(result))
    wanted = EvidenceWanted(campaigns=(), results=(str(path),), drive="")
    (evidence,) = await gather(endpoint, wanted, lambda _: None)
    assert evidence.unfinished == (said_of_it,)
    for asked in (
        named_verdicts(endpoint, ["d"], [result]),
        gather(endpoint, replace(wanted, campaigns=("d",)), lambda _: None),
    ):
        with pytest.raises(FormatError, match="the server cannot read the log of campaign d"):
            await asked
    await cut.end()
    view = cut.page_of(result, _result(_drive("S2")))
    assert (view.tiles[0].cuts, view.notes) == (proof.text, (said_of_it,))


async def test_a_refusal_within_a_search_is_not_taken_for_its_end(cut: Cut) -> None:
    """The second campaign has a loss, of a run that the server cannot show: `compare` names the campaign, as
    the page does."""
    logs = [written_log("c", [[said("durable", 1)]]), written_log("d", [[said("loss", 2)]])]
    endpoint = await cut.begin([(_drive("S1"), "durable"), (_drive("S1"), "loss")], *logs)
    cut.change(
        f"UPDATE runs SET armed = x'c1' WHERE run = '{2:016x}'",
        f"DELETE FROM run_drives WHERE run = '{2:016x}'",  # so that it is not among the single runs
    )
    result = _result(_drive("S1"))
    found = await found_verdicts(endpoint, [result])
    assert found.notes == ("campaign d cannot be read, and what it says does not count",)
    await cut.end()
    assert cut.page_of(result, _result(_drive("S2"))).notes == found.notes


async def test_a_search_goes_on_after_a_run_that_the_server_does_not_give(cut: Cut, tmp_path: Path) -> None:
    """It cannot read one run, and lacks the first one of a campaign. `compare` and `accept` name the former,
    and find what the others say."""
    log = written_log("c", [[said("durable", 2)], [said("durable", 3)]])
    drives = (_drive("S1"), _drive("S2"), _drive("S2"))
    endpoint = await cut.begin([(drive, "durable") for drive in drives], log)
    cut.change(
        f"UPDATE runs SET armed = x'c1' WHERE run = '{1:016x}'", f"DELETE FROM runs WHERE run = '{2:016x}'"
    )
    said_of_it = f"run {1:016x} cannot be read, and what it says does not count"
    results = {serial: _result(_drive(serial)) for serial in ("S1", "S2")}
    found = await found_verdicts(endpoint, tuple(results.values()))
    proof = found.proofs[1]
    assert found.notes == (said_of_it,) and proof is not None and proof.source == "campaign c"
    paths = [tmp_path / f"{serial}.json" for serial in results]
    for path in paths:
        path.write_bytes(encode(results[path.stem]))
    wanted = EvidenceWanted(campaigns=(), results=tuple(map(str, paths)), drive="")
    damaged, other = await gather(endpoint, wanted, lambda _: None)
    assert damaged.unfinished == (said_of_it,) and other.unfinished == ()
    assert [one.name for one in other.campaigns] == ["c"]


@pytest.mark.parametrize("verdict", ["loss", ""])
async def test_a_run_that_cannot_be_read_may_hide_a_loss(cut: Cut, verdict: str) -> None:
    """An unreadable run with a loss or without a verdict may belong to any stack. 60 clean cuts of another
    series then do not prove the drive, as single runs or in a campaign."""
    other, clean = _on(_drive("S1"), type="xfs"), _facts(_drive("S1"))
    booted = [replace(clean, host=replace(clean.host, boot_id=f"boot-{n}")) for n in range(60)]
    log = written_log("c", [[said("durable", run)] for run in range(1, 61)])
    cuts = [*((one, "durable") for one in booted), (other, verdict)]
    result = _result(_drive("S1"))
    on_other = replace(result, facts=other)
    endpoint = await cut.begin(cuts, log)
    lost = 61
    cut.change(f"UPDATE runs SET armed = x'c1' WHERE run = '{lost:016x}'")
    found = await found_verdicts(endpoint, [result])
    await cut.end()
    view = cut.page_of(result, on_other)
    unknown = f"1 cut of run {lost:016x} with unknown outcome"
    assert [one.cuts for one in view.tiles] == [
        f"no loss in 60 cuts, but {unknown}",
        "1 cut with unknown outcome",
    ]
    assert view.notes == (f"run {lost:016x} cannot be read, and what it says does not count",)
    assert [one and one.text for one in found.proofs] == [view.tiles[0].cuts] and found.notes == view.notes
    cut.change("DELETE FROM campaign_entries", "DELETE FROM campaigns")
    view = cut.page_of(result, on_other)
    assert [one.cuts for one in view.tiles] == ["1 cut with unknown outcome"] * 2


@pytest.mark.parametrize("unanswered", [False, True])
async def test_a_clean_run_that_cannot_be_read_is_named(cut: Cut, unanswered: bool) -> None:
    """A clean run that cannot be read is named, and other runs count. If its series has a cut with unknown
    outcome, this cut counts too."""
    other = _drive("S1", wwid="naa.1")  # the same stack, and a series of its own
    more = [(other, "")] if unanswered else []
    await cut.begin([(other, "durable"), (_drive("S1"), "durable"), *more])
    await cut.end()
    cut.change(f"UPDATE runs SET armed = x'c1' WHERE run = '{1:016x}'")
    view = cut.page_of(_result(_drive("S1")), _result(_drive("S2")))
    text = "1 cut with unknown outcome" if unanswered else "no loss in 1 cut; 59 are needed"
    assert view.tiles[0].cuts == text
    assert view.notes == (f"run {1:016x} cannot be read, and what it says does not count",)


@pytest.mark.slow
async def test_compare_says_what_it_cannot_find(cut: Cut, tmp_path: Path) -> None:
    """A line for the drive without a serial, with the option that helps; with the option there is none."""
    endpoint = await cut.begin([(_drive("", name="vdb"), "durable"), (_drive("S1"), "durable")])
    paths = (tmp_path / "a.json", tmp_path / "b.json")
    for path, drive in zip(paths, (_drive("", name="vdb"), _drive("S1")), strict=True):
        path.write_bytes(encode(_result(drive)))

    def compared(*names: str) -> tuple[str, str]:
        out, err = io.StringIO(), io.StringIO()
        options = CompareOptions(paths=paths, verdicts_of=names, endpoint=endpoint)
        assert compare_files(options, out, err) == EXIT_OK
        return out.getvalue(), err.getvalue()

    out, err = await asyncio.to_thread(compared)
    assert err == (
        "durability: a: vdb has no serial of its own, so its cuts cannot be found on the server; name"
        " them with --verdict-of RUN or CAMPAIGN\n"
        f"durability: {NO_CAMPAIGNS}\n"
    )
    first, second = (line for line in out.splitlines() if line[:2] in ("a ", "b "))
    assert first.endswith("no known power cut") and "no loss in 1 cut" in second
    out, err = await asyncio.to_thread(compared, f"{1:016x}", f"{2:016x}")
    assert err == f"durability: {NO_CAMPAIGNS}\n" and out.count("no loss in 1 cut") == 2


async def test_a_client_that_may_not_see_campaigns_calls_no_drive_proven(cut: Cut) -> None:
    """59 clean cuts of the client's own runs prove nothing: a campaign may know a loss. The operator sees all
    campaigns."""
    clean = _facts(_drive("S1"))
    cuts = [(replace(clean, host=replace(clean.host, boot_id=f"boot-{n}")), "durable") for n in range(59)]
    client, result = await cut.begin(cuts), _result(_drive("S1"))
    for found in (
        await found_verdicts(client, [result]),
        await named_verdicts(client, [f"{59:016x}"], [result]),
    ):
        assert found.notes == (NO_CAMPAIGNS,)
        assert [one and (one.word, one.text) for one in found.proofs] == [
            ("too few cuts", f"no loss in 59 cuts, but {NO_CAMPAIGNS}")
        ]
    await cut.end()
    tile, _ = cut.page_of(result, _result(_drive("S2"))).tiles
    assert tile.cuts == "proven in 59 cuts"
