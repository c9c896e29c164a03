"""Rig A: cuts in virtual time can be made again, honest drives pass them, and every liar is caught."""

from __future__ import annotations

import random
from dataclasses import fields

import pytest

from durability import limits
from durability.errors import EXIT_INCONCLUSIVE, EXIT_LOSS, EXIT_OK, PlanError
from durability_lab.drive.faults import CATALOGUE, parse
from durability_lab.simulated_rig.scenario import Scenario
from durability_lab.simulated_rig.simulation import CutResult, replay, simulate
from durability_lab.truth.expected_verdict import UNREAD

HONEST = (
    "write-through",
    "honest",
    "honest:cache_bytes=65536",
    "honest:kept=0.0,torn=0.5",
    "honest:kept=0.5,torn=0.5",
)
HONEST_CUTS = 40  # of each
# Each liar with the load that brings its lie out.
LIARS = (
    "model=flush-ignored",
    "model=flush-ignored:cache_bytes=65536 writers=2 group=3",
    "model=early-ack:delay_ms=1.0",
    "model=early-ack:delay_ms=100.0 rate=500 survives=true",
    "model=flush-skipped rate=500",
    "model=partial-flush",
    "model=fua-ignored sync=dsync writers=2",
    "model=flush-below:cache_bytes=32768 group=16 slots=256",
    "model=shorn:chance=0.05",
    "model=misdirected:chance=0.05 pattern=sequential",
    "model=neighbour-flip record_bytes=1024",
    "model=rollback:interval_ms=20.0",
    "model=partial-rollback:interval_ms=20.0",
    "model=unreadable:share=0.1",
    "model=smaller:share=0.5",
    "model=empty",
)
LIAR_CUTS = 20  # of each; the one that is hardest to catch is caught in every other
ANY_LOAD_CUTS = 10  # of each
NOT_THE_DRIVES = {"nothing-at-risk", "session-live"}  # why a cut on an honest drive may be inconclusive


def any_scenario(model: str, *, seed: int) -> Scenario:
    """A scenario with that drive; everything else is drawn from `seed`."""
    chance = random.Random(f"{seed} scenario")
    write_through = chance.random() < 0.3
    group = 1 if write_through else chance.choice((1, 1, 2, 3, 8))
    least = limits.SLOTS_PER_CREDIT * limits.CREDIT_GROUPS_MIN * group
    slow = chance.random() < 0.2
    return Scenario(
        model=model,
        writers=chance.choice((1, 1, 2, 4)),
        pattern=chance.choice(("random", "sequential")),
        record_bytes=chance.choice((512, 1024, 2048, 4096, 8192)),
        slots=max(least, chance.choice((8, 32, 64, 128))),
        group=group,
        sync="dsync" if write_through else "fdatasync",
        rate=chance.choice((0.0, 0.0, 500.0, 50.0)),
        lag_p50_ms=5.0 if slow else 0.12,
        lag_p99_ms=50.0 if slow else 0.6,
        operations=(1, chance.choice((10, 100, 300))),
        idle_ms=chance.choice((0.0, 0.0, 0.0, 300.0)),
        partition_ms=chance.choice((0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 300.0)),
        control=chance.random() < 0.7,
        survives=chance.random() < 0.3,
    )


def codes(result: CutResult) -> set[str]:
    """The codes of the verdict's reasons."""
    reasons = result.document["reasons"]
    assert isinstance(reasons, list)
    return {str(reason["code"]) for reason in reasons if isinstance(reason, dict)}


def findings(result: CutResult) -> int:
    """How many places the tester found wrong."""
    counts = result.document["findings"]
    assert isinstance(counts, dict)
    return sum(count for count in counts.values() if isinstance(count, int))


def check(result: CutResult) -> None:
    """What must hold on any drive, honest or not."""
    assert not result.truth.defects, (result.name, result.truth.defects)
    if "scan-unfinished" in codes(result):
        return
    assert (result.exit_code == EXIT_LOSS) == (findings(result) > 0), result.name
    for received, proven, returned in zip(result.received, result.proven, result.returned, strict=True):
        assert received <= proven <= returned, result.name


