"""What is to be asked of the power switches of a cycle, and when they have failed.

Each is asked until it answers as is wanted, with a rest between two requests. The switches of a machine that
has fallen silent are asked for their state. Refuses to say what follows from an answer: `next_steps` does.
"""

from __future__ import annotations

from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycle_state import CycleState, Switch
from durability.campaign.log_entries import Operation, PowerAnswered
from durability.campaign.server_time import HEARD_WITHIN_S, ServerTime
from durability.campaign.steps import Ask, Step, WaitFor
from durability.units import counted

ATTEMPTS = 3  # of a request to a switch, before it counts as failed
ON_WITHIN_S = 900.0  # for which a switch that fails is asked to go on: a plug without its network comes back
CONFIRM_WITHIN_S = 180.0  # a switch says that it did what it was asked
_AGAIN_S = 2.0  # between two requests to a switch that failed, or has not done it yet
_AGAIN_MAX_S = 60.0  # the same, if it is to go on and fails again and again
_JUST_S = 3.0  # a machine that has power was heard so lately: its agent asks every second
_S = 1_000_000_000


def may_be_off(state: CampaignState, cycle: CycleState, moment: ServerTime) -> bool:
    """Whether a machine was not heard just now, and not long enough ago for its switches to be asked."""
    if state.plan.subject != "machine" or cycle.stays_off:
        return False
    just_s = min(_JUST_S, (moment.now_ns - moment.began_ns) / _S)
    return any(just_s <= moment.silent_s.get(one, just_s) < HEARD_WITHIN_S for one in cycle.machines)


def switches_of_silent(cycle: CycleState, moment: ServerTime, silent_s: float) -> list[int]:
    """The switches of the machines that were not heard for so long."""
    silent = [one for one in cycle.machines if moment.silent_s.get(one, 0.0) >= silent_s]
    return sorted({number for machine in silent for number in cycle.switches_of(machine)})


def last_look(cycle: CycleState, moment: ServerTime, number: int, within_s: float) -> PowerAnswered | None:
    """What a switch said of its state since its machine fell silent, None for not yet."""
    answer = answer_of(cycle.switches[number], moment)
    if answer is None or answer.operation != "status" or (moment.now_ns - answer.ended_ns) / _S >= within_s:
        return None
    return answer


def ask_to_look(cycle: CycleState, moment: ServerTime, number: int, within_s: float) -> list[Step]:
    """The request for a switch's state; nothing once it said it, or failed often enough."""
    look = last_look(cycle, moment, number, within_s)
    if look is None:
        return [Ask(number, "status")]
    if look.outcome != "failed" or cycle.switches[number].attempts >= ATTEMPTS:
        return []
    left_s = _AGAIN_S - (moment.now_ns - look.ended_ns) / _S
    return [WaitFor(left_s)] if left_s > 0 else [Ask(number, "status")]


def ask_all(cycle: CycleState, operation: Operation) -> list[Step]:
    """A request to each switch of the cut."""
    return [Ask(number, operation) for number in cycle.involved]


def answer_of(switch: Switch, moment: ServerTime) -> PowerAnswered | None:
    """What it answered last, unless that was in an earlier boot of the server: its times would not compare,
    and much may have happened since."""
    return switch.answered if switch.boot_id == moment.boot_id else None


def ask_until(cycle: CycleState, moment: ServerTime, wanted: Operation, *, look: bool = False) -> list[Step]:
    """The next request to each switch that has not answered as is `wanted`. `look`: for its state only."""
    steps: list[Step] = []
    for number in cycle.taking_part if wanted == "check" else cycle.involved:
        switch = cycle.switches[number]
        answer = answer_of(switch, moment)
        if answer is not None and _settles(switch, answer, wanted):
            continue
        rest_s = _rest_between_s(switch, answer, wanted) if answer is not None else 0.0
        left_s = rest_s - (moment.now_ns - answer.ended_ns) / _S if answer is not None else 0.0
        if answer is not None and answer.outcome != "done" and left_s > 0:
            steps.append(WaitFor(min(left_s, rest_s)))
        else:
            steps.append(Ask(number, "status" if look or switch.requested else wanted))
    return steps


def _rest_between_s(switch: Switch, answer: PowerAnswered, wanted: Operation) -> float:
    """For how long a switch is left alone after its answer."""
    if wanted != "on" or answer.outcome != "failed":
        return _AGAIN_S
    return float(min(_AGAIN_S * 2.0 ** min(switch.attempts - 1, 9), _AGAIN_MAX_S))


def _settles(switch: Switch, answer: PowerAnswered, wanted: Operation) -> bool:
    """Whether nothing more is to be asked of a switch: it is on or off as wanted, or its check is over."""
    if wanted == "check":
        return answer.outcome != "failed" or switch.attempts >= ATTEMPTS
    return answer.outcome == wanted


def power_failure(state: CampaignState, cycle: CycleState, moment: ServerTime, wanted: Operation) -> str:
    """Why a switch cannot be believed to be as `wanted` any more; "" while it can. Switching on is not given
    up while one of the switches may still do it: its machine must not stay off for another's failure. Nor
    before `ON_WITHIN_S`: a machine without power waits for people else."""
    within_s = ON_WITHIN_S if wanted == "on" else 0.0
    failures: list[str] = []
    for number in cycle.involved:
        switch, power = cycle.switches[number], state.plan.power[number]
        answer = answer_of(switch, moment)
        if answer is not None and answer.outcome == wanted:
            continue
        failed = answer is not None and answer.outcome == "failed"
        if answer is not None and failed and switch.attempts >= ATTEMPTS:
            if moment.watched_s(cycle.since) < within_s:
                return ""
            failures.append(f"{power.name} failed {counted(switch.attempts, 'time')}: {answer.text}")
        elif answer is not None and not (failed and wanted == "on") and _is_late(switch, answer, moment):
            failures.append(f"{power.name} did not say within {CONFIRM_WITHIN_S:.0f} s that it is {wanted}")
        elif wanted == "on":
            return ""
    return failures[0] if failures else ""


def _is_late(switch: Switch, answer: PowerAnswered, moment: ServerTime) -> bool:
    """Whether a switch that said that it did it was asked for its state so long after that, and this is its
    answer. A slow switch and a server that was away are no failure: only time in which it is asked counts."""
    done_ns = switch.done_ns if switch.done_boot_id == moment.boot_id else 0
    asked_for_s = (answer.began_ns - max(done_ns, moment.began_ns)) / _S
    return answer.operation == "status" and asked_for_s >= CONFIRM_WITHIN_S
