"""A campaign is played once, then again for each entry of its log: what dies at that entry costs no count.

Nothing is drawn here. `test_campaign_histories` draws what else may happen, and in which order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from durability.campaign.cycles import arm_of
from durability.campaign.log_entries import Entry, Happening, PowerAnswered, PowerAsked
from durability.campaign.results import results
from durability.campaign.tasks import DriveTask
from durability_lab.campaign_rig.memory_server import ServerDiedError
from durability_lab.campaign_rig.played_switch import Manner
from tests.core.campaign.campaign_world import World, log_of, settings_of, words

pytestmark = pytest.mark.slow

CUTS = 3
SETTINGS = settings_of(drives=("b", "c"), own=True, arms=("load", "again", "shutdown"), cuts=CUTS)
KILLS_LEAST = {"server": 100, "agent": 60, "controller": 20}
Disturb = Callable[[World, Happening], None]


class DisturbedWorld(World):
    """A campaign in which `disturb` is called with the entry `number`, once that is in the log."""

    def __init__(self, number: int, disturb: Disturb) -> None:
        self._number, self._disturb = number, disturb
        super().__init__(SETTINGS)

    def _added(self, entry: Entry) -> None:
        super()._added(entry)
        match entry.happening:
            case PowerAnswered(switch=switch):  # a new controller is there
                self.switches[switch].manner = "obeys"
            case _:
                pass
        if entry.number == self._number:
            self._disturb(self, entry.happening)

    def verified(self, part: DriveTask) -> int:
        """The judge sees that a run was stopped before a cut."""
        code, truth = super().verified(part), self.runs[part.run]
        if truth.moment == "load" and not truth.lost_power:
            said = replace(self.verdicts[part.run], verdict="inconclusive", reasons=("session-stopped",))
            self.verdicts[part.run] = said
        return code


def played(number: int, disturb: Disturb) -> World:
    """The whole campaign, disturbed at an entry."""
    world = DisturbedWorld(number, disturb)
    assert world.finish() == "complete"
    return world


def undisturbed() -> list[Happening]:
    """The log of the campaign in which nothing dies."""
    world = World(SETTINGS)
    assert world.finish() == "complete"
    assert words(world) == [["durable", "durable"]] * CUTS
    return log_of(world)


def require_counted_once(world: World, number: int) -> None:
    """Each cycle ended once and gave each drive one result: its own run, or why it does not count."""
    cycles = [ended.cycle for ended in world.account.ended]
    assert cycles == list(range(len(cycles))), f"entry {number}: {world.story()}"
    runs = [one.run for ended in world.account.ended for one in ended.drives if one.word == "durable"]
    assert len(runs) == len(set(runs)), f"entry {number}: a run counts twice: {runs}"
    tested = {run: truth.lost_power or truth.moment == "shutdown" for run, truth in world.runs.items()}
    assert all(tested[run] for run in runs), f"entry {number}: a run that was not cut counts: {runs}"
    assert all(result.tally.bound is not None for result in results(world.server.state)), f"entry {number}"
    for drive in SETTINGS.drives:
        counted = world.account.words[drive.name, "durable"]
        left_out = world.account.words[drive.name, "nothing"]
        assert counted >= CUTS and counted + left_out == len(cycles) - 1, (
            f"entry {number}, {drive.name}: {counted} counted, {left_out} left out\n{world.story()}"
        )


def test_server_killed_at_every_step_leaves_no_cut_under_load_out() -> None:
    """It is killed between the entry of a step and the step itself, and started again a second later. Only a
    machine that shut down meanwhile could not say so: whether its end was clean is not known."""

    def kill(world: World, _: Happening) -> None:
        world.kill_server()
        raise ServerDiedError

    # From the entry after the first, with which the campaign begins, to the one before the last.
    kills = range(2, len(undisturbed()))
    for number in kills:
        world = played(number, kill)
        require_counted_once(world, number)
        for ended in world.account.ended:
            at_shutdown = arm_of(SETTINGS, ended.cycle).moment == "shutdown"
            left_out = [one for one in ended.drives if one.word == "nothing"]
            assert at_shutdown or not left_out, f"entry {number}, cycle {ended.cycle}: {left_out}"
            assert len(left_out) <= 1, f"entry {number}, cycle {ended.cycle}: {left_out}"
    assert len(kills) >= KILLS_LEAST["server"]


def test_agent_killed_at_every_step_leaves_at_most_its_own_cycle_out() -> None:
    """It ends with its runs and starts again a second later: a cycle without a run counts for no drive of its
    machine, and another cycle takes its place."""
    kills = 0

    def kill(world: World, _: Happening) -> None:
        nonlocal kills
        kills += world.machines["b"].is_up
        world.agents_killed = True
        world.machines["b"].kill_agent()

    for number in range(2, len(undisturbed())):
        world = played(number, kill)
        require_counted_once(world, number)
        left_out = [one for ended in world.account.ended for one in ended.drives if one.word == "nothing"]
        assert len(left_out) <= len(SETTINGS.drives), f"entry {number}: {left_out}"
        assert {one.cause for one in left_out} <= {"agent", "not-armed"}, f"entry {number}: {left_out}"
    assert kills >= KILLS_LEAST["agent"]


@pytest.mark.parametrize(
    ("manner", "operations"), [("fails", ("check", "status", "off", "on")), ("denies", ("off", "on"))]
)
def test_power_controller_killed_at_every_request_leaves_no_cycle_out(
    manner: Manner, operations: tuple[str, ...]
) -> None:
    """Its request has failed, whether the switch was not reached or had obeyed. A new controller repeats
    it."""

    def fail(world: World, happening: Happening) -> None:
        assert isinstance(happening, PowerAsked)
        world.switches[happening.switch].manner = manner

    asked = [
        number
        for number, happening in enumerate(undisturbed(), 1)
        if isinstance(happening, PowerAsked) and happening.operation in operations
    ]
    for number in asked:
        world = played(number, fail)
        require_counted_once(world, number)
        failed = [one for one in log_of(world) if isinstance(one, PowerAnswered) and one.outcome == "failed"]
        assert len(failed) == 1, f"entry {number}: {failed}"
        assert words(world) == [["durable", "durable"]] * CUTS, f"entry {number}: {words(world)}"
    assert len(asked) >= KILLS_LEAST["controller"]
