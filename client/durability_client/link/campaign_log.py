"""A campaign's log on the server, read in parts; this side computes the campaign's state from the entries.

This module only reads, and continues where the last read ended. The core interprets the entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from durability.campaign.campaign_state import CampaignState
from durability.campaign.log_entries import Entry, entry_from_value
from durability.errors import FormatError
from durability.protocol.messages import Campaign, ShowCampaign
from durability_client.link.questions import Questions
from durability_client.link.server_connection import Connection


@dataclass(slots=True)
class FetchedLog:
    """The part of a campaign's log that was read."""

    name: str
    entries: list[Entry] = field(default_factory=list)
    state: CampaignState = field(default_factory=CampaignState)  # state after all entries
    silent_s: dict[str, float] = field(default_factory=dict)  # seconds without a message, by machine
    note: str = ""  # why the server cannot conduct the campaign, or this side cannot read the log; or ""


async def fetch_log(connection: Connection | Questions, name: str) -> FetchedLog:
    """The whole log of a campaign. Raises RefusedError, PeerError, FormatError."""
    log = FetchedLog(name=name)
    await read_log(connection, log)
    return log


async def read_log(connection: Connection | Questions, log: FetchedLog) -> None:
    """Read the new entries of a log. Raises RefusedError, PeerError, and FormatError if this side or the
    server cannot read an entry, because that entry may be a loss."""
    while True:
        answer = await connection.request(ShowCampaign(name=log.name, after=log.state.number), Campaign)
        log.silent_s = {machine: float(seconds) for machine, seconds in answer.silent_s.items()}  # type: ignore[arg-type]
        log.note = answer.note
        for value in answer.entries:
            if why := value.get("unreadable"):
                raise FormatError(f"the server cannot read the log of campaign {log.name}: {why}")
            entry = entry_from_value(value)
            log.state.apply(entry)
            log.entries.append(entry)
        if not answer.entries:
            return
