"""The campaigns of the store for pages. The state is built from each log, and each entry is read once. If the
store no longer has the last entry, as after a failover to a standby that lacked it, the log is read again.

Nothing is conducted here: only the server takes steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from durability.acceptance.known_cuts import machine_that_was_cut
from durability.bench.decision.claims import Machine
from durability.campaign.campaign_state import CampaignState
from durability.campaign.log_entries import entry_from_value
from durability.campaign.progress import Pace
from durability.campaign.tasks import in_one_order
from durability.errors import FormatError
from durability.formats.packing import pack
from durability_server.store.campaign_store import CampaignStore

_MISSING = frozenset({"missing", "wrong-drive"})


@dataclass(slots=True)
class WatchedCampaign:
    """A campaign, as far as its log was read."""

    name: str
    state: CampaignState = field(default_factory=CampaignState)
    pace: Pace = field(default_factory=Pace)
    note: str = ""  # why the next entry cannot be read, "" if it can
    last: bytes = b""  # the last entry that was read, packed
    number: int = 0  # number of that entry
    rejected: bytes = b""  # the next entry, packed, if it could not be read

    @property
    def is_over(self) -> bool:
        """Whether the campaign has ended."""
        return self.state.state == "ended"


class CampaignWatch:
    """All campaigns of the store, in the order in which they began. Only one thread may use it."""

    def __init__(self, store: CampaignStore) -> None:
        self._store = store
        self._known: dict[str, WatchedCampaign] = {}

    def read(self) -> tuple[WatchedCampaign, ...]:
        """All campaigns with their new entries. Raises StoreError."""
        names = self._store.names()
        for name in names:
            while not self._read_on(self._known.setdefault(name, WatchedCampaign(name))):
                del self._known[name]
        return tuple(self._known[name] for name in names)

    def _read_on(self, campaign: WatchedCampaign) -> bool:
        """Reads new entries. False if the store no longer has the last entry that was read or rejected."""
        try:
            return self._read_entries(campaign)
        except FormatError as error:
            campaign.note = f"its log cannot be read: {error}"
            return True

    def _read_entries(self, campaign: WatchedCampaign) -> bool:
        """Like `_read_on`, but raises FormatError for an entry that cannot be read."""
        while True:
            known = campaign.number
            rows = self._store.entries(campaign.name, after=max(0, known - 1))
            if known and (not rows or pack(rows[0]) != campaign.last):
                return False
            new = rows[1:] if known else rows
            if campaign.rejected:
                return bool(new) and pack(new[0]) == campaign.rejected
            campaign.note = ""
            for row in new:
                try:
                    entry = entry_from_value(row)
                    campaign.state.apply(entry)
                    campaign.pace.apply(entry)
                except FormatError:
                    campaign.rejected = pack(row)
                    raise
                campaign.last, campaign.number = pack(row), entry.number
            if not new:
                return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Why a campaign does not find a drive."""

    text: str
    # Wall time (ISO 8601) of the end of the cycle that says so, "" while that cycle goes on. A run that was
    # heard later has found the drive.
    until: str


def vanished(campaigns: tuple[WatchedCampaign, ...]) -> dict[tuple[str, Machine], Missing]:
    """The drives that the newest campaign with them does not find, by their serials in one order and
    machine."""
    gone: dict[tuple[str, Machine], Missing] = {}
    for campaign in campaigns:
        state = campaign.state
        for drive in state.plan.drives if state.settings is not None else ():
            condition = state.conditions.get(drive.name)
            serial = in_one_order(condition.serial) if condition is not None else ""
            trouble, text, until = _newest_trouble(state, drive.name)
            if not serial or trouble is None:
                continue
            machine = machine_that_was_cut(state, drive.name)
            # An older campaign may know the drive by another name, or without the machine's id.
            for known in [one for one in gone if one[0] == serial and one[1].is_same(machine)]:
                del gone[known]
            if trouble in _MISSING:
                text = text or f"campaign {campaign.name} does not find it"
                gone[serial, machine] = Missing(text=text, until=until)
    return gone


def _newest_trouble(state: CampaignState, drive: str) -> tuple[str | None, str, str]:
    """The agent's last report on a drive, None if there is none, its text, and when its cycle ended."""
    if state.cycle is not None:
        said = [(task, one) for (name, task), one in state.cycle.statuses.items() if name == drive]
        if said:
            _, newest = max(said, key=lambda item: item[0])
            return newest.trouble, newest.text, ""
    for past in reversed(state.cycles):
        if drive in past.statuses:
            return past.statuses[drive].trouble, past.statuses[drive].text, past.wall
    return None, "", ""
