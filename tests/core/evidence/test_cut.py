"""A cut is shown by counters and boots, or by the operator's word where the facts allow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from durability.evidence.cut import CutClass, assess, at_least, outlived
from durability.formats.case import Case, Event, HeldUp, PowerOff, TargetFailure
from durability.formats.facts import Drive, Facts
from durability.formats.plan import Plan
from tests.core.evidence.memory_target import LAST_NS, MS, MakePlan, after_power_loss, make_case, small
from tests.sample_facts import drive, facts

NEXT_BOOT = facts(boot="boot-2", uptime_s=30)
DEAD = TargetFailure(at_ns=LAST_NS, drive="dead", text="")


@pytest.fixture(name="case", scope="module")
def fixture_case(make_plan: MakePlan) -> Case:
    """A run whose last frame came 120 s before verify."""
    return make_case(small(make_plan), (100,))


def shown(case: Case, now: Facts, attested: str | None = None, cut_class: CutClass | None = None) -> CutClass:
    """The class that stands."""
    return assess(case, now, attested=attested, cut_class=cut_class).cut_class


def test_classes_are_ordered() -> None:
    """Power is more than vm, vm more than os, os more than none."""
    assert at_least("power", "vm") and at_least("vm", "os") and at_least("os", "os")
    assert not at_least("none", "os") and not at_least("vm", "power")


def test_risen_counters_of_every_drive_show_power(case: Case) -> None:
    """The drives themselves say that power was lost; the proof names serial and counts."""
    cut = assess(case, after_power_loss(), attested=None, cut_class=None)
    assert cut.cut_class == "power"
    assert "S1 3 → 4" in cut.proof[0]


def test_a_counter_that_rose_during_the_run_shows_no_cut_at_its_end(case: Case) -> None:
    """The drive's supply flickered, and the run went on; the power loss that ends it must be counted as well.
    A client that does not read again says nothing of that."""
    assert case.statistics is not None
    for read, expected in (((4,), "os"), ((3,), "power"), ((None,), "power"), ((), "power")):
        told = replace(case, statistics=replace(case.statistics, unsafe_shutdowns=read))
        assert shown(told, after_power_loss()) == expected
    flickered = replace(case, statistics=replace(case.statistics, unsafe_shutdowns=(4,)))
    cut = assess(flickered, after_power_loss(), attested="pulled the plug", cut_class=None)
    assert cut.cut_class == "os" and "stayed at 4" in cut.contradictions[0]


def test_a_counter_that_went_back_contradicts_nobody(case: Case) -> None:
    """It was set to zero, by new firmware for instance: the cut may have been before or after that."""
    back = facts(boot="boot-2", uptime_s=30, drives=(drive(unsafe_shutdowns=1),))
    assert shown(case, back) == "os"
    cut = assess(case, back, attested="pulled the plug", cut_class=None)
    assert (cut.cut_class, cut.contradictions) == ("power", ())


def test_one_count_is_not_that_of_two_drives(make_plan: MakePlan) -> None:
    """Two disks of one model in a dock show its serial, and nothing else tells them apart but their counts:
    the cut of one is not that of both. Two paths to one drive show one count."""
    for second, expected in ((5, "os"), (10, "power")):
        other = drive(name="sdb", diskseq=2, unsafe_shutdowns=second)
        after = replace(other, unsafe_shutdowns=11 if second == 10 else second)
        armed = facts(drives=(drive(diskseq=1, unsafe_shutdowns=10), other))
        now = (drive(diskseq=1, unsafe_shutdowns=11), after)
        case = make_case(small(make_plan), (100,), armed=armed)
        assert shown(case, facts(boot="boot-2", uptime_s=30, drives=now)) == expected


def test_counts_that_differ_contradict_no_cut_that_is_shown_otherwise(make_plan: MakePlan) -> None:
    """Differing counts of two disks with one serial do not contradict a cut, if both were enumerated again or
    are on another machine."""
    before, counted = (
        (
            drive(diskseq=seen, unsafe_shutdowns=one),
            drive(name="sdb", diskseq=seen + 1, unsafe_shutdowns=other),
        )
        for seen, one, other in ((1, 10, 5), (5, 11, 6))
    )
    case = make_case(small(make_plan), (100,), armed=facts(drives=before))
    assert shown(case, facts(drives=counted), "pulled the dock") == "power"
    moved = facts(boot="boot-9", machine="other", drives=counted)
    assert shown(case, moved, "pulled the dock") == "power"


def test_a_path_whose_counter_was_not_read_again_is_a_path(make_plan: MakePlan) -> None:
    """The drive counted a power loss during the run, and one of its two paths told."""
    paths = (drive(wwid="eui.1", unsafe_shutdowns=10), drive(name="sdb", wwid="eui.1", unsafe_shutdowns=10))
    case = make_case(small(make_plan), (100,), armed=facts(drives=paths))
    assert case.statistics is not None
    told = replace(case, statistics=replace(case.statistics, unsafe_shutdowns=(11, None)))
    now = tuple(replace(one, unsafe_shutdowns=12) for one in paths)
    assert shown(told, facts(boot="boot-2", uptime_s=30, drives=now)) == "power"


def test_one_drive_whose_counter_stayed_spoils_the_proof(make_plan: MakePlan) -> None:
    """In a mirror both drives must have lost power."""
    armed = facts(drives=(drive(), drive(name="sdb", serial="S2")))
    case = make_case(small(make_plan), (100,), armed=armed)
    now = facts(
        boot="boot-2", uptime_s=30, drives=(drive(unsafe_shutdowns=4), drive(name="sdb", serial="S2"))
    )
    assert shown(case, now) == "os"


def test_a_counter_of_a_drive_whose_serial_any_may_have_shows_nothing(make_plan: MakePlan) -> None:
    """The other enclosure of the model, under the same name, may have counted more power losses."""
    zeros = [drive(serial="000000000000", unsafe_shutdowns=count) for count in (3, 4)]
    case = make_case(small(make_plan), (100,), armed=facts(drives=(zeros[0],)))
    assert shown(case, facts(boot="boot-2", uptime_s=30, drives=(zeros[1],))) == "os"


@pytest.mark.parametrize(
    "changes", [{"emulated": True}, {"unsafe_shutdowns": None}, {"serial": ""}, {"serial": "S2"}]
)
def test_a_counter_that_proves_nothing_is_ignored(case: Case, changes: dict[str, object]) -> None:
    """Emulated, missing, nameless or another drive's counters show no power loss."""
    now = facts(boot="boot-2", uptime_s=30, drives=(drive(**{"unsafe_shutdowns": 4, **changes}),))
    assert shown(case, now) == "os"