@pytest.mark.slow
@pytest.mark.parametrize("model", HONEST)
def test_honest_drive_never_has_a_finding(model: str, seed: int) -> None:
    """An honest drive has no finding under any load, lag and time of the cut. Its verdict is durable, or
    inconclusive without records at risk."""
    durable = 0
    for number in range(seed, seed + HONEST_CUTS):
        result = simulate(any_scenario(model, seed=number), seed=number)
        check(result)
        assert findings(result) == result.truth.broken == 0, result.name
        assert result.exit_code in (EXIT_OK, EXIT_INCONCLUSIVE), result.name
        assert codes(result) <= NOT_THE_DRIVES, result.name
        durable += result.exit_code == EXIT_OK
    assert durable > HONEST_CUTS // 4, "or this shows nothing"


@pytest.mark.slow
@pytest.mark.parametrize("scenario", LIARS)
def test_liar_is_caught_and_what_is_found_is_true(scenario: str, seed: int) -> None:
    """Each finding is a broken promise, with its class and operations; what is not found has its reason."""
    caught = 0
    for number in range(seed, seed + LIAR_CUTS):
        result = simulate(Scenario.parse(scenario), seed=number)
        check(result)
        caught += result.exit_code == EXIT_LOSS
    assert caught, f"not one of {LIAR_CUTS} cuts"


@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(set(CATALOGUE) - {"honest", "write-through"}))
def test_liar_under_any_load_never_makes_the_tester_wrong(model: str, seed: int) -> None:
    """The tester finds exactly the broken promises that it can know about, under any load."""
    for number in range(seed, seed + ANY_LOAD_CUTS):
        check(simulate(any_scenario(model, seed=number), seed=number))


def test_every_liar_has_a_load_that_brings_it_out() -> None:
    """Each dishonest model in the catalogue has a load that exposes it, except the models whose data cannot
    be read."""
    shown = {parse(Scenario.parse(text).model).name for text in LIARS}
    assert shown == {name for name, model in CATALOGUE.items() if not model.honest} - set(UNREAD)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["honest", "early-ack", "flush-skipped", "misdirected", "unreadable"])
def test_same_scenario_and_seed_give_the_same_cut(model: str, seed: int) -> None:
    """All of it: document, counts, time and truth; from the objects and from their name."""
    scenario = any_scenario(model, seed=seed)
    result = simulate(scenario, seed=seed)
    assert simulate(scenario, seed=seed) == result
    assert replay(result.name) == result
    assert simulate(scenario, seed=seed + 1) != result


def test_scenario_is_its_text(seed: int) -> None:
    """Every field goes into the text and comes back out of it."""
    for number in range(seed, seed + 100):
        scenario = any_scenario("early-ack:delay_ms=0.3", seed=number)
        assert Scenario.parse(str(scenario)) == scenario
    every = " ".join(f"{field.name}={value}" for field, value in zip(fields(Scenario), _OTHERS, strict=True))
    assert str(Scenario.parse(every)) == every


_OTHERS = (
    *("empty", "append", "2", "sequential", "512", "99", "16", "4", "fsync", "12.5", "1", "2", "3.25", "4"),
    *("5..6", "0.5..7", "8", "9.5", "false", "true", "10.5"),
)


@pytest.mark.parametrize(
    "text", ["colour=red", "control=perhaps", "writers=two", "operations=5", "model=none"]
)
def test_scenario_that_cannot_be_is_refused(text: str) -> None:
    """A typing error must not become another experiment."""
    with pytest.raises(ValueError):
        simulate(Scenario.parse(text), seed=1)


def test_load_that_no_plan_holds_is_refused() -> None:
    """A scenario makes a plan like any other, with its limits."""
    with pytest.raises(PlanError):
        simulate(Scenario(slots=3), seed=1)


@pytest.mark.parametrize("workload", ["append", "create", "rename", "unlink", "knit"])
def test_workload_that_needs_files_is_refused(workload: str) -> None:
    """Rig A has no file system, so it refuses workloads that need files. It also refuses unknown
    workloads."""
    with pytest.raises(PlanError, match=workload):
        simulate(Scenario(workload=workload), seed=1)


