"""The values on the live page and in /metrics are those that the commands print of the same store."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from durability.bench import figures
from durability.bench.catalogue import LADDER
from durability.bench.compare import compare
from durability.bench.kept_result import pack_body, summary_of
from durability.campaign.results import results, sentence
from durability.formats.case import case_from_value, case_to_value
from durability.formats.documents import to_value
from durability.formats.histogram import Histogram
from durability.formats.run_statistics import Statistics, statistics_to_value
from durability.protocol import messages
from durability.units import duration, few_digits, format_run, percent
from durability_client.campaigns.campaign_results import health_to_value, results_to_value
from durability_client.campaigns.campaign_text import status_value
from durability_server.store.store import Store
from tests.client.bench.test_cut_verdicts import keep_log
from tests.core.bench.results import Device, drive, facts, simulate
from tests.core.campaign.told_campaign import condition
from tests.core.campaign.written_log import said, written_log
from tests.server.campaigns.played_machine import Machine
from tests.server.campaigns.test_campaigns import begin, living, settings_of, until
from tests.server.conftest import Lab
from tests.server.web.conftest import Show

pytestmark = pytest.mark.slow  # each starts the process of a page

HTML = '<script>document.title="taken"</script>"\''
EVIL = HTML + "\x1b[31m\u202e"
LOSS: dict[str, Any] = {
    "verdict": "loss",
    "cut": {"class": "power", "proof": ["unsafe shutdowns of S7: 3 to 4"]},
    "at_risk": {"ms1": 1, "ms10": 2, "ms100": 3, "ms1000": 5},
    "reasons": [{"code": "findings", "text": f"12 records are lost {EVIL}"}],
    "findings": {"lost": 12, "torn": 0},
    "examples": [{"class": "lost", "text": f"writer 0 slot 7: lost, expected seq 9, found seq 3 {HTML}"}],
    "strength": {"cuts": 1, "losses": 1, "bound": 1.0},
}


def _values(metrics: str, name: str) -> dict[str, float]:
    """Of a metric, each value by its labels."""
    found = {}
    for line in metrics.splitlines():
        labels, _, value = line.rpartition(" ")
        if labels.partition("{")[0] == name:
            found[labels] = float(value)
    return found


def statistics_after(elapsed_s: float, *latencies_us: int, each: int = 1000) -> dict[str, Any]:
    """Statistics after so many seconds, with these latencies, so many of each."""
    counted = Histogram()
    counted.record(np.repeat(np.array(latencies_us, dtype=np.uint64) * 1000, each))
    found = Statistics(
        elapsed_s=elapsed_s,
        operations=(500 * len(latencies_us),) * 2,
        latency_ns={name: list(values) for name, values in counted.to_value().items()},
        drives=(),
    )
    return statistics_to_value(found)


@pytest.mark.usefixtures("no_silence")
async def test_runs_and_drives_are_those_of_the_commands(lab: Lab, store_url: str, show_page: Show) -> None:
    """Rows of runs and drives, a run's case and verdicts, and the figures of /metrics, on both databases."""
    running = await lab.start(store_url, readers=True)
    page = await show_page(running.server, store_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(run=7), lab.facts(serial="S7"), label="first")
    await client.acknowledge(30, 40)
    await client.close()
    judge = await lab.connect(running.address, "verify")
    await judge.fetch(7, lab.facts(serial="S7"), end=True)
    await judge.ask(messages.GiveVerdict(run=7, document=LOSS), messages.Stored)
    live = await lab.connect(running.address)
    await live.begin(lab.plan(run=8), lab.facts(serial="S8", uuid="u8"), label=HTML)
    await live.acknowledge(100, 234)

    text = await page.text_with("/", "334 operations acknowledged", "LOSS", "S7", "S8", "writing")
    assert "<script>document" not in text and "\u202e" not in text and "&lt;script&gt;document" in text
    query = await lab.connect(running.address, "query", local=True)
    runs = (await query.ask(messages.List(limit=100), messages.Listing)).rows
    drives = (await query.ask(messages.List(limit=100, by="drive"), messages.Listing)).rows
    shown = await page.json("/runs.json")
    assert [dict(row) for row in drives] == shown["drives"]
    moving = {"last_receipt"}
    assert [{k: v for k, v in row.items() if k not in moving} for row in runs] == [
        {k: v for k, v in row.items() if k not in moving} for row in shown["runs"]
    ]

    document_of = (await query.ask(messages.Show(run=7), messages.Shown)).document
    paged = await page.json(f"/runs/{format_run(7)}.json")
    case, paged_case = (case_to_value(case_from_value(one)) for one in (document_of["case"], paged["case"]))
    assert {**paged_case, "now_ns": 0} == {**case, "now_ns": 0}
    assert paged["verdicts"] == document_of["verdicts"]
    text = (await page.get(f"/runs/{format_run(7)}")).text
    for wanted in (
        "12 records are lost &lt;script&gt;",
        "12 lost",
        "unsafe shutdowns of S7",
        "1 loss in 1 cut",
        '<td class="words">writer 0 slot 7</td><td class="words">seq 3 &lt;script&gt;',
        '<td class="words">seq 9</td>',
    ):
        assert wanted in text

    metrics = await page.metrics()
    by_serial = {row["serial"]: row for row in drives}
    for name, value in _values(metrics, "durability_drive_cuts").items():
        row = by_serial["S7" if '"S7"' in name else "S8"]
        is_loss = 'result="loss"' in name
        assert value == (row["losses"] if is_loss else int(str(row["cuts"])) - int(str(row["losses"])))
    acked = _values(metrics, "durability_drive_acknowledged_operations_total")
    assert sorted(acked.values()) == [70, 334]
    (bound,) = (v for k, v in _values(metrics, "durability_drive_loss_bound_ratio").items() if '"S7"' in k)
    assert bound == by_serial["S7"]["bound"] == 1.0
    assert _values(metrics, "durability_store_up") == {"durability_store_up": 1}


