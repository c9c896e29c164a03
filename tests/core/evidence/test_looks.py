"""What an earlier verify found decides which of several events was the cut of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.evidence.cut import Cut, assess, outlived
from durability.evidence.looks import (
    as_of_another_run,
    drive_answered,
    first_event,
    found_alive,
    is_to_be_kept,
)
from durability.formats.case import RESET, Case, Event, Look, PowerOff, ProvableCutClass
from durability.formats.facts import Facts
from tests.core.evidence.memory_target import LAST_NS, MS, MakePlan, make_case, make_look, small
from tests.sample_facts import drive, facts

RUN = facts(drives=(drive(diskseq=9, unsafe_shutdowns=3),))
CRASHED = facts(boot="boot-2", uptime_s=30, drives=(drive(diskseq=1, unsafe_shutdowns=3),))
CUT = facts(boot="boot-2", uptime_s=30, drives=(drive(diskseq=1, unsafe_shutdowns=4),))
LATER = facts(boot="boot-3", uptime_s=30, drives=(drive(diskseq=1, unsafe_shutdowns=5),))


def uncounted(found: Facts) -> Facts:
    """The same, of drives that say nothing of their power losses."""
    return replace(found, drives=tuple(replace(one, unsafe_shutdowns=None) for one in found.drives))


@pytest.fixture(name="case", scope="module")
def fixture_case(make_plan: MakePlan) -> Case:
    """A run whose last frame came an hour before the last verify."""
    return make_case(small(make_plan), (100,), now_ns=LAST_NS + 3_600_000 * MS)


def after(case: Case, *looks: Look, now: Facts = LATER, attested: str | None = None) -> Cut:
    """The cut as a verify sees it that comes after `looks`."""
    return assess(replace(case, looks=looks), now, attested=attested, cut_class=None)


def test_a_power_cut_after_a_crash_is_no_cut_of_the_run(case: Case) -> None:
    """A verify looked at the drive after the system's crash, so the later power cut is no cut of the run.
    Without that look it would count as one."""
    assert after(case).cut_class == "power"
    seen = after(case, make_look(CRASHED))
    assert (seen.cut_class, seen.contradictions) == ("os", ())


def test_an_attestation_counts_if_the_first_look_had_it(case: Case) -> None:
    """Only an attestation given with the first verify after the event counts; a later one may be about a
    later event, and the reason says so."""
    bare = replace(case, armed=uncounted(RUN))
    first = make_look(uncounted(CRASHED))
    told = after(bare, first, now=uncounted(LATER), attested="pulled the plug")
    assert (told.cut_class, told.attested) == ("os", "pulled the plug")
    assert "before the verify of 2026-11-29T12:00:00.000Z" in told.contradictions[0]
    for looks in (
        (replace(first, attested="pulled the plug"),),
        (first, replace(first, attested="pulled the plug")),  # the same boot, asked again
    ):
        known = after(bare, *looks, now=uncounted(LATER))
        assert (known.cut_class, known.attested) == ("power", "pulled the plug")
    forced = replace(first, attested="forced off", cut_class="vm")
    assert after(bare, forced, now=uncounted(LATER), attested="pulled the plug").cut_class == "vm"


def test_within_one_boot_nothing_changes(case: Case) -> None:
    """A verify that is asked again, with an attestation or as root, is judged by what it finds itself."""
    bare = replace(case, armed=uncounted(RUN), now_ns=LAST_NS + 120_000 * MS)
    again = after(bare, make_look(uncounted(CRASHED)), now=uncounted(CRASHED), attested="pulled the plug")
    assert (again.cut_class, again.contradictions) == ("power", ())
    as_root = after(replace(case, now_ns=LAST_NS + 120_000 * MS), make_look(uncounted(CUT)), now=CUT)
    assert as_root.cut_class == "power"


def test_counters_of_the_first_boot_count(case: Case) -> None:
    """The first verify could not read them, the second one could, and then the plug was pulled again."""
    assert after(case, make_look(uncounted(CUT)), make_look(CUT)).cut_class == "power"
    assert after(case, make_look(uncounted(CRASHED)), make_look(CRASHED)).cut_class == "os"
    assert after(case, make_look(uncounted(CRASHED))).cut_class == "os"


@pytest.mark.parametrize(
    "found",
    [
        RUN,
        facts(boot="boot-9", machine="another", drives=(drive(serial=""),)),
        facts(drives=()),
    ],
    ids=["nothing had happened", "another machine", "no drive was found"],
)
def test_a_look_without_a_first_event_says_nothing_of_the_cut(case: Case, found: Facts) -> None:
    """Then what is found now counts."""
    assert first_event(replace(case, looks=(make_look(found),)), LATER) is None


@pytest.mark.parametrize(
    ("found", "alive", "answered"),
    [
        (RUN, True, True),
        (uncounted(RUN), True, False),
        (CRASHED, False, False),
        (facts(drives=(drive(diskseq=10),)), False, False),
        (facts(drives=(drive(diskseq=None),)), True, False),
        (facts(drives=(drive(unsafe_shutdowns=4),)), True, False),
        (facts(drives=()), True, False),
    ],
    ids=[
        "as it was",
        "counters not read",
        "another boot",
        "attached anew",
        "no number of its attachment",
        "a power loss counted",
        "no drive",
    ],
)
def test_a_machine_in_the_boot_of_the_run_outlived_its_client(
    case: Case, found: Facts, alive: bool, answered: bool
) -> None:
    """A drive that failed before must be as it was in all that is known of it, to have answered."""
    seen = replace(case, looks=(make_look(found),))
    assert (found_alive(seen), drive_answered(seen)) == (alive, answered)
    assert not drive_answered(replace(case, looks=(make_look(found, answers=False),)))


def test_a_machine_without_an_id_has_another_boot(case: Case) -> None:
    """A machine without an id, such as a container, is followed by its boots; its drive is recognised."""
    bare = replace(case, armed=facts(machine="", drives=RUN.drives))
    first = facts(boot="boot-2", machine="", uptime_s=30, drives=CRASHED.drives)
    later = facts(boot="boot-3", machine="", uptime_s=30, drives=LATER.drives)
    assert after(bare, now=later).cut_class == "power"
    assert after(bare, make_look(first), now=later).cut_class == "none"


def test_one_drive_of_a_mirror_is_enough_to_have_been_elsewhere(case: Case) -> None:
    """It was read on another machine, with power, before both were cut."""

    def mirror(*, machine: str, boot: str, count: int, both: bool = True) -> Facts:
        names = ("sda", "sdb") if both else ("sda",)
        drives = (drive(name=name, serial=name, diskseq=1, unsafe_shutdowns=count) for name in names)
        return facts(machine=machine, boot=boot, uptime_s=30, drives=tuple(drives))

    armed = replace(case, armed=mirror(machine="a", boot="1", count=3), statistics=None)
    now = mirror(machine="a", boot="3", count=4)
    assert after(armed, now=now).cut_class == "power"
    half = make_look(mirror(machine="b", boot="2", count=3, both=False))
    assert after(armed, half, now=now).cut_class == "none"


def test_drives_of_a_mirror_may_be_attached_one_after_the_other(case: Case) -> None:
    """In one boot, and each once: a verify in between has not seen another cut. A drive that is attached
    once more may have lost its power then."""

    def mirror(*numbers: int) -> Facts:
        drives = (
            drive(name=f"sd{at}", serial=f"S{at}", diskseq=number, unsafe_shutdowns=None)
            for at, number in enumerate(numbers)
        )
        return facts(drives=tuple(drives))

    armed = replace(case, armed=mirror(1, 2), statistics=None)
    one = make_look(mirror(3, 2), attested="pulled both")
    assert after(armed, one, now=mirror(3, 4), attested="pulled both").cut_class == "power"
    assert after(armed, make_look(mirror(3, 2)), now=mirror(5, 6), attested="pulled both").cut_class == "none"


def test_a_look_without_drives_tells_less_than_one_before(case: Case) -> None:
    """A later verify without visible drives, as in a container, does not replace an earlier one with
    drives."""
    assert after(case, make_look(CUT), make_look(replace(CUT, drives=()))).cut_class == "power"


def test_a_correction_of_what_was_attested_makes_it_less(case: Case) -> None:
    """Never more: that may be about a later cut."""
    bare = replace(case, armed=uncounted(RUN))
    classes: list[tuple[ProvableCutClass, ProvableCutClass]] = [
        ("power", "os"),
        ("os", "power"),
        ("os", "os"),
    ]
    for first, later in classes:
        seen = replace(bare, looks=(make_look(uncounted(CRASHED), attested="so it was", cut_class=first),))
        cut = assess(seen, uncounted(LATER), attested="or so", cut_class=later)
        assert cut.cut_class == "os"


def test_a_switch_that_went_off_after_the_first_look_cut_nothing(case: Case) -> None:
    """The controller's log is an attestation, and it may come too late as well."""
    bare = replace(case, armed=uncounted(RUN))
    seen = make_look(uncounted(CRASHED))
    for asked_ns, expected in ((LAST_NS, "power"), (seen.at_ns + MS, "os")):
        off = PowerOff(
            asked_ns=asked_ns,
            confirmed_ns=asked_ns + MS,
            boot_id="server-boot",
            subject="machine",
            cut_class="power",
            text="off",
        )
        told = replace(bare, power_offs=(off,))
        assert after(told, seen, now=uncounted(LATER)).cut_class == expected


