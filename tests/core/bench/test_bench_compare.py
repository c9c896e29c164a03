"""Comparison: ratios with intervals, differences named once, and a caveat where nothing is proven."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from durability.acceptance.cut_search import NO_CAMPAIGNS
from durability.bench.catalogue import (
    FLUSH_CONTROL,
    FSYNC,
    HEADLINE,
    HELD,
    HELD_COMMIT,
    PACED,
    PROBE,
    QUICK,
    STANDARD,
    sustained,
)
from durability.bench.compare import Comparison, compare, deciding_row
from durability.bench.decision.proof import Proof
from durability.bench.hashed_serials import hash_serials
from durability.bench.json_documents import comparison_document
from durability.bench.measurement import NO_LATENCIES
from durability.bench.result import CellRounds, Medium, Result
from durability.errors import UsageError
from durability.formats.documents import to_json
from durability.units import multiple
from tests.core.acceptance.samples import HONEST, accept_result
from tests.core.bench.results import Device, drive, facts, simulate

CELLS = (*STANDARD[:3], *(cell for cell in STANDARD if cell.group in ("controls", "flush ladder")))
SLOW = Device(write_ns=40_000, flush_ns=30_000)


def run(device: Device = Device(), **changes: Any) -> Result:  # noqa: B008  # frozen
    return simulate(device, **{"cells": CELLS, **changes})


def other_drive(device: Device = Device(), *, number: int = 2, **changes: Any) -> Result:  # noqa: B008
    """A result of another drive of the same model."""
    own = {"facts": facts(drives=(drive(serial=f"S4X-000{number}"),)), "seed": number}
    return run(device, **{**own, **changes})


def compared(*results: Result) -> Comparison:
    return compare([(f"{chr(ord('A') + index)}.json", result) for index, result in enumerate(results)])


def headline_text(found: Comparison) -> str:
    return next(row.against[0].text for row in found.rows if row.cell.name == HEADLINE.name)


def test_a_drive_of_half_the_rate_is_shown_so() -> None:
    """The ratio of the rates, its interval, and whose rate it is a share of."""
    found = compared(run(), run(SLOW, seed=2))
    assert found.refusals == () and found.left_out == () and len(found.rows) == len(CELLS)
    for row in found.rows:
        ratio = row.against[0].ratio
        if row.cell.place == "target":
            times = 2 if row.basis == "sync" else 0.5
            assert ratio is not None and ratio.value == pytest.approx(times, rel=0.1), row.cell.name
    assert re.fullmatch(r"0\.(49|5\d) of A\.json \(0\.\d\d to 0\.\d\d\)", headline_text(found))


def test_a_ratio_that_is_far_from_one_or_near_it_has_the_digits_it_needs() -> None:
    """A disk against an SSD is not 0.00 of it, and a difference that is shown does not read 1.00."""
    result = run(cells=(HEADLINE,))

    def at(rate: float) -> Result:
        rounds = tuple(
            replace(each, seconds=each.commits / (rate * (1 + number / 10_000)))
            for number, each in enumerate(result.cells[0].rounds)
        )
        return replace(result, cells=(replace(result.cells[0], rounds=rounds),))

    assert headline_text(compared(at(41_000), at(95))).startswith("0.00232 of A.json (0.00232")
    text = headline_text(compared(at(41_000), at(41_123)))
    assert re.fullmatch(r"1\.003 of A\.json \(1\.00\d to 1\.00\d\)", text) and "1.000" not in text
    text = headline_text(compared(at(41_000), at(41_000)))
    assert re.fullmatch(r"no difference shown \(0\.999\d? to 1\.000\d+ of A\.json\)", text)


@pytest.mark.parametrize("seed", range(2, 12))
def test_two_runs_on_one_drive_show_no_difference(seed: int) -> None:
    """Other noise is not another drive; the interval is told all the same."""
    found = compared(run(Device(noise=0.1)), run(Device(noise=0.1), seed=seed))
    shown = [row for row in found.rows if "no difference shown" not in row.against[0].text]
    assert len(shown) <= 3, f"seed {seed}"
    assert found.subject == () and found.surroundings == () and found.warnings == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": "accept"}, "the mode differs: standard in A.json, accept in B.json"),
        ({"profile": "etcd"}, "the profile differs: none in A.json, etcd in B.json"),
        ({"size_bytes": 1 << 30}, "the size of the files differs: 256 MiB in A.json, 1 GiB in B.json"),
        ({"cells": QUICK, "mode": "quick"}, "B.json: a quick run: a first look, with few rounds"),
        ({"cells": (replace(HEADLINE, seconds=20.0), *CELLS[1:])}, "the same cells were measured for "),
    ],
)
def test_unlike_runs_are_compared_in_what_they_share(changes: dict[str, Any], words: str) -> None:
    """A difference between runs gives one warning; their common cells are compared anyway."""
    found = compared(run(), run(SLOW, **changes))
    assert found.refusals == () and found.rows != ()
    assert sum(words in warning for warning in found.warnings) == 1
    assert re.match(r"0\.(49|5\d) of A\.json", headline_text(found))


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"block_bytes": 8192}, {"file_state": "sparse"}, {"jobs": 2}])
def test_cells_of_one_name_that_are_not_one_measurement_are_left_out(change: dict[str, Any]) -> None:
    """A name alone is not believed: the cell is left out, and the field that differs is named."""
    found = compared(run(), run(SLOW, cells=(replace(HEADLINE, **change), *CELLS[1:])))
    (field,) = change
    assert HEADLINE.name in found.left_out and HEADLINE.name not in {row.cell.name for row in found.rows}
    assert f"left out: the definition of {HEADLINE.name} differs ({field})" in found.warnings


@pytest.mark.parametrize("changes", [{"cells": (STANDARD[9],)}, {"rounds": 0}])
def test_results_without_a_cell_in_common_are_refused(changes: dict[str, Any]) -> None:
    """One sentence, and no figure."""
    found = compared(run(), run(SLOW, **changes))
    assert found.refusals == ("no cell was measured in all results",)
    assert found.rows == () and found.causes == ("",)
    proof = Proof(cuts=59, losses=0, bound=0.0496, cut_class="power", source="campaign x", lost_in="")
    proven = compare([("a", run()), ("b", other_drive(SLOW, **changes))], [proof, proof])
    for one in (found, proven):  # however well both are proven, neither is called as good as the other
        assert one.answers == ("Not compared: no cell was measured in all results.",)
        assert comparison_document(one)["answers"] == list(one.answers)


def test_one_cause_of_refusal_is_one_line() -> None:
    """However many cells are defined otherwise, there is one sentence that counts them."""
    other = tuple(replace(cell, block_bytes=512) for cell in CELLS)
    found = compared(run(), run(cells=other))
    (refusal,) = found.refusals
    assert refusal.startswith("no cell is the same measurement in all results: the definition of ")
    assert f"and of {len(CELLS) - 1} other cells differs (block_bytes)" in refusal


def test_controls_that_are_not_the_same_carry_no_cause() -> None:
    """Two writers commit otherwise than one, and the rest of the cells may be alike."""
    controls = tuple(replace(cell, jobs=2) if cell.group == "controls" else cell for cell in CELLS)
    found = compared(run(), run(SLOW, cells=controls))
    assert found.rows and found.causes == ("",)
    assert compared(run(), run(SLOW)).causes != ("",)


def test_ratios_are_given_across_plausibilities_with_one_caveat() -> None:
    """A device that does no media work at a flush beats one that does: the caveat says so, once."""
    honest = Device(flush_ns=8_000, dirty_ns=600_000, dirty_bytes_per_s=2e9)
    found = compared(run(honest), other_drive())
    assert all(row.against[0].ratio is not None for row in found.rows if row.basis != "pace")
    assert "a drive that ignores flushes looks fast" in found.caveat
    assert "A.json: consistent with an honoured volatile cache" in found.caveat
    assert not any("ranked" in row.against[0].text for row in found.rows)
    assert not any("ranked" in warning for warning in found.warnings)


@pytest.mark.slow
def test_proofs_settle_it() -> None:
    """With both drives proven there is no caveat, and the answer names the faster one with its cuts."""
    proof = Proof(cuts=59, losses=0, bound=0.0496, cut_class="power", source="campaign x", lost_in="")
    found = compare([("a", run()), ("b", other_drive(SLOW))], (proof, replace(proof, cuts=64)))
    assert found.caveat == "" and found.proofs[1] is not None and found.proofs[1].cuts == 64
    assert found.answers == (
        "Take a: it commits 2 times as fast as b, and both are proven, in 59 and 64 cuts.",
    )
    document = json.loads(to_json(comparison_document(found)))
    assert document["proofs"][0]["text"] == "proven in 59 cuts" and document["answers"] == list(found.answers)


@pytest.mark.slow
def test_a_platter_that_is_overtaken_is_suspicious_without_a_flush_too() -> None:
    """The disk declares write through, so it got no flush, and commits faster than it turns: it is not taken
    unless cuts have proven it. A controller's volume only lacks a proof."""
    where = facts(drives=(drive(write_cache="write through", rotational=True),))
    media = (Medium(name="sda", rpm=7200, link_bytes_per_s=600_000_000, link="SATA 6.0 Gbps"),)
    disk = run(Device(flushes=0.0), facts=where, media=media)
    proof = Proof(cuts=59, losses=0, bound=0.0496, cut_class="power", source="campaign x", lost_in="")
    pair = [("a", disk), ("b", other_drive(SLOW))]
    (answer,) = compare(pair).answers
    assert answer.startswith("Do not take a: it committed faster than its platter turns.")
    volume = replace(disk, media=(replace(media[0], link="PCIe 8.0 GT/s x8"),))
    (answer,) = compare([("a", volume), pair[1]]).answers
    assert answer.startswith("Do not choose yet: ")
    (answer,) = compare(pair, (proof, proof)).answers
    assert answer.startswith("Take a: ")


