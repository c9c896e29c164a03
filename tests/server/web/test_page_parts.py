"""Parts of the live page without its process: samples, pictures, verdicts of any client, vanished drives."""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, MutableMapping
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest
from prometheus_client.core import GaugeMetricFamily
from starlette.requests import Request

from durability.bench.decision.claims import Machine
from durability.campaign.health import HealthRow
from durability.errors import StoreError
from durability.evidence.judgement import describe, place_name
from durability.evidence.observation import Observation, Span
from durability.formats.histogram import Histogram
from durability.formats.plan import Plan
from durability.formats.run_statistics import Statistics
from durability.formats.workloads.registry import WORKLOADS
from durability_server.store.live_rows import RunNow
from durability_server.store.store import Store
from durability_server.web import event_stream, metrics, pages
from durability_server.web.campaign_watch import Missing, WatchedCampaign
from durability_server.web.event_stream import EventStream
from durability_server.web.live_samples import PERCENTILE_SPAN_S_MAX, SAMPLES_MAX, LiveSample, RunTrack
from durability_server.web.page_exchange import PageSettings, Pulse, line_of, pulse_of, settings_of
from durability_server.web.page_listener import PageListener
from durability_server.web.pictures import PictureLine, health_lines
from durability_server.web.pictures import line_of as picture_of
from durability_server.web.readings import Overview, campaign_view, missing_text, unix_s
from durability_server.web.verdict_view import FindingView, verdict_view
from durability_server.web.viewer_access import ViewerAccess
from durability_server.web.watch import Topic, Watch, pause_s
from tests.core.campaign.told_campaign import begun, part
from tests.server.conftest import PLAN_FIELDS
from tests.server.web.test_live_values import statistics_after
from tests.waiting import until

S = 10**9
PLAN = Plan(**PLAN_FIELDS)
RUN = RunNow(
    run="0" * 15 + "1",
    client="",
    label="",
    path="/t",
    host="b",
    plan=PLAN.encode(),
    state="armed",
    session_end="live",
    frontiers=(0, 0),
    last_receipt_ns=10 * S,
    boot_id="boot",
    last_receipt="",
    registered="",
    rtt_max_ns=0,
    statistics=None,
    drive_seen="",
    verdict="",
    drives=(),
)


def _run_now(*, lines: tuple[PictureLine, ...] = (), statistics: Statistics | None = None) -> str:
    """The upper part of the page of a run that the server takes no samples of."""
    view = SimpleNamespace(now=RUN, standing="", case=SimpleNamespace(statistics=statistics, tainted=""))
    return pages._render("run_now.html", view=view, sample=None, lines=lines)


