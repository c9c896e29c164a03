"""Histories whose verdicts were once wrong: each has the verdicts that it deserves, and without its rule not.

`known` has one file for each; `durability lab histories --replay FILE` shows it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from durability_lab.histories.play import Played, play
from durability_lab.histories.steps import History
from tests.lab.mutants.mutants import MUTANTS

pytestmark = pytest.mark.slow

KNOWN = Path(__file__).parent / "known"
# The answers of `verify` in their order; the last one is that after the end of each history.
EXPECTED = {
    "a": ("inconclusive (nothing-at-risk)", "inconclusive (nothing-at-risk)"),
    "b": ("inconclusive (nothing-at-risk)", "inconclusive (nothing-at-risk)"),
    "c": ("inconclusive (cut-not-shown, nothing-at-risk)", "inconclusive (cut-not-shown, nothing-at-risk)"),
    "d": ("inconclusive (scan-unfinished, nothing-checked)", "durable", "durable"),
    "e": (
        "inconclusive (log-behind, session-live)",
        "inconclusive (log-behind, session-server-down)",
        "inconclusive (log-behind, session-server-down)",
    ),
    "f": (
        "inconclusive (session-stopped, cut-not-shown)",
        "loss (findings)",
        "loss (findings, earlier-loss)",
    ),
    "g": (
        "inconclusive (session-stopped, cut-not-shown)",
        "loss (findings)",
        "loss (findings, earlier-loss)",
    ),
    "h": ("durable", "inconclusive (too-few-cuts)", "durable", "inconclusive (superseded)", "durable"),
    "i": ("loss (device-smaller)", "loss (device-smaller, earlier-loss)"),
    # j is a file system that does not mount, of a kernel: rig B has it.
    "k": ("inconclusive (session-closed)", "inconclusive (session-closed)"),
    # Found by the search: a drive dies while the network is away, which then delivers what is old by now.
    "held-up": ("inconclusive (nothing-at-risk)",),
    # Found by the search: a run of which only the superblock is left, and a server restored to before it.
    "unarmed": ("inconclusive (no-server-log, not-armed, superseded, cut-not-shown, nothing-at-risk)",),
    # Found by a reader, and since by the search: a drive that goes away before it is read, a frozen client.
    "gone": ("inconclusive (scan-unfinished, nothing-checked)", "durable", "durable"),
    "frozen": ("inconclusive (nothing-at-risk)", "inconclusive (nothing-at-risk)"),
    # Of another drive, which `verify` refuses where it shows no run.
    "dock": (),
    "no-serial": (),
    # Found by the search: a drive without a serial that becomes smaller below a file that is whole; and one
    # that gives back its superblocks, and nothing of the one name that there is.
    "half": ("inconclusive (smaller-or-copy)",),
    "one-name": ("loss (findings, unreadable-only)",),
    "copy": ("inconclusive (drive-changed)", "inconclusive (drive-changed, cut-class)"),
    # Found by the search: the names of a larger run are back, whose numbers the smaller one does not use.
    "larger": ("loss (findings)",),
}
# The rule, as a mutant's name, without which the history is judged otherwise.
NEEDS = {
    "a": "any error is a cut",
    "b": "a hang is a cut",
    "c": "a restart after an error is a cut",
    "d": "no reread of good places",
    "e": "later files of a log not read",
    "f": "newer runs on the target ignored",
    "g": "newer runs on the target ignored",
    "h": "the latest verdict stands",
    "i": "smaller drives accepted",
    "k": "a reset after silence does not count",
    "held-up": "late frames are new",
    "unarmed": "runs without a log are armed",
    "gone": "a target that is gone is empty",
    "frozen": "a frozen client is cut",
    "dock": "a serial is a drive",
    "no-serial": "drives without a serial are alike",
    "half": "drives without a serial may shrink",
    "one-name": "I/O errors cause no loss",
    "copy": "copies accepted",
    "larger": "names of an earlier run accepted",
}


def played(name: str) -> Played:
    """The history of this name, played."""
    return play(History.parse((KNOWN / f"{name}.history").read_text()))


def answers(found: Played) -> tuple[str, ...]:
    """What `verify` answered, without the ids of runs."""
    said = (line.strip() for line in found.told)
    return tuple(line.partition(": ")[2] for line in said if line.startswith("run ") and ": " in line)


def test_every_known_history_is_here() -> None:
    """Each file has its expected answers."""
    assert {path.stem for path in KNOWN.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_known_history_has_the_verdicts_that_it_deserves(name: str) -> None:
    """The answers are the expected ones, and the account that knows everything agrees."""
    found = played(name)
    assert answers(found) == EXPECTED[name], "\n".join(found.told)
    assert found.wrong == ()


def test_what_a_drive_lost_counts_though_a_later_run_wrote_over_it() -> None:
    """A drive loses a run at one cut and the run after it at the next; the server knows only of the first:
    the account remembers what was broken, so the loss is deserved."""
    lines = ("run", "copy", "hang", "pass", "cut", "boot", "run", "server how=newest")
    head = "durability.history/1\nseed 0\ntarget device\ndrive flush-ignored\ncounters no\n"
    found = play(History.parse(head + "\n".join(lines) + "\n"))
    assert (answers(found), found.wrong) == (("loss (findings)",), ())


@pytest.mark.parametrize("target", ["device", "file"])
def test_a_drive_whose_power_flickers_is_another_one(target: str) -> None:
    """Its kernel enumerates it anew, so a run that goes on gets an error: no flush of the drive that came
    back acknowledges what it lost. Found by the search, in which such a run went on."""
    lines = ("run", "cut what=drive", "boot", "pass")
    head = f"durability.history/1\nseed 1\ntarget {target}\ndrive honest\ncounters no\n"
    found = play(History.parse(head + "\n".join(lines) + "\n"))
    assert (answers(found), found.wrong) == (("durable",), ()), found.told


@pytest.mark.parametrize("cut", ["cut", "cut what=guest", "cut what=drive; pass ms=4000"])
@pytest.mark.parametrize("target", ["device", "file"])
def test_power_lost_again_in_recovery_takes_nothing_from_the_verdict(target: str, cut: str) -> None:
    """The second cut meets no load and breaks nothing; the first one counts."""
    lines = ("run size_kib=1024", "pass ms=400", *cut.split("; "), "boot cut=yes", "boot cut=yes", "boot")
    head = f"durability.history/1\nseed 3\ntarget {target}\ndrive honest\ncounters no\n"
    found = play(History.parse(head + "\n".join((*lines, "verify")) + "\n"))
    assert (answers(found), found.wrong) == (("durable",) * 2, ()), found.told


LIMITS = {
    "a machine restarted in order in a dead network": (
        "run size_kib=1024; pass ms=400; network; reboot; network up=yes; verify attest=none require=os",
        "honest",
    ),
    "a drive that lost a later run, of which the log does not know": (
        "run size_kib=1024; stop; copy; run; cut; boot; server how=newest; verify",
        "flush-ignored",
    ),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_that_is_documented_is_no_wrong_verdict(limit: str) -> None:
    """Found by a reader: nothing that any tester sees tells these histories from others."""
    steps, drive = LIMITS[limit]
    head = f"durability.history/1\nseed 1\ntarget device\ndrive {drive}\ncounters no\n"
    found = play(History.parse(head + "\n".join(steps.split("; ")) + "\n"))
    assert found.grades[0].limit == limit, found.told
    assert found.wrong == ()


def test_a_clean_restart_in_a_dead_network_counts_as_a_cut_of_the_series() -> None:
    """As the limit says. Found by a reader: the account called that wrong."""
    head = "durability.history/1\nseed 1\ntarget device\ndrive honest\ncounters no\n"
    assert play(History.parse(head + "run size_kib=1024\nnetwork\nreboot\n")).wrong == ()


@pytest.mark.parametrize(
    ("drive", "seed", "steps"),
    [
        ("early-ack:delay_ms=100", 0, "run workload=append; reboot; run"),
        ("rollback:interval_ms=3000", 3, "run workload=create; pass ms=4000; stop; run workload=append"),
        ("rollback:interval_ms=3000", 3, "run workload=rename; pass ms=4000; stop; run workload=append"),
    ],
)
def test_names_of_an_earlier_run_that_are_back_are_as_many_in_both_readings(
    drive: str, seed: int, steps: str
) -> None:
    """Found by the search and by a reader: the second reading did not look for them."""
    head = f"durability.history/1\nseed {seed}\ntarget file\ndrive {drive}\ncounters no\n"
    found = play(History.parse(head + "\n".join(steps.split("; ")) + "\n"))
    assert [grade.word for grade in found.grades] == ["loss"]
    assert found.wrong == ()


@pytest.mark.parametrize(
    ("drive", "seed", "steps"),
    [
        ("partial-rollback:interval_ms=300", 7, "run; kill; copy; run; pass ms=400; cut; server how=newest"),
        (
            "partial-flush:cache_bytes=65536",
            1,
            "copy; run size_kib=1024; pass ms=1500; cut; boot; server how=oldest; verify",
        ),
    ],
)
def test_a_loss_that_is_proven_without_a_log_is_kept_by_no_server(drive: str, seed: int, steps: str) -> None:
    """Found by a reader: `runs` was to show the verdict on a run that the server does not know."""
    head = f"durability.history/1\nseed {seed}\ntarget device\ndrive {drive}\ncounters no\n"
    found = play(History.parse(head + "\n".join(steps.split("; ")) + "\n"))
    assert {grade.word for grade in found.grades} == {"loss"}
    assert found.wrong == ()


def test_a_drive_without_a_serial_that_became_smaller_owes_no_verdict() -> None:
    """Nothing is lost, and it may be another drive with a copy. Found by the search: durable was due."""
    head = "durability.history/1\nseed 0\ntarget device\ndrive smaller:share=0.5\ncounters no\nserials none\n"
    found = play(History.parse(head + "run size_kib=1024\npass ms=400\n"))
    assert (answers(found), found.wrong) == (("inconclusive (smaller-or-copy)",), ()), found.told


@pytest.mark.parametrize(
    ("serials", "expected"),
    [
        ("same", ("inconclusive (superseded, drive-changed, session-stopped)",)),
        ("wwid", ("loss (findings)",)),
    ],
)
def test_a_drive_that_was_made_larger_is_known_by_its_world_wide_name(
    serials: str, expected: tuple[str, ...]
) -> None:
    """It loses the whole second run. With the serial of others it may be another drive, as the limits say.
    Found by the search: a verdict on the second run was due."""
    head = "durability.history/1\nseed 0\ntarget device\ndrive early-ack:delay_ms=100\ncounters no\n"
    found = play(History.parse(f"{head}serials {serials}\nrun\nreboot\nresize percent=150\nrun\n"))
    assert (answers(found), found.wrong) == (expected, ()), found.told


# Found by a reader and by the search, all right and once called wrong: lines of the head, steps, verdicts.
CALLED_WRONG = {
    "a counter without a serial": (
        "drive honest; counters yes; serials none",
        "run size_kib=1024; pass ms=400; cut; boot; verify attest=none",
        "inconclusive durable",
    ),
    "a counter without a serial contradicts nobody": (
        "drive honest; counters yes; serials none",
        "run; cut what=guest; boot; verify attest=false",
        "durable inconclusive",
    ),
    "a counter contradicts a cut of the power alone": (
        "drive honest; counters yes",
        "run; cut what=guest; boot; verify attest=false cut_class=vm require=os",
        "durable inconclusive",
    ),
    "a series with another disk in a dock": (
        "drive honest; counters no; serials same",
        "run; kill; replace; verify; run; kill",
        "loss inconclusive",
    ),
    "two runs after the target got its name": (
        "target file; drive early-ack:delay_ms=100; counters no",
        "run; stop; move; run workload=create; stop; run workload=append",
        "loss",
    ),
    "a client that has had no time to write on": (
        "drive honest; counters no",
        "run size_kib=1024; pass ms=400; network; freeze; pass ms=1500; thaw; network up=yes; cut",
        "durable",
    ),
    "an older run of which the log does not know": (
        "drive early-ack:delay_ms=100; counters no",
        "run; stop; copy; run; stop; server how=newest; run",
        "inconclusive",
    ),
    "a run after one that was killed in a commit": (
        "seed 4; target file; drive honest; counters no",
        "run; kill; run size_kib=1024; pass ms=400; cut; boot; verify",
        "durable durable",
    ),
    "a run after the drive came back by itself": (
        "target file; drive honest; counters no",
        "run; cut what=drive; pass ms=4000; boot; kill; run size_kib=1024; pass ms=400; cut; boot; verify",
        "durable durable",
    ),
    "an error of a drive without power": (
        "drive honest; counters no",
        "run size_kib=1024; pass ms=400; cut; error lasting=yes; boot; verify",
        "durable durable",
    ),
    "an error that is put right at the end": (
        "drive honest; counters no",
        "run size_kib=1024; pass ms=400; cut; boot; error lasting=yes",
        "durable",
    ),
    "superblocks that are unreadable in part": (
        "seed 7088; target file; drive unreadable:share=0.05; counters no",
        "run workload=create",
        "loss",
    ),
    "power lost while a loss by reads is seen again": (
        "target file; drive unreadable:share=0.05; counters no",
        "run; cut; boot; verify; verify cut_after=30 beside=yes",
        "loss loss loss loss",
    ),
    "a frozen client whose connection is over": (
        "drive honest; counters no",
        f"run; network; freeze; {'pass ms=4000; ' * 3}network up=yes; pass ms=4000",
        "durable",
    ),
    "a client that has not connected again": (
        "drive honest; counters no",
        f"run; network; freeze; {'pass ms=4000; ' * 3}network up=yes; thaw; pass ms=1; kill; pass ms=1500;"
        " cut",
        "durable",
    ),
    "a client that gave up in a dead network": (
        "drive honest; counters no",
        f"run; network; error; {'pass ms=4000; ' * 6}network up=yes; pass ms=400; cut",
        "durable",
    ),
    "a client frozen shortly before the network died": (
        "drive honest; counters no",
        "run; freeze; pass ms=1500; network; pass ms=4000",
        "durable",
    ),
    "a mount after a client was killed in a commit": (
        "target file; drive honest; counters no",
        "run workload=unlink; kill; unmount; run workload=unlink",
        "durable",
    ),
    "a drive that comes back after a client was killed in a commit": (
        "target file; drive honest; counters no",
        "run workload=unlink; kill; cut what=drive; boot; run workload=unlink",
        "durable",
    ),
    "a loss by reads that nobody saw withdrawn": (
        "seed 2; drive unreadable:share=0.05,recovery_ms=3000; counters no",
        f"run size_kib=1024; pass ms=400; cut; boot; {'pass ms=400; ' * 2}pass ms=100; {'pass ms=20; ' * 4}"
        f"{'pass ms=1; ' * 16}verify beside=yes; replace",
        "loss durable none",
    ),
}


@pytest.mark.parametrize("name", CALLED_WRONG)
def test_a_right_verdict_is_not_called_wrong(name: str) -> None:
    """What the limits and rules allow is no failure of a search."""
    head, steps, verdicts = CALLED_WRONG[name]
    words_of_head = {"seed": "1", "target": "device"} | dict(line.split() for line in head.split("; "))
    lines = [" ".join(pair) for pair in words_of_head.items()] + steps.split("; ")
    found = play(History.parse("\n".join(["durability.history/1", *lines]) + "\n"))
    assert (" ".join(grade.word for grade in found.grades), found.wrong) == (verdicts, ()), found.told


# What ends an excuse, after `run size_kib=1024; pass ms=400`, and the rule without which that is durable.
EXCUSES_END = {
    "the server heard of the error": (
        "network; error; network up=yes; pass ms=4000; pass ms=4000; cut; boot",
        "any error is a cut",
    ),
    "the server heard of the hang": (
        "network; hang; network up=yes; pass ms=4000; cut what=drive; pass ms=4000; boot",
        "a hang is a cut",
    ),
    "the server asked the kernel of a frozen client": (
        "network; freeze; pass ms=100; network up=yes; pass ms=4000; pass ms=4000; cut; boot",
        "a frozen client is cut",
    ),
    "the client was frozen long before the network died": (
        "freeze; pass ms=4000; pass ms=4000; hang; network; cut; boot; network up=yes",
        "a frozen client is cut",
    ),
    "the server heard of a client that had been frozen": (
        "freeze; pass ms=400; server how=kill; server how=start; thaw; pass ms=4000; error; pass ms=4000;"
        " pass ms=4000; cut; boot",
        "any error is a cut",
    ),
    "the drive failed long before it failed everything": (
        "error; pass ms=4000; pass ms=4000; error lasting=yes; cut; boot",
        "any error is a cut",
    ),
}


@pytest.mark.parametrize("name", EXCUSES_END)
def test_a_documented_assumption_excuses_nothing_else(name: str) -> None:
    """Found by a reader: a tester without the rule was excused."""
    steps, rule = EXCUSES_END[name]
    head = "durability.history/1\nseed 1\ntarget device\ndrive honest\ncounters no\n"
    lines = ["run size_kib=1024", "pass ms=400", *steps.split("; "), "verify"]
    history = History.parse(head + "\n".join(lines) + "\n")
    (mutant,) = [one for one in MUTANTS if one.name == rule]
    with mutant.change():
        assert "durable, and no such cut met load" in play(history).wrong
    assert play(history).wrong == ()


def test_names_that_never_reached_the_media_are_not_read_after_the_drive_is_back() -> None:
    """`verify` reads through a new mount of a drive that was enumerated anew. Found by a reader: the mount
    of before still had the names in memory, so the verdict was durable."""
    head = "durability.history/1\nseed 1\ntarget file\ndrive fua-ignored\ncounters no\n"
    steps = ("run workload=unlink", "cut what=drive", "boot", "pass ms=4000", "verify")
    found = play(History.parse(head + "\n".join(steps) + "\n"))
    assert ([grade.word for grade in found.grades], found.wrong) == (["loss"] * 2, ()), found.told


@pytest.mark.parametrize("name", EXPECTED)
def test_a_known_history_notices_that_its_rule_is_gone(name: str) -> None:
    """Without its rule of evidence the history is answered otherwise, so it shows that the rule is there."""
    (mutant,) = [one for one in MUTANTS if one.name == NEEDS[name]]
    with mutant.change():
        found = played(name)
    assert answers(found) != EXPECTED[name] or found.wrong, f"{name} does not notice {mutant.taken_away}"
