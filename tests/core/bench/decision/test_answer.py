"""The answer: never a drive that lost data, never yet one that is not proven, then the faster one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.bench.decision.answer import SUSPICIONS, Candidate, answer, caveat, choice
from durability.bench.decision.proof import BOUND_MAX, CUTS_NEEDED, Proof, weightiest_proof
from durability.bench.decision.speeds import HeldLoad, Speeds, fading
from durability.bench.intervals import Ratio
from durability.bench.result_warnings import BrokenOff
from durability.evidence.strength import upper_bound

PROVEN = Proof(cuts=59, losses=0, bound=0.0495, cut_class="power", source="campaign x", lost_in="")
FEW = Proof(cuts=3, losses=0, bound=0.6316, cut_class="power", source="campaign x", lost_in="")
GUEST = Proof(cuts=99, losses=0, bound=0.03, cut_class="vm", source="campaign x", lost_in="")
LOST = Proof(
    cuts=3, losses=1, bound=0.9, cut_class="power", source="campaign x", lost_in="cycle 3 of campaign x"
)
TWICE = Ratio(value=2.2, low=2.0, high=2.4)
ALIKE = Ratio(value=1.01, low=0.9, high=1.1)
SPEED = "b commits 2.2 times as fast as a"
IT = "it commits 2.2 times as fast as a"


def _answer(first: Proof | None, other: Proof | None, ratio: Ratio | None = TWICE) -> str:
    return _compared(first, other, Speeds(short=ratio))


def _compared(first: Proof | None, other: Proof | None, speeds: Speeds) -> str:
    return answer(Candidate(label="a", proof=first), Candidate(label="b", proof=other), speeds)


@pytest.mark.parametrize(
    ("first", "other", "ratio", "words"),
    [
        (
            None,
            None,
            TWICE,
            f"Do not choose yet: {SPEED}, but neither is proven. Cut the power of both 59 times.",
        ),
        (PROVEN, PROVEN, TWICE, f"Take b: {IT}, and both are proven, in 59 and 59 cuts."),
        (
            PROVEN,
            PROVEN,
            ALIKE,
            "Take either: no difference in speed is shown between a and b, and both are proven, in 59 and 59"
            " cuts.",
        ),
        (None, PROVEN, TWICE, f"Take b: {IT}, and is proven in 59 cuts. a has no known power cut."),
        (
            PROVEN,
            None,
            TWICE,
            f"Only a is proven, in 59 cuts. {SPEED}, but b has no known power cut: cut its power 59 times"
            " before you take it.",
        ),
        (
            PROVEN,
            None,
            ALIKE,
            "Take a: it is proven in 59 cuts, and no difference in speed is shown between a and b. b has no"
            " known power cut.",
        ),
        (
            FEW,
            PROVEN,
            Ratio(value=0.99, low=0.9, high=1.1),
            "Take b: it is proven in 59 cuts, and no difference in speed is shown between a and b. a has only"
            " 3 of the 59 cuts needed.",
        ),
        (
            PROVEN,
            None,
            None,
            "Take a: it is proven in 59 cuts, and no cell that commits was measured in both. b has no known"
            " power cut.",
        ),
        (
            PROVEN,
            LOST,
            TWICE,
            "Do not take b: it lost data in cycle 3 of campaign x. Take a: it is proven in 59 cuts.",
        ),
        (
            None,
            LOST,
            TWICE,
            "Do not take b: it lost data in cycle 3 of campaign x. a has no known power cut: cut its power 59"
            " times before you take it.",
        ),
        (
            LOST,
            LOST,
            TWICE,
            "Take neither: a lost data in cycle 3 of campaign x, and b lost data in cycle 3 of campaign x.",
        ),
        (
            FEW,
            None,
            TWICE,
            f"Do not choose yet: {SPEED}, but neither is proven. Cut the power of a 56 more times and of b 59"
            " times.",
        ),
    ],
)
def test_the_answer(first: Proof | None, other: Proof | None, ratio: Ratio | None, words: str) -> None:
    """Each pair of drives has its sentence."""
    assert _answer(first, other, ratio) == words


def test_cuts_that_leave_the_drive_its_power_prove_nothing_of_it() -> None:
    """99 forced stops of a guest without a loss are too few of the right kind."""
    assert GUEST.word == "too few cuts" and "the drive kept its power" in GUEST.text
    assert "Do not choose yet" in _answer(GUEST, None)


@pytest.mark.parametrize(
    ("value", "share", "low"),
    [(1.05, "5%", 1.02), (1.003, "under 1%", 1.001), (1.34, "34%", 1.3), (1.09, "9%", None)],
)
def test_no_drive_is_taken_for_a_small_difference(value: float, share: str, low: float | None) -> None:
    """Two runs of one drive have differed by as much as 34 %."""
    ratio = Ratio(value=value, low=low, high=low and 1.36, apart=True)
    speed = f"b commits {share} faster than a, and two runs of one drive have differed by as much"
    assert _answer(PROVEN, PROVEN, ratio) == f"Take either: {speed}, and both are proven, in 59 and 59 cuts."
    assert (
        _answer(PROVEN, None, ratio)
        == f"Take a: it is proven in 59 cuts, and {speed}. b has no known power cut."
    )
    assert _answer(PROVEN, PROVEN, Ratio(value=1.36, low=1.35, high=1.37)).startswith(
        "Take b: it commits 1.4 "
    )


def test_rounds_that_lie_apart_show_a_difference_without_an_interval() -> None:
    """Quick results have no interval. All rounds of the one above all of the other are a difference, which
    one more measurement makes sure."""
    few = Ratio(value=28.0, low=None, high=None, apart=True)
    words = "commits 28 times as fast as a (in too few rounds to be sure)"
    assert f"b {words}, but neither is proven" in _answer(None, None, few)
    assert _answer(PROVEN, PROVEN, few) == (
        f"Take b: it {words}, and both are proven, in 59 and 59 cuts. Measure once more to be sure."
    )
    assert _answer(None, PROVEN, few) == (
        f"Take b: it {words}, and is proven in 59 cuts. a has no known power cut."
        " Measure once more to be sure."
    )


def test_rounds_that_overlap_without_an_interval_are_to_be_measured_again() -> None:
    """With too few rounds for an interval, the answer claims and denies no difference, whatever the ratio,
    and asks for another measurement."""
    speed, again = (
        "a and b had too few rounds to tell their speeds apart",
        "Measure both again without --quick.",
    )
    for value in (1.01, 2.2):
        few = Ratio(value=value, low=None, high=None)
        assert _answer(PROVEN, PROVEN, few) == (f"Both are proven, in 59 and 59 cuts, but {speed}. {again}")
        assert _answer(PROVEN, None, few) == (
            f"Take a: it is proven in 59 cuts, but {speed}. b has no known power cut. {again}"
        )
        assert _answer(None, None, few) == (
            f"Do not choose yet: {speed}, and neither is proven. Cut the power of both 59 times. {again}"
        )
        assert _answer(FEW, None, few).endswith(
            f"Cut the power of a 56 more times and of b 59 times. {again}"
        )


def _of_one(first: Proof | None, other: Proof | None, ratio: Ratio | None, suspicion: str = "") -> str:
    one = Candidate(label="before", proof=first, drive=0, serials=("S1",))
    after = replace(one, label="after", proof=other, suspicion=suspicion)
    return answer(one, after, Speeds(short=ratio))


def test_two_results_of_one_drive_are_two_runs_of_it() -> None:
    """There is nothing to choose between: the ratio is of two runs, or of two set-ups."""
    speed = "after commits 2.2 times as fast as before"
    head = (
        f"Both results are of one drive (serial S1): {speed}. The ratio is between two runs or set-ups of it."
    )
    assert _of_one(PROVEN, PROVEN, TWICE) == f"{head} It is proven in 59 cuts."
    assert _of_one(None, None, TWICE) == f"{head} It has no known power cut."
    other = replace(PROVEN, but="not with nobarrier")
    assert _of_one(PROVEN, other, TWICE) == (
        f"{head} before is proven in 59 cuts, after has no loss in 59 cuts, but not with nobarrier."
    )
    assert _of_one(None, None, Ratio(value=2.2, low=None, high=None)).endswith(
        "It has no known power cut. Measure both again without --quick."
    )
    for first in (None, FEW, PROVEN):
        for second in (None, FEW, PROVEN):
            said = _of_one(first, second, TWICE)
            assert "Take " not in said and "choose" not in said and "before you" not in said
    several = Candidate(label="a", proof=None, drive=0, serials=("S1", "S2", "S3"))
    assert answer(several, replace(several, label="b"), Speeds(short=TWICE)).startswith(
        "Both results are of the same drives (serials S1, S2 and 1 more): b commits"
    )
    unknown = replace(several, drive=None)
    assert "Do not choose yet" in answer(unknown, unknown, Speeds(short=TWICE))


def test_a_fault_of_one_drive_comes_first() -> None:
    """A result is not recommended if its drive lost data or got no flush, even if it is fast."""
    why = SUSPICIONS["no-flush-sent"]
    assert _of_one(PROVEN, PROVEN, TWICE, why) == (
        f"Both results are of one drive (serial S1). Do not use after: it {why}. before is proven in 59 cuts."
    )
    assert _of_one(LOST, LOST, TWICE) == (
        "Both results are of one drive (serial S1). Do not use it: it lost data in cycle 3 of campaign x."
    )


def test_the_caveat_on_one_drive_is_about_its_set_ups() -> None:
    """It is one drive that ignores flushes, or none; a set-up may keep them back."""
    pair = [Candidate(label=label, proof=None, drive=0, serials=("S1",)) for label in ("a", "b")]
    assert caveat(pair, ["x", "x"]).endswith("and a set-up that sends no flushes looks fast.")


def test_without_a_common_commit_there_is_no_speed() -> None:
    """The answer says what is missing, and rests on the cuts alone."""
    assert "no cell that commits was measured in both" in _answer(None, None, None)


@pytest.mark.parametrize("first", [None, FEW, GUEST, LOST, PROVEN])
@pytest.mark.parametrize("other", [None, FEW, GUEST, LOST, PROVEN])
def test_no_ratio_is_without_caveat_unless_both_are_proven(first: Proof | None, other: Proof | None) -> None:
    """The ratio of two drives has no caveat only if both are proven."""
    pair = [Candidate(label="a", proof=first), Candidate(label="b", proof=other)]
    said = caveat(pair, ["inconclusive", "inconclusive"])
    assert (said == "") == (first is PROVEN and other is PROVEN)
    for one, proof in (("a", first), ("b", other)):
        if proof is LOST:
            assert f"The rate of {one} is worth nothing, since it lost data in cycle 3" in said
        elif proof is not PROVEN:
            assert "a drive that ignores flushes looks fast" in said


def test_of_several_proofs_a_loss_counts_then_the_most_cuts() -> None:
    """A later series without a loss does not take an earlier loss back."""
    assert weightiest_proof([PROVEN, LOST, FEW]) is LOST
    assert weightiest_proof([FEW, GUEST, PROVEN]) is PROVEN
    assert weightiest_proof([GUEST, FEW]) == FEW
    assert weightiest_proof([]) is None


def test_no_fewer_cuts_prove_a_drive() -> None:
    """One cut less leaves a share of cuts that is too large."""
    assert upper_bound(0, CUTS_NEEDED) <= BOUND_MAX < upper_bound(0, CUTS_NEEDED - 1)
    assert FEW.cuts_missing == CUTS_NEEDED - 3 and GUEST.cuts_missing == CUTS_NEEDED


def test_what_a_row_says() -> None:
    """Proven, too few, or lost: in a few words, with figures."""
    assert PROVEN.text == "proven in 59 cuts"
    assert FEW.text == "no loss in 3 cuts; 59 are needed"
    assert LOST.text == "lost data in cycle 3 of campaign x"
    void = replace(PROVEN, cuts=60, bound=None, unknown=2)
    assert void.word == "too few cuts" and void.text == "no loss in 60 cuts, 2 others with unknown outcome"
    assert replace(void, cuts=0).text == "2 cuts with unknown outcome"


def test_a_series_without_answers_keeps_a_drive_from_being_proven() -> None:
    """Cuts with unknown outcome keep a drive from being proven, whatever their stack, unless they sent no
    flush or are of a weaker class."""
    hung = replace(PROVEN, cuts=0, bound=None, unknown=59, source="campaign hung")
    for order in ([hung, PROVEN], [PROVEN, hung]):
        counts = weightiest_proof(order)
        assert counts is not None and counts.word == "too few cuts"
        assert counts.text == "no loss in 59 cuts, but 59 cuts of campaign hung with unknown outcome"
    for but in ("of firmware 1, not 2", "on xfs, not on ext4"):
        counts = weightiest_proof([PROVEN, replace(hung, but=but)])
        assert counts is not None and counts.word == "too few cuts"
        assert counts.text == "no loss in 59 cuts, but 59 cuts of campaign hung with unknown outcome"
    assert weightiest_proof([PROVEN, replace(hung, but="with nobarrier", withheld=True)]) is PROVEN
    assert weightiest_proof([PROVEN, replace(hung, cut_class="os")]) is PROVEN


def test_cuts_without_an_outcome_are_told_before_there_are_enough_others() -> None:
    """The next run on the same target would make their outcome unknowable: they are to be verified first."""
    run = replace(PROVEN, cuts=0, bound=None, unknown=1, source="run aa")
    apart = replace(PROVEN, cuts=4, bound=0.53, source="campaign x", but="on xfs, not on ext4")
    for proofs, cuts in (([FEW, run], "3 cuts"), ([apart, FEW, run], "3 cuts")):
        counts = weightiest_proof(proofs)
        assert counts is not None and counts.waits_for_answers
        assert counts.text.startswith(f"no loss in {cuts}")
        assert counts.text.endswith(", but 1 cut of run aa with unknown outcome")
        assert _answer(PROVEN, counts).endswith(
            "verify its cuts without an outcome, or find out why they have none, before you take it."
        )
        assert "erify the cuts of b without an outcome" in _answer(FEW, counts)


def test_cuts_without_an_outcome_are_to_be_verified() -> None:
    """If cuts of the measured drive have no outcome, the answer asks to verify them and not for other cuts.
    Cuts of another stack must be repeated as measured."""
    hung = replace(PROVEN, cuts=0, bound=None, unknown=2, source="campaign hung")
    beside = weightiest_proof([PROVEN, hung])
    for one in (hung, beside):
        assert one is not None
        told = f"but b has {one.text}: verify its cuts without an outcome, or find out why they have none,"
        assert _answer(PROVEN, one).endswith(f"{told} before you take it.")
        said = _answer(FEW, one)
        assert said.endswith(
            f"neither is proven: b has {one.text}. Verify the cuts of b without an outcome, or find out why"
            " they have none. Cut the power of a 56 more times."
        )
        assert "as you measured it" not in said
    other = replace(PROVEN, but="not with nobarrier")
    assert _answer(other, hung).endswith(
        ". Verify the cuts of b without an outcome, or find out why they have none. Cut a as you measured it."
    )


def test_cuts_of_another_stack_prove_nothing() -> None:
    """They are told with what was other; a loss stays a loss."""
    other = replace(PROVEN, but="not with nobarrier")
    assert other.word == "too few cuts" and other.text == "no loss in 59 cuts, but not with nobarrier"
    assert "b has no loss in 59 cuts, but not with nobarrier: cut it as you measured it before you take" in (
        _answer(PROVEN, other)
    )
    assert replace(LOST, but="of firmware 1, not 2").text.endswith("campaign x (of firmware 1, not 2)")
    few = weightiest_proof([other, FEW])
    assert few is not None and few.text == "no loss in 3 cuts, but 59 cuts of campaign x not with nobarrier"
    assert weightiest_proof([replace(other, source="campaign y"), FEW]) == FEW


def test_a_loss_of_a_stack_without_flushes_is_not_the_drives() -> None:
    """A drive that got no flush may lose data: it is to be cut as it was measured. Another firmware's loss
    stays one, and so does a loss beside it."""
    bare = replace(LOST, but="with nobarrier", withheld=True)
    assert bare.word == "too few cuts"
    assert bare.text == "lost data in cycle 3 of campaign x, but with nobarrier"
    told = f"b has {bare.text}"
    assert _answer(PROVEN, bare).endswith(f"but {told}: cut it as you measured it before you take it.")
    assert _answer(FEW, bare).endswith(
        f": {told}. Cut b as you measured it. Cut the power of a 56 more times."
    )
    assert weightiest_proof([bare, PROVEN]) is PROVEN and weightiest_proof([bare, LOST]) is LOST
    newer = replace(LOST, but="of firmware 1, not 2")
    assert _answer(PROVEN, newer).startswith("Do not take b: it lost data in cycle 3 of campaign x (of firm")


def test_a_suspicious_result_is_never_taken() -> None:
    """A suspicious result is not taken, no matter how fast it is or how many clean cuts its drive has."""
    bad = Candidate(label="b", proof=PROVEN, suspicion=SUSPICIONS["no-flush-sent"])
    good, unknown = Candidate(label="a", proof=PROVEN), Candidate(label="a", proof=None)
    twice = Speeds(short=TWICE)
    why = "it acknowledged commits without a flush to any drive"
    assert answer(good, bad, twice) == f"Do not take b: {why}. Take a: it is proven in 59 cuts."
    assert answer(unknown, bad, twice).startswith(f"Do not take b: {why}. a has no known power cut")
    assert answer(replace(bad, label="a"), bad, twice).startswith("Take neither")
    assert f"The rate of b is worth nothing, since {why}" in caveat([good, bad], ["x", "x"])


@pytest.mark.parametrize(
    ("proofs", "rates", "words"),
    [
        ((PROVEN, PROVEN, PROVEN), (100, 200, 300), "take c: it is the fastest that is proven"),
        ((PROVEN, PROVEN, None), (100, 200, 150), "take b: it is the fastest that is proven"),
        ((PROVEN, LOST, FEW), (100, 300, 50), "take a: only it is proven"),
        (
            (PROVEN, PROVEN, FEW),
            (200, 205, 100),
            "take a or b: they are proven, and no difference in speed decides between them",
        ),
        ((PROVEN, None, FEW), (100, 200, 300), "take a unless cuts prove b or c, which commit faster"),
        ((PROVEN, PROVEN, FEW), (100, 200, 300), "take b unless cuts prove c, which commits faster"),
        ((FEW, None, LOST), (100, 200, 300), "none is proven: do not choose yet"),
        ((LOST, LOST, LOST), (100, 200, 300), "take none"),
    ],
)
def test_one_sentence_closes_the_answers_on_three(
    proofs: tuple[Proof | None, ...], rates: tuple[float, ...], words: str
) -> None:
    """The fastest of those that are proven; a faster one that is not is only named. Two need no such
    sentence."""
    candidates = [Candidate(label=label, proof=proof) for label, proof in zip("abc", proofs, strict=True)]

    def between(one: int, other: int) -> Speeds:
        times = rates[other] / rates[one]
        return Speeds(short=Ratio(value=times, low=times * 0.99, high=times * 1.01))

    assert choice(candidates, between) == f"Of all 3, {words}."
    assert choice(candidates[:2], between) == ""


def test_too_few_rounds_leave_the_choice_between_three_open() -> None:
    """No difference is denied; what lies apart is to be measured once more."""
    candidates = [Candidate(label=label, proof=PROVEN) for label in "abc"]
    rates = (100, 200, 300)

    def between(one: int, other: int, *, apart: bool) -> Speeds:
        return Speeds(short=Ratio(value=rates[other] / rates[one], low=None, high=None, apart=apart))

    assert choice(candidates, lambda one, other: between(one, other, apart=True)) == (
        "Of all 3, take c: it is the fastest that is proven. Measure once more to be sure."
    )
    assert choice(candidates, lambda one, other: between(one, other, apart=False)) == (
        "Of all 3, take a, b or c: they are proven. Some had too few rounds to tell their speeds apart:"
        " measure again without --quick."
    )


def test_the_choice_names_results_of_one_drive() -> None:
    """If all results are of one drive, there is no choice. If only two are, the sentence says so."""
    one = Candidate(label="a", proof=PROVEN, drive=0, serials=("S1",))
    three = [one, replace(one, label="b"), replace(one, label="c")]
    fast = Speeds(short=Ratio(value=1.0, low=0.9, high=1.1))
    assert choice(three, lambda _one, _other: fast) == "All 3 results are of one drive (serial S1)."
    other = [*three[:2], replace(one, label="c", drive=2, serials=("S2",))]
    assert choice(other, lambda _one, _other: fast).endswith(
        " decides between them. a and b are of one drive."
    )


def test_without_a_rate_no_speed_chooses() -> None:
    """No cell that commits was measured in all of them: neither a pair nor three are called alike."""
    missing = Speeds(short=None)
    candidates = [Candidate(label=label, proof=PROVEN) for label in "abc"]
    assert choice(candidates, lambda _one, _other: missing) == (
        "Of all 3, speed chooses none: no cell that commits was measured in all of them. a, b and c are"
        " proven."
    )
    assert _compared(PROVEN, PROVEN, missing) == (
        "Not compared: no cell that commits was measured in both. Both are proven, in 59 and 59 cuts."
    )


HELD = "30 s of load by 1 writer"
PAIR = (Candidate(label="a", proof=PROVEN), Candidate(label="b", proof=PROVEN))


def _held(first: float, other: float, text: str = HELD) -> HeldLoad:
    return HeldLoad(text=text, rates=(first, other), commit_bytes=4096)


SIXTEEN = Ratio(value=16.0, low=15.0, high=17.0)
COLLAPSES = Speeds(short=SIXTEEN, held=(_held(2000.0, 150.0),), has_held=True)
IN_SHORT = "b commits 16 times as fast as a in short rounds"
BOTH_WAYS = (
    f"{IN_SHORT}, but a commits 13 times as fast as b at the end of {HELD} (2,000 against 150 commits/s,"
    " 8.19 against 0.614 MB/s)"
)


def test_a_lead_that_turns_round_under_load_decides_nothing() -> None:
    """The drive that is 16 times as fast in short rounds is the slower one once the load is held."""
    assert _compared(PROVEN, PROVEN, COLLAPSES) == (
        f"Choose by your load: {BOTH_WAYS}. Both are proven, in 59 and 59 cuts."
    )
    for first, other, proven, left in ((PROVEN, None, "a", "b"), (None, PROVEN, "b", "a")):
        assert _compared(first, other, COLLAPSES) == (
            f"Take {proven} (only it is proven) unless {left} is faster in your load: {BOTH_WAYS}. {left} has"
            " no known power cut: cut its power 59 times before you take it."
        )
    assert _compared(None, None, COLLAPSES) == (
        f"Do not choose yet: {BOTH_WAYS}, and neither is proven. Cut the power of both 59 times."
    )


def test_every_lead_in_a_held_load_is_named() -> None:
    """One load that turns round is enough to leave the choice to the reader. He hears of all that do not."""
    wide = "30 s of load by 16 writers of 64 KiB"
    for held, words in (
        (
            (_held(2000.0, 6000.0), _held(900.0, 300.0, wide)),
            f"{IN_SHORT} and 3 times as fast at the end of {HELD} (6,000 against 2,000 commits/s, 24.6"
            f" against 8.19 MB/s), but a commits 3 times as fast as b at the end of {wide} (900 against 300"
            " commits/s, 3.69 against 1.23 MB/s)",
        ),
        (
            (_held(2000.0, 150.0), _held(900.0, 0.0, wide)),
            f"{BOTH_WAYS} and alone at the end of {wide} (900 against 0 commits/s, 3.69 against 0 MB/s)",
        ),
    ):
        said = _compared(PROVEN, PROVEN, replace(COLLAPSES, held=held))
        assert said == f"Choose by your load: {words}. Both are proven, in 59 and 59 cuts."


def test_a_lead_that_is_lost_under_load_is_told() -> None:
    """Then nothing speaks for the other one: it is still taken, and one line says how much is left."""
    for rates, left, figures in (
        ((100.0, 102.0), "1.02", "(102 against 100 commits/s, 0.418 against 0.41 MB/s)"),
        ((200.0, 180.0), "0.90", "(200 against 180 commits/s, 0.819 against 0.737 MB/s)"),
    ):
        faded = Speeds(short=SIXTEEN, held=(_held(*rates),), has_held=True)
        said = "Take b: it commits 16 times as fast as a in short rounds, and both"
        assert answer(*PAIR, faded).startswith(said)
        words = f"times as fast as a {figures}"
        assert fading("a", "b", faded) == f"at the end of {HELD}, b commits only {left} {words}"
        swapped = Speeds(short=SIXTEEN.inverse(), held=(_held(rates[1], rates[0]),))
        words = f"times as fast as b {figures}"
        assert fading("a", "b", swapped) == f"at the end of {HELD}, a commits only {left} {words}"
    for kept in (COLLAPSES, Speeds(short=SIXTEEN, held=(_held(100.0, 300.0),)), Speeds(short=SIXTEEN)):
        assert fading("a", "b", kept) == ""
    assert fading("a", "b", Speeds(short=ALIKE, held=(_held(100.0, 102.0),))) == ""


def test_a_lead_that_lasted_is_not_denied() -> None:
    """Another load says nothing of the one that decides, and a lead in any held load did last."""
    tie = _held(900.0, 950.0, "30 s of load by 16 writers of 64 KiB")
    other_load = replace(tie, is_alike=False)
    assert fading("a", "b", Speeds(short=SIXTEEN, held=(other_load,), has_held=True)) == ""
    for held in ((_held(2000.0, 29_000.0), other_load), (tie, _held(2000.0, 29_000.0))):
        assert fading("a", "b", Speeds(short=SIXTEEN, held=held, has_held=True)) == ""


def test_a_held_load_decides_where_short_rounds_do_not() -> None:
    """They show no difference, or were not measured, or were too few: then the end of the load counts."""
    few = Ratio(value=1.1, low=None, high=None)
    for short, more in ((ALIKE, ""), (None, ""), (few, " Measure once more to be sure.")):
        speeds = Speeds(short=short, held=(_held(400.0, 100.0),))
        assert _compared(PROVEN, PROVEN, speeds) == (
            f"Take a: it commits 4 times as fast as b at the end of {HELD} (400 against 100 commits/s,"
            f" 1.64 against 0.41 MB/s), and both are proven, in 59 and 59 cuts.{more}"
        )
    assert _compared(PROVEN, PROVEN, Speeds(short=None, held=(_held(100.0, 110.0),))) == (
        f"Take either: no large difference in speed is shown between a and b at the end of {HELD} (110"
        " against 100 commits/s, 0.451 against 0.41 MB/s), and both are proven, in 59 and 59 cuts."
    )


FELL = "held for 30 s, its rate fell to 5 %"


def test_a_lead_that_may_not_last_takes_no_drive() -> None:
    """If the faster drive's rate fell in a load that the other drive did not hold, the faster one is not
    recommended. The other one is, if only it is proven."""
    unsure = Speeds(short=SIXTEEN, has_held=True, fell=("", FELL))
    same = "Measure both with the same --accept."
    assert _compared(PROVEN, PROVEN, unsure) == (
        f"Do not choose yet: {IN_SHORT}, but {FELL}. {same} Both are proven, in 59 and 59 cuts."
    )
    assert _compared(None, PROVEN, unsure) == (
        f"Only b is proven, in 59 cuts. {IN_SHORT}, but {FELL}. {same} a has no known power cut: cut its"
        " power 59 times before you take it."
    )
    assert _compared(PROVEN, None, unsure) == (
        f"Take a: it is proven in 59 cuts. {IN_SHORT}, but {FELL}. {same} b has no known power cut."
    )
    assert _compared(None, None, unsure) == (
        f"Do not choose yet: {IN_SHORT}, but {FELL}, and neither is proven. Cut the power of both 59 times."
        f" {same}"
    )
    slower_fell = replace(unsure, fell=(FELL, ""))
    assert _compared(PROVEN, PROVEN, slower_fell) == (
        "Take b: it commits 16 times as fast as a in short rounds, and both are proven, in 59 and 59 cuts."
    )
    three = [Candidate(label=label, proof=PROVEN) for label in "abc"]
    slow = Speeds(short=SIXTEEN.inverse())

    def between(one: int, other: int) -> Speeds:
        if {one, other} == {0, 1}:
            return unsure if one == 0 else replace(unsure, short=SIXTEEN.inverse(), fell=(FELL, ""))
        if one == other:
            return Speeds(short=ALIKE)
        return slow if other == 2 else Speeds(short=SIXTEEN)

    unknown, all_held = (
        "are proven, and whether a lead in speed lasts is not known",
        "A leader's rate fell in a load that not all held: measure all with the same --accept.",
    )
    assert choice(three, between) == f"Of all 3, do not choose yet: a and b {unknown}. {all_held}"
    of_one = [replace(one, drive=1, serials=("S1",)) for one in three[:2]]
    assert choice([*of_one, three[2]], between) == (
        f"Of all 3, take a or b: they {unknown}. a and b are of one drive. {all_held}"
    )

    def with_a_faster_third(one: int, other: int) -> Speeds:
        return between(other, one) if 2 in (one, other) else between(one, other)

    unproven = [*three[:2], replace(three[2], proof=None)]
    assert (
        choice(unproven, with_a_faster_third) == f"Of all 3, do not choose yet: a and b {unknown}. {all_held}"
    )


def test_a_round_without_a_commit_recommends_neither() -> None:
    """It was measured in both, and there is no ratio. What stopped the commits may stop them again."""
    hung = Speeds(short=None, silent=(False, True))
    again = "Measure b again. If it happens again, find out what stopped the commits."
    for first in (None, FEW, PROVEN):
        for other in (None, FEW, PROVEN):
            said = _compared(first, other, hung)
            assert said == f"Do not choose yet: a round of b had no commit. {again}"
    assert _compared(PROVEN, PROVEN, replace(hung, silent=(True, True))).startswith(
        "Do not choose yet: a round of a and a round of b had no commit. Measure a and b again."
    )
    assert _compared(PROVEN, LOST, hung).startswith("Do not take b: it lost data")
    same = [Candidate(label=label, proof=PROVEN, drive=0, serials=("S1",)) for label in ("a", "b")]
    assert answer(same[0], same[1], hung) == (
        f"Both results are of one drive (serial S1), and a round of b had no commit. {again}"
    )
    three = [Candidate(label=label, proof=PROVEN) for label in "abc"]

    def between(one: int, other: int) -> Speeds:
        return replace(hung, silent=(one == 1, other == 1)) if 1 in (one, other) else Speeds(short=TWICE)

    assert choice(three, between) == f"Of all 3, do not choose yet: a round of b had no commit. {again}"


def test_a_drive_that_hung_is_not_taken_because_the_other_lost_data() -> None:
    """A drive that hung is not ruled out, but must be measured again, even if its only rival lost data. The
    same holds if two of three drives are ruled out."""
    again = "Measure b again. If it happens again, find out what stopped the commits."
    lost = "it lost data in cycle 3 of campaign x"
    for hung, where in (
        (Speeds(short=None, silent=(False, True)), "a round of b had no commit"),
        (Speeds(short=TWICE, stopped=("", HELD)), f"b had no commit at the end of {HELD}"),
    ):
        for other in (None, FEW, PROVEN):
            assert _compared(LOST, other, hung) == f"Do not take a: {lost}. But {where}. {again}"
        three = [Candidate(label=one, proof=LOST if one != "b" else PROVEN) for one in "abc"]
        turned = replace(hung, silent=hung.silent[::-1], stopped=hung.stopped[::-1])
        said = {(0, 1): hung, (1, 0): turned, (1, 2): turned, (2, 1): hung}
        assert choice(three, lambda one, other, said=said: said.get((one, other), Speeds(short=TWICE))) == (  # type: ignore[misc]
            f"Of all 3, do not choose yet: {where}. {again}"
        )
    out_hung = Speeds(short=None, silent=(True, False))
    assert _compared(LOST, PROVEN, out_hung) == f"Do not take a: {lost}. Take b: it is proven in 59 cuts."


def test_no_commit_at_the_end_of_a_held_load_recommends_neither() -> None:
    """If a drive had no commit at the end of a held load, neither drive is recommended, whichever is
    faster."""
    fast = Speeds(short=SIXTEEN, held=(_held(0.0, 0.0),), has_held=True)
    find = "If it happens again, find out what stopped the commits."
    for first in (None, PROVEN):
        for other in (None, PROVEN):
            for stopped, where, whose in (
                (("", HELD), f"b had no commit at the end of {HELD}", "b"),
                ((HELD, ""), f"a had no commit at the end of {HELD}", "a"),
                ((HELD, HELD), f"a and b had no commit at the end of {HELD}", "a and b"),
            ):
                assert _compared(first, other, replace(fast, stopped=stopped)) == (
                    f"Do not choose yet: {where}. Measure {whose} again. {find}"
                )
    mixed = replace(fast, silent=(True, False), stopped=("", HELD))
    assert _compared(PROVEN, PROVEN, mixed).startswith(
        f"Do not choose yet: a round of a had no commit, and b had no commit at the end of {HELD}. Measure a"
        " and b again."
    )


def test_what_other_clients_say_keeps_a_drive_from_being_proven() -> None:
    """The loss may be this drive's: the user is asked whose runs count."""
    doubtful = replace(PROVEN, disputed="1 loss in runs of lab that are left out")
    assert doubtful.word == "too few cuts"
    assert doubtful.text == "no loss in 59 cuts, but 1 loss in runs of lab that are left out"
    assert _answer(PROVEN, doubtful).endswith(
        f"but b has {doubtful.text}: choose whose runs of it count with `compare --client` before you take"
        " it."
    )
    assert _answer(FEW, doubtful).endswith(
        f": b has {doubtful.text}. Choose whose runs of b count with `compare --client`."
        " Cut the power of a 56 more times."
    )