def test_a_look_that_counters_are_added_to_keeps_its_clock(case: Case) -> None:
    """The server restarted after the first one: no clock of a later one shows when the boot began."""
    restarted = {"boot_id": "another-server-boot", "at_ns": 20_000 * MS}
    for later in (CRASHED, uncounted(CRASHED)):
        looks = (make_look(uncounted(CRASHED)), make_look(later, **restarted))
        assert after(case, *looks).cut_class == "os"


def test_what_an_earlier_look_shows_counts_within_its_boot(case: Case) -> None:
    """The verify of now has the clock of a server that restarted since."""
    bare = replace(case, armed=uncounted(RUN), server_boot_id="another-server-boot", now_ns=20_000 * MS)
    assert after(bare, now=uncounted(CRASHED)).cut_class == "none"
    seen = make_look(uncounted(CRASHED))
    assert after(bare, seen, now=uncounted(CRASHED)).cut_class == "os"
    assert after(bare, seen, now=uncounted(CRASHED), attested="pulled the plug").cut_class == "power"
    told = replace(seen, attested="pulled the plug")
    assert after(bare, told, now=uncounted(CRASHED)).cut_class == "power"


def test_a_later_look_may_have_the_better_clock(case: Case) -> None:
    """The first one had that of a server that began with this boot."""
    seen = make_look(uncounted(CRASHED), boot_id="another-server-boot", at_ns=20_000 * MS)
    bare = replace(case, armed=uncounted(RUN))
    assert after(bare, seen, now=uncounted(LATER)).cut_class == "none"
    for now in (CRASHED, LATER):
        again = make_look(uncounted(CRASHED))
        assert after(bare, seen, again, now=uncounted(now)).cut_class == "os"


