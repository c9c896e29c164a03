"""Histories on rig B: the steps happen to real processes and file systems; every verdict is deserved."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from durability_lab.histories.kernel.kernel_search import drawn, play_on_kernel, search_on_kernel
from durability_lab.histories.kernel.kernel_world import STEPS, KernelWorld
from durability_lab.histories.play import play_through
from durability_lab.histories.steps import History, Step
from tests.lab.histories.test_histories_command import lab_histories

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.timeout(900)]

DRAWN = 2
NUMBER = 1
TRIES = 5
LIAR = "flush-ignored:kept=0,torn=0,cache_bytes=67108864"
# What happens, and the verdicts: those of its `verify`, then the one that each history ends with.
CASES = {
    "the drive alone, twice over one target": (
        "run; cut what=drive; boot; verify; run workload=append; cut what=drive; boot; verify run=older",
        ["durable", "inconclusive", "durable"],
    ),
    "the operating system alone": (
        "run workload=rename; cut what=guest; boot; verify attest=none require=os; reboot",
        ["durable", "inconclusive"],
    ),
    "again while the file system recovers": (
        "run workload=create; cut; boot cut=yes; cut what=drive; boot cut=yes; boot; verify",
        ["durable", "durable"],
    ),
    "while verify reads": (
        "run size_kib=1024; cut; boot; verify cut_after=5; boot; verify",
        ["inconclusive", "durable", "durable"],
    ),
    "after a hang, with a server that knows less": (
        "run workload=append; copy; hang; pass ms=1500; cut; server how=oldest; boot; verify",
        ["inconclusive"] * 2,
    ),
    "with a server whose machine restarts, and on another one": (
        "run; server how=restarted; pass ms=1500; cut; boot; verify cut_class=vm; verify; server how=moved",
        ["inconclusive", "durable", "durable"],
    ),
}


def history(steps: str, *, drive: str = "honest", target: str = "file") -> History:
    """A history of these steps."""
    return History(
        seed=0, target=target, drive=drive, counters=False, steps=tuple(map(Step.parse, steps.split("; ")))
    )


@pytest.mark.parametrize("name", CASES)
def test_verdicts_of_a_cut(name: str) -> None:
    """The cut of an honest drive gets the verdicts that it deserves. On a busy machine a cut may meet writers
    that lose nothing by it: then it is made again."""
    steps, verdicts = CASES[name]
    for _ in range(TRIES):
        played = play_on_kernel(history(steps))
        pairs = zip(played.grades, verdicts, strict=True)
        if not any(word == "durable" and "nothing-at-risk" in grade.reasons for grade, word in pairs):
            break
    assert [grade.word for grade in played.grades] == verdicts, "\n".join(played.told)
    assert played.wrong == ()


def test_cut_in_a_dead_network_is_inconclusive() -> None:
    """Writers that had used up their credit met no cut. The slower the machine, the later that is."""
    for pauses in (2, 4, 8, 16, 32):
        steps = ("run", "network", *["pass ms=4000"] * pauses, "cut", "boot", "network up=yes", "verify")
        played = play_on_kernel(history("; ".join(steps)))
        assert played.wrong == (), "\n".join(played.told)
        words = [grade.word for grade in played.grades]
        if words != ["durable"] * 2:
            break
    assert words == ["inconclusive"] * 2, "\n".join(played.told)


def test_liar_is_loss() -> None:
    """A drive that ignores flushes loses what it promised, and that is known of it."""
    played = play_on_kernel(history("run; pass ms=400; cut", drive=LIAR, target="device"))
    assert [grade.word for grade in played.grades] == ["loss"], "\n".join(played.told)
    assert played.wrong == ()


def is_sound(steps: str, directory: Path) -> bool:
    """Whether a verdict is due of the run of a history, once that is over."""

    async def go() -> bool:
        world = KernelWorld(history(steps, target="device"), directory)
        try:
            await play_through(world)
        finally:
            await world.end()
        return bool(world.truth.sound)

    directory.mkdir()
    return asyncio.run(go())


def test_a_quiet_run_owes_a_verdict(tmp_path: Path) -> None:
    """A run that is cut under load, and to which nothing else happened, is sound; on a busy machine a cut may
    meet no load, so it is made again. One in a dead network never is."""
    quiet, dead = "run; pass ms=400; cut; boot; verify", "run; network; pass ms=400; cut; boot"
    assert any(is_sound(quiet, tmp_path / f"quiet-{one}") for one in range(TRIES))
    assert not is_sound(dead, tmp_path / "dead")


def test_histories_at_random() -> None:
    """The same seed draws the same histories, of steps that can be made here; each verdict is deserved."""
    histories = drawn(DRAWN, NUMBER)
    assert histories == drawn(DRAWN, NUMBER)
    assert {step.kind for one in histories for step in one.steps} <= set(STEPS)
    tally, failure = search_on_kernel(count=DRAWN, number=NUMBER)
    assert failure is None, f"{failure.what}\n{failure.history}"
    assert tally.histories == DRAWN


def test_the_command_plays_them(tmp_path: Path) -> None:
    """`lab histories --rig b` draws and plays; `--replay` plays one there, and says on which rig it did."""
    found = lab_histories("--rig", "b", "--count", "1", "--seed", "4", "--json", cwd=tmp_path)
    assert found.returncode == 0, f"{found.stdout}\n{found.stderr}"
    document = json.loads(found.stdout)
    assert (document["rig"], document["histories"], document["wrong"]) == ("b", 1, "")
    file = tmp_path / "some.history"
    file.write_text(str(history("run; cut; boot")))
    found = lab_histories("--rig", "b", "--replay", file, "--json", cwd=tmp_path)
    assert found.returncode == 0, f"{found.stdout}\n{found.stderr}"
    document = json.loads(found.stdout)
    assert document["rig"] == "b"
    last = document["told"][-1]
    assert ": durable" in last or "(nothing-at-risk)" in last, document["told"]