@pytest.mark.slow
def test_three_results_are_each_held_against_the_first() -> None:
    """One row, two comparisons."""
    found = compared(run(), run(SLOW, seed=2), run(seed=3))
    (row,) = (row for row in found.rows if row.cell.name == HEADLINE.name)
    assert len(row.against) == 2 and len(row.summaries) == 3
    assert " of A.json (" in row.against[0].text and row.against[1].text.startswith("no difference shown")


def test_three_proven_results_get_one_choice() -> None:
    """Each pair has its own answer, which names the pair; the last sentence is over all."""
    proof = Proof(cuts=59, losses=0, bound=0.0496, cut_class="power", source="campaign x", lost_in="")
    slowest = Device(write_ns=80_000, flush_ns=60_000)
    found = compare(
        [
            ("a", run(slowest, cells=(HEADLINE,))),
            ("b", other_drive(SLOW, cells=(HEADLINE,))),
            ("c", other_drive(number=3, cells=(HEADLINE,))),
        ],
        [proof] * 3,
    )
    assert [one.partition(":")[0] for one in found.answers] == ["a or b? Take b", "a or c? Take c"]
    assert found.choice == "Of all 3, take c: it is the fastest that is proven."
    assert comparison_document(found)["choice"] == found.choice


def test_three_results_of_which_no_speed_is_compared_get_no_choice() -> None:
    """However well they are proven: they have no cell in common."""
    proof = Proof(cuts=59, losses=0, bound=0.0496, cut_class="power", source="campaign x", lost_in="")
    pair = [(name, run(cells=(HEADLINE,))) for name in "ab"]
    found = compare([*pair, ("c", run(cells=(CELLS[-1],)))], [proof] * 3)
    assert found.refusals and not found.rows and found.choice == ""


