"""Whose runs say something of a drive, in `compare`, on its page and beside what is named."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from durability.acceptance.criteria import KINDS
from durability.acceptance.profile import Criterion
from durability.bench.decision.claims import Machine
from durability.bench.decision.proof import Proof
from durability.bench.hashed_serials import hash_serials
from durability.bench.result import Result, encode
from durability.campaign.log_entries import MachineSeen
from durability.errors import EXIT_OK, UsageError
from durability.formats.documents import to_value
from durability.formats.facts import Drive, Facts
from durability_client.acceptance.gather import EvidenceWanted, gather
from durability_client.bench.bench_command import CompareOptions, compare_files
from durability_client.bench.cut_verdicts import found_verdicts, named_verdicts
from durability_server.access.caller import OPERATOR
from tests import sample_facts
from tests.client.bench.test_cut_verdicts import Cut
from tests.core.bench.results import JUDGED, Device, simulate
from tests.core.campaign.told_campaign import condition
from tests.core.campaign.written_log import said, written_log

pytestmark = pytest.mark.slow

OTHER = "aa" * 8  # the id of a client that nobody gave a name
THIRD = "cc" * 8  # of another one
CLEAN = Criterion(kind="clean-cuts", limit=59, cut_class="power", required=True, reason="Because.")
LOG = written_log("c", [[said("durable", run)] for run in range(1, 60)])


@pytest.fixture
async def cut(tmp_path: Path) -> AsyncIterator[Cut]:
    """A server that is stopped at the end."""
    server = Cut(tmp_path)
    yield server
    await server.end()


def _drive(serial: str = "S1", **changes: object) -> Drive:
    return sample_facts.drive(serial=serial, **changes)


def _facts(drive: Drive) -> Facts:
    facts = sample_facts.facts()
    return replace(facts, drives=(drive,), host=replace(facts.host, machine_id="shelf"))


def _result(serial: str = "S1") -> Result:
    return hash_serials(simulate(Device(), cells=JUDGED[:4], facts=_facts(_drive(serial))))


def _text(proof: Proof | None) -> str:
    return "" if proof is None else proof.text


@pytest.mark.parametrize(("verdict", "what"), [("loss", "1 loss"), ("", "1 cut with unknown outcome")])
async def test_what_a_client_whose_runs_do_not_count_knows_keeps_a_drive_from_being_proven(
    cut: Cut, tmp_path: Path, verdict: str, what: str
) -> None:
    """Two clients have runs on one drive, so neither's cuts count and the drive is not proven. The user may
    choose a client with --client. `compare`, with and without a name, and the page give the same answer."""
    cut.clients = {61: OTHER}
    drives = [*[(_drive(), "durable")] * 59, (_drive(wwid="naa.1"), verdict), (_drive(), "durable")]
    endpoint = await cut.begin(drives, LOG)
    cut.change("UPDATE clients SET name = 'lab'")
    text = f"no loss in 59 cuts, but {what} in runs of lab that are left out"
    for found in (
        await found_verdicts(endpoint, [_result()]),
        await named_verdicts(endpoint, ["c"], [_result()]),
    ):
        assert _text(found.proofs[0]) == text
        (note,) = found.notes
        assert note.endswith("and none of them count; choose with --client NAME")
    for client, told in (
        ("lab", "lost data" if verdict else "no loss in 59 cuts, but 1 cut of run"),
        (OTHER, "proven"),
    ):
        for found in (
            await found_verdicts(endpoint, [_result()], [client]),
            await named_verdicts(endpoint, ["c"], [_result()], [client]),
        ):
            assert _text(found.proofs[0]).startswith(told)
    await cut.end()
    assert cut.page_of(_result(), _result("S2")).tiles[0].cuts == text


async def test_the_runs_of_the_machine_that_a_campaign_cut_count(cut: Cut, tmp_path: Path) -> None:
    """Another client has a run on the drive. The loss of the machine's own run counts all the same, as for
    `accept`, on the screen, by name and on the page."""
    cut.clients = {61: OTHER}
    drives = [*[(_drive(), "durable")] * 59, (_drive(wwid="naa.1"), "loss"), (_drive(), "durable")]
    endpoint = await cut.begin(drives, LOG)
    cut.change("UPDATE clients SET name = 'b'")  # the machine of the campaign
    lost = f"lost data in run {60:016x}"
    for found in (
        await found_verdicts(endpoint, [_result()]),
        await named_verdicts(endpoint, ["c"], [_result()]),
    ):
        assert _text(found.proofs[0]) == lost
        assert found.notes[0].endswith("are left out; choose with --client NAME")
    path = tmp_path / "a.json"
    path.write_bytes(encode(_result()))
    (evidence,) = await gather(
        endpoint, EvidenceWanted(campaigns=("c",), results=(str(path),), drive=""), lambda _: None
    )
    assert KINDS["clean-cuts"].look(evidence, CLEAN).word == "refuse"
    await cut.end()
    assert cut.page_of(_result(), _result("S2")).tiles[0].cuts == lost


@pytest.mark.parametrize("old_name", ["b", "other"])
async def test_a_machine_that_was_renamed_counts_and_one_that_has_its_name_now_does_not(
    cut: Cut, old_name: str
) -> None:
    """The campaign's log has the client id of its machine. The loss belongs to that client, not to another
    client with its old name."""
    cut.clients = {61: OTHER, 62: OTHER}
    log = written_log("c", [[said("durable", run)] for run in range(1, 60)], {"d0": condition()})
    drives = [*[(_drive(), "durable")] * 60, (_drive(wwid="naa.1"), "loss"), (_drive(), "durable")]
    known = [
        to_value(replace(one, happening=replace(one.happening, client=OTHER)))
        if isinstance(one.happening, MachineSeen)
        else one
        for one in log
    ]
    endpoint = await cut.begin(drives, known)
    cut.change(
        f"UPDATE clients SET name = '{old_name}'",  # that of the machine, or not
        f"INSERT INTO clients SELECT '{OTHER}', 'renamed', role, x'00', joined, revoked FROM clients",
    )
    for found in (
        await found_verdicts(endpoint, [_result()]),
        await named_verdicts(endpoint, ["c"], [_result()]),
    ):
        assert _text(found.proofs[0]) == f"lost data in run {61:016x}"
    await cut.end()
    assert cut.page_of(_result(), _result("S2")).tiles[0].cuts == f"lost data in run {61:016x}"


def test_the_operators_own_machine_is_known_by_its_name_in_the_campaign() -> None:
    """It has no id, and no client has this name."""
    machine = Machine(name=OPERATOR.name)
    assert machine.is_of("", "") and not machine.is_of(OTHER, "b")


async def test_an_only_client_counts_whatever_machine_a_campaign_cut(cut: Cut) -> None:
    """If only one client claims the drive, its runs count, whatever machine the campaign cut."""
    endpoint = await cut.begin([*[(_drive(), "durable")] * 59, (_drive(wwid="naa.1"), "loss")], LOG)
    cut.change("UPDATE clients SET name = 'lab'")
    for found in (
        await found_verdicts(endpoint, [_result()]),
        await named_verdicts(endpoint, ["c"], [_result()]),
    ):
        assert _text(found.proofs[0]) == f"lost data in run {60:016x}" and found.notes == ()


async def test_compare_takes_a_client_beside_what_is_named(cut: Cut, tmp_path: Path) -> None:
    """The answer takes no drive until the user says whose runs count."""
    cut.clients = {61: OTHER}
    drives = [*[(_drive(), "durable")] * 59, (_drive(wwid="naa.1"), "loss"), (_drive(), "durable")]
    endpoint = await cut.begin(drives, LOG)
    cut.change("UPDATE clients SET name = 'lab'")
    paths = (tmp_path / "a.json", tmp_path / "b.json")
    for path, serial in zip(paths, ("S1", "S2"), strict=True):
        path.write_bytes(encode(_result(serial)))
    for clients, answer in (
        ((), "answer Do not choose yet: "),
        (("lab",), "answer Do not take a: it lost data in run"),
        ((OTHER,), "answer Take a: it is proven in 59 cuts"),
    ):
        options = CompareOptions(paths=paths, verdicts_of=("c",), clients=clients, endpoint=endpoint)
        out = io.StringIO()
        assert await asyncio.to_thread(compare_files, options, out, io.StringIO()) == EXIT_OK
        assert " ".join(out.getvalue().split()).startswith(answer)


async def test_a_client_that_is_named_decides_only_on_drives_on_which_it_has_runs(
    cut: Cut, tmp_path: Path
) -> None:
    """Two clients have runs on S1, so the named client decides there. S2 lost data in a run of its only
    client, which counts whichever client is named."""
    cut.clients = {60: OTHER, 61: THIRD}
    endpoint = await cut.begin([*[(_drive(), "durable")] * 59, (_drive(), ""), (_drive("S2"), "loss")], LOG)
    cut.change("UPDATE clients SET name = 'lab'")
    measured, lost = [_result(), _result("S2")], f"lost data in run {61:016x}"
    open_ = "no loss in 59 cuts, but 1 cut with unknown outcome in runs of aaaaaaaaaaaaaaaa that are left out"
    proven = "proven in 59 cuts"
    for clients, text in (((), open_), (("lab",), proven), ((THIRD, "lab"), proven), ((THIRD,), open_)):
        for found in (
            await found_verdicts(endpoint, measured, clients),
            await named_verdicts(endpoint, ["c"], measured, clients),
        ):
            assert list(map(_text, found.proofs)) == [text, lost]
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, result in zip(paths, measured, strict=True):
        path.write_bytes(encode(result))
    for campaigns in ((), ("c",)):
        wanted = EvidenceWanted(
            campaigns=campaigns, results=tuple(map(str, paths)), drive="", clients=("lab",)
        )
        evidence = await gather(endpoint, wanted, lambda _: None)
        assert [KINDS["clean-cuts"].look(one, CLEAN).word for one in evidence] == ["pass", "refuse"]


@pytest.mark.parametrize("clients", [("typo",), ("lab", "typo"), (THIRD,)])
async def test_a_client_without_a_run_on_any_of_the_drives_is_refused(
    cut: Cut, tmp_path: Path, clients: tuple[str, ...]
) -> None:
    """Its name is a typing error: nothing is decided without the client that was meant."""
    cut.clients = {60: THIRD}
    endpoint = await cut.begin([*[(_drive(), "durable")] * 59, (_drive("S9"), "durable")], LOG)
    cut.change("UPDATE clients SET name = 'lab'")
    path = tmp_path / "a.json"
    path.write_bytes(encode(_result()))
    said = f"--client {clients[-1]}: no run found on these drives is of a client with this id or name"
    for asked in (
        found_verdicts(endpoint, [_result()], clients),
        named_verdicts(endpoint, ["c"], [_result()], clients),
    ):
        with pytest.raises(UsageError, match=said):
            await asked
    for campaigns in ((), ("c",)):
        wanted = EvidenceWanted(campaigns=campaigns, results=(str(path),), drive="", clients=clients)
        with pytest.raises(UsageError, match=f"--client {clients[-1]}: no run and no stored result found"):
            await gather(endpoint, wanted, lambda _: None)


def _on(options: str, wwid: str = "") -> Facts:
    """The drive S1 below a file system with these options."""
    return replace(_facts(_drive(wwid=wwid)), file_system=sample_facts.file_system(options=options))


@pytest.mark.parametrize("barrier_first", [False, True])
@pytest.mark.parametrize("unreadable", [False, True])
async def test_each_set_up_of_a_drive_is_looked_for(cut: Cut, barrier_first: bool, unreadable: bool) -> None:
    """A loss without barriers says nothing about the set-up with barriers, and the reverse. A run that cannot
    be read may belong to either set-up. The order of the results changes nothing, and the page gives the same
    answer."""
    bare, whole = _on("rw,nobarrier"), _on("rw")
    cuts = [(_on("rw", wwid="naa.1"), "loss"), (bare, "loss")]
    endpoint = await cut.begin([*[(whole, "durable")] * 59, *([(bare, "")] if unreadable else cuts)], LOG)
    if unreadable:
        cut.change(f"UPDATE runs SET armed = x'c1' WHERE run = '{60:016x}'")
        unknown = f"1 cut of run {60:016x} with unknown outcome"
        texts = {"rw": f"no loss in 59 cuts, but {unknown}", "rw,nobarrier": "1 cut with unknown outcome"}
    else:
        texts = {"rw": f"lost data in run {60:016x}", "rw,nobarrier": f"lost data in run {61:016x}"}
    order = ("rw", "rw,nobarrier") if barrier_first else ("rw,nobarrier", "rw")
    measured = [hash_serials(simulate(Device(), cells=JUDGED[:4], facts=_on(one))) for one in order]
    expected = [texts[one] for one in order]
    for found in (
        await found_verdicts(endpoint, measured),
        await named_verdicts(endpoint, ["c"], measured),
    ):
        assert list(map(_text, found.proofs)) == expected
    await cut.end()
    assert [one.cuts for one in cut.page_of(*measured).tiles] == expected


async def test_a_loss_of_a_client_that_is_left_out_is_told_before_what_is_unknown(cut: Cut) -> None:
    """The client with the newest run has none with a loss."""
    cut.clients = {60: THIRD, 61: OTHER}
    lost, unknown = (_drive(wwid="naa.1"), "loss"), (_drive(wwid="naa.2"), "")
    endpoint = await cut.begin([*[(_drive(), "durable")] * 59, lost, unknown], LOG)
    cut.change("UPDATE clients SET name = 'b'")
    text = f"no loss in 59 cuts, but 1 loss in runs of {THIRD} that are left out"
    assert _text((await found_verdicts(endpoint, [_result()])).proofs[0]) == text
    await cut.end()
    assert cut.page_of(_result(), _result("S2")).tiles[0].cuts == text


async def test_a_campaign_reduces_the_count_of_what_is_named(cut: Cut) -> None:
    """Its agent was gone before cut 60, so that run speaks against nothing: one cut of another run is left,
    whether the campaign is named, or is found, or a run of its series is named."""
    stopped = replace(said("nothing", 60), cause="agent", text="its run ended before the cut")
    log = written_log("c", [*[[said("durable", run)] for run in range(1, 60)], [stopped]])
    endpoint = await cut.begin([*[(_drive(), "durable")] * 59, (_drive(), ""), (_drive(), "")], log)
    text = f"no loss in 59 cuts, but 1 cut of run {61:016x} with unknown outcome"
    assert _text((await found_verdicts(endpoint, [_result()])).proofs[0]) == text
    assert _text((await named_verdicts(endpoint, ["c"], [_result()])).proofs[0]) == text
    named = await named_verdicts(endpoint, [f"{61:016x}"], [_result()])
    assert _text(named.proofs[0]) == "no loss in 1 cut, 1 other with unknown outcome"


async def test_a_campaign_answers_for_all_cuts_without_an_outcome_of_a_series(cut: Cut) -> None:
    """A named run by hand has the outcome of its series, without the run that the campaign left out. If the
    left-out run itself is named, its outcome stays unknown."""
    stopped = replace(said("nothing", 60), cause="agent", text="its run ended before the cut")
    log = written_log("c", [*[[said("durable", run)] for run in range(1, 60)], [stopped]])
    cuts = [_drive(diskseq=run) for run in range(1, 62)]
    words = [*["durable"] * 59, "", "durable"]
    endpoint = await cut.begin(list(zip(cuts, words, strict=True)), log)
    named = await named_verdicts(endpoint, [f"{61:016x}"], [_result()])
    assert _text(named.proofs[0]) == "proven in 60 cuts"
    named = await named_verdicts(endpoint, [f"{60:016x}"], [_result()])
    assert "with unknown outcome" in _text(named.proofs[0])


@pytest.mark.parametrize("changes", [{"type": "xfs", "options": "rw"}, {"options": "rw,nobarrier"}])
async def test_an_unverified_run_on_another_file_system_voids_the_proof(
    cut: Cut, tmp_path: Path, changes: dict[str, str]
) -> None:
    """An unverified run on another file system keeps the drive from being proven, in `compare` and `accept`.
    On a set-up that sends no flush, it does not count."""
    other = replace(_facts(_drive()), file_system=sample_facts.file_system(**changes))
    endpoint = await cut.begin([*[(_drive(), "durable")] * 59, (other, "")], LOG)
    cut.change("UPDATE clients SET name = 'b'")  # the machine of the campaign, for `accept`
    counts = "type" in changes
    unknown = f"1 cut of run {60:016x} with unknown outcome"
    text = f"no loss in 59 cuts, but {unknown}" if counts else "proven in 59 cuts"
    for found in (
        await found_verdicts(endpoint, [_result()]),
        await named_verdicts(endpoint, ["c"], [_result()]),
    ):
        assert _text(found.proofs[0]) == text
    path = tmp_path / "a.json"
    path.write_bytes(encode(_result()))
    for campaigns in ((), ("c",)):
        wanted = EvidenceWanted(campaigns=campaigns, results=(str(path),), drive="")
        (evidence,) = await gather(endpoint, wanted, lambda _: None)
        assert KINDS["clean-cuts"].look(evidence, CLEAN).word == ("not shown" if counts else "pass")
    await cut.end()
    assert cut.page_of(_result(), _result("S2")).tiles[0].cuts == text
