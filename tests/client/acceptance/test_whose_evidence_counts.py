"""Whose runs and results `accept` counts, and what campaigns say that nobody named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durability.acceptance.decision import decide_on
from durability.acceptance.drive_evidence import DriveEvidence
from durability.acceptance.profile import Criterion, DecisionWord, Profile
from durability.bench.decision.claims import OPERATOR
from durability.bench.hashed_serials import hash_serials
from durability.bench.result import Result, encode
from durability.campaign.log_entries import Cause, DriveCycle, Entry, MachineSeen
from durability.formats.documents import to_value
from durability.formats.facts import Drive
from durability_client.acceptance.gather import EvidenceWanted, gather
from durability_client.bench.cut_verdicts import found_verdicts, named_verdicts
from durability_client.link.endpoint import Endpoint
from tests import sample_facts
from tests.client.bench.test_cut_verdicts import Cut
from tests.core.bench.results import JUDGED, Device, simulate
from tests.core.campaign.told_campaign import condition
from tests.core.campaign.written_log import said, written_log

pytestmark = pytest.mark.slow

OTHER = "aa" * 8  # the id of another client than the one that joined
CLEAN = Criterion(kind="clean-cuts", limit=59, cut_class="power", required=True, reason="Because.")
PROFILE = Profile(name="p", title="P", about="", criteria=(CLEAN,))
CYCLES = [[said("durable", run)] for run in range(1, 60)]
LOG = written_log("c", CYCLES, {"d0": condition("S1")})


def _drive(**changes: Any) -> Drive:
    return sample_facts.drive(serial="S1", **changes)


CLEAN_CUTS = [(_drive(), "durable")] * 59
LOST = (_drive(wwid="naa.1"), "loss")  # in a series of its own


@pytest.fixture
async def cut(tmp_path: Path) -> AsyncIterator[Cut]:
    """A server that is stopped at the end."""
    server = Cut(tmp_path)
    yield server
    await server.end()


def _result(seed: int = 1) -> Result:
    facts = sample_facts.facts()
    facts = replace(facts, drives=(_drive(),), host=replace(facts.host, machine_id="shelf"))
    return hash_serials(simulate(Device(), cells=JUDGED[:4], facts=facts, seed=seed))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A result of the drive."""
    path = tmp_path / "a.json"
    path.write_bytes(encode(_result()))
    return path


def _of_client(log: Sequence[Entry], client: str) -> list[Any]:
    """The log, whose machine was this client."""
    return [
        to_value(replace(one, happening=replace(one.happening, client=client)))
        if isinstance(one.happening, MachineSeen)
        else one
        for one in log
    ]


def _named(client: str, name: str, revoked: str = "") -> str:
    """What makes this a client of the store, beside the one that joined."""
    return f"INSERT INTO clients SELECT '{client}', '{name}', role, x'00', joined, '{revoked}' FROM clients"


async def _gathered(
    endpoint: Endpoint,
    path: Path | None = None,
    campaigns: tuple[str, ...] = (),
    clients: tuple[str, ...] = (),
    drive: str = "",
) -> DriveEvidence:
    results = () if path is None else (str(path),)
    wanted = EvidenceWanted(campaigns=campaigns, results=results, drive=drive, clients=clients)
    (evidence,) = await gather(endpoint, wanted, lambda _: None)
    return evidence


def _decided(evidence: DriveEvidence) -> tuple[DecisionWord, str]:
    decision = decide_on(PROFILE, evidence)
    return decision.word, decision.why


def _nothing(cause: Cause) -> DriveCycle:
    """What a cycle said of a drive that lost its power, and of whose data nobody knows, with the reason."""
    return replace(said("nothing", 61), cut=True, cause=cause, text="so it was")


@pytest.mark.parametrize(
    ("cycle", "verdict", "expected"),
    [
        (
            said("loss", 61),
            "loss",
            ("refuse", "clean-cuts: 1 loss in 2 cuts, first in cycle 2 of campaign d"),
        ),
        (
            _nothing("no-verdict"),
            "",
            (
                "not shown",
                "clean-cuts: 59 cuts without a loss, but 1 cut of campaign d with unknown outcome, so nothing"
                " is bounded",
            ),
        ),
        (_nothing("agent"), "", ("pass", "all 1 required criterion pass")),
        (said("durable", 61), "durable", ("pass", "all 1 required criterion pass")),
    ],
)
async def test_a_campaign_that_is_not_named_hides_nothing_against_the_drive(
    cut: Cut, path: Path, cycle: DriveCycle, verdict: str, expected: tuple[DecisionWord, str]
) -> None:
    """Another campaign on the server cut the same drive on another machine. Its losses and its cuts with
    unknown outcome count; its clean cuts and its cycles with an outside cause do not."""
    cut.clients = {60: OTHER, 61: OTHER}
    log = _of_client(written_log("d", [[said("durable", 60)], [cycle]], {"d0": condition("S1")}), OTHER)
    endpoint = await cut.begin(
        [*CLEAN_CUTS, (_drive(), "durable"), (_drive(wwid="naa.1"), verdict)], LOG, log
    )
    cut.change("UPDATE clients SET name = 'b'", _named(OTHER, "shelf"))
    evidence = await _gathered(endpoint, path, ("c",))
    assert _decided(evidence) == expected
    assert [one.name for one in evidence.campaigns] == ["c"] and evidence.to_verify == ()
    against = [] if expected[0] == "pass" else ["campaign d"]
    assert [one.source for one in evidence.proofs] == ["campaign c", *against]
    (proof,) = (await named_verdicts(endpoint, ["c"], [_result()])).proofs
    words: dict[str, DecisionWord] = {"lost data": "refuse", "proven": "pass", "too few cuts": "not shown"}
    assert proof is not None and words[proof.word] == expected[0]