@pytest.mark.parametrize(
    "changes",
    [
        {"session_end": "target-error"},
        {"session_end": "target-error", "target_error": DEAD},
        {"target_error": DEAD},
    ],
)
def test_another_boot_after_an_error_of_the_target_shows_nothing(
    make_plan: MakePlan, changes: dict[str, object]
) -> None:
    """The machine may have been restarted cleanly; the operator's word and the counters still count."""
    case = make_case(small(make_plan), (100,), **changes)
    cut = assess(case, NEXT_BOOT, attested=None, cut_class=None)
    assert (cut.cut_class, cut.proof) == ("none", ())
    assert "restarted cleanly" in cut.unproven
    assert shown(case, NEXT_BOOT, "forced it off", "os") == "os"
    assert shown(case, NEXT_BOOT, "forced it off", "vm") == "vm"
    counted = assess(case, after_power_loss(), attested=None, cut_class=None)
    assert (counted.cut_class, counted.unproven) == ("power", "")


def test_another_boot_shows_the_death_of_the_system(case: Case) -> None:
    """Same machine, other boot, up for less time than the server has waited."""
    assert shown(case, NEXT_BOOT) == "os"


@pytest.mark.parametrize(
    "now",
    [
        facts(),
        facts(boot="boot-2", uptime_s=121),
        facts(boot="boot-2", uptime_s=30, machine="other"),
        facts(boot="", uptime_s=30),
    ],
)
def test_what_does_not_show_the_death_of_the_system(case: Case, now: Facts) -> None:
    """The same boot, a boot that is older than the last frame, another machine, or no boot id."""
    assert shown(case, now) == "none"