def test_samples_are_differences_between_looks() -> None:
    """The rate is over the time between receipts; lag is the age of the newest; latencies are of the time
    between two statistics; a silent run has the rate 0 and a growing lag; another boot has no lag."""
    track = RunTrack(PLAN)
    looks: list[tuple[int, int, Any]] = [
        (0, 0, statistics_after(1.0, 100)),
        (1000, 1, statistics_after(2.0, 100, 900)),
        (3000, 3, None),
        (3000, 3, None),
    ]
    for number, (acked, receipt_s, statistics) in enumerate(looks):
        run = replace(RUN, frontiers=(acked, 0), last_receipt_ns=(10 + receipt_s) * S, statistics=statistics)
        track.look(run, now_ns=(10 + number) * S + S // 10 + max(0, receipt_s - number) * S, boot_id="boot")
    first, second, third = track.samples
    assert (first.rate, second.rate, third.rate) == (1000, 1000, 0)
    assert first.p50 is not None and first.p50.us == pytest.approx(900, rel=1 / 32)
    assert first.p50.span_s == 1.0 and third.p99 == first.p99
    assert first.lag_s == pytest.approx(0.1) and third.lag_s == pytest.approx(0.1)
    track.look(replace(RUN, frontiers=(3000, 0)), now_ns=20 * S, boot_id="other")
    assert track.samples[-1].lag_s is None
    for _ in range(SAMPLES_MAX + 5):
        track.look(RUN, now_ns=99 * S, boot_id="boot")
    assert len(track.samples) == SAMPLES_MAX


def _track_of(*latencies_us: int, per_second: int) -> RunTrack:
    """A run that committed so often in each second, with these latencies one second after the other."""
    track = RunTrack(PLAN)
    for second in range(len(latencies_us) + 1):
        counted = statistics_after(float(second), *latencies_us[:second], each=per_second)
        track.look(replace(RUN, statistics=counted), now_ns=second * S, boot_id="boot")
    return track


@pytest.mark.parametrize(
    ("latencies_us", "per_second", "p50", "p99"),
    [
        ([100] * 30, 2000, (100, 1.0), (100, 1.0)),
        ([100] * 9, 100, (100, 1.0), None),
        ([100] * 30, 100, (100, 1.0), (100, 10.0)),
        ([9000] * 20 + [100] * 10, 100, (100, 1.0), (100, 10.0)),  # what was before does not count
        ([9000] * 21 + [100] * 9, 100, (100, 1.0), (9000, 10.0)),
        ([100] * 70, 17, (100, 2.0), (100, 59.0)),
        ([100] * 70, 16, (100, 2.0), None),  # a minute is not enough
        ([100] * 70, 0, None, None),
    ],
)
def test_percentiles_look_back_for_enough_commits(
    latencies_us: list[int], per_second: int, p50: tuple[int, float] | None, p99: tuple[int, float] | None
) -> None:
    """A p99 needs 1,000 commits, more than a drive without power-loss protection makes in a second.
    Percentiles look back as many seconds as needed, at most a minute."""
    track = _track_of(*latencies_us, per_second=per_second)
    assert track.newest is not None
    for found, expected in ((track.newest.p50, p50), (track.newest.p99, p99)):
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert found.us == pytest.approx(expected[0], rel=1 / 32) and found.span_s == expected[1]


def test_a_percentile_says_how_far_it_looks_back() -> None:
    """On its tile and on its picture, unless it is of the newest second; /metrics has it without."""
    labels = ["serial", "model", "machine", "client"]
    lag, rate = (GaugeMetricFamily(name, "", labels=labels) for name in ("lag", "rate"))
    latency = GaugeMetricFamily("latency", "", labels=[*labels, "quantile"])
    view = SimpleNamespace(now=RUN, standing="", case=SimpleNamespace(statistics=None, tainted=""))
    track = _track_of(*[100] * 30, per_second=100)
    lines = pages._lines(track, over=False)
    rate_text = pages._rate_text(PLAN)
    text = pages._render("run_now.html", view=view, sample=track.newest, lines=lines, rate_text=rate_text)
    for words in (
        "100 µs</b><span>p50 of a commit</span>",
        "100 µs</b><span>p99 of a commit, newest 10 s</span>",
        "<span>p50 of a commit</span> <b>100 µs</b>",
        "<span>p99 of a commit, newest 10 s</span> <b>100 µs</b>",
    ):
        assert words in text
    metrics._add_sample(("S1", "m", "b", "c"), track, lag, rate, latency)
    assert {one.labels["quantile"]: one.value for one in latency.samples} == pytest.approx(
        {"0.5": 100e-6, "0.99": 100e-6}, rel=1 / 32
    )


def test_a_client_cannot_make_a_track_grow() -> None:
    """A client's clock that stands still or goes back does not make the track keep more statistics."""
    track = RunTrack(PLAN)
    for look in range(1000):
        elapsed_s = [look * 1e-6, 1e9 - look][look % 2]
        run = replace(RUN, statistics=statistics_after(elapsed_s, 100, each=0))
        track.look(run, now_ns=look * S, boot_id="boot")
    assert len(track._earlier) <= PERCENTILE_SPAN_S_MAX


@pytest.mark.parametrize("name", ["overview.html", "campaign.html", "run.html", "results.html", "error.html"])
def test_only_a_live_page_loads_itself_again(name: str) -> None:
    """Without scripts it is as new as its last load. A page with nothing live keeps what was ticked on it."""
    case = SimpleNamespace(run=RUN.run, label="")
    view = SimpleNamespace(now=RUN, case=case)
    text = pages._render(
        name, parts=defaultdict(str), view=view, name="trial", results=(), heading="Not found", text=""
    )
    is_live = 'id="live"' in text
    assert is_live == (name in {"overview.html", "campaign.html", "run.html"})
    assert ('http-equiv="refresh"' in text) == is_live


def test_a_picture_has_gaps_and_hides_no_peak() -> None:
    """A value that is not known breaks the line; of a thousand values the largest is still the highest."""
    assert picture_of("x", [None, None], str) is None
    line = picture_of("<rate>", [1.0, None, 2.0, 4.0], str)
    assert line is not None and (line.newest, line.range) == ("4.0", "1.0 to 4.0")
    assert line.svg.count("<polyline") == 1 and line.svg.count("<circle") == 1 and "&lt;rate&gt;" in line.svg
    peak = picture_of("x", [1.0] * 700 + [100.0] + [1.0] * 299, str)
    assert peak is not None and ",2.0" in peak.svg
    flat = picture_of("x", [0.0, 0.0], str)
    assert flat is not None and flat.range == "0.0"


def test_an_old_value_is_not_shown_as_the_newest() -> None:
    """A dash replaces the newest value if it is unknown, for example if the drive no longer reports it."""
    line = picture_of("x", [1.0, 7.0, None], str)
    assert line is not None and (line.newest, line.range) == ("\u2013", "1.0 to 7.0")
    nothing: dict[str, Any] = {field.name: None for field in fields(HealthRow)}
    said = HealthRow(**nothing | {"used_percent": 3})
    (wear,) = health_lines([said, replace(said, used_percent=None)])
    assert (wear.newest, wear.range) == ("\u2013", "3 %")


@pytest.mark.parametrize(
    ("commits", "p50", "p99"),
    [(0, "\u2013", "\u2013"), (19, "\u2013", "\u2013"), (30, "100 µs", "\u2013"), (1000, "100 µs", "100 µs")],
)
def test_percentiles_of_a_whole_run_take_enough_commits(commits: int, p50: str, p99: str) -> None:
    """Percentiles of a whole run need enough commits, as in `durability show`: no p50 without a commit, and
    no p99 from 30 commits."""
    counted = Histogram()
    counted.record(np.full(commits, 100_000, dtype=np.uint64))
    counts = {name: list(values) for name, values in counted.to_value().items()}
    text = _run_now(
        statistics=Statistics(elapsed_s=1.0, operations=(commits, 0), latency_ns=counts, drives=())
    )
    assert f"<b>{p50}</b><span>p50 of a commit, whole run" in text
    assert f"<b>{p99}</b><span>p99 of a commit, whole run" in text


def test_what_is_over_has_no_newest_value() -> None:
    """The pictures of a run that ended stay, with their range."""
    track = RunTrack(PLAN)
    track.samples.append(LiveSample(rate=5000.0, p50=None, p99=None, lag_s=None))
    live, ended = (_run_now(lines=pages._lines(track, over=over)) for over in (False, True))
    rate = "5,000/s, 20.5 MB/s"  # of records of 4 KiB
    assert f"<b>{rate}</b> <small>{rate}</small>" in live
    assert f"<b>{rate}</b>" not in ended and f"<small>{rate}</small>" in ended


def test_a_rate_has_megabytes_if_every_operation_writes() -> None:
    """A run that removes names in every second pass has no MB/s, since a removal writes no record."""
    texts = {
        workload: pages._rate_text(replace(PLAN, workload=workload, pattern="sequential"))(2000.0)
        for workload in WORKLOADS
    }
    assert texts.pop("unlink") == "2,000/s" and set(texts.values()) == {"2,000/s, 8.19 MB/s"}


def test_a_run_without_a_round_trip_says_so() -> None:
    """A run that ended before its client answered a heartbeat has none of 0 ns."""
    assert "No round trip to the client is known." in _run_now()


def test_a_cycle_that_was_left_out_is_none_of_those_that_were_wanted() -> None:
    """A cycle that was left out counts as over, but the number of cycles left does not fall. "1 of 9" would
    promise 8 more."""
    told = begun()
    told.say(part("failed", trouble="in-use", text="it is mounted"))
    while told.state.cycle is not None:
        told.note()
    view = campaign_view(WatchedCampaign(name="told", state=told.state), {})
    assert "<b>1 over, 9 left</b><span>cycles</span>" in pages._render("campaign_now.html", view=view)
    seen = Overview(drives=(), machines=(), campaigns=(view,), runs=(), live=(), live_count=0)
    assert "<td>1 over, 9 left</td>" in pages._render("overview_rest.html", seen=seen)


@pytest.mark.parametrize(
    "document",
    [
        None,
        7,
        [],
        {"verdict": 3, "reasons": "no", "cut": [], "at_risk": 1, "findings": None, "strength": {"cuts": "x"}},
        {"verdict": "loss", "reasons": [None, 3, {"code": 5}], "cut": {"class": 1, "proof": {"a": 1}}},
        {"loss_window": {"ms_min": True}, "strength": {"cuts": 1, "losses": 0, "bound": "much"}},
        *({"strength": {"cuts": 1, "losses": 0, "bound": bound}} for bound in (-0.1, 2.0, float("nan"))),
    ],
)
def test_any_document_can_be_shown(document: Any) -> None:
    """The page can show any document that a client sent as its verdict."""
    view = verdict_view(document)
    assert all(isinstance(text, str) for pair in view.pairs for text in pair)


def test_a_reason_without_a_sentence_gets_that_of_its_code() -> None:
    """Documents of earlier releases have codes only; a long list is cut."""
    view = verdict_view({"reasons": [{"code": "findings"}] * 1000, "findings": {"lost": 3, "torn": 0}})
    assert view.reasons[0].startswith("acknowledged data are missing") and len(view.reasons) == 50
    assert ("findings", "3 lost") in view.pairs


def test_examples_of_findings_are_rows() -> None:
    """Each example is a row with place, content found and acknowledged operation, taken from the judge's
    sentence. A sentence of another form is shown whole."""
    place = place_name(writer=0, slot=7, suffix="", offset=72704)
    spans = (Span(state="version", seq=34, sectors=1), Span(state="zero", sectors=7))
    seen = Observation(writer=0, slot=7, spans=spans)
    text = describe(seen, place=place, expected="seq 98 or newer", finding="lost")
    other = "file TARGET.0.3: resurrected; its removal was durable before seq 9"
    examples = [{"class": "lost", "text": text}, {"class": "resurrected", "text": other}, None]
    parts = FindingView(
        kind="lost",
        place="writer 0 slot 7 (TARGET offset 72704)",
        found="seq 34 in 1 sector, zeros in 7 sectors",
        acknowledged="seq 98 or newer",
    )
    whole = FindingView(kind="resurrected", place="", found=other, acknowledged="")
    assert verdict_view({"verdict": "loss", "examples": examples}).examples == (parts, whole)


def test_findings_that_do_not_count_are_called_so() -> None:
    """Findings that a later run explains are called findings that do not count. A verdict without findings
    shows "none"."""
    codes = [{"code": "earlier-loss"}, {"code": "superseded"}]
    view = verdict_view({"verdict": "loss", "reasons": codes, "findings": {"lost": 3}})
    assert ("findings that do not count", "3 lost") in view.pairs
    assert ("findings", "none") in verdict_view({"verdict": "durable", "findings": {"lost": 0}}).pairs


def test_lines_between_the_processes() -> None:
    """Each is one line, and comes back as it was."""
    settings = PageSettings(store_url="sqlite:///a\nb", descriptor=3, host="::1", open=True)
    pulse = Pulse(commits=3, commits_ns=10**12, failure="disk full\n", silent_s={"trial": {"b": 1.5}})
    for line in (line_of(settings), line_of(pulse)):
        assert line.count(b"\n") == 1
    assert settings_of(line_of(settings)) == settings and pulse_of(line_of(pulse)) == pulse
    assert unix_s("") is None and unix_s("1970-01-01T00:00:01.500Z") == 1.5


@pytest.mark.parametrize(
    ("until", "heard", "gone"),
    [
        ("2026-11-24T10:00:00.000Z", "2026-11-24T09:59:00.000Z", "is not there"),
        ("2026-11-24T10:00:00.000Z", "2026-11-24T10:01:00.000Z", ""),
        ("", "2026-11-24T10:01:00.000Z", "is not there"),
    ],
)
def test_a_drive_that_a_later_run_found_has_come_back(until: str, heard: str, gone: str) -> None:
    """A finished campaign's report of a missing drive counts until a run on the drive is heard again."""
    row = {"serial": "S1", "client": "c1", "client_name": "b"}
    missing = {("S1", Machine(name="b", client="c1")): Missing(text="is not there", until=until)}
    assert missing_text(row, replace(RUN, last_receipt=heard), missing, alone=True) == gone


def test_a_look_that_took_long_makes_no_page_old() -> None:
    """Looks are a second apart, or take a tenth of the time, and are never many seconds apart."""
    assert [pause_s(took) for took in (0.0, 0.01, 0.3, 60.0)] == pytest.approx([1.0, 0.99, 3.0, 5.0])


async def test_what_was_read_slowly_is_read_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that stood still for a minute, or failed after one, is asked again in seconds. Until then all
    hear what was found."""
    loop = asyncio.get_running_loop()
    real, later_s, reads = loop.time, [0.0], [0]
    monkeypatch.setattr(loop, "time", lambda: real() + later_s[0])

    async def read() -> int:
        reads[0] += 1
        later_s[0] += 60
        if reads[0] == 2:
            raise StoreError("gone")
        return reads[0]

    topic = Topic(read)
    assert [await topic.get() for _ in range(2)] == [1, 1]
    later_s[0] += 5
    for _ in range(2):
        with pytest.raises(StoreError, match="gone"):
            await topic.get()
    assert reads == [2]
    later_s[0] += 1
    assert await topic.get() == 3


async def test_a_reading_goes_on_without_who_asked() -> None:
    """If one of two waiting readers is cancelled, the read goes on and the other gets its result."""
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    reads = []

    async def read() -> str:
        reads.append(1)
        return await answer

    topic = Topic(read)
    first, second = (asyncio.create_task(topic.get()) for _ in range(2))
    await until(lambda: bool(reads))
    first.cancel()
    await asyncio.wait([first])
    answer.set_result("read")
    assert await second == "read" and len(reads) == 1


@pytest.fixture
async def watch(sqlite_url: str) -> AsyncIterator[Watch]:
    """What a page knows of an empty store."""
    store = Store(sqlite_url, mode="with readers")
    store.open()
    found = Watch(Store(sqlite_url, mode="reader"))
    await found.open()
    yield found
    await found.ask(found.store.close)
    store.close()


@pytest.mark.slow
async def test_while_the_store_fails_only_samples_ask_it(watch: Watch) -> None:
    """All others hear at once why; the next sample ends that."""
    watch.failure = "the disk is gone"
    with pytest.raises(StoreError, match="the disk is gone"):
        await watch.ask(lambda: pytest.fail("it was asked"))
    sampling = asyncio.create_task(watch.sample_for_ever())
    await until(lambda: not watch.failure)
    sampling.cancel()
    assert await watch.ask(lambda: 7) == 7


async def test_a_store_that_does_not_answer_is_told(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the store does not answer, /metrics reports this within the scrape time, and each open page reports
    it before the answer comes."""
    monkeypatch.setattr(pages, "_SCRAPE_S", 0.05)
    monkeypatch.setattr(event_stream, "_ANSWER_S", 0.05)
    answer = threading.Event()
    hanging = asyncio.create_task(watch.ask(answer.wait))
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def receive() -> Any:
        await asyncio.Event().wait()

    with socket.socket() as bound:
        all_pages = pages._Pages(watch, PageListener(bound, None), None)
        request = Request({"type": "http", "headers": [], "path_params": {"name": "trial"}})
        stream = all_pages._stream(request, all_pages._campaign_parts("trial"))
        assert isinstance(stream, EventStream)
        streaming = asyncio.create_task(stream({"type": "http", "client": ("::1", 1)}, receive, send))
        try:
            scraped = (await all_pages.metrics(request)).body
            await until(lambda: any(b"The store fails" in body for body in sent))
            assert not hanging.done()
        finally:
            answer.set()
        await hanging
        streaming.cancel()
    assert b"\ndurability_store_up 0.0\n" in bytes(scraped)


async def test_a_viewer_whose_secret_cannot_be_looked_up_is_asked_again() -> None:
    """While the store fails, a viewer gets status 503 with the reason, and the browser reloads the page after
    10 s."""

    async def fails(_: str) -> NoReturn:
        raise StoreError("the disk is gone")

    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def nothing(*_: object) -> NoReturn:
        raise AssertionError("it answers without the page, and reads nothing")

    access = ViewerAccess(nothing, find=fails, host="")
    shown = b"Basic " + base64.b64encode(b"client:00")
    await access({"type": "http", "headers": [(b"authorization", shown)]}, nothing, send)
    assert sent[0]["status"] == 503 and (b"refresh", b"10") in sent[0]["headers"]
    assert sent[1]["body"] == b"The store cannot be read: the disk is gone\n"