def paths(*numbers: int, boot: str = "boot-1", count: int = 3) -> Facts:
    """A drive on as many paths, by the numbers of their attachment."""
    drives = (
        drive(name=f"sd{at}", serial="S1", wwid="naa.5", diskseq=number, unsafe_shutdowns=count)
        for at, number in enumerate(numbers)
    )
    return facts(boot=boot, uptime_s=30, drives=tuple(drives))


def test_a_drive_on_two_paths_answers_on_either(case: Case) -> None:
    """A drive on two paths was attached again only if no path is unchanged."""
    armed = replace(case, armed=paths(5, 6), statistics=None)
    of_another = make_look(paths(5, 6), run=OTHER)  # its target may be on other drives too
    assert not drive_answered(replace(armed, looks=(of_another,)))
    for found, answered in ((paths(5, 6), True), (paths(6), True), (paths(7, 6), True), (paths(7, 8), False)):
        assert drive_answered(replace(armed, looks=(make_look(found),))) == answered


def test_a_path_that_is_gone_is_no_event(case: Case) -> None:
    """Both were there when the first verify looked, and the drive has not lost power since."""
    armed = replace(case, armed=replace(paths(5, 6), drives=uncounted(paths(5, 6)).drives), statistics=None)
    first = make_look(uncounted(paths(1, 2, boot="boot-2")))
    for left in ((1,), (2,)):
        now = uncounted(paths(*left, boot="boot-2"))
        assert after(armed, first, now=now, attested="pulled the plug").cut_class == "power"


@pytest.mark.parametrize("serial", ["", "DOCK"])
def test_drives_that_look_alike_may_be_attached_one_after_the_other(case: Case, serial: str) -> None:
    """Without serials, or with one for all of them."""

    def mirror(*numbers: int) -> Facts:
        drives = (
            drive(name=f"sd{at}", serial=serial, diskseq=number, unsafe_shutdowns=None)
            for at, number in enumerate(numbers)
        )
        return facts(drives=tuple(drives))

    armed = replace(case, armed=mirror(1, 2), statistics=None)
    one = make_look(mirror(3, 2), attested="pulled both")
    assert after(armed, one, now=mirror(3, 4), attested="pulled both").cut_class == "power"


OTHER = "00000000000000aa"  # another run


