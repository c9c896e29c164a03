"""/metrics: the values of the overview page for Prometheus.

There are series per drive, machine and campaign, not per run, so their number stays small, and no series
disappears. A vanished drive keeps its series, which says that it has vanished. One client's drives do not
displace another client's. All values are also on the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

import durability
from durability import plain_text
from durability.campaign.campaign_state import State
from durability_server.web.live_samples import RunTrack
from durability_server.web.readings import SHOWN_STATES, CampaignView, DriveView, Overview, unix_s
from durability_server.web.watch import Watch

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_DRIVE = ("serial", "model", "machine", "client")
_Labels: TypeAlias = tuple[str, str, str, str]
_CAMPAIGN = ("campaign", "drive", "client")
_MACHINE = ("campaign", "client")


def metrics(seen: Overview | None, watch: Watch, browsers: int) -> bytes:
    """All metrics in Prometheus' format. `seen` is None if the store could not be read."""
    registry = CollectorRegistry(auto_describe=False)
    is_up = seen is not None and not watch.pulse.failure and not watch.failure
    registry.register(
        _Once([*_of_the_server(watch, browsers, is_up), *(_of_the_store(seen, watch) if seen else ())])
    )
    return generate_latest(registry)


class _Once(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        """All metric families."""
        return self._families


def _gauge(name: str, text: str, labels: Iterable[str] = ()) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"durability_{name}", text, labels=tuple(labels))


def _counter(name: str, text: str, labels: Iterable[str] = ()) -> CounterMetricFamily:
    return CounterMetricFamily(f"durability_{name}", text, labels=tuple(labels))


def _of_the_server(watch: Watch, browsers: int, is_up: bool) -> Iterator[Metric]:
    info = _gauge("build_info", "Always 1; the label is the release.", ["version"])
    info.add_metric([durability.__version__], 1)
    yield info
    up = _gauge("store_up", "Whether the store can be written by the server and read by the live page.")
    up.add_metric([], 1 if is_up else 0)
    yield up
    pulse = watch.pulse
    commits = SummaryMetricFamily(
        "durability_store_commit_seconds", "Group commits of the server, and the time that they took."
    )
    commits.add_metric([], count_value=pulse.commits, sum_value=pulse.commits_ns / 1e9)
    yield commits
    reads = SummaryMetricFamily(
        "durability_store_read_seconds", "Questions of the live page to the store, and the time they took."
    )
    reads.add_metric([], count_value=watch.reads, sum_value=watch.reads_s)
    yield reads
    yield _plain("page_connections", "Connections to the live page that are open.", browsers)


def _plain(name: str, text: str, value: float) -> Metric:
    family = _gauge(name, text)
    family.add_metric([], value)
    return family


def _of_the_store(seen: Overview, watch: Watch) -> Iterator[Metric]:
    yield _plain("live_runs", "Runs whose clients are connected.", seen.live_count)
    drives = _by_labels(seen.drives)
    yield from _of_drives(drives)
    yield from _of_newest_runs(drives, watch)
    yield from _of_machines(seen.campaigns)
    yield from _of_campaigns(seen.campaigns)


def _by_labels(drives: Iterable[DriveView]) -> dict[_Labels, DriveView]:
    """One drive for each set of labels. Drives without a serial may share their labels; the newest one
    counts."""
    found: dict[_Labels, DriveView] = {}
    for drive in drives:
        labels = (drive.row[name] for name in ("serial", "model", "host", "client_name"))
        found.setdefault(tuple(map(_plain_label, labels)), drive)  # type: ignore[arg-type]  # four
    return found


def _of_drives(drives: dict[_Labels, DriveView]) -> Iterator[Metric]:
    state = _gauge("drive_state", "1 for the state that a drive is in, 0 for the others.", [*_DRIVE, "state"])
    vanished = _gauge(
        "drive_vanished", "1 for a drive that is not found or does not answer any more.", _DRIVE
    )
    cuts = _gauge("drive_cuts", "Verified cuts of a drive, by result.", [*_DRIVE, "result"])
    left_out = _gauge(
        "drive_cuts_left_out", "Cuts of a drive with unknown outcome; they void its bound.", _DRIVE
    )
    bound = _gauge(
        "drive_loss_bound_ratio",
        "Largest probability of loss per cut that the cuts do not exclude, one-sided 95 %; NaN for none.",
        _DRIVE,
    )
    runs = _gauge("drive_runs", "Runs on a drive.", _DRIVE)
    for labels, drive in drives.items():
        for word in SHOWN_STATES:
            state.add_metric([*labels, word], float(word == drive.state))
        vanished.add_metric(labels, float(drive.state == "vanished"))
        cuts.add_metric([*labels, "clean"], drive.clean)
        cuts.add_metric([*labels, "loss"], drive.row["losses"])
        left_out.add_metric(labels, drive.row["left_out"])
        bound.add_metric(labels, _or_nan(drive.row["bound"]))
        runs.add_metric(labels, drive.row["runs"])
    yield from (state, vanished, cuts, left_out, bound, runs)


