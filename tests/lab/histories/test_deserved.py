"""The account of histories notices testers that are wrong: one that never decides, one that refuses, one that
invents a loss, and one that counts too much."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from durability.evidence import cut, identity, machine_changes, strength, verdict
from durability.evidence.scan_report import ScanCounts
from durability_client.verify import verify_command
from durability_lab.histories import deserved
from durability_lab.histories.play import Played, play
from durability_lab.histories.simulated.world import World
from durability_lab.histories.steps import History
from durability_lab.histories.store_copies import of_age
from tests.lab.mutants.mutation import answering, without

pytestmark = pytest.mark.slow

LOADED = ("run size_kib=1024", "pass ms=400", "pass ms=400")
Change = Callable[[], AbstractContextManager[None]]


def played(
    *lines: str, drive: str = "honest", seed: int = 3, target: str = "device", counters: str = "no"
) -> Played:
    """A history on a drive that counts nothing, unless it is said to."""
    head = f"durability.history/1\nseed {seed}\ntarget {target}\ndrive {drive}\ncounters {counters}\n"
    return play(History.parse(head + "\n".join(lines) + "\n"))


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (answering(verdict._session_reasons, "yield _reason('session-closed')"), "where durable is due"),
        (
            answering(verify_command._require_target_of, "raise WrongTargetError('not this one')"),
            "no verdict, where durable is due",
        ),
    ],
)
def test_a_sound_run_owes_a_durable(change: Change, wrong: str) -> None:
    """A tester that never decides, or refuses, is wrong where the power was cut under load and no more."""
    assert played(*LOADED).wrong == ()
    with change():
        assert any(wrong in one for one in played(*LOADED).wrong)


def test_a_sound_run_owes_a_loss() -> None:
    """A tester that knows no loss is wrong where a drive lost what it promised under a plain cut."""
    lines = (*LOADED, "cut", "boot", "verify")
    assert [grade.word for grade in played(*lines, drive="flush-ignored").grades] == ["loss", "loss"]
    with without(
        verdict.decide, '"loss" if loss else "inconclusive" if missing', '"inconclusive" if loss or missing'
    )():
        assert any("where loss is due" in one for one in played(*lines, drive="flush-ignored").wrong)


def test_a_durable_is_held_against_what_the_drive_says_it_lost() -> None:
    """A durable verdict is compared with the drive's own log, so a shared mistake of judge and second reading
    is found."""
    lines = (*LOADED, "cut", "boot", "verify")
    blind = answering(deserved._second_reading, "return None")
    with blind(), answering(verdict._loss_reasons, "return []")():
        wrong = played(*lines, drive="flush-ignored").wrong
    assert any("durable, and the drive lost what it had acknowledged" in one for one in wrong)


@pytest.mark.parametrize(
    ("seed", "line"),
    [
        (51769, "run pattern=sequential sync=dsync size_kib=1024"),
        (6723, "run writers=3 sync=dsync size_kib=1024"),
    ],
)
def test_damage_where_a_writer_was_about_to_write_does_not_show(seed: int, line: str) -> None:
    """A drive had damaged the prefill of the slot that was next: an honest one may do so at the cut."""
    found = played(line, drive="shorn", seed=seed)
    assert [grade.word for grade in found.grades] == ["durable"]
    assert found.wrong == ()


def test_a_client_that_writes_again_stopped_in_no_dead_network() -> None:
    """A client's earlier stop in a dead network does not excuse a verdict on later writes. A reader found
    this error."""
    before = ("run size_kib=1024", "pass ms=400", "network", "hang", "pass ms=20", "answer", "network up=yes")
    after = ("pass ms=1500", "kill", "pass ms=4000", "pass ms=4000", "cut", "boot", "verify")
    closed = answering(verdict._session_reasons, "return iter(())")
    with closed():
        found = played(*before, *after, drive="early-ack:delay_ms=100", seed=1, counters="yes")
    assert any("no such cut met load" in one for one in found.wrong)


def test_a_drive_that_counts_owes_a_durable() -> None:
    """If the drive's counter of unsafe shutdowns shows the cut, a durable verdict is due even without an
    attestation. A tester that ignores the counter is wrong."""
    lines = (*LOADED, "cut", "boot", "verify attest=none")
    assert played(*lines, counters="yes").wrong == ()
    with answering(machine_changes.counted_power_loss, "return ''")():
        assert any("where durable is due" in one for one in played(*lines, counters="yes").wrong)


def test_runs_must_show_what_was_stored() -> None:
    """A listing without the run, or without an answer, is wrong."""
    lines = (*LOADED, "cut", "boot", "verify")
    with answering(World.listed, "return {}")():
        assert any("`runs` shows nothing" in one for one in played(*lines).wrong)


@pytest.mark.parametrize(
    "after", ["stop", "error", "hang", "network", "kill", "cut what=guest", "freeze", "server"]
)
def test_a_run_in_trouble_owes_nothing(after: str) -> None:
    """A tester that never decides is not wrong where more happened than a cut."""
    with answering(verdict._session_reasons, "yield _reason('session-closed')")():
        found = played(*LOADED, after, "pass ms=4000", "thaw", "cut")
    assert [grade.reasons[0] for grade in found.grades] == ["session-closed"]
    assert not any("due" in one for one in found.wrong)


@pytest.mark.parametrize("between", [(), ("resize percent=50", "resize percent=150")])
def test_an_invented_loss_is_noticed(between: tuple[str, ...]) -> None:
    """No loss of an honest drive is deserved, also not after someone made it smaller and larger again."""
    lines = (*LOADED, "cut", "boot", *between, "verify")
    assert played(*lines).wrong == ()
    with answering(verdict._loss_reasons, "return [_reason('findings')]")():
        assert "loss, and no promise to the run was broken" in played(*lines).wrong


def test_an_earlier_loss_must_have_been_one() -> None:
    """A loss for which an earlier one is the only reason is wrong if none was due."""
    with answering(verdict._loss_reasons, "return [_reason('earlier-loss')]")():
        found = played(*LOADED, "cut", "boot", "verify")
    assert "earlier-loss, and no earlier verify could have found one" in found.wrong


def test_findings_of_a_later_run_count_for_no_earlier_one() -> None:
    """A pass that repeats an earlier loss says why what it found is none."""
    again = ("run size_kib=1024", "pass ms=400", "cut", "boot", "verify run=older")
    lines = (*LOADED, "cut", "boot", "verify", *again)
    found = played(*lines, drive="flush-ignored")
    assert (found.wrong, found.grades[1].reasons) == ((), ("earlier-loss", "superseded"))
    with without(verdict.decide, "EXPLAIN_FINDINGS |", "frozenset() |")():
        found = played(*lines, drive="flush-ignored")
    assert any("findings that do not count" in one for one in found.wrong)


def test_the_number_of_findings_counts() -> None:
    """One broken promise justifies one finding: a tester that counts each twice is wrong."""
    lines = (*LOADED, "cut", "boot", "verify")
    assert played(*lines, drive="flush-ignored").wrong == ()
    with without(
        ScanCounts.report, "dict(self.findings)", "{one: 2 * n for one, n in self.findings.items()}"
    )():
        found = played(*lines, drive="flush-ignored")
    assert any("and a second reading has" in one for one in found.wrong)


def test_what_a_restored_store_does_not_know_is_not_asked_of_it() -> None:
    """A store of before a verdict need not show it; of after it, it must."""
    found = played(*LOADED, "cut", "boot", "copy", "verify", "server how=newest", "copy", "verify", "reboot")
    assert (found.wrong, [grade.word for grade in found.grades]) == ((), ["durable"] * 3)


def test_an_arming_can_be_cut() -> None:
    """A run may be cut before it is armed; nothing was acknowledged then."""
    found = played("run next=8", "cut", "boot", "verify")
    assert found.wrong == ()
    assert ["not-armed" in grade.reasons for grade in found.grades] == [True, True]


@pytest.mark.parametrize("loses", ["power", "process", "server", "network", "machine", "guest"])
@pytest.mark.parametrize("reads", ["1", "3", "4", "5"])
def test_verify_may_lose_anything(loses: str, reads: str) -> None:
    """If a verify is disturbed in the middle of its reads, by any event, the next verify is durable."""
    found = played(
        *(*LOADED, "cut", "boot"),
        *(f"verify cut_after={reads} loses={loses}", "network up=yes", "server how=start", "boot", "verify"),
    )
    assert found.wrong == ()
    assert found.told[-1].endswith(": durable"), found.told


def test_two_verify_at_once() -> None:
    """A second verify begins as soon as the first has given the target back, and says the same."""
    found = played(*LOADED, "cut", "boot", "verify beside=yes")
    assert found.wrong == ()
    assert [line.endswith(": durable") for line in found.told if " run " in line and ": " in line] == [
        True
    ] * 3


def test_a_run_outlives_a_restart_of_the_servers_machine() -> None:
    """The run goes on with the clock of another boot, is cut, and is judged there and on a third machine."""
    found = played(
        *(*LOADED, "server how=restarted", "pass ms=1500", "cut", "boot", "verify"),
        *("server how=moved", "verify attest=none require=os", "verify cut_class=os require=os"),
    )
    assert found.wrong == ()
    assert [grade.word for grade in found.grades] == ["durable"] * 4, found.told


def test_no_cut_before_a_restart_of_the_servers_machine_is_shown_after_it() -> None:
    """When the client fell silent is then unknown: it may have been closed in order."""
    found = played(*LOADED, "cut", "server how=restarted", "boot", "verify", "server how=moved", "verify")
    assert found.wrong == ()
    assert {grade.word for grade in found.grades} == {"inconclusive"}, found.told


@pytest.mark.parametrize("server", ["server how=restarted", "server; server how=start"])
def test_a_client_that_froze_just_before_the_servers_end_is_a_known_limit(server: str) -> None:
    """The server had no time to see that its kernel lives, and another one does not hear of it."""
    steps = ("run size_kib=1024", "freeze", "pass ms=1500", *server.split("; "), "pass ms=4000")
    found = played(*steps)
    assert found.wrong == ()
    assert found.grades[-1].word == "inconclusive" or found.grades[-1].limit


@pytest.mark.parametrize(
    "between", [("boot", "cut", *["pass ms=4000"] * 3), ("boot", *["pass ms=4000"] * 3, "reboot")]
)
def test_nothing_is_due_in_the_second_boot_after_a_cut(between: tuple[str, ...]) -> None:
    """The system of the first one reset the connection, as limits.md says: when that of the run ended is
    unknown. A later run owes its verdict all the same."""
    found = played(*LOADED, "cut", *between, "boot", "verify")
    assert (found.wrong, found.grades[0].reasons) == ((), ("session-closed",)), found.told
    with answering(verdict._session_reasons, "yield _reason('session-closed')")():
        wrong = played(*LOADED, "cut", "boot", *LOADED, "cut", "boot", "verify").wrong
    assert any("where durable is due" in one for one in wrong)


def test_a_lesser_attestation_shows_less() -> None:
    """An attested end of a guest is no power cut."""
    found = played(*LOADED, "cut", "boot", "verify cut_class=vm", "verify")
    assert [grade.word for grade in found.grades][:2] == ["inconclusive", "durable"], found.told


def test_exports_and_copies_of_any_age() -> None:
    """An export, or a copy of the store, is of the age that the step says."""
    copies = ("copy", "pass ms=100", "copy", "pass ms=100", "copy")
    lines = (*LOADED, *copies, "cut", "boot")
    by_age = [
        played(*lines, f"verify log=export age={age}", f"server how=newest age={age}", "verify")
        for age in ("0", "1", "2", "3")
    ]
    assert all(one.wrong == () for one in by_age)
    ended = ("session-server-down",)
    assert [[grade.reasons for grade in one.grades] for one in by_age] == [
        [("session-live",), ended, ended]
    ] * 4
    steps = [
        History.parse(
            f"durability.history/1\nseed 1\ntarget device\ndrive honest\ncounters no\nverify age={age}\n"
        ).steps[0]
        for age in range(4)
    ]
    assert [of_age("abc", step) for step in steps] == ["c", "b", "a", "a"]


def test_a_client_whose_end_is_lost_with_the_network_is_a_known_limit() -> None:
    """The client is killed, and the network fails during `verify` before the server hears of the end. This is
    a known limit."""
    found = played("run", "kill", "verify cut_after=1 loses=network", "hang", "pass", "cut", seed=0)
    assert found.wrong == ()
    assert found.grades[-1].limit == "stopped writing in a dead network"


def test_a_loss_by_reads_alone_may_be_withdrawn() -> None:
    """A drive that gives EIO for three seconds, and then everything: `runs` shows what stands since."""
    lines = (*LOADED, "cut", "boot", "verify", "pass ms=4000", "verify")
    drive = "unreadable:share=0.05,recovery_ms=3000"
    found = played(*lines, drive=drive)
    assert found.wrong == ()
    assert [grade.word for grade in found.grades] == ["loss", "durable", "durable"]
    assert [grade.reasons for grade in found.grades][0::2] == [
        ("findings", "unreadable-only"),
        ("loss-withdrawn",),
    ]
    with answering(strength.weightiest, "return given[0] if given else None")():
        assert any("`runs` shows loss" in one for one in played(*lines, drive=drive).wrong)


@pytest.mark.parametrize("target", ["device", "file"])
def test_a_sector_that_stays_unreadable_stays_a_loss(target: str) -> None:
    """Another cut heals nothing: the second verify finds what the first one found."""
    lines = (*LOADED, "cut", "boot", "verify", "cut", "boot", "verify")
    found = played(*lines, drive="unreadable:share=0.05", target=target)
    assert found.wrong == ()
    assert [grade.word for grade in found.grades] == ["loss"] * 3
    assert "loss-withdrawn" not in {code for grade in found.grades for code in grade.reasons}


@pytest.mark.parametrize("target", ["device", "file"])
def test_a_drive_may_recover_while_it_is_verified(target: str) -> None:
    """Whenever it recovers, no verdict is wrong, and a pass that reads everything is durable."""
    lines = (*LOADED, "cut", "boot", "verify", "pass ms=4000", "verify")
    first = set()
    for tenths in range(0, 40, 3):  # of a ms, about the moment at which verify begins and ends
        drive = f"unreadable:share=0.05,recovery_ms={2001 + tenths / 10}"
        found = played(*lines, drive=drive, target=target)
        assert found.wrong == (), drive
        assert found.grades[-1].word == "durable", found.told
        first.add(found.grades[0].word)
    assert first == {"loss", "durable"}


def test_a_dead_drive_has_no_verdict_but_inconclusive() -> None:
    """A drive that answers nothing after its cut is not read, and what it keeps is not known."""
    found = played(*LOADED, "cut", "boot", "verify", drive="dead")
    assert found.wrong == ()
    assert [grade.word for grade in found.grades] == ["inconclusive", "inconclusive"]
    assert "scan-unfinished" in found.grades[0].reasons


def test_a_client_that_is_killed_in_a_dead_network_is_a_known_limit() -> None:
    """History k: the server hears neither its end nor what it wrote; a cut ten seconds later looks like one
    under load. A writer that goes on uses up its credit instead, and has nothing at risk."""
    killed = played("run size_kib=1024", "pass ms=1500", "network", "kill", *["pass ms=4000"] * 3, "cut")
    assert killed.wrong == ()
    assert killed.grades[-1].limit == "stopped writing in a dead network"
    waiting = played("run size_kib=1024", "pass ms=1500", "network", *["pass ms=4000"] * 3, "cut")
    assert (waiting.grades[-1].word, waiting.grades[-1].reasons) == ("inconclusive", ("nothing-at-risk",))


def test_a_run_that_a_restarted_server_arms_is_known_by_its_size() -> None:
    """It is armed and over within the steps that follow; then someone makes the drive smaller: a loss."""
    found = played("run next=8", "server how=restarted", "pass ms=1500", "reboot", "resize", seed=0)
    assert (found.wrong, [grade.word for grade in found.grades]) == ((), ["loss"])


@pytest.mark.parametrize(
    ("drive", "target", "answer"),
    [
        ("honest", "device", "inconclusive (drive-changed)"),
        ("early-ack:delay_ms=100", "device", "inconclusive (drive-changed)"),
        ("honest", "file", "inconclusive (drive-changed)"),
        ("empty", "device", "no verdict: RefusedError: the target holds no superblock of a run"),
        ("empty", "file", "no verdict: TargetError: /mnt/target: its file system is not mounted"),
    ],
)
def test_a_drive_with_another_serial_is_another_drive(drive: str, target: str, answer: str) -> None:
    """Nothing shows that it is the drive that lost its power: no loss and no durable, as limits.md says."""
    found = played(*LOADED, "cut", "renumber", "boot", "verify", drive=drive, target=target)
    assert found.wrong == ()
    assert len(found.grades) == 2
    assert all(answer in line for line in found.told if "verdict" in line or ": inconclusive" in line)
    assert not {"loss", "durable"} & {grade.word for grade in found.grades}


GUESTS = ("guest", "hidden")


@pytest.mark.parametrize("guest", GUESTS)
def test_no_cut_of_a_guest_is_one_of_power(guest: str) -> None:
    """It was forced off, and its host kept its power: a tester that takes the operator's word for a cut of
    power is wrong, though the word is a lie."""
    lied = (f"machine {guest}", *LOADED, "cut", "boot", "verify attest=false")
    lines = (*lied[:-1], "verify", "verify require=os")
    found = played(*lines)
    assert found.wrong == ()
    assert [grade.reasons for grade in found.grades][:2] == [("cut-class",), ()]
    assert [grade.word for grade in found.grades][:2] == ["inconclusive", "durable"]
    assert played(*lied).grades[0].reasons == ("cut-class",)
    with answering(cut._believable, "return claimed or 'power'")():
        assert "durable, and no such cut met load" in played(*lines).wrong
        assert "durable, and no such cut met load" in played(*lied).wrong


@pytest.mark.parametrize("guest", GUESTS)
def test_what_a_drive_of_a_guest_counts_shows_nothing(guest: str) -> None:
    """A hypervisor counts as it likes: a tester that believes it is wrong."""
    lines = (f"machine {guest}", *LOADED, "cut", "boot", "verify attest=none")
    found = played(*lines, counters="yes")
    assert (found.wrong, found.grades[0].word) == ((), "inconclusive")
    with without(machine_changes.has_risen, " or before.emulated or after.emulated", "")():
        assert "durable, and no such cut met load" in played(*lines, counters="yes").wrong


def test_a_sound_run_of_a_guest_owes_a_durable_where_its_end_is_enough() -> None:
    """Forced off, or its drive taken away, under load, and an operator who says so."""
    for lines in (
        ("cut", "boot", "verify require=os"),
        ("cut what=drive", "pass ms=4000", "boot", "verify cut_class=vm require=os"),
    ):
        steps = ("machine guest", *LOADED, *lines)
        found = played(*steps)
        assert (found.wrong, found.grades[0].word) == ((), "durable"), found.told
        with answering(verdict._session_reasons, "yield _reason('session-closed')")():
            assert any("where durable is due" in one for one in played(*steps).wrong)


@pytest.mark.parametrize(
    ("serials", "holds", "word", "limit"),
    [
        ("own", "copy", "inconclusive", ""),
        ("wwid", "nothing", "none", ""),
        ("wwid", "copy", "inconclusive", ""),
        ("same", "nothing", "loss", "another drive that cannot be told from that of the run"),
        ("same", "copy", "durable", "another drive that cannot be told from that of the run"),
        ("none", "nothing", "none", ""),
        ("none", "copy", "durable", "another drive that cannot be told from that of the run"),
    ],
)
def test_another_drive_in_its_place_shows_nothing_unless_it_cannot_be_told_apart(
    serials: str, holds: str, word: str, limit: str
) -> None:
    """A disk in an adapter with one serial for all, or without a serial: limits.md has what is assumed."""
    lines = (*LOADED, "cut", "boot", f"replace holds={holds}", "verify attest=false")
    found = played(f"serials {serials}", *lines)
    assert found.wrong == ()
    assert (found.grades[0].word, found.grades[0].limit) == (word, limit)


def test_a_drive_without_a_serial_that_shows_only_an_older_run_owes_nothing() -> None:
    """It may be another one with that run, as limits.md says. One with a serial lost the newer run, and a
    tester that then judges the older one is wrong."""
    lines, liar = (*LOADED, "cut", "boot", "run"), "rollback:interval_ms=300"
    nameless = played("serials none", *lines, drive=liar)
    # Neither cut was verified, so what is attested may be about the second one, after the older run.
    reasons = ("superseded", "attestation-contradicted", "cut-class")
    assert (nameless.wrong, nameless.grades[-1].reasons) == ((), reasons)
    named = played(*lines, drive=liar)
    assert (named.wrong, named.grades[-1].word) == ((), "loss")
    with answering(identity.newer_run_here, "return False")():
        assert any("an older run was judged" in one for one in played(*lines, drive=liar).wrong)


def test_a_liar_that_loses_what_shows_that_its_writer_waited_is_a_known_limit() -> None:
    """In a dead network the writer uses up its credit. The drive then loses the newest of that, so the target
    looks as if the power had gone while it wrote."""
    lines = ("run workload=append sync=dsync size_kib=1024", "network", "pass ms=4000", "cut")
    found = played(*lines, drive="early-ack:delay_ms=3000", target="file", seed=0)
    assert found.wrong == ()
    assert found.grades[-1].word == "durable"
    assert found.grades[-1].limit == "the drive lost what shows that a writer had used up its credit"


def test_records_at_risk_of_a_client_frozen_for_a_moment_are_as_documented() -> None:
    """The server cannot see a freeze of 100 ms, and takes the last frame for the last moment under load."""
    found = played("run", "run", "freeze", "pass ms=100", "cut", seed=0)
    assert found.wrong == ()
    assert found.grades[-1].word == "durable"