def test_a_drive_that_stops_under_load_is_no_division_by_zero() -> None:
    """It commits nothing in the last third: the other one does, and that is said without a figure."""
    stops = Speeds(short=SIXTEEN, held=(_held(2000.0, 0.0),))
    assert (
        f"but a commits and b does not at the end of {HELD} (2,000 against 0 commits/s, 8.19 against 0 MB/s)."
        in _compared(PROVEN, PROVEN, stops)
    )
    both = Speeds(short=SIXTEEN, held=(_held(0.0, 0.0),))
    assert _compared(PROVEN, PROVEN, both).startswith("Take b: ")
    assert fading("a", "b", both) == ""


def test_of_three_a_lead_that_turns_round_chooses_none() -> None:
    """Which is faster depends on the load, and the sentence says so."""
    candidates = [Candidate(label=label, proof=PROVEN) for label in "abc"]

    def between(one: int, other: int) -> Speeds:
        if {one, other} == {0, 1}:
            return COLLAPSES if one == 0 else Speeds(short=SIXTEEN.inverse(), held=(_held(150.0, 2000.0),))
        times = 0.1 if other == 2 else 10.0 if one == 2 else 1.0
        return Speeds(short=Ratio(value=times, low=times * 0.99, high=times * 1.01))

    assert choice(candidates, between) == (
        "Of all 3, take a or b: they are proven, and which of them is faster depends on the load."
    )


