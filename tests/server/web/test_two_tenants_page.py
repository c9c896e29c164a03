"""The live page and /metrics, where two clients say that a drive is theirs."""

from __future__ import annotations

import pytest

from durability.bench.serials import hash_serials
from tests.core.bench.results import JUDGED, Device, simulate
from tests.server.conftest import Lab
from tests.server.two_tenants import SERIAL, on, tenant
from tests.server.web.conftest import Show


@pytest.mark.slow
async def test_the_page_and_metrics_tell_clients_apart(lab: Lab, sqlite_url: str, show_page: Show) -> None:
    """A copied loss stands beside the copy; a result that was kept is compared by its own client's runs."""
    running = await lab.start(sqlite_url, readers=True)
    honest, copying = await tenant(lab, running, "b1"), await tenant(lab, running, "mallory")
    page = await show_page(running.server, sqlite_url)
    await honest.cut(1, on(lab, "b1"), "durable")
    await copying.cut(2, on(lab, "b1"), "loss")
    await page.text_with("/", "mallory", "b1", "LOSS")
    metrics = (await page.get("/metrics")).text
    lost = [line for line in metrics.splitlines() if line.startswith("durability_drive_cuts{")]
    by_client = {("mallory" if '"mallory"' in line else "b1"): line for line in lost if '"loss"' in line}
    assert by_client["b1"].endswith(" 0.0") and by_client["mallory"].endswith(" 1.0")
    names = [
        await honest.keep(hash_serials(simulate(Device(), cells=JUDGED[:4], facts=on(lab, "b1", serial))))
        for serial in (SERIAL, "OTHER")
    ]
    text = (await page.get("/compare?" + "&".join(f"result={name}" for name in names))).text
    assert "lost data" not in text and "mallory (1 run, 1 loss) are left out" in text
    await honest.cut(3, on(lab, "b1"), "loss")
    await page.text_with("/compare?" + "&".join(f"result={name}" for name in names), "lost data")