def test_a_restarted_server_still_bounds_the_time_from_below(make_plan: MakePlan) -> None:
    """Its own uptime is less than the time since a frame that came before its boot."""
    plan = small(make_plan)
    case = make_case(plan, (100,), server_boot_id="later", last_receipt_ns=LAST_NS * 100, now_ns=60_000 * MS)
    assert shown(case, NEXT_BOOT) == "os"
    assert shown(case, facts(boot="boot-2", uptime_s=61)) == "none"


def test_a_server_on_the_machine_that_restarted_bounds_nothing(make_plan: MakePlan) -> None:
    """One uptime is read twice, by the server and by `verify`: which is read first must not decide."""
    plan = small(make_plan)
    for now_ns in (29_999 * MS, 30_001 * MS):
        case = make_case(plan, (100,), server_boot_id="boot-2", last_receipt_ns=LAST_NS * 100, now_ns=now_ns)
        assert shown(case, facts(boot="boot-2", uptime_s=30)) == "none"


def test_no_time_is_told_by_the_clock_of_a_server_that_did_not_hear_the_run(make_plan: MakePlan) -> None:
    """Another server took over: its uptime says nothing of when the last message came."""
    case = make_case(small(make_plan), (100,), server_boot_id="another machine's", now_ns=10**15)
    (proof,) = assess(case, NEXT_BOOT, attested=None, cut_class=None).proof
    assert "at least" not in proof
    assert proof.endswith("1000000 s ago, or to a server on another machine")


def test_the_operators_word_raises_the_class(case: Case) -> None:
    """After the death of the system, an attested cut is power, or what the operator says."""
    bare = facts(boot="boot-2", uptime_s=30, drives=(drive(unsafe_shutdowns=None),))
    cut = assess(case, bare, attested="pulled the plug", cut_class=None)
    assert (cut.cut_class, cut.attested) == ("power", "pulled the plug")
    assert "pulled the plug" in cut.proof[-1]
    assert shown(case, bare, "sysrq b", "os") == "os"
    assert shown(case, bare, "virsh destroy", "vm") == "vm"


def test_the_operators_word_alone_is_contradicted(case: Case) -> None:
    """Without a new boot or a newly attached drive, an attestation is contradicted and shows no cut."""
    cut = assess(case, facts(), attested="pulled the plug", cut_class=None)
    assert cut.cut_class == "none"
    assert cut.contradictions


@pytest.mark.parametrize(
    ("armed", "now"),
    [
        (facts(machine=""), facts(machine="", boot="boot-2", uptime_s=30)),
        (facts(), facts(boot="", uptime_s=30)),
        (facts(machine="", boot=""), facts(machine="", boot="", uptime_s=30)),
    ],
)
def test_a_system_without_ids_does_not_say_that_nothing_restarted(
    make_plan: MakePlan, armed: Facts, now: Facts
) -> None:
    """No restart can be shown there. An attestation is not believed, but the counters are."""
    case = make_case(small(make_plan), (100,), armed=armed)
    cut = assess(case, now, attested="pulled the plug", cut_class=None)
    (text,) = cut.contradictions
    assert cut.cut_class == "none"
    assert "has no machine id or no boot id: no restart can be shown" in text
    counted = replace(now, drives=(drive(unsafe_shutdowns=4),))
    assert shown(case, counted, "pulled the plug") == "power"