@pytest.mark.parametrize(
    ("proofs", "faster", "varying", "words"),
    [
        ("pn-", "", "b", "take a (only it is proven) unless b is faster in your load"),
        ("pnn", "", "bc", "take a (only it is proven) unless b or c is faster in your load"),
        ("ppn", "", "c", "take a (it is the fastest that is proven) unless c is faster in your load"),
        (
            "pnn",
            "c",
            "b",
            "take a unless cuts prove c, which commits faster, or b is faster in your load",
        ),
    ],
)
def test_of_three_one_that_may_be_faster_in_your_load_is_named(
    proofs: str, faster: str, varying: str, words: str
) -> None:
    """Among three drives, one that may be faster in the user's load is named, as in the answer for a pair.
    `n`: no proof; `-`: lost data; `p`: proven. All others are slower."""
    known = {"p": PROVEN, "n": None, "-": LOST}
    candidates = [Candidate(label=label, proof=known[one]) for label, one in zip("abc", proofs, strict=True)]

    def seen(label: str) -> Speeds:
        """Of that one compared with a."""
        if label in varying:
            return COLLAPSES
        return Speeds(short=TWICE if label in faster else TWICE.inverse())

    def between(one: int, other: int) -> Speeds:
        if one == other or (one and other):
            return Speeds(short=ALIKE)
        found = seen("abc"[one or other])
        if other:
            return found
        assert found.short is not None
        held = tuple(replace(load, rates=(load.rates[1], load.rates[0])) for load in found.held)
        return replace(found, short=found.short.inverse(), held=held)

    assert choice(candidates, between) == f"Of all 3, {words}."