@pytest.mark.slow
def test_swapping_two_results_inverts_the_ratio() -> None:
    """It does not matter which file is named first."""
    one, other = run(), run(SLOW, seed=2)
    there, back = compared(one, other).rows[0].against[0].ratio, compared(other, one).rows[0].against[0].ratio
    assert there is not None and back is not None
    assert there.inverse().value == pytest.approx(back.value)
    assert there.inverse().low == pytest.approx(back.low)


@pytest.mark.slow
def test_a_partial_result_is_compared_as_far_as_it_goes() -> None:
    """Cells that one has not are listed, few rounds have no interval, and the reader is warned."""
    partial = run(rounds=3, cells=CELLS[:2], complete=False, stopped="stopped by Ctrl-C")
    found = compared(run(), partial)
    assert found.refusals == () and len(found.rows) == 2
    assert set(found.left_out) == {cell.name for cell in CELLS[2:]}
    assert any("B.json: some rounds are missing: stopped by Ctrl-C" in one for one in found.warnings)
    assert any("the results have different cells" in one for one in found.warnings)
    for rounds, words in ((3, "from 3 rounds"), (1, "from 1 round")):
        whole = compared(run(), run(rounds=rounds))
        assert f"{words}; an interval needs 5" in headline_text(whole)


def test_subject_and_surroundings_are_told_apart() -> None:
    """Another drive is what is compared; another kernel may explain what is seen."""
    other = facts(drives=(drive(model="Model Two", firmware="2.0"),), virtualisation="kvm")
    other = replace(other, host=replace(other.host, kernel="Linux 6.12.0"))
    found = compared(run(), run(seed=2, facts=other))
    assert {one.what for one in found.subject} == {"drives", "firmware"}
    assert {one.what for one in found.surroundings} == {"kernel", "virtualisation"}
    assert next(one for one in found.surroundings if one.what == "kernel").values == (
        "Linux 6.1.0",
        "Linux 6.12.0",
    )


def test_one_drive_is_one_whether_its_serial_is_hashed_or_shown() -> None:
    """A result with serials hides them when it meets one without."""
    assert compared(run(), hash_serials(run(seed=2))).subject == ()


@pytest.mark.slow
def test_the_engines_are_compared_each_with_itself() -> None:
    """fio's rounds of a cell are a row of their own, and left out where one result has none."""
    one, other = run(), run(seed=2)
    bare = tuple(replace(each, commit_ns=NO_LATENCIES, sync_ns=NO_LATENCIES) for each in one.cells[0].rounds)
    fio = replace(one.cells[0], engine="fio", rounds=bare)
    order = (*one.order, *([len(one.cells)] * len(bare)))
    both = [replace(result, cells=(*result.cells, fio), order=order) for result in (one, other)]
    found = compared(*both)
    assert [row.engine for row in found.rows if row.cell.name == HEADLINE.name] == ["durability", "fio"]
    assert compared(both[0], other).left_out == (f"{HEADLINE.name} (fio)",)


@pytest.mark.slow
def test_sustained_cells_of_unlike_length_are_left_out() -> None:
    """Ten minutes are another test than thirty."""
    found = compared(*(run(cells=sustained(minutes), mode="accept") for minutes in (10, 30)))
    assert any(warning.startswith("left out: ") and "(seconds)" in warning for warning in found.warnings)
    assert not any(row.cell.group == "sustained" for row in found.rows)


