"""Whether the random search finds each known wrong verdict again once its rule is taken away: `make mends`.

Each rule that a known history needs is taken away, as its mutant does. Then random histories are played until
one goes wrong. A search that finds nothing would find no new defect of the kind either.
A history that goes wrong with every rule in place shows a defect of the product, not the missing rule.

Run it with `python -m tests.lab.histories.rediscover`.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count as counting
from pathlib import Path

from durability_lab.histories.play import Played, play
from durability_lab.histories.search import attempt, search
from durability_lab.histories.steps import History
from tests.lab.histories.test_known_histories import NEEDS
from tests.lab.mutants.mutants import MUTANTS

COUNT = 20_000
# Without its rule, k has the verdict of a documented assumption, which no search calls wrong.
_ASSUMED = ("k",)
# Two rules keep c from being durable: without the other one as well, this one decides.
_BESIDE = {NEEDS["c"]: NEEDS["a"]}
_PART = 50  # histories of one seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How the search went without one rule. `histories`: played up to the one that went wrong, or all;
    `seconds`: until then, without making it short; `seed`: of the part that has it; `wrong` and `history`:
    what went wrong in the shortest, "" if nothing was found; `defect`: what goes wrong with the rule, or that
    something was raised without it, which is no wrong verdict."""

    rule: str
    histories: int
    seconds: float
    seed: int
    wrong: str = ""
    history: str = ""
    defect: str = ""


def look_for(rule: str, *, count: int, seed: int) -> Found:
    """Take the rule away, by its mutant's name, and play up to `count` histories until one goes wrong."""
    beside = [_BESIDE[rule]] if rule in _BESIDE else []

    def play_without(history: History, within: Path | None) -> Played:
        with _without(rule, *beside):
            played = play(history, within)
        if played.wrong and beside:
            with _without(*beside):
                return replace(played, wrong=()) if play(history, within).wrong else played
        return played

    began_s = time.monotonic()
    right, right_s = 0, 0.0

    def one_right() -> None:
        nonlocal right, right_s
        right, right_s = right + 1, time.monotonic() - began_s

    failure = None
    part = seed
    for part in counting(seed):
        if right >= count:
            break
        _, failure = search(
            count=min(_PART, count - right), number=part, on_right=one_right, played_by=play_without
        )
        if failure is not None:
            break
    if failure is None:
        return Found(rule=rule, histories=right, seconds=right_s, seed=part)
    defect = "; ".join(play(failure.history).wrong)
    what, played = attempt(play_without, failure.history, None)
    return Found(
        rule=rule,
        histories=right + 1,
        seconds=right_s,
        seed=part,
        wrong=failure.what,
        history=str(failure.history),
        defect=f"wrong with every rule in place: {defect}" if defect else "" if played else f"raised {what}",
    )


@contextmanager
def _without(*rules: str) -> Iterator[None]:
    with ExitStack() as stack:
        for mutant in MUTANTS:
            if mutant.name in rules:
                stack.enter_context(mutant.change())
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each rule and the shortest history that was found; the exit code is 1 if one rule was
    not found or a history shows a defect. Several rules have a process each."""
    parser = argparse.ArgumentParser(prog="mends", description="Search for each known wrong verdict again.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="known histories, as a or b (default: all but k)"
    )
    parser.add_argument(
        "--count", type=int, default=COUNT, help=f"most histories of a rule (default: {COUNT})"
    )
    parser.add_argument("--seed", type=int, help="seed of the first histories (default: random)")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in NEEDS]:
        parser.error(f"no known history {', '.join(unknown)}: there are {', '.join(NEEDS)}")
    seed = secrets.randbits(32) if given.seed is None else given.seed
    wanted = given.names or [name for name in NEEDS if name not in _ASSUMED]
    names = list({NEEDS[name]: name for name in reversed(wanted)}.values())[::-1]
    if len(names) == 1:
        return _tell(names[0], look_for(NEEDS[names[0]], count=given.count, seed=seed))
    print(f"seed {seed}, up to {given.count} histories for each rule", flush=True)
    # Not multiprocessing: in such a process the product's writers would look for a parent of theirs.
    again = [sys.executable, "-m", __spec__.name, f"--count={given.count}", f"--seed={seed}"]
    code = 0
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        searches = [
            threads.submit(subprocess.run, [*again, name], stdout=subprocess.PIPE, text=True, check=False)
            for name in names
        ]
        for done in as_completed(searches):
            search_process = done.result()
            print(search_process.stdout, end="", flush=True)
            code = max(code, abs(search_process.returncode))
    return code


def _tell(name: str, found: Found) -> int:
    where = f"{found.histories} histories, {found.seconds:.0f} s, seed {found.seed}"
    if not found.wrong:
        print(f"{name}: NOT FOUND in {where} (rule: {found.rule})")
        return 1
    print(f"{name}: found after {where} (rule: {found.rule})\nwrong: {found.wrong}\n{found.history}")
    if found.defect:
        print(f"DEFECT: {found.defect}")
    return 1 if found.defect else 0


if __name__ == "__main__":
    sys.exit(main())
