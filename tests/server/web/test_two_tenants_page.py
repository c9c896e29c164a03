"""The live page and /metrics, where two clients say that a drive is theirs."""

from __future__ import annotations

import html
from dataclasses import replace

import pytest

from durability.bench.hashed_serials import hash_serials
from durability_client.bench.cut_verdicts import found_verdicts
from tests.core.bench.results import JUDGED, Device, simulate
from tests.server.conftest import Lab
from tests.server.two_tenants import SERIAL, endpoint_of, on, tenant
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
    metrics = await page.metrics()
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


@pytest.mark.slow
@pytest.mark.parametrize("emulated", [False, True])
async def test_the_page_compares_as_the_command(
    lab: Lab, sqlite_url: str, show_page: Show, *, emulated: bool
) -> None:
    """Runs of hand count beside a result, clean ones and a loss, also on a mirror of two drives."""
    running = await lab.start(sqlite_url, readers=True)
    owner = await tenant(lab, running, "b1")
    page = await show_page(running.server, sqlite_url)
    plain = on(lab, "b1")
    drives = [replace(plain.drives[0], serial=one, name=one, emulated=emulated) for one in ("M1", "M2")]
    mirror = replace(plain, drives=tuple(drives))
    measured = [hash_serials(simulate(Device(), cells=JUDGED[:4], facts=one)) for one in (plain, mirror)]
    address = "/compare?" + "&".join([f"result={await owner.keep(result)}" for result in measured])
    await owner.cut(1, plain, "durable")
    await owner.cut(2, mirror, "loss")
    text = html.unescape(await page.text_with(address, "lost data"))
    found = await found_verdicts(endpoint_of(owner), measured)
    assert [proof is not None and proof.losses for proof in found.proofs] == [0, 1]
    for proof in found.proofs:
        assert proof is not None and proof.text in text
