"""/metrics and the examples beside it, by Prometheus itself: what it accepts, scrapes and warns of."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from durability.protocol import messages
from tests.places import ROOT
from tests.server.conftest import Lab
from tests.server.web.conftest import Show
from tests.waiting import until

EXAMPLES = ROOT / "docs/examples"
METRICS = ROOT / "docs/reference/metrics.md"
_NAME = re.compile(r"\bdurability_[a-z_]+\b")


@pytest.fixture(scope="module")
def prometheus() -> None:
    """Skips without Prometheus, unless DURABILITY_LAB_REQUIRED=1 says that it must be there."""
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    if missing and os.environ.get("DURABILITY_LAB_REQUIRED") != "1":
        pytest.skip("no Prometheus: install the package prometheus")
    assert not missing, missing


def _promtool(*arguments: str | Path, text: str = "") -> None:
    """It has nothing to complain about."""
    done = subprocess.run(
        ["promtool", *map(str, arguments)], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


@pytest.mark.usefixtures("prometheus")
def test_the_examples_are_right() -> None:
    """promtool accepts the rules, and the configuration that names them."""
    _promtool("check", "rules", EXAMPLES / "alerts.yml")
    _promtool("check", "config", EXAMPLES / "prometheus.yml")


_RULE_TEST = """
rule_files: [alerts.yml]
tests:
  - interval: 1m
    input_series:
      - series: 'durability_drive_state{serial="S1", state="cut"}'
        values: "0x9 1x70"
      - series: 'durability_drive_lag_seconds{serial="S1"}'
        values: "0x9"
    alert_rule_test:
      - {alertname: RunSilent, eval_time: 65m, exp_alerts: []}
      - alertname: RunSilent
        eval_time: 75m
        exp_alerts:
          - exp_labels: {serial: S1, state: cut}
            exp_annotations:
              summary: The newest run on S1 ended in silence or an I/O error an hour ago, and was not verified
"""


# A campaign keeps machine b, with drive S1, without power for a day. Ten minutes later b has verified, and
# falls silent in its next run. Machine e is without power for one of four minutes, and nobody verifies S2.
_REST_TEST = """
rule_files: [alerts.yml]
tests:
  - interval: 1m
    input_series:
      - series: 'durability_machine_without_power{campaign="c", client="b"}'
        values: "0 1x1439 0x400"
      - series: 'durability_machine_silent_seconds{campaign="c", client="b"}'
        values: "0 0x1439 86400+60x9 0+60x390"
      - {series: 'durability_drive_state{client="b", serial="S1", state="cut"}', values: "0 1x1449 0 1x390"}
      - {series: 'durability_drive_cuts_left_out{client="b", serial="S1"}', values: "0 1x1449 0 1x390"}
      - {series: 'durability_machine_without_power{campaign="d", client="e"}', values: "ONE OF FOUR"}
      - {series: 'durability_drive_state{client="e", serial="S2", state="cut"}', values: "1x1500"}
    promql_expr_test:
      - {expr: 'count(ALERTS{alertstate="firing", client="b"})', eval_time: 100m, exp_samples: []}
      - {expr: 'count(ALERTS{alertstate="firing", client="b"})', eval_time: 1430m, exp_samples: []}
      - {expr: 'count(ALERTS{alertstate="firing", client="b"})', eval_time: 1445m, exp_samples: []}
      - {expr: 'count(ALERTS{alertstate="firing", client="b"})', eval_time: 1465m, exp_samples: []}
      - expr: 'count by (alertname) (ALERTS{alertstate="firing", client="b"})'
        eval_time: 1600m
        exp_samples:
          - {labels: '{alertname="AgentSilent"}', value: 1}
          - {labels: '{alertname="CutsWithoutOutcome"}', value: 1}
          - {labels: '{alertname="RunSilent"}', value: 1}
      - expr: 'count by (alertname) (ALERTS{alertstate="firing", client="e"})'
        eval_time: 70m
        exp_samples: [{labels: '{alertname="RunSilent"}', value: 1}]
