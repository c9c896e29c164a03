"""Parts of the live page without its process: samples, pictures, verdicts of any client, vanished drives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from durability.formats.plan import Plan
from durability_server.store.live_rows import RunNow
from durability_server.web.campaign_watch import Missing
from durability_server.web.live_samples import SAMPLES_MAX, RunTrack
from durability_server.web.page_exchange import PageSettings, Pulse, line_of, pulse_of, settings_of
from durability_server.web.pictures import line_of as picture_of
from durability_server.web.readings import missing_text, unix_s
from durability_server.web.verdict_view import verdict_view
from tests.server.conftest import PLAN_FIELDS
from tests.server.web.test_live_values import statistics_after

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
    assert first.p50_us == pytest.approx(900, rel=1 / 32) and third.p99_us == first.p99_us
    assert first.lag_s == pytest.approx(0.1) and third.lag_s == pytest.approx(0.1)
    track.look(replace(RUN, frontiers=(3000, 0)), now_ns=20 * S, boot_id="other")
    assert track.samples[-1].lag_s is None
    for _ in range(SAMPLES_MAX + 5):
        track.look(RUN, now_ns=99 * S, boot_id="boot")
    assert len(track.samples) == SAMPLES_MAX


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


@pytest.mark.parametrize(
    "document",
    [
        None,
        7,
        [],
        {"verdict": 3, "reasons": "no", "cut": [], "at_risk": 1, "findings": None, "strength": {"cuts": "x"}},
        {"verdict": "loss", "reasons": [None, 3, {"code": 5}], "cut": {"class": 1, "proof": {"a": 1}}},
        {"loss_window": {"ms_min": True}, "strength": {"cuts": 1, "losses": 0, "bound": "much"}},
    ],
)
def test_any_document_can_be_shown(document: Any) -> None:
    """What a client sent as its verdict breaks no page."""
    view = verdict_view(document)
    assert all(isinstance(text, str) for pair in view.pairs for text in pair)


def test_a_reason_without_a_sentence_gets_that_of_its_code() -> None:
    """Documents of earlier releases have codes only; a long list is cut."""
    view = verdict_view({"reasons": [{"code": "findings"}] * 1000, "findings": {"lost": 3, "torn": 0}})
    assert view.reasons[0].startswith("acknowledged data are missing") and len(view.reasons) == 50
    assert ("findings", "3 lost") in view.pairs


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
def test_findings_that_do_not_count_are_called_so() -> None:
    """A later run explains them, and the loss is that of an earlier pass; no findings are none."""
    codes = [{"code": "earlier-loss"}, {"code": "superseded"}]
    view = verdict_view({"verdict": "loss", "reasons": codes, "findings": {"lost": 3}})
    assert ("findings that do not count", "3 lost") in view.pairs
    assert ("findings", "none") in verdict_view({"verdict": "durable", "findings": {"lost": 0}}).pairs


    [
        ("2026-11-24T10:00:00.000Z", "2026-11-24T09:59:00.000Z", "is not there"),
        ("2026-11-24T10:00:00.000Z", "2026-11-24T10:01:00.000Z", ""),
        ("", "2026-11-24T10:01:00.000Z", "is not there"),
    ],
)
def test_a_drive_that_a_later_run_found_has_come_back(until: str, heard: str, gone: str) -> None:
    """What a campaign says that is over counts until the drive's runs are heard again."""
    row = {"serial": "S1", "client_name": "b"}
    missing = {("S1", "b"): Missing(text="is not there", until=until)}
    assert missing_text(row, replace(RUN, last_receipt=heard), missing, alone=True) == gone