@pytest.mark.usefixtures("no_silence")
async def test_a_run_as_it_goes(lab: Lab, sqlite_url: str, show_page: Show) -> None:
    """Events bring what has changed: the count, and percentiles of the newest second alone. The largest round
    trip is that of the run's case."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(run=9), lab.facts())
    stream = await page.stream(f"/runs/{format_run(9)}/live")
    assert await stream.status() == 200
    await client.acknowledge(10, 20)
    await stream.event_with("<b>30</b><span>operations acknowledged")
    client.say(messages.Progress(statistics=statistics_after(1.0, 100)))
    await stream.event_with("frame age: of the newest stored frame")
    await page.text_with(f"/runs/{format_run(9)}", "in the last second")
    # The figures of a second need two statistics that the page has seen; then half are fast.
    event = {"now": ""}
    for second in range(2, 60):
        client.say(messages.Progress(statistics=statistics_after(float(second), *[100, 5000] * second)))
        event = await stream.event()
        now = event.get("now", "")
        if "5 ms</b><span>p99 of a commit" in now and "100 \u00b5s</b><span>p50 of a commit" in now:
            break
    else:
        pytest.fail(str(event))
    metrics = await page.metrics()
    lags = _values(metrics, "durability_drive_lag_seconds")
    assert len(lags) == 1 and 0 <= next(iter(lags.values())) < 60
    stream.writer.close()
    await lab.exported(running.address, 9, lambda case: case.rtt_max_ns > 0)
    await client.close()
    case = await lab.exported(running.address, 9, lambda case: case.session_end != "live")
    trip = f"Largest round trip of a heartbeat to the client and back: {duration(case.rtt_max_ns)}."
    await page.text_with(f"/runs/{format_run(9)}", trip)


async def test_a_campaign_is_that_of_the_commands(
    lab: Lab, sqlite_url: str, power: Path, show_page: Show
) -> None:
    """The campaign's page and /metrics show the same sentences, arms, bound and health as `campaign show`."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    machine = Machine(lab, running.address, power, verdicts={"ssd": ["durable", "inconclusive", "durable"]})
    async with living(machine):
        await begin(lab, running, settings_of(power))
        state = await until(lab, running, lambda state: state.state == "ended")
    (result,) = results(state)
    text = await page.text_with("/campaigns/trial", "ended: complete")
    assert sentence(result) in text
    over = sum(1 for past in state.cycles if past.began.cycle)
    assert f"<b>{over} over, 0 left</b><span>cycles" in text
    value = status_value(state, {}, took_s=None)
    assert value["results"] == results_to_value(state)
    health = health_to_value(state)
    assert health and "Health of ssd, by cycle" in text and "time to ready" in text
    bound = percent(result.tally.bound) if result.tally.bound is not None else "\u2013"
    assert f"<td>{result.tally.cuts}</td><td>{result.tally.cuts - result.tally.losses}</td>" in text
    assert f"<td>{bound}</td>" in text
    metrics = await page.metrics()
    counts = _values(metrics, "durability_campaign_drive_cuts")
    by_result = {name.partition('result="')[2].partition('"')[0]: count for name, count in counts.items()}
    tally = result.tally
    assert by_result == {
        "clean": tally.cuts - tally.losses,
        "loss": tally.losses,
        "unknown": tally.unknown,
    }
    await page.text_with("/", sentence(result))


