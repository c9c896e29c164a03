"""Requests to the power switches of a cycle, and the rules for when a switch has failed.

A switch is asked until it gives the wanted answer, with a rest between two requests. The switches of a silent
machine are asked for their state. `next_steps` decides what follows from an answer.
"""

from __future__ import annotations

from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycle_state import CycleState, Switch
from durability.campaign.log_entries import Operation, PowerAnswered
from durability.campaign.server_time import HEARD_WITHIN_S, ServerTime
from durability.campaign.steps import Ask, Step, WaitFor
from durability.units import counted

ATTEMPTS = 3  # requests to a switch that may fail before the switch counts as failed
# A failing switch is asked to go on for at least so long: a plug that lost its network comes back.
ON_WITHIN_S = 900.0
CONFIRM_WITHIN_S = 180.0  # time for a switch to confirm the state that was asked for
_AGAIN_S = 2.0  # rest after a failed request, or while the switch has not switched yet
_AGAIN_MAX_S = 60.0  # longest rest after repeated failures of a request to go on
_JUST_S = 3.0  # a machine heard so recently has power: its agent asks every second
_S = 1_000_000_000


def may_be_off(state: CampaignState, cycle: CycleState, moment: ServerTime) -> bool:
    """Whether a machine may be without power: it is silent, but not yet long enough to ask its switches."""
    if state.plan.subject != "machine" or cycle.stays_off:
        return False
    just_s = min(_JUST_S, (moment.now_ns - moment.began_ns) / _S)
    return any(just_s <= moment.silent_s.get(one, just_s) < HEARD_WITHIN_S for one in cycle.machines)


def switches_of_silent(cycle: CycleState, moment: ServerTime, silent_s: float) -> list[int]:
    """The switches of the machines that were silent for `silent_s` or longer."""
    silent = [one for one in cycle.machines if moment.silent_s.get(one, 0.0) >= silent_s]
    return sorted({number for machine in silent for number in cycle.switches_of(machine)})


def last_look(cycle: CycleState, moment: ServerTime, number: int, within_s: float) -> PowerAnswered | None:
    """The state that a switch reported in the last `within_s` seconds, None if it reported none."""
    answer = answer_of(cycle.switches[number], moment)
    if answer is None or answer.operation != "status" or (moment.now_ns - answer.ended_ns) / _S >= within_s:
        return None
    return answer


def ask_to_look(cycle: CycleState, moment: ServerTime, number: int, within_s: float) -> list[Step]:
    """The request for a switch's state, or a wait before the next attempt. [] once the switch answered, or
    failed `ATTEMPTS` times."""
    look = last_look(cycle, moment, number, within_s)
    if look is None:
        return [Ask(number, "status")]
    if look.outcome != "failed" or cycle.switches[number].attempts >= ATTEMPTS:
        return []
    left_s = _AGAIN_S - (moment.now_ns - look.ended_ns) / _S
    return [WaitFor(left_s)] if left_s > 0 else [Ask(number, "status")]


def ask_all(cycle: CycleState, operation: Operation) -> list[Step]:
    """A request to each switch in `involved`."""
    return [Ask(number, operation) for number in cycle.involved]


def answer_of(switch: Switch, moment: ServerTime) -> PowerAnswered | None:
    """The last answer of a switch, None if it came in an earlier boot of the server. Times of another boot
    cannot be compared, and the state may have changed since."""
    return switch.answered if switch.boot_id == moment.boot_id else None


def ask_until(cycle: CycleState, moment: ServerTime, wanted: Operation, *, look: bool = False) -> list[Step]:
    """The next request to each switch that has not given the `wanted` answer. `look`: ask only for the
    state."""
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
    """Seconds to wait after the answer of a switch before the next request."""
    if wanted != "on" or answer.outcome != "failed":
        return _AGAIN_S
    return float(min(_AGAIN_S * 2.0 ** min(switch.attempts - 1, 9), _AGAIN_MAX_S))


def _settles(switch: Switch, answer: PowerAnswered, wanted: Operation) -> bool:
    """Whether a switch needs no further request: it is on or off as wanted, or its check has ended."""
    if wanted == "check":
        return answer.outcome != "failed" or switch.attempts >= ATTEMPTS
    return answer.outcome == wanted


def power_failure(state: CampaignState, cycle: CycleState, moment: ServerTime, wanted: Operation) -> str:
    """Why a switch will not reach the `wanted` state, as a sentence. "" while all switches still may.
    Switching on is not given up while one switch may still go on: the failure of another switch must not keep
    its machine off. Nor is it given up before `ON_WITHIN_S`: otherwise a machine without power would wait for
    people."""
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
    """Whether `answer` reports the state of a switch `CONFIRM_WITHIN_S` or later after it said that it had
    switched. A slow switch or an absent server is not a failure: time in which the server was away does not
    count."""
    done_ns = switch.done_ns if switch.done_boot_id == moment.boot_id else 0
    asked_for_s = (answer.began_ns - max(done_ns, moment.began_ns)) / _S
    return answer.operation == "status" and asked_for_s >= CONFIRM_WITHIN_S