def test_a_log_that_was_read_too_soon_does_not_say_that_nothing_restarted(make_plan: MakePlan) -> None:
    """An export from ten seconds after the silence cannot order this boot and the run's last message."""
    case = make_case(small(make_plan), (100,), now_ns=LAST_NS + 10_000 * MS)
    cut = assess(case, NEXT_BOOT, attested="pulled the plug", cut_class=None)
    (text,) = cut.contradictions
    assert cut.cut_class == "none"
    assert "has not restarted" not in text
    assert "does not show whether this boot began after the run's last message" in text
    (text,) = assess(case, facts(), attested="pulled the plug", cut_class=None).contradictions
    assert "has not restarted" in text


def test_a_counter_that_stayed_contradicts_attested_power(case: Case) -> None:
    """A drive that counts its power losses did not count this one; what is proven stands."""
    cut = assess(case, NEXT_BOOT, attested="pulled the plug", cut_class=None)
    assert cut.cut_class == "os"
    assert "S1" in cut.contradictions[0]
    assert not assess(case, NEXT_BOOT, attested="reset button", cut_class="os").contradictions


def test_a_dead_guest_is_of_class_vm(case: Case) -> None:
    """An attested cut of a virtual machine is the guest's, unless the operator claims the host's power."""
    guest = facts(
        boot="boot-2", uptime_s=30, virtualisation="kvm", drives=(drive(emulated=True, unsafe_shutdowns=9),)
    )
    assert shown(case, guest) == "os"
    assert shown(case, guest, "forced off") == "vm"
    assert shown(case, guest, "pulled the host's plug", "power") == "power"


def test_a_machine_with_a_drive_of_a_hypervisor_is_a_guest(make_plan: MakePlan) -> None:
    """A machine with an emulated drive counts as a guest, whatever its system reports, for attestations and
    for a power controller's log."""
    vda = facts(boot="boot-2", uptime_s=30, drives=(drive(name="vda", emulated=True, unsafe_shutdowns=None),))
    plan = small(make_plan)
    assert shown(make_case(plan, (100,)), vda, "forced off") == "vm"
    assert shown(make_case(plan, (100,)), vda, "pulled the host's plug", "power") == "power"
    assert shown(make_case(plan, (100,), power_offs=switched_off()), vda) == "vm"


def test_a_drive_alone_may_be_cut(make_plan: MakePlan) -> None:
    """If the system kept running and the drive was enumerated again, an attestation makes this a power cut of
    the drive."""
    armed = facts(virtualisation="kvm", drives=(drive(unsafe_shutdowns=None),))
    case = make_case(small(make_plan), (100,), armed=armed)
    anew = facts(virtualisation="kvm", drives=(drive(diskseq=10, unsafe_shutdowns=None),))
    assert shown(case, anew) == "none"
    assert shown(case, anew, "killed the drive") == "power"
    assert shown(case, armed, "killed the drive") == "none"


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("newest", "expected"), [((3, 9), "none"), ((8, 9), "power")])
def test_of_drives_with_one_serial_each_must_be_new(
    make_plan: MakePlan, newest: tuple[int, ...], order: int, expected: str
) -> None:
    """Two paths to one drive have one serial: the order in which they are listed decides nothing."""

    def paths(numbers: tuple[int, ...]) -> tuple[Drive, ...]:
        return tuple(drive(serial="a", diskseq=one, unsafe_shutdowns=None) for one in numbers)

    case = make_case(small(make_plan), (100,), armed=facts(drives=paths((3, 4))))
    assert shown(case, facts(drives=paths(newest[::order])), "pulled both paths") == expected


def test_the_counter_of_one_drive_is_not_that_of_another_with_its_serial(make_plan: MakePlan) -> None:
    """If two disks in a dock share a serial, both counters must rise for a power cut."""
    pair = (drive(model="A", unsafe_shutdowns=5), drive(name="sdb", model="B", unsafe_shutdowns=3))
    case = make_case(small(make_plan), (100,), armed=facts(drives=pair))
    for one, other, expected in ((6, 3, "os"), (5, 4, "os"), (6, 4, "power")):
        now = (drive(model="A", unsafe_shutdowns=one), drive(name="sdb", model="B", unsafe_shutdowns=other))
        assert shown(case, facts(boot="boot-2", uptime_s=30, drives=now)) == expected
    assert shown(case, facts(boot="boot-2", uptime_s=30, drives=now[:1])) == "os"


