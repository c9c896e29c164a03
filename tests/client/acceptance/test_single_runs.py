"""Which of a drive's single runs `accept` keeps, and what its criteria then say of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from durability.acceptance.criteria import KINDS
from durability.acceptance.decision import decide_on
from durability.acceptance.kinds import Finding
from durability.acceptance.known_cuts import KnownDrive
from durability.acceptance.profile import Criterion, Profile
from durability.bench.decision.proof import Proof
from durability.bench.hashed_serials import hash_serials
from durability.bench.result import encode
from durability.evidence.cut import CutClass
from durability.evidence.strength import upper_bound
from durability.formats.facts import Facts
from durability_client.acceptance.gather import EvidenceWanted, _Drive, _worth_telling, gather
from durability_client.bench.cut_verdicts import found_verdicts
from tests import sample_facts
from tests.client.bench.test_cut_verdicts import Cut
from tests.core.acceptance.samples import accept_result, campaign, measured
from tests.core.bench.results import drive, facts
from tests.core.campaign.written_log import said, written_log

NEW = facts(drives=(drive(firmware="2.0"),))
OLD = facts(drives=(drive(firmware="1.0"),))
Runs = list[KnownDrive]


def series(
    number: int,
    cuts: int,
    cut_class: CutClass = "power",
    *,
    unknown: int = 0,
    of: Facts = NEW,
    losses: int = 0,
) -> KnownDrive:
    """The series that ends with the run of this number."""
    run = f"{number:016x}"
    proof = Proof(
        cuts=cuts,
        losses=losses,
        bound=None if unknown else upper_bound(losses, cuts),
        cut_class=cut_class,
        source=f"run {run}",
        lost_in=f"run {run}" if losses else "",
        unknown=unknown,
    )
    return KnownDrive(
        facts=of, proof=proof, runs=frozenset({run}), is_campaign=False, unanswered=(run,) * unknown
    )


def with_runs(runs: Runs) -> _Drive:
    """A drive of firmware 2.0 that was measured, with what is kept of these runs."""
    found = _Drive(facts=[NEW], results=[measured(replace(accept_result(), facts=NEW))])
    found.proofs += [(one.facts, one.proof) for one in _worth_telling(found, runs, set())]
    return found


def clean_cuts(runs: Runs, cut_class: CutClass = "power") -> Finding:
    """What the criterion says of these runs."""
    asked = Criterion(kind="clean-cuts", limit=59, cut_class=cut_class, required=True, reason="Because.")
    return KINDS["clean-cuts"].look(with_runs(runs).evidence(), asked)


CLEAN = series(1, 59)
UNANSWERED = series(2, 10, unknown=2)
UNANSWERED_OS = series(3, 5, "os", unknown=1)


@pytest.mark.parametrize(
    ("runs", "cut_class", "word"),
    [
        ([UNANSWERED_OS, UNANSWERED, CLEAN], "power", "not shown"),
        ([UNANSWERED, UNANSWERED_OS, CLEAN], "power", "not shown"),
        ([UNANSWERED_OS, CLEAN], "power", "pass"),
        ([UNANSWERED, CLEAN], "power", "not shown"),
        ([series(4, 5, "vm", unknown=1), UNANSWERED_OS, CLEAN], "power", "pass"),
        ([UNANSWERED_OS, series(4, 5, "vm", unknown=1), CLEAN], "vm", "not shown"),
    ],
)
def test_no_series_hides_unanswered_cuts_of_a_stronger_class(
    runs: Runs, cut_class: CutClass, word: str
) -> None:
    """Unanswered cuts of a class void the bound of that class, even if a series of a weaker class is
    newer."""
    found = clean_cuts(runs, cut_class)
    assert found.word == word, found
    if word == "not shown":
        assert "with unknown outcome, so nothing is bounded" in found.figure


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        ([series(5, 80, "os"), CLEAN], "59 cuts without a loss: at most 5.0 %"),
        ([series(5, 70, of=OLD), CLEAN], "59 cuts without a loss: at most 5.0 %"),
        ([series(5, 70, of=OLD), series(6, 80, "os"), CLEAN, series(7, 58)], "59 cuts without a loss"),
    ],
)
def test_no_longer_series_hides_the_one_that_counts(runs: Runs, says: str) -> None:
    """More cuts of a weaker class, or of another stack, are beside the question."""
    for order in (runs, runs[::-1]):
        found = clean_cuts(order)
        assert found.word == "pass" and says in found.figure, found


def test_of_series_that_are_alike_the_longest_is_kept() -> None:
    """Each durable run ends a series that holds the earlier ones: telling all would count cuts again."""
    runs = [series(60 - cuts, cuts) for cuts in range(59, 0, -1)]
    assert [proof.cuts for _, proof in with_runs(runs).proofs] == [59]


def test_beside_a_campaign_no_clean_series_is_kept() -> None:
    """Beside a campaign, only series with a loss, or with unanswered cuts outside the campaign, are kept. If
    the campaign itself has a loss, no series is kept."""
    lost = series(8, 3, losses=1)
    found = _Drive(facts=[NEW], campaigns=[campaign()])
    assert _worth_telling(found, [UNANSWERED, CLEAN, lost], set()) == [lost, UNANSWERED]
    found.runs |= UNANSWERED.runs
    assert _worth_telling(found, [UNANSWERED, CLEAN, lost], set()) == [lost]
    found.proofs.append((NEW, series(9, 59, losses=1).proof))
    assert _worth_telling(found, [UNANSWERED, CLEAN, lost], set()) == []
    assert clean_cuts([UNANSWERED, CLEAN, lost]).word == "refuse"


@pytest.fixture
async def cut(tmp_path: Path) -> AsyncIterator[Cut]:
    """A server that is stopped at the end."""
    server = Cut(tmp_path)
    yield server
    await server.end()


@pytest.mark.parametrize("own_series", [False, True])
@pytest.mark.parametrize("verdict", ["", "durable"])
async def test_an_unanswered_run_beside_a_campaign_passes_nothing(
    cut: Cut, tmp_path: Path, own_series: bool, verdict: str
) -> None:
    """If a run by hand on a clean campaign's drive ended in silence and has no verdict, `accept` does not
    pass. Its result and reason equal those of `compare`, whether or not the run is of the campaign's
    series."""
    path, hand = tmp_path / "a.json", f"run {60:016x}"
    ssd = sample_facts.drive(serial="S1")
    by_hand = replace(ssd, wwid="naa.1") if own_series else ssd
    log = written_log("c", [[said("durable", run)] for run in range(1, 60)])
    endpoint = await cut.begin([*[(ssd, "durable")] * 59, (by_hand, verdict)], log)
    result = hash_serials(accept_result(facts=replace(sample_facts.facts(), drives=(ssd,))))
    path.write_bytes(encode(result))
    asked = Criterion(kind="clean-cuts", limit=59, cut_class="power", required=True, reason="Because.")
    for campaigns in ((), ("c",)):
        told: list[str] = []
        wanted = EvidenceWanted(campaigns=campaigns, results=(str(path),), drive="", clients=("lab",))
        (evidence,) = await gather(endpoint, wanted, told.append)
        found = KINDS["clean-cuts"].look(evidence, asked)
        if verdict:
            assert (found.word, found.source, told) == ("pass", "campaign c", [])
            continue
        assert (found.word, found.source) == ("not shown", hand)
        assert found.figure.startswith(f"59 cuts without a loss, but 1 cut of {hand} with unknown outcome")
        (note,) = told
        assert note.startswith(f"{hand} has no outcome; `durability verify TARGET --{hand}` may tell it")
        profile = Profile(name="p", title="P", about="", criteria=(asked,))
        assert f"What cuts with unknown outcome lost: {note}." in decide_on(profile, evidence).not_proven
    (proof,) = (await found_verdicts(endpoint, [result], ["lab"])).proofs
    assert proof is not None
    unknown = f"no loss in 59 cuts, but 1 cut of {hand} with unknown outcome"
    assert proof.text == ("proven in 59 cuts" if verdict else unknown)


async def test_a_campaign_answers_for_the_runs_that_it_left_out(cut: Cut, tmp_path: Path) -> None:
    """A run without a verdict is not counted as unanswered if its campaign recorded that the run met no
    cut."""
    path, ssd = tmp_path / "a.json", sample_facts.drive(serial="S1")
    stopped = replace(said("nothing", 3), cause="agent", text="its run ended before the cut")
    log = written_log("c", [[said("durable", 1)], [said("durable", 2)], [stopped]])
    endpoint = await cut.begin([(ssd, "durable"), (ssd, "durable"), (ssd, "")], log)
    path.write_bytes(encode(hash_serials(accept_result(facts=replace(sample_facts.facts(), drives=(ssd,))))))
    wanted = EvidenceWanted(campaigns=(), results=(str(path),), drive="", clients=("lab",))
    (evidence,) = await gather(endpoint, wanted, lambda _: None)
    asked = Criterion(kind="clean-cuts", limit=2, cut_class="power", required=True, reason="Because.")
    assert KINDS["clean-cuts"].look(evidence, asked).word == "pass" and evidence.to_verify == ()
