"""A server, a target, and runs that were made on it, for tests of `verify`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from durability.formats.documents import to_json, to_value
from durability.formats.facts import Facts
from durability.formats.plan import Plan
from durability.protocol.messages import (
    Accepted,
    Ack,
    Armed,
    ArmRun,
    CaseFile,
    DriveSeen,
    Export,
    List,
    Listing,
    Register,
    Show,
    Shown,
    Stop,
    Stopped,
    Stored,
    TargetFailed,
)
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import Connection, connect
from durability_client.target.kernel_storage import KernelStorage
from durability_client.verify.verify_command import VerifyOptions, verify
from tests.client.verify.targets import KnownStorage, lay_down
from tests.core.evidence.memory_target import Disk, after_power_loss, small
from tests.sample_facts import facts

MakePlan = Callable[..., Plan]
Ending = Literal["cut", "stop", "live"]
ACKED = 100


class Lab:
    """A server, a target, and runs that were made on it."""

    def __init__(self, directory: Path, endpoint: Endpoint, make_plan: MakePlan) -> None:
        self.directory = directory
        self.endpoint = endpoint
        self.plan = small(make_plan, record_bytes=512, block_bytes=512, slots=1024, credit=256)
        self.disk = Disk(self.plan)
        self.disk.write_to(0, ACKED)
        self.now: Facts = after_power_loss()
        self.said = io.StringIO()
        self.storage: KernelStorage | None = None
        self._live: list[Connection] = []

    async def run(self, ending: Ending = "cut", plan: Plan | None = None, armed: Facts | None = None) -> None:
        """Let the server see a run of `plan` that acknowledges 100 operations and ends."""
        plan, known = plan or self.plan, to_value(armed or facts())
        connection = await connect(self.endpoint, "run")
        register = Register(
            run=plan.run, plan=plan.encode(), facts=known, secret=bytes(32), label="bench 4", force=True
        )
        await connection.request(register, Accepted)
        await connection.request(ArmRun(facts=known), Armed)
        connection.send(Ack(frontiers=(ACKED,), control=0))
        if ending == "live":
            self._live.append(connection)
            return
        end = Stop(frontiers=(ACKED,), control=0, statistics={})
        failed = TargetFailed(errno=5, writer=0, seq=ACKED + 1, text="Input/output error")
        connection.send(end if ending == "stop" else failed)
        while not isinstance(await connection.receive(), Stopped):
            pass
        if ending != "stop":
            await connection.request(DriveSeen(error_age_us=0, drive="dead", text="no answer"), Stored)
        connection.close()

    async def verify(self, **changes: Any) -> dict[str, Any]:
        """The document of a verify of the target as it is now, with the exit code; stderr is in `said`."""
        if self.storage is None:
            self.storage = KnownStorage(lay_down(self.disk, self.directory).path, self.now)
        options = VerifyOptions(target=None, endpoint=self.endpoint, json=True)
        out = io.StringIO()
        code = await verify(replace(options, **changes), storage=self.storage, out=out, err=self.said)
        answer = out.getvalue()
        return {"exit": code, "page": answer} if "json" in changes else {**json.loads(answer), "exit": code}

    async def shown(self) -> dict[str, Any]:
        """All that the server keeps of the run."""
        with closing(await connect(self.endpoint, "query")) as connection:
            return dict((await connection.request(Show(run=self.plan.run), Shown)).document)

    async def listed(self) -> str:
        """The verdict of the run in the server's list."""
        with closing(await connect(self.endpoint, "query")) as connection:
            runs = (await connection.request(List(limit=1), Listing)).rows
        return str(runs[0]["verdict"])

    async def export(self) -> Path:
        """An export of the run."""
        with closing(await connect(self.endpoint, "query")) as connection:
            case = (await connection.request(Export(run=self.plan.run), CaseFile)).case
        path = self.directory / "export.json"
        path.write_text(to_json(case))
        return path

    def lose(self, *seqs: int) -> None:
        """Put the prefill where these operations wrote."""
        for seq in seqs:
            slot = self.disk.slot_of(0, seq)
            self.disk.put(0, slot, self.disk.record(0, slot, 0))

    def end(self) -> None:
        for connection in self._live:
            connection.close()


def codes(document: dict[str, Any]) -> list[str]:
    """The reasons of a verdict's document."""
    return [reason["code"] for reason in document["reasons"]]
