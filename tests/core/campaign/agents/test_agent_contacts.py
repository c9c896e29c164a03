"""For how long machines are silent to a server whose store may be away, and which may stand still itself."""

from __future__ import annotations

from durability.campaign.next_steps import next_steps
from durability.campaign.server_time import AgentContacts, ServerTime
from durability.campaign.steps import Ask, Note, Step
from tests.core.campaign.told_campaign import S, ToldCampaign, cut_under_load


def listen(contacts: AgentContacts, *, from_s: float, to_s: float) -> None:
    """The store answers, every second."""
    for second in range(int(from_s), int(to_s) + 1):
        contacts.store_answered(second * S)


def steps(told: ToldCampaign, contacts: AgentContacts, now_s: float) -> list[Step]:
    """What is to be done then."""
    now_ns = int(now_s * S)
    silent_s = {"b": contacts.silent_s("b", now_ns)}
    moment = ServerTime(
        now_ns=now_ns, boot_id="server", silent_s=silent_s, began_ns=contacts.since_ns(now_ns)
    )
    return next_steps(told.state, moment)


def test_silence_is_counted_while_the_store_answers() -> None:
    """From the last word, or from when the server began to hear."""
    contacts = AgentContacts(10 * S)
    listen(contacts, from_s=10, to_s=100)
    assert contacts.silent_s("b", 101 * S) == 91
    contacts.heard("b", 60 * S)
    assert (contacts.silent_s("b", 104 * S), contacts.since_ns(104 * S)) == (44, 10 * S)


def test_machine_is_not_cut_since_the_store_was_away() -> None:
    """A machine that was not heard because the store was away is not taken for a cut one. If it stays silent
    for as long as a boot may take, only the state of its switch is asked."""
    told = cut_under_load()
    since_s = told.now_ns // S
    contacts = AgentContacts(0)
    listen(contacts, from_s=0, to_s=since_s + 10)
    back_s = since_s + 300
    assert not any(isinstance(step, Note) for step in steps(told, contacts, back_s))
    listen(contacts, from_s=back_s, to_s=back_s + 121)
    assert not any(isinstance(step, Note) for step in steps(told, contacts, back_s + 119))
    assert steps(told, contacts, back_s + 121) == [Ask(0, "status")]
