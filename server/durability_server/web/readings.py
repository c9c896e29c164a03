"""The content of the pages as plain values: drives and machines with their state, runs, campaigns.

They come from the same queries of the store and functions of the core as the output of the commands, so the
values are equal. Nothing more is concluded here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

from durability.bench.decision.claims import Machine
from durability.campaign.progress import cycles_left, doing, is_dark, is_without_power, left_s
from durability.campaign.results import DriveResult, results
from durability.campaign.server_time import SILENT_AFTER_S
from durability.campaign.tasks import in_one_order
from durability.evidence.strength import weightiest
from durability.formats.case import PERHAPS_CUT, TRACES_OF_A_CUT, Case, SessionEnd
from durability.formats.packing import Value
from durability.plain_text import owner_label
from durability.units import parse_run
from durability_server import clock
from durability_server.runs.run import Run
from durability_server.store.live_rows import RunNow
from durability_server.store.store import Store
from durability_server.web.campaign_watch import CampaignWatch, Missing, WatchedCampaign, vanished

LISTED_DRIVES_MAX = 5000  # drives of all clients
DRIVES_OF_CLIENT_MAX = 500
LISTED_RUNS_MAX = 100

# The present state of a drive. "writing": a run writes to it. "vanished": the drive is gone. "cut": its power
# went off and no verify followed. "unknown": the server lost the session. "verified": a verdict is known.
# "idle": none of these.
ShownState: TypeAlias = Literal["writing", "vanished", "cut", "unknown", "verified", "idle"]
SHOWN_STATES: tuple[ShownState, ...] = get_args(ShownState)

_GONE = {
    "dead": "every read failed after the I/O error",
    "silent": "a read did not return after the I/O error",
}
_ENDS: Mapping[SessionEnd, str] = {
    "silence": "nothing was heard any more",
    "target-error": "the target reported an I/O error",
    "server-down": "the server went down during the run",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveView:
    """One client's view of a drive."""

    row: Mapping[str, Any]  # the drive's row of `durability runs --json`
    state: ShownState
    text: str
    now: RunNow | None  # the newest run on it

    @property
    def clean(self) -> int:
        """Cuts without loss."""
        return int(self.row["cuts"]) - int(self.row["losses"])

    @property
    def owner(self) -> str:
        """The client that made these runs."""
        return owner_label(str(self.row["client"]), str(self.row["client_name"]))

    @property
    def last_seen(self) -> str:
        """Time of the newest frame of its newest run, ISO 8601, "" for never."""
        return self.now.last_receipt if self.now is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """A machine under test."""

    name: str
    hosts: tuple[str, ...]  # host names of its runs that differ from its name
    state: str  # "writing", "silent", "heard" or "idle"
    text: str
    last_seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignView:
    """A campaign."""

    name: str
    state: str
    doing: str
    note: str
    results: tuple[DriveResult, ...]
    cycles: int  # cycles that are over, including those left out
    cycles_left: int  # least number of cycles to come, see `progress`
    left_s: float | None  # estimated time for these, None if unknown
    silent_s: Mapping[str, float]
    dark: frozenset[str] = frozenset()  # machines that are silent on purpose
    without_power: frozenset[str] = frozenset()  # these, and machines whose drives are without power


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All values of the overview page and /metrics."""

    drives: tuple[DriveView, ...]
    machines: tuple[MachineView, ...]
    campaigns: tuple[CampaignView, ...]
    runs: tuple[Mapping[str, Any], ...]
    live: tuple[RunNow, ...]  # the newest of the live runs
    live_count: int  # number of all live runs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run with its case, its verdicts, and the names and sizes of its evidence, as in `show --json`."""

    now: RunNow
    case: Case
    verdicts: tuple[Value, ...]
    evidence: tuple[Mapping[str, Any], ...]

    @property
    def standing(self) -> str:
        """The verdict that counts, "" for none."""
        standing = weightiest(self.case.verdicts)
        return standing.verdict if standing is not None else ""


def overview(
    store: Store, watch: CampaignWatch, silent_s: Mapping[str, Mapping[str, float]], live_max: int
) -> Overview:
    """Reads the overview. Raises StoreError."""
    campaigns = watch.read()
    rows = store.drive_listing(LISTED_DRIVES_MAX, client=None, of_each=DRIVES_OF_CLIENT_MAX)
    now = {run.run: run for run in store.runs_now([parse_run(str(row["run"])) for row in rows])}
    live, live_by_client = store.live_runs(live_max), store.live_by_client()
    names, gone = store.client_names(), vanished(campaigns)
    claims = Counter(str(row["serial"]) for row in rows)
    drives = tuple(
        _drive_view(row, mine, missing_text(row, mine, gone, alone=claims[str(row["serial"])] == 1))
        for row, mine in ((row, now.get(str(row["run"]))) for row in rows)
    )
    return Overview(
        drives=drives,
        machines=tuple(_machines(drives, live, live_by_client, campaigns, silent_s, names=names)),
        campaigns=tuple(campaign_view(one, silent_s.get(one.name, {})) for one in reversed(campaigns)),
        runs=store.listing(LISTED_RUNS_MAX, client=None),
        live=live,
        live_count=sum(live_by_client.values()),
    )


