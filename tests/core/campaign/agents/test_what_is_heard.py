"""A machine adds to a campaign's log what its cycles need, and no more, whatever its agent says."""

from __future__ import annotations

import pytest

from durability.campaign.assignments import Speaker
from durability.campaign.delays import STARTS_MAX
from durability.campaign.log_entries import Ended, PauseAsked, Paused, Resumed
from durability.campaign.tasks import BOOT_ID_MAX, Status
from durability.errors import FormatError
from durability.formats.documents import from_value
from tests.core.campaign.told_campaign import RUN, ToldCampaign, begun, part


def over(*, paused: bool) -> ToldCampaign:
    """A campaign that was stopped or paused in its first cycle, which is over."""
    told = begun()
    told.add(PauseAsked(stop=not paused))
    told.note()
    told.ended()
    assert isinstance(told.note(), Paused if paused else Ended)
    return told


@pytest.mark.parametrize("paused", [True, False])
def test_log_without_a_cycle_stays_as_it_is(paused: bool) -> None:
    """Machines start again, others take their names, and reports come late: nothing of that is added, and the
    machine itself still gets its task."""
    told = over(paused=paused)
    before = told.state.number
    for boot in ("boot-7", "boot-8", "boot-8"):
        assert told.say(part("armed", run=RUN), boot=boot).kind == "release"
        told.say(boot=boot, speaker=Speaker(client="server", is_server=True))
    assert told.state.number == before


def test_machine_that_started_in_a_pause_is_seen_in_the_next_cycle() -> None:
    """Its run begins in its newest boot."""
    told = over(paused=True)
    told.say(boot="boot-7")
    told.add(Resumed())
    told.note()
    told.say(boot="boot-7")
    task = told.say(boot="boot-7")
    assert (task.kind, task.boot_id) == ("run", "boot-7")


def test_machine_that_starts_again_and_again_fills_no_log() -> None:
    """The campaign pauses for a machine that keeps restarting. Its further boots are not logged until the
    campaign is resumed."""
    told = begun()
    numbers = []
    for boot in range(100, 100 + 3 * STARTS_MAX):
        told.say(boot=f"boot-{boot}")
        numbers.append(told.state.number)
    assert len(set(numbers)) == STARTS_MAX  # and its first boot
    paused = told.note()
    assert isinstance(paused, Paused) and "has started" in paused.reason
    before = told.state.number
    told.say(boot="boot-200")
    assert told.state.number == before
    told.add(Resumed())
    assert told.say(boot="boot-200").boot_id == "boot-200"


@pytest.mark.parametrize(("length", "taken"), [(BOOT_ID_MAX, True), (BOOT_ID_MAX + 1, False)])
def test_boot_id_is_short(length: int, taken: bool) -> None:
    """The state of a campaign keeps that of each boot."""
    value = {
        "boot_id": "b" * length,
        "machine_id": "m",
        "uptime_ns": 1,
        "virtualisation": "none",
        "software": "",
        "task": 0,
        "drives": [],
    }
    if taken:
        assert from_value(Status, value).campaign == ""
    else:
        with pytest.raises(FormatError, match="boot_id"):
            from_value(Status, value)