@pytest.mark.slow
def test_drive_that_hangs_is_never_judged(seed: int) -> None:
    """Reads that do not return leave the scan unfinished, and what was lost there is counted as unread."""
    result = simulate(Scenario(model="hanging:share=1.0"), seed=seed)
    assert result.exit_code == EXIT_INCONCLUSIVE
    assert "scan-unfinished" in codes(result)
    assert set(result.truth.unclaimed) >= {"unread"}
    assert not result.truth.defects


def test_dead_drive_is_never_judged(seed: int) -> None:
    """A drive that answers nothing after its cut may have kept everything: it is not read, and no loss."""
    result = simulate(Scenario(model="dead"), seed=seed)
    assert result.exit_code == EXIT_INCONCLUSIVE
    # Some seeds cut while the only writer may have been waiting, which is said as well.
    assert codes(result) - {"nothing-at-risk"} == {"scan-unfinished", "nothing-checked"}
    assert not result.truth.defects


@pytest.mark.slow
def test_drive_that_had_time_to_drain_passes(seed: int) -> None:
    """A cut shows nothing of what a drive lied about longer ago than it lies: hence rule 12."""
    scenario = Scenario(model="early-ack:delay_ms=10.0", idle_ms=100.0, operations=(300, 400))
    busy, idle = (simulate(Scenario.parse(f"{scenario} idle_ms={ms}"), seed=seed) for ms in (0, 100))
    assert busy.exit_code == EXIT_LOSS
    assert idle.truth.broken == 0
    assert idle.exit_code != EXIT_LOSS


@pytest.mark.slow
def test_long_idle_time_leaves_nothing_at_risk(seed: int) -> None:
    """Ten minutes without a record cost the simulation little and the verdict its weight."""
    result = simulate(Scenario(idle_ms=600_000.0), seed=seed)
    assert codes(result) == {"nothing-at-risk"}
    assert result.cut_s > 600


def test_writers_that_ran_out_of_credit_have_nothing_at_risk(seed: int) -> None:
    """If the network is dead for a second before the cut, the writers run out of credit, the drive's delayed
    data reach media, and no record is at risk."""
    scenario = Scenario(model="early-ack:delay_ms=10.0", operations=(300, 400), partition_ms=1000.0)
    result = simulate(scenario, seed=seed)
    check(result)
    assert codes(result) == {"nothing-at-risk"}


def test_operating_system_that_survives_tells_the_rest(seed: int) -> None:
    """If the system survives, the last acknowledgements arrive, and the target's error ends the session. The
    drive is then enumerated again."""
    result = simulate(Scenario(survives=True, operations=(300, 400)), seed=seed)
    check(result)
    assert result.received == result.returned
    assert result.exit_code == EXIT_OK
    cut = result.document["cut"]
    assert isinstance(cut, dict)
    assert "re-enumerated" in str(cut["proof"])
    assert cut["class"] == "power"


def test_drive_that_failed_a_request_long_before_the_cut_has_nothing_at_risk(seed: int) -> None:
    """It answers the client's look at it, and has time to drain; an honest drive does no better."""
    for model in ("early-ack:delay_ms=100.0", "honest"):
        scenario = Scenario(model=model, operations=(300, 400), error_ms=10_000.0)
        result = simulate(scenario, seed=seed)
        check(result)
        assert result.truth.broken == 0
        assert codes(result) == {"nothing-at-risk"}


def test_drive_that_dies_while_the_client_looks_at_it_has_answered(seed: int) -> None:
    """One request fails, and the drive loses its power 50 ms later: it is too late to say when it drained."""
    scenario = Scenario(operations=(300, 400), error_ms=150.0, survives=True)
    result = simulate(scenario, seed=seed)
    check(result)
    assert codes(result) == {"nothing-at-risk"}


@pytest.mark.slow
def test_machine_that_dies_takes_its_last_acknowledgements_along(seed: int) -> None:
    """Acknowledgements under way when the machine dies do not reach the server."""
    cuts = [simulate(Scenario(lag_p50_ms=2.0, lag_p99_ms=4.0), seed=seed + number) for number in range(10)]
    assert any(result.received < result.returned for result in cuts)