def run_view(store: Store, run: int, boot_id: str) -> RunView:
    """Reads a run. Raises RefusedError "run-unknown", StoreError."""
    stored = store.load(run)
    relations = store.relations(stored)
    verdicts, evidence = store.documents(run)
    (now,) = store.runs_now([run])
    case = Run(stored, boot_id=boot_id).case(now_ns=clock.now_ns(), relations=relations)
    return RunView(now=now, case=case, verdicts=verdicts, evidence=evidence)


def campaign_view(campaign: WatchedCampaign, silent_s: Mapping[str, float]) -> CampaignView:
    """The state and progress of a campaign."""
    state = campaign.state
    known = state.settings is not None
    return CampaignView(
        name=campaign.name,
        state=state.state,
        doing=doing(state) if known else "",
        note=campaign.note,
        results=results(state) if known else (),
        cycles=sum(1 for past in state.cycles if past.began.cycle),
        cycles_left=cycles_left(state) if known else 0,
        left_s=left_s(state, took_s=campaign.pace.took_s) if known else None,
        silent_s=silent_s,
        dark=frozenset(machine for machine in silent_s if known and is_dark(state, machine)),
        without_power=frozenset(one for one in silent_s if known and is_without_power(state, one)),
    )


def unix_s(wall: str) -> float | None:
    """An ISO date and time as Unix seconds, None for ""."""
    return datetime.fromisoformat(wall).timestamp() if wall else None


def missing_text(
    row: Mapping[str, Any], now: RunNow | None, gone: Mapping[tuple[str, Machine], Missing], *, alone: bool
) -> str:
    """Why a campaign does not find the drive. "" if it does, or if a run was heard from the drive since. A
    campaign's report concerns the drive of the client on its machine. If the drive is `alone` with its
    serial, the report concerns this drive anyway."""
    client, name = str(row["client"]), str(row["client_name"])
    serials = in_one_order(str(row["serial"]))
    found = {machine: one for (serial, machine), one in gone.items() if serial == serials}
    missing = next((one for machine, one in found.items() if machine.is_of(client, name)), None)
    if missing is None and alone:
        missing = next(iter(found.values()), None)
    if missing is None or (missing.until and now is not None and now.last_receipt > missing.until):
        return ""
    return missing.text


def _drive_view(row: Mapping[str, Any], now: RunNow | None, gone: str) -> DriveView:
    state, text = _state(str(row["verdict"]), now, gone)
    return DriveView(row=row, state=state, text=text, now=now)


def _state(verdict: str, now: RunNow | None, gone: str) -> tuple[ShownState, str]:
    if now is not None and now.session_end == "live":
        return "writing", ""
    if gone:
        return "vanished", gone
    if now is not None and not now.verdict:
        if now.drive_seen in _GONE:
            return "vanished", _GONE[now.drive_seen]
        if now.session_end in TRACES_OF_A_CUT:
            return "cut", f"{_ENDS[now.session_end]}; verify run {now.run}"
        if now.session_end in PERHAPS_CUT:
            return "unknown", _ENDS[now.session_end]
    return _judged(verdict)


def _judged(verdict: str) -> tuple[ShownState, str]:
    if verdict == "unverified":  # the listing's value for a run without a verdict
        return "cut", "an earlier run may have met a cut and was not verified"
    return ("verified", verdict) if verdict else ("idle", "")


def _machines(
    drives: Iterable[DriveView],
    live: Iterable[RunNow],
    live_by_client: Mapping[tuple[str, str], int],
    campaigns: Iterable[WatchedCampaign],
    silent_s: Mapping[str, Mapping[str, float]],
    *,
    names: Mapping[str, str],
) -> Iterable[MachineView]:
    """Each machine once. `names` has the name with which a client joined, which campaigns use too. The
    operator's machine has its host name."""
    heard = [(str(one.row["client"]), str(one.row["host"]), one.last_seen) for one in drives]
    heard += [(run.client, run.host, run.last_receipt) for run in live]
    heard += [(client, host, "") for client, host in live_by_client]
    seen: dict[str, str] = {}
    hosts: defaultdict[str, set[str]] = defaultdict(set)
    for client, host, last_seen in heard:
        name = names.get(client) or host
        seen[name] = max(seen.get(name, ""), last_seen)
        hosts[name].add(host)
    writing: Counter[str] = Counter()
    for (client, host), count in live_by_client.items():
        writing[names.get(client) or host] += count
    silent: dict[str, tuple[float, str]] = {}
    for campaign in campaigns:
        if campaign.state.settings is None or campaign.is_over:
            continue
        for machine in campaign.state.plan.machines:
            seen.setdefault(machine, "")
            if machine in silent_s.get(campaign.name, {}):
                quiet_s = 0.0 if is_dark(campaign.state, machine) else silent_s[campaign.name][machine]
                silent[machine] = quiet_s, campaign.name
    for name in sorted(seen):
        quiet_s, campaign_name = silent.get(name, (0.0, ""))
        if name in writing:
            state, text = "writing", f"{writing[name]} live"
        elif quiet_s > SILENT_AFTER_S:
            state, text = "silent", f"its agent has not reported for {quiet_s:.0f} s"
        elif campaign_name:
            state, text = "heard", f"in campaign {campaign_name}"
        else:
            state, text = "idle", ""
        others = tuple(sorted(hosts[name] - {name, ""}))
        yield MachineView(name=name, hosts=others, state=state, text=text, last_seen=seen[name])