def test_a_round_that_did_nothing_is_no_division_by_zero() -> None:
    """A device that hung for a whole round leaves nothing to compare."""
    result = run()
    hung = replace(
        result.cells[0].rounds[0], commits=0, writes=0, commit_ns=NO_LATENCIES, sync_ns=NO_LATENCIES
    )
    cells = (replace(result.cells[0], rounds=(hung, *result.cells[0].rounds[1:])), *result.cells[1:])
    found = compared(run(seed=2), replace(result, cells=cells))
    assert headline_text(found) == "a round had no operation: nothing to compare"


def test_of_the_flush_ladder_the_sync_is_compared() -> None:
    """A write of twice the time and a flush of half of it: by the rate the slower flush would win."""
    found = compared(run(), run(Device(write_ns=40_000, flush_ns=7_500), seed=2))
    for row in (row for row in found.rows if row.cell.group == "flush ladder"):
        ratio = row.against[0].ratio
        assert row.basis == "sync" and ratio is not None
        assert ratio.value == pytest.approx(0.5, rel=0.1)
        assert re.fullmatch(r"sync 0\.\d\d of A\.json \(.*\)", row.against[0].text)
        first, _ = row.spreads
        assert first is not None and first.median == pytest.approx(15_000, rel=0.1)
        document = json.loads(to_json(comparison_document(found)))
        (written,) = (one for one in document["cells"] if one["name"] == row.cell.name)
        assert (written["basis"], written["sync_us"][0]["median"]) == ("sync", first.median / 1000)


def _late(result: Result, factor: float) -> Result:
    """The same, each round having taken so many times as long."""
    cells = tuple(
        replace(one, rounds=tuple(replace(each, seconds=each.seconds * factor) for each in one.rounds))
        for one in result.cells
    )
    return replace(result, cells=cells)


@pytest.mark.slow
def test_a_pace_is_no_ground_for_a_comparison() -> None:
    """If both results keep the pace, the comparison gives latencies and no ratio. If one does not, it gives
    the ratio of rates."""
    cells = (*CELLS, PACED)
    one, other = (run(device, cells=cells) for device in (Device(), SLOW))
    paced = next(row for row in compared(one, other).rows if row.cell == PACED)
    assert paced.basis == "pace" and paced.against[0].ratio is None
    assert re.fullmatch(
        r"the rate is the pace: p50 \S+ µs against \S+ µs, p99 \S+ µs against \S+ µs", paced.against[0].text
    )
    paced = next(row for row in compared(one, _late(other, 1.5)).rows if row.cell == PACED)
    assert paced.basis == "rate" and paced.against[0].ratio is not None
    assert paced.against[0].ratio.value == pytest.approx(1 / 1.5)


def test_results_of_which_nothing_is_known_have_the_caveat() -> None:
    """Without controls both are inconclusive, which is one class and says nothing."""
    found = compared(*(run(seed=seed, cells=(HEADLINE,)) for seed in (1, 2)))
    assert found.classes() == (("inconclusive", ("A.json", "B.json")),)
    assert found.caveat.startswith("Ratios are not a ranking") and found.causes == ("",)
    assert found.rows[0].against[0].ratio is not None


def test_fewer_than_two_results_are_a_usage_error() -> None:
    """There is nothing to compare."""
    with pytest.raises(UsageError, match="two results"):
        compared(run())


def test_a_set_up_that_sends_no_flush_is_not_taken() -> None:
    """A faster set-up of the same drive is not recommended if it sends no flush, even if the campaign matches
    both results."""
    proof = Proof(cuts=59, losses=0, bound=0.0495, cut_class="power", source="campaign x", lost_in="")
    safe = run(Device(dirty_ns=500_000, dirty_bytes_per_s=400e6))
    fast = run(Device(flushes=0.0), seed=2)
    found = compare([("default.json", safe), ("nobarrier.json", fast)], [proof, proof])
    assert found.answers == (
        "Both results are of one drive (serial S4X-0001 7). Do not use nobarrier.json: it acknowledged"
        " commits without a flush to any drive. default.json is proven in 59 cuts.",
    )
    elsewhere = compare([("a", safe), ("b", other_drive(Device(flushes=0.0)))], [proof, proof])
    assert elsewhere.answers[0].startswith("Do not take b: it acknowledged commits without a flush")
    assert found.caveat.startswith("The rate of nobarrier.json is worth nothing")


@pytest.mark.slow
def test_cuts_outweigh_times_that_no_platter_allows() -> None:
    """A protected cache in front of a disk is as fast; only without proof the disk is not to be taken."""
    turning = (Medium(name="sda", rpm=7200, link_bytes_per_s=600_000_000, link=""),)
    disk = run(facts=facts(drives=(drive(rotational=True),)), media=turning)
    proof = Proof(cuts=59, losses=0, bound=0.0495, cut_class="power", source="campaign x", lost_in="")
    pair = [("a", other_drive(SLOW)), ("b", disk)]
    (said,) = compare(pair, [proof, proof]).answers
    assert said.startswith("Take b: it commits 2 times as fast as a") and "both are proven" in said
    (said,) = compare(pair, [proof, replace(proof, cuts=5, bound=0.45)]).answers
    assert said.startswith("Do not take b: it committed faster than its platter turns.")


