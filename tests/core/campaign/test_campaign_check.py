"""The check of a campaign: how long it holds, what it compares, and that it shows each switch to be its
machine's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.campaign.cycles import draw_cycle
from durability.campaign.log_entries import (
    Checked,
    CycleBegan,
    CycleEnded,
    DriveReported,
    Ended,
    NotBack,
    PauseAsked,
    Paused,
    PowerAsked,
)
from durability.campaign.steps import Ask, Note, WaitFor
from durability.campaign.tasks import Condition
from tests.core.campaign.campaign_world import World, log_of, settings_of, until
from tests.core.campaign.told_campaign import (
    B_ANEW,
    ToldCampaign,
    condition,
    part,
    told_settings,
)

UNNUMBERED = replace(condition(), diskseq=None)


@pytest.mark.parametrize(
    ("wall", "kind"), [("2027-01-30T23:00:00Z", "run"), ("2027-02-01T00:00:00Z", "examine")]
)
def test_check_holds_for_thirty_days(wall: str, kind: str) -> None:
    """After that, switches and drives may have been moved."""
    told = ToldCampaign()
    told.begin(told_settings(), check_only=True)
    told.checked()
    told.note()
    told.wall = wall
    told.begin(told_settings())
    told.note()
    assert told.task().kind == kind


def test_check_that_is_asked_for_again_is_made_again() -> None:
    """A check that is requested again is made again, also for a machine that joined again, while the last
    check still holds."""
    told = ToldCampaign()
    told.begin(told_settings(), check_only=True)
    told.checked()
    told.note()
    told.begin(told_settings(), check_only=True)
    told.note()
    assert told.task().kind == "examine"
    assert told.say(boot="boot-3", speaker=B_ANEW).kind == "examine"


def cut_once(found: Condition, *, subject: str = "machine") -> ToldCampaign:
    """A check of one drive, which was found so before its power went."""
    told = ToldCampaign()
    told.begin(told_settings(subject=subject), check_only=True)
    told.note()
    told.say()
    told.say(part("done", found=found))
    told.cut()
    return told


@pytest.mark.parametrize(
    ("subject", "before", "after", "note"),
    [
        ("machine", condition(unsafe=None), condition(unsafe=None), True),
        ("machine", condition(unsafe=None), condition(unsafe=6), True),
        ("drive", condition(emulated=True), condition(unsafe=6, diskseq=2, emulated=True), True),
        ("machine", condition(unsafe=5), condition(unsafe=6), False),
    ],
)
def test_check_says_that_no_counter_was_compared(
    subject: str, before: Condition, after: Condition, note: bool
) -> None:
    """It passes, and does not look as if the drive had confirmed the cut."""
    told = cut_once(before, subject=subject)
    boot = "boot-2" if subject == "machine" else "boot-1"
    told.say(boot=boot)
    told.say(part("done", found=after), boot=boot)
    found = told.note()
    assert isinstance(found, Checked) and found.problems == ()
    assert [bool("no count of unsafe shutdowns" in one) for one in found.notes] == ([True] if note else [])


@pytest.mark.parametrize(
    ("boot", "before", "after", "problem"),
    [
        ("boot-1", condition(), condition(unsafe=6, diskseq=2), ""),
        ("boot-1", condition(), condition(unsafe=6), "it was not attached anew"),
        ("boot-2", condition(), condition(unsafe=6, diskseq=2), "machine b was restarted by the cut"),
        # A kernel before 5.15 does not number drives.
        ("boot-1", UNNUMBERED, replace(UNNUMBERED, unsafe_shutdowns=6), ""),
        ("boot-1", replace(UNNUMBERED, unsafe_shutdowns=None), None, "nothing shows that it lost its power"),
        (
            "boot-1",
            replace(UNNUMBERED, unsafe_shutdowns=None, power_cycles=3),
            replace(UNNUMBERED, unsafe_shutdowns=None, power_cycles=4),
            "",
        ),
    ],
)
def test_check_of_a_drive_that_is_cut_alone_shows_that_it_was(
    boot: str, before: Condition, after: Condition | None, problem: str
) -> None:
    """Else its switch may be the outlet of the whole machine, or that of something else."""
    told = cut_once(before, subject="drive")
    told.say(boot=boot)
    told.say(part("done", found=after or before), boot=boot)
    found = told.note()
    assert isinstance(found, Checked)
    assert [problem in one for one in found.problems] == ([True] if problem else [])


def test_check_of_several_drives_says_that_they_have_no_numbers() -> None:
    """The agent says neither numbers nor counters of a mirror, so nothing speaks against its cut."""
    mirror = replace(UNNUMBERED, model="m + m", serial="S0 + S1", firmware="1 + 1", unsafe_shutdowns=None)
    told = cut_once(mirror, subject="drive")
    told.say()
    told.say(part("done", found=mirror))
    found = told.note()
    assert isinstance(found, Checked) and found.problems == ()
    assert any("lies on several drives: only the switch says" in one for one in found.notes)


def test_check_says_that_it_does_not_tell_switches_apart() -> None:
    """The switches of one machine go off together. The check notes that it does not show that each one feeds
    the machine."""
    settings = told_settings()
    other = replace(settings.power[0], options={**settings.power[0].options, "off": "off of another"})
    told = ToldCampaign()
    told.begin(replace(settings, power=(settings.power[0], other)), check_only=True)
    (note,) = told.checked().notes
    assert note.startswith("machine b has 2 switches, and the check does not show that each of them feeds it")


@pytest.mark.parametrize(
    ("subject", "virtualisation", "emulated", "unsafe", "problem"),
    [
        ("machine", "kvm", False, None, "machine b is a virtual machine"),
        ("machine", "kvm", False, 5, ""),  # a drive that was handed through, which counts itself
        ("machine", "kvm", True, 5, "machine b is a virtual machine"),
        ("machine", "none", True, 5, "drive d0 is emulated"),
        ("machine", "none", False, None, ""),
        ("drive", "kvm", True, None, ""),
    ],
)
def test_check_fails_if_no_cut_could_be_of_the_class(
    subject: str, virtualisation: str, emulated: bool, unsafe: int | None, problem: str
) -> None:
    """Each verdict on a guest that was switched off has class `vm`, so no cycle would count, and nothing is
    cut for it. A drive that loses its power alone, or counts unsafe shutdowns, may be handed through."""
    told = ToldCampaign()
    told.begin(told_settings(subject=subject), check_only=True)
    told.note()
    told.say(virtualisation=virtualisation)
    told.say(part("done", found=condition(emulated=emulated, unsafe=unsafe)), virtualisation=virtualisation)
    told.answers_to_check()
    if not problem:
        assert told.steps() == [Ask(0, "off")]
        return
    found = told.note()
    remedy = 'a cut of it shows nothing about the loss of power: set cut_class = "vm"'
    assert isinstance(found, Checked) and found.problems == (f"{problem}; {remedy}",)


def test_check_fails_if_a_counter_is_gone_after_the_cut() -> None:
    """It was there before, so something else answers now, or reads worse."""
    told = cut_once(condition(unsafe=5))
    told.say(boot="boot-2")
    told.say(part("done", found=condition(unsafe=None)), boot="boot-2")
    found = told.note()
    assert isinstance(found, Checked)
    assert found.problems == ("drive d0: it no longer reports its count of unsafe shutdowns",)


@pytest.mark.parametrize(("serial", "passes"), [("S2 + S1", True), ("S1 + S3", False)])
def test_check_knows_drives_in_another_order(serial: str, passes: bool) -> None:
    """After the cut the members of a mirror may have each other's names; another member is another drive."""
    told = cut_once(condition("S1 + S2", unsafe=None))
    told.say(boot="boot-2")
    told.say(part("done", found=condition(serial, unsafe=None)), boot="boot-2")
    found = told.note()
    assert isinstance(found, Checked) and (found.problems == ()) == passes, found