def test_of_several_that_are_proven_another_may_be_faster_in_your_load() -> None:
    """If two proven drives are equally fast, the answer names both, and the third that may be faster in the
    user's load."""
    candidates = [*PAIR, Candidate(label="c", proof=None)]

    def between(one: int, other: int) -> Speeds:
        return COLLAPSES if other == 2 else Speeds(short=ALIKE)

    assert choice(candidates, between) == (
        "Of all 3, take a or b unless c is faster in your load: a and b are proven, and no difference in"
        " speed decides between them."
    )


CTRL_C = BrokenOff(how="by Ctrl-C", is_io_error=False)
FAILED = BrokenOff(
    how="by an I/O error (/srv: I/O error of the target: Input/output error)", is_io_error=True
)


def test_a_measurement_that_was_broken_off_chooses_no_drive() -> None:
    """However fast, and however well proven both are; what ended it is said, and what to do. An I/O error is
    worth a sentence of its own."""
    good = Candidate(label="a", proof=PROVEN)
    broken = Candidate(label="b", proof=PROVEN, broken_off=CTRL_C)
    failed = replace(broken, broken_off=FAILED)
    kernel = (
        "An I/O error may be a fault of the drive of b, its cable or its port: look for it in the kernel's"
        " log first."
    )
    twice = Speeds(short=TWICE)
    assert caveat([good, broken], ["x", "x"]) == (
        "The measurement of b was broken off, so cells may be missing."
    )
    for first in (good, replace(good, proof=None)):
        assert answer(first, broken, twice) == (
            "Do not choose yet: the measurement of b was broken off by Ctrl-C. Measure b again."
        )
        assert answer(first, failed, twice) == (
            f"Do not choose yet: the measurement of b was broken off {FAILED.how}. Measure b again. {kernel}"
        )
    assert answer(replace(good, broken_off=CTRL_C), failed, twice) == (
        "Do not choose yet: the measurement of a was broken off by Ctrl-C, and that of b"
        f" {FAILED.how}. Measure a and b again. {kernel}"
    )
    lost = replace(good, proof=LOST)
    assert answer(lost, broken, twice) == (
        "Do not take a: it lost data in cycle 3 of campaign x. But the measurement of b was broken off by"
        " Ctrl-C. Measure b again."
    )
    three = [good, broken, replace(good, label="c")]
    assert choice(three, lambda _one, _other: twice) == (
        "Of all 3, do not choose yet: the measurement of b was broken off by Ctrl-C. Measure b again."
    )
    one, same = replace(good, drive=0, serials=("S1",)), replace(broken, drive=0, serials=("S1",))
    assert answer(one, same, twice) == (
        "Both results are of one drive (serial S1), and the measurement of b was broken off by Ctrl-C."
        " Measure b again."
    )