def test_every_drive_must_be_enumerated_anew(make_plan: MakePlan) -> None:
    """One drive of two that stayed attached, or is gone, leaves the cut unshown."""
    plain = [drive(name=f"sd{serial}", serial=serial, unsafe_shutdowns=None) for serial in "ab"]
    case = make_case(small(make_plan), (100,), armed=facts(drives=tuple(plain)))
    fresh = drive(name="sda", serial="a", diskseq=10, unsafe_shutdowns=None)
    assert shown(case, facts(drives=(fresh, plain[1])), "cut") == "none"
    assert shown(case, facts(drives=(fresh,)), "cut") == "none"


def test_a_drive_without_a_serial_is_not_found_on_another_machine(make_plan: MakePlan) -> None:
    """An image that was copied to another guest has the same name and size there, and some `diskseq`."""
    for second in ({"serial": "S2"}, {"serial": ""}):
        sdb = drive(name="sdb", **second)
        nameless = drive(serial="", diskseq=3)
        case = make_case(small(make_plan), (100,), armed=facts(drives=(sdb, nameless)))
        moved = facts(boot="boot-9", machine="other", drives=(sdb, drive(serial="", diskseq=7)))
        cut = assess(case, moved, attested="pulled the plug", cut_class=None)
        assert (cut.cut_class, cut.proof) == ("none", ())
        assert "not all drives were reattached" in cut.contradictions[0]


def test_a_drive_that_moved_to_another_machine_was_detached(case: Case) -> None:
    """Known by its serial, it may be judged there; its cut still needs a counter or a word."""
    moved = facts(boot="boot-9", machine="other", drives=(drive(unsafe_shutdowns=None),))
    assert shown(case, moved) == "none"
    assert shown(case, moved, "pulled the drive") == "power"


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [("kvm", "none", "vm"), ("kvm", "kvm", "vm"), ("none", "kvm", "vm"), ("none", "none", "power")],
)
def test_a_guests_drive_that_is_read_elsewhere_is_of_class_vm(
    make_plan: MakePlan, then: str, now: str, expected: CutClass
) -> None:
    """A passed-through drive has its own serial on the host and on other guests, whose hypervisor may have
    kept its power all the time. The operator may say more; a controller's log may not."""
    bare = (drive(unsafe_shutdowns=None),)
    armed = facts(virtualisation=then, drives=bare)
    weeks_s = 40 * 86_400
    there = facts(boot="boot-9", machine="other", uptime_s=weeks_s, virtualisation=now, drives=bare)
    case = make_case(small(make_plan), (100,), armed=armed)
    assert shown(case, there, "forced the guest off") == expected
    assert shown(case, there, "pulled the host's plug", "power") == "power"
    for subject in ("machine", "drive"):
        off = make_case(small(make_plan), (100,), armed=armed, power_offs=switched_off(subject=subject))
        assert shown(off, there) == expected


def test_what_was_a_guest_at_arming_is_one(make_plan: MakePlan) -> None:
    """Its disk may be started outside the hypervisor next, with the same machine id."""
    bare = (drive(unsafe_shutdowns=None),)
    case = make_case(small(make_plan), (100,), armed=facts(virtualisation="kvm", drives=bare))
    assert shown(case, facts(boot="boot-2", uptime_s=30, drives=bare), "forced the guest off") == "vm"


@pytest.mark.parametrize("attested", [None, "pulled the plug"])
def test_no_facts_show_no_cut(make_plan: MakePlan, case: Case, attested: str | None) -> None:
    """A run that was never armed, or a target without facts, has nothing to compare."""
    never = make_case(small(make_plan), (0,), armed=None)
    for cut in (
        assess(never, facts(), attested=attested, cut_class=None),
        assess(case, None, attested=attested, cut_class=None),
    ):
        assert cut.cut_class == "none"
        assert bool(cut.contradictions) == bool(attested)