def test_an_attestation_for_another_run_is_not_this_ones(case: Case) -> None:
    """It is about that run's cut. It shows that this run's operator was asked in time."""
    bare = replace(case, armed=uncounted(RUN))
    seen = make_look(uncounted(CRASHED), run=OTHER, attested="pulled the plug")
    assert after(bare, seen, now=uncounted(LATER)).cut_class == "os"
    assert after(bare, seen, now=uncounted(LATER), attested="pulled the plug").cut_class == "power"
    own = make_look(uncounted(CRASHED), attested="sysrq", cut_class="os")
    for looks in ((seen, own), (own, seen)):
        assert after(bare, *looks, now=uncounted(LATER), attested="pulled the plug").cut_class == "os"


HERE = facts(drives=(drive(diskseq=9, unsafe_shutdowns=3), drive(serial="S2", name="sdb", diskseq=10)))


@pytest.mark.parametrize(
    ("run", "kept", "found", "expected"),
    [
        ("own", (), RUN, True),
        ("own", (), facts(drives=()), True),
        (OTHER, (), RUN, True),
        (OTHER, (), HERE, True),
        (OTHER, (), facts(drives=HERE.drives[1:]), False),
        (OTHER, (), facts(boot="boot-2", drives=HERE.drives[1:]), False),
        ("own", (), facts(boot="boot-9", machine="another", drives=(drive(serial="loop:image"),)), False),
        (OTHER, (RUN,), CRASHED, True),
        ("own", (CRASHED,), CRASHED, False),
        ("own", (uncounted(CRASHED),), CRASHED, True),
        ("own", (CRASHED,), LATER, False),
        ("own", (RUN, CRASHED), replace(CRASHED, host=replace(CRASHED.host, machine_id="")), True),
    ],
    ids=[
        "in its boot",
        "in its boot, no drive was found",
        "another run's, of its drive",
        "another run's, of its drive too",
        "another run's, of another drive",
        "another run's, of another drive, in a later boot",
        "an image of the drive on another machine",
        "something has happened since the one before",
        "nothing more is known",
        "the counters are known now",
        "more has happened",
        "in a container, in that boot",
    ],
)
def test_a_look_is_kept_if_it_tells_of_the_first_event(
    case: Case, run: str, kept: tuple[Facts, ...], found: Facts, *, expected: bool
) -> None:
    """Others would take the room of those that do."""
    assert case.armed is not None
    look = make_look(found, run=case.run if run == "own" else run)
    armed = replace(RUN, host=case.armed.host)
    assert is_to_be_kept(case.run, armed, case.statistics, [*map(make_look, kept)], look) == expected


@pytest.mark.parametrize(
    ("verified", "armed", "expected"),
    [
        (RUN, RUN, True),
        (HERE, RUN, True),
        (RUN, HERE, False),
        (RUN, CRASHED, False),
        (RUN, facts(drives=(drive(diskseq=11, unsafe_shutdowns=3),)), False),
        (facts(drives=(drive(diskseq=9, unsafe_shutdowns=4),)), RUN, False),
    ],
    ids=[
        "on one drive",
        "on one of its drives",
        "on a drive more",
        "in another boot",
        "attached anew between them",
        "power lost between them",
    ],
)
def test_what_was_attested_for_a_run_counts_for_one_with_the_same_cut(
    verified: Facts, armed: Facts, *, expected: bool
) -> None:
    """An attestation counts for another run only if both runs have the same drives and nothing happened
    between them."""
    look = make_look(LATER, run=OTHER, attested="pulled the plug", cut_class="power")
    told = as_of_another_run(look, verified, armed)
    assert told == (look if expected else replace(look, attested="", cut_class=None))


def test_a_path_of_a_drive_that_was_attached_anew_may_come_and_go(case: Case) -> None:
    """A path of a multipath drive that comes or goes is not a second event."""
    bare = [
        replace(one, drives=uncounted(one).drives)
        for one in (paths(5, 6), paths(7, 8), paths(9, 8), paths(7, 9))
    ]
    armed, seen, *later = bare
    for now in (seen, *later):
        cut = after(replace(case, armed=armed, statistics=None), make_look(seen), now=now, attested="pulled")
        assert (cut.cut_class, cut.contradictions) == ("power", ())


def test_a_reset_that_one_clock_tells_ends_the_run(case: Case) -> None:
    """Another server, with another clock, heard the first verify after it."""
    reset = Event(at_ns=LAST_NS + MS, wall="", kind="rst", text=RESET)
    told = replace(case, events=(*case.events, reset), now_ns=LAST_NS + 3_600_000 * MS)
    assert outlived(told, CRASHED)
    other_clock = make_look(CRASHED, boot_id="another-server-boot", at_ns=100_000_000 * MS)
    assert outlived(replace(told, looks=(other_clock,)), CRASHED)
    assert not outlived(replace(told, looks=(other_clock,)), LATER)