@pytest.mark.slow
def test_what_another_client_says_makes_no_times_suspicious() -> None:
    """Else any client could say that a protected cache is a lie: the drive is not proven, and not out."""
    turning = (Medium(name="sda", rpm=7200, link_bytes_per_s=600_000_000, link=""),)
    disk = run(facts=facts(drives=(drive(rotational=True),)), media=turning)
    doubtful = replace(PROVEN, disputed="1 loss in runs of lab that are left out")
    (said,) = compare([("a", other_drive(SLOW)), ("b", disk)], [PROVEN, doubtful]).answers
    assert said == (
        "Only a is proven, in 59 cuts. b commits 2 times as fast as a, but b has no loss in 59 cuts, but 1"
        " loss in runs of lab that are left out: choose whose runs of it count with `compare --client`"
        " before you take it."
    )


@pytest.mark.slow
def test_what_was_not_searched_proves_no_drive() -> None:
    """Nor does it make the times of a proven drive suspicious. The answer says where to compare."""
    turning = (Medium(name="sda", rpm=7200, link_bytes_per_s=600_000_000, link=""),)
    disk = run(facts=facts(drives=(drive(rotational=True),)), media=turning)
    unseen = replace(PROVEN, unsearched=NO_CAMPAIGNS)
    pair = [("a", other_drive(SLOW)), ("b", disk)]
    (said,) = compare(pair, [PROVEN, unseen]).answers
    assert said == (
        "Only a is proven, in 59 cuts. b commits 2 times as fast as a, but b has no loss in 59 cuts, but this"
        " client may not see campaigns, so none was searched: compare on the server's machine or as a viewer"
        " before you take it."
    )
    (said,) = compare(pair, [unseen, unseen]).answers
    assert said.startswith("Do not choose yet: ") and said.count(NO_CAMPAIGNS) == 2
    assert said.endswith(" Compare on the server's machine or as a viewer.")


def test_two_runs_of_one_drive_are_answered_as_such() -> None:
    """Whether its serial is shown or hidden; another drive of the model is another drive."""
    proof = Proof(cuts=59, losses=0, bound=0.0495, cut_class="power", source="campaign x", lost_in="")
    one, slower = run(), run(SLOW, seed=2)
    (said,) = compare([("before", one), ("after", slower)], (proof, proof)).answers
    assert said == (
        "Both results are of one drive (serial S4X-0001 7): before commits 2 times as fast as after. The"
        " ratio is between two runs or set-ups of it. It is proven in 59 cuts."
    )
    (hidden,) = compare([("before", one), ("after", hash_serials(slower))]).answers
    assert hidden.startswith("Both results are of one drive (serial sha256:")
    assert compared(one, other_drive(SLOW)).answers[0].startswith("Do not choose yet: ")


def test_quick_results_that_lie_apart_differ() -> None:
    """Three rounds have no interval. A drive 28 times as fast is taken, and measured once more."""
    proof = Proof(cuts=59, losses=0, bound=0.0495, cut_class="power", source="campaign x", lost_in="")
    disk = run(Device(write_ns=5e5, flush_ns=5e5), cells=QUICK, mode="quick")
    pair = [("disk", disk), ("ssd", other_drive(cells=QUICK, mode="quick"))]
    (said,) = compare(pair, (proof, proof)).answers
    assert said.startswith("Take ssd: it commits 28 times as fast as disk (in too few rounds to be sure)")
    assert said.endswith("Measure once more to be sure.")
    alike = [pair[1], ("twin", other_drive(number=3, cells=QUICK, mode="quick"))]
    (said,) = compare(alike, (proof, proof)).answers
    assert said.endswith("too few rounds to tell their speeds apart. Measure both again without --quick.")


def test_one_row_decides() -> None:
    """Without the headline the first load of commits does, for the answer and for the screen: not the control
    of empty syncs, and not what fio measured."""
    cells = (FLUSH_CONTROL, FSYNC)
    found = compared(run(cells=cells), run(SLOW, seed=2, cells=cells))
    row = deciding_row(found.rows)
    assert row is not None and row.cell == FSYNC and row.against[0].ratio is not None
    assert f"A.json commits {multiple(1 / row.against[0].ratio.value)} times as fast" in found.answers[0]
    assert deciding_row(compared(run(cells=cells[:1]), run(cells=cells[:1])).rows) is None


def test_a_pace_does_not_decide() -> None:
    """The rate of a paced cell does not decide. If one result cannot keep the pace, the other's rate is still
    the pace and not its rate of commits."""
    one, other = run(cells=(PACED,)), _late(run(SLOW, seed=2, cells=(PACED,)), 1.5)
    found = compared(one, other)
    assert found.rows[0].basis == "rate" and deciding_row(found.rows) is None
    assert "no cell that commits was measured in both" in found.answers[0]


PROVEN = Proof(cuts=59, losses=0, bound=0.0495, cut_class="power", source="campaign x", lost_in="")