""".replace("ONE OF FOUR", " ".join(["1 0x2"] * 400))


@pytest.mark.usefixtures("prometheus")
@pytest.mark.parametrize("rules", [_RULE_TEST, _REST_TEST], ids=["silent", "rest"])
def test_what_fell_silent_is_told_of(tmp_path: Path, rules: str) -> None:
    """The alert rules report a silent run. Its lag metric ends with the run, but the state of its drive
    stays. They do not report a long rest without power in a campaign, or the boot after it."""
    shutil.copy(EXAMPLES / "alerts.yml", tmp_path)
    path = tmp_path / "test.yml"
    path.write_text(rules)
    _promtool("test", "rules", path)


def _queries(value: Any) -> Iterator[str]:
    """The queries of a dashboard."""
    if isinstance(value, dict):
        yield from ([value["expr"]] if isinstance(value.get("expr"), str) else [])
        for inner in value.values():
            yield from _queries(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _queries(inner)


def test_the_examples_name_metrics_that_there_are() -> None:
    """Each metric in the rules and in the dashboard is in the reference."""
    documented = set(_NAME.findall(METRICS.read_text()))
    dashboard = "\n".join(_queries(json.loads((EXAMPLES / "dashboard.json").read_text())))
    for text in (dashboard, (EXAMPLES / "alerts.yml").read_text()):
        used = {re.sub(r"_seconds_(sum|count)$", "_seconds", name) for name in _NAME.findall(text)}
        assert used and used <= documented


@contextmanager
def _scraping(directory: Path, target: str) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    """A Prometheus with the rules of the example; a function that asks it a query."""
    shutil.copy(EXAMPLES / "alerts.yml", directory)
    text = (EXAMPLES / "prometheus.yml").read_text()
    config = directory / "prometheus.yml"
    fast = "global: {evaluation_interval: 200ms}\n"
    config.write_text(
        fast + text.replace("127.0.0.1:7421", target).replace("interval: 5s", "interval: 300ms")
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        where = f"127.0.0.1:{free.getsockname()[1]}"
    options = (f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}")
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            ["prometheus", *options, f"--web.listen-address={where}"], stdout=log, stderr=log
        )

    def ask(query: str) -> list[dict[str, Any]]:
        assert process.poll() is None, (directory / "log").read_text()
        try:
            answer = requests.get(f"http://{where}/api/v1/query", {"query": query}, timeout=30)
        except requests.ConnectionError:
            return []
        found: list[dict[str, Any]] = answer.json()["data"]["result"] if answer.ok else []
        return found

    try:
        yield ask
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.slow
@pytest.mark.usefixtures("prometheus")
async def test_prometheus_scrapes_it(lab: Lab, sqlite_url: str, show_page: Show, tmp_path: Path) -> None:
    """promtool is content with /metrics; the reference has each metric; Prometheus scrapes them, has the
    value of a run, and its alert fires for a drive that vanished, whose series stays."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(run=5), lab.facts(serial="P1"))
    await client.acknowledge(30, 12)
    text = await page.metrics()
    _promtool("check", "metrics", text=text)
    types = re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)
    documented = set(_NAME.findall(METRICS.read_text()))
    assert types and set(types) <= documented

    with _scraping(tmp_path, page.url.split("/")[2]) as ask:

        def now(query: str, value: str) -> bool:
            time.sleep(0.05)
            return any(one["value"][1] == value for one in ask(query))

        await until(lambda: now('durability_drive_acknowledged_operations_total{serial="P1"}', "42"))
        await until(lambda: now('durability_drive_state{serial="P1",state="writing"}', "1"))
        failed = messages.TargetFailed(errno=5, writer=0, seq=31, text="Input/output error")
        await client.ask(failed, messages.Stopped)
        seen = messages.DriveSeen(error_age_us=1000, drive="dead", text="no answer")
        await client.ask(seen, messages.Stored)
        await until(lambda: now('durability_drive_vanished{serial="P1"}', "1"))
        await until(lambda: now('ALERTS{alertname="DriveVanished",serial="P1",alertstate="firing"}', "1"))
        assert ask('durability_drive_vanished{serial="P1"}')[0]["metric"]["machine"]