async def test_a_campaign_that_is_not_named_and_saw_the_drive_fail_counts(cut: Cut, path: Path) -> None:
    """A campaign that is not named refuses a drive that failed with its power on, although the campaign has
    no cut or loss of it."""
    failed = [[said("durable", 60)], [said("nothing")]]
    endpoint = await cut.begin(
        [*CLEAN_CUTS, (_drive(), "durable")], LOG, written_log("d", failed, {"d0": condition("S1")})
    )
    cut.change("UPDATE clients SET name = 'b'")
    evidence = await _gathered(endpoint, path, ("c",))
    assert [[one.name for one in these] for these in (evidence.campaigns, evidence.against)] == [["c"], ["d"]]
    there = Criterion(kind="always-there", limit=None, cut_class="power", required=True, reason="Because.")
    decision = decide_on(replace(PROFILE, criteria=(CLEAN, there)), evidence)
    assert (decision.word, decision.why) == (
        "refuse",
        "always-there: it is gone (cycle 2 of campaign d)",
    )


async def test_a_run_on_another_firmware_is_no_evidence_of_this_one(cut: Cut, path: Path) -> None:
    """A run on an older firmware of the drive is not used as evidence for the firmware that was measured."""
    endpoint = await cut.begin([(_drive(firmware="0.9"), "durable"), (_drive(), "durable")])
    cut.change("UPDATE clients SET name = 'b'")
    evidence = await _gathered(endpoint, path)
    assert {drive.firmware for one in evidence.facts for drive in one.drives} == {_drive().firmware}


async def test_a_campaign_of_another_drive_says_nothing(cut: Cut, path: Path) -> None:
    """A loss in a campaign with another drive on the same server does not count against this drive."""
    log = written_log("d", [[said("loss", 60)]], {"d0": condition("S2")})
    endpoint = await cut.begin([*CLEAN_CUTS, (sample_facts.drive(serial="S2"), "loss")], LOG, log)
    cut.change("UPDATE clients SET name = 'b'")
    assert _decided(await _gathered(endpoint, path, ("c",)))[0] == "pass"


async def test_a_campaign_that_cannot_be_read_may_have_a_loss(cut: Cut, path: Path) -> None:
    """If another campaign cannot be read because it comes from a later release, the named campaign alone does
    not pass."""
    later = [{**to_value(LOG[0]), "happening": {"kind": "later"}}]
    endpoint = await cut.begin(CLEAN_CUTS, LOG, later)
    cut.change("UPDATE clients SET name = 'b'")
    word, why = _decided(await _gathered(endpoint, path, ("c",)))
    assert word == "not shown" and "campaign d cannot be read" in why


@pytest.mark.parametrize("campaigns", [(), ("c",)])
async def test_a_renamed_machine_counts_and_a_namesake_does_not(
    cut: Cut, path: Path, campaigns: tuple[str, ...]
) -> None:
    """A campaign identifies its machine by client id. A loss of that client refuses, also after a rename. A
    loss of another client with its old name gives "not shown", as in `compare`."""
    cut.clients = {60: OTHER, 61: OTHER}
    cuts = [*CLEAN_CUTS, (_drive(), "durable"), LOST, (_drive(wwid="naa.2"), "loss")]
    endpoint = await cut.begin(cuts, _of_client(LOG, OTHER))
    cut.change("UPDATE clients SET name = 'b'", _named(OTHER, "renamed"))
    found = _decided(await _gathered(endpoint, path, campaigns))
    assert found == ("refuse", f"clean-cuts: 1 loss in 1 cut, first in run {61:016x}")
    cut.change(f"DELETE FROM verdicts WHERE run = '{61:016x}'", f"DELETE FROM runs WHERE run = '{61:016x}'")
    word, why = _decided(await _gathered(endpoint, path, campaigns))
    assert (word, why) == (
        "not shown",
        "clean-cuts: 59 cuts without a loss, but 1 loss in runs of b that are left out",
    )
    (proof,) = (await found_verdicts(endpoint, [_result()])).proofs
    assert proof is not None and proof.text == "no loss in 59 cuts, but 1 loss in runs of b that are left out"


