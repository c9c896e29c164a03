"""The cause: the flush or the write, and only where the controls carry it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from durability.bench.catalogue import COMMIT_CONTROL, STANDARD, WRITE_CONTROL
from durability.bench.decision.cause import cause
from durability.bench.decision.proof import Proof
from durability.bench.intervals import Ratio
from durability.bench.measurement import Round
from durability.bench.plausibility import plausibility
from durability.bench.result import Result
from tests.core.bench.results import JUDGED, Device, simulate

CONSUMER = simulate(Device(write_ns=25_000, dirty_ns=1.2e6, dirty_bytes_per_s=4e8), cells=JUDGED)
PROTECTED = simulate(Device(write_ns=60_000), seed=2, cells=JUDGED)


def _cause(first: Result, other: Result, proof: Proof | None = None) -> str:
    return cause(("a", first, None), ("b", other, proof))


def test_the_flush_is_the_cause_of_a_slow_nvme() -> None:
    """Its writes are faster, its commits slower: all of the difference is the flush."""
    said = _cause(CONSUMER, PROTECTED)
    assert said.startswith("A commit of a takes 1") and " times as long as one of b (1.2" in said
    assert "all of the difference is the flush" in said
    assert re.search(r"costs b about as much as an empty flush, 1[\d.]+ µs against 1[\d.]+ µs \(a prot", said)
    assert "a pays in full, since it empties a volatile cache" in said
    assert "although the write alone of a is faster" in said


def test_a_flush_over_a_network_is_not_free() -> None:
    """A flush that takes most of the commit is reported with its time, even if an empty flush takes as
    long."""
    remote = simulate(Device(write_ns=0.3e6, flush_ns=0.8e6, noise=0.001), seed=5, cells=JUDGED)
    slow = simulate(Device(write_ns=0.3e6, flush_ns=0.8e6, dirty_ns=5e6, dirty_bytes_per_s=4e8), cells=JUDGED)
    said = _cause(slow, remote)
    assert "the flush, which costs b about as much as an empty flush, 80" in said and "nothing" not in said


def test_both_times_of_a_cheap_flush_are_told() -> None:
    """It may take twice as long with data, which a reader sees."""
    dearer = simulate(Device(write_ns=60_000, flush_ns=20_000, dirty_ns=25_000, noise=0.001), cells=JUDGED)
    said = _cause(CONSUMER, dearer)
    (with_data, empty) = re.findall(r"empty flush, ([\d.]+) µs against ([\d.]+) µs", said)[0]
    assert float(with_data) == pytest.approx(45, abs=2) and float(empty) == pytest.approx(20, abs=1)


def test_it_does_not_matter_which_is_named_first() -> None:
    """The slow one is the subject of the sentence either way."""
    swapped = cause(("b", PROTECTED, None), ("a", CONSUMER, None))
    assert swapped == _cause(CONSUMER, PROTECTED)


@pytest.mark.parametrize(
    ("losses", "words"), [(0, "and its cuts lost nothing"), (1, "and its cuts lost data")]
)
def test_cuts_say_what_a_free_flush_was(losses: int, words: str) -> None:
    """With a proof the guess is gone."""
    proof = Proof(cuts=59, losses=losses, bound=0.0495, cut_class="power", source="run 1", lost_in="run 1")
    said = _cause(CONSUMER, PROTECTED, proof)
    assert words in said and "or an ignored flush" not in said


def test_a_flush_that_is_not_sent_is_said_to_be() -> None:
    """A drive that declares no volatile cache gets none, which is why its commit is cheap."""
    assert "the flush, which is not sent to b and a pays in full" in _cause(
        CONSUMER, simulate(Device(flushes=0.0, write_ns=60_000), cells=JUDGED)
    )


@pytest.mark.slow
def test_a_flush_that_the_slow_one_did_not_get_is_not_blamed() -> None:
    """Its sync takes long for another reason, such as a layer; whether the fast one got flushes or not. A
    write that is slow is a cause all the same."""
    slow = simulate(Device(flushes=0.0, flush_ns=2e6), seed=6, cells=JUDGED)
    for flushes in (0.0, 1.0):
        assert _cause(slow, simulate(Device(flushes=flushes), cells=JUDGED)) == ""
    writes = simulate(Device(flushes=0.0, write_ns=500_000), seed=6, cells=JUDGED)
    assert _cause(writes, simulate(Device(flushes=0.0), cells=JUDGED)).endswith("not the flush")


def test_writes_of_a_file_system_are_no_flush_that_was_not_sent() -> None:
    """A sync that makes the drive write three times as much takes the time of those writes."""
    fast = simulate(Device(flushes=0.0, write_ns=60_000), cells=JUDGED)
    assert _cause(CONSUMER, fast)
    cells = tuple(
        one
        if one.cell != COMMIT_CONTROL
        else replace(one, rounds=tuple(_writing(each, 3.0) for each in one.rounds))
        for one in fast.cells
    )
    assert _cause(CONSUMER, replace(fast, cells=cells)) == ""


def _writing(one: Round, times: float) -> Round:
    """A round in which the drive wrote so many times as much."""
    assert one.work is not None
    disks = tuple(
        replace(disk, write_kib=None if disk.write_kib is None else times * disk.write_kib)
        for disk in one.work.disks
    )
    return replace(one, work=replace(one.work, disks=disks))


def test_a_slow_write_is_a_cause_too() -> None:
    """Two drives with the same flush: the write makes the difference."""
    slow = simulate(Device(write_ns=200_000), seed=3, cells=JUDGED)
    said = _cause(slow, PROTECTED)
    assert "of the difference is the write itself" in said and said.endswith("not the flush")


def test_a_write_is_not_blamed_if_its_rounds_overlap() -> None:
    """If one round of the slow writes was as fast as the other drive's, the difference may be chance and no
    cause is given."""
    slow = simulate(Device(write_ns=200_000), seed=3, cells=JUDGED)
    (quick,) = (one for one in PROTECTED.cells if one.cell == WRITE_CONTROL)
    cells = tuple(
        one if one.cell != WRITE_CONTROL else replace(one, rounds=(quick.rounds[0], *one.rounds[1:]))
        for one in slow.cells
    )
    assert _cause(slow, PROTECTED) and _cause(replace(slow, cells=cells), PROTECTED) == ""


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (None, True),
        (Ratio(value=16.0, low=15.0, high=17.0), True),
        (Ratio(value=16.0, low=None, high=None, apart=True), True),
        (Ratio(value=16.0, low=None, high=None), False),
        (Ratio(value=16.0, low=0.8, high=90.0), False),
        (Ratio(value=0.5, low=0.4, high=0.6), False),
    ],
)
def test_the_rates_must_agree(ratio: Ratio | None, *, said: bool) -> None:
    """A ratio that shows no difference, or the other one as faster, has no cause beside it: too few rounds
    show one only if they lie apart. Without a rate the controls say it alone."""
    assert bool(cause(("a", CONSUMER, None), ("b", PROTECTED, None), ratio)) == said


def test_a_small_or_uncertain_difference_has_no_cause() -> None:
    """Below 1.2 times, or with rounds that overlap, nothing is said."""
    assert _cause(PROTECTED, simulate(Device(write_ns=62_000), seed=4, cells=JUDGED)) == ""
    noisy = [simulate(Device(write_ns=60_000 * f, noise=0.8), seed=9, cells=JUDGED) for f in (1, 1.3)]
    assert _cause(noisy[0], noisy[1]) == ""


@pytest.mark.parametrize(("rounds", "said"), [(3, True), (2, False), (1, False)])
def test_a_cause_needs_three_rounds(rounds: int, *, said: bool) -> None:
    """A cause is named only with three rounds or more; with fewer, like drives often differ by chance."""
    slow = simulate(Device(write_ns=25_000, dirty_ns=1.2e6, dirty_bytes_per_s=4e8), rounds=rounds)
    assert bool(_cause(slow, simulate(Device(write_ns=60_000), seed=2, rounds=rounds))) == said


CACHED = Device(dirty_ns=500_000, dirty_bytes_per_s=400e6)
FREE = Device()


@pytest.mark.parametrize(
    ("slow", "fast", "code"),
    [
        (replace(CACHED, dirty_ns=900_000), CACHED, "volatile-cache"),
        (replace(FREE, flush_ns=100_000), FREE, "flush-no-media-work"),
    ],
)
def test_what_both_have_explains_nothing(slow: Device, fast: Device, code: str) -> None:
    """Two volatile caches, or two flushes that do no work: why one takes longer is unknown."""
    first, other = simulate(slow), simulate(fast, seed=2)
    assert [plausibility(one).code for one in (first, other)] == [code, code]
    said = _cause(first, other)
    assert re.search(r": (all|\d+%) of the difference is the flush$", said), said


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_write_that_is_faster_by_chance_is_not_told(seed: int) -> None:
    """Both write alike, and one of them is a little ahead in every run: their rounds overlap."""
    said = _cause(simulate(CACHED, seed=seed), simulate(FREE, seed=100 + seed))
    assert "of the difference is the flush" in said and "although" not in said, f"seed {seed}"


def test_missing_or_disturbed_controls_carry_no_cause() -> None:
    """Without W and C, or with flushes that did not arrive, the sentence stays away."""
    assert _cause(CONSUMER, simulate(Device(), cells=STANDARD[:1])) == ""
    assert _cause(CONSUMER, simulate(Device(flushes=0.5), cells=JUDGED)) == ""
    busy = tuple(replace(one, writes=5000) for one in PROTECTED.idle)
    halved = simulate(Device(flushes=0.5), cells=JUDGED, idle=busy)
    assert _cause(CONSUMER, halved) == ""
