"""What one client says of its drives alters nothing of what the operator concludes about another's."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durability.bench.hashed_serials import hash_serials, marks_of
from durability.bench.result import Result, encode
from durability.errors import RefusedError, UsageError
from durability.formats.facts import Facts
from durability.protocol import messages
from durability.units import format_run
from durability_client.acceptance.accept_command import AcceptOptions, accept
from durability_client.acceptance.gather import EvidenceWanted, gather
from durability_client.bench.bench_command import CompareOptions, compare_files
from durability_client.bench.cut_verdicts import found_verdicts
from durability_client.queries import ChosenRuns, runs
from tests.core.acceptance.samples import accept_result
from tests.core.bench.results import JUDGED, Device, simulate
from tests.server.conftest import Lab
from tests.server.two_tenants import SERIAL, Tenant, endpoint_of, on, operator_of, tenant


def measured(facts: Facts) -> Result:
    """A benchmark of the drive, its serial hidden as `bench` hides it."""
    return hash_serials(simulate(Device(), cells=JUDGED[:4], facts=facts))


@pytest.fixture
async def pair(lab: Lab, sqlite_url: str) -> tuple[Tenant, Tenant]:
    """An honest client, and one that copies its serial."""
    running = await lab.start(sqlite_url, readers=True)
    return await tenant(lab, running, "b1"), await tenant(lab, running, "mallory")


@pytest.mark.slow
async def test_a_copied_serial_with_a_loss_is_no_loss(lab: Lab, pair: tuple[Tenant, Tenant]) -> None:
    """While two claim the drive neither counts, and a sentence says so; the client that is named counts."""
    honest, copying = pair
    await honest.cut(1, on(lab, "b1"), "durable")
    await copying.cut(2, on(lab, "elsewhere"), "loss")
    operator = operator_of(lab, honest.running)
    result = measured(on(lab, "b1"))
    found = await found_verdicts(operator, [result])
    assert found.proofs == (None,)
    (note,) = found.notes
    assert "b1 (1 run)" in note and "mallory (1 run, 1 loss)" in note and "--client NAME" in note
    found = await found_verdicts(operator, [result], ("b1",))
    (proof,) = found.proofs
    assert proof is not None and (proof.word, proof.source) == ("too few cuts", f"run {format_run(1)}")
    assert (
        "the runs of b1 count" in found.notes[0] and "mallory (1 run, 1 loss) are left out" in found.notes[0]
    )
    (proof,) = (await found_verdicts(operator, [result], ("mallory",))).proofs
    assert proof is not None and proof.word == "lost data"


@pytest.mark.slow
async def test_a_copied_serial_with_clean_cuts_proves_nothing(lab: Lab, pair: tuple[Tenant, Tenant]) -> None:
    """The drive's own loss counts, however clean the copies are; a client by itself counts unnamed."""
    honest, copying = pair
    operator = operator_of(lab, honest.running)
    result = measured(on(lab, "b1"))
    await honest.cut(1, on(lab, "b1"), "loss")
    alone = await found_verdicts(operator, [result])
    assert alone.notes == () and alone.proofs[0] is not None and alone.proofs[0].word == "lost data"
    for run in (2, 3, 4):
        await copying.cut(run, on(lab, "elsewhere"), "durable")
    assert (await found_verdicts(operator, [result])).proofs == (None,)
    (proof,) = (await found_verdicts(operator, [result], ("b1",))).proofs
    assert proof is not None and proof.text == f"lost data in run {format_run(1)}"


@pytest.mark.slow
async def test_compare_says_whose_runs_were_left_out(
    lab: Lab, pair: tuple[Tenant, Tenant], tmp_path: Path
) -> None:
    """One line on stderr for the drive; none where the other drive has one client."""
    honest, copying = pair
    await honest.cut(1, on(lab, "b1"), "durable")
    await honest.cut(3, on(lab, "b1", "OTHER", uuid="u3"), "durable")
    await copying.cut(2, on(lab, "elsewhere"), "loss")
    paths = []
    for name, serial in (("a", SERIAL), ("b", "OTHER")):
        result = simulate(Device(), cells=JUDGED[:4], facts=on(lab, "b1", serial))
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_bytes(_encoded(result))
    operator = operator_of(lab, honest.running)
    for clients, lost in (((), 0), (("b1",), 0), (("mallory",), 1)):
        out, err = io.StringIO(), io.StringIO()
        options = CompareOptions(paths=tuple(paths), clients=clients, endpoint=operator)
        await _in_thread(compare_files, options, out, err)
        assert err.getvalue().count("\n") == 1
        assert ("are left out" in err.getvalue()) == bool(clients)
        assert out.getvalue().count("lost data in") >= lost and ("lost data in" in out.getvalue()) == bool(
            lost
        )