def switched_off(**changes: object) -> tuple[PowerOff, ...]:
    """A controller's log of a machine that was switched off as it fell silent."""
    fields: dict[str, object] = {
        "asked_ns": LAST_NS - 10 * MS,
        "confirmed_ns": LAST_NS + 2000 * MS,
        "boot_id": "server-boot",
        "subject": "machine",
        "cut_class": "power",
        "text": "campaign ssd, cycle 3: fence_ipmilan 192.0.2.9 switched off",
    }
    return (PowerOff(**{**fields, **changes}),)  # type: ignore[arg-type]


def test_a_controllers_log_attests_a_cut(make_plan: MakePlan) -> None:
    """It stands for the class that the campaign file states; the operator's own words come before it."""
    bare = facts(boot="boot-2", uptime_s=30, drives=(drive(unsafe_shutdowns=None),))
    case = make_case(small(make_plan), (100,), power_offs=switched_off())
    cut = assess(case, bare, attested=None, cut_class=None)
    assert (cut.cut_class, cut.attested) == (
        "power",
        "campaign ssd, cycle 3: fence_ipmilan 192.0.2.9 switched off",
    )
    assert cut.proof[-1].startswith("the power controller's log shows: campaign ssd")
    lesser = make_case(small(make_plan), (100,), power_offs=switched_off(cut_class="vm"))
    assert shown(lesser, bare) == "vm"
    assert assess(lesser, bare, attested="pulled the plug", cut_class=None).attested == "pulled the plug"


def test_a_controller_may_cut_a_run_before_it_is_armed(make_plan: MakePlan) -> None:
    """A cut in the prefill shows no cut, and contradicts nothing; an operator who says so is mistaken."""
    case = make_case(small(make_plan), (0,), armed=None, power_offs=switched_off())
    cut = assess(case, NEXT_BOOT, attested=None, cut_class=None)
    assert (cut.cut_class, cut.contradictions) == ("none", ())
    assert assess(case, NEXT_BOOT, attested="pulled the plug", cut_class=None).contradictions


def test_a_guest_that_a_controller_switched_off_is_a_guest(make_plan: MakePlan) -> None:
    """A guest that a power controller switched off proves only class vm, whatever the campaign file states:
    its host may have kept its power."""
    guest = facts(boot="boot-2", uptime_s=30, virtualisation="kvm", drives=(drive(unsafe_shutdowns=None),))
    assert shown(make_case(small(make_plan), (100,), power_offs=switched_off()), guest) == "vm"


def test_a_drive_that_was_cut_alone_under_a_guest_is_what_the_file_says(make_plan: MakePlan) -> None:
    """If the guest kept running and its drive was enumerated again, the cut has the class in the campaign
    file. If the guest died, this shows no cut of its drive."""
    alone = make_case(small(make_plan), (100,), power_offs=switched_off(subject="drive"))
    back = (drive(unsafe_shutdowns=None, diskseq=10),)
    assert shown(alone, facts(virtualisation="kvm", drives=back)) == "power"
    lesser = make_case(small(make_plan), (100,), power_offs=switched_off(subject="drive", cut_class="vm"))
    assert shown(lesser, facts(virtualisation="kvm", drives=back)) == "vm"
    died = facts(boot="boot-2", uptime_s=30, virtualisation="kvm", drives=back)
    assert shown(alone, died) == "os"
    assert shown(alone, facts(virtualisation="kvm")) == "none"


def test_the_end_of_the_system_is_no_cut_of_a_drive(make_plan: MakePlan) -> None:
    """The switch of a drive does not cut the system. Each drive must have been enumerated again or have
    counted a power loss."""
    plain = tuple(drive(name=f"sd{serial}", serial=serial, unsafe_shutdowns=None) for serial in "ab")
    mirror = make_case(
        small(make_plan), (100,), armed=facts(drives=plain), power_offs=switched_off(subject="drive")
    )
    restarted = assess(mirror, facts(boot="boot-2", uptime_s=30, drives=plain), attested=None, cut_class=None)
    assert restarted.cut_class == "os" and "not all drives were reattached" in restarted.contradictions[0]
    back = tuple(replace(one, diskseq=10) for one in plain)
    assert shown(mirror, facts(drives=back)) == "power"
    assert shown(mirror, facts(drives=(back[0], plain[1]))) == "none"
    alone = make_case(small(make_plan), (100,), power_offs=switched_off(subject="drive"))
    assert assess(alone, after_power_loss(), attested=None, cut_class=None).contradictions == ()