@pytest.mark.parametrize("campaigns", [(), ("c",)])
async def test_a_machine_that_joined_again_is_another_client(
    cut: Cut, path: Path, campaigns: tuple[str, ...]
) -> None:
    """A machine that was revoked and joined again is a new client. Its losses count only once the client is
    named, which includes both clients of that name."""
    cut.clients = dict.fromkeys(range(1, 60), OTHER)
    endpoint = await cut.begin([*CLEAN_CUTS, LOST], _of_client(LOG, OTHER))
    cut.change("UPDATE clients SET name = 'b'", _named(OTHER, "b", "2026-01-01T00:00:00+00:00"))
    assert _decided(await _gathered(endpoint, path, campaigns))[0] == "not shown"
    found = _decided(await _gathered(endpoint, path, campaigns, ("b",)))
    assert found == ("refuse", f"clean-cuts: 1 loss in 1 cut, first in run {60:016x}")


@pytest.mark.parametrize("campaigns", [(), ("c",)])
async def test_a_log_of_release_0_1_has_only_the_name(
    cut: Cut, path: Path, campaigns: tuple[str, ...]
) -> None:
    """A log of release 0.1 names a machine without a client id. It stands for the client that now has this
    name."""
    cut.clients = {61: OTHER}
    endpoint = await cut.begin([*CLEAN_CUTS, LOST, (_drive(), "durable")], LOG)
    cut.change("UPDATE clients SET name = 'b'")
    assert _decided(await _gathered(endpoint, path, campaigns))[0] == "refuse"


@pytest.mark.parametrize(("clients", "word"), [((), "not shown"), ((OPERATOR,), "refuse"), (("b",), "pass")])
@pytest.mark.parametrize("campaigns", [(), ("c",)])
async def test_a_loss_of_the_operators_own_run_is_not_passed_over(
    cut: Cut, path: Path, campaigns: tuple[str, ...], clients: tuple[str, ...], word: str
) -> None:
    """The drive was in the server's own machine before, or after. It may be chosen, or the other client."""
    cut.clients = {60: ""}
    endpoint = await cut.begin([*CLEAN_CUTS, LOST], LOG)
    cut.change("UPDATE clients SET name = 'b'")
    evidence = await _gathered(endpoint, path, campaigns, clients)
    assert _decided(evidence)[0] == word
    if not clients:
        assert evidence.disputed == "1 loss in runs of the operator that are left out" and evidence.left_out


async def test_a_kept_result_is_of_the_machine_that_was_cut(cut: Cut) -> None:
    """The newest one is of a client that has the machine's name by now. The machine's own newest is taken."""
    cut.results = [(_result(1), OTHER), (_result(2), OTHER), (_result(3), None)]
    endpoint = await cut.begin(CLEAN_CUTS, _of_client(LOG, OTHER))
    cut.change("UPDATE clients SET name = 'b'", _named(OTHER, "renamed"))
    evidence = await _gathered(endpoint, campaigns=("c",))
    assert [(one.client, one.result.seed) for one in evidence.results] == [(OTHER, 2)]
    assert any("those of b are left out" in one for one in evidence.left_out)
    evidence = await _gathered(endpoint, campaigns=("c",), clients=("b",))
    assert [one.result.seed for one in evidence.results] == [3]


@pytest.mark.parametrize("has_result", [False, True])
async def test_a_campaign_that_is_found_by_the_serial_tells_its_machine(
    cut: Cut, path: Path, has_result: bool
) -> None:
    """With a result that is named, and without one."""
    cut.clients = {60: OTHER}
    endpoint = await cut.begin([*CLEAN_CUTS, LOST, (_drive(), "durable")], _of_client(LOG, OTHER))
    cut.change("UPDATE clients SET name = 'b'", _named(OTHER, "renamed"))
    evidence = await _gathered(endpoint, path if has_result else None, drive="S1")
    assert _decided(evidence) == ("refuse", f"clean-cuts: 1 loss in 1 cut, first in run {60:016x}")


async def test_the_client_that_kept_the_result_owns_the_drive_too(cut: Cut) -> None:
    """The loss of the client that stored the result counts beside the runs of the campaign's machine."""
    cut.clients = {60: OTHER}
    cut.results = [(_result(), OTHER)]
    endpoint = await cut.begin([*CLEAN_CUTS, LOST, (_drive(), "durable")], LOG)
    cut.change("UPDATE clients SET name = 'b'", _named(OTHER, "bench"))
    evidence = await _gathered(endpoint, campaigns=("c",), clients=("bench",))
    (name,) = (one.name for one in evidence.results)
    wanted = EvidenceWanted(campaigns=("c",), results=(name.split()[2],), drive="")
    (evidence,) = await gather(endpoint, wanted, lambda _: None)
    assert _decided(evidence)[0] == "refuse" and evidence.left_out == ()