@pytest.mark.parametrize(("risen", "passes"), [(0, False), (1, True), (2, True), (3, False)])
def test_check_counts_a_second_switching_on(risen: int, passes: bool) -> None:
    """A machine that did not boot is switched off and on once more: its drive lost its power twice."""
    told = cut_once(condition(unsafe=5))
    assert isinstance(told.note(later_s=121, silent_s=121), NotBack)
    told.cut()
    told.say(boot="boot-2")
    told.say(part("done", found=condition(unsafe=5 + risen)), boot="boot-2")
    found = told.note()
    assert isinstance(found, Checked) and (found.problems == ()) == passes, found


def test_second_switching_on_is_of_the_missing_machine_alone() -> None:
    """The other machine verifies meanwhile: its switch is not asked, and its drive's counter may rise only
    once."""
    told = ToldCampaign()
    told.begin(told_settings(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc")), check_only=True)
    told.note()
    for machine, drive in (("b", "d0"), ("c", "d1")):
        told.say(machine=machine)
        told.say(part("done", drive=drive, found=condition(drive)), machine=machine)
    told.cut()
    told.say(boot="boot-2")
    missing = told.note(later_s=121, silent_s=121)
    assert missing == NotBack(machine="c")
    assert {step.switch for step in told.steps() if isinstance(step, Ask)} == {1}
    told.cut(1)
    told.say(boot="boot-2", machine="c")
    told.say(part("done", found=condition("d0", unsafe=7)), boot="boot-2")
    told.say(part("done", drive="d1", found=condition("d1", unsafe=7)), boot="boot-2", machine="c")
    found = told.note()
    assert isinstance(found, Checked)
    assert found.problems == (
        "drive d0: its count of unsafe shutdowns rose by 2 in 1 cut: it loses its power in other ways too",
    )


def test_swapped_outlets_do_not_pass() -> None:
    """The outlet of b has c, and that of c has b: b goes on while its own is off, and nothing more is cut."""
    world = World(settings_of(drives=("b", "c"), own=True))
    first, second = world.switches
    first.go, second.go = second.go, first.go
    assert world.finish() == "the check failed"
    (checked,) = [one for one in log_of(world) if isinstance(one, Checked)]
    assert checked.problems == (
        "the switch said that it was off, and machine b kept running without a restart",
    )
    assert [operation for operation, _ in second.asked] == ["check"]
    assert world.machines["b"].boots == 1


def test_second_machine_is_cut_once_the_first_was_examined_again() -> None:
    """Each is without power once, and the check passes."""
    world = World(settings_of(drives=("b", "c"), own=True))
    until(world, Checked)
    seen = [
        f"{one.operation} {one.switch}" if isinstance(one, PowerAsked) else one.status.drive
        for one in log_of(world)
        if (isinstance(one, PowerAsked) and one.operation in ("on", "off"))
        or (isinstance(one, DriveReported) and one.status.state == "done")
    ]
    assert sorted(seen[:2]) == ["d0", "d1"]
    assert seen[2:] == ["off 0", "on 0", "d0", "off 1", "on 1", "d1"]
    assert world.server.state.checked == log_of(world)[-1] and not world.server.state.checked.problems


def test_machines_with_a_common_switch_are_cut_together() -> None:
    """Two machines behind one outlet, and a third with its own."""
    world = World(settings_of(drives=("b", "c", "d"), own=True, group=True))
    until(world, Checked)
    assert [sum(operation == "off" for operation, _ in switch.asked) for switch in world.switches] == [1, 1]
    assert [machine.boots for machine in world.machines.values()] == [2, 2, 2]


def test_drives_that_are_cut_alone_are_cut_together() -> None:
    """Their machines run on, so nothing tells one switch from another."""
    world = World(settings_of(drives=("b", "c"), own=True, subject="drive"))
    until(world, Checked)
    asked = [one.switch for one in log_of(world) if isinstance(one, PowerAsked) and one.operation == "off"]
    assert asked == [0, 1]


def both_examined() -> ToldCampaign:
    """A check of two machines with a drive and a switch each, before any power goes."""
    told = ToldCampaign()
    told.begin(told_settings(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc")), check_only=True)
    told.note()
    for machine, drive in (("b", "d0"), ("c", "d1")):
        told.say(machine=machine)
        told.say(part("done", drive=drive, found=condition(drive)), machine=machine)
    return told


def first_is_back(unsafe: int) -> ToldCampaign:
    """A check of two machines, of which the first was cut and is examined again, with this count."""
    told = both_examined()
    told.cut(0)
    told.say(boot="boot-2")
    told.say(part("done", found=condition("d0", unsafe=unsafe)), boot="boot-2")
    return told


def test_second_machine_is_not_cut_after_a_problem_of_the_first() -> None:
    """Its drive kept its power."""
    told = first_is_back(6)
    assert told.steps(later_s=50, silent={"b": 0.0, "c": 50.0}) == [WaitFor(1.0)]
    assert told.steps() == [Ask(1, "off")]
    found = first_is_back(5).note()
    assert isinstance(found, Checked) and "stayed at 5" in found.problems[0]


@pytest.mark.parametrize("silent_s", [0.0, 200.0])
def test_machine_whose_turn_comes_is_heard_meanwhile(silent_s: float) -> None:
    """It is not missing, since it was not cut; if it falls silent, people must look before its power goes."""
    told = both_examined()
    told.answers_to_check()
    assert told.steps(later_s=30, silent={"b": 0.0, "c": 30.0}) == [WaitFor(1.0)]
    assert told.steps(later_s=30) == [Ask(0, "off")]
    told.cut(0)
    told.say(boot="boot-2")
    (step,) = told.steps_after_looks(later_s=200, silent={"b": 0.0, "c": silent_s})
    paused = step.happening if isinstance(step, Note) else None
    assert isinstance(paused, Paused) == bool(silent_s)


def test_pause_between_two_cuts_of_the_check() -> None:
    """The second machine keeps its power, and the check will be made again."""
    told = first_is_back(6)
    told.add(PauseAsked(stop=False))
    assert isinstance(told.note(), CycleEnded)
    assert isinstance(told.note(), Paused)
    assert told.state.checked is None


def checked_by(software: str, holds: str, *, check_only: bool = True) -> ToldCampaign:
    """A campaign that agents of this release have checked; its drive held that."""
    told = ToldCampaign(software=software)
    told.begin(told_settings(), check_only=check_only)
    assert told.checked(found=replace(condition(), holds=holds)).problems == ()
    return told


@pytest.mark.parametrize(
    ("software", "holds", "counts"),
    [
        ("durability 0.1.0", "ext4", False),
        ("durability 0.1.0", "gpt", False),
        ("durability 0.1.0", "", True),
        ("durability 0.2.0", "ext4=5cb2fc9b-0001-4000-8000-000000000001", True),
    ],
)
def test_check_by_an_agent_that_said_less_is_made_again(software: str, holds: str, counts: bool) -> None:
    """Agents of release 0.1 named only the kind of what a drive holds: compared with which one it is, the
    drive would be refused at its first run."""
    told = checked_by(software, holds)
    assert isinstance(told.note(), Ended)
    assert told.state.is_checked(told.state.plan, told.wall) == counts
    told.begin(told_settings())
    told.software = "durability 0.2.0"
    begins = told.note()
    assert isinstance(begins, CycleBegan) and (begins.cycle == 1) == counts
    if not counts:
        assert told.task().drives[0].examined is None
        told.add(Checked(problems=()))
        told.note()
        following = told.note()
        assert isinstance(following, CycleBegan) and following.cycle == 1


def test_check_of_a_campaign_that_has_cut_stays() -> None:
    """It began with the earlier release, and its drives carry what it made; agents of that release that check
    for a campaign just then run it too."""
    told = checked_by("durability 0.1.0", "ext4")
    told.note()
    told.begin(told_settings())
    told.add(draw_cycle(told.state.plan, 1, ("d0",)))
    assert told.task().drives[0].examined is not None
    told = checked_by("durability 0.1.0", "ext4", check_only=False)
    begins = told.note()
    assert isinstance(begins, CycleBegan) and begins.cycle == 1
