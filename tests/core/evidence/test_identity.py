"""The target of a run is known by its superblock or its hardware, never by its name."""

from __future__ import annotations

import dataclasses

import pytest

from durability.evidence.identity import identify
from durability.formats.case import PastVerdict
from durability.formats.facts import Facts
from tests.core.evidence.memory_target import MakePlan, make_case, small
from tests.sample_facts import drive, facts


def test_a_superblock_of_the_run_is_enough(make_plan: MakePlan) -> None:
    """One copy proves the target, whatever path and machine it is found on."""
    plan = small(make_plan)
    elsewhere = facts(machine="other", path="/other/copy", uuid="")
    identity = identify(make_case(plan, (10,)), elsewhere, (None, plan))
    assert (identity.by, identity.drive_changed, identity.superseded_by) == ("superblock", False, "")


def test_without_a_superblock_the_hardware_must_match(make_plan: MakePlan) -> None:
    """Same serials, same file system, same path in it: what is missing there is missing from the target."""
    identity = identify(make_case(small(make_plan), (10,)), facts(boot="boot-2"), (None, None))
    assert (identity.by, identity.reasons) == ("hardware", ())


@pytest.mark.parametrize(
    ("now", "word"),
    [
        (None, "reached"),
        (facts(drives=(drive(serial="S2"),)), "S2"),
        (facts(drives=()), "none"),
        (facts(uuid="uuid-2"), "mounted"),
        (facts(path_in_file_system="other"), "other"),
    ],
)
def test_other_hardware_is_not_the_target(make_plan: MakePlan, now: Facts | None, word: str) -> None:
    """A wrong disk or a file system that is not mounted is told as such, for exit 5."""
    identity = identify(make_case(small(make_plan), (10,)), now, (None, None))
    assert identity.by is None
    assert word in " ".join(identity.reasons)


def test_a_partition_is_known_by_its_offset(make_plan: MakePlan) -> None:
    """The partition beside it lies on the same drive, and is another target."""
    armed = facts(kind="device", file_system=None)
    case = make_case(small(make_plan, target_kind="device"), (10,), armed=armed)
    assert identify(case, armed, (None, None)).by == "hardware"
    beside = dataclasses.replace(armed, offset_bytes=1 << 30)
    assert identify(case, beside, (None, None)).by is None


def test_a_drive_without_a_serial_is_known_only_by_its_superblock(make_plan: MakePlan) -> None:
    """Two nameless drives cannot be told apart."""
    nameless = facts(drives=(drive(serial=""),))
    case = make_case(small(make_plan), (10,), armed=nameless)
    assert identify(case, nameless, (None, None)).by is None


def test_a_file_system_without_a_uuid_cannot_be_recognised(make_plan: MakePlan) -> None:
    """An empty UUID matches nothing, not even itself."""
    armed = facts(uuid="")
    assert identify(make_case(small(make_plan), (10,), armed=armed), armed, (None, None)).by is None


def test_a_superblock_of_a_later_run_supersedes(make_plan: MakePlan) -> None:
    """Another run's superblock on the right hardware is newer, unless the server knows it as older."""
    plan = small(make_plan)
    other = dataclasses.replace(plan, run=0xBEEF)
    case = make_case(plan, (10,))
    assert identify(case, facts(), (other, other)).superseded_by == f"{other.run:016x}"
    older = PastVerdict(
        run=f"{other.run:016x}", verdict="durable", cut_class="power", at_risk_ms1000=1, wall=""
    )
    assert identify(make_case(plan, (10,), series=(older,)), facts(), (other, other)).superseded_by == ""
    known = make_case(plan, (10,), superseded_by="00000000000000aa")
    assert identify(known, facts(), (plan, plan)).superseded_by == "00000000000000aa"


def test_a_copy_on_another_drive_is_told(make_plan: MakePlan) -> None:
    """A superblock travels with a copy; the drive that was cut does not."""
    plan = small(make_plan)
    for drives in ((drive(serial="S2"),), (drive(serial=""),), ()):
        copy = facts(drives=drives)
        assert identify(make_case(plan, (10,)), copy, (plan, plan)).drive_changed