async def test_a_loss_after_a_shutdown_is_red_and_counted(lab: Lab, sqlite_url: str, show_page: Show) -> None:
    """A loss in an arm that does not cut under load is red on both pages, and /metrics counts it."""
    store = Store(sqlite_url)
    store.open()
    cycles = [[said("durable", 1)], [said("loss", 2)], [said("durable", 3)], [said("kept", 4)]]
    keep_log(store, written_log("c", cycles, {"d0": condition("S1")}, moments=("load", "shutdown")))
    store.close()
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    lost = "LOSS in 1 of 2 cuts of arm 1 (shutdown)."
    assert re.search(
        f'class="panel stop"><b>d0</b>: .*{re.escape(lost)}', await page.text_with("/campaigns/c")
    )
    assert re.search(f'class="no">d0: .*{re.escape(lost)}', await page.text_with("/", "Campaigns"))
    counts = _values(await page.metrics(), "durability_campaign_drive_cuts")
    assert sorted(counts.values()) == [0.0, 1.0, 2.0]
    assert next(count for labels, count in counts.items() if 'result="loss"' in labels) == 1.0


async def test_a_vanished_drive_stays(lab: Lab, sqlite_url: str, show_page: Show) -> None:
    """A drive on which every read failed after an I/O error is shown as vanished. Its metrics stay."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(run=11), lab.facts(serial="GONE"))
    await client.acknowledge(3, 4)
    failed = messages.TargetFailed(errno=5, writer=0, seq=4, text="Input/output error")
    await client.ask(failed, messages.Stopped)
    seen = messages.DriveSeen(error_age_us=1000, drive="dead", text="no answer")
    await client.ask(seen, messages.Stored)
    await client.close()
    await page.text_with("/", "vanished</span>", "every read failed after the I/O error")
    metrics = await page.metrics()
    (vanished,) = _values(metrics, "durability_drive_vanished").items()
    assert 'serial="GONE"' in vanished[0] and vanished[1] == 1
    assert (
        _values(metrics, "durability_drive_state")[
            vanished[0].replace("drive_vanished", "drive_state").replace("}", ',state="vanished"}')
        ]
        == 1
    )


async def test_kept_results_are_compared_as_by_the_command(
    lab: Lab, sqlite_url: str, show_page: Show
) -> None:
    """The page compares the ticked results as `compare` does and names a drive that lost data. One result
    alone, or an unknown result, is an error."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    assert "No result is stored yet" in (await page.get("/results")).text
    owner = await lab.connect(running.address, "verify")
    measured = [
        simulate(device, facts=facts(drives=(drive(model=model, serial=model),)))
        for device, model in (
            (Device(), "Fast"),
            (Device(dirty_ns=3_000_000.0), "Slow"),
            (Device(noise=0.3), "Noisy"),
        )
    ]
    names = []
    for result in measured:
        keep = messages.KeepResult(summary=to_value(summary_of(result)), body=pack_body(result))
        names.append((await owner.ask(keep, messages.ResultKept)).result)
    moved = [few_digits((summary_of(one).bytes_per_s or 0) / 1e6) for one in measured]
    listed = [*(f'value="{name}"' for name in names), *(f"<td>{one}</td>" for one in moved)]
    await page.text_with("/results", *listed, "Fast", "Slow", "MB/s")
    address = "/compare?" + "&".join(f"result={name}" for name in names)
    text = html.unescape((await page.get(address)).text)
    compared = compare(list(zip(("Fast", "Slow", "Noisy"), measured, strict=True)))
    ratios = [figures.decided(compared.rows[0], number)[3] for number in (1, 2)]
    assert [ratio.endswith("?") for ratio in ratios] == [False, True]
    assert all(f"ratio {ratio}</span>" in text for ratio in ratios)
    assert compared.answers[0] in text and compared.rows[0].against[0].text in text
    assert "no known power cut" in text
    (ladder,) = (row for row in compared.rows if row.cell == LADDER[-1])
    for row, unit in ((compared.rows[0], "/s"), (ladder, "")):  # rates are compared, and times of syncs
        for number, summary in enumerate(row.summaries):
            shown = f"{figures.compared(row, number)[0]}{unit}, {figures.megabytes(summary)} MB/s"
            assert f"<td>{shown}</td>" in text
    for wrong in ("/compare", f"/compare?result={names[0]}", "/compare?result=zz&result=yy"):
        assert "tick two to 4 results" in (await page.get(wrong)).text
    unknown = await page.get(f"/compare?result={names[0]}&result={'0' * 12}")
    assert unknown.status_code == 404 and "has no result" in unknown.text