@pytest.mark.slow
async def test_accept_goes_by_the_client_that_kept_the_result(
    lab: Lab, pair: tuple[Tenant, Tenant], tmp_path: Path
) -> None:
    """Only the runs of the client that stored the result count: losses and clean cuts of others do not. The
    report says what it left out."""
    honest, copying = pair
    facts = on(lab, "b1")
    await honest.cut(1, facts, "durable")
    for run in (2, 3):
        await copying.cut(run, on(lab, "elsewhere"), "loss")
    kept = await honest.keep(hash_serials(accept_result(facts=facts)))
    (evidence,) = await gather(
        operator_of(lab, honest.running),
        EvidenceWanted(campaigns=(), results=(kept,), drive=""),
        lambda _: None,
    )
    assert [one.source for one in evidence.proofs] == [f"run {format_run(1)}"]
    document, err = await _accepted(lab, honest, tmp_path, kept)
    bounded, left_out = (one for one in document["drives"][0]["not_proven"] if "mallory" in one)
    assert bounded.startswith(
        "How often this drive loses data at a cut: 1 cut of class power without a loss, but"
    )
    assert "the runs of b1 count, and those of mallory (2 runs, 1 loss) are left out" in left_out
    assert "mallory (2 runs, 1 loss)" in err
    await honest.cut(4, facts, "loss")
    (evidence,) = await gather(
        operator_of(lab, honest.running),
        EvidenceWanted(campaigns=(), results=(kept,), drive=""),
        lambda _: None,
    )
    assert [one.lost_in for one in evidence.proofs if one.losses] == [f"run {format_run(4)}"]


@pytest.mark.slow
async def test_accept_says_that_a_client_is_not_shown_campaigns(
    lab: Lab, pair: tuple[Tenant, Tenant]
) -> None:
    """A client may not see campaigns, so its search for evidence is unfinished. The operator's search is
    complete."""
    honest, _ = pair
    kept = await honest.keep(hash_serials(accept_result(facts=on(lab, "b1"))))
    wanted = EvidenceWanted(campaigns=(), results=(kept,), drive="")
    told: list[str] = []
    (evidence,) = await gather(endpoint_of(honest), wanted, told.append)
    assert evidence.unfinished == ("this client may not see campaigns, so none was searched",)
    assert list(evidence.unfinished) == told
    (evidence,) = await gather(operator_of(lab, honest.running), wanted, told.append)
    assert evidence.unfinished == ()


@pytest.mark.slow
async def test_accept_takes_no_result_where_two_clients_keep_one(
    lab: Lab, pair: tuple[Tenant, Tenant]
) -> None:
    """If two clients have stored a result for a drive, `accept` names the clients and takes none. With a
    client named, it takes that client's result."""
    honest, copying = pair
    facts = on(lab, "b1")
    mine = await honest.keep(hash_serials(accept_result(facts=facts)))
    await copying.keep(hash_serials(accept_result(facts=on(lab, "elsewhere"), falls_to=0.1)))
    operator = operator_of(lab, honest.running)
    told: list[str] = []
    with pytest.raises(UsageError, match="no stored result"):
        await gather(operator, EvidenceWanted(campaigns=(), results=(), drive=SERIAL), told.append)
    assert any("several clients have results, " in one and "b1" in one and "mallory" in one for one in told)
    wanted = EvidenceWanted(campaigns=(), results=(), drive=SERIAL, clients=("b1",))
    (evidence,) = await gather(operator, wanted, told.append)
    assert [one.name for one in evidence.results] == [f"stored result {mine} of b1"]