def held(*rates: float, falls_to: float = 1.0, device: Device = Device(), number: int = 1) -> Result:  # noqa: B008
    """A result of `bench --accept` on a drive of its own, whose held loads begin at these rates."""
    loads = {cell.name: rate for cell, rate in zip(HELD, rates, strict=False)}
    where = facts(drives=(drive(serial=f"S4X-000{number}"),))
    return accept_result(device, rates=loads, falls_to=falls_to, facts=where)


STEADY = held(2000.0, 900.0, device=HONEST)


def decided(*results: Result) -> Comparison:
    return compare(list(zip("AB", results, strict=True)), [PROVEN, PROVEN])


def only_held(result: Result) -> Result:
    cells = tuple(one for one in result.cells if one.cell.group == "sustained")
    return replace(result, cells=cells, order=tuple(range(len(cells))))


@pytest.mark.slow
def test_a_drive_that_collapses_under_load_is_not_taken() -> None:
    """A drive that is 16 times as fast in short rounds but a thirteenth as fast at the end of the load is not
    simply recommended: the answer gives both ratios. Text and JSON say how far the rate fell."""
    found = decided(STEADY, held(9000.0, 6000.0, falls_to=1 / 60, number=2))
    assert found.answers == (
        "Choose by your load: B commits 16 times as fast as A in short rounds, but A commits 13 times as fast"
        " as B at the end of 30 s of load by 1 writer (2,000 against 150 commits/s, 8.19 against 0.614 MB/s)"
        " and 9 times as fast at the end of 30 s of load by 16 writers of 64 KiB (900 against 100 commits/s,"
        " 59 against 6.55 MB/s). Both are proven, in 59 and 59 cuts.",
    )
    assert found.steadiness == ("held for 30 s, B's rate fell to 2 %",)
    assert comparison_document(found)["steadiness"] == list(found.steadiness)
    (row,) = (row for row in found.rows if row.cell.name == HELD_COMMIT.name)
    assert row.against[0].ratio is not None and row.against[0].ratio.value > 1


@pytest.mark.slow
def test_a_held_load_that_agrees_or_ties_leaves_the_faster_drive() -> None:
    """It is taken; where its lead is gone at the end, or its rate fell, one line says so."""
    in_short = "Take B: it commits 16 times as fast as A in short rounds, and both are proven"
    ahead = decided(STEADY, held(30_000.0, 9000.0, number=2))
    assert ahead.answers[0].startswith(in_short)
    assert ahead.steadiness == ()
    level = decided(STEADY, held(8000.0, 3600.0, falls_to=0.25, number=2))
    assert level.answers[0].startswith(in_short)
    assert level.steadiness == (
        "held for 30 s, B's rate fell to 25 %",
        "at the end of 30 s of load by 1 writer, B commits only 1.00 times as fast as A (2,000 against"
        " 2,000 commits/s, 8.19 against 8.19 MB/s)",
    )


@pytest.mark.slow
def test_what_held_no_load_is_named_beside_what_fell() -> None:
    """The steadiness line names a drive whose rate fell, a drive without such a load, and short rounds that
    scatter."""
    fallen = held(3000.0, 900.0, falls_to=0.05, number=2)
    found = decided(run(), fallen)
    assert found.steadiness == ("held for 30 s, B's rate fell to 5 %; A held no such load",)
    (said,) = decided(run(Device(noise=0.6)), other_drive()).steadiness
    assert said.startswith("A: rounds differ by ")
    (said,) = decided(STEADY, held(2000.0, 900.0, falls_to=2.0, number=2)).steadiness
    assert said.startswith("held for 30 s, B's rate was not steady: windows differ by ")


@pytest.mark.slow
def test_two_results_of_held_loads_alone_are_compared_by_their_end() -> None:
    """A load that was held has one round, and no advice on quick results helps it."""
    found = decided(only_held(STEADY), only_held(held(3000.0, 900.0, falls_to=0.05, number=2)))
    row = deciding_row(found.rows)
    assert row is not None and row.cell.name == HELD_COMMIT.name
    assert found.answers == (
        "Take A: it commits 13 times as fast as B at the end of 30 s of load by 1 writer (2,000 against 150"
        " commits/s, 8.19 against 0.614 MB/s), and both are proven, in 59 and 59 cuts.",
    )
    alike = decided(only_held(STEADY), only_held(held(2100.0, 900.0, number=2)))
    assert alike.answers[0].startswith(
        "Take either: no large difference in speed is shown between A and B at"
    )


FASTER = Device(write_ns=20_000, flush_ns=15_000, dirty_ns=300_000, dirty_bytes_per_s=400e6)  # 1.6 times
COLLAPSED = held(3500.0, 1500.0, falls_to=0.05, device=FASTER, number=2)


