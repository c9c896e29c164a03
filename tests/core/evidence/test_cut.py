"""A cut is shown by counters and boots, or by the operator's word where the facts allow it."""

from __future__ import annotations

import pytest

from durability.evidence.cut import CutClass, assess, at_least
from durability.formats.case import Case, TargetError
from durability.formats.facts import Facts
from tests.core.evidence.memory_target import LAST_NS, MS, MakePlan, after_power_loss, make_case, small
from tests.sample_facts import drive, facts

NEXT_BOOT = facts(boot="boot-2", uptime_s=30)
DEAD = TargetError(at_ns=LAST_NS, drive="dead", text="")


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


def test_one_drive_whose_counter_stayed_spoils_the_proof(make_plan: MakePlan) -> None:
    """In a mirror both drives must have lost power."""
    armed = facts(drives=(drive(), drive(name="sdb", serial="S2")))
    case = make_case(small(make_plan), (100,), armed=armed)
    now = facts(
        boot="boot-2", uptime_s=30, drives=(drive(unsafe_shutdowns=4), drive(name="sdb", serial="S2"))
    )
    assert shown(case, now) == "os"


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
    """The machine may have been restarted in order; the operator's word and the counters still count."""
    case = make_case(small(make_plan), (100,), **changes)
    cut = assess(case, NEXT_BOOT, attested=None, cut_class=None)
    assert (cut.cut_class, cut.proof) == ("none", ())
    assert "restarted in order" in cut.unproven
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


def test_the_operators_word_raises_the_class(case: Case) -> None:
    """After the death of the system, an attested cut is power, or what the operator says."""
    bare = facts(boot="boot-2", uptime_s=30, drives=(drive(unsafe_shutdowns=None),))
    cut = assess(case, bare, attested="pulled the plug", cut_class=None)
    assert (cut.cut_class, cut.attested) == ("power", "pulled the plug")
    assert "pulled the plug" in cut.proof[-1]
    assert shown(case, bare, "sysrq b", "os") == "os"
    assert shown(case, bare, "virsh destroy", "vm") == "vm"


def test_the_operators_word_alone_is_contradicted(case: Case) -> None:
    """Without a new boot or a newly attached drive nothing was cut, whatever is attested."""
    cut = assess(case, facts(), attested="pulled the plug", cut_class=None)
    assert cut.cut_class == "none"
    assert cut.contradictions


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


def test_a_drive_alone_may_be_cut(make_plan: MakePlan) -> None:
    """The system lives on; the drive was enumerated anew, which an attestation may build on."""
    armed = facts(virtualisation="kvm", drives=(drive(unsafe_shutdowns=None),))
    case = make_case(small(make_plan), (100,), armed=armed)
    anew = facts(virtualisation="kvm", drives=(drive(diskseq=10, unsafe_shutdowns=None),))
    assert shown(case, anew) == "none"
    assert shown(case, anew, "killed the drive") == "power"
    assert shown(case, armed, "killed the drive") == "none"


def test_every_drive_must_be_enumerated_anew(make_plan: MakePlan) -> None:
    """One drive of two that stayed attached, or is gone, leaves the cut unshown."""
    plain = [drive(name=f"sd{serial}", serial=serial, unsafe_shutdowns=None) for serial in "ab"]
    case = make_case(small(make_plan), (100,), armed=facts(drives=tuple(plain)))
    fresh = drive(name="sda", serial="a", diskseq=10, unsafe_shutdowns=None)
    assert shown(case, facts(drives=(fresh, plain[1])), "cut") == "none"
    assert shown(case, facts(drives=(fresh,)), "cut") == "none"


def test_a_drive_that_moved_to_another_machine_was_detached(case: Case) -> None:
    """Known by its serial, it may be judged there; its cut still needs a counter or a word."""
    moved = facts(boot="boot-9", machine="other", drives=(drive(unsafe_shutdowns=None),))
    assert shown(case, moved) == "none"
    assert shown(case, moved, "pulled the drive") == "power"


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
