"""Draws random histories, plays them, and shortens a history that goes wrong as far as possible.

Hypothesis draws and shrinks the histories. A history is data, so a found one can be saved and played again.
The same seed gives the same histories, as long as the same modules are loaded: Hypothesis takes some numbers
from them. The tally shows what a search covered. It counts each verdict, and the reasons of inconclusive
verdicts for which the facts allowed more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure

from durability.errors import SetupError
from durability_lab.histories.play import Played, play
from durability_lab.histories.steps import KINDS, MACHINES, SERIALS, TARGETS, History, Step

# Honest drives come first, because shrinking prefers them; lying drives of each kind follow.
DRIVES = (
    "honest",
    "write-through",
    "flush-ignored",
    "early-ack:delay_ms=3000",
    "early-ack:delay_ms=100",
    "rollback:interval_ms=300",
    "partial-rollback:interval_ms=300",
    "flush-skipped",
    "partial-flush:cache_bytes=65536",
    "fua-ignored",
    "shorn",
    "misdirected",
    "unreadable:share=0.05",
    "unreadable:share=0.05,recovery_ms=3000",
    "smaller:share=0.5",
    "empty",
    "dead",
)
# Relative frequency of each kind of step; 1 for the others.
WEIGHTS = {"run": 3, "pass": 6, "cut": 3, "boot": 2, "verify": 3, "network": 2, "server": 2}
STEPS_MAX = 10
# Relative frequency of the first value of these words, so that most steps are plain; 1 for other values.
USUAL = {
    **{("run", "next"): 12, ("cut", "node"): 2},
    **{("verify", "cut_after"): 5, ("verify", "beside"): 4, ("verify", "min_cuts"): 3, ("verify", "run"): 3},
}
_HARDWARE = 9  # relative frequency of a machine without hypervisor; 1 for each other kind
_HONEST = 8  # relative frequency of `honest`; 1 for other drives, since their losses hide other verdicts
_SECONDS = "seconds"  # entry of a row: some seconds pass
# Entries of a row with a fixed step: a plain run with credit for many groups, and steps rarely drawn.
_PLAIN = {
    "loaded": Step("run", (("size_kib", "1024"),)),
    "cut machine": Step("cut"),
    "full boot": Step("boot"),
    "right verify": Step("verify"),
    "wrong bit": Step("verify", (("cut_after", "7"), ("loses", "bit"))),
}
_LOADED = ("loaded", _SECONDS, "cut machine", "full boot")
# Single draws seldom give these rows, and many verdicts depend on them. In order: a run in trouble, some
# time, the end of its boot, and time in which its client reports the trouble; a log older than the target
# (twice); a run that is verified twice before the next one; a series of two runs (twice); a read with a wrong
# bit.
_ROWS = (
    *(
        (trouble, "pass", end, _SECONDS)
        for trouble in ("error", "hang", "network", "kill", "freeze")
        for end in ("cut", "reboot")
    ),
    ("pass", "copy", _SECONDS, "cut", "server"),
    ("copy", "run", "cut", "server"),
    ("cut", "boot", "verify", "verify", "run"),
    ("kill", *_LOADED, "right verify", *_LOADED, "verify"),
    ("kill", *_LOADED, *_LOADED, "verify"),
    ("kill", *_LOADED, "wrong bit", "verify"),
)

# Hypothesis draws this history first in every search. `search` rejects it: many searches would repeat it.
SIMPLEST: Final = History(
    seed=0, target=TARGETS[0], drive=DRIVES[0], counters=False, serials=SERIALS[0], steps=(Step("run"),)
)
_DIGEST_BYTES = 8

# Plays a history, with its files below the given directory.
Play: TypeAlias = Callable[[History, Path | None], Played]


@dataclass(slots=True)
class SearchTally:
    """Counts of all histories so far and of their verdicts."""

    histories: int = 0
    digests: Counter[str] = field(default_factory=Counter)  # of the histories, to find equal ones
    verdicts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)  # of inconclusive verdicts
    missed: Counter[str] = field(default_factory=Counter)  # with reasons: verdicts that were possible
    limits: Counter[str] = field(default_factory=Counter)  # documented assumptions that made a verdict right

    @property
    def distinct(self) -> int:
        """Number of different histories."""
        return len(self.digests)

    def count(self, history: str) -> None:
        """Count one history by its text, without its verdicts."""
        self.histories += 1
        self.digests[blake2b(history.encode(), digest_size=_DIGEST_BYTES).hexdigest()] += 1

    def add(self, history: History, played: Played) -> None:
        """Count one history and its verdicts."""
        self.count(str(history))
        for grade in played.grades:
            self.verdicts[grade.word] += 1
            if grade.word == "inconclusive":
                self.reasons.update(grade.reasons)
            if grade.missed:
                self.missed[f"{grade.missed}: {' '.join(grade.reasons)}"] += 1
            if grade.limit:
                self.limits[grade.limit] += 1

    def merge(self, other: SearchTally) -> None:
        """Add the counts of another tally."""
        self.histories += other.histories
        for mine, theirs in (
            (self.digests, other.digests),
            (self.verdicts, other.verdicts),
            (self.reasons, other.reasons),
            (self.missed, other.missed),
            (self.limits, other.limits),
        ):
            mine.update(theirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongHistory:
    """The shortest wrong history that was found; `what`: what goes wrong in it."""

    history: History
    what: str


class Search(Protocol):
    """Plays random histories until one goes wrong: `search` on rig A, `search_on_kernel` on rig B."""

    def __call__(
        self,
        *,
        count: int,
        number: int,
        within: Path | None = None,
        on_play: Callable[[History], None] = ...,
        on_right: Callable[[], None] = ...,
    ) -> tuple[SearchTally, WrongHistory | None]:
        """Play `count` histories of seed `number`, as `search` does."""


class WrongVerdictError(AssertionError):
    """A history had a wrong verdict, or playing it raised an exception."""


def _step(kind: str) -> st.SearchStrategy[Step]:
    if kind == _SECONDS:
        return st.sampled_from([Step("pass", (("ms", ms),)) for ms in ("1500", "4000")])
    if kind in _PLAIN:
        return st.just(_PLAIN[kind])
    words = {
        word: st.sampled_from((values[0],) * (USUAL.get((kind, word), 1) - 1) + values)
        for word, values in KINDS[kind].words.items()
    }

    def make(values: dict[str, str]) -> Step:
        return Step(
            kind,
            tuple((word, value) for word, value in values.items() if value != KINDS[kind].words[word][0]),
        )

    return st.fixed_dictionaries(words).map(make)


def histories() -> st.SearchStrategy[History]:
    """A strategy for any history; each begins with a run."""
    single = [(kind,) for kind in KINDS for _ in range(WEIGHTS.get(kind, 1))]
    in_a_row = st.sampled_from([*single, *_ROWS]).flatmap(lambda kinds: st.tuples(*map(_step, kinds)))
    steps = st.tuples(_step("run"), st.lists(in_a_row, max_size=STEPS_MAX)).map(
        lambda drawn: (drawn[0], *chain.from_iterable(drawn[1]))
    )
    return st.builds(
        History,
        seed=st.integers(0, 1 << 16),
        target=st.sampled_from(TARGETS),
        drive=st.sampled_from((DRIVES[0],) * (_HONEST - 1) + DRIVES),
        counters=st.booleans(),
        serials=st.sampled_from(SERIALS),
        machine=st.sampled_from((MACHINES[0],) * (_HARDWARE - 1) + MACHINES),
        steps=steps,
    )


def search(
    *,
    count: int,
    number: int,
    within: Path | None = None,
    on_play: Callable[[History], None] = lambda _: None,
    on_right: Callable[[], None] = lambda: None,
    played_by: Play = play,
) -> tuple[SearchTally, WrongHistory | None]:
    """Play `count` histories of seed `number`, each with its files below `within`.

    Returns the tally of the histories before the first failure, and the failing history, shortened, or None.
    No two histories are the same, and none is `SIMPLEST`. `on_play` is called before each play, including
    those that shorten a failure; `on_right` after each history that was right, up to the first failure.
    """
    tally = SearchTally()
    failed: list[str] = []
    drawn = {str(SIMPLEST)}

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(history=histories())
    def check(history: History) -> None:
        if not failed and str(history) in drawn:
            reject()
        on_play(history)
        what, played = attempt(played_by, history, within)
        drawn.add(str(history))  # not earlier: Hypothesis repeats a history that raised SetupError
        if what:
            failed.append(str(history))
            raise WrongVerdictError(what)
        if played is not None and not failed:
            tally.add(history, played)
            on_right()

    try:
        check()
    except (WrongVerdictError, FlakyFailure) as error:
        return tally, WrongHistory(history=History.parse(failed[-1]), what=str(error))
    return tally, None


def attempt(play: Play, history: History, within: Path | None) -> tuple[str, Played | None]:
    """Play a history. Returns what goes wrong, "" for nothing, and the play, or None if it did not end.
    Raises SetupError."""
    try:
        played = play(history, within)
    except SetupError:  # the lab cannot play here
        raise
    except Exception as error:  # a defect of the product or of the lab, found by the history
        return f"{type(error).__name__}: {error}", None
    return "; ".join(played.wrong), played
