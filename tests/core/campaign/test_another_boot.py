"""Times of a campaign whose server goes on in another boot: after a restart of its machine, or on another one
that adopted the campaign. The clock of a boot says nothing of how long ago an entry of another one was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from durability.campaign.cycle_state import CycleState
from durability.campaign.delays import WORK_WITHIN_S
from durability.campaign.log_entries import Abandoned, Paused, PowerAnswered, PowerAsked, PowerWentOff
from durability.campaign.next_steps import next_steps
from durability.campaign.server_time import ServerTime
from durability.campaign.steps import Ask, Note, Step, WaitFor
from tests.core.campaign.told_campaign import RUN, S, ToldCampaign, begun, cut_under_load, part

UP_S = 30 * 86_400  # for which the other machine has been running
HEARD_S = 10.5  # for which a server conducts a campaign before it knows that a machine is heard


def adopted(told: ToldCampaign, *, for_s: float, read_s: float | None = None) -> list[Step]:
    """What is to be done next on a machine that conducts the campaign for so long. `read_s`: for how long it
    has known when the phase began, None for as long."""
    now_ns = int((UP_S + for_s) * S)
    moment = ServerTime(
        now_ns=now_ns,
        boot_id="another",
        silent_s={"b": 0.5},
        began_ns=UP_S * S,
        read_ns=None if read_s is None else now_ns - int(read_s * S),
    )
    return next_steps(told.state, moment)


def cycle_of(told: ToldCampaign) -> CycleState:
    """The cycle under way."""
    assert told.state.cycle is not None
    return told.state.cycle


def at_load() -> ToldCampaign:
    """A run is armed, and the time to the cut goes on."""
    told = begun()
    told.say(part("armed", run=RUN))
    told.note()
    return told


def without_power() -> ToldCampaign:
    """The power is off, and the time without it goes on."""
    told = at_load()
    told.add(
        PowerAsked(switch=0, operation="off"),
        PowerAnswered(switch=0, operation="off", outcome="off", text="", began_ns=1, ended_ns=2),
        PowerWentOff(asked_ns=1, confirmed_ns=2, runs=(RUN,)),
    )
    return told


@pytest.mark.parametrize(("make", "operation"), [(at_load, "off"), (without_power, "on")])
def test_a_drawn_time_does_not_end_since_another_machine_goes_on(
    make: Callable[[], ToldCampaign], operation: str
) -> None:
    """It has all of its time there, however long that machine has been running."""
    told = make()
    due_s = cycle_of(told).due_s
    (wait,) = adopted(told, for_s=1.0)
    assert isinstance(wait, WaitFor) and wait.seconds == pytest.approx(due_s - 1)
    assert not any(isinstance(step, Ask) for step in adopted(told, for_s=due_s - 0.5))
    (asked,) = adopted(told, for_s=due_s + HEARD_S)
    assert isinstance(asked, Ask) and asked.operation == operation


def test_drives_at_work_have_their_time_on_another_machine() -> None:
    """After another server takes over, a starting run or a verify is given up only after two days without a
    result."""
    ready, verified = begun(), cut_under_load()
    verified.say(boot="boot-2")
    for told in (ready, verified):
        assert not any(isinstance(step, Note) for step in adopted(told, for_s=60.0))
        assert not any(isinstance(step, Note) for step in adopted(told, for_s=WORK_WITHIN_S - 1))
    (given_up,) = adopted(ready, for_s=WORK_WITHIN_S)
    (paused,) = adopted(verified, for_s=WORK_WITHIN_S)
    assert isinstance(paused, Note) and isinstance(paused.happening, Paused)
    assert isinstance(given_up, Note) and isinstance(given_up.happening, Abandoned | Paused)


def test_a_phase_is_as_old_as_the_knowledge_of_it() -> None:
    """The age of another server's phase counts from when this server read the phase, not from when this
    server began to conduct the campaign."""
    told = cut_under_load()
    told.say(boot="boot-2")
    assert not any(isinstance(step, Note) for step in adopted(told, for_s=2 * WORK_WITHIN_S, read_s=5.0))
    (paused,) = adopted(told, for_s=5.0, read_s=WORK_WITHIN_S)
    assert isinstance(paused, Note) and isinstance(paused.happening, Paused)