@pytest.mark.slow
def test_a_third_result_changes_no_answer_about_two() -> None:
    """It held no load. Those that the other two held still decide between them."""
    (alone,) = compare([("a", STEADY), ("b", COLLAPSED)], [PROVEN] * 2).answers
    assert alone.startswith("Choose by your load: b commits 1.6 times as fast as a in short rounds, but a")
    slow = other_drive(Device(write_ns=30_000, dirty_ns=1.5e6, dirty_bytes_per_s=4e8), number=3)
    three = compare([("a", STEADY), ("b", COLLAPSED), ("c", slow)], [PROVEN] * 3)
    assert three.answers[0] == f"a or b? {alone}"
    assert three.choice.startswith(
        "Of all 3, take a or b: they are proven, and which of them is faster depends on the load."
    )


def of_length(result: Result, seconds: int) -> Result:
    """The same with loads that were planned, and held, for so many seconds, their ends repeated or cut."""

    def longer(one: CellRounds) -> CellRounds:
        (each,) = one.rounds
        bins = (*each.bins, *each.bins[-1:] * seconds)[:seconds]
        silent = replace(each, commit_ns=NO_LATENCIES)
        held_for = replace(silent, seconds=float(seconds), bins=bins, commits=sum(bins), writes=sum(bins))
        return replace(one, cell=replace(one.cell, seconds=float(seconds)), rounds=(held_for,))

    cells = (longer(one) if one.cell.group == "sustained" else one for one in result.cells)
    return replace(result, cells=tuple(cells))


@pytest.mark.slow
def test_held_loads_of_unlike_lengths_are_compared_at_the_end_of_the_shorter_one() -> None:
    """The collapse came before that, so it counts, whichever was longer."""
    for pair in ((of_length(STEADY, 120), COLLAPSED), (STEADY, of_length(COLLAPSED, 120))):
        (said,) = decided(*pair).answers
        assert said.startswith("Choose by your load: B commits 1.6 times as fast as A in short rounds, but A")
        assert (
            "at the end of 30 s of load by 1 writer (2,000 against 175 commits/s, 8.19 against 0.717 MB/s)"
            in said
        )
    # Of what came after the end of the shorter one nobody knows how the other had done.
    (said,) = decided(of_length(STEADY, 20), of_length(COLLAPSED, 120)).answers
    assert said.startswith("Choose by your load")
    (said,) = decided(of_length(STEADY, 6), of_length(COLLAPSED, 120)).answers
    assert said.startswith(
        "Do not choose yet: B commits 1.6 times as fast as A in short rounds, but held for"
    )
    assert "120 s, its rate fell to 17 %. Measure both with the same --accept. Both are proven" in said


@pytest.mark.slow
def test_a_lead_in_short_rounds_is_not_taken_if_the_rate_fell_where_the_other_was_not_held() -> None:
    """Only the faster one has a result of --accept."""
    standard = run(HONEST)
    for pair, fast, slow in (((standard, COLLAPSED), "B", "A"), ((COLLAPSED, standard), "A", "B")):
        (said,) = decided(*pair).answers
        assert said == (
            f"Do not choose yet: {fast} commits 1.6 times as fast as {slow} in short rounds, but held for"
            " 30 s, its rate fell to 5 %. Measure both with the same --accept. Both are proven, in 59 and 59"
            " cuts."
        )
    (said,) = decided(standard, held(3500.0, 1500.0, device=FASTER, number=2)).answers
    assert said.startswith("Take B: it commits 1.6 times as fast as A in short rounds, and both")


@pytest.mark.slow
def test_the_line_on_a_lost_lead_is_of_the_load_that_decides() -> None:
    """One writer is as far ahead at the end as in short rounds; of 16 writers nothing was said."""
    ahead = held(29_000.0, 950.0, number=2)
    found = decided(STEADY, ahead)
    assert found.answers[0].startswith("Take B: ") and found.steadiness == ()
    # Held by 16 writers alone, on a drive that is as far ahead in short rounds.
    first = accept_result(HONEST, without=HELD[:1])
    other = accept_result(Device(), without=HELD[:1], rates={HELD[1].name: 950.0}, facts=ahead.facts)
    found = decided(first, other)
    assert found.answers[0].startswith("Take B: ") and found.steadiness == ()


def hung(result: Result) -> Result:
    """The same, with a round of the cell that decides in which nothing was committed."""

    def silenced(one: CellRounds) -> CellRounds:
        silent = replace(one.rounds[2], commits=0, writes=0, commit_ns=NO_LATENCIES, sync_ns=NO_LATENCIES)
        return replace(one, rounds=(*one.rounds[:2], silent, *one.rounds[3:]))

    cells = (silenced(one) if one.cell.name == HEADLINE.name else one for one in result.cells)
    return replace(result, cells=tuple(cells))