@pytest.mark.parametrize("now", [facts(), NEXT_BOOT])
def test_what_the_facts_contradict_is_no_cut_whatever_the_controller_logged(
    make_plan: MakePlan, now: Facts
) -> None:
    """The same boot, or a counter that did not rise: a switch that says success may have done nothing."""
    case = make_case(small(make_plan), (100,), power_offs=switched_off())
    cut = assess(case, now, attested=None, cut_class=None)
    assert cut.contradictions and cut.cut_class in ("none", "os")


@pytest.mark.parametrize(("off_ms", "contradicted"), [(-2900, False), (-3001, True)])
def test_a_client_that_was_heard_without_power_has_another_switch(
    make_plan: MakePlan, off_ms: int, *, contradicted: bool
) -> None:
    """A client heard for longer after the switch-off than a power supply can last contradicts the cut: its
    switch is another machine's."""
    bare = facts(boot="boot-2", uptime_s=30, drives=(drive(unsafe_shutdowns=None),))
    early = {"asked_ns": LAST_NS + (off_ms - 400) * MS, "confirmed_ns": LAST_NS + off_ms * MS}
    case = make_case(small(make_plan), (100,), power_offs=switched_off(**early))
    cut = assess(case, bare, attested=None, cut_class=None)
    assert cut.cut_class == ("os" if contradicted else "power")
    assert any("the client was heard 300" in one for one in cut.contradictions) is contradicted


def test_the_client_of_a_drive_that_was_cut_alone_may_be_heard(make_plan: MakePlan) -> None:
    """Its machine lives on, for however long."""
    off = switched_off(confirmed_ns=LAST_NS - 500 * MS, subject="drive")
    case = make_case(small(make_plan), (100,), power_offs=off, last_receipt_ns=LAST_NS + 30_000 * MS)
    assert shown(case, facts(drives=(drive(unsafe_shutdowns=None, diskseq=10),))) == "power"


@pytest.mark.parametrize(
    ("off_ms", "end", "contradicted"),
    [
        (-2900, {}, False),
        (-3100, {}, True),
        (-3100, {"rtt_max_ns": 200 * MS}, False),
        (-100, {"session_end": "target-error", "target_error": DEAD}, False),
        (-100, {"session_end": "target-error", "target_error": replace(DEAD, drive="answered")}, True),
        (10, {"session_end": "target-error", "target_error": replace(DEAD, drive="answered")}, False),
        (-100, {"session_end": "target-error", "target_error": replace(DEAD, drive="silent")}, False),
    ],
)
def test_a_drive_that_went_on_without_power_has_another_switch(
    make_plan: MakePlan, off_ms: int, end: dict[str, Any], *, contradicted: bool
) -> None:
    """A drive that acknowledges for longer than a power supply can last, or answers after an error,
    contradicts the switch's cut, even if it was enumerated again later."""
    back = facts(drives=(drive(unsafe_shutdowns=None, diskseq=10),))
    off = switched_off(
        asked_ns=LAST_NS + (off_ms - 50) * MS, confirmed_ns=LAST_NS + off_ms * MS, subject="drive"
    )
    cut = assess(
        make_case(small(make_plan), (100,), power_offs=off, **end), back, attested=None, cut_class=None
    )
    assert cut.cut_class == ("none" if contradicted else "power")
    assert any("a drive answered" in one for one in cut.contradictions) is contradicted


