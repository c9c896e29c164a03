"""`verify` of a target on which a later run was made, or may have been."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from durability.errors import (
    EXIT_INCONCLUSIVE,
    EXIT_LOSS,
)
from durability.formats.documents import to_value
from durability.formats.plan import Plan
from durability.protocol.local_address import socket_name
from durability.protocol.messages import Accepted, Register
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import connect
from durability_server.server import Server
from tests.client.verify.verify_lab import ACKED, Lab, codes
from tests.core.evidence.memory_target import Disk
from tests.joined import joined
from tests.sample_facts import drive, facts

MakePlan = Callable[..., Plan]
pytestmark = pytest.mark.slow  # each starts a server and a scan


async def test_superseded_run_cannot_lose(lab: Lab, make_plan: MakePlan) -> None:
    """Where a later run overwrote the target, what is gone was not lost by the drive."""
    await lab.run()
    later = Disk(replace(lab.plan, run=77))
    later.write_to(0, ACKED)
    await lab.run(plan=later.plan)
    lab.disk.files = later.files

    document = await lab.verify(run=lab.plan.run)

    assert (document["exit"], document["run"]) == (EXIT_INCONCLUSIVE, f"{lab.plan.run:016x}")
    assert "superseded" in codes(document)
    assert (await lab.verify())["verdict"] == "durable", "the later run itself can be judged"


async def test_run_that_was_registered_and_wrote_nothing_hides_no_loss(lab: Lab) -> None:
    """Its connection was lost before the server accepted it, and both superblocks are the earlier run's."""
    await lab.run()
    lab.lose(40, 41, 42)
    later = replace(lab.plan, run=77)
    connection = await connect(lab.endpoint, "run")
    register = Register(
        run=77, plan=later.encode(), facts=to_value(facts()), secret=bytes(32), label="", force=True
    )
    await connection.request(register, Accepted)
    connection.close()

    document = await lab.verify()
    assert (document["exit"], document["findings"]["lost"]) == (EXIT_LOSS, 3)


async def test_newer_run_is_judged_where_an_older_superblock_is_left(lab: Lab) -> None:
    """Rule 9: losing all of a later run is its loss, and what the earlier run had shown stands."""
    await lab.run()
    assert (await lab.verify())["verdict"] == "durable"
    later = replace(lab.plan, run=77)
    await lab.run(plan=later)

    document = await lab.verify()

    assert (document["exit"], document["run"]) == (EXIT_LOSS, f"{later.run:016x}")
    older = await lab.verify(run=lab.plan.run)
    assert older["exit"] == EXIT_INCONCLUSIVE
    assert f"--run {later.run:016x}" in older["reasons"][0]["text"]
    stands = (await lab.shown())["case"]["verdicts"]
    assert [past["verdict"] for past in stands] == ["durable", "inconclusive"]


async def test_another_clients_run_on_the_target_hides_no_newer_run(
    tmp_path: Path, make_plan: MakePlan
) -> None:
    """An operator who verifies gets the newest run of the client whose superblock is left."""
    server = Server(store_url=f"sqlite:///{tmp_path / 'store.sqlite'}")
    with TemporaryDirectory() as directory:  # short enough for a socket
        host, port = await server.start("127.0.0.1", 0, directory=Path(directory))
        owner = await joined(server, host, port, credential=tmp_path / "owner.json")
        lab = Lab(tmp_path, owner, make_plan)
        await lab.run()
        await lab.run(plan=replace(lab.plan, run=77))
        lab.endpoint = await joined(server, host, port, credential=tmp_path / "other.json")
        await lab.run(plan=replace(lab.plan, run=99))
        lab.endpoint = Endpoint(local=Path(directory) / socket_name(port))
        document = await lab.verify()
        assert (document["exit"], document["run"]) == (EXIT_LOSS, f"{77:016x}")
        await server.stop()


async def test_newer_run_is_not_judged_without_a_serial(lab: Lab) -> None:
    """Nothing shows that the drive with the older superblock is the one of the later run."""
    nameless = facts(drives=(drive(serial=""),))
    await lab.run(armed=nameless)
    await lab.run(plan=replace(lab.plan, run=77), armed=nameless)
    lab.now = replace(lab.now, drives=nameless.drives)

    document = await lab.verify()

    assert (document["exit"], document["run"]) == (EXIT_INCONCLUSIVE, f"{lab.plan.run:016x}")
    assert "superseded" in codes(document)


async def test_export_of_the_newer_run_is_a_loss_where_the_older_one_is_left(lab: Lab) -> None:
    """An export says which runs are older, as the server does; that of the older run says that it is so."""
    await lab.run()
    first, lab.plan = lab.plan, replace(lab.plan, run=77)
    await lab.run()
    newer = await lab.verify(from_export=await lab.export(), endpoint=None)
    lab.plan = first
    older = await lab.verify(from_export=await lab.export(), endpoint=None)

    assert (newer["exit"], newer["run"]) == (EXIT_LOSS, f"{77:016x}")
    assert (older["exit"], "superseded" in codes(older)) == (EXIT_INCONCLUSIVE, True)