def stops(result: Result, *, after: int) -> Result:
    """The same, whose held loads made so many commits in their first second, and none after it."""

    def silenced(one: CellRounds) -> CellRounds:
        (each,) = one.rounds
        bins = (after, *(0 for _ in each.bins[1:]))
        silent = replace(each, commit_ns=NO_LATENCIES, sync_ns=NO_LATENCIES, work=None)
        return replace(one, rounds=(replace(silent, bins=bins, commits=after, writes=after),))

    cells = (silenced(one) if one.cell.group == "sustained" else one for one in result.cells)
    return replace(result, cells=tuple(cells))


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 1900, 2100])
def test_commits_that_stop_in_a_held_load_take_no_drive(after: int) -> None:
    """However few they were before, also where the other drive held no load, or stopped too."""
    again = "again. If it happens again, find out what stopped the commits."
    where = "had no commit at the end of 30 s of load by 1 writer"
    stopped = stops(held(3500.0, 1500.0, device=FASTER, number=2), after=after)
    for first in (run(HONEST), STEADY):
        (said,) = decided(first, stopped).answers
        assert said == f"Do not choose yet: B {where}. Measure B {again}"
    for pair in ((stops(STEADY, after=after), stopped), (only_held(stops(STEADY, after=after)), stopped)):
        (said,) = decided(*pair).answers
        assert said == f"Do not choose yet: A and B {where}. Measure A and B {again}"


@pytest.mark.slow
def test_a_slow_drive_that_collapses_in_a_held_load_is_not_taken() -> None:
    """It makes fewer commits than windows need, and too few at the end for chance to be why."""
    slow = held(100.0, 50.0, falls_to=0.1, device=FASTER, number=2)
    (said,) = decided(run(HONEST), slow).answers
    assert said.startswith(
        "Do not choose yet: B commits 1.6 times as fast as A in short rounds, but held for 30 s, its rate"
        " fell to 10 %. Measure both with the same --accept."
    )


@pytest.mark.slow
def test_a_round_without_a_commit_is_said_and_has_no_cause() -> None:
    """The cell was measured in both. Without a ratio there is nothing to explain."""
    found = decided(run(HONEST), hung(other_drive()))
    assert found.answers == (
        "Do not choose yet: a round of B had no commit. Measure B again. If it happens again, find out what"
        " stopped the commits.",
    )
    assert found.causes == ("",) and decided(run(HONEST), other_drive()).causes != ("",)


def test_short_rounds_decide_before_a_load_that_was_held() -> None:
    """Short rounds decide before a held load, in any order of cells in the file."""
    cells = (*(cell for cell in sustained() if cell.name == HELD_COMMIT.name), FSYNC)
    row = deciding_row(compared(run(cells=cells), run(SLOW, cells=cells)).rows)
    assert row is not None and row.cell == FSYNC


@pytest.mark.parametrize(
    ("stopped", "how"),
    [
        ("interrupted (Ctrl-C)", "by Ctrl-C"),
        ("ended by a signal", "by a signal"),
        ("", "for an unknown reason"),
        ("/srv: the target is full", "by an error (/srv: the target is full)"),
        (
            f"/srv/{'x' * 90}: 4k: I/O error of the target: Input/output error",
            f"by an I/O error (…{'x' * 40}: 4k: I/O error of the target: Input/output error)",
        ),
    ],
)
def test_a_result_that_was_broken_off_chooses_no_drive(stopped: str, how: str) -> None:
    """All of its rounds may be there: it is still to be measured again, and the answer says what ended it."""
    partial = other_drive(SLOW, cells=(HEADLINE,), complete=False, stopped=stopped)
    for pair in ((run(cells=(HEADLINE,)), partial), (partial, run(cells=(HEADLINE,)))):
        (said,) = decided(*pair).answers
        label = "B" if pair[1] is partial else "A"
        assert said.startswith(
            f"Do not choose yet: the measurement of {label} was broken off {how}. Measure {label} again."
        )
        assert ("in the kernel's log" in said) == ("I/O error" in how)


def test_the_size_of_the_files_is_a_condition() -> None:
    """1 MiB fits into a cache that 1 GiB fills."""
    found = compared(run(cells=(HEADLINE,), size_bytes=1 << 20), run(cells=(HEADLINE,), size_bytes=1 << 30))
    assert found.conditions == ("size of the files",)
    (size,) = found.surroundings
    assert size.values == ("1 MiB", "1 GiB")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_identical_drives_with_one_round_have_no_cause(seed: int) -> None:
    """Beside too few rounds to tell their speeds apart, none stands."""
    device = Device(write_ns=60_000, flush_ns=100_000, dirty_ns=300_000, dirty_bytes_per_s=400e6, noise=0.15)
    found = compared(run(device, seed=seed, rounds=1), other_drive(device, seed=1000 + seed, rounds=1))
    assert "too few rounds" in found.answers[0] and found.causes == ("",), f"seed {seed}"


def test_what_is_not_only_commits_does_not_decide() -> None:
    """The rate of a mix counts its reads, and zeros may be no data: neither says what a commit costs."""
    mixed = [cell for cell in STANDARD if cell.read_percent]
    zeros = [cell for cell in PROBE if cell.data != "unique"]
    assert mixed and zeros
    found = compared(run(cells=(*mixed, *zeros)), run(SLOW, seed=2, cells=(*mixed, *zeros)))
    assert found.rows and deciding_row(found.rows) is None
    assert "no cell that commits was measured in both" in found.answers[0]
    cells = (*mixed, *zeros, FSYNC)
    row = deciding_row(compared(run(cells=cells), run(SLOW, seed=2, cells=cells)).rows)
    assert row is not None and row.cell == FSYNC