def _of_newest_runs(drives: dict[_Labels, DriveView], watch: Watch) -> Iterator[Metric]:
    acked = _counter(
        "drive_acknowledged_operations", "Operations that the newest run on a drive has acknowledged.", _DRIVE
    )
    seen = _gauge(
        "drive_last_seen_timestamp_seconds",
        "When the newest frame of the newest run on a drive came.",
        _DRIVE,
    )
    lag = _gauge(
        "drive_lag_seconds", "Age of the newest frame that is stored of a live run on a drive.", _DRIVE
    )
    rate = _gauge("drive_operations_per_second", "Acknowledged in the last second by a live run.", _DRIVE)
    latency = _gauge(
        "drive_commit_latency_seconds",
        "Latency of a commit in the last second, or, if that has too few commits, in up to 60 seconds.",
        [*_DRIVE, "quantile"],
    )
    for labels, drive in drives.items():
        if drive.now is None:
            continue
        acked.add_metric(labels, drive.now.acked)
        seen.add_metric(labels, _or_nan(unix_s(drive.last_seen)))
        track = watch.track(drive.now.run) if drive.state == "writing" else None
        _add_sample(labels, track, lag, rate, latency)
    yield from (acked, seen, lag, rate, latency)


def _add_sample(
    labels: _Labels,
    track: RunTrack | None,
    lag: GaugeMetricFamily,
    rate: GaugeMetricFamily,
    latency: GaugeMetricFamily,
) -> None:
    sample = None if track is None else track.newest
    if sample is None:
        return
    rate.add_metric(labels, sample.rate)
    if sample.lag_s is not None:
        lag.add_metric(labels, sample.lag_s)
    for quantile, value in (("0.5", sample.p50), ("0.99", sample.p99)):
        if value is not None:
            latency.add_metric([*labels, quantile], value.us / 1e6)


def _of_machines(campaigns: Iterable[CampaignView]) -> Iterator[Metric]:
    silent = _gauge(
        "machine_silent_seconds",
        "Seconds since a campaign's agent was last heard; 0 while its machine is kept without power.",
        _MACHINE,
    )
    off = _gauge(
        "machine_without_power",
        "1 while a campaign keeps a machine, or its drives alone, without power; 0 otherwise.",
        _MACHINE,
    )
    for campaign in campaigns:
        for machine, silent_s in campaign.silent_s.items():
            labels = [_plain_label(campaign.name), _plain_label(machine)]
            silent.add_metric(labels, 0.0 if machine in campaign.dark else silent_s)
            off.add_metric(labels, float(machine in campaign.without_power))
    yield from (silent, off)


def _of_campaigns(campaigns: Iterable[CampaignView]) -> Iterator[Metric]:
    states = _gauge(
        "campaign_state", "1 for the state that a campaign is in, 0 for the others.", ["campaign", "state"]
    )
    cycles = _gauge("campaign_cycles", "Cycles that are over.", ["campaign"])
    left = _gauge("campaign_cycles_left", "Cycles to come at least, with the one under way.", ["campaign"])
    left_s = _gauge("campaign_left_seconds", "About how long a running campaign still takes.", ["campaign"])
    cuts = _gauge(
        "campaign_drive_cuts",
        "Cuts of a drive, by result: clean and unknown of arms under load, loss of all arms.",
        [*_CAMPAIGN, "result"],
    )
    bound = _gauge(
        "campaign_drive_loss_bound_ratio", "As durability_drive_loss_bound_ratio, of a campaign.", _CAMPAIGN
    )
    for campaign in campaigns:
        name = _plain_label(campaign.name)
        for word in get_args(State):
            states.add_metric([name, word], float(word == campaign.state))
        cycles.add_metric([name], campaign.cycles)
        left.add_metric([name], campaign.cycles_left)
        if campaign.left_s is not None:
            left_s.add_metric([name], campaign.left_s)
        for result in campaign.results:
            labels = [name, _plain_label(result.drive), _plain_label(result.machine)]
            tally = result.tally
            cuts.add_metric([*labels, "clean"], tally.cuts - tally.losses)
            cuts.add_metric([*labels, "loss"], result.losses)
            cuts.add_metric([*labels, "unknown"], tally.unknown)
            bound.add_metric(labels, _or_nan(tally.bound))
    yield from (states, cycles, left, left_s, cuts, bound)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _plain_label(value: object) -> str:
    return plain_text.as_line(str(value))
