"""`durability demo`: the whole product on one machine in seconds, with simulated drives.

Server, client and verify are the real ones, with a socket and a database; only the drives are simulated, so
the demo needs no privileges and no packages. It shows a drive that lies about its cache, which only a power
cut reveals. The exit code says whether each verdict is the expected one for its drive.
"""

from __future__ import annotations

import asyncio
import io
import json
import secrets
from contextlib import redirect_stderr
from dataclasses import dataclass
from random import Random
from typing import Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.table import Table

from durability.errors import EXIT_INTERNAL, EXIT_OK, SetupError, TargetError
from durability_client.run.planning import RunOptions
from durability_client.run.run_command import run
from durability_client.system.terminal import Terminal
from durability_client.verify.verify_command import VerifyOptions, verify
from durability_lab.drive.drive import Model
from durability_lab.drive.faults import FlushIgnored, Honest, WriteThrough
from durability_lab.simulated_rig.simulated_storage import SimulatedStorage
from durability_lab.support.local_server import LocalServer, local_server
from durability_lab.truth.expected_verdict import AS_EXPECTED, NOT_AS_EXPECTED

SIZE_BYTES = 24 << 20
WRITERS = 2
SYNC_S = 0.0005  # like a consumer SSD with a volatile cache
CUT_AFTER = range(3_000, 6_000)  # operations
CUTS_MAX = 5  # most cuts of one drive; a cut is repeated if no writer was writing at that time
ATTESTATION = "the demo cut its simulated drive"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoDrive:
    """One drive of the demo and its expected verdict."""

    title: str
    model: Model
    expected: str


EXHIBITS = (
    DemoDrive(title="honest write cache", model=Honest(), expected="durable"),
    DemoDrive(title="write-through", model=WriteThrough(), expected="durable"),
    DemoDrive(title="lying write cache", model=FlushIgnored(), expected="loss"),
)


async def demo(out: TextIO, *, seed: int | None = None) -> int:
    """Run the demo and return its exit code; the same `seed` gives the same drives and the same cuts."""
    chosen = secrets.randbits(32) if seed is None else seed
    console = Terminal(file=out, highlight=False)
    console.print(f"Three simulated drives, one power cut each. Seed {chosen}.")
    documents = []
    async with local_server() as lab:
        console.print(f"A server listens on {lab.address}.")
        for number, exhibit in enumerate(EXHIBITS):
            console.print(f"  {exhibit.model.name}: write, cut, verify ...")
            documents.append(await _cycles(lab, exhibit.model, console, seed=chosen + number))
    console.print(_table(documents))
    agreed = [document["verdict"] for document in documents] == [exhibit.expected for exhibit in EXHIBITS]
    if agreed:
        console.print(AS_EXPECTED)
        return EXIT_OK
    console.print(NOT_AS_EXPECTED)
    return EXIT_INTERNAL


async def _cycles(lab: LocalServer, model: Model, console: Terminal, *, seed: int) -> dict[str, Any]:
    """The document of the first cut with records at risk, after at most CUTS_MAX cuts.

    On a busy machine the writers may wait for the server at the cut.
    """
    for again in range(1, CUTS_MAX):
        document = await _cycle(lab, model, seed=seed)
        if "nothing-at-risk" not in [reason["code"] for reason in document["reasons"]]:
            return document
        console.print(f"    no writer was writing at the cut, so it proves nothing: cut {again + 1}")
    return await _cycle(lab, model, seed=seed)


async def _cycle(lab: LocalServer, model: Model, *, seed: int) -> dict[str, Any]:
    """Write, cut, power on and verify one drive; returns the document of `verify --json`."""
    storage = SimulatedStorage(model, seed=seed, sync_s=SYNC_S)
    said = io.StringIO()
    with redirect_stderr(said):
        await _run_until_cut(lab, storage, said, cut_after=Random(seed).choice(CUT_AFTER))
        storage.power_on()
        answer = io.StringIO()
        options = VerifyOptions(
            target=None,
            endpoint=lab.endpoint,
            attest_cut=ATTESTATION,
            json=True,
        )
        await verify(options, storage=storage, out=answer)
    document: dict[str, Any] = json.loads(answer.getvalue())
    return document


async def _run_until_cut(
    lab: LocalServer, storage: SimulatedStorage, said: io.StringIO, *, cut_after: int
) -> None:
    options = RunOptions(
        endpoint=lab.endpoint, size_bytes=SIZE_BYTES, writers=WRITERS, direct=True, destroy_data=True
    )
    client = asyncio.create_task(run(options, storage, io.StringIO()))
    cut = await lab.until_acked(storage.path, cut_after, client)
    storage.cut()
    try:
        await client
    except TargetError:
        if cut:
            return  # expected: the drive is gone
    raise SetupError(f"the client ended before the cut: {said.getvalue()}")


def _table(documents: list[dict[str, Any]]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for heading in ("drive", "acked", "at risk", "lost", "window", "expected", "found"):
        table.add_column(heading)
    for exhibit, document in zip(EXHIBITS, documents, strict=True):
        window = document["loss_window"]
        found = document["verdict"]
        mark = "" if found == exhibit.expected else "  (!)"
        table.add_row(
            exhibit.title,
            str(document["acked"]),
            str(document["at_risk"]["ms1000"]),
            str(document["lost"]["operations"]),
            f"{window['operations']} ops" if window else "",
            exhibit.expected,
            f"{found}{mark}",
        )
    return table