def test_an_acknowledgement_that_was_held_up_contradicts_no_switch(make_plan: MakePlan) -> None:
    """The network failed before the drive was switched off, and brought its acknowledgements afterwards."""
    back = facts(drives=(drive(unsafe_shutdowns=None, diskseq=10),))
    off = switched_off(asked_ns=LAST_NS - 5050 * MS, confirmed_ns=LAST_NS - 5000 * MS, subject="drive")
    held_up = (HeldUp(from_ns=LAST_NS - 6000 * MS, until_ns=LAST_NS, frontiers=(100,)),)
    assert shown(make_case(small(make_plan), (100,), power_offs=off), back) == "none"
    assert shown(make_case(small(make_plan), (100,), power_offs=off, held_up=held_up), back) == "power"


Made = Callable[[Plan], Case]


def _reset(text: str, *, after_s: float, later: tuple[Event, ...] = (), **changes: Any) -> Made:
    """The case of a client that fell silent, and whose connection ended so long after its last frame."""

    def make(plan: Plan) -> Case:
        at_ns = LAST_NS + int(after_s * 1e9)
        ended = Event(at_ns=at_ns, wall="", kind="rst", text=text)
        return make_case(plan, (100,), events=(ended, *later), **changes)

    return make


_BY_PEER = "the connection was reset: [Errno 104] Connection reset by peer"
_AGAIN = Event(at_ns=LAST_NS + 4 * 10**9, wall="", kind="session", text="from b7")


def test_a_reset_in_the_boot_of_the_run_says_nothing_of_a_drive_that_was_cut_alone(
    make_plan: MakePlan,
) -> None:
    """Its system lives, and resets the connection of a client that waited for the drive."""
    case = _reset(_BY_PEER, after_s=3)(small(make_plan))
    there, back = (facts(drives=(drive(unsafe_shutdowns=None, diskseq=number),)) for number in (3, 10))
    assert outlived(replace(case, armed=there), there)
    assert not outlived(replace(case, armed=there), back)


@pytest.mark.parametrize(
    ("made", "boot", "uptime_s", "expected"),
    [
        (_reset(_BY_PEER, after_s=3), "boot-2", 30, True),
        (_reset(_BY_PEER, after_s=3), "boot-1", 1000, True),
        (_reset(_BY_PEER, after_s=3), "boot-2", 119, False),
        (_reset(_BY_PEER, after_s=3), "boot-2", 108, False),
        (_reset(_BY_PEER, after_s=3, server_boot_id="another"), "boot-2", 30, False),
        (_reset(_BY_PEER, after_s=3, later=(_AGAIN,)), "boot-2", 30, False),
        (_reset("the connection was closed here", after_s=3), "boot-2", 30, False),
        (_reset(_BY_PEER, after_s=3, session_end="stop"), "boot-2", 30, False),
    ],
)
def test_a_reset_before_the_machine_started_again_is_the_old_systems(
    make_plan: MakePlan, made: Made, boot: str, uptime_s: float, *, expected: bool
) -> None:
    """A reset shows that the system outlived its client. It shows nothing if the present boot may have sent
    it, or if it came on an earlier connection or by another clock."""
    case = made(small(make_plan))
    assert outlived(case, facts(boot=boot, uptime_s=uptime_s)) is expected
    another = outlived(case, facts(boot=boot, uptime_s=uptime_s, machine="another"))
    assert another is (expected and boot == "boot-1")  # a container of the same kernel


def test_another_machine_id_in_the_same_boot_is_a_container(case: Case) -> None:
    """Another machine id in the same boot is a container, so an attested cut needs drives that were
    enumerated again. Without boot ids, two machine ids are two machines."""
    container = facts(machine="container", drives=(drive(unsafe_shutdowns=None),))
    assert shown(case, container, "pulled the plug") == "none"
    anew = facts(machine="container", drives=(drive(unsafe_shutdowns=None, diskseq=10),))
    assert shown(case, anew, "pulled the plug") == "power"
    unknown = facts(machine="container", boot="", drives=(drive(unsafe_shutdowns=None),))
    assert shown(case, unknown, "pulled the plug") == "power"