@pytest.mark.slow
async def test_accept_passes_over_a_kept_result_of_a_later_release(
    lab: Lab, pair: tuple[Tenant, Tenant]
) -> None:
    """`accept` skips a stored result of a later release, uses the next one of the drive, and reports the
    search as unfinished. Without another result, the error gives the reason."""
    honest, _ = pair
    facts = on(lab, "b1")
    result = hash_serials(accept_result(facts=facts))
    newer = await honest.keep(replace(result, schema="durability.bench/99"))  # type: ignore[arg-type]
    said = f"stored result {newer} cannot be read by this release"
    operator, told = operator_of(lab, honest.running), list[str]()
    wanted = EvidenceWanted(campaigns=(), results=(), drive=SERIAL)
    with pytest.raises(UsageError, match="no stored result"):
        await gather(operator, wanted, told.append)
    assert told == [said]
    readable = await honest.keep(result)
    newest = await honest.keep(replace(result, seed=9, schema="durability.bench/99"))  # type: ignore[arg-type]
    (evidence,) = await gather(operator, wanted, told.append)
    assert [one.name for one in evidence.results] == [f"stored result {readable} of b1"]
    assert evidence.unfinished == (f"stored result {newest} cannot be read by this release",)


@pytest.mark.slow
async def test_verify_of_the_operator_asks_which_run(lab: Lab, pair: tuple[Tenant, Tenant]) -> None:
    """Without a run, the newest on the target is only taken where one client has any; each client has its
    own."""
    honest, copying = pair
    facts = on(lab, "b1")
    await honest.cut(1, facts, "durable")
    judge = await lab.connect(honest.running.address, "verify", local=True)
    assert (await judge.fetch(0, facts)).run == format_run(1)
    await copying.cut(2, facts, "durable")
    with pytest.raises(RefusedError) as refused:
        await judge.fetch(0, facts)
    assert refused.value.code == "run-ambiguous"
    for words in (
        "2 clients have runs on this target",
        f"--run {format_run(1)} of b1",
        f"{format_run(2)} of m",
    ):
        assert words in str(refused.value)
    own = await lab.connect(honest.running.address, "verify", member=honest.member)
    assert (await own.fetch(0, facts)).run == format_run(1)


@pytest.mark.slow
async def test_runs_names_the_client_where_two_claim_a_drive(lab: Lab, pair: tuple[Tenant, Tenant]) -> None:
    """Each has a row of its own, in 80 columns; drives of one client need no name."""
    honest, copying = pair

    async def shown(*, json: bool = False) -> str:
        out = io.StringIO()
        chosen = ChosenRuns(limit=50)
        await runs(operator_of(lab, honest.running), chosen, each=False, json=json, out=out)
        return out.getvalue()

    await honest.cut(1, on(lab, "b1"), "durable")
    assert "client" not in await shown() and "mallory" not in await shown()
    await copying.cut(2, on(lab, "elsewhere"), "loss")
    lines = (await shown()).splitlines()
    assert max(map(len, lines[:3])) <= 80 and lines[0].split()[-1] == "client"
    assert [(line.split()[-2], line.split()[-1]) for line in lines[1:3]] == [
        ("loss", "mallory"),
        ("durable", "b1"),
    ]
    document = json.loads(await shown(json=True))
    assert [(one["client_name"], one["losses"]) for one in document["drives"]] == [("mallory", 1), ("b1", 0)]
    assert [one["client_name"] for one in document["runs"]] == ["mallory", "b1"]


@pytest.mark.slow
async def test_a_client_of_its_own_is_asked_nothing(lab: Lab, pair: tuple[Tenant, Tenant]) -> None:
    """A client sees only its own runs, so claims of other clients are neither shown nor reported as left
    out."""
    honest, copying = pair
    await honest.cut(1, on(lab, "b1"), "durable")
    await copying.cut(2, on(lab, "elsewhere"), "loss")
    mine = await lab.connect(honest.running.address, "query", member=honest.member)
    asked = messages.ListClaims(drives=tuple(marks_of(on(lab, "b1"))))
    (row,) = (await mine.ask(asked, messages.Listing)).rows
    assert (row["client_name"], row["runs"], row["losses"]) == ("b1", 1, 0)


def _encoded(result: Result) -> bytes:
    return encode(hash_serials(result))


async def _in_thread(call: Any, *arguments: Any) -> Any:
    return await asyncio.to_thread(call, *arguments)


async def _accepted(lab: Lab, owner: Tenant, place: Path, kept: str) -> tuple[Any, str]:
    """The report as JSON, and what stderr says."""
    out, err = io.StringIO(), io.StringIO()
    options = AcceptOptions(
        profile="database-ssd",
        wanted=EvidenceWanted(campaigns=(), results=(kept,), drive=""),
        endpoint=operator_of(lab, owner.running),
        json=True,
    )
    await _in_thread(accept, options, out, err)
    return json.loads(out.getvalue()), err.getvalue()
